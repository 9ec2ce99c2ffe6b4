// 8-bit codes to 16-bit elements and back on CDNA: by the chip's own conversions where it has the format (gfx942: fnuz, gfx950: OCP),
// else by bits. Counts are instructions for four codes.
#pragma once

#include "hpa/arch/portable_bytes.hpp"

#if defined(HPA_HIP_KERNELS)

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch::cdna {

#if defined(__gfx942__)
inline constexpr bool converts_fnuz = true, converts_ocp = false;
#elif defined(__gfx950__)
inline constexpr bool converts_fnuz = false, converts_ocp = true;
#else
inline constexpr bool converts_fnuz = false, converts_ocp = false;
#endif

/// Whether the chip converts between the 8-bit type and floats.
template <DType Type>
inline constexpr bool converts = Type == DType::e4m3_fnuz ? converts_fnuz
                                                          : (Type == DType::e4m3_ocp || Type == DType::e5m2_ocp) && converts_ocp;

template <DType From, DType To>
__device__ Words<2> widen_by_bits(std::uint32_t codes);
template <DType From, DType To>
__device__ Words<2> widen_natively(std::uint32_t codes);
template <DType To>
__device__ std::uint32_t narrow_natively(float a, float b, float c, float d);
template <DType To>
__device__ std::uint32_t narrow_bounded(float a, float b, float c, float d);
using Float4 = float __attribute__((ext_vector_type(4)));
template <DType From>
__device__ Float4 floats4_of(std::uint32_t codes);

#if defined(__HIP_DEVICE_COMPILE__)  // the host's half of a compilation needs the names only

using Half2 = _Float16 __attribute__((ext_vector_type(2)));
using Short2 = short __attribute__((ext_vector_type(2)));
using UShort2 = unsigned short __attribute__((ext_vector_type(2)));
using Float2 = float __attribute__((ext_vector_type(2)));

/// The upper halves of two floats: bf16 where these are exact.
HPA_DEVICE std::uint32_t upper_halves(float low, float high) {
  return __builtin_amdgcn_perm(bits_of(high), bits_of(low), 0x07060302);
}

/// Two f16 elements as bf16. Their values must be exact in bf16.
HPA_DEVICE std::uint32_t bf16_of_f16(std::uint32_t halves) {
  const auto value = __builtin_bit_cast(Half2, halves);
  return upper_halves(float(value[0]), float(value[1]));
}

/// Converts two 8-bit floats, which lie in the upper bytes of a word's halves, to f16.
template <DType From>
HPA_DEVICE std::uint32_t f16_of_upper_bytes(std::uint32_t bytes) {
  using Bits = BytePlace<From, DType::f16>;
  if constexpr (From == DType::e5m2_ocp) return bytes;
  const auto shifted = __builtin_bit_cast(std::uint32_t, Short2(__builtin_bit_cast(Short2, bytes) >> short(Bits::shift)));
  std::uint32_t placed = shifted & (Bits::sign | Bits::magnitude);
  if constexpr (From == DType::e4m3_ocp) {  // all ones are NaN
    placed |= (placed + Bits::step) & Bits::above;
  } else {  // the least number, -0, is NaN: one less wraps to a large one
    const UShort2 less = __builtin_bit_cast(UShort2, placed) - __builtin_bit_cast(UShort2, Bits::step);
    const Short2 larger = __builtin_elementwise_max(__builtin_bit_cast(Short2, less), __builtin_bit_cast(Short2, placed));
    placed = __builtin_bit_cast(std::uint32_t, larger);
  }
  return __builtin_bit_cast(std::uint32_t, Half2(__builtin_bit_cast(Half2, placed) * __builtin_bit_cast(Half2, Bits::factor)));
}

template <DType To>
HPA_DEVICE Words<2> widen_integers(std::uint32_t codes) {
  if constexpr (To == DType::f16) {  // 0x6400 | n is 1024 + n
    const std::uint32_t raised = codes ^ 0x80808080u;
    const auto minus = __builtin_bit_cast(Half2, 0xe480e480u);  // -(1024 + 128)
    const auto pair = [&](std::uint32_t selector) {
      const auto magic = __builtin_bit_cast(Half2, __builtin_amdgcn_perm(0x64646464u, raised, selector));
      return __builtin_bit_cast(std::uint32_t, Half2(magic + minus));
    };
    return {{pair(0x04010400), pair(0x04030402)}};
  } else {
    const auto value = [&](int byte) { return float(std::int8_t(codes >> (8 * byte))); };
    return {{upper_halves(value(0), value(1)), upper_halves(value(2), value(3))}};
  }
}

/// Widens four codes by bit arithmetic, on every chip.
template <DType From, DType To>
HPA_DEVICE Words<2> widen_by_bits(std::uint32_t codes) {
  if constexpr (From == DType::i8) {
    return widen_integers<To>(codes);
  } else {
    Words<2> halves{{f16_of_upper_bytes<From>(__builtin_amdgcn_perm(0, codes, 0x010c000c)),
                     f16_of_upper_bytes<From>(__builtin_amdgcn_perm(0, codes, 0x030c020c))}};
    if constexpr (To == DType::bf16) halves = {{bf16_of_f16(halves.word[0]), bf16_of_f16(halves.word[1])}};
    return halves;
  }
}

#if defined(__gfx942__) || defined(__gfx950__)

/// Converts two codes of a word, the lower or the upper ones, to floats.
template <DType From, bool Upper>
HPA_DEVICE Float2 floats_of(std::uint32_t codes) {
  if constexpr (From == DType::e5m2_ocp)
    return __builtin_amdgcn_cvt_pk_f32_bf8(int(codes), Upper);
  else
    return __builtin_amdgcn_cvt_pk_f32_fp8(int(codes), Upper);
}

/// Converts two codes to elements, by way of exact floats.
template <DType From, DType To, bool Upper>
HPA_DEVICE std::uint32_t pair_of(std::uint32_t codes) {
  const Float2 value = floats_of<From, Upper>(codes);
  const float low = value[0], high = value[1];
  if constexpr (To == DType::bf16)
    return upper_halves(low, high);
  else
    return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_pkrtz(low, high));
}

