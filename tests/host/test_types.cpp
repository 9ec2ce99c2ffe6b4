// Element types: every code, and rounding against a search over all codes.
#include "hpa/types.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "catch.hpp"

using hpa::DType;
using hpa::Format;

namespace {

/// A format as its specification states it, in doubles.
struct Spec {
  DType type;
  int exponent_bits, mantissa_bits, bias;
  bool has_infinity;
  std::uint32_t largest;  // code of the largest finite value

  std::uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
  double value(std::uint32_t magnitude) const {
    const int exponent = int(magnitude >> mantissa_bits), mantissa = int(magnitude & ((1u << mantissa_bits) - 1));
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }
};

constexpr Spec specs[] = {
    {DType::f16, 5, 10, 15, true, 0x7bff},      {DType::bf16, 8, 7, 127, true, 0x7f7f},
    {DType::e4m3_fnuz, 4, 3, 8, false, 0x7f},   {DType::e4m3_ocp, 4, 3, 7, false, 0x7e},
    {DType::e5m2_ocp, 5, 2, 15, true, 0x7b},
};

float decode(DType type, std::uint32_t code) {
  const std::uint8_t bytes[2] = {std::uint8_t(code), std::uint8_t(code >> 8)};
  return hpa::load_element(type, bytes, 0);
}

std::uint32_t encode(DType type, float value, bool saturate) {
  switch (type) {
    case DType::f16: return Format<DType::f16>::encode(value, saturate);
    case DType::bf16: return Format<DType::bf16>::encode(value, saturate);
    case DType::e4m3_fnuz: return Format<DType::e4m3_fnuz>::encode(value, saturate);
    case DType::e4m3_ocp: return Format<DType::e4m3_ocp>::encode(value, saturate);
    case DType::e5m2_ocp: return Format<DType::e5m2_ocp>::encode(value, saturate);
    case DType::i8: return Format<DType::i8>::encode(value, saturate);
  }
  return 0;
}

bool is_nan_code(const Spec& spec, std::uint32_t code) {
  const std::uint32_t magnitude = code & (spec.sign() - 1);
  if (spec.type == DType::e4m3_fnuz) return code == 0x80;
  return magnitude > spec.largest + (spec.has_infinity ? 1 : 0);
}

/// Nearest code by search, ties to the even code. The successor of the largest value stands for overflow.
class NearestBySearch {
 public:
  explicit NearestBySearch(const Spec& spec) : spec_(spec) {
    for (std::uint32_t code = 0; code <= spec.largest + 1; ++code) values_.push_back(spec.value(code));
  }

  std::uint32_t operator()(float value, bool saturate) const {
    const double magnitude = std::fabs(double(value));
    const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
    std::uint32_t code = spec_.largest + 1;
    if (above != values_.end()) {
      code = std::uint32_t(above - values_.begin());
      if (code > 0) {
        const double up = values_[code] - magnitude, down = magnitude - values_[code - 1];
        if (down < up || (down == up && code % 2 == 1)) --code;
      }
    }
    const bool negative = std::signbit(value), fnuz = spec_.type == DType::e4m3_fnuz;
    if (code > spec_.largest) {
      if (saturate) code = spec_.largest;
      else if (fnuz) return 0x80;
      else code = spec_.type == DType::e4m3_ocp ? 0x7f : spec_.largest + 1;
    }
    return negative && !(fnuz && code == 0) ? code | spec_.sign() : code;
  }

