// 8-bit codes to 16-bit elements and back in plain arithmetic: what every machine must give.
#pragma once

#include <cstdint>

#include "hpa/arch/products.hpp"
#include "hpa/types.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// The codes of an 8-bit type as elements of a 16-bit one.
template <DType From, DType To>
struct CodeTable {
  std::uint16_t element[256];

  static constexpr CodeTable make() {
    CodeTable table{};
    for (std::uint32_t code = 0; code < 256; ++code)
      table.element[code] = std::uint16_t(Format<To>::encode(Format<From>::decode(code)));
    return table;
  }
};

/// Four 8-bit codes, byte 0 first, as four 16-bit elements.
template <DType From, DType To>
Words<2> widen_by_table(std::uint32_t codes) {
  static constexpr CodeTable<From, To> table = CodeTable<From, To>::make();
  const auto pair = [&](std::uint32_t two) {
    return std::uint32_t(table.element[two & 0xff]) | std::uint32_t(table.element[two >> 8 & 0xff]) << 16;
  };
  return {{pair(codes), pair(codes >> 16)}};
}

/// Format<To>::encode(value, true), without branches.
template <DType To>
HPA_HOST_DEVICE std::uint32_t narrow_one(float value) {
  using F = Format<To>;
  if constexpr (To == DType::i8) {
    const float clamped = value < -128.f ? -128.f : value > 127.f ? 127.f : value == value ? value : 0.f;
    return bits_of(clamped + 12582912.f) & 0xffu;  // 1.5 * 2^23: the sum's last bit is worth one
  } else {
    constexpr float largest = F::decode(F::largest), smallest_normal = F::decode(1u << F::mantissa);
    constexpr int drop = 23 - F::mantissa;
    const float size = float_of(bits_of(value) & 0x7fffffffu), clamped = size < largest ? size : largest;
    const std::uint32_t rebased = bits_of(clamped) - (std::uint32_t(127 - F::bias) << 23);
    const std::uint32_t normal = (rebased + (1u << (drop - 1)) - 1 + (rebased >> drop & 1)) >> drop;
    constexpr float codes_per_unit = float_of(std::uint32_t(127 + F::bias - 1 + F::mantissa) << 23);
    const std::uint32_t subnormal = bits_of(clamped * codes_per_unit + 8388608.f) & 0xffu;  // 2^23, likewise
    std::uint32_t code = clamped < smallest_normal ? subnormal : normal;
    code = value == value ? code : F::nan & 0x7fu;
    const bool signless = To == DType::e4m3_fnuz && code == 0;  // zero and NaN
    return To == DType::e4m3_fnuz && value != value ? F::nan : signless ? 0u : code | (bits_of(value) >> 31) << 7;
  }
}

/// Four floats as four 8-bit codes, byte 0 first: rounded to nearest even, saturating.
template <DType To>
HPA_HOST_DEVICE std::uint32_t narrow_exactly(float a, float b, float c, float d) {
  return narrow_one<To>(a) | narrow_one<To>(b) << 8 | narrow_one<To>(c) << 16 | narrow_one<To>(d) << 24;
}

/// The place of an 8-bit float's bits in a 16-bit one, in both halves of a word: the sign at the top, then the magnitude, `shift`
/// bits further down than in the upper byte. Read as a 16-bit float this is the value divided by `factor`.
template <DType From, DType To>
struct BytePlace {
  static constexpr bool e5m2 = From == DType::e5m2_ocp;
  static constexpr int shift = (To == DType::f16 ? 5 : 8) - (e5m2 ? 5 : 4);
  static constexpr int factor_log2 = (To == DType::f16 ? 15 : 127) - (e5m2 ? 15 : From == DType::e4m3_ocp ? 7 : 8);
  static constexpr std::uint32_t both(std::uint32_t half) { return half | half << 16; }
  static constexpr std::uint32_t sign = both(0x8000);
  static constexpr std::uint32_t magnitude = both(0x7f00 >> shift);
  static constexpr std::uint32_t step = both(0x0100 >> shift);   // from one code to the next
  static constexpr std::uint32_t above = both(0x8000 >> shift);  // the first bit above the magnitude
  static constexpr std::uint32_t factor =
      To == DType::f16 ? both(std::uint32_t(factor_log2 + 15) << 10) : both(std::uint32_t(factor_log2 + 127) << 7);
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
