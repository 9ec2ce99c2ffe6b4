// What is done to logits: ALiBi from the row's position, soft caps, sinks; alone and together, in one piece and cut.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "probes.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

const float infinity = std::numeric_limits<float>::infinity();

template <int PartitionTokens>
using Cut = Config<64, 16, DType::f16, DType::f16, PartitionTokens, Features::all>;

CaseSpec sinks_case(std::vector<float> sinks, std::vector<int> seq_lens) {
  CaseSpec spec = small_case(DType::f16, int(sinks.size()), 1, std::move(seq_lens));
  spec.shape.sinks = true;
  spec.sinks = std::move(sinks);
  return spec;
}

/// Results of the first case with partitions of 16 to 1024 tokens: each right, and all of one lse.
template <class Machine>
void expect_same_when_cut(const CaseSpec& spec) {
  PagedCase whole(spec);
  INFO(describe(whole.spec));
  const auto run = [](auto config, PagedCase& paged) {
    using C = decltype(config);
    INFO("partitions of " << C::partition_tokens);
    REQUIRE(run_decode_with<C, Machine>(paged));
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  };
  run(Cut<1024>{}, whole);
  const auto compare = [&](auto config) {
    PagedCase cut(spec);
    run(config, cut);
    CHECK(distance(cut, whole) < tolerance_of(DType::f16).out);
    double worst = 0;
    for (std::size_t i = 0; i < cut.lse.size() / 4; ++i) {
      const double one = cut.lse.as<float>()[i], other = whole.lse.as<float>()[i];
      if (one != other) worst = std::max(worst, std::abs(one - other));
    }
    CHECK(worst < tolerance_of(DType::f16).lse);
  };
  compare(Cut<16>{});
  compare(Cut<64>{});
  compare(Cut<256>{});
}

}  // namespace

// Sinks.

TEMPLATE_LIST_TEST_CASE("a sink is one more term of the denominator, once, and lse has it", "[sinks]", Machines) {
  // Queries of zero: n keys with weight 1, the sink with weight exp(sink).
  const std::vector<float> sinks = {-infinity, -100.f, -1.f, 0.f, 2.f, 8.f};
  PagedCase paged(sinks_case(sinks, {0, 1, 3, 32, 64, 50}));
  show_probabilities(paged);
  REQUIRE(run_paged_attention<small_menu<TestType>>(paged));
  for (int sequence = 0; sequence < paged.num_seqs(); ++sequence)
    for (int head = 0; head < 6; ++head) {
      const int length = paged.spec.seq_lens[std::size_t(sequence)];
      const double total = length + std::exp(double(sinks[std::size_t(head)]));
      INFO("length " << length << ", sink " << sinks[std::size_t(head)]);
      int wrong = 0;
      for (int d = 0; d < 64; ++d) {
        const double got = out_of(paged, sequence, head, d);
        wrong += d < length ? std::abs(got * total - 1) > 1.5 * rounding_of(DType::f16) + 1e-3 * (total > 1e3) : got != 0;
      }
      CHECK(wrong == 0);
      if (length == 0) CHECK(lse_of(paged, sequence, head) == -infinity);  // an empty row is empty, sink or no sink
      else CHECK(std::abs(lse_of(paged, sequence, head) - std::log(total)) < 1e-5);
    }
}

TEMPLATE_LIST_TEST_CASE("a sink of minus infinity is none; one far above all logits leaves nothing", "[sinks]", Machines) {
  CaseSpec spec = sinks_case({-infinity, -infinity}, {1, 33, 700});
  PagedCase none(spec);
  expect_right<one_menu<TestType>>(none);
  spec.shape.sinks = false;
  spec.sinks = {};
  PagedCase without(spec);
  REQUIRE(run_paged_attention<one_menu<TestType>>(without));
  CHECK((results_of(none) == results_of(without)));
  spec.shape.sinks = true;
  spec.sinks = {500.f, 88.f};
  PagedCase large(spec);
  expect_right<one_menu<TestType>>(large);
  for (int row = 0; row < 3; ++row) {
    CHECK(lse_of(large, row, 0) == 500.f);
    for (int d = 0; d < 64; ++d) CHECK(out_of(large, row, 0, d) == 0.f);
  }
}

