// RunningSoftmax: for each row of a wave a reference near its maximum, the output, and the sum of the probabilities.
#pragma once

#include "hpa/kernel/row_state.hpp"
#include "hpa/kernel/transform.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// The softmax of a wave's tiles so far. Exponents are taken against `reference`, which follows the maximum lazily: it moves only
/// when a score exceeds it by 2^8, so that the common tile needs no exchange between lanes. The sum comes from a product with
/// ones: it adds the probabilities as rounded for the output product, so their rounding cancels in the quotient.
template <class M, class C>
struct RunningSoftmax {
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  using Wave = typename M::Wave;
  template <class T>
  using Lane = typename M::template Lane<T>;
  using Floats4 = typename M::Floats4;
  using Probabilities = Lane<Words<Products::prob_words>>;
  static constexpr int sets = Products::row_sets, set_rows = Products::set_rows, lane_rows = sets * set_rows;
  static constexpr float slack = 8.f;  // powers of two that a probability may exceed 1 by

  Lane<float> reference[lane_rows];          // RowState::unset before the row has seen a token
  Lane<Floats4> output[sets][Traits::dims];  // O^T, not divided
  Lane<Floats4> total[sets];                 // row sums, each as often as the lane has floats of the row

  HPA_DEVICE void clear(const Wave& wave) {
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int row = 0; row < lane_rows; ++row) reference[row][lane] = RowState::unset;
      HPA_UNROLL
      for (int set = 0; set < sets; ++set) {
        total[set][lane] = Floats4::zero();
        HPA_UNROLL
        for (int dim = 0; dim < Traits::dims; ++dim) output[set][dim][lane] = Floats4::zero();
      }
    });
  }

  /// Turns the scores of a tile into probabilities, packed as the output product's operand.
  HPA_DEVICE void probabilities(Wave& wave, Scores<M, C>& scores, Probabilities (&packed)[sets]) {
    Lane<float> maximum[lane_rows];
    Lane<bool> grown;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int row = 0; row < lane_rows; ++row) maximum[row][lane] = -__builtin_inff();
      scores.each_score(lane, [&](auto& score, int row, int) { maximum[row][lane] = M::max(maximum[row][lane], score); });
      grown[lane] = false;
      HPA_UNROLL
      for (int row = 0; row < lane_rows; ++row) grown[lane] = grown[lane] || maximum[row][lane] - slack > reference[row][lane];
    });
    if (wave.any(grown)) raise_reference(wave, maximum);
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int set = 0; set < sets; ++set) pack_set(scores, packed[set][lane], lane, set);
    });
    HPA_UNROLL
    for (int set = 0; set < sets; ++set) Products::to_operand(wave, packed[set]);
  }

  /// Adds the probabilities up, as rounded for the output product: a product with values of one.
  HPA_DEVICE void add_totals(const Wave& wave, const Probabilities (&packed)[sets]) {
    constexpr std::uint32_t one = Format<Products::prob_type>::encode(1.f);
    const std::uint32_t pair = wave.made_anew(one | one << 16);
    Lane<Words<4>> ones;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int i = 0; i < 4; ++i) ones[lane].word[i] = pair;
    });
    HPA_UNROLL
    for (int set = 0; set < sets; ++set) Products::output(wave, total[set], ones, packed[set]);
  }

 private:
  HPA_DEVICE void pack_set(Scores<M, C>& scores, Words<Products::prob_words>& packed, int lane, int set) {
    float bias[set_rows];
    HPA_UNROLL
    for (int row = 0; row < set_rows; ++row) bias[row] = -reference[set * set_rows + row][lane];
    HPA_UNROLL
    for (int p = 0; p < Products::score_products; ++p) {
      const Floats4 exponents = scores.product[set * Products::score_products + p][lane] +
                                Floats4{bias[0], bias[1 % set_rows], bias[2 % set_rows], bias[3 % set_rows]};
      HPA_UNROLL
      for (int w = 0; w < 2; ++w) {
        const float low = M::exp2(exponents[2 * w]), high = M::exp2(exponents[2 * w + 1]);
        packed.word[2 * p + w] = M::template pack_probabilities<Products::prob_type>(low, high);
      }
    }
  }

  /// Moves every row's reference to its maximum so far and rescales what was summed against the old one.
  HPA_DEVICE void raise_reference(Wave& wave, Lane<float> (&maximum)[lane_rows]) {
    Lane<float> factor[lane_rows];
    HPA_UNROLL
    for (int row = 0; row < lane_rows; ++row) {
      HPA_UNROLL
      for (int bit = 0; bit < Products::token_lane_bits; ++bit) {
        const auto other = wave.shuffle(maximum[row], [&](int lane) { return lane ^ Products::token_lane_bit(bit); });
        wave.each([&](int lane) { maximum[row][lane] = M::max(maximum[row][lane], other[lane]); });
      }
      wave.each([&](int lane) {
        RowState state{reference[row][lane], 0.f};
        factor[row][lane] = state.raise<M>(maximum[row][lane]);
        reference[row][lane] = state.maximum;
      });
    }
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int set = 0; set < sets; ++set) {
        HPA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float by = factor[set * set_rows + i % set_rows][lane];
          total[set][lane][i] = total[set][lane][i] * by;
          HPA_UNROLL
          for (int dim = 0; dim < Traits::dims; ++dim) output[set][dim][lane][i] = output[set][dim][lane][i] * by;
        }
      }
    });
  }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
