// The cache's writers: append() puts new K and V where a slot mapping says, copy_blocks() copies whole blocks.
#pragma once

#include <cstdint>

#include "hpa/decode.hpp"
#include "hpa/kernel/cache_kernels.hpp"

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
};

/// Device pointers of one copy_blocks(). No destination may also be a source, or the destination of another pair.
struct CopyBlocksArgs {
  void* key_cache = nullptr;
  void* value_cache = nullptr;
  const std::int64_t* block_pairs = nullptr;  // [num_pairs, 2]: source, destination, below 2^31; a pair with a negative id is skipped
  int num_pairs = 0;
  std::int64_t key_block_stride = 0, key_head_stride = 0;
  std::int64_t value_block_stride = 0, value_head_stride = 0;
};

/// Whether append() can do it; the first thing that is wrong, if not. Reads no device memory.
template <class Menu = default_menu>
Verdict check(const DecodeShape& shape, const AppendArgs& args, const Device& device) {
  using detail::check_strides;
  if (Verdict v = check<Menu>(shape, device); !v) return v;
  if (args.num_tokens <= 0) return {Status::invalid_argument, "num_tokens", "must be positive"};
  const detail::PointerRule pointers[] = {{args.key, 16, "key"},
                                          {args.value, 16, "value"},
                                          {args.key_cache, 16, "key_cache"},
                                          {args.value_cache, 16, "value_cache"},
                                          {args.slot_mapping, 8, "slot_mapping"}};
  if (Verdict v = detail::check_pointers(pointers); !v) return v;
  const int x = per_16_bytes(shape.query);
  const std::int64_t limit = detail::elements_in_4_gib(shape.query);
  if (Verdict v = check_strides({args.key_token_stride, args.key_head_stride, "key_token_stride", "key_head_stride"}, shape.head_size,
                                shape.num_kv_heads, x, limit, detail::max_stride);
      !v)
    return v;
  if (Verdict v = check_strides({args.value_token_stride, args.value_head_stride, "value_token_stride", "value_head_stride"},
                                shape.head_size_of_v(), shape.num_kv_heads, x, limit, detail::max_stride);
      !v)
    return v;
  return detail::check_cache_strides(
      shape, {args.cache_key_block_stride, args.cache_key_head_stride, "cache_key_block_stride", "cache_key_head_stride"},
      {args.cache_value_block_stride, args.cache_value_head_stride, "cache_value_block_stride", "cache_value_head_stride"});
}

/// Whether copy_blocks() can do it; the first thing that is wrong, if not. Reads no device memory.
template <class Menu = default_menu>
Verdict check(const DecodeShape& shape, const CopyBlocksArgs& args, const Device& device) {
  if (Verdict v = check<Menu>(shape, device); !v) return v;
  if (args.num_pairs <= 0) return {Status::invalid_argument, "num_pairs", "must be positive"};
  const detail::PointerRule pointers[] = {
      {args.key_cache, 16, "key_cache"}, {args.value_cache, 16, "value_cache"}, {args.block_pairs, 8, "block_pairs"}};
  if (Verdict v = detail::check_pointers(pointers); !v) return v;
  return detail::check_cache_strides(shape, {args.key_block_stride, args.key_head_stride, "key_block_stride", "key_head_stride"},
                                     {args.value_block_stride, args.value_head_stride, "value_block_stride", "value_head_stride"});
}

/// Writes K and V of new tokens into the cache (what vLLM calls reshape_and_cache). Two tokens must not share a slot.
template <class Menu = default_menu>
Verdict append(const DecodeShape& shape, const AppendArgs& args, Stream stream) {
  Device device;
  if (Verdict v = current_device(&device); !v) return v;
  if (Verdict v = check<Menu>(shape, args, device); !v) return v;
  using Kernel = kernel::AppendKernel<typename Menu::Machine>;
  const kernel::AppendParams params{
      detail::row_view(args.key, args.key_token_stride, args.key_head_stride, shape.num_kv_heads, shape.head_size, shape.kv),
      detail::row_view(args.value, args.value_token_stride, args.value_head_stride, shape.num_kv_heads, shape.head_size_of_v(), shape.kv),
      detail::kv_view(args.key_cache, args.cache_key_block_stride, args.cache_key_head_stride, shape),
      detail::kv_view(args.value_cache, args.cache_value_block_stride, args.cache_value_head_stride, shape),
      args.slot_mapping,
      args.num_tokens,
      shape.num_kv_heads,
      shape.head_size,
      shape.block_size};
  const std::int64_t workgroups = kernel::ceil_div(args.num_tokens, Kernel::waves);
  return arch::launch<Kernel>({detail::grid_x(workgroups, 1, device, Kernel::waves), 1}, params, stream);
}

/// Copies blocks inside the caches: all heads, K and V.
template <class Menu = default_menu>
Verdict copy_blocks(const DecodeShape& shape, const CopyBlocksArgs& args, Stream stream) {
  Device device;
  if (Verdict v = current_device(&device); !v) return v;
  if (Verdict v = check<Menu>(shape, args, device); !v) return v;
  using Kernel = kernel::CopyBlocksKernel<typename Menu::Machine>;
  const kernel::CopyBlocksParams params{detail::kv_view(args.key_cache, args.key_block_stride, args.key_head_stride, shape),
                                        detail::kv_view(args.value_cache, args.value_block_stride, args.value_head_stride, shape),
                                        args.block_pairs, args.num_pairs,
                                        shape.head_size * shape.block_size * size_of(shape.kv)};
  const std::int64_t workgroups = kernel::ceil_div(args.num_pairs, Kernel::waves);
  return arch::launch<Kernel>({detail::grid_x(workgroups, shape.num_kv_heads, device, Kernel::waves), shape.num_kv_heads}, params, stream);
}

}  // namespace hpa
