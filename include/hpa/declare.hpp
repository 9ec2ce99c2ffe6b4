// The calls, declared: for sources that no GPU compiler sees.
//
// Such a source names the platform (-DHPA_PLATFORM_CUDA or -DHPA_PLATFORM_HIP), includes this header, and needs no header of the GPU's
// runtime: Stream is a pointer to the type that cudaStream_t or hipStream_t points to. check() and workspace_bytes() are there whole; the
// rest is compiled in a source of the GPU's compiler that instantiates the same menu:
//
//   // attention.hpp, included by both
//   #include "hpa/declare.hpp"
//   using engine_menu = hpa::default_menu::with<hpa::query_types<hpa::DType::bf16>, hpa::feature_sets<hpa::Features::none>>;
//
//   // scheduler.cpp, by any C++17 compiler               // attention.cu or attention.hip
//   #include "attention.hpp"                              #include "attention.hpp"
//   hpa::decode<engine_menu>(shape, args, ..);            #include "hpa/instantiate.hpp"
//                                                         HPA_INSTANTIATE(engine_menu);
//
// A program that lacks the second source does not link, and the linker names the call, the menu and the platform (hpa::on_cuda::decode).
// What each call does: plan.hpp, decode.hpp, cache.hpp, merge.hpp.
#pragma once

#include "hpa/args.hpp"
#include "hpa/cache_args.hpp"
#include "hpa/check.hpp"
#include "hpa/device.hpp"
#include "hpa/menu.hpp"
#include "hpa/merge_args.hpp"
#include "hpa/plan_report.hpp"
#include "hpa/prepared.hpp"
#include "hpa/shape.hpp"
#include "hpa/status.hpp"
#include "hpa/workspace.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {

/// plan.hpp: the work list of a step.
template <class Menu = default_menu>
Verdict plan(const DecodeShape& shape, const Batch& batch, Workspace workspace, Stream stream);

/// decode.hpp: attention of one layer, by the step's plan.
template <class Menu = default_menu>
Verdict decode(const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, Stream stream);

/// plan.hpp: a step, checked once for all of its calls.
template <class Menu = default_menu>
Prepared<Menu> prepare(const DecodeShape& shape, const Batch& batch, Workspace workspace);

/// plan.hpp, decode.hpp: plan() and decode() of a step that has been checked.
template <class Menu>
Verdict plan(const Prepared<Menu>& prepared, Stream stream);
template <class Menu>
Verdict decode(const Prepared<Menu>& prepared, const DecodeArgs& args, Stream stream);

/// decode.hpp: plan() and decode() in one call.
template <class Menu = default_menu>
Verdict paged_attention(const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, Stream stream);

/// plan.hpp: what the last plan made of its sequences, and what it and the decodes after it found wrong in the device data.
Verdict plan_report(Workspace workspace, Stream stream, PlanReport* report);

/// plan.hpp: what they found wrong, alone.
Verdict workspace_error(Workspace workspace, Stream stream, int* sequence = nullptr);

/// cache.hpp: whether append() can do it.
template <class Menu = default_menu>
Verdict check(const DecodeShape& shape, const AppendArgs& args, const Device& device);

/// cache.hpp: whether copy_blocks() can do it.
template <class Menu = default_menu>
Verdict check(const DecodeShape& shape, const CopyBlocksArgs& args, const Device& device);

/// cache.hpp: writes K and V of new tokens into the cache.
template <class Menu = default_menu>
Verdict append(const DecodeShape& shape, const AppendArgs& args, Stream stream);

/// cache.hpp: copies whole blocks inside the caches.
template <class Menu = default_menu>
Verdict copy_blocks(const DecodeShape& shape, const CopyBlocksArgs& args, Stream stream);

/// merge.hpp: whether merge_states() can do it.
template <class Menu = default_menu>
Verdict check(const MergeArgs& args, const Device& device);

/// merge.hpp: combines attentions of the same rows over disjoint parts of their keys.
template <class Menu = default_menu>
Verdict merge_states(const MergeArgs& args, Stream stream);

}  // namespace HPA_PLATFORM
}  // namespace hpa
