// reduce: merges the partials of split rows, in index order. A lane has four or eight elements of one head, a wave one to eight heads.
// Where rows are few, the waves of a workgroup share the partials of a row and meet in LDS; else each has a row of its own.
#pragma once

#include "hpa/kernel/result.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

template <bool General>
struct ReduceParams : FinishOf<General> {
  ResultView result;
  const PlanHeader* header;
  const SplitRow* split_rows;
  std::uint32_t stamp;
};

/// `RowWaves`: waves that share a row, all of a workgroup or one.
template <class M, int HeadSize, DType Out, bool General, int RowWaves>
struct ReduceKernel {
  using Machine = M;
  using Params = ReduceParams<General>;
  using Finish = FinishOf<General>;
  using Wave = typename M::Wave;
  using Floats4 = typename M::Floats4;
  template <class T>
  using Lane = typename M::template Lane<T>;
  static constexpr bool starts_early = true;
  static constexpr int waves = M::reduce_waves, rows = waves / RowWaves;  // of a workgroup
  // Registers that six workgroups would have: what the decode workgroups of a multiprocessor leave for one. Those of all features
  // leave none.
  static constexpr int resident_workgroups = RowWaves == waves || General ? 1 : 6;
  static constexpr int pieces = M::reduce_pieces;  // of four elements, that a lane has of its head
  static constexpr int lanes_a_head = HeadSize / 4 / pieces, piece_elements = HeadSize / pieces;
  static constexpr int heads_a_wave = M::width / lanes_a_head;
  static constexpr int batch = M::reduce_batch;  // partials that a wave has in flight at a time
  static constexpr int states_offset = waves * pieces * M::width * int(sizeof(Floats4));
  static constexpr int lds_bytes = RowWaves == 1 ? 0 : states_offset + waves * M::width * int(sizeof(PartialState));
  static_assert(M::width % lanes_a_head == 0 && (RowWaves == 1 || RowWaves == waves));

