// RegisterTiles: a wave's tiles of an item, in registers: load, multiply, mask, update, multiply. Of LDS a tile needs the query
// alone, and no barrier.
#pragma once

#include <algorithm>

#include "hpa/kernel/decode_params.hpp"
#include "hpa/kernel/softmax.hpp"
#include "hpa/kernel/token_scales.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// The token scales of a KV head, and the LDS in which the wave keeps those of its current tile.
struct TileTokenScales : TokenScaleParams {
  float* lds;
};

/// Features::all as a wave's tiles need them. The facts lie in LDS.
struct TileRowFacts {
  const RowFacts* facts;  // of the pass's rows
  const EdgeFacts* edge;
};
struct NoRowFacts {};

/// What a wave knows of the item whose tiles it takes.
template <class C>
struct WaveItem : std::conditional_t<has_feature_params<C>, TileFeatures, NoFeatures>,
                  std::conditional_t<has_row_facts<C>, TileRowFacts, NoRowFacts>,
                  std::conditional_t<C::token_scales, TileTokenScales, NoTokenScales> {
  KvView keys, values;            // of the KV head
  const std::int32_t* table_row;  // of the item's sequence
  int begin, end;                 // tokens of the item
  BlockIds block_ids;             // of the cache
  float scale_log2;               // logit scale * log2(e)
};

/// Tiles first, first + Waves, .. of an item in one of `Waves` waves: the loads that are under way, and the softmax so far.
template <class M, class C, int Waves>
class RegisterTiles {
 public:
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  using Blocks = typename Traits::Blocks;
  using Wave = typename M::Wave;
  template <class T>
  using Lane = typename M::template Lane<T>;
  using Query = typename QueryTile<M, C, Waves>::Staged;
  static constexpr int value_batch = C::shape.value_batch;  // steps of output() whose values are asked for and awaited together
  using Operand = typename Query::Operand;
  /// The query in LDS: operands, and behind them what else the machine's StagedQuery keeps, in units of operands.
  struct alignas(16) StagedRows {
    Operand operand[Query::lds_bytes / int(sizeof(Operand))];
  };
  static_assert(Query::lds_bytes % sizeof(Operand) == 0, "the query in LDS is no whole number of operands");

  RunningSoftmax<M, C> softmax;

  HPA_DEVICE RegisterTiles(const WaveItem<C>& item) : item_(item), tiles_(count_tiles(item.begin, item.end)) {
    if constexpr (shared_window) hidden_tiles_ = item.all.begin > item.begin ? count_tiles(item.begin, item.all.begin) : 0;
  }

  HPA_DEVICE int count() const { return tiles_; }
  HPA_DEVICE bool met_bad_id() const { return met_bad_id_; }

  /// The block ids of a tile of tokens [begin, end). Past the last tile they are the last tile's: nothing uses them.
  static HPA_DEVICE Blocks blocks_of(const Wave& wave, const std::int32_t* table_row, int begin, int end, int tile) {
    const int last = count_tiles(begin, end) - 1;
    return read_blocks<Traits::tokens, C::block_size>(wave, table_row, begin + (tile < last ? tile : last) * Traits::tokens, end);
  }

  /// Asks for the first tile's keys and values, whose block ids are `ids`, and for the second tile's block ids.
  HPA_DEVICE void open(Wave& wave, int first, const Blocks& ids) {
    wave.keep_order();
    next_ = checked(ids);
    if constexpr (C::token_scales) scales_.start(wave, item_), scales_.request(wave, item_, next_);
    keys_.request(wave, item_.keys, next_);
    wave.keep_order();
    HPA_UNROLL
    for (int dim = 0; dim < Traits::dims; ++dim) values_.request(wave, dim, item_.values, next_);
    wave.keep_order();
    next_ = blocks_of(wave, first + Waves);
    wave.keep_order();
  }

  /// Waits for the second tile's ids, so that they are not asked for only when the first tile is there.
  HPA_DEVICE void await_ids(Wave& wave) { next_ = wave.loaded(next_); }

  /// Reads the scales of the query's rows from LDS. Called when the query is staged.
  HPA_DEVICE void read_row_scales(const Wave& wave, Operand* query) { row_scales_.read(wave, query); }

