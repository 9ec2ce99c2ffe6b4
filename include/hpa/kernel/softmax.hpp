// The running softmax of one wave: for each row a reference near its maximum, the output and the sum of the probabilities.
#pragma once

#include "hpa/kernel/transform.hpp"

namespace hpa::kernel {

/// Exponents are taken against `reference`, which follows the maximum lazily: it moves only when a score exceeds it by 2^8, so the
/// common tile needs no exchange between lanes. The sum comes from a product with ones: it adds the probabilities as rounded for
/// the output product, so their rounding cancels in the quotient.
template <class M, class C>
struct RunningSoftmax {
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  using Wave = typename M::Wave;
  template <class T>
  using Lane = typename M::template Lane<T>;
  using Floats4 = typename M::Floats4;
  using Probabilities = Lane<Words<Products::prob_words>>;
  static constexpr int slots = Products::row_slots;
  static constexpr float slack = 8.f;  // powers of two that a probability may exceed 1 by
  static constexpr float unset = -__FLT_MAX__;  // finite, so that a masked score less it is -inf and not NaN

  Lane<float> reference[slots];             // of the slot's row; `unset` before the row has seen a token
  Lane<Floats4> output[slots][Traits::dims];  // O^T, not divided
  Lane<Floats4> total[slots];               // row sums, in the output's lanes; the four are equal where they belong to one row

  HPA_DEVICE void clear(const Wave& wave) {
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int slot = 0; slot < slots; ++slot) {
        reference[slot][lane] = unset;
        total[slot][lane] = Floats4::zero();
        HPA_UNROLL
        for (int dim = 0; dim < Traits::dims; ++dim) output[slot][dim][lane] = Floats4::zero();
      }
    });
  }

  /// Turns the scores of a tile into probabilities, packed as the output product's operand.
  HPA_DEVICE void probabilities(Wave& wave, Scores<M, C>& scores, Probabilities (&packed)[slots]) {
    Lane<float> maximum[slots];
    Lane<bool> grown;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int slot = 0; slot < slots; ++slot) maximum[slot][lane] = -__builtin_inff();
      scores.each_score(lane, [&](auto& score, int slot, int) { maximum[slot][lane] = M::max(maximum[slot][lane], score); });
      grown[lane] = false;
      HPA_UNROLL
      for (int slot = 0; slot < slots; ++slot)
        grown[lane] = grown[lane] || maximum[slot][lane] - slack > reference[slot][lane];
    });
    if (wave.any(grown)) raise_reference(wave, maximum);
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int slot = 0; slot < slots; ++slot) pack_slot(scores, packed[slot][lane], lane, slot);
    });
  }

  /// Adds the probabilities up, as rounded for the output product: a product with values of one.
  HPA_DEVICE void add_totals(const Wave& wave, const Probabilities (&packed)[slots]) {
    constexpr std::uint32_t one = Format<C::query>::encode(1.f);
    Lane<Words<Products::value_words>> ones;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int i = 0; i < Products::value_words; ++i) ones[lane].word[i] = one | one << 16;
    });
    HPA_UNROLL
    for (int slot = 0; slot < slots; ++slot) Products::output(total[slot], ones, packed[slot]);
  }

 private:
  HPA_DEVICE void pack_slot(Scores<M, C>& scores, Words<Products::prob_words>& packed, int lane, int slot) {
    const float bias = -reference[slot][lane];
    constexpr int words_a_product = Products::scores_a_slot / 2;
    HPA_UNROLL
    for (int p = 0; p < Products::score_products; ++p) {
      const Floats4 exponents = scores.product[p][lane] + Floats4{bias, bias, bias, bias};
      HPA_UNROLL
      for (int w = 0; w < words_a_product; ++w) {
        const int i = slot * Products::scores_a_slot + 2 * w;
        const float low = M::exp2(exponents[i]), high = M::exp2(exponents[i + 1]);
        packed.word[p * words_a_product + w] = M::template pack_probabilities<C::query>(low, high);
      }
    }
    Products::order_probabilities(lane, packed);
  }

  /// Moves every row's reference to its maximum so far and rescales what was summed against the old one.
  HPA_DEVICE void raise_reference(Wave& wave, Lane<float> (&maximum)[slots]) {
    HPA_UNROLL
    for (int slot = 0; slot < slots; ++slot) {
      HPA_UNROLL
      for (int bit = 0; bit < 2; ++bit) {
        const auto other = wave.shuffle(maximum[slot], [&](int lane) { return lane ^ Products::token_lane_bit(bit); });
        wave.each([&](int lane) { maximum[slot][lane] = M::max(maximum[slot][lane], other[lane]); });
      }
      Lane<float> factor;
      wave.each([&](int lane) {
        const float raised = M::max(reference[slot][lane], maximum[slot][lane]);
        factor[lane] = M::exp2(reference[slot][lane] - raised);
        reference[slot][lane] = raised;
      });
      rescale(wave, slot, factor);
    }
  }

  HPA_DEVICE void rescale(const Wave& wave, int slot, const Lane<float>& factor) {
    Lane<Floats4> by;
    HPA_UNROLL
    for (int i = 0; i < 4; ++i) {
      if constexpr (Products::output_in_score_lane) {
        wave.each([&](int lane) { by[lane][i] = factor[lane]; });
      } else {
        const auto moved = wave.shuffle(factor, [&](int lane) { return Products::score_lane_of(Products::output_row(lane, slot, i)); });
        wave.each([&](int lane) { by[lane][i] = moved[lane]; });
      }
    }
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int i = 0; i < 4; ++i) {
        total[slot][lane][i] = total[slot][lane][i] * by[lane][i];
        HPA_UNROLL
        for (int dim = 0; dim < Traits::dims; ++dim) output[slot][dim][lane][i] = output[slot][dim][lane][i] * by[lane][i];
      }
    });
  }
};

}  // namespace hpa::kernel