 private:
  Spec spec_;
  std::vector<double> values_;
};

/// Every value and midpoint of the format with its float neighbours, the ends of the float range, and random bit patterns.
std::vector<float> hard_floats(const Spec& spec) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> floats = {infinity, std::numeric_limits<float>::max(), std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::denorm_min(), 0.f};
  for (std::uint32_t code = 0; code <= spec.largest; ++code) {
    for (const double exact : {spec.value(code), (spec.value(code) + spec.value(code + 1)) / 2}) {
      const auto value = float(exact);
      floats.insert(floats.end(), {value, std::nextafter(value, infinity), std::nextafter(value, 0.f)});
    }
  }
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i) {
    const float value = hpa::float_of(std::uint32_t(random()));
    if (value == value) floats.push_back(value);
  }
  // Where the small formats live.
  for (int i = 0; i < 200000; ++i) floats.push_back(std::ldexp(float(random()) / 4294967296.f, int(random() % 40) - 20));
  return floats;
}

}  // namespace

TEST_CASE("every code decodes to what its specification says and encodes back to itself", "[types]") {
  for (const Spec& spec : specs) {
    INFO(hpa::name(spec.type));
    int wrong_value = 0, wrong_code = 0, wrong_special = 0;
    for (std::uint32_t code = 0; code < 2 * spec.sign(); ++code) {
      const float value = decode(spec.type, code);
      const std::uint32_t magnitude = code & (spec.sign() - 1);
      const bool negative = (code & spec.sign()) != 0;
      if (is_nan_code(spec, code)) {
        wrong_special += value == value;
        for (const bool saturate : {false, true}) wrong_special += !is_nan_code(spec, encode(spec.type, value, saturate));
        continue;
      }
      if (magnitude > spec.largest) {
        wrong_special += !std::isinf(value) || std::signbit(value) != negative;
      } else {
        wrong_value += double(value) != (negative ? -spec.value(magnitude) : spec.value(magnitude));
        wrong_value += std::signbit(value) != negative;
      }
      wrong_code += encode(spec.type, value, false) != code;
    }
    CHECK(wrong_value == 0);
    CHECK(wrong_special == 0);
    CHECK(wrong_code == 0);
  }
}

TEST_CASE("encode rounds to the nearest code, ties to even", "[types]") {
  for (const Spec& spec : specs) {
    INFO(hpa::name(spec.type));
    const NearestBySearch nearest(spec);
    int wrong = 0;
    float example = 0;
    for (const float magnitude : hard_floats(spec)) {
      for (const float value : {magnitude, -magnitude}) {
        for (const bool saturate : {false, true}) {
          if (encode(spec.type, value, saturate) == nearest(value, saturate)) continue;
          ++wrong;
          example = value;
        }
      }
    }
    INFO("for example " << example);
    CHECK(wrong == 0);
  }
}

TEST_CASE("known constants", "[types]") {
  static_assert(Format<DType::f16>::encode(1.f) == 0x3c00, "conversions work at compile time");
  static_assert(Format<DType::f16>::decode(0x7bff) == 65504.f, "");
  static_assert(Format<DType::bf16>::encode(1.f) == 0x3f80, "");
  CHECK(Format<DType::f16>::decode(0x0001) == std::ldexp(1.f, -24));
  CHECK(Format<DType::bf16>::decode(0x0001) == std::ldexp(1.f, -133));
  CHECK(Format<DType::e4m3_fnuz>::decode(0x7f) == 240.f);
  CHECK(Format<DType::e4m3_ocp>::decode(0x7e) == 448.f);
  CHECK(Format<DType::e5m2_ocp>::decode(0x7b) == 57344.f);
  CHECK(Format<DType::e4m3_fnuz>::encode(1.f) == 0x40);
  CHECK(Format<DType::e4m3_ocp>::encode(1.f) == 0x38);
  CHECK(Format<DType::e5m2_ocp>::encode(1.f) == 0x3c);
  // The same byte means another value, or no number, in the other e4m3.
  CHECK(Format<DType::e4m3_ocp>::decode(0x38) == 2 * Format<DType::e4m3_fnuz>::decode(0x38));
  CHECK(std::isnan(Format<DType::e4m3_fnuz>::decode(0x80)));
  CHECK(std::signbit(Format<DType::e4m3_ocp>::decode(0x80)));
  CHECK(std::isnan(Format<DType::e4m3_ocp>::decode(0x7f)));
  CHECK(Format<DType::e4m3_fnuz>::encode(-0.f) == 0);
}

