// 8-bit codes to 16-bit elements and back on CDNA: by the chip's own conversions where it has the format (gfx942: fnuz, gfx950: OCP),
// else by bits. Counts are instructions for four codes.
#pragma once

#include <type_traits>

#include "hpa/arch/portable_bytes.hpp"

namespace hpa::arch::cdna {

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

#if defined(__HIP_DEVICE_COMPILE__)

using Half2 = _Float16 __attribute__((ext_vector_type(2)));
using Short2 = short __attribute__((ext_vector_type(2)));
using UShort2 = unsigned short __attribute__((ext_vector_type(2)));
using Float2 = float __attribute__((ext_vector_type(2)));

/// The upper halves of two floats: bf16 where these are exact.
HPA_DEVICE std::uint32_t upper_halves(float low, float high) { return __builtin_amdgcn_perm(bits_of(high), bits_of(low), 0x07060302); }

/// Values that bf16 holds exactly, from f16.
HPA_DEVICE std::uint32_t bf16_of_f16(std::uint32_t halves) {
  const auto value = __builtin_bit_cast(Half2, halves);
  return upper_halves(float(value[0]), float(value[1]));
}

/// Two 8-bit floats that lie in the upper bytes of a word's halves, as f16.
template <DType From>
HPA_DEVICE std::uint32_t f16_of_upper_bytes(std::uint32_t bytes) {
  using Place = BytePlace<From, DType::f16>;
  if constexpr (From == DType::e5m2_ocp) return bytes;
  const auto shifted = __builtin_bit_cast(std::uint32_t, Short2(__builtin_bit_cast(Short2, bytes) >> short(Place::shift)));
  std::uint32_t placed = shifted & (Place::sign | Place::magnitude);
  if constexpr (From == DType::e4m3_ocp) {  // all ones are NaN
    placed |= (placed + Place::step) & Place::above;
  } else {  // the least number, -0, is NaN: one less wraps to a large one
    const UShort2 less = __builtin_bit_cast(UShort2, placed) - __builtin_bit_cast(UShort2, Place::step);
    const Short2 larger = __builtin_elementwise_max(__builtin_bit_cast(Short2, less), __builtin_bit_cast(Short2, placed));
    placed = __builtin_bit_cast(std::uint32_t, larger);
  }
  return __builtin_bit_cast(std::uint32_t, Half2(__builtin_bit_cast(Half2, placed) * __builtin_bit_cast(Half2, Place::factor)));
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

/// By bits, on every chip.
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

/// By the chip's conversion; needs converts<From>.
template <DType From, DType To>
HPA_DEVICE Words<2> widen_natively(std::uint32_t codes) {
#if defined(__gfx942__)
  const Float2 low = __builtin_amdgcn_cvt_pk_f32_fp8(int(codes), false), high = __builtin_amdgcn_cvt_pk_f32_fp8(int(codes), true);
  const auto pack = [](float a, float b) {  // exact
    if constexpr (To == DType::bf16) return upper_halves(a, b);
    else return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_pkrtz(a, b));
  };
  return {{pack(low[0], low[1]), pack(high[0], high[1])}};
#elif defined(__gfx950__)
  const auto pair = [&](auto upper) {
    constexpr bool up = decltype(upper)::value, half = To == DType::f16;
    if constexpr (From == DType::e4m3_ocp && half)
      return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(int(codes), 1.f, up));
    else if constexpr (From == DType::e4m3_ocp)
      return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(int(codes), 1.f, up));
    else if constexpr (half)
      return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_bf8(int(codes), 1.f, up));
    else
      return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_bf8(int(codes), 1.f, up));
  };
  return {{pair(std::false_type{}), pair(std::true_type{})}};
#else
  return widen_by_bits<From, To>(codes);
#endif
}

/// By the chip's conversion; needs converts<To>. What it makes of values beyond the largest depends on a mode: they are clamped.
template <DType To>
HPA_DEVICE std::uint32_t narrow_natively(float a, float b, float c, float d) {
#if defined(__gfx942__) || defined(__gfx950__)
  constexpr float largest = Format<To>::decode(Format<To>::largest);
  const auto clamped = [](float x) { return x == x ? __builtin_amdgcn_fmed3f(x, -largest, largest) : x; };
  int codes = 0;
  if constexpr (To == DType::e5m2_ocp) {
    codes = __builtin_amdgcn_cvt_pk_bf8_f32(clamped(a), clamped(b), codes, false);
    codes = __builtin_amdgcn_cvt_pk_bf8_f32(clamped(c), clamped(d), codes, true);
  } else {
    codes = __builtin_amdgcn_cvt_pk_fp8_f32(clamped(a), clamped(b), codes, false);
    codes = __builtin_amdgcn_cvt_pk_fp8_f32(clamped(c), clamped(d), codes, true);
  }
  return std::uint32_t(codes);
#else
  return narrow_exactly<To>(a, b, c, d);
#endif
}

#else  // the host's half of a HIP compilation sees the names only

template <DType From, DType To>
__device__ Words<2> widen_by_bits(std::uint32_t codes);
template <DType From, DType To>
__device__ Words<2> widen_natively(std::uint32_t codes);
template <DType To>
__device__ std::uint32_t narrow_natively(float a, float b, float c, float d);

#endif

}  // namespace hpa::arch::cdna
