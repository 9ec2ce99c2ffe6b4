// The host's per-lane values, and matrix instructions on whole waves of them.
#pragma once

#include <cstdint>

#include "hpa/arch/products.hpp"
#include "hpa/types.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// One T a lane.
template <class T, int Width>
struct HostLane {
  T value[Width];
  T& operator[](int lane) { return value[lane]; }
  const T& operator[](int lane) const { return value[lane]; }
};

struct HostFloats4 {
  float value[4];
  float& operator[](int i) { return value[i]; }
  const float& operator[](int i) const { return value[i]; }
  static HostFloats4 zero() { return {{0.f, 0.f, 0.f, 0.f}}; }
  HostFloats4 operator*(float by) const { return {value[0] * by, value[1] * by, value[2] * by, value[3] * by}; }
  HostFloats4 operator+(const HostFloats4& o) const { return {value[0] + o[0], value[1] + o[1], value[2] + o[2], value[3] + o[3]}; }
};

/// A matrix instruction on whole waves, operands placed as `Map` says; sums in fp32, k ascending.
template <class Map, DType Type>
struct Emulated {
  static constexpr DType type = Type;
  template <int N>
  using Operand = HostLane<Words<N>, Map::width>;
  using Result = HostLane<HostFloats4, Map::width>;

  static constexpr int elements_per_word = 4 / size_of(Type);

  static float element_of(const std::uint32_t* words, int i) {
    if constexpr (size_of(Type) == 1) return Format<Type>::decode(words[i / 4] >> (8 * (i % 4)) & 0xffu);
    const std::uint32_t code = words[i / 2] >> (16 * (i % 2)) & 0xffffu;
    if constexpr (Type == DType::bf16) return float_of(code << 16);
    const std::uint32_t magnitude = (code & 0x7fffu) << 13, negative = (code & 0x8000u) << 16;
    const float scaled = float_of(magnitude) * 0x1p112f;  // exact: rebasing the exponent, subnormals included
    const std::uint32_t bits = (code & 0x7c00u) == 0x7c00u ? magnitude | 0x7f800000u : bits_of(scaled);
    return float_of(negative | bits);
  }

  /// `first_a`, `first_b`: the word of the operand where the instruction's registers start.
  template <int AN, int BN>
  static void issue(Result& d, const Operand<AN>& a, int first_a, const Operand<BN>& b, int first_b) {
    float am[Map::m][Map::k], bm[Map::k][Map::n], dm[Map::m][Map::n];
    for (int lane = 0; lane < Map::width; ++lane) {
      for (int i = 0; i < elements_per_word * Map::a_words; ++i) {
        const Coord at = Map::a_coord(lane, i);
        am[at.row][at.col] = element_of(a[lane].word + first_a, i);
      }
      for (int i = 0; i < elements_per_word * Map::b_words; ++i) {
        const Coord at = Map::b_coord(lane, i);
        bm[at.row][at.col] = element_of(b[lane].word + first_b, i);
      }
      for (int i = 0; i < 4; ++i) dm[Map::d_coord(lane, i).row][Map::d_coord(lane, i).col] = d[lane][i];
    }
    for (int row = 0; row < Map::m; ++row)
      for (int k = 0; k < Map::k; ++k)
        for (int col = 0; col < Map::n; ++col) dm[row][col] += am[row][k] * bm[k][col];
    for (int lane = 0; lane < Map::width; ++lane)
      for (int i = 0; i < 4; ++i) d[lane][i] = dm[Map::d_coord(lane, i).row][Map::d_coord(lane, i).col];
  }
};

/// CDNA's instruction, two at a time on 16-byte operands.
template <DType Type>
struct EmulatedMfma : Emulated<Mfma16x16x16, Type> {
  using Base = Emulated<Mfma16x16x16, Type>;
  static void fma2(typename Base::Result& d, const typename Base::template Operand<4>& a,
                   const typename Base::template Operand<4>& b) {
    Base::issue(d, a, 0, b, 0);
    Base::issue(d, a, 2, b, 2);
  }
};

/// CDNA's instruction for 8-bit floats, on the words of the operands from `first_a` and `first_b` on.
template <DType Type>
struct EmulatedByteMfma : Emulated<Mfma16x16x32Bytes, Type> {
  using Base = Emulated<Mfma16x16x32Bytes, Type>;
  static void fma(typename Base::Result& d, const typename Base::template Operand<4>& a, int first_a,
                  const typename Base::template Operand<4>& b, int first_b) {
    Base::issue(d, a, first_a, b, first_b);
  }
};

/// NVIDIA's instruction.
template <DType Type>
struct EmulatedMma : Emulated<MmaM16N8K16, Type> {
  using Base = Emulated<MmaM16N8K16, Type>;
  static void fma(typename Base::Result& d, const typename Base::template Operand<4>& a,
                  const typename Base::template Operand<2>& b) {
    Base::issue(d, a, 0, b, 0);
  }
  /// A comes as row r's two words, then row r + 8's; the instruction's registers alternate between the rows.
  static void fma_rows(typename Base::Result& d, const typename Base::template Operand<4>& a,
                       const typename Base::template Operand<2>& b) {
    typename Base::template Operand<4> registers;
    for (int lane = 0; lane < 32; ++lane) {
      const std::uint32_t* w = a[lane].word;
      registers[lane] = {{w[0], w[2], w[1], w[3]}};
    }
    Base::issue(d, registers, 0, b, 0);
  }
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
