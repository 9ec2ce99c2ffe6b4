// What plan() writes into the workspace and decode() reads: items, rows to reduce, errors; and the rule that cuts sequences into
// items.
#pragma once

#include <cstdint>

#include "hpa/kernel/math.hpp"
#include "hpa/status.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// How sequences are cut. By length: the tokens of a partition depend on the sequence's own length and on the shape, so a row's
/// bits never depend on other sequences. Measured on both makers' chips: long partitions win, and a cut pays only where sequences
/// are too few to fill the chip. Balanced: all sequences, laid end to end, are cut into `shares` of equal cost.
struct PartitionRule {
  int fixed = 0;                    // tokens of every partition; 0 = by the members below
  int sequence_heads = 1;           // (sequence, KV head) pairs that the shape allows
  int compute_units = 1;            // of the chip
  std::uint32_t fill_fraction = 0;  // sequence_heads / compute_units in units of 2^-32, rounded up; 0 where fills_the_chip()
  int whole_sequence_tokens = 4096;
  int long_partition = 2048;
  int min_partition = 128;
  int min_saving = 0;     // a cut that takes fewer tokens off a workgroup is not made
  int shares = 0;         // balanced: workgroups a (KV head, pass over its query rows), each with one share; 0 = by length
  int sequence_cost = 0;  // balanced: cost of a sequence beside its tokens, in tokens
  static constexpr int max_long_partitions =
      64;  // of a sequence, in a batch that fills the chip: longer sequences get longer partitions

  HPA_HOST_DEVICE constexpr bool fills_the_chip() const { return sequence_heads >= compute_units; }

  HPA_HOST_DEVICE constexpr std::int64_t tokens(std::int64_t seq_len) const {
    if (fixed > 0) return fixed;
    if (fills_the_chip()) {
      if (seq_len <= whole_sequence_tokens) return whole_sequence_tokens;
      return power_of_two_from(long_partition, ceil_div(seq_len, max_long_partitions));
    }
    // At least fair_tokens(seq_len), without a division: the product is that or one less.
    std::int64_t cut = power_of_two_from(min_partition, std::int64_t(std::uint64_t(seq_len) * fill_fraction >> 32));
    if (cut * compute_units < seq_len * sequence_heads) cut *= 2;
    return seq_len - cut < min_saving ? power_of_two_from(cut, seq_len) : cut;
  }

  HPA_HOST_DEVICE constexpr std::int64_t partitions(std::int64_t seq_len) const {
    return partitions_of(std::int32_t(seq_len), std::int32_t(tokens(seq_len)));
  }
  /// The partitions of a sequence that is cut every `tokens` tokens. An empty sequence has one.
  static HPA_HOST_DEVICE constexpr std::int32_t partitions_of(std::int32_t seq_len, std::int32_t tokens) {
    return seq_len <= tokens ? 1 : std::int32_t(std::uint32_t(seq_len - 1) / std::uint32_t(tokens)) + 1;
  }

  /// At least partitions(seq_len) for every seq_len up to `max_seq_len`; sizes the workspace.
  constexpr std::int64_t max_partitions(std::int64_t max_seq_len) const {
    if (fixed > 0) return ceil_div(max_seq_len, fixed);
    if (!fills_the_chip() && max_seq_len - max(min_partition, fair_tokens(max_seq_len)) < min_saving) return 1;
    if (!fills_the_chip()) return min(ceil_div(compute_units, sequence_heads), ceil_div(max_seq_len, min_partition));
    if (max_seq_len <= whole_sequence_tokens) return 1;
    return min(max_long_partitions, ceil_div(max_seq_len, long_partition));
  }

  /// A lower bound of tokens(seq_len) for sequences that are cut.
  constexpr std::int64_t min_tokens() const { return fixed > 0 ? fixed : fills_the_chip() ? long_partition : min_partition; }

