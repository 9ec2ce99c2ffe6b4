// Arithmetic that kernels and the host share.
#pragma once

#include <cstdint>

#include "hpa/arch/platform.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

inline constexpr float log2_e = 1.4426950408889634f;
inline constexpr float ln_2 = 0.6931471805599453f;

HPA_HOST_DEVICE constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
