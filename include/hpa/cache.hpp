// The cache's writers: append() puts new K and V where a slot mapping says, quantised if the cache is of 8 bits; copy_blocks() copies
// whole blocks.
#pragma once

#include <cstdint>

#include "hpa/arch/launch.hpp"
#include "hpa/declare.hpp"
#include "hpa/detail/grid.hpp"
#include "hpa/detail/views.hpp"
#include "hpa/device.hpp"
#include "hpa/kernel/cache_kernels.hpp"

namespace hpa {

inline namespace HPA_PLATFORM {

namespace detail {

/// Pointers to token scales: both exactly when the shape has them, aligned to a float.
inline Verdict check_token_scales(const DecodeShape& shape, const float* key, const float* value) {
  const char* const missing = "must not be null: shape.token_scales is set";
  const char* const unexpected = "given, but shape.token_scales is not set";
  if (Verdict v = check_feature(shape.token_scales, key != nullptr, "key_token_scales", missing, unexpected); !v) return v;
  if (Verdict v = check_feature(shape.token_scales, value != nullptr, "value_token_scales", missing, unexpected); !v) return v;
  const PointerRule pointers[] = {{key, 4, "key_token_scales"}, {value, 4, "value_token_scales"}};
  if (Verdict v = check_alignment(pointers); !v) return v;
  return {};
}

/// Checks the scale of all tokens, k_scale or v_scale of append(): 8-bit KV may have one, unless each token has its own.
inline Verdict check_scale(const DecodeShape& shape, const float* scale, const char* field) {
  const Status bad = Status::invalid_argument;
  if (scale == nullptr) return {};
  if (size_of(shape.kv) == 2) return {bad, field, "given, but 16-bit KV has no scale"};
  if (shape.token_scales) return {bad, field, "given, but append computes a scale for each token: shape.token_scales is set"};
  if (!aligned(scale, 4)) return {bad, field, "not aligned to its elements"};
  return {};
}

}  // namespace detail

/// Whether append() can do it; the first thing that is wrong, if not. Reads no device memory.
template <class Menu>
Verdict check(const DecodeShape& shape, const AppendArgs& args, const Device& device) {
  using detail::check_strides;
  if (Verdict v = detail::first_refusal<Menu>(shape, device, false); !v) return v;
  if (args.num_tokens < 0) return {Status::invalid_argument, "num_tokens", "must not be negative"};
  if (args.num_tokens == 0) return {};  // tensors of nothing may be null
  const detail::PointerRule pointers[] = {{args.new_keys, 16, "new_keys"},
                                          {args.new_values, 16, "new_values"},
                                          {args.cache.keys, 16, "keys"},
                                          {args.cache.values, 16, "values"},
                                          {args.slot_mapping, 8, "slot_mapping"}};
  if (Verdict v = detail::check_pointers(pointers); !v) return v;
  if (Verdict v = detail::check_scale(shape, args.cache.k_scale, "k_scale"); !v) return v;
  if (Verdict v = detail::check_scale(shape, args.cache.v_scale, "v_scale"); !v) return v;
  if (Verdict v = detail::check_token_scales(shape, args.cache.key_token_scales, args.cache.value_token_scales); !v) return v;
  const int x = per_16_bytes(shape.query);
  const std::int64_t limit = detail::elements_in_4_gib(shape.query);
  if (Verdict v =
          check_strides({args.new_key_token_stride, args.new_key_head_stride, "new_key_token_stride", "new_key_head_stride"},
                        shape.head_size, {args.num_tokens, shape.num_kv_heads}, x, limit, detail::max_stride);
      !v)
    return v;
  if (Verdict v = check_strides(
          {args.new_value_token_stride, args.new_value_head_stride, "new_value_token_stride", "new_value_head_stride"},
          shape.head_size_of_v(), {args.num_tokens, shape.num_kv_heads}, x, limit, detail::max_stride);
      !v)
    return v;
  return detail::check_cache(shape, args.cache);
}

/// Whether copy_blocks() can do it; the first thing that is wrong, if not. Reads no device memory.
template <class Menu>
Verdict check(const DecodeShape& shape, const CopyBlocksArgs& args, const Device& device) {
  if (Verdict v = detail::first_refusal<Menu>(shape, device, false); !v) return v;
  if (args.num_pairs < 0) return {Status::invalid_argument, "num_pairs", "must not be negative"};
  if (args.num_pairs == 0) return {};
  const detail::PointerRule pointers[] = {
      {args.cache.keys, 16, "keys"}, {args.cache.values, 16, "values"}, {args.block_pairs, 8, "block_pairs"}};
  if (Verdict v = detail::check_pointers(pointers); !v) return v;
  if (Verdict v = detail::check_token_scales(shape, args.cache.key_token_scales, args.cache.value_token_scales); !v) return v;
  return detail::check_cache(shape, args.cache);
}

namespace detail {

template <class Kernel>
Verdict launch_append(const AppendArgs& args, const typename Kernel::Params& params, const Device& device, Stream stream) {
  const std::int64_t workgroups = kernel::ceil_div(args.num_tokens, Kernel::waves);
  return arch::launch<Kernel>({grid_x(workgroups, 1, device, Kernel::shape.workgroups_per_unit), 1}, params, stream);
}

/// The kernel for one type of rows and one type of cache.
template <class Machine, class Query, class Kv>
Verdict launch_append_of(Query, Kv, [[maybe_unused]] const DecodeShape& shape, const AppendArgs& args,
                         const kernel::QuantiseParams& params, const Device& device, Stream stream) {
  if constexpr (size_of(Kv::value) == 2) {
    return launch_append<kernel::AppendKernel<Machine>>(args, params, device, stream);
  } else {
    if constexpr (Kv::value == DType::i8)
      if (shape.token_scales)
        return launch_append<kernel::QuantiseKernel<Machine, Query::value, Kv::value, true>>(args, params, device, stream);
    return launch_append<kernel::QuantiseKernel<Machine, Query::value, Kv::value, false>>(args, params, device, stream);
  }
}

}  // namespace detail

/// Writes K and V of new tokens into the cache (what vLLM calls reshape_and_cache). Two tokens must not share a slot.
///
/// 8-bit caches get encode(x / scale): rounded to nearest even, what is beyond the largest code (Inf too) becomes it, NaN stays NaN (i8:
/// code 0). With shape.token_scales the scale of a token and head is max |x| / 127 over its elements that are not NaN.
template <class Menu>
Verdict append(const DecodeShape& shape, const AppendArgs& args, Stream stream) {
  Device device;
  if (Verdict v = current_device(&device); !v) return v;
  if (Verdict v = check<Menu>(shape, args, device); !v || args.num_tokens == 0) return v;
  const auto rows = [&](const void* data, std::int64_t token_stride, std::int64_t head_stride, int size) {
    return detail::row_view(data, token_stride, head_stride, {args.num_tokens, shape.num_kv_heads}, size, shape.query);
  };
  const kernel::QuantiseParams params{
      {rows(args.new_keys, args.new_key_token_stride, args.new_key_head_stride, shape.head_size),
       rows(args.new_values, args.new_value_token_stride, args.new_value_head_stride, shape.head_size_of_v()),
       detail::key_view(shape, args.cache), detail::value_view(shape, args.cache), args.slot_mapping, args.num_tokens,
       shape.num_kv_heads, shape.head_size, shape.block_size, detail::block_ids(args.cache)},
      args.cache.k_scale,
      args.cache.v_scale,
      args.cache.scale_stride,
      detail::token_scale_view(shape, args.cache.key_token_scales),
      detail::token_scale_view(shape, args.cache.value_token_scales)};
  return arch::dispatch_machine<typename Menu::Machine>(device.arch, [&](auto machine) {
    using Machine = typename decltype(machine)::type;
    Verdict verdict{Status::unsupported, "kv", "no kernel is compiled in"};
    Menu::query_types::visit(shape.query, [&](auto query) {
      Menu::kv_types::visit(
          shape.kv, [&](auto kv) { verdict = detail::launch_append_of<Machine>(query, kv, shape, args, params, device, stream); });
    });
    return verdict;
  });
}

/// Copies blocks inside the caches: all heads, K and V, and their token scales.
template <class Menu>
Verdict copy_blocks(const DecodeShape& shape, const CopyBlocksArgs& args, Stream stream) {
  Device device;
  if (Verdict v = current_device(&device); !v) return v;
  if (Verdict v = check<Menu>(shape, args, device); !v || args.num_pairs == 0) return v;
  const kernel::CopyBlocksParams params{detail::key_view(shape, args.cache),
                                        detail::value_view(shape, args.cache),
                                        detail::token_scale_view(shape, args.cache.key_token_scales),
                                        detail::token_scale_view(shape, args.cache.value_token_scales),
                                        args.block_pairs,
                                        detail::block_ids(args.cache),
                                        args.num_pairs,
                                        shape.head_size * shape.block_size * size_of(shape.kv),
                                        shape.block_size * 4};
  return arch::dispatch_machine<typename Menu::Machine>(device.arch, [&](auto machine) {
    using Kernel = kernel::CopyBlocksKernel<typename decltype(machine)::type>;
    const std::int64_t workgroups = kernel::ceil_div(args.num_pairs, Kernel::waves);
    const int x = detail::grid_x(workgroups, shape.num_kv_heads, device, Kernel::shape.workgroups_per_unit);
    return arch::launch<Kernel>({x, shape.num_kv_heads}, params, stream);
  });
}

}  // namespace HPA_PLATFORM
}  // namespace hpa
