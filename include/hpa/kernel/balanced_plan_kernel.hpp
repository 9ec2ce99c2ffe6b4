// BalancedPlanKernel: plan for Split::balanced. Every workgroup gets work of the same cost.
#pragma once

#include "hpa/kernel/plan_stride.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// Sequences lie end to end on a line. The length of each is its cost: `sequence_cost`, then its tokens. Borders at multiples of
/// `share` cut the line into shares. A border cuts a sequence, unless that would leave an item of less than `min_tokens` at either
/// end of it: then the sequence is whole on one side of the border.
struct CostLine {
  static constexpr int grain = 64;  // tokens: cuts are at multiples of it
  std::int32_t sequence_cost, min_tokens;
  std::int64_t share;

  /// Borders [first, end) lie in a sequence. Those from `first_cut` on cut it into `items` items.
  struct Borders {
    std::int32_t first, end, first_cut, items;
  };

  static HPA_HOST_DEVICE constexpr std::int64_t share_of(const PartitionRule& rule, std::int64_t all) {
    const std::int64_t share = ceil_div(all, rule.shares), least = rule.sequence_cost + rule.min_partition + grain;
    return share > least ? share : least;  // at most one border is too near to a sequence's start, and one to its end
  }
  static HPA_HOST_DEVICE constexpr std::int64_t cost(const PartitionRule& rule, std::int32_t tokens) {
    return rule.sequence_cost + (std::int64_t{tokens} + grain - 1) / grain * grain;
  }
  HPA_HOST_DEVICE constexpr std::int32_t first_border_from(std::int64_t position) const {
    return std::int32_t(ceil_div(position, share));
  }

  /// The borders of a sequence that starts at `start` on the line, costs `cost` and has `tokens` tokens.
  HPA_HOST_DEVICE constexpr Borders borders(std::int64_t start, std::int64_t cost, std::int32_t tokens) const {
    Borders b{first_border_from(start), first_border_from(start + cost), 0, 1};
    if (b.first == b.end) return b;
    b.first_cut = b.first + (b.first * share - start < sequence_cost + min_tokens ? 1 : 0);
    const std::int32_t last_cut = b.end - 1 - ((b.end - 1) * share - start > sequence_cost + tokens - min_tokens ? 1 : 0);
    if (last_cut >= b.first_cut) b.items = last_cut - b.first_cut + 2;
    return b;
  }
  /// The tokens of a sequence before a border that cuts it.
  HPA_HOST_DEVICE constexpr std::int32_t tokens_before(std::int32_t border, std::int64_t start) const {
    return std::int32_t((border * share - start - sequence_cost) / grain * grain);
  }
};

/// Items, partials (in units of max_query_len) and query rows to merge.
struct ItemCounts {
  std::int32_t items, partials, split_rows;
  HPA_HOST_DEVICE constexpr ItemCounts operator+(const ItemCounts& o) const {
    return {items + o.items, partials + o.partials, split_rows + o.split_rows};
  }
};

