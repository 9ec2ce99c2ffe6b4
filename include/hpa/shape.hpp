// DecodeShape: all that the host knows before any length is known.
#pragma once

#include <cstdint>

#include "hpa/types.hpp"

namespace hpa {

/// How a cache block is laid out. D = head size, x = 16 bytes worth of elements.
enum class KvLayout : std::uint8_t {
  vllm,  // K [num_blocks, num_kv_heads, D/x, block_size, x], V [num_blocks, num_kv_heads, D, block_size]
  hnd,   // K and V [num_blocks, num_kv_heads, block_size, D]
  nhd    // K and V [num_blocks, block_size, num_kv_heads, D]
};

/// How plan() cuts sequences into partitions.
enum class Split : std::uint8_t {
  by_length,  // by the sequence's own length and the shape: a row's bits do not depend on other sequences
  balanced    // equal work for every workgroup: faster where lengths differ much; a row's bits depend on the batch, though not on
              // the run. The workspace is bounded by workgroups and sequences, whatever max_seq_len
};

/// Chooses kernels, sizes memory and grids. Never holds a length, so one shape serves every step of a captured graph.
struct DecodeShape {
  DType query = DType::f16;
  DType kv = DType::f16;
  DType out = DType::f16;
  KvLayout layout = KvLayout::vllm;
  Split split = Split::by_length;
  int head_size = 128;    // elements; K and V alike unless head_size_v is set
  int head_size_v = 0;    // 0 = head_size
  int block_size = 16;    // tokens per cache block (page)
  int num_heads = 0;      // query heads
  int num_kv_heads = 0;   // divides num_heads; num_heads / num_kv_heads is the GQA ratio
  int max_seqs = 0;       // rows of the block table, at most
  int max_query_len = 1;  // sequences with more query rows than this are skipped (their out rows untouched)
  int max_seq_len = 0;    // tokens of a sequence, cache included
  std::int64_t max_total_kv_tokens =
      0;  // sum of all sequence lengths, at most; 0 = max_seqs * max_seq_len. Only bounds the workspace
  bool alibi = false;
  bool sliding_window = false;
  bool soft_cap = false;
  bool sinks = false;
  bool lse = false;
  bool causal = true;         // query row j of q rows sees keys 0 .. seq_len - q + j; false: every row sees all seq_len keys
  bool tree_mask = false;     // args.tree_masks says which of a sequence's new tokens a row sees, instead of causal order
  bool token_scales = false;  // i8 KV with a scale for each (token, KV head), of keys and of values

  /// Whether rows are in causal order: row j of q is at position seq_len - q + j and sees the tokens up to there.
  constexpr bool ordered() const { return causal && !tree_mask; }
  constexpr int head_size_of_v() const { return head_size_v == 0 ? head_size : head_size_v; }
  constexpr int gqa_ratio() const { return num_heads / num_kv_heads; }
  constexpr std::int64_t total_kv_tokens() const {
    const std::int64_t all = std::int64_t{max_seqs} * max_seq_len;
    return max_total_kv_tokens == 0 || max_total_kv_tokens > all ? all : max_total_kv_tokens;
  }
};

}  // namespace hpa
