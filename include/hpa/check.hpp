// check(): whether a call is good, and why not. What a shape must be is in rules.hpp. Pure: touches no device.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hpa/args.hpp"
#include "hpa/detail/strides.hpp"
#include "hpa/kernel/workspace_layout.hpp"
#include "hpa/menu.hpp"
#include "hpa/rules.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {

namespace detail {

inline bool aligned(const void* pointer, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0; }

struct PointerRule {
  const void* pointer;
  std::size_t alignment;
  const char* field;
};

template <std::size_t N>
inline Verdict check_alignment(const PointerRule (&pointers)[N]) {
  for (const PointerRule& rule : pointers)
    if (!aligned(rule.pointer, rule.alignment))
      return {Status::invalid_argument, rule.field,
              rule.alignment == 16 ? "must be 16-byte aligned" : "not aligned to its elements"};
  return {};
}

template <std::size_t N>
inline Verdict check_pointers(const PointerRule (&pointers)[N]) {
  for (const PointerRule& rule : pointers)
    if (rule.pointer == nullptr) return {Status::invalid_argument, rule.field, "must not be null"};
  return check_alignment(pointers);
}

/// A pointer or value that belongs to a feature: given exactly when the shape has the feature.
inline Verdict check_feature(bool in_shape, bool given, const char* field, const char* missing, const char* unexpected) {
  if (in_shape == given) return {};
  return {Status::invalid_argument, field, given ? unexpected : missing};
}

inline Verdict check_features(const DecodeShape& shape, const DecodeArgs& args) {
  const Verdict verdicts[] = {
      check_feature(shape.lse, args.lse != nullptr, "lse", "must not be null: shape.lse is set", "given, but shape.lse is not set"),
      check_feature(shape.alibi, args.alibi_slopes != nullptr, "alibi_slopes", "must not be null: shape.alibi is set",
                    "given, but shape.alibi is not set"),
      check_feature(shape.sinks, args.sinks != nullptr, "sinks", "must not be null: shape.sinks is set",
                    "given, but shape.sinks is not set"),
      check_feature(shape.soft_cap, args.soft_cap != 0.f, "soft_cap", "must be positive: shape.soft_cap is set",
                    "given, but shape.soft_cap is not set"),
      check_feature(false, args.cache.k_scale != nullptr && size_of(shape.kv) == 2, "k_scale", "",
                    "given, but 16-bit KV has no scale"),
      check_feature(false, args.cache.v_scale != nullptr && size_of(shape.kv) == 2, "v_scale", "",
                    "given, but 16-bit KV has no scale"),
      check_feature(false, args.out_scale != nullptr && size_of(shape.out) == 2, "out_scale", "",
                    "given, but 16-bit output has no scale"),
      check_feature(shape.tree_mask, args.tree_masks != nullptr, "tree_masks", "must not be null: shape.tree_mask is set",
                    "given, but shape.tree_mask is not set"),
      check_feature(shape.token_scales, args.cache.key_token_scales != nullptr, "key_token_scales",
                    "must not be null: shape.token_scales is set", "given, but shape.token_scales is not set"),
      check_feature(shape.token_scales, args.cache.value_token_scales != nullptr, "value_token_scales",
                    "must not be null: shape.token_scales is set", "given, but shape.token_scales is not set"),
      check_feature(false, args.cache.key_token_stride != 0 && shape.layout == KvLayout::vllm, "key_token_stride", "",
                    "given, but the vllm layout has no token stride"),
      check_feature(false, args.cache.value_token_stride != 0 && shape.layout == KvLayout::vllm, "value_token_stride", "",
                    "given, but the vllm layout has no token stride"),
  };
  for (const Verdict& verdict : verdicts)
    if (!verdict) return verdict;
  return {};
}

/// Checks a cache: num_blocks, scales and strides, for decode() and for the cache's writers.
inline Verdict check_cache(const DecodeShape& shape, const KvCache& cache) {
  if (cache.num_blocks < 0) return {Status::invalid_argument, "num_blocks", "must be positive, or 0 where it is not known"};
  if (cache.scale_stride != 0 && cache.scale_stride != 1)
    return {Status::invalid_argument, "scale_stride", "must be 0, for one scale, or 1, for one a KV head"};
  const StridePair key{cache.key_block_stride, cache.key_head_stride, "key_block_stride", "key_head_stride"};
  const StridePair value{cache.value_block_stride, cache.value_head_stride, "value_block_stride", "value_head_stride"};
  const StrideCounts counts{cache.num_blocks, shape.num_kv_heads};
  const std::int64_t slab = std::int64_t{shape.head_size} * shape.block_size, limit = elements_in_4_gib(shape.kv);
  const int x = per_16_bytes(shape.kv);
  if (Verdict v = check_strides(key, slab, counts, x, limit, limit); !v) return v;
  return check_strides(value, slab, counts, x, limit, limit);
}

/// Rows of query and out; 0 where only the device knows.
constexpr int known_rows(const Batch& batch) { return batch.query_start_loc == nullptr ? batch.num_seqs : 0; }

/// Checks out where it is the query itself. A row of the query is read by all its partitions before it is written; that takes the
/// same bytes for both.
inline Verdict check_in_place(const DecodeShape& shape, const DecodeArgs& args) {
  if (args.out != args.query) return {};
  const StrideCounts counts{known_rows(args.batch), shape.num_heads};
  const StridePair query = dense_strides({args.query_row_stride, args.query_head_stride, "", ""}, shape.head_size, counts);
  const StridePair out = dense_strides({args.out_row_stride, args.out_head_stride, "", ""}, shape.head_size_of_v(), counts);
  if (shape.out == shape.query && shape.head_size_of_v() == shape.head_size && query.outer == out.outer && query.inner == out.inner)
    return {};
  return {Status::invalid_argument, "out", "is the query, of another type or with other strides"};
}

inline Verdict check_batch(const DecodeShape& shape, const Batch& batch) {
  const Status bad = Status::invalid_argument;
  if (batch.num_seqs < 0) return {bad, "num_seqs", "must not be negative"};
  if (batch.num_seqs == 0) return {};  // tensors of nothing may be null
  if (batch.num_seqs > shape.max_seqs) return {bad, "num_seqs", "more than shape.max_seqs"};
  if (batch.block_table_width <= 0) return {bad, "block_table_width", "must be positive"};
  const PointerRule pointers[] = {{batch.block_tables, 4, "block_tables"}, {batch.seq_lens, 4, "seq_lens"}};
  if (Verdict v = check_pointers(pointers); !v) return v;
  const PointerRule optional_pointers[] = {{batch.query_start_loc, 4, "query_start_loc"}, {batch.table_starts, 8, "table_starts"}};
  if (Verdict v = check_alignment(optional_pointers); !v) return v;
  if (Verdict v = check_feature(shape.sliding_window, batch.window != 0, "window", "must be positive: shape.sliding_window is set",
                                "given, but shape.sliding_window is not set");
      !v)
    return v;
  if (shape.sliding_window && batch.window < 0) return {bad, "window", "must be positive"};
  if (batch.num_seqs == 1 || batch.table_starts != nullptr) return {};
  if (batch.block_table_row_stride != 0 && batch.block_table_row_stride < batch.block_table_width)
    return {bad, "block_table_row_stride", "smaller than the data it steps over"};
  if (batch.block_table_row_stride > max_stride) return {bad, "block_table_row_stride", "larger than any memory"};
  return {};
}

}  // namespace detail

