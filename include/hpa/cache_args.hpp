// AppendArgs, CopyBlocksArgs: the device pointers of the cache's writers.
#pragma once

#include <cstdint>

#include "hpa/args.hpp"

namespace hpa {

/// The rows of one append() and where they go. Strides in elements, 0 = dense. Pointers are 16-byte aligned, strides multiples of 16
/// bytes. Scales of an 8-bit cache are positive: code = element / scale. Token scales are computed and written.
struct AppendArgs {
  KvCache cache;
  const void* new_keys = nullptr;              // [num_tokens, num_kv_heads, head_size], in the query's type
  const void* new_values = nullptr;            // [num_tokens, num_kv_heads, head_size_v]
  const std::int64_t* slot_mapping = nullptr;  // [num_tokens]; slot = block id * block_size + offset in the block; negative = skip,
                                               // as is one past the cache's blocks
  int num_tokens = 0;                          // 0: nothing to do, and no pointer is looked at
  std::int64_t new_key_token_stride = 0, new_key_head_stride = 0;
  std::int64_t new_value_token_stride = 0, new_value_head_stride = 0;
};

/// One copy_blocks(). No destination may also be a source, or the destination of another pair. Scales of the cache are not read.
struct CopyBlocksArgs {
  KvCache cache;
  const std::int64_t* block_pairs = nullptr;  // [num_pairs, 2]: source, destination; an id that is negative or past the cache's
                                              // blocks skips its pair
  int num_pairs = 0;                          // 0: nothing to do, and no pointer is looked at
};

}  // namespace hpa
