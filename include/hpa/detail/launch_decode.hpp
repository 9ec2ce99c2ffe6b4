// decode()'s launches: which kernel computes a shape, and with how many workgroups.
#pragma once

#include <algorithm>

#include "hpa/arch/launch.hpp"
#include "hpa/detail/call_params.hpp"
#include "hpa/detail/grid.hpp"
#include "hpa/kernel/decode_kernel.hpp"
#include "hpa/kernel/reduce_kernel.hpp"
#include "hpa/kernel/ring_kernel.hpp"
#include "hpa/plan.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace detail {

/// Passes over a KV head's cache that its query rows need: a grid has each of them.
template <class C>
int passes(const DecodeShape& shape) {
  return int(kernel::ceil_div(std::int64_t{shape.gqa_ratio()} * shape.max_query_len, C::tile_rows));
}

/// How ring kernels share a compute unit. All its waves together keep Machine::ring_bytes in flight, or nearly.
template <class Machine, class C>
struct RingShapes {
  static constexpr int ring = 16384;  // bytes a wave
  static constexpr bool few_rows = C::tile_rows == 8 && Machine::unit_workgroups > 1;
  template <int Workgroups, int RingBytes>
  using Shape = kernel::RingShape<Machine::ring_bytes / Workgroups / RingBytes, RingBytes, Workgroups>;

  /// One has it to itself, so that a row is cut into fewer partitions.
  using Alone = Shape<1, ring>;
  /// Workgroups hide each other's merges. Where a token has few bytes for its arithmetic, more waves with less each hide more of that;
  /// registers say how many.
  using Shared = std::conditional_t<few_rows && C::head_size == 64, Shape<2, ring / 2>,
                                    std::conditional_t<few_rows && size_of(C::kv) == 1 && !C::token_scales,
                                                       kernel::RingShape<6, ring / 2, 2>, Shape<Machine::unit_workgroups, ring>>>;
};

/// Workgroups of a pass, all KV heads together; a compute unit holds `workgroups_per_unit` of all passes.
inline int ring_workgroups(const DecodeShape& shape, int passes, const kernel::PartitionRule& rule,
                           const kernel::WorkspaceLayout& layout, const Device& device, int workgroups_per_unit) {
  if (rule.shares > 0) return rule.shares * shape.num_kv_heads;
  return grid_x(layout.max_items * shape.num_kv_heads, passes, device, workgroups_per_unit);
}

template <class Kernel, class C>
Verdict launch_ring_kernel(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p, Stream stream) {
  const int y = passes<C>(shape), heads = shape.num_kv_heads;
  const int x = ring_workgroups(shape, y, p.rule, p.layout, p.device, Kernel::resident_workgroups);
  const bool balanced = p.rule.shares > 0;
  return arch::launch<Kernel>({x, y}, {params_of<C>(shape, args, p), heads, balanced ? 1 : x / heads, balanced ? 0 : x % heads},
                              stream);
}

template <class Machine, class C>
Verdict launch_ring(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p, Stream stream) {
  using Shared = kernel::RingKernel<Machine, C, typename RingShapes<Machine, C>::Shared>;
  using Alone = kernel::RingKernel<Machine, C, typename RingShapes<Machine, C>::Alone>;
  return p.rule.rows_fill_the_chip() ? launch_ring_kernel<Shared, C>(shape, args, p, stream)
                                     : launch_ring_kernel<Alone, C>(shape, args, p, stream);
}

/// Where rows fill the chip, workgroups of few waves read most with the fewest instructions; else each row's latency counts, and
/// more waves share its tiles.
template <class Machine, class C>
Verdict launch_tiles(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p, Stream stream) {
  using Shared = kernel::DecodeKernel<Machine, C, Machine::decode_waves>;
  using Alone = kernel::DecodeKernel<Machine, C, Machine::lone_decode_waves>;
  const int y = shape.num_kv_heads, z = passes<C>(shape);
  const kernel::DecodeParamsOf<C> params = params_of<C>(shape, args, p);
  const auto grid = [&](int workgroups_per_unit) {
    return arch::Grid{
        p.rule.shares > 0 ? p.rule.shares : grid_x(p.layout.max_items, std::int64_t{y} * z, p.device, workgroups_per_unit), y, z};
  };
  if (p.rule.rows_fill_the_chip()) return arch::launch<Shared>(grid(held<Shared>(p.device)), params, stream);
  return arch::launch<Alone>(grid(held<Alone>(p.device)), params, stream);
}

/// The decode kernel that suits the machine and the rows of a KV head.
template <class Machine, class C>
Verdict launch_decode(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p, Stream stream) {
  if constexpr (Machine::copies_to_lds) {
    using Few = kernel::FewRows<C>;
    return passes<Few>(shape) == 1 ? launch_ring<Machine, Few>(shape, args, p, stream)
                                   : launch_ring<Machine, C>(shape, args, p, stream);
  } else {
    return launch_tiles<Machine, C>(shape, args, p, stream);
  }
}

/// `RowWaves`: waves that share a row, or 1. Where waves have rows of their own, there is one workgroup a compute unit: so many lie beside
/// the decode workgroups and wait, and the next launch is let in behind them. But no wave gets more than a few rows.
template <class Machine, int HeadSize, DType Out, bool General, int RowWaves>
Verdict launch_reduce(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p, Stream stream) {
  using Reduce = kernel::ReduceKernel<Machine, HeadSize, Out, General, RowWaves>;
  constexpr int few = 4;
  const int y = int(kernel::ceil_div(shape.num_heads, Reduce::heads_a_wave));
  const std::int64_t work = kernel::ceil_div(p.layout.max_split_rows, Reduce::rows);
  const std::int64_t beside = std::max<std::int64_t>(p.device.compute_units / y, kernel::ceil_div(work, few));
  const int x = Reduce::rows > 1 ? int(std::min(work, beside)) : grid_x(work, y, p.device, tuning(p.device.arch).waves_per_unit);
  return arch::launch<Reduce>(
      {x, y}, {finish_params<General>(shape, args), result_view(shape, args, p), p.parts.header, p.parts.split_rows, p.stamp},
      stream);
}

template <class Machine, int HeadSize, DType Out, bool General>
Verdict run_reduce(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p, Stream stream) {
  return p.rule.rows_fill_the_chip()
             ? launch_reduce<Machine, HeadSize, Out, General, 1>(shape, args, p, stream)
             : launch_reduce<Machine, HeadSize, Out, General, Machine::reduce_waves>(shape, args, p, stream);
}

template <class Machine, class C>
Verdict run_decode(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p, Stream stream) {
  if (Verdict v = launch_decode<Machine, C>(shape, args, p, stream); !v) return v;
  if (p.layout.max_slots == 0) return {};
  return run_reduce<Machine, C::head_size, C::query, C::general>(shape, args, p, stream);
}

}  // namespace detail
}  // namespace HPA_PLATFORM
}  // namespace hpa
