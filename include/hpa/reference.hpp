// A double-precision oracle on the host: what every row must be, in the plainest code. Pointers are host pointers.
//
// For testing your own glue: copy the device buffers back, point DecodeArgs at the copies and compare. It is slow, and it
// trusts its input; check() and workspace_error() say whether an input is valid.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "hpa/args.hpp"
#include "hpa/shape.hpp"
#include "hpa/types.hpp"

namespace hpa::reference {

/// Rows [first, first + count) of query, out and lse.
struct RowRange {
  std::int64_t first = 0;
  int count = 0;
};

/// Tokens [begin, end) of a sequence.
struct KeyRange {
  std::int64_t begin = 0, end = 0;

  bool empty() const { return begin >= end; }
};

/// One row of one head, before out_scale and before rounding.
struct Row {
  std::vector<double> out;                                // [head_size_v]; all 0 when the row sees no key
  double lse = -std::numeric_limits<double>::infinity();  // natural log of the softmax denominator, the sink included
};

/// The query rows of a sequence, skipped ones included.
inline RowRange rows_of(const DecodeArgs& args, int sequence) {
  if (args.batch.query_start_loc == nullptr) return {sequence, 1};
  return {args.batch.query_start_loc[sequence], args.batch.query_start_loc[sequence + 1] - args.batch.query_start_loc[sequence]};
}

/// Whether a sequence's rows are computed. False when it has no query row, or more than max_query_len: its rows of out and lse
/// then keep their bytes.
inline bool is_computed(const DecodeShape& shape, const DecodeArgs& args, int sequence) {
  const int count = rows_of(args, sequence).count;
  return count > 0 && count <= shape.max_query_len;
}

/// The position of query row `query_row` (counted from the sequence's first) among the sequence's tokens.
inline std::int64_t position_of(const DecodeArgs& args, int sequence, int query_row) {
  return std::int64_t{args.batch.seq_lens[sequence]} - rows_of(args, sequence).count + query_row;
}

/// The keys that a query row sees: up to its own position, and with a window only the last ones. Without causal order, and with a
/// tree mask, up to the sequence's end; of these a tree mask leaves out what sees_token() denies.
inline KeyRange visible_keys(const DecodeShape& shape, const DecodeArgs& args, int sequence, int query_row) {
  const bool causal = shape.causal && !shape.tree_mask;
  KeyRange keys{0, causal ? position_of(args, sequence, query_row) + 1 : std::int64_t{args.batch.seq_lens[sequence]}};
  const bool windowed = shape.sliding_window && args.batch.window > 0;
  if (windowed && keys.end > args.batch.window) keys.begin = keys.end - args.batch.window;
  return keys;
}

/// Whether the tree mask lets a row see a token of visible_keys().
inline bool sees_token(const DecodeShape& shape, const DecodeArgs& args, int sequence, int query_row, std::int64_t token) {
  if (!shape.tree_mask || args.tree_masks == nullptr) return true;
  const RowRange rows = rows_of(args, sequence);
  const std::int64_t among_new = token - (std::int64_t{args.batch.seq_lens[sequence]} - rows.count);
  return among_new < 0 || (args.tree_masks[rows.first + query_row] >> among_new & 1) != 0;
}

/// The strides of a call in elements, zeros and those of a single head replaced: dense is the next inner stride times the next inner
/// extent.
struct Strides {
  std::int64_t query_row, query_head, out_row, out_head, table_row;
  std::int64_t key_block, key_head, key_token, value_block, value_head, value_token;  // token strides: hnd and nhd only
};

inline Strides strides(const DecodeShape& shape, const DecodeArgs& args) {
  const auto or_dense = [](std::int64_t stride, std::int64_t dense) { return stride != 0 ? stride : dense; };
  const auto of_heads = [&](std::int64_t stride, std::int64_t dense, int count) {
    return count == 1 ? dense : or_dense(stride, dense);
  };
  const std::int64_t block_size = shape.block_size, heads = shape.num_kv_heads;
  Strides s{};
  s.query_head = of_heads(args.query_head_stride, shape.head_size, shape.num_heads);
  s.query_row = or_dense(args.query_row_stride, shape.num_heads * s.query_head);
  s.out_head = of_heads(args.out_head_stride, shape.head_size_of_v(), shape.num_heads);
  s.out_row = or_dense(args.out_row_stride, shape.num_heads * s.out_head);
  s.table_row = or_dense(args.batch.block_table_row_stride, args.batch.block_table_width);
  const auto cache = [&](std::int64_t size, std::int64_t& block, std::int64_t& head, std::int64_t& token) {
    if (shape.layout == KvLayout::nhd) {
      head = of_heads(head, size, shape.num_kv_heads);
      token = or_dense(token, heads * head);
      block = or_dense(block, block_size * token);
    } else {
      token = or_dense(token, size);
      head = of_heads(head, block_size * (shape.layout == KvLayout::hnd ? token : size), shape.num_kv_heads);
      block = or_dense(block, heads * head);
    }
  };
  s.key_block = args.cache.key_block_stride, s.key_head = args.cache.key_head_stride, s.key_token = args.cache.key_token_stride;
  s.value_block = args.cache.value_block_stride, s.value_head = args.cache.value_head_stride,
  s.value_token = args.cache.value_token_stride;
  cache(shape.head_size, s.key_block, s.key_head, s.key_token);
  cache(shape.head_size_of_v(), s.value_block, s.value_head, s.value_token);
  return s;
}

/// Where the entries of a sequence begin in block_tables.
inline std::int64_t table_start(const DecodeArgs& args, const Strides& s, int sequence) {
  return args.batch.table_starts != nullptr ? args.batch.table_starts[sequence] : sequence * s.table_row;
}

/// Index in the key cache of one element, of the token in slot `slot` of physical block `block`.
inline std::int64_t key_index(const DecodeShape& shape, const Strides& s, std::int64_t block, int slot, int kv_head, int element) {
  const std::int64_t start = block * s.key_block + kv_head * s.key_head;
  if (shape.layout != KvLayout::vllm) return start + slot * s.key_token + element;
  const std::int64_t x = per_16_bytes(shape.kv);
  return start + element / x * shape.block_size * x + slot * x + element % x;
}

/// Index in the value cache of one element, of the token in slot `slot` of physical block `block`.
inline std::int64_t value_index(const DecodeShape& shape, const Strides& s, std::int64_t block, int slot, int kv_head,
                                int element) {
  const std::int64_t start = block * s.value_block + kv_head * s.value_head;
  if (shape.layout != KvLayout::vllm) return start + slot * s.value_token + element;
  return start + std::int64_t{element} * shape.block_size + slot;
}

/// Row `query_row` (counted from the sequence's first) of query head `head`. Reads only what the row can see. In this order:
///
///   logit  = scale * k_scale * key token scale * (q . k)
///   logit  = soft_cap * tanh(logit / soft_cap)                        with a soft cap
///   logit += alibi_slopes[head] * (key position - query position)     with ALiBi
///   keys that the row does not see have no weight                     causality, window, tree mask
///   lse    = log(sum of exp(logit) + exp(sinks[head]))                the sink has weight and no value
///   out    = v_scale * sum of exp(logit - lse) * value token scale * v
inline Row row(const DecodeShape& shape, const DecodeArgs& args, int sequence, int query_row, int head) {
  const int head_size = shape.head_size, head_size_v = shape.head_size_of_v(), kv_head = head / shape.gqa_ratio();
  const Strides s = strides(shape, args);
  const KeyRange keys = visible_keys(shape, args, sequence, query_row);
  Row result;
  result.out.assign(std::size_t(head_size_v), 0.0);
  if (keys.empty()) return result;

  std::vector<double> query(static_cast<std::size_t>(head_size));
  const std::int64_t query_start = (rows_of(args, sequence).first + query_row) * s.query_row + head * s.query_head;
  for (int d = 0; d < head_size; ++d) query[std::size_t(d)] = load_element(shape.query, args.query, query_start + d);

  const std::int32_t* table = args.batch.block_tables + table_start(args, s, sequence);
  const double scale = args.scale != 0.f ? double(args.scale) : 1 / std::sqrt(double(head_size));
  const double k_scale = args.cache.k_scale != nullptr ? double(args.cache.k_scale[kv_head * args.cache.scale_stride]) : 1;
  const double v_scale = args.cache.v_scale != nullptr ? double(args.cache.v_scale[kv_head * args.cache.scale_stride]) : 1;
  const double cap = shape.soft_cap ? double(args.soft_cap) : 0;
  const double slope = shape.alibi && args.alibi_slopes != nullptr ? double(args.alibi_slopes[head]) : 0;

  const auto token_scale = [&](const float* scales, std::int64_t block, int slot) {
    return shape.token_scales && scales != nullptr
               ? double(scales[(block * shape.num_kv_heads + kv_head) * shape.block_size + slot])
               : 1;
  };

  std::vector<double> weights;  // logits first
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t token = keys.begin; token < keys.end; ++token) {
    const std::int64_t block = table[token / shape.block_size];
    const int slot = int(token % shape.block_size);
    double logit = 0;
    if (!sees_token(shape, args, sequence, query_row, token)) {
      weights.push_back(-std::numeric_limits<double>::infinity());
      continue;
    }
    for (int d = 0; d < head_size; ++d)
      logit += query[std::size_t(d)] * load_element(shape.kv, args.cache.keys, key_index(shape, s, block, slot, kv_head, d));
    logit *= scale * k_scale * token_scale(args.cache.key_token_scales, block, slot);
    if (cap != 0) logit = cap * std::tanh(logit / cap);
    if (slope != 0) logit += slope * double(token - position_of(args, sequence, query_row));
    weights.push_back(logit);
    if (!(logit <= largest)) largest = logit;  // a row of NaN is not an empty row
  }

