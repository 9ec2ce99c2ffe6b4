// DecodeArgs: the device pointers of one call. Workspace: the device memory that plan() fills and decode() uses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hpa/shape.hpp"

namespace hpa {

/// Device pointers and strides. Strides are in elements; a stride of 0 means dense.
///
/// 16-byte loads read query and caches, so those pointers are 16-byte aligned and their strides are multiples of 16 bytes;
/// out is written 8 bytes at a time. check() refuses anything else by name.
struct DecodeArgs {
  const void* query = nullptr;                    // [num_rows, num_heads, head_size]
  const void* key_cache = nullptr;                // as KvLayout says
  const void* value_cache = nullptr;              // as KvLayout says
  void* out = nullptr;                            // [num_rows, num_heads, head_size_v]
  float* lse = nullptr;                           // [num_rows, num_heads], natural logarithm; needs shape.lse
  const std::int32_t* block_tables = nullptr;     // [num_seqs, block_table_width]
  const std::int32_t* seq_lens = nullptr;         // [num_seqs], tokens in the cache, the current ones included
  const std::int32_t* query_start_loc = nullptr;  // [num_seqs + 1]; nullptr = row i is sequence i's only query
  int num_seqs = 0;
  int block_table_width = 0;  // columns a row may read
  std::int64_t query_row_stride = 0, query_head_stride = 0;
  std::int64_t key_block_stride = 0, key_head_stride = 0;
  std::int64_t value_block_stride = 0, value_head_stride = 0;
  std::int64_t key_token_stride = 0, value_token_stride = 0;  // hnd, nhd only
  std::int64_t out_row_stride = 0, out_head_stride = 0;
  std::int64_t block_table_row_stride = 0;
  float scale = 0.f;                          // of the logits; 0 = 1 / sqrt(head_size)
  float soft_cap = 0.f;                       // logits = cap * tanh(logits / cap); needs shape.soft_cap
  int window = 0;                             // keys visible to a query, itself included; needs shape.sliding_window
  const float* alibi_slopes = nullptr;        // [num_heads]; bias = slope * (key position - query position); needs shape.alibi
  const float* sinks = nullptr;               // [num_heads]; one extra logit a head, in the denominator only; needs shape.sinks
  const float* k_scale = nullptr;             // one float; multiplies the logits; nullptr = 1
  const float* v_scale = nullptr;             // one float; multiplies the result; nullptr = 1
  const float* out_scale = nullptr;           // one float; fp8 output: out = quantise(value / out_scale)
  const float* key_token_scales = nullptr;    // [num_blocks, num_kv_heads, block_size], dense; needs shape.token_scales
  const float* value_token_scales = nullptr;  // the same of V: a token's value is code * v_scale * value_token_scale
  const std::uint32_t* tree_masks = nullptr;  // [num_rows]; bit i: the row sees the i-th new token of its sequence, at position
                                              // seq_len - q + i; needs shape.tree_mask. All older tokens are seen

  /// A promise that lets decode() ask for keys and values before the kernel before it in the stream has ended (sm_90; elsewhere it
  /// changes nothing). It says: whatever kernel may still be running then writes nothing of key_cache and value_cache but the
  /// sequences' last tokens, one for every query row. append() right before decode() keeps it; copy_blocks() there, or any other kernel
  /// that fills blocks, breaks it, and the result is then undefined. What lies further back has ended if a kernel between was launched
  /// in the ordinary way, as append() is, or is plan(). Worth 1 to 3 us a layer.
  bool cache_is_ready = false;
};

/// Device memory owned by the caller: at least workspace_bytes() bytes, 16-byte aligned. plan() fills it, every decode() of the
/// step reads it. Two calls that may run at the same time need two workspaces. Its contents need no initialisation.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

}  // namespace hpa
