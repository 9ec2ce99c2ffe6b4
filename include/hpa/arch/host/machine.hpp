// The host's machines: whole waves emulated on the CPU. A per-lane value is an array of one value a lane, a wave is a thread, the
// workgroup barrier is a real barrier and LDS is memory that starts as NaN; so address, undefined-behaviour and thread sanitisers
// check the GPU kernels' bounds, arithmetic and LDS races. Each emulates a machine of a GPU: its wave width, its lane maps, and the way
// its tiles come.
#pragma once

#include <cmath>
#include <cstdint>

#include "hpa/arch/cdna/staged_query.hpp"
#include "hpa/arch/host/copies.hpp"
#include "hpa/arch/host/products.hpp"
#include "hpa/arch/host/wave.hpp"
#include "hpa/arch/machine.hpp"
#include "hpa/types.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// What the host's machines have in common.
template <class Of>
struct EmulatedMachine : MachineDefaults<HostMachine<Of>> {
  template <class T>
  using Lane = HostLane<T, Facts<Of>::width>;
  using Floats4 = HostFloats4;
  using Wave = HostWave<Facts<Of>::width>;

  template <DType Type>
  static std::uint32_t pack(float low, float high) {
    return Format<Type>::encode(low) | Format<Type>::encode(high) << 16;
  }
  template <DType Type>
  static float unpack(std::uint32_t word, int half) {
    return Format<Type>::decode(word >> (16 * half) & 0xffffu);
  }
  template <DType From, DType To>
  static Words<2> widen(std::uint32_t codes) {
    return widen_by_table<From, To>(codes);
  }
  static float exp2(float x) { return std::exp2(x); }
  static float log2(float x) { return std::log2(x); }
  static float reciprocal(float x) { return 1.f / x; }
  static float max(float a, float b) { return a > b ? a : b; }
  static float min(float a, float b) { return a < b ? a : b; }
};

template <>
struct HostMachine<Cdna> : EmulatedMachine<Cdna> {
  /// Packs like gfx90a and gfx942, which round bf16 by integer arithmetic.
  template <DType Type>
  static std::uint32_t pack_plain(float low, float high) {
    if constexpr (Type == DType::bf16)
      return round_to_bf16(bits_of(low)) >> 16 | (round_to_bf16(bits_of(high)) & 0xffff0000u);
    else
      return EmulatedMachine::template pack<Type>(low, high);
  }
  /// Whether 8-bit keys are multiplied without widening, as on gfx942.
  static constexpr bool multiplies(DType query, DType kv) { return query == DType::bf16 && kv == DType::e4m3_fnuz; }
  template <DType Query, DType Kv, int>
  using Products = CdnaProductsOf<HostMachine, EmulatedMfma<Query>, EmulatedByteMfma<Kv>, Query, Kv>;
  template <DType Query, DType Kv, int HeadSize>
  using StagedQuery = StagedQueryOf<HostMachine, Query, Kv, HeadSize>;
};

template <>
struct HostMachine<Nvidia> : EmulatedMachine<Nvidia> {
  static constexpr bool copies_to_lds = true;
  template <DType Query, DType Kv, int Rows>
  using Products =
      WarpProducts<EmulatedMma<Query>, Rows, layout::Codec<HostMachine, Query, Kv>, EmulatedMma<output_type(Query, Kv)>>;
  template <int Stages, class... Strips>
  using Copies = HostCopies<Stages, Strips...>;
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