TEST_CASE("overflow, saturation and NaN", "[types]") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(Format<DType::f16>::encode(65519.f) == 0x7bff);
  CHECK(Format<DType::f16>::encode(65520.f) == 0x7c00);
  CHECK(Format<DType::f16>::encode(-infinity) == 0xfc00);
  CHECK(Format<DType::f16>::encode(infinity, true) == 0x7bff);
  CHECK(Format<DType::bf16>::encode(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(Format<DType::bf16>::encode(-std::numeric_limits<float>::max(), true) == 0xff7f);
  CHECK(Format<DType::e4m3_ocp>::encode(464.f) == 0x7e);
  CHECK(Format<DType::e4m3_ocp>::encode(465.f) == 0x7f);
  CHECK(Format<DType::e4m3_ocp>::encode(-1e30f, true) == 0xfe);
  CHECK(Format<DType::e4m3_fnuz>::encode(248.f) == 0x80);
  CHECK(Format<DType::e4m3_fnuz>::encode(248.f, true) == 0x7f);
  for (const Spec& spec : specs) {
    INFO(hpa::name(spec.type));
    for (const std::uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu}) {
      CHECK(is_nan_code(spec, encode(spec.type, hpa::float_of(bits), false)));
      CHECK(is_nan_code(spec, encode(spec.type, hpa::float_of(bits), true)));
    }
  }
  CHECK(Format<DType::i8>::encode(nan) == 0);
  CHECK(Format<DType::i8>::encode(infinity) == 0x7f);
  CHECK(Format<DType::i8>::encode(-infinity) == 0x80);
}

TEST_CASE("i8 rounds to the nearest integer, ties to even", "[types]") {
  for (int code = 0; code < 256; ++code) {
    const float value = decode(DType::i8, std::uint32_t(code));
    CHECK(value == float(code < 128 ? code : code - 256));
    CHECK(encode(DType::i8, value, true) == std::uint32_t(code));
  }
  int wrong = 0;
  for (int eighth = -1200; eighth <= 1200; ++eighth) {
    const float value = float(eighth) / 8.f;
    for (const float near : {value, std::nextafter(value, 1e9f), std::nextafter(value, -1e9f)}) {
      const double expected = std::min(127.0, std::max(-128.0, std::nearbyint(double(near))));
      wrong += decode(DType::i8, encode(DType::i8, near, true)) != float(expected);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("elements are stored where their index says and nowhere else", "[types]") {
  CHECK(hpa::size_of(DType::f16) == 2);
  CHECK(hpa::size_of(DType::bf16) == 2);
  for (const DType type : {DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8}) CHECK(hpa::size_of(type) == 1);
  for (const DType type : {DType::f16, DType::bf16, DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8}) {
    INFO(hpa::name(type));
    CHECK(hpa::per_16_bytes(type) * hpa::size_of(type) == 16);
    const int size = hpa::size_of(type);
    std::uint8_t bytes[12];
    std::memset(bytes, 0xee, sizeof bytes);
    hpa::store_element(type, bytes + 4, 1, 3.f);
    CHECK(hpa::load_element(type, bytes + 4, 1) == 3.f);
    CHECK(hpa::load_element(type, bytes + 4 + 2 * size, -1) == 3.f);
    for (int i = 0; i < 12; ++i) {
      if (i < 4 + size || i >= 4 + 2 * size) CHECK(bytes[i] == 0xee);
    }
    hpa::store_element(type, bytes, 0, std::numeric_limits<float>::max());
    const float largest = hpa::load_element(type, bytes, 0);
    CHECK(std::isinf(largest) == (size == 2));  // 8-bit types saturate
  }
  const std::uint8_t little_endian[2] = {0x00, 0x3c};
  CHECK(hpa::load_element(DType::f16, little_endian, 0) == 1.f);
}
