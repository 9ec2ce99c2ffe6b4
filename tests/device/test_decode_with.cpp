// Kernels and partition sizes chosen at compile time.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "calls.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

template <class C>
CaseSpec case_for(int num_heads, int num_kv_heads, std::vector<int> lengths) {
  CaseSpec spec = small_case(C::query, num_heads, num_kv_heads, std::move(lengths));
  spec.shape.head_size = C::head_size;
  spec.shape.block_size = C::block_size;
  spec.shape.alibi = C::can(Features::alibi);
  return spec;
}

/// Lengths around the edges of a Config's partitions, in batches of few rows and of many.
template <class C, class Machine>
void expect_right_at_edges() {
  const int size = C::partition_tokens == 0 ? 128 : C::partition_tokens;
  for (const int max_seqs : {0, 100}) {
    CaseSpec spec = case_for<C>(6, 2, {0, 1, size - 1, size, size + 1, 2 * size, 3 * size - 1, 3 * size + 1});
    spec.shape.max_seqs = max_seqs;
    spec.seed = unsigned(size + max_seqs);
    PagedCase paged(spec);
    INFO(describe(paged.spec) << ", partitions of " << C::partition_tokens);
    REQUIRE(run_decode_with<C, Machine>(paged));
    CHECK(paged.check_against_reference(tolerance_of(C::query), 4).problem == "");
  }
}

/// lse and out of the only sequence, head by head.
struct Result {
  std::vector<float> lse, out;
};

