// decode: a fixed grid of workgroups loops over the items of the plan. The waves of a workgroup stream tiles of their own and meet
// at the item's end to merge.
#pragma once

#include <algorithm>

#include "hpa/kernel/decode_params.hpp"
#include "hpa/kernel/decode_tile.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

template <class M, class C, int Waves>
struct DecodeKernel {
  using Machine = M;
  using Params = DecodeParamsOf<C>;
  using Rows = QueryRows<C, 16>;
  using Wave = typename M::Wave;
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  using Floats4 = typename M::Floats4;
  using Softmax = RunningSoftmax<M, C>;
  using Stream = WaveStream<M, C, Waves>;
  using Blocks = typename Traits::Blocks;
  template <class T>
  using Lane = typename M::template Lane<T>;

  static constexpr int waves = Waves;
  static constexpr int chunks = C::head_size / 4;        // a thread merges four elements of a row
  static constexpr int row_bytes = waves * chunks * 16;  // of a merged row in LDS
  /// Rows merged at a time: those that there are threads for, in 32 KiB at most, so that a compute unit holds 16 waves.
  static constexpr int rows_a_pass = std::min({waves * M::width / chunks, 32768 / row_bytes, int{Products::rows}});
  static constexpr int merge_bytes = rows_a_pass * row_bytes;
  static constexpr int states_offset =
      QueryTile<M, C, Waves>::Staged::lds_bytes;  // waves still read the query when the first one writes its state
  static constexpr int states_bytes = waves * Products::rows * int(sizeof(PartialState));
  static constexpr int facts_offset = states_offset + states_bytes;
  static constexpr int edge_offset = facts_offset + (C::general ? Products::rows * int(sizeof(RowFacts)) : 0);
  static constexpr int scales_offset = edge_offset + (C::general ? int(sizeof(EdgeFacts)) : 0);
  static constexpr int stream_bytes = scales_offset + (C::token_scales ? waves * ScalesAhead<M, C>::lds_bytes : 0);
  static constexpr int lds_bytes = merge_bytes > stream_bytes ? merge_bytes : stream_bytes;
  static_assert(rows_a_pass > 0 && Products::rows % rows_a_pass == 0);

  /// The cache of a workgroup's KV head.
  struct Cache {
    KvView keys, values;
  };

  /// What a wave asks for as soon as it knows an item: the block ids of its first tile and its share of the query.
  struct Ahead {
    const std::int32_t* table_row;
    Blocks ids{};
    QueryTile<M, C, Waves> query;

    HPA_DEVICE void request(const Wave& wave, const DecodeParams& p, const Item& item, const Rows& rows) {
      table_row = p.block_tables + std::int64_t{std::uint32_t(item.sequence)} * p.table_row_stride;
      if (item.begin < item.end)  // else there is no table entry that may be read
        ids = Stream::blocks_of(wave, table_row, item.begin, item.end, wave.index());
      query.request(wave, [&](int row) {
        const RowPlace at = rows.inside(row);
        return p.query.at(std::uint32_t(item.query_row + at.query_row), at.head);
      });
    }
  };

  static HPA_DEVICE void run(Wave& wave, const Params& params) {
    const std::int32_t workgroups = wave.loaded(wave.workgroups_x());
    const DecodeParams p = wave.loaded(static_cast<const DecodeParams&>(params));
    const PlanCounts header = wave.template uniform<PlanCounts>(p.header);
    std::int32_t i = wave.workgroup_x(), end = header.num_items, step = workgroups;
    if (p.shares != nullptr) {
      end = wave.uniform(p.shares + i + 1), i = wave.uniform(p.shares + i), step = 1;
      if (i >= end) i = end = 0;
    }
    // Beside the header: the list is never shorter than the grid is wide.
    Item item = wave.uniform(p.items + i);
    const std::int32_t kv_head = wave.workgroup_y(), part = wave.workgroup_z();
    const Cache cache = wave.loaded(cache_of(wave, p));
    Rows rows = wave.loaded(Rows::of(kv_head, part, p.gqa, item));
    item = wave.loaded(item);
    if (header.stamp != p.stamp) return report(wave, p.header, PlanError::other_shape, 0);
    if (i >= end) return;
    Ahead ahead;
    ahead.request(wave, p, item, rows);
    for (;;) {
      if (!C::general || rows.count > 0) decode_item(wave, again(wave, params, p), params, item, cache, rows, ahead);
      i += step;
      if (i >= end) return;
      item = wave.uniform(again(wave, params, p).items + i);
      if constexpr (C::general) rows = Rows::of(kv_head, part, p.gqa, item);
      ahead.request(wave, again(wave, params, p), item, rows);
      wave.barrier();  // LDS is free for the next item
    }
  }

