// reduce: merges the partials of split rows, in index order. A lane has four or eight elements of one head, a wave one to eight heads.
#pragma once

#include "hpa/kernel/result.hpp"

namespace hpa::kernel {

template <bool General>
struct ReduceParams : FinishOf<General> {
  ResultView result;
  const PlanHeader* header;
  const SplitRow* split_rows;
  std::uint32_t stamp;
};

template <class M, int HeadSize, DType Out, bool General>
struct ReduceKernel {
  using Machine = M;
  using Params = ReduceParams<General>;
  using Finish = FinishOf<General>;
  using Wave = typename M::Wave;
  using Floats4 = typename M::Floats4;
  static constexpr bool starts_early = true;
  static constexpr int waves = M::reduce_waves;
  static constexpr int lds_bytes = 0;
  static constexpr int pieces = M::reduce_pieces;  // of four elements, that a lane has of its head
  static constexpr int lanes_a_head = HeadSize / 4 / pieces, piece_elements = HeadSize / pieces;
  static constexpr int heads_a_wave = M::width / lanes_a_head;
  static constexpr int batch = M::reduce_batch;  // partials in flight at a time
  static_assert(M::width % lanes_a_head == 0);

  /// Grid x and the waves of a workgroup cover split rows, grid y covers heads.
  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    const PlanCounts header = wave.template uniform<PlanCounts>(p.header);
    std::int32_t i = wave.workgroup_x() * waves + wave.index();
    const bool any = header.stamp == p.stamp && i < header.num_split_rows;  // if the stamp differs, decode has reported it
    SplitRow row{};
    if (any) row = wave.uniform(p.split_rows + i);
    wave.allow_next_launch();
    wave.await_previous_launch();
    if (!any) return;
    for (;; row = wave.uniform(p.split_rows + i)) {
      const std::int32_t first_head = wave.workgroup_y() * heads_a_wave;
      wave.each([&](int lane) {
        const int head = lane / lanes_a_head;
        if (first_head + head < p.result.num_heads) merge_row(wave, p, row, first_head, unsigned(head), 4 * (lane % lanes_a_head));
      });
      if ((i += wave.workgroups_x() * waves) >= header.num_split_rows) return;
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

  /// `head` counts from the wave's first. A head's pieces are `piece_elements` apart, so that its lanes load whole segments.
  static HPA_DEVICE void merge_row(const Wave& wave, const Params& p, const SplitRow& row, std::int32_t first_head, std::uint32_t head,
                                   int element) {
    Merged merged;
    std::int32_t first = 0;
    for (; row.partitions - first > 2; first += batch) merge<batch>(wave, p.result, row, first, first_head, head, element, merged);
    if (first < row.partitions) merge<2>(wave, p.result, row, first, first_head, head, element, merged);
    if (merged.failed > 0.f) merged.state.total = -1.f;
    HPA_UNROLL
    for (int piece = 0; piece < pieces; ++piece)
      store_result<M, Out>(p.result, static_cast<const Finish&>(p), row.query_row, first_head + std::int32_t(head),
                           element + piece * piece_elements, merged.sum[piece], merged.state);
  }

  /// Adds partitions [first, first + N). Past the row's last the last one is loaded again, so that all loads are in flight at once.
  template <int N>
  static HPA_DEVICE void merge(const Wave& wave, const ResultView& result, const SplitRow& row, std::int32_t first,
                               std::int32_t first_head, std::uint32_t head, int element, Merged& merged) {
    PartialState state[N];
    Floats4 part[N][pieces];
    HPA_UNROLL
    for (int i = 0; i < N; ++i) {
      const std::int32_t index = first + i < row.partitions ? first + i : row.partitions - 1;
      const std::int64_t partial = std::int64_t(row.slot + (General ? index * row.step : index)) * result.num_heads + first_head;  // of the wave's first head
      state[i] = M::Wave::template load<PartialState>(result.states + partial + head);
      HPA_UNROLL
      for (int piece = 0; piece < pieces; ++piece)
        part[i][piece] = M::Wave::template load<Floats4>(result.partial + partial * HeadSize + (head * HeadSize + unsigned(element)) +
                                                         piece * piece_elements);
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
    for (int i = 0; i < N; ++i) {
      const float share = first + i < row.partitions ? M::exp2(state[i].maximum - maximum) : 0.f;
      merged.failed = M::max(-state[i].total, merged.failed);  // in this order a NaN is passed over
      merged.state.total += state[i].total * share;
      HPA_UNROLL
      for (int piece = 0; piece < pieces; ++piece) merged.sum[piece] = merged.sum[piece] + part[i][piece] * share;
    }
  }
};

}  // namespace hpa::kernel
