// 8-bit codes to 16-bit elements and back on NVIDIA: by the chip's own conversions from sm_89 on (OCP formats), else by bits.
#pragma once

#include "hpa/arch/platform.hpp"
#include "hpa/arch/portable_bytes.hpp"

#if defined(HPA_CUDA_KERNELS)

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch::nvidia {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
inline constexpr bool converts_ocp = true;
#else
inline constexpr bool converts_ocp = false;
#endif

/// Whether the chip converts between the 8-bit type and 16-bit floats.
template <DType Type>
inline constexpr bool converts = (Type == DType::e4m3_ocp || Type == DType::e5m2_ocp) && converts_ocp;

/// Multiplies both halves of a word by a power of two.
template <DType Type>
HPA_DEVICE std::uint32_t times(std::uint32_t elements, std::uint32_t factor) {
  std::uint32_t product;
  if constexpr (Type == DType::f16)
    asm("mul.f16x2 %0, %1, %2;" : "=r"(product) : "r"(elements), "r"(factor));
  else
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(elements), "r"(factor), "r"(0x80008000u));
  return product;
}

/// Two f16 elements as bf16. Their values must be exact in bf16.
HPA_DEVICE std::uint32_t bf16_of_f16(std::uint32_t halves) {
  float low, high;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(low), "=f"(high) : "r"(halves));
  return __byte_perm(bits_of(low), bits_of(high), 0x7632);
}

/// Converts two 8-bit floats, which lie in the upper bytes of a word's halves, to 16-bit elements.
template <DType From, DType To>
HPA_DEVICE std::uint32_t widen_upper_bytes(std::uint32_t bytes) {
  using Bits = BytePlace<From, To>;
  if constexpr (Bits::shift == 0) return bytes;
  std::uint32_t placed = (bytes & Bits::sign) | (bytes >> Bits::shift & Bits::magnitude);
  if constexpr (From == DType::e4m3_fnuz) {  // NaN is a sign without magnitude
    const std::uint32_t magnitudes = (placed | Bits::above) - Bits::step;
    const std::uint32_t nan = ~magnitudes & placed >> Bits::shift & Bits::above;
    placed += (nan >> 5) * ((32u << Bits::shift) - 1);
  } else {  // the largest exponent (e5m2) or the last code (e4m3) takes all exponent bits above it
    const std::uint32_t special = (placed + (Bits::e5m2 ? 4 : 1) * Bits::step) & Bits::above;
    placed += special * ((1u << Bits::shift) - 1);
  }
  return times<To>(placed, Bits::factor);
}

template <DType To>
HPA_DEVICE Words<2> widen_integers(std::uint32_t codes) {
  if constexpr (To == DType::f16) {  // 0x6400 | n is 1024 + n
    const std::uint32_t raised = codes ^ 0x80808080u;
    const auto pair = [&](std::uint32_t selector) {
      std::uint32_t sum;
      asm("sub.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(__byte_perm(raised, 0x64646464u, selector)), "r"(0x64806480u));
      return sum;
    };
    return {{pair(0x4140), pair(0x4342)}};
  } else {  // 0x4300 | n is 128 + n for 7 bits, 0xc300 | the sign is -128 or -256
    const auto pair = [&](std::uint32_t selector) {
      const std::uint32_t magic = __byte_perm(codes, 0x43434343u, selector);
      std::uint32_t sum;
      asm("fma.rn.bf16x2 %0, %1, %2, %3;"
          : "=r"(sum)
          : "r"(magic & 0xff7fff7fu), "r"(0x3f803f80u), "r"((magic & 0x00800080u) | 0xc300c300u));
      return sum;
    };
    return {{pair(0x4140), pair(0x4342)}};
  }
}

/// Widens four codes by bit arithmetic, on every chip.
template <DType From, DType To>
HPA_DEVICE Words<2> widen_by_bits(std::uint32_t codes) {
  if constexpr (From == DType::i8)
    return widen_integers<To>(codes);
  else
    return {
        {widen_upper_bytes<From, To>(__byte_perm(codes, 0, 0x1404)), widen_upper_bytes<From, To>(__byte_perm(codes, 0, 0x3424))}};
}

template <DType From, DType To>
HPA_DEVICE Words<2> widen_natively(std::uint32_t codes);
template <DType To>
HPA_DEVICE std::uint32_t narrow_natively(float a, float b, float c, float d);

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890

/// Widens four codes by the chip's conversion, which exists where converts<From>. e5m2 is the upper byte of f16.
template <DType From, DType To>
HPA_DEVICE Words<2> widen_natively(std::uint32_t codes) {
  Words<2> halves;
  if constexpr (From == DType::e5m2_ocp)
    halves = widen_by_bits<From, DType::f16>(codes);
  else
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
        : "=r"(halves.word[0]), "=r"(halves.word[1])
        : "r"(codes));
  if constexpr (To == DType::bf16) halves = {{bf16_of_f16(halves.word[0]), bf16_of_f16(halves.word[1])}};
  return halves;
}

/// Narrows four floats by the chip's conversion, which exists where converts<To>.
template <DType To>
HPA_DEVICE std::uint32_t narrow_natively(float a, float b, float c, float d) {
  std::uint32_t codes;
  if constexpr (To == DType::e5m2_ocp)
    asm("{.reg .b16 l, h; cvt.rn.satfinite.e5m2x2.f32 l, %2, %1; cvt.rn.satfinite.e5m2x2.f32 h, %4, %3; mov.b32 %0, {l, h};}"
        : "=r"(codes)
        : "f"(a), "f"(b), "f"(c), "f"(d));
  else
    asm("{.reg .b16 l, h; cvt.rn.satfinite.e4m3x2.f32 l, %2, %1; cvt.rn.satfinite.e4m3x2.f32 h, %4, %3; mov.b32 %0, {l, h};}"
        : "=r"(codes)
        : "f"(a), "f"(b), "f"(c), "f"(d));
  return codes;
}

#endif

}  // namespace arch::nvidia
}  // namespace HPA_PLATFORM
}  // namespace hpa

#endif
