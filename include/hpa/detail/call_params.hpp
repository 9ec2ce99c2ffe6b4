// The parameters of decode's kernels, from a call's arguments.
#pragma once

#include <algorithm>
#include <cmath>

#include "hpa/detail/views.hpp"
#include "hpa/kernel/decode_params.hpp"
#include "hpa/plan.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace detail {

inline kernel::ResultView result_view(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p) {
  return {row_view(args.out, args.out_row_stride, args.out_head_stride, {known_rows(args.batch), shape.num_heads},
                   shape.head_size_of_v(), shape.out),
          args.lse, p.areas.partials, p.areas.states, shape.num_heads};
}

/// What becomes of a complete row.
template <Features Can>
kernel::FinishOf<Can> finish_params([[maybe_unused]] const DecodeShape& shape, [[maybe_unused]] const DecodeArgs& args) {
  kernel::FinishOf<Can> finish{};
  if constexpr (covers(Can, Features::sinks)) finish.sinks = args.sinks;
  if constexpr (covers(Can, Features::fp8_out)) finish.out_scale = args.out_scale, finish.out = shape.out;
  return finish;
}

inline kernel::DecodeParams decode_params(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p) {
  kernel::DecodeParams params{};
  params.query = row_view(args.query, args.query_row_stride, args.query_head_stride, {known_rows(args.batch), shape.num_heads},
                          shape.head_size, shape.query);
  params.keys = key_view(shape, args.cache);
  params.values = value_view(shape, args.cache);
  params.block_tables = args.batch.block_tables;
  params.table_starts = args.batch.table_starts;
  params.table_row_stride =
      args.batch.block_table_row_stride == 0 ? args.batch.block_table_width : args.batch.block_table_row_stride;
  params.table_tokens = table_tokens(shape, args.batch);
  params.block_ids = block_ids(args.cache);
  params.result = result_view(shape, args, p);
  params.header = p.areas.header;
  params.items = p.areas.items;
  params.shares = p.areas.shares;
  params.gqa = {shape.gqa_ratio(), 1.f / float(shape.gqa_ratio())};
  params.scale_log2 = (args.scale == 0.f ? 1.f / std::sqrt(float(shape.head_size)) : args.scale) * kernel::log2_e;
  params.stamp = p.stamp;
  params.allow_early_kv_loads = args.allow_early_kv_loads;
  return params;
}

inline kernel::TokenScaleParams token_scale_params(const DecodeShape& shape, const DecodeArgs& args) {
  const kernel::KvView keys = token_scale_view(shape, args.cache.key_token_scales);
  return {keys.data, token_scale_view(shape, args.cache.value_token_scales).data, keys.block_stride, keys.head_stride};
}

/// The parameters of the kernel of C: those that all kernels have, and those of its features and codec.
template <class C>
kernel::DecodeParamsOf<C> params_of(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p) {
  kernel::DecodeParamsOf<C> params{};
  static_cast<kernel::DecodeParams&>(params) = decode_params(shape, args, p);
  if constexpr (size_of(C::kv) == 1)
    static_cast<kernel::ScaleParams&>(params) = {args.cache.k_scale, args.cache.v_scale, args.cache.scale_stride};
  if constexpr (C::token_scales) static_cast<kernel::TokenScaleParams&>(params) = token_scale_params(shape, args);
  if constexpr (kernel::has_feature_params<C>)
    static_cast<kernel::FeatureParams&>(params) = {args.alibi_slopes, args.tree_masks, args.soft_cap * kernel::log2_e,
                                                   shape.sliding_window ? std::min(args.batch.window, shape.max_seq_len) : 0,
                                                   shape.causal};
  static_cast<kernel::FinishOf<C::features>&>(params) = finish_params<C::features>(shape, args);
  return params;
}

}  // namespace detail
}  // namespace HPA_PLATFORM
}  // namespace hpa
