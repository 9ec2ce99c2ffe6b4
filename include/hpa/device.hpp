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

/// The device that calls of this thread run on. Its definition is in every object ([[gnu::used]]), because sources of other compilers call
/// it. Asks the runtime once a device; later calls read what it said.
Verdict current_device(Device* device);

#if defined(HPA_PLATFORM_HOST)

inline Verdict current_device(Device* device) {
  if (device == nullptr) return {Status::invalid_argument, "device", "must not be null"};
  *device = arch::host_device;
  return {};
}

#elif defined(HPA_HIP_KERNELS) || defined(HPA_CUDA_KERNELS)

namespace detail {
/// The runtime's answer about each device: compute units, KiB of LDS (10 bits), arch (6 bits).
[[gnu::visibility("hidden")]] inline arch::DeviceMemo known_devices;
}  // namespace detail

[[gnu::used]] inline Verdict current_device(Device* device) {
  if (device == nullptr) return {Status::invalid_argument, "device", "must not be null"};
  int ordinal = 0;
  if (Verdict v = arch::current_ordinal(&ordinal); !v) return v;
  if (const std::uint32_t known = detail::known_devices.of(ordinal); known != 0) {
    *device = {Arch(known & 0x3f), int(known >> 16), int(known >> 6 & 0x3ff) * 1024};
    return {};
  }
  if (Verdict v = arch::query_device(ordinal, device); !v) return v;
  device->lds_bytes = device->lds_bytes / 1024 * 1024;  // as later calls read it
  detail::known_devices.set(ordinal, std::uint32_t(device->compute_units) << 16 | std::uint32_t(device->lds_bytes / 1024) << 6 |
                                         std::uint32_t(device->arch));
  return {};
}

#endif

}  // namespace HPA_PLATFORM
}  // namespace hpa
