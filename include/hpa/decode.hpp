// decode(): attention of one layer by the plan of the step. paged_attention(): plan and decode in one call.
#pragma once

#include "hpa/detail/launch_decode.hpp"
#include "hpa/plan.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {

namespace detail {

/// The menu's kernel for the shape.
template <class Menu>
Verdict run_decode_of(const DecodeShape& shape, const DecodeArgs& args, const Prepared& p, Stream stream) {
  if (args.batch.num_seqs == 0) return {};
  return arch::dispatch_machine<typename Menu::Machine>(p.device.arch, [&](auto machine) {
    using Machine = typename decltype(machine)::type;
    Verdict verdict{Status::unsupported, "shape", "no kernel is compiled in"};
    Menu::dispatch(shape, [&](auto config) { verdict = run_decode<Machine, decltype(config)>(shape, args, p, stream); });
    return verdict;
  });
}

}  // namespace detail

/// Attention of one layer, by the plan that plan() of the same menu left in the workspace for the same shape, num_seqs and lengths.
/// Writes out (and lse) of every row that plan found; rows of skipped sequences keep their bytes.
///
/// A block_table_width that is less than plan's makes empty rows of the sequences that it is too narrow for (see workspace_error).
///
/// block_tables and table_starts must be there before plan() and stay until the step's last decode(): where launches overlap (sm_90) they are read before
/// the kernel before this one has ended.
template <class Menu>
Verdict decode(const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, Stream stream) {
  const detail::Prepared p = detail::prepare<Menu>(shape, args, workspace, 0);
  return p.verdict ? detail::run_decode_of<Menu>(shape, args, p, stream) : p.verdict;
}

/// decode() of a step that has been checked: of the arguments only what a layer has is looked at, all of it. args.batch must be the batch
/// that was prepared; what differs is refused by name. That the workspace holds the step's plan is seen on the device, as ever.
template <class Menu>
Verdict decode(const Prepared<Menu>& prepared, const DecodeArgs& args, Stream stream) {
  if (!prepared) return prepared.step_.verdict;
  if (Verdict v = detail::check_same_batch(prepared.batch_, args.batch); !v) return v;
  if (Verdict v = detail::check_layer(prepared.shape_, args); !v) return v;
  return detail::run_decode_of<Menu>(prepared.shape_, args, prepared.step_, stream);
}

/// plan() and decode() in one call, for callers with one layer.
template <class Menu>
Verdict paged_attention(const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, Stream stream) {
  const detail::Prepared p = detail::prepare<Menu>(shape, args, workspace, 0);  // of all arguments, before the first launch
  if (!p.verdict) return p.verdict;
  if (Verdict v = plan<Menu>(shape, args.batch, workspace, stream); !v) return v;
  return detail::run_decode_of<Menu>(shape, args, p, stream);
}

/// decode() of one kernel chosen at compile time; the shape must agree with it. Needs plan_with<Config>() and
/// workspace_bytes_with<Config>().
template <class Config, class Machine = arch::DefaultMachine>
Verdict decode_with(const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, Stream stream) {
  const detail::Prepared p = detail::prepare<menu_of<Config, Machine>>(shape, args, workspace, Config::partition_tokens);
  if (!p.verdict || args.batch.num_seqs == 0) return p.verdict;
  return detail::run_decode<Machine, typename Config::Kernel>(shape, args, p, stream);
}

}  // namespace HPA_PLATFORM
}  // namespace hpa
