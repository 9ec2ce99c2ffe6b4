// The parameters of a decode kernel. An instance has those of what it can do, and no others.
#pragma once

#include "hpa/kernel/config.hpp"
#include "hpa/kernel/kv_view.hpp"
#include "hpa/kernel/result.hpp"

namespace hpa::kernel {

struct DecodeParams {
  RowView query;
  KvView keys, values;
  const std::int32_t* block_tables;
  std::int64_t table_row_stride;
  ResultView result;
  PlanHeader* header;
  const Item* items;
  std::int32_t gqa_ratio;
  float scale_log2;
  std::uint32_t stamp;
};

/// Of 8-bit caches, on the device; nullptr = 1.
struct ScaleParams {
  const float* k_scale;
  const float* v_scale;
};
struct NoScales {};
struct NoFeatures {};

template <class C>
struct DecodeParamsOf : DecodeParams,
                        std::conditional_t<size_of(C::kv) == 1, ScaleParams, NoScales>,
                        std::conditional_t<C::general, FeatureParams, NoFeatures>,
                        FinishOf<C::general> {};

/// What products of query and key are multiplied with, besides the scale of the call.
template <class C, class Wave>
HPA_DEVICE float logit_scale([[maybe_unused]] const Wave& wave, [[maybe_unused]] const DecodeParamsOf<C>& params) {
  if constexpr (size_of(C::kv) == 1) {
    const ScaleParams scales = wave.template reread<ScaleParams>(params);
    if (scales.k_scale != nullptr) return wave.uniform(scales.k_scale);
  }
  return 1.f;
}

/// What sums of values are multiplied with.
template <class C, class Wave>
HPA_DEVICE float value_scale([[maybe_unused]] const Wave& wave, [[maybe_unused]] const DecodeParamsOf<C>& params) {
  if constexpr (size_of(C::kv) == 1) {
    const ScaleParams scales = wave.template reread<ScaleParams>(params);
    if (scales.v_scale != nullptr) return wave.uniform(scales.v_scale);
  }
  return 1.f;
}

}  // namespace hpa::kernel
