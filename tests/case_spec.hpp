// The words in which a test describes a paged decode problem and what became of it.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "guarded_buffer.hpp"
#include "hpa/shape.hpp"

namespace hpa::test {

/// What lies in the slots that no row sees, in blocks of which some slot is seen. All other blocks, and what strides leave
/// between rows and heads, are always NaN.
enum class Tail : std::uint8_t { nan, zero, plus_inf, minus_inf, largest, random };

/// Elements by which each stride exceeds dense. With all of them 0 the stride fields of DecodeArgs stay 0.
struct Padding {
  int query_row = 0, query_head = 0, out_row = 0, out_head = 0, table_row = 0;
  int key_block = 0, key_head = 0, key_token = 0, value_block = 0, value_head = 0, value_token = 0;

  bool any() const {
    return (query_row | query_head | out_row | out_head | table_row | key_block | key_head | key_token | value_block | value_head |
            value_token) != 0;
  }
};

/// Everything about a problem. Names not explained here are those of DecodeShape and DecodeArgs.
struct CaseSpec {
  DecodeShape shape;            // max_seqs and max_seq_len: 0 = as the lengths need
  std::vector<int> seq_lens;    // [num_seqs]
  std::vector<int> query_lens;  // [num_seqs]; empty = no query_start_loc
  float scale = 0.f, soft_cap = 0.f;
  int window = 0;
  float k_scale = 0.f, v_scale = 0.f, out_scale = 0.f;  // 0 = null pointer
  bool head_scales = false;                             // k_scale and v_scale are those of KV head 0; the others have larger ones
  float token_scale = 1.f;                              // with shape.token_scales: each is drawn between 0.5 and 1.5 times this
  std::vector<float> sinks;                             // [num_heads]; empty = drawn
  std::vector<std::uint32_t> tree_masks;  // [num_rows]; empty = a random tree in each sequence, and any bits past its rows

  unsigned seed = 1;                                                        // of the data
  std::vector<unsigned> sequence_seeds;                                     // of each sequence's data; empty = its index
  unsigned block_seed = 1;                                                  // of the physical order of blocks
  float query_amplitude = 1.f, key_amplitude = 1.f, value_amplitude = 1.f;  // standard deviations
  float key_growth = 0.f;        // the last key of a sequence is 1 + key_growth times as large as the first
  int shared_prefix_blocks = 0;  // leading blocks that all sequences have in common with the first one that has them

  Padding padding;
  Guard guard = Guard::end;
  Tail tail = Tail::nan;
  bool unmapped_expired = false;    // blocks before every row's window have ids of no memory; else they are blocks of NaN
  int spare_blocks = 3;             // blocks that belong to no sequence
  bool table_starts = false;        // the block table is in CSR form: rows as long as lengths are, in an order of their own, with gaps
  int spare_columns = 0;            // of the block table, beyond what the longest sequence needs
  std::int64_t first_block_id = 0;  // ids start here and cache pointers are lowered to match: reaches ids beyond memory
  bool num_blocks_given = false;    // KvCache::num_blocks is what there is; else 0
  std::vector<int> unchecked;       // sequences whose own rows may hold anything, for input with errors in it
};

/// The case in words, for the log of a failed test.
inline std::string describe(const CaseSpec& spec) {
  const auto number = [](auto value) {
    std::ostringstream text;
    text << value;
    return text.str();
  };
  const auto list = [&](const auto& values) {
    std::string text;
    for (const auto value : values) text += (text.empty() ? "" : ",") + number(value);
    return text;
  };
  const DecodeShape& s = spec.shape;
  std::string text = std::string(name(s.query));
  if (s.kv != s.query) text += std::string(", KV ") + name(s.kv);
  if (s.out != s.query) text += std::string(", out ") + name(s.out);
  text += ", head size " + std::to_string(s.head_size) + ", block size " + std::to_string(s.block_size) + ", heads " +
          std::to_string(s.num_heads) + "/" + std::to_string(s.num_kv_heads) + ", max_seqs " + std::to_string(s.max_seqs) +
          ", max_query_len " + std::to_string(s.max_query_len) + ", max_seq_len " + std::to_string(s.max_seq_len);
  const std::pair<bool, std::string> features[] = {{s.alibi, "alibi"},
                                                   {s.lse, "lse"},
                                                   {s.sliding_window, "window " + number(spec.window)},
                                                   {s.soft_cap, "soft cap " + number(spec.soft_cap)},
                                                   {s.sinks, "sinks " + list(spec.sinks)},
                                                   {!s.causal, "not causal"},
                                                   {s.tree_mask, "tree mask"},
                                                   {s.token_scales, "token scales " + number(spec.token_scale)},
                                                   {spec.scale != 0.f, "scale " + number(spec.scale)},
                                                   {spec.k_scale != 0.f, "k_scale " + number(spec.k_scale)},
                                                   {spec.v_scale != 0.f, "v_scale " + number(spec.v_scale)},
                                                   {spec.out_scale != 0.f, "out_scale " + number(spec.out_scale)},
                                                   {spec.unmapped_expired, "expired blocks unmapped"},
                                                   {spec.padding.any(), "padded strides"},
                                                   {spec.table_starts, "table starts"}};
  for (const auto& [on, words] : features)
    if (on) text += ", " + words;
  text += ", lengths " + list(spec.seq_lens);
  if (!spec.query_lens.empty()) text += ", query lengths " + list(spec.query_lens);
  return text + (spec.guard == Guard::end ? ", guard at the end" : ", guard at the start") + ", seed " + std::to_string(spec.seed);
}

/// How far a result may be from the reference, before it is rounded to 8 bits where the output has them. KV of 8 bits does not enter:
/// it is exact in the query's type. An lse is of the sum that the output product sees, whose terms a machine may truncate
/// to 11 (fp16) or 8 (bf16) bits: it can be short of the exact one by 2^-10 or 2^-7.
struct Tolerance {
  double out;  // ||out - reference|| / ||reference|| of a row
  double lse;  // |lse - reference|
};

inline Tolerance tolerance_of(DType type) { return type == DType::f16 ? Tolerance{1e-3, 0x1p-10} : Tolerance{5e-3, 0x1p-7}; }

/// What a run was found to have done.
struct Findings {
  double worst_out = 0;  // ||out - reference|| / ||reference|| of the worst row; infinite when NaN, or not 0 where 0 is due
  double worst_lse = 0;  // |lse - reference| of the worst row
  std::string problem;   // empty when all is well, else the first thing that is not

  explicit operator bool() const { return problem.empty(); }
};

}  // namespace hpa::test