  /// Adds all tiles of the wave but its last to the softmax. The next tile is asked for while one is used. Returns the last tile.
  HPA_DEVICE int full_tiles(Wave& wave, const Operand* query, int first) {
    int tile = first;
    // Do not peel the first iteration, though a window begins there: peeling spills.
    HPA_DO_NOT_UNROLL
    for (; tile + Waves < tiles_; tile += Waves) {
      Scores<M, C> scores = logits(wave, query, tile);
      mask_unseen(wave, scores, tile);
      next_ = checked(next_);
      wave.keep_order();
      if constexpr (C::token_scales) scales_.request(wave, item_, next_);
      keys_.request(wave, item_.keys, next_);
      wave.keep_order();
      const Blocks after_next = blocks_of(wave, tile + 2 * Waves);
      add_values<true>(wave, scores, tile);
      next_ = after_next;
    }
    return tile;
  }

  /// Adds the wave's last tile to the softmax: the only one that may hold tokens past the end.
  HPA_DEVICE void last_tile(Wave& wave, const Operand* query, int tile) {
    wave.refresh();
    Scores<M, C> scores = logits(wave, query, tile);
    const Visible visible = item_sees(tile);
    if (!all_visible(tile, visible)) {
      scores.mask(wave, visible);
      if constexpr (!C::can(Features::query_rows)) mask_values<M, C>(wave, values_, visible);
    }
    if constexpr (C::can(Features::query_rows)) mask_unseen(wave, scores, tile);
    add_values<false>(wave, scores, tile);
  }

 private:
  static constexpr bool shared_window = C::can(Features::window) && !C::can(Features::query_rows);

  static HPA_DEVICE int count_tiles(int begin, int end) { return int(unsigned(end - begin + Traits::tokens - 1) / Traits::tokens); }
  HPA_DEVICE int first_token(int tile) const { return item_.begin + tile * Traits::tokens; }

  /// Of a tile whose end is seen, and that some row does not see all of: values that no row sees, and where all rows see the same, scores.
  HPA_DEVICE void mask_unseen([[maybe_unused]] Wave& wave, [[maybe_unused]] Scores<M, C>& scores, [[maybe_unused]] int tile) {
    if constexpr (C::can(Features::query_rows)) {
      if (!item_.all_seen(first_token(tile), Traits::tokens)) mask_values<M, C>(wave, values_, seen(tile));
    } else {
      if (!window_hides(tile)) return;
      const int again = int(wave.made_anew(unsigned(tile)));  // what few tiles need is not counted along from tile to tile
      scores.mask(wave, item_sees(again));
      mask_values<M, C>(wave, values_, item_sees(again));
    }
  }

  /// The tokens of a tile that some row sees.
  HPA_DEVICE auto seen(int tile) const {
    if constexpr (C::can(Features::query_rows))
      return item_.edge->from(first_token(tile));
    else
      return item_sees(tile);
  }

  /// What the item has of a tile: without what lies before the window, where all rows have the same.
  HPA_DEVICE Visible item_sees(int tile) const {
    if constexpr (shared_window)
      return {item_.all.begin - first_token(tile), item_.end - first_token(tile)};
    else
      return {0, item_.end - first_token(tile)};
  }
  /// Whether that is all of it.
  HPA_DEVICE bool all_visible(int tile, const Visible& visible) const {
    if constexpr (shared_window)
      return !window_hides(tile) && visible.end >= Traits::tokens;
    else
      return visible.covers(Traits::tokens);
  }
  /// Whether a window that all rows share begins behind the tile's first token.
  HPA_DEVICE bool window_hides([[maybe_unused]] int tile) const {
    if constexpr (shared_window)
      return tile < hidden_tiles_;
    else
      return false;
  }

  HPA_DEVICE Blocks blocks_of(const Wave& wave, int tile) const {
    return blocks_of(wave, item_.table_row, item_.begin, item_.end, tile);
  }

  HPA_DEVICE const RowFacts* facts() const {
    if constexpr (has_row_facts<C>)
      return item_.facts;
    else
      return nullptr;
  }

  HPA_DEVICE Blocks checked(const Blocks& blocks) {
    const BlockIds& ids = item_.block_ids;
    met_bad_id_ = met_bad_id_ || !ids.have(blocks.first) || !ids.have(blocks.second);
    return {ids.or_first(blocks.first), ids.or_first(blocks.second), blocks.first_slot};
  }

