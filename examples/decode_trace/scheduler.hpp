// Which requests run in a step, and which cache blocks their tokens are in. Knows nothing of the device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "../block_allocator.hpp"
#include "prefix_cache.hpp"
#include "trace.hpp"

namespace examples {

struct SchedulerLimits {
  int max_running = 0;           // sequences in a step
  int block_size = 0;            // tokens
  int num_blocks = 0;            // of the cache
  std::int64_t max_seq_len = 0;  // tokens of a sequence
  int blocks_per_prefix_id = 0;  // 0 = prompts share nothing
};

/// A running request.
struct Sequence {
  std::size_t request = 0;  // index in the trace
  std::int64_t length = 0;  // tokens in the cache, this step's included
  std::int64_t end = 0;     // done at this length
  std::vector<int> blocks;  // block i holds tokens i * block_size and up
};

struct Rejection {
  std::size_t request;
  std::string why;
};

/// Where every request went: each is waiting, running, or in exactly one of the first three.
struct RequestCounts {
  std::size_t finished = 0;   // all output tokens were generated
  std::size_t truncated = 0;  // ended at max_seq_len
  std::vector<Rejection> rejected;
  std::int64_t preemptions = 0;           // a sequence gave its blocks up and began anew later
  std::int64_t shared_prompt_tokens = 0;  // prompt tokens found in the prefix cache
  std::int64_t filled_prompt_tokens = 0;  // prompt tokens that had to be computed
};

/// First come, first served. A sequence takes a block when it needs one. When there is none, unused prefixes go first, then the
/// youngest sequence gives its blocks up and waits in front of all others, as if its tokens so far were its prompt.
class Scheduler {
 public:
  Scheduler(std::vector<Request> requests, const SchedulerLimits& limits, unsigned seed = 0)
      : requests_(std::move(requests)), limits_(limits), blocks_(limits.num_blocks, seed), prefixes_(blocks_) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const Request& request = requests_[i];
      waiting_.push_back({i, request.prompt_tokens, std::min(request.prompt_tokens + request.output_tokens, limits.max_seq_len)});
    }
  }

  /// Gives every running sequence one more token and admits what fits. False when no request is left.
  bool begin_step() {
    prompt_slots_.clear();
    grow();
    admit();
    return !running_.empty();
  }
  /// Lets go of the sequences that are done.
  void end_step() {
    const auto done = std::stable_partition(running_.begin(), running_.end(), [](const Sequence& s) { return s.length < s.end; });
    for (auto sequence = done; sequence != running_.end(); ++sequence) {
      const Request& request = requests_[sequence->request];
      ++(sequence->end < request.prompt_tokens + request.output_tokens ? counts_.truncated : counts_.finished);
      release(sequence->blocks);
    }
    running_.erase(done, running_.end());
  }

  const std::vector<Sequence>& running() const { return running_; }                // the oldest first
  const std::vector<std::int64_t>& prompt_slots() const { return prompt_slots_; }  // cache slots of prompt tokens new in this step
  std::size_t num_waiting() const { return waiting_.size(); }
  std::size_t num_requests() const { return requests_.size(); }
  const RequestCounts& counts() const { return counts_; }
  const BlockAllocator& blocks() const { return blocks_; }

  /// The cache slot of a token.
  std::int64_t slot(const Sequence& sequence, std::int64_t token) const {
    return std::int64_t{sequence.blocks[std::size_t(token / limits_.block_size)]} * limits_.block_size + token % limits_.block_size;
  }

 private:
  struct Waiting {
    std::size_t request;
    std::int64_t prompt;  // tokens to be in the cache before the first step
    std::int64_t end;
  };

  void grow() {
    for (std::size_t i = 0; i < running_.size(); ++i) {
      while (i < running_.size() && !reserve(running_[i].blocks, running_[i].length + 1)) preempt_youngest();
      if (i < running_.size()) ++running_[i].length;
    }
  }

  void admit() {
    while (!waiting_.empty() && int(running_.size()) < limits_.max_running) {
      const Waiting next = waiting_.front();
      if (!settled(next) && !start(next)) return;
      waiting_.pop_front();
    }
  }

  /// True for a request that never runs: it is impossible, or there is nothing to generate.
  bool settled(const Waiting& next) {
    const Request& request = requests_[next.request];
    if (next.prompt >= limits_.max_seq_len) {
      reject(next, "a prompt of " + std::to_string(next.prompt) + " tokens leaves no room for an answer, max_seq_len is " +
                       std::to_string(limits_.max_seq_len));
    } else if (blocks_for(next.end) > limits_.num_blocks) {
      reject(next, std::to_string(next.end) + " tokens need " + std::to_string(blocks_for(next.end)) + " blocks, the cache has " +
                       std::to_string(limits_.num_blocks));
    } else if (request.output_tokens == 0) {
      ++counts_.finished;
    } else {
      return false;
    }
    return true;
  }
  void reject(const Waiting& next, std::string why) { counts_.rejected.push_back({next.request, std::move(why)}); }

  /// False when the blocks do not suffice now.
  bool start(const Waiting& next) {
    Sequence sequence{next.request, next.prompt + 1, next.end, share_prefix(next.request)};
    const auto shared = std::int64_t(sequence.blocks.size());
    if (blocks_for(sequence.length) - shared > blocks_.num_free() + prefixes_.evictable()) {
      release(sequence.blocks);
      return false;
    }
    reserve(sequence.blocks, sequence.length);
    for (std::int64_t token = shared * limits_.block_size; token < next.prompt; ++token)
      prompt_slots_.push_back(slot(sequence, token));
    counts_.shared_prompt_tokens += shared * limits_.block_size;
    counts_.filled_prompt_tokens += next.prompt - shared * limits_.block_size;
    keep_prefix(sequence);
    running_.push_back(std::move(sequence));
    return true;
  }

  /// Prefix ids of a request that stand for whole blocks of its prompt.
  std::size_t whole_prefix_ids(std::size_t request) const {
    if (limits_.blocks_per_prefix_id == 0) return 0;
    const std::int64_t tokens = std::int64_t{limits_.blocks_per_prefix_id} * limits_.block_size;
    return std::min(requests_[request].prefix_ids.size(), std::size_t(requests_[request].prompt_tokens / tokens));
  }

  std::vector<int> share_prefix(std::size_t request) {
    prefixes_.tick();
    std::vector<int> shared;
    for (std::size_t i = 0; i < whole_prefix_ids(request); ++i) {
      const std::vector<int>* const known = prefixes_.find(requests_[request].prefix_ids[i]);
      if (known == nullptr) break;
      for (const int block : *known) blocks_.share(block);
      shared.insert(shared.end(), known->begin(), known->end());
    }
    return shared;
  }

  void keep_prefix(const Sequence& sequence) {
    for (std::size_t i = 0; i < whole_prefix_ids(sequence.request); ++i) {
      const auto first = sequence.blocks.begin() + std::ptrdiff_t(i) * limits_.blocks_per_prefix_id;
      prefixes_.insert(requests_[sequence.request].prefix_ids[i], i, {first, first + limits_.blocks_per_prefix_id});
    }
  }

  void preempt_youngest() {
    Sequence& youngest = running_.back();
    // The sequences after the one that is growing have not got this step's token yet; their length is what the cache holds.
    waiting_.push_front({youngest.request, youngest.length, youngest.end});
    release(youngest.blocks);
    running_.pop_back();
    ++counts_.preemptions;
  }

  std::int64_t blocks_for(std::int64_t tokens) const { return (tokens + limits_.block_size - 1) / limits_.block_size; }

  /// Takes blocks until there are enough for `tokens`. False when there are none left; those taken stay.
  bool reserve(std::vector<int>& blocks, std::int64_t tokens) {
    while (std::int64_t(blocks.size()) < blocks_for(tokens)) {
      std::optional<int> block = blocks_.allocate();
      while (!block && prefixes_.evict()) block = blocks_.allocate();
      if (!block) return false;
      blocks.push_back(*block);
    }
    return true;
  }

  void release(std::vector<int>& blocks) {
    for (const int block : blocks) blocks_.release(block);
    blocks.clear();
  }

  std::vector<Request> requests_;
  SchedulerLimits limits_;
  BlockAllocator blocks_;
  PrefixCache prefixes_;
  std::deque<Waiting> waiting_;
  std::vector<Sequence> running_;
  std::vector<std::int64_t> prompt_slots_;
  RequestCounts counts_;
};

}  // namespace examples
