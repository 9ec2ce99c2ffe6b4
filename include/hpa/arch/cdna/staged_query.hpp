// StagedQuery of CDNA: how the query rows of a pass come to LDS, as the operands [step][lane] of CdnaProducts. The workgroup's
// waves load them in fragments of 16 bytes a lane; there are as many fragments as operands. A wave then stages its fragments,
// which may change them.
#pragma once

#include <cmath>
#include <type_traits>

#include "hpa/arch/products.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// The staged query for 16-bit keys: a fragment is an operand.
template <int HeadSize>
struct QueryByOperands {
  static constexpr int width = 64, rows = 16;
  static constexpr int fragment_elements = 8;  // elements of a lane
  static constexpr int fragments = HeadSize / 32;
  using Operand = Words<4>;
  static constexpr int lds_bytes = fragments * width * int(sizeof(Operand));

  /// Where a lane's elements of a fragment start: row and element.
  static HPA_HOST_DEVICE constexpr Place source_of(int lane, int fragment) {
    return {lane % 16, 32 * fragment + fragment_elements * (lane / 16)};
  }

  template <class Wave, class Elements>
  static HPA_DEVICE void stage(const Wave& wave, const Elements& elements, int fragment, Operand* lds) {
    wave.each([&](int lane) { lds[fragment * width + lane] = elements[lane]; });
  }

  /// The factors by which staging scaled the rows: none.
  struct RowScales {
    template <class Wave>
    HPA_DEVICE void read(const Wave&, const Operand*) {}
    /// The factor of scores of the staged rows, where `scale` is that of the rows themselves.
    template <class Wave>
    HPA_DEVICE float score_scale(const Wave&, float scale) const {
      return scale;
    }
  };
};

/// The staged query for 8-bit keys. An operand of keys serves two steps, so a lane's elements of one step are 16 bytes apart in
/// memory: fragments are loaded along rows, and staging puts each lane's elements where they belong.
template <int HeadSize>
struct QueryByRows : QueryByOperands<HeadSize> {
  using Base = QueryByOperands<HeadSize>;
  using typename Base::Operand;
  static constexpr int row_lanes = HeadSize / Base::fragment_elements;  // next to each other

  static HPA_HOST_DEVICE constexpr Place source_of(int lane, int fragment) {
    const unsigned index = unsigned(fragment * Base::width + lane);
    return {int(index / row_lanes), int(index % row_lanes) * Base::fragment_elements};
  }

  /// The place in LDS of the elements that start at `at`, as CdnaProducts::query_at() numbers them.
  static HPA_HOST_DEVICE constexpr int place_of(const Place& at) {
    const unsigned element = unsigned(at.element), step = element / 64 * 2 + element / 8 % 2;
    return int(step * Base::width + element % 64 / 16 * 16) + at.token;
  }

  template <class Wave, class Elements>
  static HPA_DEVICE void stage(const Wave& wave, const Elements& elements, int fragment, Operand* lds) {
    wave.each([&](int lane) { lds[place_of(source_of(lane, fragment))] = elements[lane]; });
  }
};

/// The staged query for 8-bit keys that the machine multiplies as they are (CdnaByteProducts). A bf16 element q becomes hi + lo of
/// the keys' type, lo near q - hi; hi is in words 0 and 1 of an operand, lo in 2 and 3. Each row is first scaled by a power of two
/// that brings its largest element to 64..128, so that elements down to 2^-10 of the largest are exact, and smaller ones to 2^-18
/// of it. Inf in a row makes all its scores NaN.
template <class Machine, DType Kv, int HeadSize>
struct QueryInTwoTerms : QueryByRows<HeadSize> {
  using Base = QueryByRows<HeadSize>;
  using typename Base::Operand;
  static constexpr int lds_bytes = Base::lds_bytes + Base::rows * int(sizeof(float));  // the rows' scales, inverted, come last
  template <class T>
  using Lane = typename Machine::template Lane<T>;

  template <class Wave, class Elements>
  static HPA_DEVICE void stage(const Wave& wave, const Elements& elements, int fragment, Operand* lds) {
    Lane<Operand> rows;
    Lane<std::uint32_t> largest;  // as bits: those of positive floats are in order
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int i = 0; i < 4; ++i)
        rows[lane].word[i] = wave.made_anew(elements[lane].word[i]);  // otherwise the compiler waits where it was asked for
      float magnitude = 0.f;
      HPA_UNROLL
      for (int i = 0; i < Base::fragment_elements; ++i) magnitude = Machine::max(magnitude, std::fabs(element(rows[lane], i)));
      largest[lane] = bits_of(magnitude);
    });
    wave.template spread_max<Base::row_lanes>(largest);
    wave.each([&](int lane) {
      const Place at = Base::source_of(lane, fragment);
      const std::uint32_t exponent = exponent_of_scale(largest[lane]);
      lds[Base::place_of(at)] = split(rows[lane], float_of(exponent << 23));
      // The inverse scale of a row with Inf or NaN is NaN.
      if (at.element == 0) inverse_scales(lds)[at.token] = float_of((254 - exponent) << 23) + 0.f * float_of(largest[lane]);
    });
  }

  /// The inverse scale of the row whose scores a lane holds.
  struct RowScales {
    Lane<float> inverse;
    template <class Wave>
    HPA_DEVICE void read(const Wave& wave, Operand* lds) {
      wave.each([&](int lane) { inverse[lane] = inverse_scales(lds)[lane % Base::rows]; });
    }
    template <class Wave>
    HPA_DEVICE Lane<float> score_scale(const Wave& wave, float scale) const {
      Lane<float> scales;
      wave.each([&](int lane) { scales[lane] = inverse[lane] * scale; });
      return scales;
    }
  };

 private:
  static HPA_HOST_DEVICE float* inverse_scales(Operand* lds) {
    return reinterpret_cast<float*>(lds + Base::fragments * Base::width);
  }
  static HPA_DEVICE float element(const Operand& words, int i) {
    return Machine::template unpack<DType::bf16>(words.word[i / 2], i % 2);
  }

  /// The biased exponent of the power of two that brings `largest` to 64..128. The power and its inverse are normal numbers.
  static HPA_HOST_DEVICE std::uint32_t exponent_of_scale(std::uint32_t largest) {
    const std::uint32_t wanted = 127 + 6 + 127 - (largest >> 23);
    return wanted < 253 ? wanted : 253;
  }

  static HPA_DEVICE Operand split(const Operand& elements, float scale) {
    Operand terms;
    HPA_UNROLL
    for (int half = 0; half < 2; ++half) {
      typename Machine::Floats4 scaled;
      HPA_UNROLL
      for (int i = 0; i < 4; ++i) scaled[i] = element(elements, 4 * half + i);
      scaled = scaled * scale;
      terms.word[half] = Machine::template narrow_bounded<Kv>(scaled);
      terms.word[2 + half] = Machine::template narrow_bounded<Kv>(scaled + Machine::template floats<Kv>(terms.word[half]) * -1.f);
    }
    return terms;
  }
};

/// The staged query of a machine for types of query and keys.
template <class Machine, DType Query, DType Kv, int HeadSize>
using StagedQueryOf = std::conditional_t<
    size_of(Kv) == 2, QueryByOperands<HeadSize>,
    std::conditional_t<Machine::multiplies(Query, Kv), QueryInTwoTerms<Machine, Kv, HeadSize>, QueryByRows<HeadSize>>>;

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
