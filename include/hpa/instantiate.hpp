// Explicit instantiation: an engine compiles the kernels once, in as many translation units as it likes.
//
// Without it every translation unit that calls the library compiles the menu's kernels again. With it, one header says what is
// compiled elsewhere and a few sources compile it:
//
//   // attention.hpp, included wherever attention is called. Sources that no GPU compiler sees include hpa/declare.hpp in its stead
//   #include "hpa/instantiate.hpp"
//   using engine_menu = hpa::default_menu::with<hpa::query_types<hpa::DType::bf16>, hpa::feature_sets<hpa::Features::none>>;
//   HPA_EXTERN(engine_menu);
//
//   // attention.cpp: the menu, its kernels included
//   #include "attention.hpp"
//   HPA_INSTANTIATE(engine_menu);
//
// To compile decode kernels in parallel, attention.cpp leaves some to others. Name a kernel by the same Config on both sides:
//
//   // attention.cpp                                                    // attention_64.cpp
//   #include "attention.hpp"                                            #include "hpa/instantiate.hpp"
//   HPA_EXTERN_KERNEL(hpa::Config<64, 16, hpa::DType::bf16>);           HPA_INSTANTIATE_KERNEL(hpa::Config<64, 16, hpa::DType::bf16>);
//   HPA_INSTANTIATE(engine_menu);
//
// All macros stand in the global namespace, an EXTERN before any call that it speaks of. An EXTERN may stand above the INSTANTIATE of
// the same. A program that has an EXTERN and lacks the INSTANTIATE does not link, and the linker names what is missing. The kernels of
// one menu or Config are the same code whichever source compiles them.
//
// Several menus share kernels. Who compiles each kernel once for all of them names kernels, not menus, and the machine that they
// are for (hpa::arch::DefaultMachine is the platform's): the calls of any menu, and those by Config, then find them. tests/kernels
// does so for the library's own tests:
//
//   // kernels.hpp
//   HPA_EXTERN_KERNEL_ON(machine, hpa::Config<64, 16, hpa::DType::bf16>);                  // decode
//   HPA_EXTERN_REDUCE(machine, 64, hpa::DType::bf16, hpa::Features::none);                // reduce, of all block sizes and KV types
//   HPA_EXTERN_PLAN(machine);                                                              // plan, of everything
//   HPA_EXTERN_APPEND(machine, hpa::DType::bf16, hpa::DType::e4m3_ocp);                    // append, rows to 8-bit KV
//   HPA_EXTERN_COPY(machine);                                                              // append with 16-bit KV, copy_blocks
//   HPA_EXTERN_MERGE(machine, hpa::DType::bf16, hpa::DType::bf16);                         // merge_states, from and to
#pragma once

#include "hpa/cache.hpp"
#include "hpa/decode.hpp"
#include "hpa/menu.hpp"
#include "hpa/merge.hpp"
#include "hpa/plan.hpp"

/// The menu's public calls (prepare, plan, decode, paged_attention, append, copy_blocks, merge_states) are compiled in another translation unit.
#define HPA_EXTERN(...) HPA_DETAIL_MENU(extern template, __VA_ARGS__)
/// They are compiled here, with all kernels that no EXTERN of kernels above gives to another translation unit.
#define HPA_INSTANTIATE(...) HPA_DETAIL_MENU(template, __VA_ARGS__)

/// The decode kernels of one Config, and the reduce kernels that they need unless an HPA_EXTERN_REDUCE stands above, are compiled in
/// another translation unit; for the default machine. Serves decode() and decode_with<Config>() alike, whatever its partition_tokens.
#define HPA_EXTERN_KERNEL(...) HPA_DETAIL_DECODE(extern template, ::hpa::arch::DefaultMachine, __VA_ARGS__)
/// They are compiled here.
#define HPA_INSTANTIATE_KERNEL(...) HPA_DETAIL_DECODE(template, ::hpa::arch::DefaultMachine, __VA_ARGS__)

/// HPA_EXTERN_KERNEL and HPA_INSTANTIATE_KERNEL for a machine: machine, Config.
#define HPA_EXTERN_KERNEL_ON(...) HPA_DETAIL_DECODE(extern template, __VA_ARGS__)
#define HPA_INSTANTIATE_KERNEL_ON(...) HPA_DETAIL_DECODE(template, __VA_ARGS__)

/// The reduce kernels of a machine, a head size, a type of queries and a Features, whatever the block size and the type of KV. There are two: of
/// Features::none, and of all sets with query rows, sinks or FP8 output.
#define HPA_EXTERN_REDUCE(...) HPA_DETAIL_REDUCE(extern template, __VA_ARGS__)
#define HPA_INSTANTIATE_REDUCE(...) HPA_DETAIL_REDUCE(template, __VA_ARGS__)

/// All plan kernels of a machine.
#define HPA_EXTERN_PLAN(machine) HPA_DETAIL_PLAN(extern template, machine)
#define HPA_INSTANTIATE_PLAN(machine) HPA_DETAIL_PLAN(template, machine)

/// The kernels of append() of a machine from rows of one type to 8-bit KV of another.
#define HPA_EXTERN_APPEND(...) HPA_DETAIL_APPEND(extern template, __VA_ARGS__)
#define HPA_INSTANTIATE_APPEND(...) HPA_DETAIL_APPEND(template, __VA_ARGS__)

/// The kernels of a machine that move bytes: append() to 16-bit KV, copy_blocks().
#define HPA_EXTERN_COPY(machine) HPA_DETAIL_COPY(extern template, machine)
#define HPA_INSTANTIATE_COPY(machine) HPA_DETAIL_COPY(template, machine)

