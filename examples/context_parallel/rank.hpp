// What one rank of a context-parallel group holds: its share of every sequence's blocks, and the parts of all ranks once gathered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "../attend.hpp"
#include "hpa/merge.hpp"

namespace context_parallel {

using examples::DeviceArray;
using examples::Elements;
using examples::Sequences;

/// A batch of decode queries on one paged cache, on the host: what a single device would have.
struct Batch {
  hpa::DecodeShape shape;
  Sequences sequences;
  Elements query, key_cache, value_cache;

  std::size_t lse_count() const { return sequences.seq_lens.size() * std::size_t(shape.num_heads); }
};

/// A rank's part of the batch: of every sequence the blocks rank, rank + ranks, .. and so on. In turns, so that a sequence that grows
/// grows on all ranks alike. The rank's blocks are numbered anew; a sequence too short for it has length 0 there.
inline Batch part_of(const Batch& whole, int rank, int ranks) {
  const int block_size = whole.shape.block_size, width = int(whole.sequences.block_tables.size()) / whole.sequences.count();
  const int own_width = (width + ranks - 1) / ranks;
  const std::size_t block = examples::block_elements(whole.shape);
  Batch part{whole.shape, {}, whole.query, {}, {}};
  std::int32_t next = 0;
  for (int sequence = 0; sequence < whole.sequences.count(); ++sequence) {
    const int length = whole.sequences.seq_lens[std::size_t(sequence)];
    std::vector<std::int32_t> table(std::size_t(own_width), -1);
    int own_length = 0;
    for (int i = rank; i * block_size < length; i += ranks) {
      const auto from = std::ptrdiff_t(whole.sequences.block_tables[std::size_t(sequence * width + i)]) * std::ptrdiff_t(block);
      const auto copy = [&](const Elements& cache, Elements& own) {
        own.insert(own.end(), cache.begin() + from, cache.begin() + from + std::ptrdiff_t(block));
      };
      copy(whole.key_cache, part.key_cache);
      copy(whole.value_cache, part.value_cache);
      table[std::size_t(i / ranks)] = next++;
      own_length += std::min(block_size, length - i * block_size);
    }
    part.sequences.seq_lens.push_back(own_length);
    part.sequences.block_tables.insert(part.sequences.block_tables.end(), table.begin(), table.end());
  }
  part.key_cache.resize(std::max(part.key_cache.size(), block));  // a rank may have no block: pointers must not be null
  part.value_cache.resize(part.key_cache.size());
  return part;
}

class Rank {
 public:
  Rank(const Batch& whole, int rank, int ranks, int device)
      : part_(part_of(whole, rank, ranks)), rank_(rank), ranks_(ranks), device_(device) {
    examples::use_device(device_);
    stream_ = std::make_unique<examples::DeviceStream>();
    query_ = DeviceArray<std::uint16_t>(part_.query, *stream_);
    keys_ = DeviceArray<std::uint16_t>(part_.key_cache, *stream_);
    values_ = DeviceArray<std::uint16_t>(part_.value_cache, *stream_);
    outs_ = DeviceArray<std::uint16_t>(part_.query.size() * std::size_t(ranks));
    lses_ = DeviceArray<float>(part_.lse_count() * std::size_t(ranks));
    result_ = DeviceArray<std::uint16_t>(part_.query.size());
  }

  int device() const { return device_; }
  hpa::Stream stream() const { return *stream_; }
  std::size_t out_bytes() const { return result_.bytes(); }
  std::size_t lse_bytes() const { return part_.lse_count() * sizeof(float); }
  /// Where the part of rank `from` is, or will be: gathered, all parts lie behind each other in the order of ranks.
  std::uint16_t* out(int from) { return outs_.data() + std::size_t(from) * result_.size(); }
  float* lse(int from) { return lses_.data() + std::size_t(from) * part_.lse_count(); }

  /// Attention over this rank's tokens. The part's out and lse go to their place among the gathered ones.
  void attend() {
    examples::use_device(device_);
    hpa::DecodeShape shape = part_.shape;
    shape.lse = true;
    hpa::DecodeArgs args;
    args.query = query_.data();
    args.cache.keys = keys_.data();
    args.cache.values = values_.data();
    args.out = out(rank_);
    args.lse = lse(rank_);
    examples::attend(shape, args, part_.sequences, stream());
  }

  /// The attention over all ranks' tokens, from the parts of all ranks.
  Elements merged() {
    examples::use_device(device_);
    hpa::MergeArgs merge;
    for (int from = 0; from < ranks_; ++from) merge.states[from] = {out(from), lse(from)};
    merge.num_states = ranks_;
    merge.state_type = merge.out_type = part_.shape.out;
    merge.num_rows = part_.sequences.count();
    merge.num_heads = part_.shape.num_heads;
    merge.head_size = part_.shape.head_size;
    merge.out = result_.data();
    examples::require(hpa::merge_states(merge, stream()), "merge_states");
    return result_.download(stream());
  }

 private:
  Batch part_;
  int rank_, ranks_, device_;
  std::unique_ptr<examples::DeviceStream> stream_;
  DeviceArray<std::uint16_t> query_, keys_, values_, outs_, result_;
  DeviceArray<float> lses_;
};

}  // namespace context_parallel