  HPA_DEVICE Scores<M, C> logits(Wave& wave, const Operand* query, [[maybe_unused]] int tile) {
    Scores<M, C> scores;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int p = 0; p < Products::score_products; ++p) scores.product[p][lane] = typename M::Floats4{0.f, 0.f, 0.f, 0.f};
    });
    Lane<const Operand*> lane_query;
    wave.each_afresh([&](int lane) { lane_query[lane] = query + lane; });  // made anew for every tile: it would cost a register
    constexpr int steps_ahead = std::min(int{C::shape.query_ahead}, Traits::steps);
    Lane<Operand> rows[steps_ahead + 1];  // of this step and of the next ones
    const auto read = [&](int step) {
      wave.each([&](int lane) { rows[step % (steps_ahead + 1)][lane] = lane_query[lane][step * M::width]; });
    };
    HPA_UNROLL
    for (int step = 0; step < steps_ahead; ++step) read(step);
    if constexpr (steps_ahead == Traits::steps) {
      wave.await(rows[steps_ahead - 1], keys_.operand[KeyTile<M, C>::operands - 1][Products::score_products - 1]);
    }
    HPA_UNROLL
    for (int step = 0; step < Traits::steps; ++step) {
      if (step + steps_ahead < Traits::steps) read(step + steps_ahead);
      wave.keep_order();
      HPA_UNROLL
      for (int p = 0; p < Products::score_products; ++p) {
        const auto& keys = keys_.operand[step / Products::key_steps][p];
        Products::scores(wave, scores.product[p], keys, rows[step % (steps_ahead + 1)], step);
      }
      wave.keep_order();
    }
    scores.scale(wave, row_scales_.score_scale(wave, item_.scale_log2));
    if constexpr (C::token_scales) {
      tile_scales_ = scales_.stage(wave, item_, item_.lds);
      scale_tokens<M, C>(wave, scores, tile_scales_.keys);
    }
    if constexpr (has_feature_params<C>) scores.transform(wave, item_, facts(), first_token(tile));
    return scores;
  }

  template <bool RequestNext>
  HPA_DEVICE void add_values(Wave& wave, Scores<M, C>& scores, [[maybe_unused]] int tile) {
    typename RunningSoftmax<M, C>::Probabilities probabilities[Products::row_sets];
    softmax.probabilities(wave, scores, probabilities);
    wave.keep_order();
    await_values(wave, 0);
    softmax.add_totals(wave, probabilities);
    const auto multiply = value_product<M, C>(wave, tile_scales_, [&] { return seen(tile); });
    static_assert(Traits::dims % value_batch == 0, "the batch of values in tuning/ must divide the products of a tile");
    HPA_UNROLL
    for (int first = 0; first < Traits::dims; first += value_batch) {
      if (first > 0) await_values(wave, first);
      HPA_UNROLL
      for (int dim = first; dim < first + value_batch; ++dim) {
        HPA_UNROLL
        for (int set = 0; set < Products::row_sets; ++set)
          multiply.output(wave, softmax.output[set][dim], values_.operand[dim], probabilities[set]);
      }
      if constexpr (RequestNext) {
        wave.keep_order();
        HPA_UNROLL
        for (int dim = first; dim < first + value_batch; ++dim) values_.request(wave, dim, item_.values, next_);
        wave.keep_order();
      }
    }
  }

  /// Waits for the values of a batch of steps, which were asked for together.
  HPA_DEVICE void await_values(const Wave& wave, int first) {
    if constexpr (value_batch > 1) wave.await(values_.operand[first + value_batch - 1]);
  }

  WaveItem<C> item_;
  int tiles_;
  int hidden_tiles_ = 0;  // leading ones that begin before a window that all rows share
  bool met_bad_id_ = false;
  Blocks next_;
  KeyTile<M, C> keys_;
  ValueTile<M, C> values_;
  std::conditional_t<C::token_scales, ScalesPrefetch<M, C>, NoTokenScales> scales_;
  TileScales tile_scales_{nullptr, nullptr};  // of the current tile; token_scales only
  typename Query::RowScales row_scales_;
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
