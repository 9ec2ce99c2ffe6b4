// The parameters of decode kernels. A kernel has those of its features and of its cache's codec, and no others.
#pragma once

#include "hpa/arch/portable_rounding.hpp"
#include "hpa/config.hpp"
#include "hpa/kernel/kv_view.hpp"
#include "hpa/kernel/masks.hpp"
#include "hpa/kernel/result.hpp"
#include "hpa/layout/codec.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// The parameters that every decode kernel has.
struct DecodeParams {
  RowView query;
  KvView keys, values;
  const std::int32_t* block_tables;
  const std::int64_t* table_starts;  // where the rows of sequences begin; nullptr: table_row_stride apart
  std::int64_t table_row_stride;
  std::int32_t table_tokens;  // that a row has entries for
  BlockIds block_ids;
  ResultView result;
  PlanHeader* header;
  const Item* items;
  const std::int32_t* shares;  // Split::balanced: where a workgroup's items begin and end; else nullptr, and they lie a grid apart
  GqaRatio gqa;
  float scale_log2;
  std::uint32_t stamp;
  std::int32_t allow_early_kv_loads;  // DecodeArgs::allow_early_kv_loads

  /// The block ids of a sequence.
  template <class Wave>
  HPA_DEVICE const std::int32_t* table_row(const Wave& wave, std::int32_t sequence) const {
    if (table_starts != nullptr) {
      const std::int64_t start = wave.uniform(table_starts + std::uint32_t(sequence));
      return block_tables + (start < 0 ? 0 : start);  // plan has made an empty sequence of one below 0: no entry is read
    }
    return block_tables + std::int64_t{std::uint32_t(sequence)} * table_row_stride;
  }
};

/// The scales of an 8-bit cache, in device memory; nullptr = 1.
struct ScaleParams {
  const float* k_scale;
  const float* v_scale;
  std::int32_t stride;  // between KV heads
};
/// Scales of single tokens of K and of V, [num_blocks, num_kv_heads, block_size] floats each; nullptr: all are 1.
struct TokenScaleParams {
  const char* keys;
  const char* values;
  std::uint32_t block_stride, head_stride;  // in bytes, of K and of V alike

  HPA_HOST_DEVICE bool given() const { return keys != nullptr; }
  /// The scales of one KV head.
  HPA_HOST_DEVICE TokenScaleParams head(std::int32_t kv_head) const {
    if (!given()) return *this;
    return {of_keys().head(kv_head).data, of_values().head(kv_head).data, block_stride, head_stride};
  }
  HPA_HOST_DEVICE KvView of_keys() const { return {keys, block_stride, head_stride}; }
  HPA_HOST_DEVICE KvView of_values() const { return {values, block_stride, head_stride}; }
};
struct NoScales {};
struct NoTokenScales {};
struct NoFeatures {};

/// Whether C's kernels have something to do with scores, or several query rows.
template <class C>
inline constexpr bool has_feature_params = has_any(C::features,
                                                   Features::tree | Features::window | Features::alibi | Features::soft_cap);

template <class C>
struct DecodeParamsOf : DecodeParams,
                        std::conditional_t<layout::scales_of<C> != layout::Scales::none, ScaleParams, NoScales>,
                        std::conditional_t<layout::scales_of<C> == layout::Scales::token, TokenScaleParams, NoTokenScales>,
                        std::conditional_t<has_feature_params<C>, FeatureParams, NoFeatures>,
                        FinishOf<C::features> {};

/// The factor of products of query and key, besides the scale of the call: k_scale of the KV head.
template <class C, class Wave>
HPA_DEVICE float logit_factor([[maybe_unused]] const Wave& wave, [[maybe_unused]] const DecodeParamsOf<C>& params,
                              [[maybe_unused]] std::int32_t kv_head) {
  if constexpr (layout::scales_of<C> != layout::Scales::none) {
    const ScaleParams scales = wave.template reread<ScaleParams>(params);
    if (scales.k_scale != nullptr) return wave.uniform(scales.k_scale + kv_head * scales.stride);
  }
  return 1.f;
}

/// The factor of sums of values: v_scale of the KV head.
template <class C, class Wave>
HPA_DEVICE float value_factor([[maybe_unused]] const Wave& wave, [[maybe_unused]] const DecodeParamsOf<C>& params,
                              [[maybe_unused]] std::int32_t kv_head) {
  if constexpr (layout::scales_of<C> != layout::Scales::none) {
    const ScaleParams scales = wave.template reread<ScaleParams>(params);
    if (scales.v_scale != nullptr) return arch::drop_payload(wave.uniform(scales.v_scale + kv_head * scales.stride));
  }
  return 1.f;
}

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
