// One wave's stream of tiles: load, multiply, mask, update, multiply. No barrier, no LDS but the query's.
#pragma once

#include "hpa/kernel/decode_params.hpp"
#include "hpa/kernel/softmax.hpp"

namespace hpa::kernel {

/// What a wave needs to know of the item whose tiles it streams.
template <class C>
struct TileStream : std::conditional_t<C::general, TileFeatures, NoFeatures> {
  KvView keys, values;            // of the KV head
  const std::int32_t* table_row;  // of the item's sequence
  int begin, end;                 // tokens of the item
  float scale_log2;               // logit scale * log2(e)
};

/// The state of one wave while it streams tiles first, first + stride, .. of an item.
template <class M, class C>
class WaveStream {
 public:
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  using Blocks = typename Traits::Blocks;
  using Wave = typename M::Wave;
  template <class T>
  using Lane = typename M::template Lane<T>;
  using Operand = typename QueryTile<M, C>::Operand;
  static constexpr int waves = M::decode_waves;

  RunningSoftmax<M, C> softmax;

  HPA_DEVICE WaveStream(const TileStream<C>& stream) : stream_(stream), tiles_(int(unsigned(stream.end - stream.begin + Traits::tokens - 1) / Traits::tokens)) {}

  HPA_DEVICE int tiles() const { return tiles_; }
  HPA_DEVICE bool met_negative_id() const { return ids_seen_ < 0; }

  /// Asks for the first tile's keys and values and for the second tile's block ids.
  HPA_DEVICE void open(Wave& wave, int first) {
    next_ = checked(blocks_of(wave, first));
    wave.keep_order();
    keys_.request(wave, stream_.keys, next_);
    wave.keep_order();
    HPA_UNROLL
    for (int dim = 0; dim < Traits::dims; ++dim) values_.request(wave, dim, stream_.values, next_);
    wave.keep_order();
    next_ = blocks_of(wave, first + waves);
  }

  /// The wave's tiles but the last: each is followed by another, asked for while this one is used.
  HPA_DEVICE int full_tiles(Wave& wave, const Operand* query, int first) {
    int tile = first;
    for (; tile + waves < tiles_; tile += waves) {
      Scores<M, C> scores = logits(wave, query, tile);
      if constexpr (C::general) mask_before_window(wave, tile);
      next_ = checked(next_);
      wave.keep_order();
      keys_.request(wave, stream_.keys, next_);
      wave.keep_order();
      const Blocks after_next = blocks_of(wave, tile + 2 * waves);
      add_values<true>(wave, scores);
      next_ = after_next;
    }
    return tile;
  }

  /// The wave's last tile, the only one that may hold tokens past the end.
  HPA_DEVICE void last_tile(Wave& wave, const Operand* query, int tile) {
    wave.refresh();
    Scores<M, C> scores = logits(wave, query, tile);
    Visible visible{0, stream_.end - first_token(tile)};
    if constexpr (C::general) visible.begin = stream_.any_begin - first_token(tile);
    if (!visible.whole(Traits::tokens)) {
      scores.mask(wave, visible);
      mask_values<M, C>(wave, values_, visible);
    }
    add_values<false>(wave, scores);
  }

 private:
  HPA_DEVICE int first_token(int tile) const { return stream_.begin + tile * Traits::tokens; }

  HPA_DEVICE void mask_before_window(Wave& wave, int tile) {
    const Visible visible = Visible{stream_.any_begin, stream_.end}.from(first_token(tile));
    if (visible.begin > 0) mask_values<M, C>(wave, values_, visible);
  }

  /// Past the last tile the ids of the last one are read again: nothing uses them.
  HPA_DEVICE Blocks blocks_of(const Wave& wave, int tile) const {
    const int inside = tile < tiles_ ? tile : tiles_ - 1;
    return read_blocks<Traits::tokens, C::block_size>(wave, stream_.table_row, stream_.begin + inside * Traits::tokens, stream_.end);
  }

  HPA_DEVICE Blocks checked(const Blocks& blocks) {
    ids_seen_ |= blocks.sign();
    return in_range(blocks);
  }

  HPA_DEVICE Scores<M, C> logits(Wave& wave, const Operand* query, [[maybe_unused]] int tile) {
    Scores<M, C> scores;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int p = 0; p < Products::score_products; ++p) scores.product[p][lane] = typename M::Floats4{0.f, 0.f, 0.f, 0.f};
    });
    Lane<const Operand*> own;
    wave.each_afresh([&](int lane) { own[lane] = query + lane; });  // read again for every tile: registers are dear
    Lane<Operand> rows[2];  // of this step and of the next
    const auto read = [&](int step) {
      wave.each([&](int lane) { rows[step % 2][lane] = own[lane][step * M::width]; });
    };
    read(0);
    HPA_UNROLL
    for (int step = 0; step < Traits::steps; ++step) {
      if (step + 1 < Traits::steps) read(step + 1);
      wave.keep_order();
      HPA_UNROLL
      for (int p = 0; p < Products::score_products; ++p) Products::scores(wave, scores.product[p], keys_.operand[step / Products::key_steps][p], rows[step % 2], step);
      wave.keep_order();
    }
    scores.scale(wave, stream_.scale_log2);
    if constexpr (C::general) scores.transform(wave, stream_, first_token(tile));
    return scores;
  }

  template <bool RequestNext>
  HPA_DEVICE void add_values(Wave& wave, Scores<M, C>& scores) {
    typename RunningSoftmax<M, C>::Probabilities probabilities[Products::row_slots];
    softmax.probabilities(wave, scores, probabilities);
    wave.keep_order();
    const auto ones = all_ones(wave);
    HPA_UNROLL
    for (int slot = 0; slot < Products::row_slots; ++slot) Products::output(wave, softmax.total[slot], ones, probabilities[slot]);
    HPA_UNROLL
    for (int dim = 0; dim < Traits::dims; ++dim) {
      HPA_UNROLL
      for (int slot = 0; slot < Products::row_slots; ++slot)
        Products::output(wave, softmax.output[slot][dim], values_.operand[dim], probabilities[slot]);
      if constexpr (RequestNext) {
        wave.keep_order();
        values_.request(wave, dim, stream_.values, next_);
        wave.keep_order();
      }
    }
  }

  HPA_DEVICE static Lane<Words<4>> all_ones(const Wave& wave) {
    constexpr std::uint32_t one = Format<C::query>::encode(1.f);
    const std::uint32_t pair = wave.made_anew(one | one << 16);
    Lane<Words<4>> ones;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int i = 0; i < 4; ++i) ones[lane].word[i] = pair;
    });
    return ones;
  }

  TileStream<C> stream_;
  int tiles_;
  std::int32_t ids_seen_ = 0;  // all ids or-ed together
  Blocks next_;
  KeyTile<M, C> keys_;
  ValueTile<M, C> values_;
};

}  // namespace hpa::kernel
