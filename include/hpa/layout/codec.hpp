// How elements of K and V are coded, and how codes become operands of matrix products.
#pragma once

#include "hpa/arch/words.hpp"
#include "hpa/types.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace layout {

/// Bits of an element's code.
HPA_HOST_DEVICE constexpr int code_bits(DType type) { return 8 * size_of(type); }

/// The factors that turn codes into elements.
enum class Scales : std::uint8_t {
  none,  // nothing
  one,   // one float for all of K and one for all of V
  token  // those, and maybe a float for each token and KV head
};

/// The scales that a config's kernels know.
template <class C>
inline constexpr Scales scales_of = code_bits(C::kv) == 16 ? Scales::none
                                    : C::token_scales      ? Scales::token
                                                           : Scales::one;

/// Codes of `Stored` in 32-bit words, the first in the lowest bits. Codes of 16 bits are the query's type, and operands of its products
/// as they are; those of 8 bits are widened, four at a time, as the products need them.
template <class Machine, DType Query, DType Stored>
struct Codec {
  static constexpr DType type = Stored;
  static constexpr int bits = code_bits(Stored), codes_per_word = 32 / bits;
  static constexpr bool is_operand = bits == 16;
  template <int N>
  using Lanes = typename Machine::template Lane<arch::Words<N>>;

  /// Widens words [first, first + N) of an operand of codes.
  template <int N, DType To = Query, class Wave, class Operand>
  static HPA_DEVICE auto widen(const Wave& wave, const Operand& operand, int first) {
    static_assert(codes_per_word == 4, "four codes become two words");
    Lanes<2 * N> wide;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int i = 0; i < N; ++i) {
        const arch::Words<2> four = Machine::template widen<Stored, To>(operand[lane].word[first + i]);
        wide[lane].word[2 * i] = four.word[0], wide[lane].word[2 * i + 1] = four.word[1];
      }
    });
    return wide;
  }

  /// Widens all N words of an operand of i8 values, times `scale(lane, element)`.
  template <int N, DType To, class Wave, class Operand, class Scale>
  static HPA_DEVICE auto widen_scaled(const Wave& wave, const Operand& operand, Scale&& scale) {
    Lanes<2 * N> wide;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int i = 0; i < 2 * N; ++i) {
        const std::uint32_t pair = operand[lane].word[i / 2] >> (16 * (i % 2));
        wide[lane].word[i] = Machine::template pack_plain<To>(float(std::int8_t(pair)) * scale(lane, 2 * i),
                                                              float(std::int8_t(pair >> 8)) * scale(lane, 2 * i + 1));
      }
    });
    return wide;
  }
};

}  // namespace layout
}  // namespace HPA_PLATFORM
}  // namespace hpa
