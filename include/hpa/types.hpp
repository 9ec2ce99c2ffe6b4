// Element types: their storage and exact conversions, on every compiler and at compile time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hpa/arch/platform.hpp"

namespace hpa {

enum class DType : std::uint8_t { f16, bf16, e4m3_fnuz, e4m3_ocp, e5m2_ocp, i8 };

constexpr const char* name(DType type) {
  switch (type) {
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::e4m3_fnuz: return "e4m3_fnuz";
    case DType::e4m3_ocp: return "e4m3_ocp";
    case DType::e5m2_ocp: return "e5m2_ocp";
    case DType::i8: return "i8";
  }
  return "unknown";
}

/// Bytes of an element.
HPA_HOST_DEVICE constexpr int size_of(DType type) { return type == DType::f16 || type == DType::bf16 ? 2 : 1; }

/// Elements in 16 bytes: the x of the vllm key layout, and what one load brings.
HPA_HOST_DEVICE constexpr int per_16_bytes(DType type) { return 16 / size_of(type); }

HPA_HOST_DEVICE constexpr std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
HPA_HOST_DEVICE constexpr float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

/// How a small float spells what is not a number. ieee: all exponent bits set are Inf and NaN. fn: no Inf, NaN is all ones.
/// fnuz: no Inf, no negative zero, NaN is the code of negative zero.
enum class Specials : std::uint8_t { ieee, fn, fnuz };

/// A float of 1 sign bit, `Exponent` exponent bits and `Mantissa` mantissa bits; the value of code e.m is 1.m * 2^(e - Bias).
template <int Exponent, int Mantissa, int Bias, Specials Special>
struct SmallFloat {
  static constexpr int mantissa = Mantissa, bias = Bias;
  static constexpr std::uint32_t sign = 1u << (Exponent + Mantissa);
  static constexpr std::uint32_t all_ones = sign - 1;
  static constexpr std::uint32_t infinity = ((1u << Exponent) - 1) << Mantissa;  // ieee only
  static constexpr std::uint32_t nan = Special == Specials::fnuz ? sign
                                       : Special == Specials::fn ? all_ones
                                                                 : infinity | 1u << (Mantissa - 1);
  static constexpr std::uint32_t largest = Special == Specials::ieee ? infinity - 1
                                           : Special == Specials::fn ? all_ones - 1
                                                                     : all_ones;

  /// Exact: every code has a float.
  static HPA_HOST_DEVICE constexpr float decode(std::uint32_t code) {
    const std::uint32_t negative = (code & sign) != 0 ? 0x80000000u : 0u, magnitude = code & all_ones;
    if (Special == Specials::fnuz ? code == nan : Special == Specials::fn ? magnitude == nan : magnitude > infinity)
      return float_of(negative | 0x7fc00000u);
    if (Special == Specials::ieee && magnitude == infinity) return float_of(negative | 0x7f800000u);
    // The code read as a float's upper bits is the value times 2^(Bias - 127): both factors below are powers of two.
    const float tiny = float_of(magnitude << (23 - Mantissa));
    if (Exponent == 8) return float_of(negative | bits_of(tiny));
    const float value = (magnitude >> Mantissa) != 0 ? float_of(bits_of(tiny) + (std::uint32_t(127 - Bias) << 23))
                                                     : float(magnitude) * float_of(std::uint32_t(128 - Bias - Mantissa) << 23);
    return float_of(negative | bits_of(value));
  }