  /// Grid x covers split rows, grid y covers heads.
  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    const PlanCounts header = wave.template uniform<PlanCounts>(p.header);
    std::int32_t i = wave.workgroup_x() * rows + (rows > 1 ? wave.index() : 0);
    const bool any = header.stamp == p.stamp && i < header.num_split_rows;  // if the stamp differs, decode has reported it
    SplitRow row{};
    if (any) row = wave.uniform(p.split_rows + i);
    wave.allow_next_launch();
    wave.await_previous_launch();
    if (!any) return;
    for (;; row = wave.uniform(p.split_rows + i)) {
      const std::int32_t first_head = wave.workgroup_y() * heads_a_wave;
      Lane<Merged> merged;
      wave.each([&](int lane) {
        if (is_head(p, first_head, lane)) merge_share(wave, p.result, row, first_head, lane, merged[lane]);
      });
      if constexpr (RowWaves > 1) exchange(wave, merged);
      if (RowWaves == 1 || wave.index() == 0)
        wave.each([&](int lane) {
          if (is_head(p, first_head, lane)) store(p, row, first_head + lane / lanes_a_head, element_of(lane), merged[lane]);
        });
      if ((i += wave.workgroups_x() * rows) >= header.num_split_rows) return;
      if constexpr (RowWaves > 1) wave.barrier();  // LDS is free for the next row
    }
  }

 private:
  /// Of one head, what a lane has of it: `pieces` times four elements. `failed` is positive when a partition met a block id that
  /// cannot be.
  struct Merged {
    PartialState state{-__FLT_MAX__, 0.f};
    Floats4 sum[pieces] = {};
    float failed = 0.f;
  };

  static HPA_DEVICE bool is_head(const Params& p, std::int32_t first_head, int lane) {
    return first_head + lane / lanes_a_head < p.result.num_heads;
  }
  static HPA_DEVICE int element_of(int lane) { return 4 * (lane % lanes_a_head); }

  /// Partials of a row that fall to the wave: every RowWaves. A lane's head counts from the wave's first.
  static HPA_DEVICE void merge_share(const Wave& wave, const ResultView& result, const SplitRow& row, std::int32_t first_head,
                                     int lane, Merged& merged) {
    const auto head = unsigned(lane / lanes_a_head);
    const int element = element_of(lane);
    std::int32_t first = RowWaves == 1 ? 0 : wave.index();
    for (; row.partitions - first > 2 * RowWaves; first += batch * RowWaves)
      merge<batch>(wave, result, row, first, first_head, head, element, merged);
    if (first < row.partitions) merge<2>(wave, result, row, first, first_head, head, element, merged);
  }

  /// Adds partitions first, first + RowWaves, .., N of them. Past the row's last the last one is loaded again, so that all loads are in
  /// flight at once. A head's pieces are `piece_elements` apart, so that its lanes load whole segments.
  template <int N>
  static HPA_DEVICE void merge(const Wave& wave, const ResultView& result, const SplitRow& row, std::int32_t first,
                               std::int32_t first_head, std::uint32_t head, int element, Merged& merged) {
    PartialState state[N];
    Floats4 part[N][pieces];
    HPA_UNROLL
    for (int i = 0; i < N; ++i) {
      const std::int32_t index = first + i * RowWaves < row.partitions ? first + i * RowWaves : row.partitions - 1;
      const std::int32_t slot = row.slot + (General ? index * row.step : index);
      const std::int64_t partial = std::int64_t(slot) * result.num_heads + first_head;  // of the wave's first head
      state[i] = M::Wave::template load<PartialState>(result.states + partial + head);
      HPA_UNROLL
      for (int piece = 0; piece < pieces; ++piece)
        part[i][piece] = M::Wave::template load<Floats4>(result.partial + partial * HeadSize +
                                                         (head * HeadSize + unsigned(element)) + piece * piece_elements);
    }
    wave.keep_order();
    float maximum = merged.state.maximum;
    HPA_UNROLL
    for (int i = 0; i < N; ++i) maximum = M::max(maximum, state[i].maximum);
    const float keep = M::exp2(merged.state.maximum - maximum);
    merged.state = {maximum, merged.state.total * keep};
    HPA_UNROLL
    for (int piece = 0; piece < pieces; ++piece) merged.sum[piece] = merged.sum[piece] * keep;
    HPA_UNROLL
    for (int i = 0; i < N; ++i)
      add(merged, first + i * RowWaves < row.partitions ? M::exp2(state[i].maximum - maximum) : 0.f, state[i].total, part[i]);
  }

  static HPA_DEVICE void add(Merged& merged, float share, float total, const Floats4 (&part)[pieces]) {
    merged.failed = M::max(-total, merged.failed);  // in this order a NaN is passed over
    merged.state.total += total * share;
    HPA_UNROLL
    for (int piece = 0; piece < pieces; ++piece) merged.sum[piece] = merged.sum[piece] + part[piece] * share;
  }

  /// The first wave's become those of all waves, in order.
  static HPA_DEVICE void exchange(Wave& wave, Lane<Merged>& merged) {
    auto* const sums = reinterpret_cast<Floats4*>(wave.lds());
    auto* const states = reinterpret_cast<PartialState*>(wave.lds() + states_offset);
    const auto place = [&](int w, int lane, int piece) { return (w * pieces + piece) * M::width + lane; };
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int piece = 0; piece < pieces; ++piece) sums[place(wave.index(), lane, piece)] = merged[lane].sum[piece];
      states[wave.index() * M::width + lane] = state_of(merged[lane]);
    });
    wave.barrier();
    if (wave.index() != 0) return;
    wave.each([&](int lane) {
      Merged all;
      HPA_UNROLL
      for (int w = 0; w < waves; ++w) all.state.maximum = M::max(all.state.maximum, states[w * M::width + lane].maximum);
      HPA_UNROLL
      for (int w = 0; w < waves; ++w) {
        const PartialState state = states[w * M::width + lane];
        Floats4 part[pieces];
        HPA_UNROLL
        for (int piece = 0; piece < pieces; ++piece) part[piece] = sums[place(w, lane, piece)];
        add(all, M::exp2(state.maximum - all.state.maximum), state.total, part);
      }
      merged[lane] = all;
    });
  }

  static HPA_DEVICE PartialState state_of(const Merged& merged) {
    return {merged.state.maximum, merged.failed > 0.f ? -1.f : merged.state.total};
  }

  static HPA_DEVICE void store(const Params& p, const SplitRow& row, std::int32_t head, int element, const Merged& merged) {
    HPA_UNROLL
    for (int piece = 0; piece < pieces; ++piece)
      store_result<M, Out>(p.result, static_cast<const Finish&>(p), row.query_row, head, element + piece * piece_elements,
                           merged.sum[piece], state_of(merged));
  }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