/// Whether the menu has a kernel for the shape on the device; else the first rule that fails.
template <class Menu = default_menu>
Verdict check(const DecodeShape& shape, const Device& device) {
  return detail::first_refusal<Menu>(shape, device, true);
}

/// The numbers of the kernel that decode() launches for the shape on the device, for programs that explain or measure; an empty shape
/// when check() says no.
template <class Menu = default_menu>
tuning::KernelShape decode_kernel_shape(const DecodeShape& shape, const Device& device) {
  tuning::KernelShape chosen;
  if (!check<Menu>(shape, device)) return chosen;
  const bool fills_the_chip = kernel::partition_rule(shape, device).fills_the_chip();
  Menu::dispatch(shape, [&](auto config) {
    const tuning::Sizes sizes = tuning::sizes_of<decltype(config)>(tuning::rows_per_kv_head(shape));
    chosen = tuning::kernel_shape_of<typename Menu::Machine>(device, sizes, fills_the_chip);
  });
  return chosen;
}

/// Whether plan() can do it: check(shape, device), then the batch: null or misaligned pointers, counts, strides and the window.
/// Reads no device memory.
template <class Menu = default_menu>
Verdict check(const DecodeShape& shape, const Batch& batch, const Device& device) {
  if (Verdict v = check<Menu>(shape, device); !v) return v;
  return detail::check_batch(shape, batch);
}

