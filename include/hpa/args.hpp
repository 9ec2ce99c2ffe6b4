// Batch, KvCache, DecodeArgs: the device pointers of one call. Workspace: the device memory that plan() fills and decode() uses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hpa/shape.hpp"

namespace hpa {

/// The sequences of a step: what its layers share, and all that plan() needs.
struct Batch {
  const std::int32_t* block_tables = nullptr;  // [num_seqs, block_table_width]; with table_starts the entries of all sequences
  const std::int64_t* table_starts =
      nullptr;                             // [num_seqs], not negative: sequence i's entries begin at block_tables[table_starts[i]],
                                           // and what lies past ceil(seq_len / block_size) of them is not its own. So tables in
                                           // CSR form are read as they are, and rows that begin at a column of their own;
                                           // nullptr: at i * row stride
  const std::int32_t* seq_lens = nullptr;  // [num_seqs], tokens in the cache, the current ones included
  const std::int32_t* query_start_loc = nullptr;  // [num_seqs + 1]; nullptr = row i is sequence i's only query. Entries at its end
                                                  // that repeat, or are all 0, are padding: sequences without rows
  int num_seqs = 0;                               // 0: a step with nothing to do, and no pointer is looked at
  int block_table_width = 0;                      // entries that a sequence may have, wherever they begin
  std::int64_t block_table_row_stride = 0;        // 0 = block_table_width; not looked at with table_starts
  int window = 0;                                 // keys visible to a query, itself included; needs shape.sliding_window
};

/// The cache of one layer, the same for decode(), append() and copy_blocks(). Strides are in elements of the cache; 0 = dense, as
/// KvLayout says; that between heads may be anything where there is one. Keys and values are 16-byte aligned and their strides multiples of 16 bytes.
struct KvCache {
  void* keys = nullptr;
  void* values = nullptr;
  std::int64_t num_blocks = 0;  // 0 = not known; else ids at or past it, like negative ones, are never used as one
  std::int64_t key_block_stride = 0, key_head_stride = 0, key_token_stride = 0;  // token strides: hnd, nhd only
  std::int64_t value_block_stride = 0, value_head_stride = 0, value_token_stride = 0;
  const float* k_scale = nullptr;       // 8-bit KV: a key is code * k_scale; nullptr = 1
  const float* v_scale = nullptr;       // the same of values
  int scale_stride = 0;                 // of both, in floats between KV heads: 0, one scale; 1, one a head
  float* key_token_scales = nullptr;    // [num_blocks, num_kv_heads, block_size], dense; needs shape.token_scales
  float* value_token_scales = nullptr;  // the same of values: a value is code * v_scale * value_token_scale
};

/// One layer's attention: device pointers and strides, in elements; a stride of 0 means dense, not broadcast. The stride of a dimension
/// of size 1 may be anything.
///
/// 16-byte loads read the query, so its pointer is 16-byte aligned and its strides are multiples of 16 bytes; out is written 4
/// elements at a time. check() refuses anything else by name.
///
/// out may be the query itself, of the same type and with the same strides: a row is written when all that read it have done so.
/// Otherwise neither out nor lse overlaps anything that is read.
struct DecodeArgs {
  Batch batch;
  KvCache cache;
  const void* query = nullptr;  // [num_rows, num_heads, head_size]
  void* out = nullptr;          // [num_rows, num_heads, head_size_v]
  float* lse = nullptr;         // [num_rows, num_heads], natural logarithm; needs shape.lse
  std::int64_t query_row_stride = 0, query_head_stride = 0;
  std::int64_t out_row_stride = 0, out_head_stride = 0;
  float scale = 0.f;                          // of the logits; 0 = 1 / sqrt(head_size)
  float soft_cap = 0.f;                       // logits = cap * tanh(logits / cap); needs shape.soft_cap
  const float* alibi_slopes = nullptr;        // [num_heads]; bias = slope * (key position - query position); needs shape.alibi
  const float* sinks = nullptr;               // [num_heads]; one extra logit a head, in the denominator only; needs shape.sinks
  const float* out_scale = nullptr;           // one float; fp8 output: out = quantise(value / out_scale)
  const std::uint32_t* tree_masks = nullptr;  // [num_rows]; bit i: the row sees the i-th new token of its sequence, at position
                                              // seq_len - q + i; needs shape.tree_mask. All older tokens are seen

  /// Lets decode() read keys and values before the previous kernel in the stream has ended: worth 1 to 3 us a layer on sm_90, and
  /// nothing elsewhere. The caller promises, or the result is undefined:
  ///  (1) The previous kernel writes no key or value, except the last tokens of the sequences, one for each query row. append() keeps
  ///      this; copy_blocks(), or another kernel that fills blocks, does not.
  ///  (2) So do kernels before it that may still be running. They have ended if one after them was launched in the ordinary way, as
  ///      append() is, or is plan().
  bool allow_early_kv_loads = false;
};

/// Device memory owned by the caller: at least workspace_bytes() bytes, 16-byte aligned. plan() fills it, every decode() of the
/// step reads it. Two calls that may run at the same time need two workspaces. Its contents need no initialisation.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

}  // namespace hpa