/// The plan kernel of Split::balanced. `OneStride`: one workgroup reads all sequences.
template <class M, bool OneStride>
struct BalancedPlanKernel {
  using Machine = M;
  using Params = PlanParams;
  using Wave = typename M::Wave;
  using Stride = PlanStride<M>;
  template <class T>
  using Lane = typename M::template Lane<T>;
  static constexpr bool starts_early = true;
  static constexpr tuning::KernelShape shape = Stride::numbers.kernel;
  static constexpr int waves = shape.waves;
  static constexpr int starts_bytes = Stride::template lds_bytes<OneStride, std::int64_t>();
  static constexpr int counts_bytes = Stride::template Scan<ItemCounts>::lds_bytes;
  static constexpr int lds_bytes = starts_bytes > counts_bytes ? starts_bytes : counts_bytes;

  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    wave.await_previous_launch();
    Stride::clear_report(wave, p);
    const std::int32_t first = Stride::first_sequence(wave);
    Lane<Request> requests;
    const auto others = Stride::template read_sequences<OneStride, std::int64_t>(
        wave, p, requests, [&](const Request& request) { return cost_of(p, request); });
    Lane<std::int64_t> starts;
    const std::int64_t in_stride = lay_end_to_end(wave, p, requests, starts);
    const std::int64_t all = others.before + in_stride + others.after;
    const CostLine line{p.rule.sequence_cost, p.rule.min_partition, CostLine::share_of(p.rule, all)};
    ItemCounts counts{};
    if constexpr (!OneStride) counts = counts_before(wave, p, line, first);
    wave.each([&](int lane) { starts[lane] += others.before; });
    Lane<CostLine::Borders> borders;
    Lane<ItemCounts> before;
    cut(wave, p, line, requests, starts, borders, before);
    const ItemCounts own_counts = Stride::sum(wave, before);
    if constexpr (OneStride) Stride::report_errors(wave, p, first, requests);
    wave.each([&](int lane) {
      if (requests[lane].active && Stride::writes(wave))
        write(p, line, requests[lane], borders[lane], Stride::sequence(wave, first, lane), starts[lane], counts + before[lane]);
    });
    if (wave.workgroup_x() != wave.workgroups_x() - 1) return;
    counts = counts + own_counts;
    wave.each([&](int lane) {  // the remaining shares are empty
      HPA_DO_NOT_UNROLL
      for (std::int32_t k = line.first_border_from(all) + wave.index() * M::width + lane; k <= p.rule.shares; k += waves * M::width)
        p.shares[k] = counts.items;
    });
    Stride::write_counts(wave, p, counts.items, counts.split_rows, counts.partials);
  }

 private:
  /// The counts of the sequences before `end`.
  static HPA_DEVICE ItemCounts counts_before(Wave& wave, const PlanParams& p, const CostLine& line, std::int32_t end) {
    Lane<ItemCounts> sums;
    wave.each([&](int lane) { sums[lane] = {}; });
    Earlier earlier{};
    std::int64_t start = 0;
    Stride::each(wave, p, 0, end, earlier, [&](std::int32_t, const Lane<Request>& requests) {
      Lane<std::int64_t> starts;
      const std::int64_t cost = lay_end_to_end(wave, p, requests, starts);
      wave.each([&](int lane) { starts[lane] += start; });
      Lane<CostLine::Borders> borders;
      Lane<ItemCounts> counts;
      cut(wave, p, line, requests, starts, borders, counts);
      wave.each([&](int lane) { sums[lane] = sums[lane] + counts[lane]; });
      start += cost;
    });
    return Stride::sum(wave, sums);
  }

  /// Computes where on the line each sequence of a stride starts, if the first starts at 0. Returns the cost of all of them.
  static HPA_DEVICE std::int64_t lay_end_to_end(Wave& wave, const PlanParams& p, const Lane<Request>& requests,
                                                Lane<std::int64_t>& starts) {
    wave.each([&](int lane) { starts[lane] = cost_of(p, requests[lane]); });
    return Stride::sum(wave, starts);
  }
  static HPA_DEVICE void cut(const Wave& wave, const PlanParams& p, const CostLine& line, const Lane<Request>& requests,
                             const Lane<std::int64_t>& starts, Lane<CostLine::Borders>& borders, Lane<ItemCounts>& counts) {
    wave.each([&](int lane) {
      borders[lane] = line.borders(starts[lane], cost_of(p, requests[lane]), requests[lane].tokens());
      counts[lane] = count(requests[lane], borders[lane].items);
    });
  }

  static HPA_DEVICE std::int64_t cost_of(const PlanParams& p, const Request& request) {
    return request.active ? CostLine::cost(p.rule, request.tokens()) : 0;
  }
  static HPA_DEVICE ItemCounts count(const Request& request, std::int32_t items) {
    if (!request.active) return {0, 0, 0};
    return {items, items > 1 ? items : 0, items > 1 ? request.rows() : 0};
  }

  static HPA_DEVICE void write(const PlanParams& p, const CostLine& line, const Request& request, const CostLine::Borders& b,
                               std::int32_t sequence, std::int64_t start, const ItemCounts& before) {
    std::int32_t begin = 0;
    HPA_DO_NOT_UNROLL
    for (std::int32_t i = 0; i < b.items; ++i) {
      const std::int32_t end = i + 1 < b.items ? line.tokens_before(b.first_cut + i, start) : request.tokens();
      p.items[before.items + i] =
          item_of(p, request, sequence, request.begin + begin, end - begin, b.items > 1 ? before.partials + i : -1);
      begin = end;
    }
    if (b.items > 1) write_split_rows(p, request, before.split_rows, before.partials, b.items);
    HPA_DO_NOT_UNROLL
    for (std::int32_t k = b.first; k < b.end; ++k) {
      const std::int32_t cuts = k < b.first_cut ? 0 : k - b.first_cut + 1;
      p.shares[k] = before.items + (cuts < b.items ? cuts : b.items);
    }
  }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
