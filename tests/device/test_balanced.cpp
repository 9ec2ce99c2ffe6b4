// Split::balanced against the reference, on ragged batches; and decode that may ask for the cache early.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "calls.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

CaseSpec balanced_case(DType type, int num_heads, int num_kv_heads, std::vector<int> seq_lens) {
  CaseSpec spec = small_case(type, num_heads, num_kv_heads, std::move(seq_lens));
  spec.shape.split = Split::balanced;
  return spec;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("balanced batches are right whatever their lengths", "[balanced]", Machines) {
  using Menu = small_menu<TestType>;
  std::mt19937 random(31);
  const auto between = [&](int low, int high) { return low + int(random() % unsigned(high - low + 1)); };
  const int ratios[] = {1, 4, 8, 11, 16, 24};
  for (int round = 0; round < 24; ++round) {
    const int ratio = ratios[round % 6], kv_heads = ratio > 8 ? 1 : between(1, 3);
    std::vector<int> lengths;
    for (int left = between(1, 9); left > 0; --left)
      lengths.push_back(between(0, 7) == 0 ? 0 : between(0, 3) == 0 ? between(700, 3000) : between(1, 300));
    CaseSpec spec = balanced_case(round % 2 == 0 ? DType::bf16 : DType::f16, ratio * kv_heads, kv_heads, lengths);
    spec.seed = spec.block_seed = 100 + unsigned(round);
    spec.shape.alibi = round % 5 == 0;
    if (round % 3 == 0) spec.shape.max_seqs = int(lengths.size()) + between(0, 300);
    if (round % 4 == 0)
      for (std::size_t i = 0; i < lengths.size(); ++i) spec.query_lens.push_back(std::min(lengths[i], between(0, 2)));
    expect_right<Menu>(spec);
  }
}

TEMPLATE_LIST_TEST_CASE("one long row is shared by all workgroups, many short ones are not cut", "[balanced]", Machines) {
  using Menu = small_menu<TestType>;
  expect_right<Menu>(balanced_case(DType::bf16, 8, 1, {9001}));
  expect_right<Menu>(balanced_case(DType::bf16, 2, 2, {5, 6000, 0, 33}));
  expect_right<Menu>(balanced_case(DType::f16, 4, 1, std::vector<int>(70, 17)));
  expect_right<Menu>(balanced_case(DType::f16, 4, 1, {0, 0, 0}));
}

TEMPLATE_LIST_TEST_CASE("a balanced batch gives the same bits every time", "[balanced]", Machines) {
  using Menu = small_menu<TestType>;
  const CaseSpec spec = balanced_case(DType::bf16, 8, 2, {1500, 3, 700, 64, 2100, 0, 129});
  PagedCase first(spec), second(spec);
  REQUIRE(run_paged_attention<Menu>(first));
  REQUIRE(run_paged_attention<Menu>(second));
  CHECK(results_of(first) == results_of(second));
}

TEMPLATE_LIST_TEST_CASE("a balanced workspace is bounded by workgroups and sequences", "[balanced]", Machines) {
  using Menu = small_menu<TestType>;
  const hpa::Device device = this_device();
  DecodeShape shape = small_case(DType::bf16, 32, 8, {1}).shape;
  shape.split = Split::balanced;
  for (const int max_seqs : {1, 8, 64, 1000}) {
    shape.max_seqs = max_seqs;
    shape.max_seq_len = 1 << 14;
    const std::size_t bytes = hpa::workspace_bytes<Menu>(shape, device);
    CHECK(bytes > 0);
    shape.max_seq_len = 1 << 20;
    CHECK(hpa::workspace_bytes<Menu>(shape, device) == bytes);
    const std::size_t workgroups = std::size_t(4 * device.compute_units), heads = 32;
    CHECK(bytes < 2048 + 64 * (std::size_t(max_seqs) + workgroups) + 2 * workgroups * heads * (shape.head_size * 4 + 8));
  }
}

TEMPLATE_LIST_TEST_CASE("a kernel with its own partition length does not balance", "[balanced]", Machines) {
  using Config = hpa::Config<64, 16, DType::bf16, DType::bf16, 256>;
  PagedCase paged(balanced_case(DType::bf16, 8, 1, {300}));
  CHECK(hpa::workspace_bytes_with<Config, TestType>(paged.shape(), this_device()) == 0);
  const Verdict verdict =
      paged.run(1 << 20, {}, [](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, Stream on) {
        return hpa::plan_with<Config, TestType>(shape, args.batch, workspace, on);
      });
  CHECK(verdict.status == Status::unsupported);
  CHECK(std::string(verdict.field) == "split");
}

TEMPLATE_LIST_TEST_CASE("a cache that is ready gives the same bits", "[balanced]", Machines) {
  using Menu = small_menu<TestType>;
  const auto call = [](const DecodeShape& shape, DecodeArgs args, Workspace workspace, Stream on) {
    args.allow_early_kv_loads = true;
    return hpa::paged_attention<Menu>(shape, args, workspace, on);
  };
  for (const Split split : {Split::by_length, Split::balanced})
    for (const std::vector<int>& lengths :
         {std::vector<int>{1}, {16, 17, 15, 0, 32, 33}, {64, 129, 1000, 0, 3000}, std::vector<int>(40, 100)}) {
      CaseSpec spec = balanced_case(DType::bf16, 8, 2, lengths);
      spec.shape.split = split;
      PagedCase ready(spec), other(spec);
      REQUIRE(ready.run(hpa::workspace_bytes<Menu>(ready.shape(), this_device()), {}, call));
      REQUIRE(run_paged_attention<Menu>(other));
      CHECK(results_of(ready) == results_of(other));
      CHECK(ready.check_against_reference(hpa::test::tolerance_of(DType::bf16), 1).problem == "");
    }
}
