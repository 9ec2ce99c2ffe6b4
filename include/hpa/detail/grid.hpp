// grid_x(): the number of workgroups of a launch.
#pragma once

#include <cstdint>

#include "hpa/arch/arch.hpp"
#include "hpa/kernel/math.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace detail {

/// Workgroups in x for `work` units of work, where the grid has `y` such rows of workgroups: as many as the chip holds at a time,
/// but no more than units. A compute unit holds `workgroups_per_unit`.
inline int grid_x(std::int64_t work, std::int64_t y, const Device& device, int workgroups_per_unit) {
  const std::int64_t resident = std::int64_t{device.compute_units} * workgroups_per_unit;
  const std::int64_t x = kernel::ceil_div(resident, y);
  return int(work < x ? work : x);
}

}  // namespace detail
}  // namespace HPA_PLATFORM
}  // namespace hpa
