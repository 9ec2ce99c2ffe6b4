// ReduceKernel: merges the partials of split rows, in the order of their index. A lane has four or eight elements of one head, a
// wave one to eight heads. Where rows are few, the waves of a workgroup take turns at the partials of a row and meet in LDS;
// otherwise each wave has a row.
#pragma once

#include "hpa/kernel/result.hpp"
#include "hpa/tuning/kernel_shape.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// What a reduce kernel has of decode's features: nothing, or all that concern it. So there are two of them, whatever sets decode has.
constexpr Features reduce_features(Features decode) {
  constexpr Features all = Features::query_rows | Features::sinks | Features::fp8_out;
  return has_any(decode, all) ? all : Features::none;
}

template <Features Can>
struct ReduceParams : FinishOf<Can> {
  ResultView result;
  const PlanHeader* header;
  const SplitRow* split_rows;
  std::uint32_t stamp;
};

/// The reduce kernel. `RowWaves`: waves that merge a row together, all of a workgroup or one. Grid x covers split rows, grid y
/// heads.
template <class M, int HeadSize, DType Out, Features Can, int RowWaves>
struct ReduceKernel {
  using Machine = M;
  using Params = ReduceParams<Can>;
  using Finish = FinishOf<Can>;
  using Wave = typename M::Wave;
  using Floats4 = typename M::Floats4;
  template <class T>
  using Lane = typename M::template Lane<T>;
  static constexpr bool starts_early = true;
  static constexpr tuning::ReduceShape numbers = M::Tuning::reduce_kernel_shape(HeadSize, Can != Features::none, RowWaves);
  static constexpr tuning::KernelShape shape = numbers.kernel;
  static constexpr int waves = shape.waves, rows = waves / RowWaves;  // of a workgroup
  static constexpr int vectors = numbers.vectors;                     // of four elements each, that a lane has of its head
  static constexpr int lanes_per_head = HeadSize / 4 / vectors, vector_stride = HeadSize / vectors;
  static constexpr int heads_per_wave = M::width / lanes_per_head;
  static constexpr int batch = numbers.partials_ahead;  // partials that a wave has in flight at a time
  /// LDS in which the waves of a row exchange what they merged.
  struct Lds {
    Floats4 sum[waves][vectors][M::width];
    RowState state[waves][M::width];
  };
  static constexpr int lds_bytes = RowWaves == 1 ? 0 : int(sizeof(Lds));
  static_assert(lanes_per_head > 0 && M::width % lanes_per_head == 0, "vectors in tuning/: the lanes of a head must divide a wave");
  static_assert(RowWaves == 1 || RowWaves == waves, "a row has all waves of a workgroup or one");

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
      const std::int32_t first_head = wave.workgroup_y() * heads_per_wave;
      Lane<Merged> merged;
      wave.each([&](int lane) {
        if (is_head(p, first_head, lane)) merge_partials(wave, p.result, row, first_head, lane, merged[lane]);
      });
      if constexpr (RowWaves > 1) exchange(wave, merged);
      if (RowWaves == 1 || wave.index() == 0)
        wave.each([&](int lane) {
          if (is_head(p, first_head, lane)) store(p, row, first_head + lane / lanes_per_head, element_of(lane), merged[lane]);
        });
      if ((i += wave.workgroups_x() * rows) >= header.num_split_rows) return;
      if constexpr (RowWaves > 1) wave.barrier();  // LDS is free for the next row
    }
  }

 private:
  /// A lane's result for one head: its state, and `vectors` times four elements.
  struct Merged {
    RowState state = RowState::none();
    Floats4 sum[vectors] = {};
  };

  static HPA_DEVICE bool is_head(const Params& p, std::int32_t first_head, int lane) {
    return first_head + lane / lanes_per_head < p.result.num_heads;
  }
  static HPA_DEVICE int element_of(int lane) { return 4 * (lane % lanes_per_head); }

  /// Merges the wave's partials of a row: every RowWaves-th. `first_head`: the wave's first head.
  static HPA_DEVICE void merge_partials(const Wave& wave, const ResultView& result, const SplitRow& row, std::int32_t first_head,
                                        int lane, Merged& merged) {
    const auto head = unsigned(lane / lanes_per_head);
    const int element = element_of(lane);
    std::int32_t first = RowWaves == 1 ? 0 : wave.index();
    for (; row.partitions - first > 2 * RowWaves; first += batch * RowWaves)
      merge<batch>(wave, result, row, first, first_head, head, element, merged);
    if (first < row.partitions) merge<2>(wave, result, row, first, first_head, head, element, merged);
  }

  /// Adds partitions first, first + RowWaves, .., N of them. In place of partitions past the last it loads the last once more, so
  /// that all loads are in flight at once. A head's vectors are `vector_stride` apart, so that its lanes load whole segments.
  template <int N>
  static HPA_DEVICE void merge(const Wave& wave, const ResultView& result, const SplitRow& row, std::int32_t first,
                               std::int32_t first_head, std::uint32_t head, int element, Merged& merged) {
    RowState state[1 + N];
    float weight[1 + N];
    Floats4 partial_sum[N][vectors];
    HPA_UNROLL
    for (int i = 0; i < N; ++i) {
      const std::int32_t index = first + i * RowWaves < row.partitions ? first + i * RowWaves : row.partitions - 1;
      const std::int32_t partial = row.partial + (covers(Can, Features::query_rows) ? index * row.step : index);
      const std::int64_t at = std::int64_t(partial) * result.num_heads + first_head;  // of the wave's first head
      state[1 + i] = M::Wave::template load<RowState>(result.states + at + head);
      HPA_UNROLL
      for (int vector = 0; vector < vectors; ++vector)
        partial_sum[i][vector] = M::Wave::template load<Floats4>(result.partials + at * HeadSize +
                                                                 (head * HeadSize + unsigned(element)) + vector * vector_stride);
    }
    wave.keep_order();
    state[0] = merged.state;
    merged.state = RowState::merged<M>(state, weight, 1 + (row.partitions - first + RowWaves - 1) / RowWaves);
    HPA_UNROLL
    for (int vector = 0; vector < vectors; ++vector) {
      merged.sum[vector] = merged.sum[vector] * weight[0];
      HPA_UNROLL
      for (int i = 0; i < N; ++i) merged.sum[vector] = merged.sum[vector] + partial_sum[i][vector] * weight[1 + i];
    }
  }

  /// Merges what all waves of the row have into the first wave, in order.
  static HPA_DEVICE void exchange(Wave& wave, Lane<Merged>& merged) {
    auto& lds = *reinterpret_cast<Lds*>(wave.lds());
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int vector = 0; vector < vectors; ++vector) lds.sum[wave.index()][vector][lane] = merged[lane].sum[vector];
      lds.state[wave.index()][lane] = merged[lane].state;
    });
    wave.barrier();
    if (wave.index() != 0) return;
    wave.each([&](int lane) {
      RowState state[waves];
      float weight[waves];
      HPA_UNROLL
      for (int w = 0; w < waves; ++w) state[w] = lds.state[w][lane];
      Merged all{RowState::merged<M>(state, weight)};
      HPA_UNROLL
      for (int w = 0; w < waves; ++w) {
        HPA_UNROLL
        for (int vector = 0; vector < vectors; ++vector) all.sum[vector] = all.sum[vector] + lds.sum[w][vector][lane] * weight[w];
      }
      merged[lane] = all;
    });
  }

  static HPA_DEVICE void store(const Params& p, const SplitRow& row, std::int32_t head, int element, const Merged& merged) {
    HPA_UNROLL
    for (int vector = 0; vector < vectors; ++vector)
      store_result<M, Out>(p.result, static_cast<const Finish&>(p), row.query_row, head, element + vector * vector_stride,
                           merged.sum[vector], merged.state);
  }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