 private:
  /// The tokens of each workgroup if all sequences had this length. seq_len - fair_tokens(seq_len) never falls as seq_len grows.
  constexpr std::int64_t fair_tokens(std::int64_t seq_len) const { return ceil_div(seq_len * sequence_heads, compute_units); }
  static constexpr std::int64_t min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
  static constexpr std::int64_t max(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
  /// The smallest power of two that is at least `start`, itself a power of two, and at least `at_least`, which is below 2^32.
  static HPA_HOST_DEVICE constexpr std::int64_t power_of_two_from(std::int64_t start, std::int64_t at_least) {
    auto bits = std::uint32_t(at_least > 0 ? at_least - 1 : 0);
    bits |= bits >> 1, bits |= bits >> 2, bits |= bits >> 4, bits |= bits >> 8, bits |= bits >> 16;
    const auto power = std::int64_t{bits} + 1;
    return power > start ? power : start;
  }
};

/// Tokens [begin, end) of one sequence, for every KV head. begin == end: empty rows, whose output is written all the same.
struct alignas(16) Item {
  std::int32_t sequence;   // row of the block table
  std::int32_t query_row;  // the sequence's first row of query, out and lse
  std::int32_t begin, end;
  std::int32_t partial;  // index of the first row's partial, the other rows' follow; negative: no partial, the output is written
  std::int32_t seq_len;
  std::int32_t rows;  // query rows of the sequence
  std::int32_t unused;

  /// Makes it an item of empty rows where decode's table does not reach the sequence's end, as plan's did.
  HPA_HOST_DEVICE void keep_inside(std::int32_t table_tokens) {
    if (seq_len > table_tokens) end = begin;
  }
  /// Whether it did so: of a sequence with tokens plan leaves no item without.
  HPA_HOST_DEVICE bool lies_outside() const { return begin == end && seq_len > 0; }
};

/// A query row that was cut. The reduce kernel merges its `partitions` partials, of indices partial, partial + step, .., in this
/// order.
struct alignas(16) SplitRow {
  std::int32_t query_row, partial, partitions, step;
};

/// An error that the device finds in the data of a call. Of a step the smallest (sequence, error) is kept.
enum class PlanError : std::int32_t {
  none,
  seq_len_negative,
  seq_len_above_max,
  seq_len_above_table,
  query_start_loc,
  total_kv_tokens,
  block_id,
  table_width,
  table_start,
  other_shape
};
inline constexpr std::int32_t no_error = 0x7fffffff;
HPA_HOST_DEVICE constexpr std::int32_t encode_error(PlanError error, std::int32_t sequence) {
  return sequence * 16 + std::int32_t(error);  // max_seqs stays below 2^27
}

constexpr Verdict verdict_of(PlanError error) {
  switch (error) {
    case PlanError::none: break;
    case PlanError::seq_len_negative: return {Status::invalid_argument, "seq_lens", "a sequence length is negative"};
    case PlanError::seq_len_above_max: return {Status::invalid_argument, "seq_lens", "a sequence is longer than shape.max_seq_len"};
    case PlanError::seq_len_above_table:
      return {Status::invalid_argument, "seq_lens", "a sequence is longer than block_table_width * block_size"};
    case PlanError::query_start_loc:
      return {Status::invalid_argument, "query_start_loc", "must start at 0 or above and never decrease"};
    case PlanError::total_kv_tokens:
      return {Status::invalid_argument, "seq_lens", "the lengths add up to more than shape.max_total_kv_tokens"};
    case PlanError::block_id:
      return {Status::invalid_argument, "block_tables",
              "a block id within a sequence's length is negative, or not below num_blocks"};
    case PlanError::table_width:
      return {Status::invalid_argument, "block_table_width", "less than plan's, and than a sequence's length takes"};
    case PlanError::table_start: return {Status::invalid_argument, "table_starts", "the start of a sequence's entries is negative"};
    case PlanError::other_shape:
      return {Status::invalid_argument, "workspace",
              "decode was called with another shape, num_seqs, window, menu or partition size than plan"};
  }
  return {};
}

/// The results of plan() for the kernels that follow. They do not change until the next plan().
struct alignas(16) PlanCounts {
  std::uint32_t stamp;     // of the shape planned for
  std::int32_t num_items;  // filled entries of the item list
  std::int32_t num_split_rows;
};

/// The start of the workspace. decode() writes the error while other waves read the counts, so counts are loaded without it.
struct PlanHeader : PlanCounts {
  alignas(16) std::int32_t first_error;   // encode_error(), or no_error
  std::int32_t skipped, empty, in_error;  // sequences, as PlanReport has them
  std::int32_t num_seqs, partials;        // sequences planned; items of sequences that were cut
};

/// Records an error of a sequence, unless a smaller one is recorded.
template <class Wave>
HPA_DEVICE void report(const Wave& wave, PlanHeader* header, PlanError error, std::int32_t sequence) {
  wave.each([&](int lane) {
    if (lane == 0) wave.atomic_min(&header->first_error, encode_error(error, sequence));
  });
}

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
