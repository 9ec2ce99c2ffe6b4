// From products to logits: scale, bias and mask. Everything is in base 2.
#pragma once

#include "hpa/kernel/tile.hpp"

namespace hpa::kernel {

inline constexpr float log2_e = 1.4426950408889634f;
inline constexpr float ln_2 = 0.6931471805599453f;

/// The tokens of a tile that its rows see: [begin, end), counted from the tile's first.
struct Visible {
  int begin, end;
  HPA_HOST_DEVICE bool whole(int tile_tokens) const { return begin <= 0 && end >= tile_tokens; }
  HPA_HOST_DEVICE bool has(int token) const { return token >= begin && token < end; }
};

/// The scores of one tile: [row slot][score product], four floats a lane.
template <class M, class C>
struct Scores {
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  static constexpr int products = Products::row_slots * Products::score_products;
  static constexpr int lane_rows = Products::row_slots * Products::slot_rows;  // rows that a lane holds scores of
  typename Traits::template Lane<typename M::Floats4> product[products];

  /// Calls f(score, row, token) for every score of a lane; row is one of the lane's, token is counted from the tile's first.
  template <class F>
  HPA_DEVICE void each_score(int lane, F&& f) {
    HPA_UNROLL
    for (int p = 0; p < products; ++p) {
      HPA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = p / Products::score_products * Products::slot_rows + i % Products::slot_rows;
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

  /// score += slope of the row * (key position - query position). The slopes are read again for every tile: registers are dear.
  HPA_DEVICE void add_alibi(const typename M::Wave& wave, const float* slopes, int first_key_minus_query) {
    wave.each_afresh([&](int lane) {
      float slope[lane_rows];
      HPA_UNROLL
      for (int row = 0; row < lane_rows; ++row) slope[row] = slopes[Products::score_row(lane, row)];
      const int first = Products::score_token(lane, 0, 0);
      const float distance = float(first_key_minus_query + first);
      each_score(lane, [&](auto& score, int row, int token) {
        score = score + slope[row] * (distance + float(token - first));
      });
    });
  }

  HPA_DEVICE void mask(const typename M::Wave& wave, const Visible& visible) {
    wave.each([&](int lane) {
      each_score(lane, [&](auto& score, int, int token) {
        if (!visible.has(token)) score = -__builtin_inff();
      });
    });
  }
};

/// Values that no row sees become zero: a probability of zero does not hide a NaN.
template <class M, class C>
HPA_DEVICE void mask_values(const typename M::Wave& wave, ValueTile<M, C>& values, const Visible& visible) {
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  wave.each([&](int lane) {
    HPA_UNROLL
    for (int word = 0; word < Products::value_words; ++word) {
      const int token = Products::value_at(lane, 2 * word).token;
      const std::uint32_t keep = (visible.has(token) ? 0xffffu : 0u) | (visible.has(token + 1) ? 0xffff0000u : 0u);
      HPA_UNROLL
      for (int dim = 0; dim < Traits::dims; ++dim) values.operand[dim][lane].word[word] &= keep;
    }
  });
}

}  // namespace hpa::kernel
