// merge_states(): combines attentions of the same rows over disjoint parts of their keys into the attention over all of them.
//
// For what one decode() cannot see at once: a prefix that a batch shares (examples/shared_prefix), a sequence whose cache is spread
// over devices (examples/context_parallel). Each part is computed with shape.lse; sinks belong to one part only.
#pragma once

#include <cstdint>

#include "hpa/arch/launch.hpp"
#include "hpa/declare.hpp"
#include "hpa/detail/grid.hpp"
#include "hpa/detail/views.hpp"
#include "hpa/device.hpp"
#include "hpa/kernel/merge_kernel.hpp"

namespace hpa {

inline namespace HPA_PLATFORM {

namespace detail {

inline constexpr std::int64_t max_row_elements = 1 << 23;  // lanes of a row are counted in 32 bits, its workgroups in grid y

inline Verdict check_merge_sizes(const MergeArgs& args) {
  const Status bad = Status::invalid_argument, none = Status::unsupported;
  if (args.num_states <= 0) return {bad, "num_states", "must be positive"};
  if (args.num_states > max_merge_states) return {none, "num_states", "more than 16; merge some of them first"};
  if (args.num_rows < 0) return {bad, "num_rows", "must not be negative"};
  if (args.num_heads <= 0) return {bad, "num_heads", "must be positive"};
  if (args.head_size <= 0) return {bad, "head_size", "must be positive"};
  if (args.head_size % 4 != 0) return {none, "head_size", "not a multiple of 4"};
  if (std::int64_t{args.num_heads} * args.head_size > max_row_elements)
    return {none, "num_heads", "num_heads * head_size is more than 2^23"};
  return {};
}

inline Verdict check_merge_pointers(const MergeArgs& args) {
  for (int i = 0; i < args.num_states; ++i) {
    const PointerRule pointers[] = {{args.states[i].out, 8, "states.out"}, {args.states[i].lse, 4, "states.lse"}};
    if (Verdict v = check_pointers(pointers); !v) return v;
  }
  const PointerRule out[] = {{args.out, 8, "out"}};
  if (Verdict v = check_pointers(out); !v) return v;
  if (!aligned(args.lse, 4)) return {Status::invalid_argument, "lse", "not aligned to its elements"};
  return {};
}

inline Verdict check_merge_strides(const MergeArgs& args) {
  const auto check = [&](const StridePair& strides, DType type) {
    return check_strides(strides, args.head_size, {args.num_rows, args.num_heads}, 4, elements_in_4_gib(type), max_stride);
  };
  if (Verdict v = check({args.state_row_stride, args.state_head_stride, "state_row_stride", "state_head_stride"}, args.state_type);
      !v)
    return v;
  if (Verdict v = check({args.out_row_stride, args.out_head_stride, "out_row_stride", "out_head_stride"}, args.out_type); !v)
    return v;
  const auto check_lse = [&](const StridePair& strides) {
    return check_strides(strides, 1, {args.num_rows, args.num_heads}, 1, max_stride, max_stride);
  };
  for (int i = 0; i < args.num_states; ++i) {
    const MergeState& state = args.states[i];
    if (Verdict v = check_lse({state.lse_row_stride, state.lse_head_stride, "states.lse_row_stride", "states.lse_head_stride"}); !v)
      return v;
  }
  if (args.lse == nullptr) return {};
  return check_lse({args.lse_row_stride, args.lse_head_stride, "lse_row_stride", "lse_head_stride"});
}

template <class Float>
kernel::LseView<Float> lse_view(const MergeArgs& args, Float* data, std::int64_t row_stride, std::int64_t head_stride) {
  const StridePair dense = dense_strides({row_stride, head_stride, "", ""}, 1, {args.num_rows, args.num_heads});
  return {data, dense.outer, dense.inner};
}

inline kernel::RowView merge_view(const MergeArgs& args, const void* data, std::int64_t row_stride, std::int64_t head_stride,
                                  DType type) {
  return row_view(data, row_stride, head_stride, {args.num_rows, args.num_heads}, args.head_size, type);
}
inline kernel::RowView state_view(const MergeArgs& args, int state) {
  return merge_view(args, args.states[state].out, args.state_row_stride, args.state_head_stride, args.state_type);
}
inline kernel::RowView out_view(const MergeArgs& args) {
  return merge_view(args, args.out, args.out_row_stride, args.out_head_stride, args.out_type);
}

/// Checks that out is no state's out with other strides, and that lse is no state's lse: many lanes read an lse and one writes it.
inline Verdict check_merge_overlap(const MergeArgs& args) {
  const kernel::RowView out = out_view(args);
  for (int i = 0; i < args.num_states; ++i) {
    const kernel::RowView state = state_view(args, i);
    if (state.data == out.data && (state.row_stride != out.row_stride || state.head_stride != out.head_stride))
      return {Status::invalid_argument, "out", "is a state's out, with other strides"};
    if (args.lse == args.states[i].lse) return {Status::invalid_argument, "lse", "is a state's lse"};
  }
  return {};
}

/// Whether every vector of 8 elements lies on 16 bytes, in all states and in out.
inline bool merges_16_bytes(const MergeArgs& args) {
  const auto on_16_bytes = [](const kernel::RowView& view) {
    return aligned(view.data, 16) && view.row_stride % 16 == 0 && view.head_stride % 16 == 0;
  };
  bool all = args.head_size % 8 == 0 && on_16_bytes(out_view(args));
  for (int i = 0; i < args.num_states; ++i) all = all && on_16_bytes(state_view(args, i));
  return all;
}

template <class Machine, DType State, DType Out, int Elements>
Verdict launch_merge(const MergeArgs& args, const Device& device, Stream stream) {
  using Kernel = kernel::MergeKernel<Machine, State, Out, Elements>;
  kernel::MergeParams params{};
  for (int i = 0; i < args.num_states; ++i) {
    const MergeState& state = args.states[i];
    params.states[i] = {state.out, lse_view(args, state.lse, state.lse_row_stride, state.lse_head_stride)};
  }
  params.out = out_view(args);
  params.lse = lse_view(args, args.lse, args.lse_row_stride, args.lse_head_stride);
  params.state_row_stride = state_view(args, 0).row_stride;
  params.state_head_stride = state_view(args, 0).head_stride;
  params.num_states = args.num_states;
  params.num_rows = args.num_rows;
  params.num_heads = args.num_heads;
  params.vectors = args.head_size / Elements;
  const int y = int(kernel::ceil_div(std::int64_t{args.num_heads} * params.vectors, Kernel::waves * Machine::width));
  return arch::launch<Kernel>({grid_x(args.num_rows, y, device, Kernel::shape.workgroups_per_unit), y}, params, stream);
}

}  // namespace detail

/// Whether merge_states() can do it; the first thing that is wrong, if not. Types are those of the menu's queries. Reads no device
/// memory.
template <class Menu>
Verdict check(const MergeArgs& args, const Device& device) {
  using Types = typename Menu::query_types;
  if (device.compute_units <= 0) return {Status::invalid_argument, "device", "compute_units must be positive"};
  if (!arch::runs_on<typename Menu::Machine>(device.arch))
    return {Status::unsupported, "device", detail::no_kernel_for<typename Menu::Machine>(device.arch)};
  if (Verdict v = detail::check_merge_sizes(args); !v) return v;
  if (!Types::has(args.state_type)) return {Status::unsupported, "state_type", detail::AxisText<Types>::text.data};
  if (!Types::has(args.out_type)) return {Status::unsupported, "out_type", detail::AxisText<Types>::text.data};
  if (args.num_rows == 0) return {};  // tensors of nothing may be null
  if (Verdict v = detail::check_merge_pointers(args); !v) return v;
  if (Verdict v = detail::check_merge_strides(args); !v) return v;
  return detail::check_merge_overlap(args);
}

/// out = sum of exp(lse_i) * out_i / sum of exp(lse_i), lse = log(sum of exp(lse_i)), in fp32 and in index order: same input, same
/// bits. States whose lse is infinite add nothing, whatever their out holds; an lse of NaN makes its row NaN. Legal while a
/// stream is being captured.
template <class Menu>
Verdict merge_states(const MergeArgs& args, Stream stream) {
  Device device;
  if (Verdict v = current_device(&device); !v) return v;
  if (Verdict v = check<Menu>(args, device); !v || args.num_rows == 0) return v;
  return arch::dispatch_machine<typename Menu::Machine>(device.arch, [&](auto machine) {
    using Machine = typename decltype(machine)::type;
    Verdict verdict;
    Menu::query_types::visit(args.state_type, [&](auto state) {
      Menu::query_types::visit(args.out_type, [&](auto out) {
        constexpr DType from = decltype(state)::value, to = decltype(out)::value;
        verdict = detail::merges_16_bytes(args) ? detail::launch_merge<Machine, from, to, 8>(args, device, stream)
                                                : detail::launch_merge<Machine, from, to, 4>(args, device, stream);
      });
    });
    return verdict;
  });
}

}  // namespace HPA_PLATFORM
}  // namespace hpa
