// Exclusive prefix sums over a workgroup, one value a lane.
#pragma once

#include <cstddef>

#include "hpa/arch/arch.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// Replaces each lane's value by the sum of the values up to its own. Sums are right in the first `lanes` lanes.
template <class M, class T>
HPA_DEVICE void inclusive_scan_of_wave(const typename M::Wave& wave, typename M::template Lane<T>& value, int lanes) {
  HPA_UNROLL
  for (int distance = 1; distance < lanes; distance *= 2) {
    const auto before = wave.shuffle(value, [&](int lane) { return lane < distance ? lane : lane - distance; });
    wave.each_afresh([&](int lane) {  // afresh: a mask of lanes for every step would be kept over the caller's loop
      if (lane >= distance) value[lane] = before[lane] + value[lane];
    });
  }
}

/// Replaces each lane's value by the sum of all values before it in the workgroup, and returns the sum of all. Takes one T a wave
/// of LDS; the first wave adds up the sums of the waves.
template <class M, class T, int Waves>
HPA_DEVICE T exclusive_scan_by_waves(typename M::Wave& wave, typename M::template Lane<T>& value, T* lds) {
  static_assert(Waves <= M::width, "a lane adds up for a wave");
  typename M::template Lane<T> inclusive = value;
  inclusive_scan_of_wave<M, T>(wave, inclusive, M::width);
  wave.each([&](int lane) {
    if (lane == M::width - 1) lds[wave.index()] = inclusive[lane];
  });
  wave.barrier();
  if (Waves > 1 && wave.index() == 0) {
    typename M::template Lane<T> of_waves;
    wave.each([&](int lane) { of_waves[lane] = lds[lane < Waves ? lane : Waves - 1]; });
    inclusive_scan_of_wave<M, T>(wave, of_waves, Waves);
    wave.each([&](int lane) {
      if (lane < Waves) lds[lane] = of_waves[lane];
    });
  }
  if (Waves > 1) wave.barrier();
  const T before_wave = wave.index() == 0 ? T{} : lds[wave.index() - 1], total = lds[Waves - 1];
  const auto shifted = wave.shuffle(inclusive, [&](int lane) { return lane == 0 ? 0 : lane - 1; });
  wave.each([&](int lane) { value[lane] = lane == 0 ? before_wave : before_wave + shifted[lane]; });
  wave.barrier();  // lds may be written again
  return total;
}

/// Exclusive sums over a workgroup, by the platform's library where there is one (rocPRIM on CDNA), else by
/// exclusive_scan_by_waves(). `lds_bytes`: the LDS that this takes.
template <class M, class T, int Waves>
struct BlockScan {
  using Library = typename M::template BlockScan<T, Waves * M::width>;
  static constexpr int lds_bytes = Library::available ? Library::lds_bytes : Waves * int(sizeof(T));

  static HPA_DEVICE T exclusive(typename M::Wave& wave, typename M::template Lane<T>& value, std::byte* lds) {
    if constexpr (Library::available)
      return Library::exclusive(value[0], lds);
    else
      return exclusive_scan_by_waves<M, T, Waves>(wave, value, reinterpret_cast<T*>(lds));
  }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
