// DecodeKernel: decode where tiles go from memory to registers. A fixed grid of workgroups loops over the items of the plan. Each
// wave of a workgroup takes tiles of its own; at the end of an item the waves merge.
#pragma once

#include <algorithm>

#include "hpa/kernel/decode_params.hpp"
#include "hpa/kernel/register_tiles.hpp"
#include "hpa/kernel/wave_merge.hpp"
#include "hpa/kernel/work_queue.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// The decode kernel of machine M for C, a Shaped Config. Grid x covers items, y KV heads, z passes over their query rows.
template <class M, class C>
struct DecodeKernel {
  using Machine = M;
  using Params = DecodeParamsOf<C>;
  using Rows = QueryRows<C, C::shape.rows_per_pass>;
  using Wave = typename M::Wave;
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  using Floats4 = typename M::Floats4;
  using Tiles = RegisterTiles<M, C, C::shape.waves>;
  using Blocks = typename Traits::Blocks;
  template <class T>
  using Lane = typename M::template Lane<T>;

  static constexpr tuning::KernelShape shape = C::shape;
  static constexpr int waves = shape.waves;
  static constexpr int chunks = C::head_size / 4;  // a thread merges four elements of a row
  static constexpr int merge_rows = shape.merge_rows;
  using Merge = WaveMerge<M, C, waves, merge_rows, RotatedRows>;

  /// LDS while waves multiply tiles. Query and states lie beside each other: some waves still read the query when the first one
  /// writes its states.
  struct TilesLds {
    typename Tiles::StagedRows query;
    typename Merge::States states;
  };
  struct RowFactsLds : TilesLds {
    RowFacts facts[Products::rows];
    EdgeFacts edge;
  };
  using FactsLds = std::conditional_t<has_row_facts<C>, RowFactsLds, TilesLds>;
  struct TokenScalesLds : FactsLds {
    typename ScalesPrefetch<M, C>::Lds scales[waves];
  };
  union Lds {
    std::conditional_t<C::token_scales, TokenScalesLds, FactsLds> tiles;
    typename Merge::Outputs outputs;  // while waves merge
  };
  static constexpr int lds_bytes = sizeof(Lds);
  static_assert(Traits::tokens == shape.tile_tokens, "a tile is not what its row in tuning/ says");
  static_assert(lds_bytes <= shape.lds_bytes, "the kernel takes more LDS than its row in tuning/ says");

  /// The cache of a workgroup's KV head.
  struct Cache {
    KvView keys, values;
  };

  /// The loads that a wave starts as soon as it knows an item: the block ids of its first tile, and its fragments of the query.
  struct Prefetch {
    const std::int32_t* table_row;
    Blocks ids{};
    QueryTile<M, C, waves> query;

    HPA_DEVICE void request(const Wave& wave, const DecodeParams& p, const Item& item, const Rows& rows) {
      table_row = p.table_row(wave, item.sequence);
      if (item.begin < item.end)  // else there is no table entry that may be read
        ids = Tiles::blocks_of(wave, table_row, item.begin, item.end, wave.index());
      query.request(wave, [&](int row) {
        const RowPlace at = rows.clamped(row);
        return p.query.at(std::uint32_t(item.query_row + at.query_row), at.head);
      });
    }
  };

  static HPA_DEVICE void run(Wave& wave, const Params& params) {
    const std::int32_t workgroups = wave.loaded(wave.workgroups_x());
    const DecodeParams p = wave.loaded(static_cast<const DecodeParams&>(params));
    const PlanCounts header = wave.template uniform<PlanCounts>(p.header);
    ItemQueue queue(wave, p, header.num_items, wave.workgroup_x(), wave.workgroup_x(), workgroups);
    Item item = queue.read(wave, p);  // asked for beside the header
    const std::int32_t kv_head = wave.workgroup_y(), pass = wave.workgroup_z();
    const Cache cache = wave.loaded(cache_of(wave, p));
    Rows rows = wave.loaded(Rows::of(kv_head, pass, p.gqa, item));
    item = wave.loaded(item);
    if (header.stamp != p.stamp) return report(wave, p.header, PlanError::other_shape, 0);
    if (queue.at_end()) return;
    Prefetch prefetch;
    prefetch.request(wave, p, item, rows);
    for (;;) {
      if (!C::can(Features::query_rows) || rows.count > 0)
        decode_item(wave, again(wave, params, p), params, item, cache, rows, prefetch);
      queue.next();
      if (queue.at_end()) return;
      item = queue.read(wave, again(wave, params, p));
      if constexpr (C::can(Features::query_rows)) rows = Rows::of(kv_head, pass, p.gqa, item);
      prefetch.request(wave, again(wave, params, p), item, rows);
      wave.barrier();  // LDS is free for the next item
    }
  }

 private:
  static HPA_DEVICE void decode_item(Wave& wave, const DecodeParams& p, const Params& params, const Item& item, const Cache& cache,
                                     const Rows& rows, const Prefetch& prefetch) {
    wave.refresh();
    auto* const query = lds(wave).tiles.query.operand;
    Tiles tiles(wave_item(wave, p, params, item, keeps_little ? cache_of(wave, p) : cache, prefetch));
    const auto stage_query = [&] {
      prefetch.query.stage(wave, query);
      if constexpr (has_row_facts<C>) stage_facts(wave, params, rows, item);
      wave.barrier();
    };
    if (wave.index() < tiles.count()) {
      tiles.open(wave, wave.index(), prefetch.ids);
      tiles.softmax.clear(wave);
      tiles.await_ids(wave);
      stage_query();
      tiles.read_row_scales(wave, query);
      const int last = tiles.full_tiles(wave, query, wave.index());
      tiles.last_tile(wave, query, last);
    } else {
      tiles.softmax.clear(wave);
      stage_query();
    }
    if (tiles.met_bad_id()) report(wave, p.header, PlanError::block_id, item.sequence);
    if (item.lies_outside()) report(wave, p.header, PlanError::table_width, item.sequence);
    merge_waves(wave, p, params, item, rows, tiles);
  }

