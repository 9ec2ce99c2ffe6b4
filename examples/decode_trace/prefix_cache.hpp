// Blocks of prompt beginnings that later requests may have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "../block_allocator.hpp"

namespace examples {

/// Keeps one reference on each block it knows, so that a prefix outlives the sequence that computed it, until blocks run short.
class PrefixCache {
 public:
  explicit PrefixCache(BlockAllocator& blocks) : blocks_(blocks) {}

  /// The blocks behind a prefix id, in order; nullptr when they are not here.
  const std::vector<int>* find(std::int64_t id) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return nullptr;
    found->second.last_use = clock_;
    return &found->second.blocks;
  }

  /// `depth` counts the prefix ids before this one in the prompt.
  void insert(std::int64_t id, std::size_t depth, std::vector<int> blocks) {
    const auto [entry, inserted] = entries_.try_emplace(id);
    if (!inserted) return;
    for (const int block : blocks) blocks_.share(block);
    entry->second = {std::move(blocks), depth, clock_};
  }

  /// Begins a new moment: entries found or inserted from here on are more recent than all before.
  void tick() { ++clock_; }

  /// Blocks that evict() could free.
  int evictable() const {
    int count = 0;
    for (const auto& [id, entry] : entries_) count += unused(entry) ? int(entry.blocks.size()) : 0;
    return count;
  }

  /// Frees the blocks of the least recently used entry that no sequence uses; of equals the deepest, since a prefix is of no use
  /// without what is before it. False when there is none.
  bool evict() {
    auto victim = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (unused(entry->second) && (victim == entries_.end() || goes_before(entry->second, victim->second))) victim = entry;
    }
    if (victim == entries_.end()) return false;
    for (const int block : victim->second.blocks) blocks_.release(block);
    entries_.erase(victim);
    return true;
  }

 private:
  struct Entry {
    std::vector<int> blocks;
    std::size_t depth = 0;
    std::int64_t last_use = 0;
  };

  bool unused(const Entry& entry) const {
    return std::all_of(entry.blocks.begin(), entry.blocks.end(), [&](int block) { return blocks_.references(block) == 1; });
  }
  static bool goes_before(const Entry& a, const Entry& b) {
    return a.last_use != b.last_use ? a.last_use < b.last_use : a.depth > b.depth;
  }

  BlockAllocator& blocks_;
  std::unordered_map<std::int64_t, Entry> entries_;
  std::int64_t clock_ = 0;
};

}  // namespace examples