/// The kernels of merge_states() of a machine from states of one type to out of another.
#define HPA_EXTERN_MERGE(...) HPA_DETAIL_MERGE(extern template, __VA_ARGS__)
#define HPA_INSTANTIATE_MERGE(...) HPA_DETAIL_MERGE(template, __VA_ARGS__)

#define HPA_DETAIL_MENU(prefix, ...)                                                                                               \
  prefix ::hpa::Verdict hpa::plan<__VA_ARGS__>(const ::hpa::DecodeShape&, const ::hpa::Batch&, ::hpa::Workspace, ::hpa::Stream);   \
  prefix ::hpa::Verdict hpa::decode<__VA_ARGS__>(const ::hpa::DecodeShape&, const ::hpa::DecodeArgs&, ::hpa::Workspace,            \
                                                 ::hpa::Stream);                                                                   \
  prefix ::hpa::Prepared<__VA_ARGS__> hpa::prepare<__VA_ARGS__>(const ::hpa::DecodeShape&, const ::hpa::Batch&, ::hpa::Workspace); \
  prefix ::hpa::Verdict hpa::plan<__VA_ARGS__>(const ::hpa::Prepared<__VA_ARGS__>&, ::hpa::Stream);                                \
  prefix ::hpa::Verdict hpa::decode<__VA_ARGS__>(const ::hpa::Prepared<__VA_ARGS__>&, const ::hpa::DecodeArgs&, ::hpa::Stream);    \
  prefix ::hpa::Verdict hpa::paged_attention<__VA_ARGS__>(const ::hpa::DecodeShape&, const ::hpa::DecodeArgs&, ::hpa::Workspace,   \
                                                          ::hpa::Stream);                                                          \
  prefix ::hpa::Verdict hpa::check<__VA_ARGS__>(const ::hpa::DecodeShape&, const ::hpa::AppendArgs&, const ::hpa::Device&);        \
  prefix ::hpa::Verdict hpa::check<__VA_ARGS__>(const ::hpa::DecodeShape&, const ::hpa::CopyBlocksArgs&, const ::hpa::Device&);    \
  prefix ::hpa::Verdict hpa::check<__VA_ARGS__>(const ::hpa::MergeArgs&, const ::hpa::Device&);                                    \
  prefix ::hpa::Verdict hpa::append<__VA_ARGS__>(const ::hpa::DecodeShape&, const ::hpa::AppendArgs&, ::hpa::Stream);              \
  prefix ::hpa::Verdict hpa::copy_blocks<__VA_ARGS__>(const ::hpa::DecodeShape&, const ::hpa::CopyBlocksArgs&, ::hpa::Stream);     \
  prefix ::hpa::Verdict hpa::merge_states<__VA_ARGS__>(const ::hpa::MergeArgs&, ::hpa::Stream)

#define HPA_DETAIL_DECODE(prefix, machine, ...)                                                                                    \
  prefix ::hpa::Verdict hpa::detail::run_decode<machine, __VA_ARGS__::Kernel>(const ::hpa::DecodeShape&, const ::hpa::DecodeArgs&, \
                                                                              const ::hpa::detail::Prepared&, ::hpa::Stream)

/// Whatever launches a kernel does so by this one function: it is the kernel.
#define HPA_DETAIL_LAUNCH(prefix, ...) \
  prefix ::hpa::Verdict hpa::arch::launch<__VA_ARGS__>(::hpa::arch::Grid, const typename __VA_ARGS__::Params&, ::hpa::Stream)

#define HPA_DETAIL_REDUCE(prefix, machine, head_size, type, features)                                                \
  prefix ::hpa::Verdict hpa::detail::run_reduce<machine, head_size, type, ::hpa::kernel::reduce_features(features)>( \
      const ::hpa::DecodeShape&, const ::hpa::DecodeArgs&, const ::hpa::detail::Prepared&, ::hpa::Stream)

#define HPA_DETAIL_PLAN(prefix, machine)                                       \
  HPA_DETAIL_LAUNCH(prefix, ::hpa::kernel::PlanKernel<machine, true>);         \
  HPA_DETAIL_LAUNCH(prefix, ::hpa::kernel::PlanKernel<machine, false>);        \
  HPA_DETAIL_LAUNCH(prefix, ::hpa::kernel::BalancedPlanKernel<machine, true>); \
  HPA_DETAIL_LAUNCH(prefix, ::hpa::kernel::BalancedPlanKernel<machine, false>)

#define HPA_DETAIL_APPEND(prefix, machine, query, kv)                                                                   \
  prefix ::hpa::Verdict hpa::detail::launch_append_of<machine>(                                                         \
      std::integral_constant<::hpa::DType, query>, std::integral_constant<::hpa::DType, kv>, const ::hpa::DecodeShape&, \
      const ::hpa::AppendArgs&, const ::hpa::kernel::QuantiseParams&, const ::hpa::Device&, ::hpa::Stream)

#define HPA_DETAIL_COPY(prefix, machine)                           \
  HPA_DETAIL_LAUNCH(prefix, ::hpa::kernel::AppendKernel<machine>); \
  HPA_DETAIL_LAUNCH(prefix, ::hpa::kernel::CopyBlocksKernel<machine>)

#define HPA_DETAIL_MERGE(prefix, machine, from, to)                            \
  HPA_DETAIL_LAUNCH(prefix, ::hpa::kernel::MergeKernel<machine, from, to, 8>); \
  HPA_DETAIL_LAUNCH(prefix, ::hpa::kernel::MergeKernel<machine, from, to, 4>)
