// One call of paged attention whose lengths and tables are on the host, and the comparison of two results. For examples that call
// it several times on parts of one cache; an engine keeps the arrays and the workspace from step to step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "device_memory.hpp"
#include "hpa/decode.hpp"
#include "require.hpp"

namespace examples {

using Elements = std::vector<std::uint16_t>;

inline Elements random_elements(hpa::DType type, std::size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Elements elements(count);
  for (std::size_t i = 0; i < count; ++i) hpa::store_element(type, elements.data(), std::int64_t(i), normal(random));
  return elements;
}

/// Of the keys of one block, in one piece, and as many of its values.
inline std::size_t block_elements(const hpa::DecodeShape& shape) {
  return std::size_t(shape.num_kv_heads) * std::size_t(shape.head_size) * std::size_t(shape.block_size);
}

/// What a call reads beside the query and the cache.
struct Sequences {
  std::vector<std::int32_t> seq_lens;         // [num_seqs]
  std::vector<std::int32_t> block_tables;     // [num_seqs, width]
  std::vector<std::int32_t> query_start_loc;  // [num_seqs + 1]; empty = one query row each

  int count() const { return int(seq_lens.size()); }
  int query_rows(int sequence) const {
    return query_start_loc.empty() ? 1 : query_start_loc.at(std::size_t(sequence) + 1) - query_start_loc.at(std::size_t(sequence));
  }
};

/// Attention of the sequences; `args` has the query, the caches and where the result goes. Complete when it returns.
inline void attend(hpa::DecodeShape shape, hpa::DecodeArgs args, const Sequences& sequences, hpa::Stream stream) {
  shape.max_seqs = sequences.count();
  shape.max_seq_len = std::max(1, *std::max_element(sequences.seq_lens.begin(), sequences.seq_lens.end()));
  hpa::Device device;
  require(hpa::current_device(&device), "current_device");
  require(hpa::check(shape, device), "check");
  const DeviceArray<std::int32_t> seq_lens(sequences.seq_lens, stream), block_tables(sequences.block_tables, stream);
  DeviceArray<std::int32_t> query_start_loc;
  if (!sequences.query_start_loc.empty()) query_start_loc = DeviceArray<std::int32_t>(sequences.query_start_loc, stream);
  DeviceArray<std::byte> memory(hpa::workspace_bytes(shape, device));
  const hpa::Workspace workspace{memory.data(), memory.bytes()};
  args.batch.seq_lens = seq_lens.data();
  args.batch.block_tables = block_tables.data();
  args.batch.query_start_loc = query_start_loc.data();
  args.batch.num_seqs = sequences.count();
  args.batch.block_table_width = int(sequences.block_tables.size() / sequences.seq_lens.size());
  require(hpa::paged_attention(shape, args, workspace, stream), "paged_attention");
  require(hpa::workspace_error(workspace, stream), "paged_attention");
}

/// Of the worst row of `row_size` elements: ||result - expected|| / ||expected||. NaN counts as infinite.
inline double worst_row(hpa::DType type, const Elements& result, const Elements& expected, std::size_t row_size) {
  double worst = 0;
  for (std::size_t row = 0; row < expected.size(); row += row_size) {
    double difference = 0, norm = 0;
    for (std::size_t i = row; i < row + row_size; ++i) {
      const double value = hpa::load_element(type, expected.data(), std::int64_t(i));
      difference += std::pow(hpa::load_element(type, result.data(), std::int64_t(i)) - value, 2);
      norm += value * value;
    }
    const double error = difference == 0 ? 0 : std::sqrt(difference / norm);
    worst = error <= worst ? worst : std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  }
  return worst;
}

}  // namespace examples
