// How many workgroups a launch has.
#pragma once

#include <cstdint>

#include "hpa/arch/arch.hpp"
#include "hpa/kernel/math.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace detail {

/// Workgroups for `work` pieces in x when `y` such rows of workgroups run beside each other: as many as the chip holds, no more than
/// pieces. A compute unit holds `workgroups_per_unit`.
inline int grid_x(std::int64_t work, std::int64_t y, const Device& device, int workgroups_per_unit) {
  const std::int64_t resident = std::int64_t{device.compute_units} * workgroups_per_unit;
  const std::int64_t x = kernel::ceil_div(resident, y);
  return int(work < x ? work : x);
}

}  // namespace detail
}  // namespace HPA_PLATFORM
}  // namespace hpa