  if (largest == -std::numeric_limits<double>::infinity()) return result;  // no key is seen: a sink alone makes no row
  double denominator = 0;
  if (shape.sinks && args.sinks != nullptr) {
    const double sink = args.sinks[head];
    if (sink > largest) largest = sink;
    if (sink > -std::numeric_limits<double>::infinity()) denominator = std::exp(sink - largest);
  }
  for (double& weight : weights) denominator += weight = std::exp(weight - largest);
  result.lse = largest + std::log(denominator);

  for (std::int64_t token = keys.begin; token < keys.end; ++token) {
    const std::int64_t block = table[token / shape.block_size];
    const int slot = int(token % shape.block_size);
    if (!sees_token(shape, args, sequence, query_row, token)) continue;
    const double weight =
        weights[std::size_t(token - keys.begin)] / denominator * v_scale * token_scale(args.cache.value_token_scales, block, slot);
    for (int d = 0; d < head_size_v; ++d)
      result.out[std::size_t(d)] +=
          weight * load_element(shape.kv, args.cache.values, value_index(shape, s, block, slot, kv_head, d));
  }
  return result;
}

/// All rows of all computed sequences, written to args.out (rounded to shape.out, 8-bit types after division by out_scale) and,
/// with shape.lse, to args.lse; every other byte of both stays.
inline void decode(const DecodeShape& shape, const DecodeArgs& args) {
  const Strides s = strides(shape, args);
  const double divisor = args.out_scale != nullptr && size_of(shape.out) == 1 ? double(*args.out_scale) : 1;
  for (int sequence = 0; sequence < args.batch.num_seqs; ++sequence) {
    if (!is_computed(shape, args, sequence)) continue;
    const RowRange rows = rows_of(args, sequence);
    for (int i = 0; i < rows.count; ++i) {
      for (int head = 0; head < shape.num_heads; ++head) {
        const Row exact = row(shape, args, sequence, i, head);
        const std::int64_t start = (rows.first + i) * s.out_row + head * s.out_head;
        for (int d = 0; d < shape.head_size_of_v(); ++d)
          store_element(shape.out, args.out, start + d, float(exact.out[std::size_t(d)] / divisor));
        if (shape.lse && args.lse != nullptr) args.lse[(rows.first + i) * shape.num_heads + head] = float(exact.lse);
      }
    }
  }
}

}  // namespace hpa::reference
