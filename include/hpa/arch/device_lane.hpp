// DeviceLane: a per-lane value on a device.
#pragma once

#include "hpa/arch/arch.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// One T for each lane of a wave. On the device a lane has its T in a register.
template <class T>
struct DeviceLane {
  T value;
  HPA_DEVICE T& operator[](int) { return value; }
  HPA_DEVICE const T& operator[](int) const { return value; }
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