namespace detail {
/// What a layer has of its own: pointers, strides and values.
inline Verdict check_layer(const DecodeShape& shape, const DecodeArgs& args) {
  if (args.batch.num_seqs == 0) return {};
  const Status bad = Status::invalid_argument;
  const PointerRule pointers[] = {{args.query, 16, "query"},
                                  {args.cache.keys, 16, "keys"},
                                  {args.cache.values, 16, "values"},
                                  {args.out, std::size_t(4 * size_of(shape.out)), "out"}};
  if (Verdict v = check_pointers(pointers); !v) return v;
  const PointerRule optional_pointers[] = {{args.lse, 4, "lse"},
                                           {args.alibi_slopes, 4, "alibi_slopes"},
                                           {args.sinks, 4, "sinks"},
                                           {args.cache.k_scale, 4, "k_scale"},
                                           {args.cache.v_scale, 4, "v_scale"},
                                           {args.out_scale, 4, "out_scale"},
                                           {args.cache.key_token_scales, 4, "key_token_scales"},
                                           {args.cache.value_token_scales, 4, "value_token_scales"},
                                           {args.tree_masks, 4, "tree_masks"}};
  if (Verdict v = check_alignment(optional_pointers); !v) return v;
  if (Verdict v = check_features(shape, args); !v) return v;
  if (!std::isfinite(args.scale)) return {bad, "scale", "must be finite"};
  if (shape.soft_cap && !(args.soft_cap > 0.f && std::isnormal(args.soft_cap)))
    return {bad, "soft_cap", "must be positive, finite and no subnormal number"};
  if (Verdict v = check_strides({args.query_row_stride, args.query_head_stride, "query_row_stride", "query_head_stride"},
                                shape.head_size, {known_rows(args.batch), shape.num_heads}, per_16_bytes(shape.query),
                                elements_in_4_gib(shape.query), max_stride);
      !v)
    return v;
  if (Verdict v = check_cache(shape, args.cache); !v) return v;
  if (Verdict v =
          check_strides({args.out_row_stride, args.out_head_stride, "out_row_stride", "out_head_stride"}, shape.head_size_of_v(),
                        {known_rows(args.batch), shape.num_heads}, 4, elements_in_4_gib(shape.out), max_stride);
      !v)
    return v;
  return check_in_place(shape, args);
}
}  // namespace detail

/// Whether decode() can do it: check(shape, batch, device), then the layer: null, misaligned or impossible pointers, strides and
/// values. Reads no device memory.
template <class Menu = default_menu>
Verdict check(const DecodeShape& shape, const DecodeArgs& args, const Device& device) {
  if (Verdict v = check<Menu>(shape, args.batch, device); !v) return v;
  return detail::check_layer(shape, args);
}

}  // namespace HPA_PLATFORM
}  // namespace hpa
