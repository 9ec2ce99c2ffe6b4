// reduce: merges the partials of split rows, in index order. A lane has four elements of one head; a wave has one to four heads. The
// waves of a workgroup share the partials of a row and meet in LDS.
#pragma once

#include "hpa/kernel/decode_kernel.hpp"

namespace hpa::kernel {

struct ReduceParams {
  ResultView result;
  const PlanHeader* header;
  const SplitRow* split_rows;
  std::uint32_t stamp;
};

template <class M, int HeadSize, DType Out>
struct ReduceKernel {
  using Machine = M;
  using Params = ReduceParams;
  using Wave = typename M::Wave;
  using Floats4 = typename M::Floats4;
  template <class T>
  using Lane = typename M::template Lane<T>;
  static constexpr bool starts_early = true;
  static constexpr int waves = M::reduce_waves;
  static constexpr int lanes_a_head = HeadSize / 4;
  static constexpr int heads_a_wave = M::width / lanes_a_head;
  static constexpr int batch = M::reduce_batch;  // partials that a wave has in flight at a time
  static constexpr int states_offset = waves * M::width * int(sizeof(Floats4));
  static constexpr int lds_bytes = waves == 1 ? 0 : states_offset + waves * M::width * int(sizeof(PartialState));
  static_assert(M::width % lanes_a_head == 0);

  /// Grid x covers split rows, grid y covers heads.
  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    const PlanCounts header = wave.template uniform<PlanCounts>(p.header);
    std::int32_t i = wave.workgroup_x();
    const bool any = header.stamp == p.stamp && i < header.num_split_rows;  // if the stamp differs, decode has reported it
    SplitRow row{};
    if (any) row = wave.uniform(p.split_rows + i);
    wave.allow_next_launch();
    wave.await_previous_launch();
    if (!any) return;
    for (;; row = wave.uniform(p.split_rows + i)) {
      Lane<Merged> merged;
      wave.each([&](int lane) {
        merged[lane] = merge_share(p.result, row, head_of(wave, p.result, lane), element_of(lane), wave.index());
      });
      if constexpr (waves > 1) exchange(wave, merged);
      if (wave.index() == 0)
        wave.each([&](int lane) {
          const std::int32_t head = wave.workgroup_y() * heads_a_wave + lane / lanes_a_head;
          if (head < p.result.num_heads)
            store_result<M, Out>(p.result, row.query_row, head, element_of(lane), merged[lane].sum, merged[lane].state);
        });
      if ((i += wave.workgroups_x()) >= header.num_split_rows) return;
      if constexpr (waves > 1) wave.barrier();  // LDS is free for the next row
    }
  }

 private:
  struct Merged {
    Floats4 sum;
    PartialState state;
  };

  /// Heads past the last are read as the last one.
  static HPA_DEVICE std::int32_t head_of(const Wave& wave, const ResultView& result, int lane) {
    const std::int32_t head = wave.workgroup_y() * heads_a_wave + lane / lanes_a_head;
    return head < result.num_heads ? head : result.num_heads - 1;
  }
  static HPA_DEVICE int element_of(int lane) { return 4 * (lane % lanes_a_head); }

  /// Partials first, first + waves, .. of a row. Past the last one the last again, with no weight, so that all loads are in flight at once.
  static HPA_DEVICE Merged merge_share(const ResultView& result, const SplitRow& row, std::int32_t head, int element, std::int32_t first) {
    Merged merged{Floats4::zero(), {-__FLT_MAX__, 0.f}};
    bool failed = false;
    for (; first < row.partitions; first += batch * waves) {
      PartialState state[batch];
      Floats4 part[batch];
      HPA_UNROLL
      for (int i = 0; i < batch; ++i) {
        const std::int32_t index = first + i * waves < row.partitions ? first + i * waves : row.partitions - 1;
        const std::int64_t partial = std::int64_t(row.slot + index) * result.num_heads + head;
        state[i] = M::Wave::template load<PartialState>(result.states + partial);
        part[i] = M::Wave::template load<Floats4>(result.partial + partial * HeadSize + element);
      }
      float maximum = merged.state.maximum;
      HPA_UNROLL
      for (int i = 0; i < batch; ++i) maximum = M::max(maximum, state[i].maximum);
      const float keep = M::exp2(merged.state.maximum - maximum);
      merged.state.total *= keep;
      merged.sum = merged.sum * keep;
      HPA_UNROLL
      for (int i = 0; i < batch; ++i) {
        const float share = first + i * waves < row.partitions ? M::exp2(state[i].maximum - maximum) : 0.f;
        failed = failed || state[i].total < 0.f;
        merged.state.total += state[i].total * share;
        merged.sum = merged.sum + part[i] * share;
      }
      merged.state.maximum = maximum;
    }
    if (failed) merged.state.total = -1.f;
    return merged;
  }

  /// The first wave's become those of all waves, in order.
  static HPA_DEVICE void exchange(Wave& wave, Lane<Merged>& merged) {
    auto* const sums = reinterpret_cast<Floats4*>(wave.lds());
    auto* const states = reinterpret_cast<PartialState*>(wave.lds() + states_offset);
    wave.each([&](int lane) {
      sums[wave.index() * M::width + lane] = merged[lane].sum;
      states[wave.index() * M::width + lane] = merged[lane].state;
    });
    wave.barrier();
    if (wave.index() != 0) return;
    wave.each([&](int lane) {
      Merged all{Floats4::zero(), merged[lane].state};
      bool failed = false;
      HPA_UNROLL
      for (int w = 1; w < waves; ++w) all.state.maximum = M::max(all.state.maximum, states[w * M::width + lane].maximum);
      all.state.total = 0.f;
      HPA_UNROLL
      for (int w = 0; w < waves; ++w) {
        const PartialState state = states[w * M::width + lane];
        const float share = M::exp2(state.maximum - all.state.maximum);
        failed = failed || state.total < 0.f;
        all.state.total += state.total * share;
        all.sum = all.sum + sums[w * M::width + lane] * share;
      }
      if (failed) all.state.total = -1.f;
      merged[lane] = all;
    });
  }
};

}  // namespace hpa::kernel
