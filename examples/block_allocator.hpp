// Who owns which block of a paged cache.
#pragma once

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace examples {

/// Hands out block ids and counts the references to each, so that sequences with equal beginnings can share blocks.
class BlockAllocator {
 public:
  /// Blocks are handed out in an order shuffled by `seed`: neighbours in a sequence are not neighbours in memory, as in an engine
  /// that has run for a while.
  explicit BlockAllocator(int num_blocks, unsigned seed = 0) : references_(checked(num_blocks), 0), free_(references_.size()) {
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), std::mt19937(seed));
  }

  int num_blocks() const { return int(references_.size()); }
  int num_free() const { return int(free_.size()); }
  int references(int block) const { return references_.at(std::size_t(block)); }

  /// A block with one reference; nothing when all are taken.
  std::optional<int> allocate() {
    if (free_.empty()) return std::nullopt;
    const int block = free_.back();
    free_.pop_back();
    references_[std::size_t(block)] = 1;
    return block;
  }

  /// One more owner of a block that has one.
  void share(int block) { ++live(block); }

  /// One owner less; without owners the block is free again.
  void release(int block) {
    if (--live(block) == 0) free_.push_back(block);
  }

 private:
  static std::size_t checked(int num_blocks) {
    if (num_blocks < 0) throw std::invalid_argument("BlockAllocator: negative number of blocks");
    return std::size_t(num_blocks);
  }
  int& live(int block) {
    int& count = references_.at(std::size_t(block));
    if (count == 0) throw std::logic_error("BlockAllocator: block " + std::to_string(block) + " has no owner");
    return count;
  }

  std::vector<int> references_;  // of each block; 0 = free
  std::vector<int> free_;
};

}  // namespace examples
