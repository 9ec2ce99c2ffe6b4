// reduce: merges the partials of split rows, in index order. A lane has four elements of one head; a wave has one to four heads.
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
  static constexpr int lanes_a_head = HeadSize / 4;
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
      wave.each([&](int lane) {
        const std::int32_t head = wave.workgroup_y() * heads_a_wave + lane / lanes_a_head;
        if (head < p.result.num_heads) merge_row(p.result, p, row, head, 4 * (lane % lanes_a_head));
      });
      if ((i += wave.workgroups_x() * waves) >= header.num_split_rows) return;
    }
  }

 private:
  static HPA_DEVICE void merge_row(const ResultView& result, const Finish& finish, const SplitRow& row, std::int32_t head, int element) {
    PartialState merged{-__FLT_MAX__, 0.f};
    Floats4 sum = Floats4::zero();
    bool failed = false;
    for (std::int32_t first = 0; first < row.partitions; first += batch) {
      PartialState state[batch];
      Floats4 part[batch];
      HPA_UNROLL
      for (int i = 0; i < batch; ++i) {  // past the last partition the last one again, so that all loads are in flight at once
        const std::int32_t index = first + i < row.partitions ? first + i : row.partitions - 1;
        const std::int64_t partial = std::int64_t(row.slot + (General ? index * row.step : index)) * result.num_heads + head;
        state[i] = M::Wave::template load<PartialState>(result.states + partial);
        part[i] = M::Wave::template load<Floats4>(result.partial + partial * HeadSize + element);
      }
      float maximum = merged.maximum;
      HPA_UNROLL
      for (int i = 0; i < batch; ++i) maximum = M::max(maximum, state[i].maximum);
      const float keep = M::exp2(merged.maximum - maximum);
      merged.total *= keep;
      sum = sum * keep;
      HPA_UNROLL
      for (int i = 0; i < batch; ++i) {
        const float share = first + i < row.partitions ? M::exp2(state[i].maximum - maximum) : 0.f;
        failed = failed || state[i].total < 0.f;
        merged.total += state[i].total * share;
        sum = sum + part[i] * share;
      }
      merged.maximum = maximum;
    }
    if (failed) merged.total = -1.f;
    store_result<M, Out>(result, finish, row.query_row, head, element, sum, merged);
  }
};

}  // namespace hpa::kernel
