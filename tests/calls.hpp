// The library's calls on a PagedCase, on the machines that there are: a device's own, or on the host both emulated ones.
#pragma once

#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "paged_case.hpp"

namespace hpa::test {

#if defined(HPA_PLATFORM_HOST)
using Machines = std::tuple<arch::HostMachine<arch::Cdna>, arch::HostMachine<arch::Nvidia>>;  // CDNA's lanes, NVIDIA's lanes
#else
using Machines = std::tuple<arch::DefaultMachine>;
#endif

template <class Machine>
using full_menu = default_menu::with<machine<Machine>>;
/// All sizes, and nothing but the plain case.
template <class Machine>
using plain_menu = default_menu::with<feature_sets<Features::none>, machine<Machine>>;
/// For what does not depend on sizes: less to compile.
template <class Machine>
using small_menu = default_menu::with<head_sizes<64>, block_sizes<16>, machine<Machine>>;

/// The one kernel of a type and a set of features.
template <class Machine, DType Type = DType::f16, Features Can = Features::all>
using one_menu = default_menu::with<query_types<Type>, head_sizes<64>, block_sizes<16>, feature_sets<Can>, machine<Machine>>;

inline Device this_device() {
  Device device;
  if (const Verdict verdict = current_device(&device); !verdict) throw std::runtime_error(verdict.why);
  return device;
}

/// Sanitizers look at addresses and threads: of the numbers, which the build without them compares in full, they see a part, and of
/// inputs that differ in values alone one.
#if defined(HPA_TEST_FEWER_TYPES)
inline constexpr bool fewer_values = true;
inline constexpr int compare_every = 7;
#else
inline constexpr bool fewer_values = false;
inline constexpr int compare_every = 1;
#endif

/// plan and decode, with the workspace that the library asks for.
template <class Menu = default_menu>
Verdict run_paged_attention(PagedCase& paged, Stream stream = {}) {
  const auto call = [](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, Stream on) {
    return paged_attention<Menu>(shape, args, workspace, on);
  };
  return paged.run(workspace_bytes<Menu>(paged.shape(), this_device()), stream, call);
}

/// The same by a kernel chosen at compile time.
template <class Config, class Machine = arch::DefaultMachine>
Verdict run_decode_with(PagedCase& paged, Stream stream = {}) {
  const auto call = [](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, Stream on) {
    if (const Verdict verdict = plan_with<Config, Machine>(shape, args.batch, workspace, on); !verdict) return verdict;
    return decode_with<Config, Machine>(shape, args, workspace, on);
  };
  return paged.run(workspace_bytes_with<Config, Machine>(paged.shape(), this_device()), stream, call);
}

/// Runs the case, which must be accepted, give what the reference gives and write nothing else.
template <class Menu>
void expect_right(PagedCase& paged, int every = 1) {
  INFO(describe(paged.spec));
  const Verdict verdict = run_paged_attention<Menu>(paged);
  INFO(verdict.field << ": " << verdict.why);
  REQUIRE(verdict);
  CHECK(paged.check_against_reference(tolerance_of(paged.shape().query), every * compare_every).problem == "");
}

template <class Menu>
void expect_right(const CaseSpec& spec, int every = 1) {
  PagedCase paged(spec);
  expect_right<Menu>(paged, every);
}

/// The bytes of all sequences' results.
inline std::vector<std::vector<std::uint8_t>> results_of(const PagedCase& paged) {
  std::vector<std::vector<std::uint8_t>> all;
  for (int sequence = 0; sequence < paged.num_seqs(); ++sequence) all.push_back(paged.result_of(sequence));
  return all;
}

/// A batch of one type: head size 64, block size 16.
inline CaseSpec small_case(DType type, int num_heads, int num_kv_heads, std::vector<int> seq_lens) {
  CaseSpec spec;
  spec.shape.query = spec.shape.kv = spec.shape.out = type;
  spec.shape.head_size = 64;
  spec.shape.num_heads = num_heads;
  spec.shape.num_kv_heads = num_kv_heads;
  spec.shape.lse = true;
  spec.seq_lens = std::move(seq_lens);
  return spec;
}

}  // namespace hpa::test
