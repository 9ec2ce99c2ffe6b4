// Block tables of a batch whose sequences share blocks: a fork shares all of them, and a block is copied before the first of its
// owners writes to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "../block_allocator.hpp"

namespace examples {

class SharedBlocks {
 public:
  SharedBlocks(int num_blocks, int block_size, int num_sequences)
      : blocks_(num_blocks), block_size_(block_size), sequences_(std::size_t(num_sequences)) {}

  /// `child`, which is empty, begins with the first `tokens` tokens of `parent`.
  void fork(int parent, int child, int tokens) {
    const Sequence& from = sequences_.at(std::size_t(parent));
    Sequence& to = sequences_.at(std::size_t(child));
    if (!to.table.empty() || tokens > from.length) throw std::logic_error("SharedBlocks: this fork is not possible");
    const std::size_t whole_and_last = std::size_t((tokens + block_size_ - 1) / block_size_);
    to.table.assign(from.table.begin(), from.table.begin() + std::ptrdiff_t(whole_and_last));
    to.length = tokens;
    for (const int block : to.table) blocks_.share(block);
  }

  /// The slot of one more token. When others own the block it is in, a copy takes its place: the pair (source, destination) is
  /// added to `copies`, which must be carried out before anything is written.
  std::int64_t append(int sequence, std::vector<std::int64_t>& copies) {
    Sequence& s = sequences_.at(std::size_t(sequence));
    const int offset = s.length % block_size_;
    if (offset == 0) {
      s.table.push_back(take());
    } else if (blocks_.references(s.table.back()) > 1) {
      const int source = s.table.back();
      s.table.back() = take();
      copies.insert(copies.end(), {source, s.table.back()});
      blocks_.release(source);
    }
    ++s.length;
    return std::int64_t{s.table.back()} * block_size_ + offset;
  }

  void release(int sequence) {
    Sequence& s = sequences_.at(std::size_t(sequence));
    for (const int block : s.table) blocks_.release(block);
    s = {};
  }

  const std::vector<int>& table(int sequence) const { return sequences_.at(std::size_t(sequence)).table; }
  int length(int sequence) const { return sequences_.at(std::size_t(sequence)).length; }
  int used_blocks() const { return blocks_.num_blocks() - blocks_.num_free(); }

 private:
  struct Sequence {
    std::vector<int> table;
    int length = 0;  // tokens
  };

  int take() {
    const std::optional<int> block = blocks_.allocate();
    if (!block) throw std::runtime_error("SharedBlocks: the cache is full");
    return *block;
  }

  BlockAllocator blocks_;
  int block_size_;
  std::vector<Sequence> sequences_;
};

}  // namespace examples