TEMPLATE_LIST_TEST_CASE("sinks are counted once whatever the splits", "[sinks]", Machines) {
  expect_same_when_cut<TestType>(sinks_case({-infinity, -3.f, 0.f, 4.f, 30.f}, {441, 16, 17, 1000, 0, 1}));
  CaseSpec rows = sinks_case({3.f, -2.f, 5.f}, {441, 64, 900, 2});
  rows.query_lens = {4, 1, 16, 5};
  rows.shape.max_query_len = 16;
  expect_same_when_cut<TestType>(rows);
}

TEMPLATE_LIST_TEST_CASE("every head has its own sink, past a pass of heads as well", "[sinks]", Machines) {
  for (const int ratio : {1, 8, 16, 17, 40}) {
    CaseSpec spec = small_case(DType::bf16, 2 * ratio, 2, {50, 300, 3});
    spec.shape.sinks = true;
    for (int head = 0; head < 2 * ratio; ++head) spec.sinks.push_back(float(head % 7) - 2.f);
    expect_right<one_menu<TestType, DType::bf16>>(spec);
    spec.query_lens = {3, 1, 7};
    spec.shape.max_query_len = 7;
    expect_right<one_menu<TestType, DType::bf16>>(spec);
  }
}

// Soft caps.

TEMPLATE_LIST_TEST_CASE("a soft cap far below the logits leaves the mean, one far above changes nothing", "[soft cap]", Machines) {
  CaseSpec spec = small_case(DType::f16, 4, 1, {2, 17, 64, 300, 700});
  PagedCase without(spec);
  expect_right<one_menu<TestType>>(without);
  spec.shape.soft_cap = true;
  for (const float cap : {1e4f, 1e10f, 3e38f}) {
    spec.soft_cap = cap;
    PagedCase capped(spec);
    expect_right<one_menu<TestType>>(capped);
    CHECK(distance(capped, without) < tolerance_of(DType::f16).out);
  }
  for (const float cap : {1e-6f, 1e-30f, std::numeric_limits<float>::min()}) {
    spec.soft_cap = cap;
    PagedCase capped(spec);
    expect_right<one_menu<TestType>>(capped);
    PagedCase mean(spec);
    set_queries(mean, 0.f);
    REQUIRE(run_paged_attention<one_menu<TestType>>(mean));
    CHECK(distance(capped, mean) < tolerance_of(DType::f16).out);
  }
}

TEMPLATE_LIST_TEST_CASE("a soft cap of logits on both sides of it", "[soft cap]", Machines) {
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const float cap : {0.5f, 5.f, 30.f, 50.f}) {
      CaseSpec spec = small_case(type, 5, 1, {1, 33, 100, 600});
      spec.shape.soft_cap = true;
      spec.soft_cap = cap;
      spec.scale = 1.f;  // logits of a deviation of 8
      spec.key_growth = 2.f;
      expect_right<small_menu<TestType>>(spec);
      spec.query_lens = {1, 3, 2, 8};
      spec.shape.max_query_len = 8;
      expect_right<small_menu<TestType>>(spec);
    }
  }
}

// ALiBi.

