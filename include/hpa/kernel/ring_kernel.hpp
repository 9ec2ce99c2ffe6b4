// RingKernel: decode where tiles come to LDS by asynchronous copies. Each wave keeps a ring of tiles filled, from one item to the
// next; an item has one barrier, for the merge.
#pragma once

#include "hpa/kernel/ring_tiles.hpp"
#include "hpa/kernel/wave_merge.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// The decode kernel of machine M for C, a Shaped Config. Grid x covers (item, KV head) pairs, y passes over the query rows of a
/// KV head.
template <class M, class C>
struct RingKernel {
  using Machine = M;
  using Params = RingParams<C>;
  using Rows = typename Params::Rows;
  using Wave = typename M::Wave;
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  using Floats4 = typename M::Floats4;
  using Softmax = RunningSoftmax<M, C>;
  struct SomeFeatures : TileFeatures {
    const RowFacts* facts;  // nullptr without has_row_facts
    EdgeFacts edge;         // of several query rows
  };
  using ItemFeatures = std::conditional_t<has_feature_params<C>, SomeFeatures, NoFeatures>;
  template <class T>
  using Lane = typename M::template Lane<T>;

  static constexpr bool starts_early = true;
  static constexpr tuning::KernelShape shape = C::shape;
  static constexpr int waves = shape.waves;
  using Tiles = RingTiles<M, C>;
  using Merge = WaveMerge<M, C, waves, Products::rows, PaddedRows>;
  // With two merge buffers the waves of an item need not wait until the item before has been read.
  static constexpr int merge_buffers = Products::rows == 8 ? 2 : 1;
  // The next item's query is asked for at an item's start, or, where registers are short, when the output has left them.
  static constexpr bool query_is_early = Products::rows == 8;

