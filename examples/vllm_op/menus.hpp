// The kernels of the op: for 16-bit caches the library's default menu, compiled in paged_attention.cpp; for FP8 caches a menu of their
// own, compiled in paged_attention_fp8.cpp.
#pragma once

#include "hpa/instantiate.hpp"

namespace vllm_op {

/// Both e4m3 formats, so that one binary serves every chip. An engine for one chip needs one of them, and half of the kernels.
using Fp8Menu = hpa::default_menu::with<hpa::kv_types<hpa::DType::e4m3_fnuz, hpa::DType::e4m3_ocp>>;

}  // namespace vllm_op

HPA_EXTERN(vllm_op::Fp8Menu);