TEMPLATE_LIST_TEST_CASE("the bias of each row counts from its own position", "[alibi]", Machines) {
  const float slopes[] = {0.f, 0.02f, 0.3f, -0.05f};
  for (const DType type : {DType::f16, DType::bf16}) {
    CaseSpec spec = small_case(type, 4, 1, {1, 5, 16, 33, 64, 40});
    spec.query_lens = {1, 4, 7, 16, 3, 1};
    spec.shape.max_query_len = 16;
    spec.shape.alibi = true;
    for (const bool causal : {true, false}) {
      spec.shape.causal = causal;
      PagedCase paged(spec);
      show_probabilities(paged);
      for (int head = 0; head < 4; ++head) paged.alibi_slopes.as<float>()[head] = slopes[head];
      REQUIRE(run_paged_attention<small_menu<TestType>>(paged));
      int row = 0;
      for (int sequence = 0; sequence < paged.num_seqs(); ++sequence)
        for (int j = 0; j < spec.query_lens[std::size_t(sequence)]; ++j, ++row)
          for (int head = 0; head < 4; ++head) {
            const int length = spec.seq_lens[std::size_t(sequence)], position = length - spec.query_lens[std::size_t(sequence)] + j;
            const int end = causal ? position + 1 : length;
            double sum = 0, worst = 0;
            for (int token = 0; token < end; ++token) sum += std::exp(double(slopes[head]) * (token - position));
            for (int token = 0; token < 64; ++token) {
              const double due = token < end ? std::exp(double(slopes[head]) * (token - position)) / sum : 0;
              worst = std::max(worst, std::abs(out_of(paged, row, head, token) - due));
            }
            INFO("sequence " << sequence << ", row " << j << ", slope " << slopes[head] << ", causal " << causal);
            CHECK(worst < 1.5 * rounding_of(type));
            if (end > 0) CHECK(std::abs(lse_of(paged, row, head) - std::log(sum)) < tolerance_of(type).lse);
          }
    }
  }
}

// Together.

TEMPLATE_LIST_TEST_CASE("all features together, cut and in one piece", "[logits]", Machines) {
  for (const int rows : {1, 6}) {
    CaseSpec spec = small_case(DType::f16, 6, 2, {441, 16, 1000, 0, 3});
    if (rows > 1) spec.query_lens = {rows, 1, 5, 3, rows};
    spec.shape.max_query_len = rows;
    spec.shape.alibi = spec.shape.soft_cap = spec.shape.sinks = true;
    spec.soft_cap = 3.f;
    expect_same_when_cut<TestType>(spec);
    spec.shape.sliding_window = true;
    spec.window = 300;
    spec.unmapped_expired = true;
    expect_same_when_cut<TestType>(spec);
    spec.shape.causal = false;
    expect_same_when_cut<TestType>(spec);
  }
}

TEMPLATE_LIST_TEST_CASE("a kernel with features that are all off gives the plain kernel's result", "[logits]", Machines) {
  for (const int max_seqs : {4, 64}) {
    CaseSpec spec = small_case(DType::f16, 20, 2, {1, 33, 700, 0});
    spec.shape.max_seqs = max_seqs;
    PagedCase plain(spec), general(spec);
    REQUIRE(run_paged_attention<one_menu<TestType, DType::f16, Features::none>>(plain));
    REQUIRE(run_paged_attention<one_menu<TestType, DType::f16, Features::all>>(general));
    CHECK((results_of(plain) == results_of(general)));
  }
}

TEMPLATE_LIST_TEST_CASE("features that change nothing give the result without them", "[logits]", Machines) {
  // Slopes of zero, a window past every length, no sink, a cap far away.
  CaseSpec spec = small_case(DType::bf16, 6, 2, {1, 33, 700, 0});
  PagedCase plain(spec);
  REQUIRE(run_paged_attention<small_menu<TestType>>(plain));
  spec.shape.alibi = spec.shape.sliding_window = spec.shape.sinks = true;
  spec.window = 5000;
  spec.sinks.assign(6, -infinity);
  PagedCase features(spec);
  std::fill(features.alibi_slopes.as<float>(), features.alibi_slopes.as<float>() + 6, 0.f);
  expect_right<small_menu<TestType>>(features);
  CHECK((results_of(features) == results_of(plain)));
  spec.shape.soft_cap = true;
  spec.soft_cap = 1e6f;
  PagedCase capped(spec);
  std::fill(capped.alibi_slopes.as<float>(), capped.alibi_slopes.as<float>() + 6, 0.f);
  expect_right<small_menu<TestType>>(capped);
  CHECK(distance(capped, plain) < tolerance_of(DType::bf16).out);
}
