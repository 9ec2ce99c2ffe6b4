// decode: a fixed grid of workgroups loops over the items of the plan. The waves of a workgroup stream tiles of their own and meet
// at the item's end to merge.
#pragma once

#include "hpa/kernel/decode_tile.hpp"
#include "hpa/kernel/work_list.hpp"

namespace hpa::kernel {

/// Rows of query and out: [row, head]; strides in bytes, between heads below 4 GiB.
struct RowView {
  char* data;
  std::int64_t row_stride;
  std::uint32_t head_stride;
  HPA_HOST_DEVICE char* at(std::int64_t row, std::int32_t head) const {
    return data + row * row_stride + std::uint64_t(std::uint32_t(head)) * head_stride;
  }
};

/// Where results go: the output itself, or partials for the reduce kernel.
struct ResultView {
  RowView out;
  float* lse;              // [num_rows, num_heads] or nullptr
  float* partial;          // [slots, num_heads, head_size]
  PartialState* states;    // [slots, num_heads]
  std::int32_t num_heads;
};

struct DecodeParams {
  RowView query;
  KvView keys, values;
  const std::int32_t* block_tables;
  std::int64_t table_row_stride;
  ResultView result;
  const float* alibi_slopes;
  PlanHeader* header;
  const Item* items;
  const std::int32_t* shares;  // Split::balanced: where a workgroup's items begin and end; else nullptr, and they lie a grid apart
  std::int32_t gqa_ratio;  // grid y covers KV heads, grid z their query rows, 16 at a time
  float scale_log2;
  std::uint32_t stamp;
  bool cache_is_ready;  // DecodeArgs::cache_is_ready
};

/// Writes four neighbouring elements of one row's result. `sum` is not divided yet.
template <class M, DType Out, class Floats4>
HPA_DEVICE void store_result(const ResultView& result, std::int64_t row, std::int32_t head, int element, const Floats4& sum,
                             const PartialState& state) {
  const bool empty = state.total == 0.f || state.total < 0.f;  // NaN is not empty
  const float divide = empty ? 0.f : M::reciprocal(state.total);
  Words<2> packed{{0, 0}};
  if (!empty)
    packed = {{M::template pack<Out>(sum[0] * divide, sum[1] * divide), M::template pack<Out>(sum[2] * divide, sum[3] * divide)}};
  M::Wave::store(result.out.at(row, head) + element * size_of(Out), packed);
  if (result.lse != nullptr && element == 0)
    M::Wave::store(result.lse + row * result.num_heads + head,
                   empty ? -__builtin_inff() : (state.maximum + M::log2(state.total)) * ln_2);
}

/// The same for an item: the row's output if the item is all of it, else a partial for the reduce kernel.
template <class M, class C, class Floats4>
HPA_DEVICE void store_item(const ResultView& result, const Item& item, std::int32_t head, int element, const Floats4& sum,
                           const PartialState& state) {
  if (item.slot < 0) return store_result<M, C::out>(result, item.query_row, head, element, sum, state);
  const std::int64_t partial = std::int64_t(item.slot) * result.num_heads + head;
  M::Wave::store(result.partial + partial * C::head_size + element, sum);
  if (element == 0) M::Wave::store(result.states + partial, state);
}

template <class Wave>
HPA_DEVICE void report(const Wave& wave, PlanHeader* header, PlanError error, std::int32_t sequence) {
  wave.each([&](int lane) {
    if (lane == 0) wave.atomic_min(&header->first_error, encode_error(error, sequence));
  });
}

template <class M, class C>
struct DecodeKernel {
  using Machine = M;
  using Params = DecodeParams;
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
  static constexpr int slopes_offset = states_offset + states_bytes;
  static constexpr int stream_bytes = slopes_offset + (C::alibi ? Products::rows * int(sizeof(float)) : 0);
  static constexpr int lds_bytes = merge_bytes > stream_bytes ? merge_bytes : stream_bytes;
  static_assert(rows_a_pass > 0 && Products::rows % rows_a_pass == 0);

  /// The query rows of a workgroup: 16 at most, of one KV head.
  struct Rows {
    std::int32_t kv_head, first_head, count;
  };

  static HPA_DEVICE void run(Wave& wave, const Params& params) {
    const Params p = wave.loaded(params);
    const PlanCounts header = wave.template uniform<PlanCounts>(p.header);
    std::int32_t i = wave.workgroup_x(), end = header.num_items, step = wave.workgroups_x();
    if (p.shares != nullptr) {
      end = wave.uniform(p.shares + i + 1), i = wave.uniform(p.shares + i), step = 1;
      if (i >= end) i = end = 0;
    }
    Item item = wave.uniform(p.items + i);  // beside the header: the list is never shorter than the grid is wide
    if (header.stamp != p.stamp) return report(wave, p.header, PlanError::other_shape, 0);
    const std::int32_t kv_head = wave.workgroup_y(), first = wave.workgroup_z() * Products::rows;
    const std::int32_t left = p.gqa_ratio - first;
    const Rows rows{kv_head, kv_head * p.gqa_ratio + first, left < Products::rows ? left : Products::rows};
    while (i < end) {
      decode_item(wave, p, item, rows);
      i += step;
      if (i >= end) break;
      item = wave.uniform(p.items + i);
      wave.barrier();  // LDS is free for the next item
    }
  }

 private:
  static HPA_DEVICE void decode_item(Wave& wave, const Params& p, const Item& item, const Rows& rows) {
    wave.refresh();
    auto* const query = reinterpret_cast<Operand*>(wave.lds());
    auto* const slopes = reinterpret_cast<float*>(wave.lds() + slopes_offset);
    WaveStream<M, C> stream({p.keys.head(rows.kv_head), p.values.head(rows.kv_head), p.block_tables + item.sequence * p.table_row_stride,
                             item.begin, item.end, item.seq_len - 1, p.scale_log2, slopes});
    QueryTile<M, C> query_tile;
    query_tile.request(wave, [&](int row) {
      return p.query.at(item.query_row, rows.first_head + (row < rows.count ? row : rows.count - 1));
    });
    const auto stage_query = [&] {
      query_tile.stage(wave, query);
      if constexpr (C::alibi) stage_slopes(wave, p, rows, slopes);
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
    merge_waves(wave, p, item, rows, stream);
  }

  static HPA_DEVICE void stage_slopes(Wave& wave, const Params& p, const Rows& rows, float* slopes) {
    if (wave.index() != 0) return;
    wave.each([&](int lane) {
      if (lane < Products::rows)
        slopes[lane] = wave.template load<float>(p.alibi_slopes + rows.first_head + (lane < rows.count ? lane : rows.count - 1)) * log2_e;
    });
  }

  /// The waves' outputs become one, `rows_a_pass` rows at a time: states through LDS, then outputs through the same LDS.
  static HPA_DEVICE void merge_waves(Wave& wave, const Params& p, const Item& item, const Rows& rows, WaveStream<M, C>& stream) {
    wave.refresh();
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
        store_item<M, C>(p.result, item, rows.first_head + row, 4 * chunk, sum, merged[lane]);
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