  /// Round to nearest, ties to even. Overflow gives Inf, or NaN where the format has no Inf; with `saturate` the largest value.
  static HPA_HOST_DEVICE constexpr std::uint32_t encode(float value, bool saturate = false) {
    const std::uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu, negative = (bits >> 31) != 0 ? sign : 0u;
    if (magnitude > 0x7f800000u) return Special == Specials::fnuz ? nan : negative | nan;
    const std::uint32_t over = Special == Specials::ieee ? infinity : nan;
    const std::uint32_t limit = saturate ? largest : over;
    const int exponent = int(magnitude >> 23) - 127 + Bias;  // the code's exponent, if the value is normal there
    std::uint32_t code = 0;
    if (magnitude == 0x7f800000u) {
      code = limit;
    } else if (exponent > 0 || Exponent == 8) {
      constexpr int drop = 23 - Mantissa;
      const std::uint32_t rebased = magnitude - (std::uint32_t(127 - Bias) << 23);
      code = (rebased + (1u << (drop - 1)) - 1 + (rebased >> drop & 1)) >> drop;
    } else {  // subnormal: shift the whole significand
      const int drop = 23 - Mantissa + 1 - exponent;
      const std::uint32_t significand = (magnitude & 0x7fffffu) | (magnitude >> 23 != 0 ? 0x800000u : 0u);
      if (drop < 26) code = (significand + (1u << (drop - 1)) - 1 + (significand >> drop & 1)) >> drop;
    }
    if (code > largest) code = limit;
    if (Special == Specials::fnuz && (code == 0 || code == nan)) return code;  // neither has a sign
    return negative | code;
  }
};

/// The format behind each DType; i8 is a plain integer whose scale is the caller's.
template <DType Type>
struct Format;
template <>
struct Format<DType::f16> : SmallFloat<5, 10, 15, Specials::ieee> {};
template <>
struct Format<DType::bf16> : SmallFloat<8, 7, 127, Specials::ieee> {};
template <>
struct Format<DType::e4m3_fnuz> : SmallFloat<4, 3, 8, Specials::fnuz> {};
template <>
struct Format<DType::e4m3_ocp> : SmallFloat<4, 3, 7, Specials::fn> {};
template <>
struct Format<DType::e5m2_ocp> : SmallFloat<5, 2, 15, Specials::ieee> {};
template <>
struct Format<DType::i8> {
  static HPA_HOST_DEVICE constexpr float decode(std::uint32_t code) { return float(std::int8_t(std::uint8_t(code))); }
  /// Round to nearest, ties to even, saturating at -128 and 127; NaN gives 0.
  static HPA_HOST_DEVICE constexpr std::uint32_t encode(float value, bool = true) {
    if (!(value > -128.f)) return value == value ? 0x80u : 0u;
    if (value >= 127.f) return 127u;
    const float shifted = value + 12582912.f;  // 1.5 * 2^23: the sum's last bit is worth one
    return (bits_of(shifted) - 0x4b400000u) & 0xffu;
  }
};

/// The element `index` of an array of `type`, as a float. Not for kernels: the type is looked at for every element.
inline float load_element(DType type, const void* data, std::int64_t index) {
  const auto* const bytes = static_cast<const std::uint8_t*>(data) + index * size_of(type);
  const std::uint32_t code = size_of(type) == 2 ? std::uint32_t(bytes[0]) | std::uint32_t(bytes[1]) << 8 : std::uint32_t(bytes[0]);
  switch (type) {
    case DType::f16: return Format<DType::f16>::decode(code);
    case DType::bf16: return Format<DType::bf16>::decode(code);
    case DType::e4m3_fnuz: return Format<DType::e4m3_fnuz>::decode(code);
    case DType::e4m3_ocp: return Format<DType::e4m3_ocp>::decode(code);
    case DType::e5m2_ocp: return Format<DType::e5m2_ocp>::decode(code);
    case DType::i8: return Format<DType::i8>::decode(code);
  }
  return 0.f;
}

/// Writes `value` as element `index` of an array of `type`: rounded to nearest even, 8-bit types saturating.
inline void store_element(DType type, void* data, std::int64_t index, float value) {
  std::uint32_t code = 0;
  switch (type) {
    case DType::f16: code = Format<DType::f16>::encode(value); break;
    case DType::bf16: code = Format<DType::bf16>::encode(value); break;
    case DType::e4m3_fnuz: code = Format<DType::e4m3_fnuz>::encode(value, true); break;
    case DType::e4m3_ocp: code = Format<DType::e4m3_ocp>::encode(value, true); break;
    case DType::e5m2_ocp: code = Format<DType::e5m2_ocp>::encode(value, true); break;
    case DType::i8: code = Format<DType::i8>::encode(value); break;
  }
  auto* const bytes = static_cast<std::uint8_t*>(data) + index * size_of(type);
  bytes[0] = std::uint8_t(code);
  if (size_of(type) == 2) bytes[1] = std::uint8_t(code >> 8);
}

}  // namespace hpa
