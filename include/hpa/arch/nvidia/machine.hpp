// NVIDIA: sm_80 and up. Warps of 32 lanes, mma.m16n8k16. Tiles come to shared memory by asynchronous copies: plain sm_80 ones, or
// bulk copies on sm_90 where the rows of a tile are neighbours in memory.
#pragma once

#include <type_traits>

#include "hpa/arch/device_lane.hpp"
#include "hpa/arch/machine.hpp"
#include "hpa/arch/nvidia/bytes.hpp"
#include "hpa/arch/nvidia/copies.hpp"
#include "hpa/arch/nvidia/products.hpp"
#include "hpa/arch/nvidia/wave.hpp"
#include "hpa/types.hpp"

#if defined(HPA_CUDA_KERNELS)

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

namespace nvidia {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline constexpr bool compiles_here = false;
#else
inline constexpr bool compiles_here = true;
#endif

#if defined(__CUDA_ARCH__)
inline constexpr int pass = __CUDA_ARCH__;
#else
inline constexpr int pass = 0;
#endif
/// Whether a pass of the compiler has code of a kernel for chips with these bytes of LDS: a pass is for the chips of one compute
/// capability, which have the same LDS.
constexpr bool compiles_for(int chip_lds_bytes) {
  return pass == 0 || chip_lds_bytes == 0 || chip_lds_bytes == lds_bytes_of_pass(pass);
}
}  // namespace nvidia

struct Nvidia : MachineDefaults<Nvidia> {
  static constexpr bool compiles_here = nvidia::compiles_here;
  static constexpr bool compiles_for(int chip_lds_bytes) { return nvidia::compiles_for(chip_lds_bytes); }
  static constexpr bool copies_to_lds = true;

  template <class T>
  using Lane = DeviceLane<T>;
  using Floats4 = NvidiaFloats4;
  using Wave = nvidia::Wave;
  template <DType Query, DType Kv, int Rows>
  using Products = WarpProducts<Mma<Query>, Rows, layout::Codec<Nvidia, Query, Kv>, Mma<output_type(Query, Kv)>>;
  template <int Stages, class... Strips>
  using Copies = std::conditional_t<nvidia::copies_in_bulk && (Strips::dense && ...), nvidia::BulkCopies<Stages, Strips...>,
                                    nvidia::GroupedCopies<Stages, Strips...>>;

  // conversions and functions of one float
  template <DType Type>
  static HPA_DEVICE std::uint32_t pack(float low, float high) {
    std::uint32_t packed;
    if constexpr (Type == DType::f16)
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    else
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
  /// Unpacks half 0 or 1 of a word that pack() made, exactly.
  template <DType Type>
  static HPA_DEVICE float unpack(std::uint32_t word, int half) {
    const auto code = std::uint16_t(word >> (16 * half));
    if constexpr (Type == DType::bf16) return float_of(std::uint32_t(code) << 16);
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(code));
    return value;
  }
  /// Four 8-bit codes, byte 0 first, as four 16-bit elements; exact. NaN gives NaN, Inf Inf.
  template <DType From, DType To>
  static HPA_DEVICE Words<2> widen(std::uint32_t codes) {
    if constexpr (nvidia::converts<From>)
      return nvidia::widen_natively<From, To>(codes);
    else
      return nvidia::widen_by_bits<From, To>(codes);
  }
  /// Four floats as four 8-bit codes, byte 0 first: rounded to nearest even, saturating, Inf too; NaN gives NaN (i8: 0).
  template <DType To>
  static HPA_DEVICE std::uint32_t narrow(float a, float b, float c, float d) {
    if constexpr (nvidia::converts<To>)
      return nvidia::narrow_natively<To>(a, b, c, d);
    else
      return narrow_exactly<To>(a, b, c, d);
  }
  static HPA_DEVICE float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static HPA_DEVICE float log2(float x) { return __log2f(x); }
  static HPA_DEVICE float reciprocal(float x) { return __frcp_rn(x); }
  static HPA_DEVICE float quotient(float a, float b) { return __fdiv_rn(a, b); }  // with --use_fast_math too
  static HPA_DEVICE float max(float a, float b) { return fmaxf(a, b); }
  static HPA_DEVICE float min(float a, float b) { return fminf(a, b); }
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa

#endif
