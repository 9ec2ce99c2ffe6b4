// plan(): lengths -> work list, on the device. Once a step; every layer of the step decodes by it.
#pragma once

#include "hpa/arch/launch.hpp"
#include "hpa/declare.hpp"
#include "hpa/device.hpp"
#include "hpa/kernel/balanced_plan_kernel.hpp"
#include "hpa/kernel/plan_kernel.hpp"
#include "hpa/plan_report.hpp"
#include "hpa/prepared.hpp"
#include "hpa/workspace.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {

namespace detail {

template <class Machine, bool OneStride>
Verdict launch_plan(Split split, const kernel::PlanParams& params, Stream stream) {
  const arch::Grid grid{kernel::PlanStride<Machine>::workgroups(params.num_seqs)};
  return split == Split::balanced ? arch::launch<kernel::BalancedPlanKernel<Machine, OneStride>>(grid, params, stream)
                                  : arch::launch<kernel::PlanKernel<Machine, OneStride>>(grid, params, stream);
}

template <class Menu>
Verdict run_plan(const DecodeShape& shape, const Batch& batch, const Prepared& p, Stream stream) {
  if (!p.verdict) return p.verdict;
  const bool sum_can_be_too_large = shape.total_kv_tokens() < std::int64_t{batch.num_seqs} * shape.max_seq_len;
  const kernel::PlanParams params{batch.seq_lens,
                                  batch.query_start_loc,
                                  batch.table_starts,
                                  batch.num_seqs,
                                  shape.max_query_len,
                                  shape.sliding_window ? batch.window : std::int32_t{0x7fffffff},
                                  shape.block_size,
                                  shape.ordered(),
                                  batch.query_start_loc != nullptr || sum_can_be_too_large,
                                  shape.max_seq_len,
                                  table_tokens(shape, batch),
                                  shape.total_kv_tokens(),
                                  p.rule,
                                  p.stamp,
                                  p.areas.header,
                                  p.areas.items,
                                  p.areas.split_rows,
                                  p.areas.shares};
  return arch::dispatch_machine<typename Menu::Machine>(p.device.arch, [&](auto machine) {
    using Machine = typename decltype(machine)::type;
    return batch.num_seqs <= kernel::PlanStride<Machine>::sequences ? launch_plan<Machine, true>(shape.split, params, stream)
                                                                    : launch_plan<Machine, false>(shape.split, params, stream);
  });
}

}  // namespace detail

/// Reads seq_lens, query_start_loc and table_starts on the device and writes the work list into the workspace. Depends on those, on num_seqs, on
/// block_table_width and on the window alone, and looks at no layer: one plan serves all layers of a step. Legal while a stream is
/// being captured; a captured plan stays right for all lengths within the shape.
///
/// What it finds wrong in the device data (see workspace_error) turns the sequence into an empty one; the others are not touched.
/// Lengths that add up to more than shape.max_total_kv_tokens: the first sequence that exceeds it and all later non-empty ones are
/// empty; the earlier ones are right.
template <class Menu>
Verdict plan(const DecodeShape& shape, const Batch& batch, Workspace workspace, Stream stream) {
  return detail::run_plan<Menu>(shape, batch, detail::prepare<Menu>(shape, batch, workspace, 0), stream);
}

/// Checks a step, launches nothing. Make one for each kind of layer, that is for each shape and each window, and keep it while the step
/// lasts; its verdict() is what plan() would say.
template <class Menu>
Prepared<Menu> prepare(const DecodeShape& shape, const Batch& batch, Workspace workspace) {
  return {shape, batch, detail::prepare<Menu>(shape, batch, workspace, 0)};
}

/// plan() of a step that has been checked.
template <class Menu>
Verdict plan(const Prepared<Menu>& prepared, Stream stream) {
  return detail::run_plan<Menu>(prepared.shape_, prepared.batch_, prepared.step_, stream);
}

/// plan() for decode_with<Config>(): partitions of Config::partition_tokens.
template <class Config, class Machine = arch::DefaultMachine>
Verdict plan_with(const DecodeShape& shape, const Batch& batch, Workspace workspace, Stream stream) {
  using Menu = menu_of<Config, Machine>;
  return detail::run_plan<Menu>(shape, batch, detail::prepare<Menu>(shape, batch, workspace, Config::partition_tokens), stream);
}

/// After a synchronise: what the last plan() made of its sequences, and what it and the decodes after it found wrong in the device data.
/// Waits for the stream. Refused where the workspace holds no plan; the report is then that of no sequences.
[[gnu::used]] inline Verdict plan_report(Workspace workspace, Stream stream, PlanReport* report) {
  if (report == nullptr) return {Status::invalid_argument, "report", "must not be null"};
  *report = {};
  if (Verdict v = kernel::check_workspace(workspace, sizeof(kernel::PlanHeader)); !v) return v;
  kernel::PlanHeader header{};
  if (Verdict v = arch::read_back(&header, workspace.data, sizeof header, stream); !v) return v;
  const auto error = kernel::PlanError(header.first_error & 15);
  const bool found = header.first_error != kernel::no_error;
  if (found && (header.first_error < 0 || error == kernel::PlanError::none || error > kernel::PlanError::other_shape))
    return {Status::invalid_argument, "workspace", "holds no plan"};
  if (found) report->first_error = kernel::verdict_of(error), report->first_error_sequence = header.first_error >> 4;
  report->skipped = header.skipped, report->empty = header.empty, report->in_error = header.in_error;
  report->decoded = header.num_seqs - header.skipped - header.empty - header.in_error;
  report->items = header.num_items, report->partials = header.partials;
  return {};
}

/// The short form of plan_report(): its first error; ok when nothing was wrong. `sequence`, when given, receives the first sequence at
/// fault, or -1.
[[gnu::used]] inline Verdict workspace_error(Workspace workspace, Stream stream, int* sequence) {
  PlanReport report;
  const Verdict read = plan_report(workspace, stream, &report);
  if (sequence != nullptr) *sequence = report.first_error_sequence;
  return read ? report.first_error : read;
}

}  // namespace HPA_PLATFORM
}  // namespace hpa
