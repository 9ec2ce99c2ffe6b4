// Mfma, ByteMfma: CDNA's matrix instructions.
#pragma once

#include "hpa/arch/device_lane.hpp"
#include "hpa/arch/products.hpp"

#if defined(HPA_HIP_KERNELS)

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// Four floats of a lane: D of a matrix product.
struct CdnaFloats4 {
  float value[4];
  HPA_DEVICE float& operator[](int i) { return value[i]; }
  HPA_DEVICE const float& operator[](int i) const { return value[i]; }
  HPA_DEVICE CdnaFloats4 operator*(float by) const { return from(vector() * by); }
  HPA_DEVICE CdnaFloats4 operator+(const CdnaFloats4& o) const { return from(vector() + o.vector()); }

  using Vector = float __attribute__((ext_vector_type(4)));  // whose arithmetic is packed, two floats an instruction
  HPA_DEVICE Vector vector() const { return __builtin_bit_cast(Vector, *this); }
  /// Zeros that are not constants to the optimiser: it would set them once for every way into the loop.
  static HPA_DEVICE CdnaFloats4 zero() {
    Vector v = {0.f, 0.f, 0.f, 0.f};
#if defined(__HIP_DEVICE_COMPILE__)
    asm volatile("" : "+v"(v));
#endif
    return from(v);
  }
  static HPA_DEVICE CdnaFloats4 from(Vector v) { return __builtin_bit_cast(CdnaFloats4, v); }
};

namespace cdna {
using Half4 = _Float16 __attribute__((ext_vector_type(4)));
using Half8 = _Float16 __attribute__((ext_vector_type(8)));
using BFloat8 = __bf16 __attribute__((ext_vector_type(8)));
using Short4 = short __attribute__((ext_vector_type(4)));
}  // namespace cdna

/// D += A B with operands of 16 bytes: two products of 16x16x16, or one of 16x16x32.
template <DType Type>
struct Mfma {
  static_assert(Type == DType::f16 || Type == DType::bf16);
  static constexpr DType type = Type;
  using Map = Mfma16x16x16;
  using Operand = DeviceLane<Words<4>>;

  static HPA_DEVICE void fma2([[maybe_unused]] DeviceLane<CdnaFloats4>& d, [[maybe_unused]] const Operand& a,
                              [[maybe_unused]] const Operand& b) {
#if defined(__HIP_DEVICE_COMPILE__)
    auto sum = d.value.vector();
#if defined(__gfx950__)
    if constexpr (Type == DType::f16)
      sum = __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(cdna::Half8, a.value),
                                                   __builtin_bit_cast(cdna::Half8, b.value), sum, 0, 0, 0);
    else
      sum = __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(cdna::BFloat8, a.value),
                                                    __builtin_bit_cast(cdna::BFloat8, b.value), sum, 0, 0, 0);
#else
    HPA_UNROLL
    for (int half = 0; half < 4; half += 2) {
      const Words<2> a2{{a.value.word[half], a.value.word[half + 1]}}, b2{{b.value.word[half], b.value.word[half + 1]}};
      if constexpr (Type == DType::f16)
        sum = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(cdna::Half4, a2), __builtin_bit_cast(cdna::Half4, b2), sum,
                                                    0, 0, 0);
      else
        sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(cdna::Short4, a2), __builtin_bit_cast(cdna::Short4, b2),
                                                        sum, 0, 0, 0);
    }
#endif
    d.value = CdnaFloats4::from(sum);
#endif
  }
};

/// D += A B with A and B of 8-bit floats, 16x16x32, from words first_a and first_b of the operands on.
template <DType Type>
struct ByteMfma {
  using Operand = DeviceLane<Words<4>>;
  static HPA_DEVICE void fma([[maybe_unused]] DeviceLane<CdnaFloats4>& d, [[maybe_unused]] const Operand& a,
                             [[maybe_unused]] int first_a, [[maybe_unused]] const Operand& b, [[maybe_unused]] int first_b) {
#if defined(__gfx942__)
    const Words<2> a2{{a.value.word[first_a], a.value.word[first_a + 1]}}, b2{{b.value.word[first_b], b.value.word[first_b + 1]}};
    d.value = CdnaFloats4::from(__builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(
        __builtin_bit_cast(long, a2), __builtin_bit_cast(long, b2), d.value.vector(), 0, 0, 0));
#endif
  }
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa

#endif
