// The chips and what is tuned for each of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hpa/arch/platform.hpp"

namespace hpa {

enum class Arch : std::uint8_t { gfx90a, gfx942, gfx950, gfx11, gfx12, sm80, sm90, host };

/// What the library knows of a device before it launches anything.
struct Device {
  Arch arch = Arch::host;
  int compute_units = 0;  // compute units (AMD), multiprocessors (NVIDIA)
};

constexpr const char* name(Arch arch) {
  switch (arch) {
    case Arch::gfx90a: return "gfx90a";
    case Arch::gfx942: return "gfx942";
    case Arch::gfx950: return "gfx950";
    case Arch::gfx11: return "gfx11";
    case Arch::gfx12: return "gfx12";
    case Arch::sm80: return "sm_80";
    case Arch::sm90: return "sm_90";
    case Arch::host: return "host";
  }
  return "unknown";
}

inline namespace HPA_PLATFORM {
namespace arch {
/// Workgroups of a launch.
struct Grid {
  int x, y = 1, z = 1;
};
}  // namespace arch
}  // namespace HPA_PLATFORM

/// The figures that differ between chips and that no kernel may hold.
struct Tuning {
  int waves_per_unit;    // waves that one compute unit holds at a time
  int whole_row_tokens;  // rows up to this length are one partition when there are rows enough to fill the chip
  int long_partition;    // tokens a partition of longer rows
  int min_partition;     // tokens a partition when rows are too few to fill the chip: never fewer
  int min_tokens_a_row;  // tokens a partition for each query row of a KV head: fewer would move more for rows than is worth it
  int min_saving;        // tokens that such a cut must save a workgroup: what the second launch costs
  int workgroups;        // balanced: that share a compute unit where rows fill the chip
  int lone_workgroups;   // the same where they do not
  int row_cost;          // balanced: what a row takes beside its tokens, in tokens
};

constexpr Tuning tuning(Arch arch) {
  switch (arch) {
    case Arch::sm80:
    case Arch::sm90: return {8, 4096, 2048, 64, 0, 384, 2, 1, 192};
    case Arch::host: return {4, 4096, 2048, 128, 0, 0, 1, 1, 64};
    default: return {16, 4096, 2048, 512, 64, 768, 4, 2, 192};
  }
}

}  // namespace hpa
