// AppendArgs, CopyBlocksArgs: the device pointers of the cache's writers.
#pragma once

#include <cstdint>

namespace hpa {

/// Device pointers of one append(); strides in elements, 0 = dense. Pointers are 16-byte aligned, strides multiples of 16 bytes.
struct AppendArgs {
  const void* key = nullptr;    // [num_tokens, num_kv_heads, head_size], in the query's type
  const void* value = nullptr;  // [num_tokens, num_kv_heads, head_size_v]
  void* key_cache = nullptr;    // as KvLayout says
  void* value_cache = nullptr;
  const std::int64_t* slot_mapping = nullptr;  // [num_tokens]; slot = block id * block_size + offset in the block; negative = skip;
                                               // block ids are below 2^31
  int num_tokens = 0;
  std::int64_t key_token_stride = 0, key_head_stride = 0;      // of `key`
  std::int64_t value_token_stride = 0, value_head_stride = 0;  // of `value`
  std::int64_t cache_key_block_stride = 0, cache_key_head_stride = 0;
  std::int64_t cache_value_block_stride = 0, cache_value_head_stride = 0;
  const float* k_scale = nullptr;       // one positive float, 8-bit KV without token scales: code = key / k_scale; nullptr = 1
  const float* v_scale = nullptr;       // the same of V
  float* key_token_scales = nullptr;    // written: [num_blocks, num_kv_heads, block_size], dense; needs shape.token_scales
  float* value_token_scales = nullptr;  // the same of V
};

/// Device pointers of one copy_blocks(). No destination may also be a source, or the destination of another pair.
struct CopyBlocksArgs {
  void* key_cache = nullptr;
  void* value_cache = nullptr;
  const std::int64_t* block_pairs =
      nullptr;  // [num_pairs, 2]: source, destination, below 2^31; a pair with a negative id is skipped
  int num_pairs = 0;
  std::int64_t key_block_stride = 0, key_head_stride = 0;
  std::int64_t value_block_stride = 0, value_head_stride = 0;
  float* key_token_scales = nullptr;    // [num_blocks, num_kv_heads, block_size], dense; needs shape.token_scales
  float* value_token_scales = nullptr;  // the same of V
};

}  // namespace hpa
