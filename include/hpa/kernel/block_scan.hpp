// Exclusive prefix sums over a workgroup, one value a lane.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hpa/arch/arch.hpp"

namespace hpa::kernel {

/// What the plan kernel counts.
struct Counts {
  std::int64_t tokens;
  std::int32_t items, slots, split_rows;
  std::int32_t row_end;  // largest end of a sequence's query rows: not a sum but a maximum

  HPA_HOST_DEVICE constexpr Counts operator+(const Counts& o) const {
    return {tokens + o.tokens, items + o.items, slots + o.slots, split_rows + o.split_rows, row_end > o.row_end ? row_end : o.row_end};
  }
};

/// Replaces each lane's value by the sum of all values before it and returns the sum of all, with one T a wave in LDS.
template <class M, class T>
HPA_DEVICE T exclusive_scan_by_waves(typename M::Wave& wave, typename M::template Lane<T>& value, T* lds) {
  wave.refresh();  // two scans of a loop that share their lane arithmetic run out of scalar registers
  typename M::template Lane<T> inclusive = value;
  for (int distance = 1; distance < M::width; distance *= 2) {
    const auto before = wave.shuffle(inclusive, [&](int lane) { return lane < distance ? lane : lane - distance; });
    wave.each([&](int lane) {
      if (lane >= distance) inclusive[lane] = before[lane] + inclusive[lane];
    });
  }
  wave.each([&](int lane) {
    if (lane == M::width - 1) lds[wave.index()] = inclusive[lane];
  });
  wave.barrier();
  T before_wave{}, total{};
  for (int i = 0; i < wave.waves(); ++i) {
    if (i == wave.index()) before_wave = total;
    total = total + lds[i];
  }
  wave.barrier();  // lds may be written again
  const auto shifted = wave.shuffle(inclusive, [&](int lane) { return lane == 0 ? 0 : lane - 1; });
  wave.each([&](int lane) { value[lane] = lane == 0 ? before_wave : before_wave + shifted[lane]; });
  return total;
}

/// The same by the platform's library where there is one (rocPRIM, CUB), and its LDS.
template <class M, class T, int Waves>
struct BlockScan {
  using Library = typename M::template BlockScan<T, Waves * M::width>;
  static constexpr int lds_bytes = Library::available ? Library::lds_bytes : Waves * int(sizeof(T));

  static HPA_DEVICE T exclusive(typename M::Wave& wave, typename M::template Lane<T>& value, std::byte* lds) {
    if constexpr (Library::available) return Library::exclusive(value[0], lds);
    else return exclusive_scan_by_waves<M>(wave, value, reinterpret_cast<T*>(lds));
  }
};

}  // namespace hpa::kernel
