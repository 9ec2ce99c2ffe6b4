// Scores, ValueMask: from products to logits by scale, bias and mask. Everything is in base 2.
#pragma once

#include "hpa/kernel/masks.hpp"
#include "hpa/kernel/tile.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// The scores of one tile: [row set][score product], four floats a lane.
template <class M, class C>
struct Scores {
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  static constexpr int products = Products::row_sets * Products::score_products;
  static constexpr int lane_rows = Products::row_sets * Products::set_rows;  // rows that a lane holds scores of
  /// Whether a window may hide tokens of any tile from all rows alike: then a lane's tokens are not kept from tile to tile.
  static constexpr bool masks_in_loop = C::can(Features::window) && !C::can(Features::query_rows);
  typename Traits::template Lane<typename M::Floats4> product[products];

  /// Calls f(score, row, token) for every score of a lane; row is one of the lane's, token is counted from the tile's first.
  template <class F>
  HPA_DEVICE void each_score(int lane, F&& f) {
    HPA_UNROLL
    for (int p = 0; p < products; ++p) {
      HPA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = p / Products::score_products * Products::set_rows + i % Products::set_rows;
        f(product[p][lane][i], row, Products::score_token(lane, p % Products::score_products, i));
      }
    }
  }

  HPA_DEVICE void scale(const typename M::Wave& wave, float factor) {
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int p = 0; p < products; ++p) product[p][lane] = product[p][lane] * factor;
    });
  }
  /// Multiplies the scores of each lane by the lane's factor.
  HPA_DEVICE void scale(const typename M::Wave& wave, const typename Traits::template Lane<float>& factor) {
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int p = 0; p < products; ++p) product[p][lane] = product[p][lane] * factor[lane];
    });
  }

  /// What features do to scores whose first token is `first_key` of the sequence: cap, bias, and a mask where rows differ in what they
  /// see. What rows need to know is read again for every tile: registers are dear. `facts`: nullptr without has_row_facts.
  HPA_DEVICE void transform([[maybe_unused]] const typename M::Wave& wave, [[maybe_unused]] const TileFeatures& f,
                            [[maybe_unused]] const RowFacts* facts, [[maybe_unused]] int first_key) {
    if constexpr (C::can(Features::soft_cap))
      if (f.soft_cap != 0.f) cap(wave, f.soft_cap);
    if constexpr (C::can(Features::alibi))
      if (f.alibi)
        each_row_score(wave, facts, [&](auto& score, const RowFacts& row, int token) {
          score = score + row.slope * float(first_key + token - row.position);
        });
    if constexpr (C::can(Features::query_rows))
      if (!f.all_seen(first_key, Traits::tokens))
        each_row_score(wave, facts,
                       [&](auto& score, const RowFacts& row, int token) { score = M::min(score, row.limit(first_key + token)); });
  }

  HPA_DEVICE void mask(const typename M::Wave& wave, const Visible& visible) {
    const auto mask_lane = [&](int lane) {
      each_score(lane, [&](auto& score, int, int token) {
        if (!visible.has(token)) score = -__builtin_inff();
      });
    };
    if constexpr (masks_in_loop)
      wave.each_afresh(mask_lane);
    else
      wave.each(mask_lane);
  }

 private:
  /// Replaces each score by cap * tanh(score / cap). Near 0, where 1 - 2 / (exp(2 x) + 1) cancels, the first terms of the series
  /// of tanh take over. Chosen by bits: comparisons would take registers.
  HPA_DEVICE void cap(const typename M::Wave& wave, float soft_cap) {
    const float limit = float_of(wave.made_anew(bits_of(soft_cap))), inverse = M::reciprocal(limit);
    wave.each([&](int lane) {
      each_score(lane, [&](auto& score, int, int) {
        const float x = score * inverse;
        const float far = limit - 2.f * limit * M::reciprocal(M::exp2(x * (2.f * log2_e)) + 1.f);
        const float near = score * (1.f - x * x * (1.f / 3.f));
        const std::uint32_t is_near = std::uint32_t(std::int32_t(bits_of(x * x) - bits_of(0.0016f)) >> 31);
        score = float_of((bits_of(near) & is_near) | (bits_of(far) & ~is_near));
      });
    });
  }

  /// Calls f(score, facts of its row, token) for every score of a lane.
  template <class F>
  HPA_DEVICE void each_row_score(const typename M::Wave& wave, const RowFacts* facts, F&& f) {
    wave.each_afresh([&](int lane) {
      RowFacts row_facts[lane_rows];
      HPA_UNROLL
      for (int row = 0; row < lane_rows; ++row) row_facts[row] = facts[Products::score_row(lane, row)];
      each_score(lane, [&](auto& score, int row, int token) { f(score, row_facts[row], token); });
    });
  }
};

/// Makes values that no row sees zero, as a probability of zero does not hide a NaN. Holds a lane's bits to keep, which are the
/// same for every operand of a tile.
template <class M, class C>
class ValueMask {
 public:
  using Products = typename TileTraits<M, C>::Products;

  template <class Seen>
  HPA_DEVICE ValueMask(int lane, const Seen& seen) {
    constexpr int bits = layout::code_bits(C::kv);
    constexpr std::uint32_t code = (1u << bits) - 1;
    HPA_UNROLL
    for (int word = 0; word < Products::value_words; ++word) {
      const int token = Products::value_at(lane, 0, codes_per_word * word).token;
      keep_[word] = 0;
      HPA_UNROLL
      for (int i = 0; i < codes_per_word; ++i) keep_[word] |= seen.has(token + i) ? code << (bits * i) : 0u;
    }
  }

  template <class Operand>
  HPA_DEVICE void apply(Operand& values) const {
    HPA_UNROLL
    for (int word = 0; word < Products::value_words; ++word) values.word[word] &= keep_[word];
  }

 private:
  static constexpr int codes_per_word = 32 / layout::code_bits(C::kv);
  std::uint32_t keep_[Products::value_words];
};

/// Makes the values of a tile in registers zero where no row sees them.
template <class M, class C, class Seen>
HPA_DEVICE void mask_values(const typename M::Wave& wave, ValueTile<M, C>& values, const Seen& seen) {
  wave.each_afresh([&](int lane) {
    const ValueMask<M, C> mask(lane, seen);
    HPA_UNROLL
    for (int dim = 0; dim < TileTraits<M, C>::dims; ++dim) mask.apply(values.operand[dim][lane]);
  });
}

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