 private:
  static HPA_DEVICE void decode_item(Wave& wave, const DecodeParams& p, const Params& params, const Item& item, const Cache& cache,
                                     const Rows& rows, const Ahead& ahead) {
    wave.refresh();
    auto* const query = reinterpret_cast<typename Stream::Operand*>(wave.lds());
    Stream stream(tile_stream(wave, p, params, item, C::general ? cache_of(wave, p) : cache, ahead));
    const auto stage_query = [&] {
      ahead.query.stage(wave, query);
      if constexpr (C::general) stage_facts(wave, params, rows, item);
      wave.barrier();
    };
    if (wave.index() < stream.tiles()) {
      stream.open(wave, wave.index(), ahead.ids);
      stream.softmax.clear(wave);
      stream.await_ids(wave);
      stage_query();
      stream.read_row_scales(wave, query);
      const int last = stream.full_tiles(wave, query, wave.index());
      stream.last_tile(wave, query, last);
    } else {
      stream.softmax.clear(wave);
      stage_query();
    }
    if (stream.met_negative_id()) report(wave, p.header, PlanError::block_id_negative, item.sequence);
    merge_waves(wave, p, params, item, rows, stream);
  }

  static HPA_DEVICE TileStream<C> tile_stream(const Wave& wave, const DecodeParams& p, const Params& params, const Item& item,
                                              const Cache& cache, const Ahead& ahead) {
    TileStream<C> stream;
    if constexpr (C::general)
      static_cast<WaveFeatures&>(stream) = {tile_features(wave.template reread<FeatureParams>(params), item, facts_of(wave)),
                                            edge_of(wave)};
    if constexpr (C::token_scales) static_cast<TileTokenScales&>(stream) = token_scales(wave, params);
    stream.keys = cache.keys, stream.values = cache.values;
    stream.table_row = ahead.table_row;
    stream.begin = item.begin, stream.end = item.end;
    stream.scale_log2 = p.scale_log2 * logit_scale<C>(wave, params);
    return stream;
  }

  static HPA_DEVICE TileTokenScales token_scales(const Wave& wave, const Params& params) {
    const TokenScaleParams all = wave.template reread<TokenScaleParams>(params);
    auto* const lds = reinterpret_cast<float*>(wave.lds() + scales_offset + wave.index() * ScalesAhead<M, C>::lds_bytes);
    return {all.head(wave.workgroup_y()), lds};
  }

  static HPA_DEVICE Cache cache_of(const Wave& wave, const DecodeParams& p) {
    return {p.keys.head(wave.workgroup_y()), p.values.head(wave.workgroup_y())};
  }

  /// What is not needed at every tile is not kept: Features::all has other uses for the registers.
  static HPA_DEVICE DecodeParams again(const Wave& wave, const Params& params, const DecodeParams& p) {
    if constexpr (C::general)
      return wave.template reread<DecodeParams>(params);
    else
      return p;
  }

  static HPA_DEVICE RowFacts* facts_of(const Wave& wave) { return reinterpret_cast<RowFacts*>(wave.lds() + facts_offset); }
  static HPA_DEVICE EdgeFacts* edge_of(const Wave& wave) { return reinterpret_cast<EdgeFacts*>(wave.lds() + edge_offset); }
  static HPA_DEVICE void stage_facts(const Wave& wave, const Params& params, const Rows& rows, const Item& item) {
    if (wave.index() != 0) return;
    const FeatureParams features = wave.template reread<FeatureParams>(params);
    const EdgeFacts edge = edge_facts(wave, features, item);
    wave.each([&](int lane) {
      if (lane < Products::rows) facts_of(wave)[lane] = read_facts<Wave>(features, item, rows.inside(lane));
      if (lane == 0) *edge_of(wave) = edge;
    });
  }