  static HPA_DEVICE WaveItem<C> wave_item(const Wave& wave, const DecodeParams& p, const Params& params, const Item& item,
                                          const Cache& cache, const Prefetch& prefetch) {
    WaveItem<C> wave_item;
    if constexpr (has_feature_params<C>) {
      static_cast<TileFeatures&>(wave_item) = tile_features(feature_params(wave, params), item);
      if constexpr (has_row_facts<C>) wave_item.facts = lds(wave).tiles.facts, wave_item.edge = &lds(wave).tiles.edge;
    }
    if constexpr (C::token_scales) static_cast<TileTokenScales&>(wave_item) = token_scales(wave, params);
    wave_item.keys = cache.keys, wave_item.values = cache.values;
    wave_item.table_row = prefetch.table_row;
    wave_item.begin = item.begin, wave_item.end = item.end;
    wave_item.block_ids = p.block_ids;
    wave_item.scale_log2 = p.scale_log2 * logit_factor<C>(wave, params, wave.workgroup_y());
    return wave_item;
  }

  static HPA_DEVICE TileTokenScales token_scales(const Wave& wave, const Params& params) {
    const TokenScaleParams all = wave.template reread<TokenScaleParams>(params);
    return {all.head(wave.workgroup_y()), lds(wave).tiles.scales[wave.index()].scale};
  }

  static HPA_DEVICE Cache cache_of(const Wave& wave, const DecodeParams& p) {
    return {p.keys.head(wave.workgroup_y()), p.values.head(wave.workgroup_y())};
  }

  /// What is not needed at every tile is read again where row facts have other uses for the registers.
  static constexpr bool keeps_little = has_row_facts<C>;
  static HPA_DEVICE DecodeParams again(const Wave& wave, const Params& params, const DecodeParams& p) {
    if constexpr (keeps_little)
      return wave.template reread<DecodeParams>(params);
    else
      return p;
  }

  template <class Part>
  static HPA_DEVICE Part again([[maybe_unused]] const Wave& wave, const Params& params) {
    if constexpr (keeps_little)
      return wave.template reread<Part>(params);
    else
      return params;
  }
  static HPA_DEVICE FeatureParams feature_params(const Wave& wave, const Params& params) {
    return known_off<C>(again<FeatureParams>(wave, params));
  }

  static HPA_DEVICE Lds& lds(const Wave& wave) { return *reinterpret_cast<Lds*>(wave.lds()); }
  static HPA_DEVICE void stage_facts(const Wave& wave, const Params& params, const Rows& rows, const Item& item) {
    if (wave.index() != 0) return;
    const FeatureParams features = feature_params(wave, params);
    const EdgeFacts edge = edge_facts(wave, features, item);
    wave.each([&](int lane) {
      if (lane < Products::rows) lds(wave).tiles.facts[lane] = read_facts<Wave>(features, item, rows.clamped(lane));
      if (lane == 0) lds(wave).tiles.edge = edge;
    });
  }

  /// Merges the waves' outputs, `merge_rows` rows at a time: their states through LDS, then their outputs through the same LDS.
  static HPA_DEVICE void merge_waves(Wave& wave, const DecodeParams& p, const Params& params, const Item& item, const Rows& rows,
                                     Tiles& tiles) {
    wave.refresh();
    const ResultView result = again(wave, params, p).result;
    const auto finish = again<FinishOf<C::features>>(wave, params);
    const float value_scale = value_factor<C>(wave, params, wave.workgroup_y());
    for (int first = 0; first < rows.count; first += merge_rows) {
      if (first > 0) wave.barrier();  // the rows before have been read
      Merge::write_states(wave, lds(wave).tiles.states, tiles.softmax, tiles.met_bad_id());
      wave.barrier();
      Lane<typename Merge::Weighed> weighed;
      // Threads past the last row weigh some row again: a branch would keep the weights alive in the tile loop.
      wave.each([&](int lane) { weighed[lane] = Merge::weigh(lds(wave).tiles.states, row_of(wave, lane, first) % Merge::rows); });
      wave.barrier();
      Merge::write_outputs(wave, lds(wave).outputs, first, tiles.softmax);
      wave.barrier();
      wave.each([&](int lane) {
        const int row = row_of(wave, lane, first), chunk = int(thread_of(wave, lane) % chunks);
        if (row >= first + merge_rows || row >= rows.count) return;
        const Floats4 sum = Merge::sum(lds(wave).outputs, row - first, chunk, weighed[lane].weight);
        store_item<M, C>(result, finish, item, rows.at(row), 4 * chunk, sum * value_scale, weighed[lane].state);
      });
      if constexpr (merge_rows == Merge::rows) return;  // all rows are merged at once
    }
  }

  static HPA_DEVICE unsigned thread_of(const Wave& wave, int lane) { return unsigned(wave.index() * M::width + lane); }
  static HPA_DEVICE int row_of(const Wave& wave, int lane, int first) { return first + int(thread_of(wave, lane) / chunks); }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
