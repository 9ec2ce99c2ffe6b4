// PlanKernel: turns lengths into items, on the device. A workgroup reads a stride of sequences, as many as it has lanes, and
// writes the items of some of them. No workgroup waits for another: each sums up by itself what the other sequences need.
#pragma once

#include <cstdint>

#include "hpa/kernel/plan_stride.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// Items of each size class, and query rows to merge.
struct SizeCounts {
  static constexpr int sizes = 3;  // items of at least PartitionRule::long_partition tokens, of at least half of it, of less
  std::int32_t items[sizes], split_rows;
  std::int32_t partials;  // items of sequences that were cut
  HPA_HOST_DEVICE constexpr SizeCounts operator+(const SizeCounts& o) const {
    return {
        {items[0] + o.items[0], items[1] + o.items[1], items[2] + o.items[2]}, split_rows + o.split_rows, partials + o.partials};
  }
  HPA_HOST_DEVICE constexpr std::int32_t all_items() const { return items[0] + items[1] + items[2]; }
};

/// The plan kernel of Split::by_length. Long items come first, so that workgroups end at about the same time; within a size class
/// items are in the order of the batch. `OneStride`: one workgroup reads all sequences. The code for more is left out, because
/// instructions are fetched anew in every step.
template <class M, bool OneStride>
struct PlanKernel {
  using Machine = M;
  using Params = PlanParams;
  using Wave = typename M::Wave;
  using Stride = PlanStride<M>;
  template <class T>
  using Lane = typename M::template Lane<T>;
  static constexpr bool starts_early = true;
  static constexpr tuning::KernelShape shape = Stride::numbers.kernel;
  static constexpr int waves = shape.waves;
  static constexpr int lds_bytes = Stride::template lds_bytes<OneStride, SizeCounts>();

  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    wave.await_previous_launch();
    Stride::clear_report(wave, p);
    Lane<Request> requests;
    const auto others = Stride::template read_sequences<OneStride, SizeCounts>(
        wave, p, requests, [&](const Request& request) { return count(p, request, cut(p, request)); });
    Lane<Cut> cuts;
    Lane<SizeCounts> before;
    wave.each([&](int lane) {
      cuts[lane] = cut(p, requests[lane]);
      before[lane] = count(p, requests[lane], cuts[lane]);
    });
    const SizeCounts in_stride = Stride::sum(wave, before);
    const SizeCounts all = others.before + in_stride + others.after;
    const std::int32_t first = Stride::first_sequence(wave);
    if constexpr (OneStride) Stride::report_errors(wave, p, first, requests);
    if (wave.workgroup_x() == 0) Stride::write_counts(wave, p, all.all_items(), all.split_rows, all.partials);
    if (!Stride::writes(wave)) return;
    Lane<Item> last_items;
    Lane<std::int32_t> places;
    wave.each([&](int lane) {
      places[lane] = -1;
      if (requests[lane].active)
        places[lane] = write(p, requests[lane], cuts[lane], Stride::sequence(wave, first, lane), others.before + before[lane], all,
                             last_items[lane]);
    });
    wave.store_at(p.items, places, last_items);
  }

 private:
  /// How a request is cut: all items but the last have `tokens` tokens.
  struct Cut {
    std::int32_t tokens, partitions, last_tokens;
  };
  static HPA_DEVICE Cut cut(const PlanParams& p, const Request& request) {
    const auto tokens = std::int32_t(p.rule.tokens(request.tokens()));
    const std::int32_t partitions = PartitionRule::partitions_of(request.tokens(), tokens);
    return {tokens, partitions, request.tokens() - (partitions - 1) * tokens};
  }
  static HPA_DEVICE int size_class(const PlanParams& p, std::int32_t tokens) {
    return tokens >= p.rule.long_partition ? 0 : 2 * tokens >= p.rule.long_partition ? 1 : 2;
  }

  static HPA_DEVICE SizeCounts count(const PlanParams& p, const Request& request, const Cut& c) {
    SizeCounts counts{};
    if (!request.active) return counts;
    const int size = size_class(p, c.tokens), last_size = size_class(p, c.last_tokens);
    HPA_UNROLL
    for (int i = 0; i < SizeCounts::sizes; ++i) counts.items[i] = (i == size ? c.partitions - 1 : 0) + (i == last_size ? 1 : 0);
    counts.split_rows = c.partitions > 1 ? request.rows() : 0;
    counts.partials = c.partitions > 1 ? c.partitions : 0;
    return counts;
  }

  /// Writes a request's items but the last, and its split rows. Returns the place of the last item, which the caller writes.
  /// `before`: the counts of the sequences before it; `all`: of all sequences. Partials are numbered by items in the order of the
  /// batch.
  static HPA_DEVICE std::int32_t write(const PlanParams& p, const Request& request, const Cut& c, std::int32_t sequence,
                                       const SizeCounts& before, const SizeCounts& all, Item& last_item) {
    const auto place = [&](int size) {
      return size == 0   ? before.items[0]
             : size == 1 ? all.items[0] + before.items[1]
                         : all.items[0] + all.items[1] + before.items[2];
    };
    const int size = size_class(p, c.tokens), last_size = size_class(p, c.last_tokens);
    const std::int32_t first = place(size), partial = before.all_items(), last = c.partitions - 1;
    HPA_DO_NOT_UNROLL
    for (std::int32_t i = 0; i < last; ++i)
      p.items[first + i] = item_of(p, request, sequence, request.begin + i * c.tokens, c.tokens, partial + i);
    if (last > 0) write_split_rows(p, request, before.split_rows, partial, c.partitions);
    last_item = item_of(p, request, sequence, request.begin + last * c.tokens, c.last_tokens, last > 0 ? partial + last : -1);
    return last_size == size ? first + last : place(last_size);
  }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
