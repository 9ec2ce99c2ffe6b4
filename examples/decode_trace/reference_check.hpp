// Compares output rows with the library's double-precision reference.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hpa/hpa.hpp"
#include "hpa/reference.hpp"

namespace examples {

/// Relative L2 errors above this are wrong results, not rounding: 2^-9 and 2^-12 are half a unit in the last place of a bf16 and
/// an fp16 output, and the probabilities are rounded once more.
constexpr double largest_error(hpa::DType out) { return out == hpa::DType::bf16 ? 5e-3 : 1e-3; }

/// Host copies of what one sequence's attention reads: its blocks alone, renumbered from 0 in the order of its tokens.
struct SequenceCopy {
  std::vector<std::byte> query;  // [num_heads, head_size]
  std::vector<std::byte> keys, values;
  std::int32_t length = 0;
};

/// || row - expected || / || expected ||; infinite when anything is not finite.
inline double relative_error(const std::vector<double>& expected, hpa::DType type, const void* row) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double distance = hpa::load_element(type, row, std::int64_t(i)) - expected[i];
    difference += distance * distance;
    size += expected[i] * expected[i];
  }
  const double error = std::sqrt(size == 0 ? difference : difference / size);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

/// The error of `row`, the output of one query head.
inline double row_error(const hpa::DecodeShape& shape, SequenceCopy& sequence, int head, const void* row) {
  std::vector<std::int32_t> table(std::size_t((sequence.length + shape.block_size - 1) / shape.block_size));
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = std::int32_t(i);
  hpa::DecodeArgs args;
  args.query = sequence.query.data();
  args.cache.keys = sequence.keys.data();
  args.cache.values = sequence.values.data();
  args.batch.block_tables = table.data();
  args.batch.seq_lens = &sequence.length;
  args.batch.num_seqs = 1;
  args.batch.block_table_width = int(table.size());
  return relative_error(hpa::reference::row(shape, args, 0, 0, head).out, shape.out, row);
}

}  // namespace examples
