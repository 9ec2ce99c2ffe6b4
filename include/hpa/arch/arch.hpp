// Arch, Device: the chips that the library knows, and what it knows of a device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hpa/arch/platform.hpp"

namespace hpa {

/// A chip. NVIDIA's are named by compute capability: sm86 and sm89 run sm_80's machine code, with less LDS; sm100 is 10.x and
/// 11.x, sm120 is 12.x.
enum class Arch : std::uint8_t { gfx90a, gfx942, gfx950, gfx11, gfx12, sm80, sm86, sm89, sm90, sm100, sm120, host };

/// Bytes of LDS that a workgroup can have on a chip, by its maker; on NVIDIA's chips when it asks for it.
constexpr int lds_bytes(Arch arch) {
  switch (arch) {
    case Arch::gfx950:
    case Arch::host: return 160 * 1024;
    case Arch::sm80: return 163 * 1024;
    case Arch::sm86:
    case Arch::sm89:
    case Arch::sm120: return 99 * 1024;
    case Arch::sm90:
    case Arch::sm100: return 227 * 1024;
    default: return 64 * 1024;
  }
}

/// The chip of a compute capability of 8.0 or above. 8.7 has the LDS of sm_80.
constexpr Arch arch_of_capability(int major, int minor) {
  if (major == 8) return minor == 6 ? Arch::sm86 : minor == 9 ? Arch::sm89 : Arch::sm80;
  return major < 10 ? Arch::sm90 : major < 12 ? Arch::sm100 : Arch::sm120;
}

/// A device, as far as the library knows it before it launches anything.
struct Device {
  Arch arch = Arch::host;
  int compute_units = 0;  // compute units (AMD), multiprocessors (NVIDIA)
  int lds_bytes = 0;      // that a workgroup can have; 0 = lds_bytes(arch)

  constexpr int lds() const { return lds_bytes > 0 ? lds_bytes : hpa::lds_bytes(arch); }
};

constexpr const char* name(Arch arch) {
  switch (arch) {
    case Arch::gfx90a: return "gfx90a";
    case Arch::gfx942: return "gfx942";
    case Arch::gfx950: return "gfx950";
    case Arch::gfx11: return "gfx11";
    case Arch::gfx12: return "gfx12";
    case Arch::sm80: return "sm_80";
    case Arch::sm86: return "sm_86";
    case Arch::sm89: return "sm_89";
    case Arch::sm90: return "sm_90";
    case Arch::sm100: return "sm_100";
    case Arch::sm120: return "sm_120";
    case Arch::host: return "host";
  }
  return "unknown";
}

inline namespace HPA_PLATFORM {
namespace arch {
/// Bytes of LDS that a workgroup can have on the chips that a pass of the CUDA compiler is for. `pass`: its __CUDA_ARCH__.
constexpr int lds_bytes_of_pass(int pass) { return lds_bytes(arch_of_capability(pass / 100, pass / 10 % 10)); }

/// Workgroups of a launch.
struct Grid {
  int x, y = 1, z = 1;
};
}  // namespace arch
}  // namespace HPA_PLATFORM

}  // namespace hpa
