// Asynchronous copies from memory to LDS: what is copied. How is each machine's own: its Copies<Stages, Strips..> has
//
//   bookkeeping_bytes                       of LDS, a wave
//   request<I>(wave, stage, to, from, lane) asks for strip I, which lies at lane's `from`; strips of a stage are asked for in order
//   pass(stage)                             nothing left to ask for: keeps the order of stages
//   wait(wave, stage)                       until the stage's strips have arrived for every lane of the wave
//
// One wave owns a Copies object. Stages are requested (or passed) and waited for in turn: 0, 1, .., Stages - 1, 0, .. The place of a
// strip must have been used up by all lanes.
#pragma once

#include "hpa/arch/arch.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// A block of bytes to copy: `Rows` rows of `RowBytes` bytes, `RowStride` bytes apart in memory and dense in LDS.
template <int Rows, int RowBytes, int RowStride>
struct Strip {
  static_assert(RowBytes % 16 == 0 && RowStride >= RowBytes);
  static constexpr int bytes = Rows * RowBytes;
  static constexpr bool dense = RowBytes == RowStride;
  static constexpr int vectors = bytes / 16, vectors_per_row = RowBytes / 16;
  /// The offset in memory of a vector of 16 bytes, by its number in LDS.
  static HPA_HOST_DEVICE constexpr int source_of(int vector) {
    return vector / vectors_per_row * RowStride + vector % vectors_per_row * 16;
  }
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