  struct PlainLds {
    typename Tiles::Ring rings[waves];
    typename Merge::Outputs outputs[merge_buffers];
    typename Merge::States states[merge_buffers];
    typename Tiles::Bookkeeping bookkeeping[waves];
  };
  struct RowFactsLds : PlainLds {
    RowFacts facts[waves][Products::rows];  // each wave's own, so that none waits for another
  };
  using Lds = std::conditional_t<has_row_facts<C>, RowFactsLds, PlainLds>;
  static constexpr int lds_bytes = sizeof(Lds);
  static_assert(lds_bytes <= shape.lds_bytes, "the kernel takes more LDS than its row in tuning/ says");

  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    wave.allow_next_launch();
    const PlanCounts header = wave.template uniform<PlanCounts>(p.header);
    WorkQueue list(wave, p, header.num_items);
    Work work = list.read(wave, p);  // exists in memory even when the list is empty: no wait for the count
    if (header.stamp != p.stamp || list.at_end()) {
      if (header.stamp != p.stamp) report(wave, p.header, PlanError::other_shape, 0);
      return wave.await_previous_launch();
    }
    // What plan() wrote and the block tables may be read before the previous kernel has ended. Queries may not, and of the caches
    // only what DecodeArgs::allow_early_kv_loads promises.
    typename Tiles::Cursor cursor(wave, p, list, work);
    const int early = p.allow_early_kv_loads ? cursor.tiles_before_last(wave, work, work.item.rows) : 0;
    Tiles ring(wave, lds(wave).rings, lds(wave).bookkeeping, cursor);
    Work next = list.next_or(wave, p, work);  // where the list stands
    ring.open(wave, early);
    QueryRegisters<M, C> query, next_query;
    request_query(wave, p, work, query);
    for (int buffer = 0;; buffer = buffer + 1 == merge_buffers ? 0 : buffer + 1) {
      const bool last = list.at_end();
      const Work after_next = list.next_or(wave, p, next);
      decode_item(wave, p, work, query, ring, buffer, [&] {
        if (!last) request_query(wave, p, next, next_query);
      });
      if (last) return;
      work = next;
      next = after_next;
      query = next_query;
    }
  }

 private:
  static HPA_DEVICE Lds& lds(const Wave& wave) { return *reinterpret_cast<Lds*>(wave.lds()); }

  static HPA_DEVICE void request_query(const Wave& wave, const Params& p, const Work& work, QueryRegisters<M, C>& query) {
    const Rows rows = p.rows_of(wave, work);
    query.request(wave, [&](int row) {
      const RowPlace at = rows.clamped(row);
      return p.query.at(work.item.query_row + at.query_row, at.head);
    });
  }

  template <class RequestNextQuery>
  static HPA_DEVICE void decode_item(Wave& wave, const Params& p, const Work& work, const QueryRegisters<M, C>& query, Tiles& ring,
                                     int buffer, RequestNextQuery&& request_next_query) {
    const Item& item = work.item;
    const Rows rows = p.rows_of(wave, work);
    const std::int32_t tiles = tiles_of<Traits::tokens>(item, rows.count);
    Softmax softmax;
    softmax.clear(wave);
    if constexpr (query_is_early) request_next_query();
    const float scale_log2 = p.scale_log2 * logit_factor<C>(wave, p, work.kv_head);
    if constexpr (has_row_facts<C>) stage_facts(wave, p, rows, item);
    const ItemFeatures features = features_of(wave, p, item);
    bool met_bad_id = false;
    for (std::int32_t tile = wave.index(); tile < tiles; tile += waves) {
      const auto staged = ring.arrived(wave);
      met_bad_id = met_bad_id || ring.bad_id();
      add_tile(wave, p, scale_log2, features, staged, query, softmax, item.begin + tile * Traits::tokens, item,
               [&] { ring.release_keys(wave); });
      ring.release_values(wave);
    }
    if (met_bad_id) report(wave, p.header, PlanError::block_id, item.sequence);
    if (item.lies_outside()) report(wave, p.header, PlanError::table_width, item.sequence);
    const std::int32_t active = tiles < waves ? tiles : waves;
    auto& states = lds(wave).states[buffer];
    auto& outputs = lds(wave).outputs[buffer];
    if (wave.index() < active) {
      Merge::write_states(wave, states, softmax, met_bad_id);
      Merge::write_outputs(wave, outputs, 0, softmax);
    }
    if constexpr (!query_is_early) request_next_query();
    wave.barrier();
    merge_waves(wave, p, work, rows, states, outputs, active);
    if constexpr (merge_buffers == 1) wave.barrier();
  }

  /// Adds a tile to the softmax. Calls `keys_used` when its keys have been read.
  template <class KeysUsed>
  static HPA_DEVICE void add_tile(Wave& wave, [[maybe_unused]] const Params& p, float scale_log2, const ItemFeatures& features,
                                  const StagedTile<M, C>& tile, const QueryRegisters<M, C>& query, Softmax& softmax,
                                  std::int32_t first_token, const Item& item, KeysUsed&& keys_used) {
    Scores<M, C> scores = tile.multiply_keys(wave, query, scale_log2);
    keys_used();
    TileScales token_scales{nullptr, nullptr};
    if constexpr (C::token_scales) {
      token_scales = tile.scales(static_cast<const TokenScaleParams&>(p).given());
      scale_tokens<M, C>(wave, scores, token_scales.keys);
    }
    const auto visible = seen(features, item, first_token);
    if constexpr (has_feature_params<C>) scores.transform(wave, features, features.facts, first_token);
    const bool all_visible = all_seen(features, item, first_token);
    if (!all_visible) scores.mask(wave, item_sees(features, item, first_token));
    typename Softmax::Probabilities probabilities[Products::row_sets];
    softmax.probabilities(wave, scores, probabilities);
    softmax.add_totals(wave, probabilities);
    if (all_visible)
      tile.template add_values<false>(wave, softmax, probabilities, visible, token_scales);
    else
      tile.template add_values<true>(wave, softmax, probabilities, visible, token_scales);
  }

  static HPA_DEVICE ItemFeatures features_of([[maybe_unused]] const Wave& wave, [[maybe_unused]] const Params& p,
                                             [[maybe_unused]] const Item& item) {
    if constexpr (C::can(Features::query_rows))
      return {tile_features(known_off<C>(p), item), facts_of(wave), edge_facts(wave, known_off<C>(p), item)};
    else if constexpr (has_feature_params<C>)
      return {tile_features(known_off<C>(p), item), facts_of(wave), {}};
    else
      return {};
  }
  /// The tokens of a tile that some row sees.
  static HPA_DEVICE auto seen(const ItemFeatures& features, const Item& item, std::int32_t first_token) {
    if constexpr (C::can(Features::query_rows))
      return features.edge.from(first_token);
    else
      return item_sees(features, item, first_token);
  }
  /// What the item has of a tile: without what lies before the window, where all rows have the same.
  static HPA_DEVICE Visible item_sees([[maybe_unused]] const ItemFeatures& features, const Item& item, std::int32_t first_token) {
    if constexpr (C::can(Features::window) && !C::can(Features::query_rows))
      return {features.all.begin - first_token, item.end - first_token};
    else
      return {0, item.end - first_token};
  }
  static HPA_DEVICE bool all_seen([[maybe_unused]] const ItemFeatures& features, const Item& item, std::int32_t first_token) {
    if constexpr (C::can(Features::query_rows))
      return features.all_seen(first_token, Traits::tokens);
    else if constexpr (C::can(Features::window))
      return item_sees(features, item, first_token).covers(Traits::tokens);
    else
      return item.end - first_token >= Traits::tokens;
  }

  /// The facts of the pass's rows. Each wave has a copy.
  static HPA_DEVICE RowFacts* facts_of([[maybe_unused]] const Wave& wave) {
    if constexpr (has_row_facts<C>)
      return lds(wave).facts[wave.index()];
    else
      return nullptr;
  }
  /// Writes the facts of the pass's rows to LDS: each lane those that it reads.
  static HPA_DEVICE void stage_facts(const Wave& wave, const Params& p, const Rows& rows, const Item& item) {
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int i = 0; i < Softmax::lane_rows; ++i) {
        const int row = Products::score_row(lane, i);
        facts_of(wave)[row] = read_facts<Wave>(known_off<C>(p), item, rows.clamped(row));
      }
    });
  }

  /// Merges the outputs of the first `active` waves and stores the results.
  static HPA_DEVICE void merge_waves(Wave& wave, const Params& p, const Work& work, const Rows& rows,
                                     const typename Merge::States& states, const typename Merge::Outputs& outputs,
                                     std::int32_t active) {
    const float value_scale = value_factor<C>(wave, p, work.kv_head);
    wave.each([&](int lane) {
      for (int i = wave.index() * M::width + lane; i < rows.count * Merge::chunks; i += waves * M::width) {
        const int row = i / Merge::chunks, chunk = i % Merge::chunks;
        const auto weighed = Merge::weigh(states, row, active);
        const Floats4 sum = Merge::sum(outputs, row, chunk, weighed.weight, active);
        store_item<M, C>(p.result, static_cast<const FinishOf<C::features>&>(p), work.item, rows.at(row), 4 * chunk,
                         sum * value_scale, weighed.state);
      }
    });
  }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
