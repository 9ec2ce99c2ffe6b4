// Registers of a lane.
#pragma once

#include <cstdint>

#include "hpa/arch/platform.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// N registers of 32 bits; each holds elements of fewer bits, the first in the lowest.
template <int N>
struct alignas((N & (N - 1)) == 0 ? 4 * N : 4) Words {
  std::uint32_t word[N];
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
