// vLLM's op `paged_attention` (csrc/rocm/attention.cu) on this library. Copy this file, paged_attention.cpp, menus.hpp
// and paged_attention_fp8.cpp; README.md has the notes on memory, on what differs and on what to do better.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "hpa/device.hpp"
#include "hpa/status.hpp"
#include "hpa/types.hpp"

namespace vllm_op {

/// What the op reads off its tensors and raw pointers do not tell. Strides are in elements; 0 = dense.
struct Tensors {
  hpa::DType dtype = hpa::DType::bf16;  // query.dtype, the cache's when kv_cache_dtype is "auto", and out's without fp8_out_scale
  int num_seqs = 0;                     // block_tables.size(0)
  int num_heads = 0;                    // query.size(1)
  int head_size = 0;                    // query.size(2)
  int block_table_width = 0;            // block_tables.size(1), which is also its row stride
  std::int64_t query_row_stride = 0;    // query.stride(0)
  std::int64_t kv_block_stride = 0;     // key_cache.stride(0); value_cache's is the same
  std::int64_t kv_head_stride = 0;      // key_cache.stride(1); likewise
  std::size_t tmp_out_bytes = 0;        // tmp_out.nbytes()
};

/// What vLLM's "fp8" is: the e4m3 format that the chip has, fnuz on gfx942 and OCP elsewhere. Caches and FP8 output are in it.
constexpr hpa::DType fp8_of(hpa::Arch arch) {
  return arch == hpa::Arch::gfx942 ? hpa::DType::e4m3_fnuz : hpa::DType::e4m3_ocp;
}

/// The op. Arguments in its order, then what raw pointers lose: the tensors' sizes and the stream. Launches and returns; legal while
/// the stream is being captured. exp_sums and max_logits are not used; tmp_out is the workspace, workspace_bytes() large.
hpa::Verdict paged_attention(void* out,                            // [rows, num_heads, head_size], dense
                             float* exp_sums,                      // not used
                             float* max_logits,                    // not used
                             void* tmp_out,                        // workspace, 16-byte aligned
                             const void* query,                    // [rows, num_heads, head_size]
                             const void* key_cache,                // [num_blocks, num_kv_heads, head_size/x, block_size, x]
                             const void* value_cache,              // [num_blocks, num_kv_heads, head_size, block_size]
                             std::int64_t num_kv_heads, double scale,
                             const std::int32_t* block_tables,     // [num_seqs, block_table_width]
                             const std::int32_t* seq_lens,         // [num_seqs], the current token included
                             const std::int32_t* query_start_loc,  // [num_seqs + 1] or nullptr
                             std::int64_t block_size, std::int64_t max_seq_len,
                             const float* alibi_slopes,            // [num_heads] or nullptr
                             std::string_view kv_cache_dtype,      // "auto", "fp8" or "fp8_e4m3"
                             const float* k_scale, const float* v_scale,  // one float each or nullptr; not read with "auto"
                             const float* fp8_out_scale,           // one float, and out is FP8; or nullptr
                             const Tensors& tensors, hpa::Stream stream);

/// Bytes of tmp_out for calls with up to `max_num_seqs` sequences of up to `max_seq_len` tokens on the current device; 0 when the op
/// would refuse the call. `tensors` gives the types and sizes; its num_seqs does not matter.
std::size_t workspace_bytes(const Tensors& tensors, int max_num_seqs, std::int64_t num_kv_heads, std::int64_t block_size,
                            std::int64_t max_seq_len, std::string_view kv_cache_dtype = "auto");

}  // namespace vllm_op
