// decode: a fixed grid of workgroups loops over the items of the plan. The waves of a workgroup stream tiles of their own and meet
// at the item's end to merge.
#pragma once

#include "hpa/kernel/decode_params.hpp"
#include "hpa/kernel/decode_tile.hpp"

namespace hpa::kernel {

template <class M, class C>
struct DecodeKernel {
  using Machine = M;
  using Params = DecodeParamsOf<C>;
  using Rows = QueryRows<C, 16>;
  using Wave = typename M::Wave;
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  using Floats4 = typename M::Floats4;
  using Operand = typename QueryTile<M, C>::Operand;
  using Softmax = RunningSoftmax<M, C>;
  template <class T>
  using Lane = typename M::template Lane<T>;

  static constexpr int waves = M::decode_waves;
  static constexpr int chunks = C::head_size / 4;  // a thread merges four elements of a row
  static constexpr int rows_a_pass = waves * M::width / chunks < Products::rows ? waves * M::width / chunks : Products::rows;
  static constexpr int merge_bytes = waves * rows_a_pass * chunks * 16;
  static constexpr int states_offset = QueryTile<M, C>::lds_bytes;  // waves still read the query when the first one writes its state
  static constexpr int states_bytes = waves * Products::rows * int(sizeof(PartialState));
  static constexpr int facts_offset = states_offset + states_bytes;
  static constexpr int stream_bytes = facts_offset + (C::general ? Products::rows * int(sizeof(RowFacts)) : 0);
  static constexpr int lds_bytes = merge_bytes > stream_bytes ? merge_bytes : stream_bytes;
  static_assert(rows_a_pass > 0 && Products::rows % rows_a_pass == 0);

  static HPA_DEVICE void run(Wave& wave, const Params& params) {
    const DecodeParams p = wave.loaded(static_cast<const DecodeParams&>(params));
    const PlanCounts header = wave.template uniform<PlanCounts>(p.header);
    Item item = wave.uniform(p.items + wave.workgroup_x());  // beside the header: the list is never shorter than the grid is wide
    if (header.stamp != p.stamp) return report(wave, p.header, PlanError::other_shape, 0);
    for (std::int32_t i = wave.workgroup_x(); i < header.num_items;) {
      decode_item(wave, p, params, item);
      i += wave.workgroups_x();
      if (i >= header.num_items) break;
      item = wave.uniform(p.items + i);
      wave.barrier();  // LDS is free for the next item
    }
  }

 private:
  static HPA_DEVICE void decode_item(Wave& wave, const DecodeParams& p, const Params& params, const Item& item) {
    wave.refresh();
    auto* const query = reinterpret_cast<Operand*>(wave.lds());
    const Rows rows = Rows::of(wave.workgroup_y(), wave.workgroup_z(), p.gqa_ratio, item);
    if (C::general && rows.count <= 0) return;
    WaveStream<M, C> stream(tile_stream(wave, p, params, item));
    QueryTile<M, C> query_tile;
    query_tile.request(wave, [&](int row) {
      const RowPlace at = rows.inside(row);
      return p.query.at(item.query_row + at.query_row, at.head);
    });
    const auto stage_query = [&] {
      query_tile.stage(wave, query);
      if constexpr (C::general) stage_facts(wave, params, rows, item);
      wave.barrier();
    };
    if (wave.index() < stream.tiles()) {
      stream.open(wave, wave.index());
      stage_query();
      stream.softmax.clear(wave);
      const int last = stream.full_tiles(wave, query, wave.index());
      stream.last_tile(wave, query, last);
    } else {
      stage_query();
      stream.softmax.clear(wave);
    }
    if (stream.met_negative_id()) report(wave, p.header, PlanError::block_id_negative, item.sequence);
    merge_waves(wave, p, params, item, rows, stream);
  }

  static HPA_DEVICE TileStream<C> tile_stream(const Wave& wave, const DecodeParams& p, const Params& params, const Item& item) {
    TileStream<C> stream;
    if constexpr (C::general) static_cast<TileFeatures&>(stream) = TileFeatures::of(wave.template reread<FeatureParams>(params), item, facts_of(wave));
    stream.keys = p.keys.head(wave.workgroup_y()), stream.values = p.values.head(wave.workgroup_y());
    stream.table_row = p.block_tables + item.sequence * p.table_row_stride;
    stream.begin = item.begin, stream.end = item.end;
    stream.scale_log2 = p.scale_log2 * logit_scale<C>(wave, params);
    return stream;
  }

  static HPA_DEVICE RowFacts* facts_of(const Wave& wave) { return reinterpret_cast<RowFacts*>(wave.lds() + facts_offset); }
  static HPA_DEVICE void stage_facts(const Wave& wave, const Params& params, const Rows& rows, const Item& item) {
    if (wave.index() != 0) return;
    const FeatureParams features = wave.template reread<FeatureParams>(params);
    wave.each([&](int lane) {
      if (lane < Products::rows) facts_of(wave)[lane] = read_facts<Wave>(features, item, rows.inside(lane));
    });
  }

  /// The waves' outputs become one, `rows_a_pass` rows at a time: states through LDS, then outputs through the same LDS.
  static HPA_DEVICE void merge_waves(Wave& wave, const DecodeParams& p, const Params& params, const Item& item, const Rows& rows, WaveStream<M, C>& stream) {
    wave.refresh();
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
        store_item<M, C>(p.result, finish, item, rows.at(row), 4 * chunk, sum * value_scale, merged[lane]);
      });
    }
  }

  static HPA_DEVICE unsigned thread_of(const Wave& wave, int lane) { return unsigned(wave.index() * M::width + lane); }
  static HPA_DEVICE int row_of(const Wave& wave, int lane, int first) { return first + int(thread_of(wave, lane) / chunks); }
  /// Where a wave leaves four elements of a row: rows are rotated against each other so that LDS banks are used evenly.
  static HPA_DEVICE int place_of(int wave, int row, int chunk) {
    return (wave * rows_a_pass + row) * chunks + (chunk & ~7) + ((chunk ^ row) & 7);
  }

  static HPA_DEVICE void write_states(const Wave& wave, PartialState* states, const WaveStream<M, C>& stream) {
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
    if (row >= Products::rows) return;
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
            if constexpr (run == 4) place = softmax.output[slot][dim][lane];
            else place[element % 4] = softmax.output[slot][dim][lane][i];
          }
        }
      }
    });
  }
};

}  // namespace hpa::kernel
