// bf16 by integer arithmetic, for chips that do not round to it by themselves, and what that needs of a NaN.
#pragma once

#include <cstdint>

#include "hpa/types.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// The float, but of any NaN the one that arithmetic makes, without what its lower bits may carry. For floats from memory whose
/// NaN may come to round_to_bf16(): scales, sinks. AMD's arithmetic passes on the bits of a NaN.
HPA_HOST_DEVICE float drop_payload(float value) { return value == value ? value : float_of(0x7fc00000u); }

/// Rounds a float to bf16, to nearest even, in the upper half. Right for a NaN only if its lower half is zero: otherwise the sum
/// would carry out of the exponent, all ones into +0.
HPA_HOST_DEVICE constexpr std::uint32_t round_to_bf16(std::uint32_t bits) { return bits + 0x7fff + (bits >> 16 & 1); }

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