  /// The waves' outputs become one, `rows_a_pass` rows at a time: states through LDS, then outputs through the same LDS.
  static HPA_DEVICE void merge_waves(Wave& wave, const DecodeParams& p, const Params& params, const Item& item, const Rows& rows,
                                     Stream& stream) {
    wave.refresh();
    const ResultView result = again(wave, params, p).result;
    const auto finish = wave.template reread<FinishOf<C::general>>(params);
    const float value_scale = kernel::value_scale<C>(wave, params);
    auto* const states = reinterpret_cast<PartialState*>(wave.lds() + states_offset);
    auto* const outputs = reinterpret_cast<Floats4*>(wave.lds());
    for (int first = 0; first < rows.count; first += rows_a_pass) {
      if (first > 0) wave.barrier();  // the pass before has been read
      write_states(wave, states, stream);
      wave.barrier();
      Lane<PartialState> merged;
      Lane<float> weights[waves];
      wave.each([&](int lane) { weigh(states, row_of(wave, lane, first), merged[lane], weights, lane); });
      wave.barrier();
      write_outputs(wave, outputs, first, stream.softmax);
      wave.barrier();
      wave.each([&](int lane) {
        const int row = row_of(wave, lane, first), chunk = int(thread_of(wave, lane) % chunks);
        if (row >= first + rows_a_pass || row >= rows.count) return;
        Floats4 sum{0.f, 0.f, 0.f, 0.f};
        HPA_UNROLL
        for (int w = 0; w < waves; ++w) {
          const Floats4 part = outputs[place_of(w, row - first, chunk)];
          HPA_UNROLL
          for (int i = 0; i < 4; ++i) sum[i] = sum[i] + part[i] * weights[w][lane];
        }
        store_item<M, C>(result, finish, item, rows.at(row), 4 * chunk, sum * value_scale, merged[lane]);
      });
    }
  }

  static HPA_DEVICE unsigned thread_of(const Wave& wave, int lane) { return unsigned(wave.index() * M::width + lane); }
  static HPA_DEVICE int row_of(const Wave& wave, int lane, int first) { return first + int(thread_of(wave, lane) / chunks); }
  /// Where a wave leaves four elements of a row: rows are rotated against each other so that LDS banks are used evenly.
  static HPA_DEVICE int place_of(int wave, int row, int chunk) {
    return (wave * rows_a_pass + row) * chunks + (chunk & ~7) + ((chunk ^ row) & 7);
  }

  static HPA_DEVICE void write_states(const Wave& wave, PartialState* states, const Stream& stream) {
    PartialState* const own = states + wave.index() * Products::rows;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int slot = 0; slot < Products::row_slots; ++slot) {
        const int row = Products::score_row(lane, slot);
        if (lane == Products::score_lane_of(row)) own[row].maximum = stream.softmax.reference[slot][lane];
        HPA_UNROLL
        for (int i = 0; i < 4; ++i)
          if (Products::output_element(lane, i) == 0)
            own[Products::output_row(lane, slot, i)].total = stream.met_negative_id() ? -1.f : stream.softmax.total[slot][lane][i];
      }
    });
  }

  static HPA_DEVICE void weigh(const PartialState* states, int row, PartialState& merged, Lane<float> (&weights)[waves], int lane) {
    merged = {Softmax::unset, 0.f};
    row %= Products::
        rows;  // threads past the last row do some row's work again: a branch would keep the weights alive in the tile loop
    bool failed = false;
    HPA_UNROLL
    for (int w = 0; w < waves; ++w) merged.maximum = M::max(merged.maximum, states[w * Products::rows + row].maximum);
    HPA_UNROLL
    for (int w = 0; w < waves; ++w) {
      const PartialState state = states[w * Products::rows + row];
      weights[w][lane] = M::exp2(state.maximum - merged.maximum);
      merged.total += state.total * weights[w][lane];
      failed = failed || state.total < 0.f;
    }
    if (failed) merged.total = -1.f;
  }

  static HPA_DEVICE void write_outputs(const Wave& wave, Floats4* outputs, int first, const RunningSoftmax<M, C>& softmax) {
    constexpr int run = Products::output_run;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int slot = 0; slot < Products::row_slots; ++slot) {
        HPA_UNROLL
        for (int i = 0; i < 4; i += run) {
          const int row = Products::output_row(lane, slot, i) - first;
          if (row < 0 || row >= rows_a_pass) continue;
          HPA_UNROLL
          for (int dim = 0; dim < Traits::dims; ++dim) {
            const int element = dim * Products::dim_step + Products::output_element(lane, i);
            Floats4& place = outputs[place_of(wave.index(), row, element / 4)];
            if constexpr (run == 4)
              place = softmax.output[slot][dim][lane];
            else
              place[element % 4] = softmax.output[slot][dim][lane][i];
          }
        }
      }
    });
  }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
