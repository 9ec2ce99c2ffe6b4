// Explicit instantiation: an engine compiles the kernels once, in as many translation units as it likes.
//
// Without it every translation unit that calls the library compiles the menu's kernels again. With it, one header says what is
// compiled elsewhere and a few sources compile it:
//
//   // attention.hpp, included wherever attention is called: plain host code from here on, compiled in no time
//   #include "hpa/instantiate.hpp"
//   using engine_menu = hpa::default_menu::with<hpa::query_types<hpa::DType::bf16>, hpa::block_sizes<16>, hpa::feature_sets<hpa::Features::plain>>;
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
// All four stand in the global namespace, an EXTERN before any call that it speaks of. A program that has an EXTERN and lacks the
// INSTANTIATE does not link. The kernels of one menu or Config are the same code whichever source compiles them.
#pragma once

#include "hpa/cache.hpp"
#include "hpa/decode.hpp"
#include "hpa/menu.hpp"
#include "hpa/merge.hpp"
#include "hpa/plan.hpp"

/// The menu's public calls (plan, decode, paged_attention, append, copy_blocks, merge_states) are compiled in another translation unit.
#define HPA_EXTERN(...) HPA_DETAIL_MENU(extern template, __VA_ARGS__)
/// They are compiled here, with all kernels that no HPA_EXTERN_KERNEL above gives to another translation unit.
#define HPA_INSTANTIATE(...) HPA_DETAIL_MENU(template, __VA_ARGS__)

/// The decode kernel of one Config, and the reduce kernel that it needs, are compiled in another translation unit; both for the
/// default machine. Serves decode() and decode_with<Config>() alike.
#define HPA_EXTERN_KERNEL(...) HPA_DETAIL_KERNEL(extern template, __VA_ARGS__)
/// They are compiled here.
#define HPA_INSTANTIATE_KERNEL(...) HPA_DETAIL_KERNEL(template, __VA_ARGS__)

#define HPA_DETAIL_MENU(prefix, ...)                                                                                             \
  prefix ::hpa::Verdict hpa::plan<__VA_ARGS__>(const ::hpa::DecodeShape&, const ::hpa::DecodeArgs&, ::hpa::Workspace,            \
                                               ::hpa::Stream);                                                                   \
  prefix ::hpa::Verdict hpa::decode<__VA_ARGS__>(const ::hpa::DecodeShape&, const ::hpa::DecodeArgs&, ::hpa::Workspace,          \
                                                 ::hpa::Stream);                                                                 \
  prefix ::hpa::Verdict hpa::paged_attention<__VA_ARGS__>(const ::hpa::DecodeShape&, const ::hpa::DecodeArgs&, ::hpa::Workspace, \
                                                          ::hpa::Stream);                                                        \
  prefix ::hpa::Verdict hpa::append<__VA_ARGS__>(const ::hpa::DecodeShape&, const ::hpa::AppendArgs&, ::hpa::Stream);            \
  prefix ::hpa::Verdict hpa::copy_blocks<__VA_ARGS__>(const ::hpa::DecodeShape&, const ::hpa::CopyBlocksArgs&, ::hpa::Stream);   \
  prefix ::hpa::Verdict hpa::merge_states<__VA_ARGS__>(const ::hpa::MergeArgs&, ::hpa::Stream)

#define HPA_DETAIL_KERNEL(prefix, ...)                                                     \
  prefix ::hpa::Verdict hpa::detail::run_decode<::hpa::arch::DefaultMachine, __VA_ARGS__>( \
      const ::hpa::DecodeShape&, const ::hpa::DecodeArgs&, const ::hpa::detail::Prepared&, ::hpa::Stream)