template <class C, class Machine>
Result result_with(PagedCase& paged) {
  REQUIRE(run_decode_with<C, Machine>(paged));
  CHECK(paged.check_against_reference(tolerance_of(C::query)).problem == "");
  Result result;
  for (std::size_t i = 0; i < paged.lse.size() / 4; ++i) result.lse.push_back(paged.lse.as<float>()[i]);
  for (std::size_t i = 0; i < paged.out.size() / 2; ++i)
    result.out.push_back(hpa::load_element(paged.shape().out, paged.out.data(), std::int64_t(i)));
  return result;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("partitions of upstream's 256 tokens, and others", "[decode_with]", Machines) {
  expect_right_at_edges<Config<128, 16, DType::bf16, DType::bf16, 256>, TestType>();
  expect_right_at_edges<Config<64, 32, DType::f16, DType::f16, 256, Features::all>, TestType>();
  expect_right_at_edges<Config<64, 16, DType::f16, DType::f16, 512>, TestType>();
  expect_right_at_edges<Config<128, 32, DType::f16, DType::f16, 64>, TestType>();
  expect_right_at_edges<Config<64, 16, DType::bf16, DType::bf16, 48>, TestType>();
  expect_right_at_edges<Config<64, 16, DType::f16, DType::f16, 16>, TestType>();
  expect_right_at_edges<Config<64, 16, DType::f16>, TestType>();
}

TEMPLATE_LIST_TEST_CASE("F28: lse and out of one, two and seven partitions", "[decode_with]", Machines) {
  for (const float growth : {0.f, 3.f}) {
    CaseSpec spec = small_case(DType::f16, 5, 1, {441});
    spec.key_growth = growth;
    PagedCase paged(spec);
    const Result one = result_with<Config<64, 16, DType::f16, DType::f16, 448>, TestType>(paged);
    const Result two = result_with<Config<64, 16, DType::f16, DType::f16, 224>, TestType>(paged);
    const Result seven = result_with<Config<64, 16, DType::f16, DType::f16, 64>, TestType>(paged);
    for (const Result* cut : {&two, &seven}) {
      double worst = 0, difference = 0, norm = 0;
      for (std::size_t i = 0; i < one.lse.size(); ++i) worst = std::max<double>(worst, std::abs(cut->lse[i] - one.lse[i]));
      for (std::size_t i = 0; i < one.out.size(); ++i)
        difference += std::pow(cut->out[i] - one.out[i], 2), norm += std::pow(one.out[i], 2);
      CHECK(worst < tolerance_of(DType::f16).lse);
      CHECK(std::sqrt(difference / norm) < tolerance_of(DType::f16).out);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("a Config without a partition size is the menu's kernel by the library's rule", "[decode_with]", Machines) {
  for (const int max_seqs : {3, 100}) {
    using Kernel = Config<64, 16, DType::f16>;
    CaseSpec spec = case_for<Kernel>(4, 1, {900, 33, 0});
    spec.shape.max_seqs = max_seqs;
    PagedCase paged(spec);
    CHECK(hpa::workspace_bytes_with<Kernel, TestType>(paged.shape(), this_device()) ==
          hpa::workspace_bytes<small_menu<TestType>>(paged.shape(), this_device()));
    REQUIRE(run_paged_attention<small_menu<TestType>>(paged));
    const auto results = results_of(paged);
    REQUIRE(run_decode_with<Kernel, TestType>(paged));
    CHECK((results_of(paged) == results));
  }
}

TEMPLATE_LIST_TEST_CASE("what a Config is not for is refused", "[decode_with]", Machines) {
  using Kernel = Config<64, 16, DType::f16, DType::f16, 256>;
  const auto refused = [](const char* field, CaseSpec spec) {
    PagedCase paged(std::move(spec));
    INFO("expected: " << field);
    CHECK(hpa::workspace_bytes_with<Kernel, TestType>(paged.shape(), this_device()) == 0);
    const auto planned = [](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, hpa::Stream stream) {
      return hpa::plan_with<Kernel, TestType>(shape, args.batch, workspace, stream);
    };
    const auto decoded = [](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, hpa::Stream stream) {
      return hpa::decode_with<Kernel, TestType>(shape, args, workspace, stream);
    };
    CHECK(paged.run(1 << 20, {}, planned).field == std::string(field));
    CHECK(paged.run(1 << 20, {}, decoded).field == std::string(field));
    CHECK(paged.outputs_untouched());
  };
  refused("head_size", case_for<Config<128, 16, DType::f16>>(4, 1, {40}));
  refused("block_size", case_for<Config<64, 32, DType::f16>>(4, 1, {40}));
  refused("query", case_for<Config<64, 16, DType::bf16>>(4, 1, {40}));
  refused("alibi", case_for<Config<64, 16, DType::f16, DType::f16, 0, Features::all>>(4, 1, {40}));
  PagedCase paged(case_for<Kernel>(4, 1, {1000}));
  const std::size_t needed = hpa::workspace_bytes_with<Kernel, TestType>(paged.shape(), this_device());
  const Verdict verdict =
      paged.run(needed - 1, {}, [](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, hpa::Stream stream) {
        return hpa::decode_with<Kernel, TestType>(shape, args, workspace, stream);
      });
  CHECK(verdict.status == Status::workspace_too_small);
}

TEMPLATE_LIST_TEST_CASE("a plan for other partitions is reported and nothing is written", "[decode_with]", Machines) {
  using Planned = Config<64, 16, DType::f16, DType::f16, 64>;
  using Decoded = Config<64, 16, DType::f16, DType::f16, 256>;
  PagedCase paged(case_for<Planned>(4, 1, {700, 20}));
  Verdict error;
  REQUIRE(paged.run(hpa::workspace_bytes_with<Planned, TestType>(paged.shape(), this_device()), {},
                    [&](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, hpa::Stream stream) {
                      if (const Verdict verdict = hpa::plan_with<Planned, TestType>(shape, args.batch, workspace, stream); !verdict)
                        return verdict;
                      const Verdict verdict = hpa::decode_with<Decoded, TestType>(shape, args, workspace, stream);
                      error = hpa::workspace_error(workspace, stream);
                      return verdict;
                    }));
  CHECK(error.field == std::string("workspace"));
  CHECK(paged.outputs_untouched());
  CHECK(paged.write_where_none_is_due() == "");
}