#if defined(__gfx950__)
template <>
HPA_DEVICE std::uint32_t pair_of<DType::e4m3_ocp, DType::f16, false>(std::uint32_t codes) {
  return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(codes, 1.f, false));
}
template <>
HPA_DEVICE std::uint32_t pair_of<DType::e4m3_ocp, DType::f16, true>(std::uint32_t codes) {
  return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(codes, 1.f, true));
}
template <>
HPA_DEVICE std::uint32_t pair_of<DType::e4m3_ocp, DType::bf16, false>(std::uint32_t codes) {
  return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(codes, 1.f, false));
}
template <>
HPA_DEVICE std::uint32_t pair_of<DType::e4m3_ocp, DType::bf16, true>(std::uint32_t codes) {
  return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(codes, 1.f, true));
}
#endif

/// Widens four codes by the chip's conversion, which exists where converts<From>. e5m2 is the upper byte of f16 on any chip.
template <DType From, DType To>
HPA_DEVICE Words<2> widen_natively(std::uint32_t codes) {
  if constexpr (From == DType::e5m2_ocp && To == DType::f16)
    return widen_by_bits<From, To>(codes);
  else
    return {{pair_of<From, To, false>(codes), pair_of<From, To, true>(codes)}};
}

/// Four codes as floats, byte 0 first.
template <DType From>
HPA_DEVICE Float4 floats4_of(std::uint32_t codes) {
  const Float2 low = floats_of<From, false>(codes), high = floats_of<From, true>(codes);
  return Float4{low[0], low[1], high[0], high[1]};
}

/// Narrows four floats by the chip's conversion, which exists where converts<To>. `clamp` brings values into the type's range.
template <DType To, class Clamp>
HPA_DEVICE std::uint32_t narrow_natively(float a, float b, float c, float d, Clamp&& clamp) {
  if constexpr (To == DType::e5m2_ocp) {
    const int half = __builtin_amdgcn_cvt_pk_bf8_f32(clamp(a), clamp(b), 0, false);
    return std::uint32_t(__builtin_amdgcn_cvt_pk_bf8_f32(clamp(c), clamp(d), half, true));
  } else {
    const int half = __builtin_amdgcn_cvt_pk_fp8_f32(clamp(a), clamp(b), 0, false);
    return std::uint32_t(__builtin_amdgcn_cvt_pk_fp8_f32(clamp(c), clamp(d), half, true));
  }
}

/// Narrows four floats. They are clamped, because a mode says what the conversion makes of values beyond the largest.
template <DType To>
HPA_DEVICE std::uint32_t narrow_natively(float a, float b, float c, float d) {
  constexpr float largest = Format<To>::decode(Format<To>::largest);
  return narrow_natively<To>(a, b, c, d, [](float x) { return x == x ? __builtin_amdgcn_fmed3f(x, -largest, largest) : x; });
}

/// Narrows four floats that are within the type's range, or NaN.
template <DType To>
HPA_DEVICE std::uint32_t narrow_bounded(float a, float b, float c, float d) {
  return narrow_natively<To>(a, b, c, d, [](float x) { return x; });
}

#endif
#endif

}  // namespace arch::cdna
}  // namespace HPA_PLATFORM
}  // namespace hpa

#endif
