// Which device calls run on. Arch, Device and Stream are public by this header.
#pragma once

#include <atomic>
#include <cstdint>

#include "hpa/arch/runtime.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {

/// The device that calls of this thread run on. Asks the runtime once a device; later calls read what it said.
inline Verdict current_device(Device* device) {
  if (device == nullptr) return {Status::invalid_argument, "device", "must not be null"};
  constexpr int remembered = 64;
  static std::atomic<std::uint32_t> known[remembered];  // 0, or compute units * 256 + arch
  int ordinal = 0;
  if (Verdict v = arch::current_ordinal(&ordinal); !v) return v;
  if (ordinal < remembered)
    if (const std::uint32_t seen = known[ordinal].load(std::memory_order_relaxed); seen != 0) {
      *device = {Arch(seen & 0xff), int(seen >> 8)};
      return {};
    }
  if (Verdict v = arch::query_device(ordinal, device); !v) return v;
  if (ordinal < remembered)
    known[ordinal].store(std::uint32_t(device->compute_units) << 8 | std::uint32_t(device->arch), std::memory_order_relaxed);
  return {};
}

}  // namespace HPA_PLATFORM
}  // namespace hpa
