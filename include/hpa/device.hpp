// Which device calls run on. Arch, Device and Stream are public by this header.
#pragma once

#include <cstdint>

#include "hpa/arch/arch.hpp"
#include "hpa/status.hpp"

#if defined(HPA_PLATFORM_HOST) || defined(HPA_HIP_KERNELS) || defined(HPA_CUDA_KERNELS)
#include "hpa/arch/runtime.hpp"
#endif

namespace hpa {
inline namespace HPA_PLATFORM {

/// The device that calls of this thread run on. Asks the runtime once a device; later calls read what it said.
Verdict current_device(Device* device);

#if defined(HPA_PLATFORM_HOST)

inline Verdict current_device(Device* device) {
  if (device == nullptr) return {Status::invalid_argument, "device", "must not be null"};
  *device = arch::host_device;
  return {};
}

#elif defined(HPA_HIP_KERNELS) || defined(HPA_CUDA_KERNELS)

namespace detail {
/// What the runtime said of each device: compute units * 256 + arch.
HPA_OF_THIS_LIBRARY inline arch::DeviceMemo known_devices;
}  // namespace detail

HPA_EMIT inline Verdict current_device(Device* device) {
  if (device == nullptr) return {Status::invalid_argument, "device", "must not be null"};
  int ordinal = 0;
  if (Verdict v = arch::current_ordinal(&ordinal); !v) return v;
  if (const std::uint32_t known = detail::known_devices.of(ordinal); known != 0) {
    *device = {Arch(known & 0xff), int(known >> 8)};
    return {};
  }
  if (Verdict v = arch::query_device(ordinal, device); !v) return v;
  detail::known_devices.set(ordinal, std::uint32_t(device->compute_units) << 8 | std::uint32_t(device->arch));
  return {};
}

#endif

}  // namespace HPA_PLATFORM
}  // namespace hpa
