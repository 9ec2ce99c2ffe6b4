// Per-lane values on a device: each lane has its own.
#pragma once

#include "hpa/arch/arch.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// One T a lane: on the device, the lane's own.
template <class T>
struct DeviceLane {
  T value;
  HPA_DEVICE T& operator[](int) { return value; }
  HPA_DEVICE const T& operator[](int) const { return value; }
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
