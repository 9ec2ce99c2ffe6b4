// AMD CDNA: gfx90a, gfx942, gfx950. Waves of 64 lanes, matrix instructions 16x16x16 (gfx950: 16x16x32, half as many).
#pragma once

#include "hpa/arch/amd/machine.hpp"
#include "hpa/arch/cdna/bytes.hpp"
#include "hpa/arch/cdna/products.hpp"
#include "hpa/arch/cdna/scan.hpp"
#include "hpa/arch/cdna/staged_query.hpp"
#include "hpa/types.hpp"

#if defined(HPA_HIP_KERNELS)

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

namespace cdna {
#if defined(__HIP_DEVICE_COMPILE__) && !defined(__gfx90a__) && !defined(__gfx942__) && !defined(__gfx950__)
inline constexpr bool compiles_here = false;
#else
inline constexpr bool compiles_here = true;
#endif
}  // namespace cdna

struct Cdna : amd::Machine<Cdna> {
  static constexpr bool compiles_here = cdna::compiles_here;

  using Floats4 = CdnaFloats4;
  /// Whether 8-bit keys are multiplied without widening. The query then has two terms, which hold bf16 but not f16. gfx950 does
  /// not need it: it widens two codes by one instruction.
  static constexpr bool multiplies(DType query, DType kv) {
    return cdna::converts_fnuz && query == DType::bf16 && kv == DType::e4m3_fnuz;
  }
  template <DType Query, DType Kv, int>
  using Products = CdnaProductsOf<Cdna, Mfma<Query>, ByteMfma<Kv>, Query, Kv>;
  template <DType Query, DType Kv, int HeadSize>
  using StagedQuery = StagedQueryOf<Cdna, Query, Kv, HeadSize>;
  template <class T, int Threads>
  using BlockScan = CdnaBlockScan<T, Threads>;

  // conversions
  /// Four 8-bit codes, byte 0 first, as four 16-bit elements; exact. NaN gives NaN, Inf Inf.
  template <DType From, DType To>
  static HPA_DEVICE Words<2> widen(std::uint32_t codes) {
    if constexpr (cdna::converts<From>)
      return cdna::widen_natively<From, To>(codes);
    else
      return cdna::widen_by_bits<From, To>(codes);
  }
  /// Four floats as four 8-bit codes, byte 0 first: rounded to nearest even, saturating, Inf too; NaN gives NaN (i8: 0).
  template <DType To>
  static HPA_DEVICE std::uint32_t narrow(float a, float b, float c, float d) {
    if constexpr (cdna::converts<To>)
      return cdna::narrow_natively<To>(a, b, c, d);
    else
      return narrow_exactly<To>(a, b, c, d);
  }
  /// Four floats within the range of an 8-bit type that the chip converts, or NaN, as codes of that type.
  template <DType To>
  static HPA_DEVICE std::uint32_t narrow_bounded(const Floats4& x) {
    return cdna::narrow_bounded<To>(x[0], x[1], x[2], x[3]);
  }
  /// Four 8-bit floats, byte 0 first, of a type that the chip converts.
  template <DType From>
  static HPA_DEVICE Floats4 floats(std::uint32_t codes) {
    return Floats4::from(cdna::floats4_of<From>(codes));
  }
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa

#endif
