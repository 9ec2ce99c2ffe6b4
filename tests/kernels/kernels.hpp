// The kernels that several tests and examples use, compiled once a build: each file beside this one compiles some of them, and
// programs that link hpa_kernels include this list before anything else (CMake says so to the compiler), so that they compile none of them.
//
// A kernel that is not listed here is compiled by each test that uses it, as ever: nothing has to be added for a new kernel, and if
// several tests use it, adding it is one line below and one in a file beside. A kernel that is listed and compiled nowhere is an
// undefined reference, which the linker names: hpa::detail::run_decode<its machine, its Config>.
#pragma once

#include "hpa/instantiate.hpp"

/// The decode kernels of a type of queries and a type of KV: all head sizes and block sizes, plain and with features. `DO` is
/// HPA_EXTERN_KERNEL_ON or HPA_INSTANTIATE_KERNEL_ON.
#define HPA_TEST_DECODE(DO, machine, query, kv)            \
  HPA_TEST_BLOCK_SIZES(DO, machine, query, kv, 64, none);  \
  HPA_TEST_BLOCK_SIZES(DO, machine, query, kv, 64, all);   \
  HPA_TEST_BLOCK_SIZES(DO, machine, query, kv, 128, none); \
  HPA_TEST_BLOCK_SIZES(DO, machine, query, kv, 128, all)
#define HPA_TEST_BLOCK_SIZES(DO, machine, query, kv, head_size, features)                                 \
  DO(machine, hpa::Config<head_size, 16, hpa::DType::query, hpa::DType::kv, 0, hpa::Features::features>); \
  DO(machine, hpa::Config<head_size, 32, hpa::DType::query, hpa::DType::kv, 0, hpa::Features::features>)

/// The kernels beside decode: HPA_TEST_OTHERS(EXTERN, machine) or (INSTANTIATE, machine).
#define HPA_TEST_OTHERS(where, machine)                \
  HPA_##where##_PLAN(machine);                         \
  HPA_##where##_COPY(machine);                         \
  HPA_TEST_OTHERS_OF(where, machine, hpa::DType::f16); \
  HPA_TEST_OTHERS_OF(where, machine, hpa::DType::bf16)
#define HPA_TEST_OTHERS_OF(where, machine, query)                 \
  HPA_##where##_REDUCE(machine, 64, query, hpa::Features::none);  \
  HPA_##where##_REDUCE(machine, 64, query, hpa::Features::all);   \
  HPA_##where##_REDUCE(machine, 128, query, hpa::Features::none); \
  HPA_##where##_REDUCE(machine, 128, query, hpa::Features::all);  \
  HPA_##where##_APPEND(machine, query, hpa::DType::e4m3_fnuz);    \
  HPA_##where##_APPEND(machine, query, hpa::DType::e4m3_ocp);     \
  HPA_##where##_APPEND(machine, query, hpa::DType::e5m2_ocp);     \
  HPA_##where##_APPEND(machine, query, hpa::DType::i8);           \
  HPA_##where##_MERGE(machine, query, hpa::DType::f16);           \
  HPA_##where##_MERGE(machine, query, hpa::DType::bf16)

/// Which of them there are. HPA_TEST_FEWER_TYPES, for the sanitizers: kernels that differ from these in numbers alone are not compiled.
/// i8 is the 8-bit type that has scales of its own for tokens.
#define HPA_TEST_EXTERN(machine)                              \
  HPA_TEST_OTHERS(EXTERN, machine);                           \
  HPA_TEST_DECODE(HPA_EXTERN_KERNEL_ON, machine, f16, f16);   \
  HPA_TEST_DECODE(HPA_EXTERN_KERNEL_ON, machine, bf16, bf16); \
  HPA_TEST_DECODE(HPA_EXTERN_KERNEL_ON, machine, f16, i8)
#define HPA_TEST_EXTERN_MORE_TYPES(machine)                        \
  HPA_TEST_DECODE(HPA_EXTERN_KERNEL_ON, machine, bf16, i8);        \
  HPA_TEST_DECODE(HPA_EXTERN_KERNEL_ON, machine, f16, e4m3_fnuz);  \
  HPA_TEST_DECODE(HPA_EXTERN_KERNEL_ON, machine, bf16, e4m3_fnuz); \
  HPA_TEST_DECODE(HPA_EXTERN_KERNEL_ON, machine, f16, e4m3_ocp);   \
  HPA_TEST_DECODE(HPA_EXTERN_KERNEL_ON, machine, bf16, e4m3_ocp);  \
  HPA_TEST_DECODE(HPA_EXTERN_KERNEL_ON, machine, f16, e5m2_ocp);   \
  HPA_TEST_DECODE(HPA_EXTERN_KERNEL_ON, machine, bf16, e5m2_ocp)

#if defined(HPA_PLATFORM_HOST)
HPA_TEST_EXTERN(hpa::arch::HostMachine<hpa::arch::Cdna>);
HPA_TEST_EXTERN(hpa::arch::HostMachine<hpa::arch::Nvidia>);
#if !defined(HPA_TEST_FEWER_TYPES)
HPA_TEST_EXTERN_MORE_TYPES(hpa::arch::HostMachine<hpa::arch::Cdna>);
HPA_TEST_EXTERN_MORE_TYPES(hpa::arch::HostMachine<hpa::arch::Nvidia>);
#endif
#else
HPA_TEST_EXTERN(hpa::arch::DefaultMachine);
HPA_TEST_EXTERN_MORE_TYPES(hpa::arch::DefaultMachine);
#endif

/// The machine that a file beside compiles for: on the host CMake has each file compiled once for either.
#if !defined(HPA_TEST_MACHINE)
#define HPA_TEST_MACHINE hpa::arch::DefaultMachine
#endif
