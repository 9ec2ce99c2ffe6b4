// What widen() and narrow() of a machine are asked, and what they must answer: Format<> of types.hpp, code by code.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "hpa/arch/products.hpp"
#include "hpa/types.hpp"

namespace hpa::test {

/// Every code in every byte of a word, beside other codes of every kind.
inline std::vector<std::uint32_t> all_codes() {
  std::vector<std::uint32_t> words;
  std::mt19937 random(1);
  for (int byte = 0; byte < 4; ++byte)
    for (std::uint32_t code = 0; code < 256; ++code)
      for (const std::uint32_t others : {0u, 0xffffffffu, 0x7f7f7f7fu, 0x80808080u, std::uint32_t(random())})
        words.push_back((others & ~(0xffu << (8 * byte))) | code << (8 * byte));
  return words;
}

/// The float of every code, the points half way between neighbours, what lies next to all of these, the ends of the float range, and
/// floats of all magnitudes, `spread` apart in bits. Both signs; a multiple of four.
template <DType To>
std::vector<float> floats_to_round(std::uint32_t spread) {
  std::vector<float> floats;
  const float infinity = std::numeric_limits<float>::infinity();
  const auto around = [&](float value) {
    for (const float near : {value, std::nextafter(value, infinity), std::nextafter(value, -infinity)}) {
      floats.push_back(near);
      floats.push_back(-near);
    }
  };
  for (std::uint32_t code = 0; code < 256; ++code) {
    const float value = Format<To>::decode(code), next = Format<To>::decode((code + 1) & 0xff);
    if (!std::isfinite(value)) continue;
    around(value);
    if (std::isfinite(next)) around(0.5f * value + 0.5f * next);
    around(1.0625f * value);  // half a step beyond the largest e4m3
    around(1.125f * value);   // and of the largest e5m2
  }
  for (const float value : {0.f, std::numeric_limits<float>::min(), std::numeric_limits<float>::denorm_min(), 0.5f, 127.5f, 128.5f,
                            std::numeric_limits<float>::max(), 16777216.f, 2147483648.f})
    around(value);
  for (const std::uint32_t bits : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu})
    floats.push_back(float_of(bits));
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += spread) floats.push_back(float_of(std::uint32_t(bits)));
  while (floats.size() % 4 != 0) floats.push_back(1.f);
  return floats;
}

/// The first element of `elements` that is not the value of its code; empty when there is none.
template <DType From, DType To>
std::string wrong_element(const std::vector<std::uint32_t>& codes, const std::vector<arch::Words<2>>& elements) {
  for (std::size_t word = 0; word < codes.size(); ++word)
    for (int i = 0; i < 4; ++i) {
      const float due = Format<From>::decode(codes[word] >> (8 * i) & 0xff);
      const std::uint32_t element = elements[word].word[i / 2] >> (16 * (i % 2)) & 0xffff;
      const float got = Format<To>::decode(element);
      if (got == due || (got != got && due != due)) continue;
      return "byte " + std::to_string(i) + " of " + std::to_string(codes[word]) + " became " + std::to_string(element) + " = " +
             std::to_string(got) + " and not " + std::to_string(due);
    }
  return "";
}

/// The first code of `codes` that is not its float rounded; empty when there is none. Any NaN code stands for NaN.
template <DType To>
std::string wrong_code(const std::vector<float>& floats, const std::vector<std::uint32_t>& codes) {
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const std::uint32_t due = Format<To>::encode(floats[i], true), got = codes[i / 4] >> (8 * (i % 4)) & 0xff;
    const float due_value = Format<To>::decode(due), got_value = Format<To>::decode(got);
    if (got == due || (due_value != due_value && got_value != got_value)) continue;
    return "float " + std::to_string(floats[i]) + " (" + std::to_string(bits_of(floats[i])) + ") became " + std::to_string(got) +
           " and not " + std::to_string(due);
  }
  return "";
}

/// Calls f(integral_constant) for each 8-bit type.
template <class F>
void each_byte_type(F&& f) {
  f(std::integral_constant<DType, DType::e4m3_fnuz>{});
  f(std::integral_constant<DType, DType::e4m3_ocp>{});
  f(std::integral_constant<DType, DType::e5m2_ocp>{});
  f(std::integral_constant<DType, DType::i8>{});
}

}  // namespace hpa::test
