// The launches of decode(): its kernel, and the reduce kernel where the shape allows a cut.
#pragma once

#include <algorithm>

#include "hpa/arch/launch.hpp"
#include "hpa/detail/call_params.hpp"
#include "hpa/detail/grid.hpp"
#include "hpa/kernel/decode_kernel.hpp"
#include "hpa/kernel/reduce_kernel.hpp"
#include "hpa/kernel/ring_kernel.hpp"
#include "hpa/plan.hpp"
#include "hpa/tuning/choose.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace detail {

/// Passes over the cache of a KV head that its query rows need. The grid has each of them.
inline int passes(const DecodeShape& shape, const tuning::KernelShape& kernel) {
  return int(kernel::ceil_div(tuning::rows_per_kv_head(shape), kernel.rows_per_pass));
}

/// Workgroups of a pass of a ring kernel, all KV heads together.
inline int ring_workgroups(const DecodeShape& shape, const tuning::KernelShape& kernel, const kernel::PartitionRule& rule,
                           const kernel::WorkspaceLayout& layout, const Device& device) {
  if (rule.shares > 0) return rule.shares * shape.num_kv_heads;
  return grid_x(layout.max_items * shape.num_kv_heads, passes(shape, kernel), device, kernel.workgroups_per_unit);
}

template <class Kernel, class C>
Verdict launch_ring(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p, Stream stream) {
  const int x = ring_workgroups(shape, Kernel::shape, p.rule, p.layout, p.device), heads = shape.num_kv_heads;
  const bool balanced = p.rule.shares > 0;
  return arch::launch<Kernel>({x, passes(shape, Kernel::shape)},
                              {params_of<C>(shape, args, p), heads, balanced ? 1 : x / heads, balanced ? 0 : x % heads}, stream);
}

template <class Kernel, class C>
Verdict launch_tiles(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p, Stream stream) {
  const int y = shape.num_kv_heads, z = passes(shape, Kernel::shape);
  const int x = p.rule.shares > 0 ? p.rule.shares
                                  : grid_x(p.layout.max_items, std::int64_t{y} * z, p.device, Kernel::shape.workgroups_per_unit);
  return arch::launch<Kernel>({x, y, z}, params_of<C>(shape, args, p), stream);
}

/// The refusal where a table has no shape. check() says which shape and which device; this is for callers who did not ask it.
inline constexpr Verdict no_kernel_shape{Status::unsupported, "shape", "no kernel shape for it on the device"};

/// Launches the decode kernel, in the shape that the machine's table has for the device and the rows of a KV head.
template <class Machine, class C>
Verdict launch_decode(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p, Stream stream) {
  Verdict verdict = no_kernel_shape;
  tuning::visit_kernel_shape<Machine, C>(p.device, tuning::rows_per_kv_head(shape), p.rule.fills_the_chip(), [&](auto constant) {
    using Shaped = kernel::Shaped<C, decltype(constant)>;
    if constexpr (Machine::copies_to_lds)
      verdict = launch_ring<kernel::RingKernel<Machine, Shaped>, Shaped>(shape, args, p, stream);
    else
      verdict = launch_tiles<kernel::DecodeKernel<Machine, Shaped>, Shaped>(shape, args, p, stream);
  });
  return verdict;
}

/// Launches the reduce kernel. `RowWaves`: waves that merge a row together, or 1. With 1 there is one resident workgroup per
/// compute unit, which waits beside the decode workgroups, so that the next launch can begin behind it. There are more where waves
/// would otherwise get more than `few` rows.
template <class Machine, int HeadSize, DType Out, Features Can, int RowWaves>
Verdict launch_reduce(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p, Stream stream) {
  using Reduce = kernel::ReduceKernel<Machine, HeadSize, Out, Can, RowWaves>;
  constexpr int few = 4;
  const int y = int(kernel::ceil_div(shape.num_heads, Reduce::heads_per_wave));
  const std::int64_t work = kernel::ceil_div(p.layout.max_split_rows, Reduce::rows);
  const std::int64_t beside = std::max<std::int64_t>(p.device.compute_units / y, kernel::ceil_div(work, few));
  const int x = Reduce::rows > 1 ? int(std::min(work, beside)) : grid_x(work, y, p.device, Reduce::shape.workgroups_per_unit);
  return arch::launch<Reduce>(
      {x, y}, {finish_params<Can>(shape, args), result_view(shape, args, p), p.areas.header, p.areas.split_rows, p.stamp}, stream);
}

template <class Machine, int HeadSize, DType Out, Features Can>
Verdict run_reduce(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p, Stream stream) {
  return p.rule.fills_the_chip()
             ? launch_reduce<Machine, HeadSize, Out, Can, 1>(shape, args, p, stream)
             : launch_reduce<Machine, HeadSize, Out, Can, Machine::Tuning::reduce_row_waves>(shape, args, p, stream);
}

template <class Machine, class C>
Verdict run_decode([[maybe_unused]] const DecodeShape& shape, [[maybe_unused]] const DecodeArgs& args,
                   [[maybe_unused]] const Prepared& p, [[maybe_unused]] Stream stream) {
  if constexpr (tuning::has_kernel<Machine, C>) {
    if (Verdict v = launch_decode<Machine, C>(shape, args, p, stream); !v) return v;
    if (p.layout.max_partials == 0) return {};
    return run_reduce<Machine, C::head_size, C::query, kernel::reduce_features(C::features)>(shape, args, p, stream);
  } else {
    return no_kernel_shape;
  }
}

}  // namespace detail
}  // namespace HPA_PLATFORM
}  // namespace hpa
