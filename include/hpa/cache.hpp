// The cache's writers: append() puts new K and V where a slot mapping says, copy_blocks() copies whole blocks.
#pragma once

#include <cstdint>

#include "hpa/args.hpp"
#include "hpa/status.hpp"

namespace hpa {

/// Device pointers of one append(); strides in elements, 0 = dense.
struct AppendArgs {
  const void* key = nullptr;    // [num_tokens, num_kv_heads, head_size], in the query's type
  const void* value = nullptr;  // [num_tokens, num_kv_heads, head_size_v]
  void* key_cache = nullptr;    // as KvLayout says
  void* value_cache = nullptr;
  const std::int64_t* slot_mapping = nullptr;  // [num_tokens]; slot = block id * block_size + offset in the block; negative = skip
  int num_tokens = 0;
  std::int64_t key_token_stride = 0, key_head_stride = 0;        // of `key`
  std::int64_t value_token_stride = 0, value_head_stride = 0;    // of `value`
  std::int64_t cache_key_block_stride = 0, cache_key_head_stride = 0;
  std::int64_t cache_value_block_stride = 0, cache_value_head_stride = 0;
};

/// Device pointers of one copy_blocks(). No destination may also be a source, or the destination of another pair.
struct CopyBlocksArgs {
  void* key_cache = nullptr;
  void* value_cache = nullptr;
  const std::int64_t* block_pairs = nullptr;  // [num_pairs, 2]: source, destination; a pair with a negative id is skipped
  int num_pairs = 0;
  std::int64_t key_block_stride = 0, key_head_stride = 0;
  std::int64_t value_block_stride = 0, value_head_stride = 0;
};

/// Writes K and V of new tokens into the cache (what vLLM calls reshape_and_cache). Two tokens must not share a slot.
Verdict append(const DecodeShape& shape, const AppendArgs& args, Stream stream);

/// Copies blocks inside the caches: all heads, K and V.
Verdict copy_blocks(const DecodeShape& shape, const CopyBlocksArgs& args, Stream stream);

}  // namespace hpa
