// Split::balanced with several query rows, windows, tree masks and what is done to logits: cuts fall anywhere, also among new tokens.
#include <algorithm>
#include <random>
#include <vector>

#include "probes.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

CaseSpec balanced_case(int num_heads, int num_kv_heads, std::vector<int> seq_lens, std::vector<int> query_lens, int max_query_len) {
  CaseSpec spec = small_case(DType::f16, num_heads, num_kv_heads, std::move(seq_lens));
  spec.query_lens = std::move(query_lens);
  spec.shape.max_query_len = max_query_len;
  spec.shape.split = Split::balanced;
  spec.unmapped_expired = true;
  return spec;
}

/// Lengths around the edges of what a workgroup is dealt, and rows of all numbers, prefills and none among them.
CaseSpec random_case(std::mt19937& random, int max_query_len) {
  const auto between = [&](int low, int high) { return low + int(random() % unsigned(high - low + 1)); };
  std::vector<int> lengths, rows;
  for (int left = between(1, 8); left > 0; --left) {
    lengths.push_back(between(0, 7) == 0 ? between(0, 2) : between(0, 3) == 0 ? between(500, 2000) : between(1, 300));
    rows.push_back(between(0, 9) == 0 ? max_query_len + 3 : between(0, max_query_len));
  }
  const int kv_heads = between(1, 2);
  CaseSpec spec = balanced_case(between(1, 9) * kv_heads, kv_heads, lengths, rows, max_query_len);
  spec.seed = spec.block_seed = unsigned(between(1, 1 << 20));
  spec.guard = between(0, 1) == 0 ? Guard::end : Guard::start;
  if (between(0, 2) == 0) spec.shape.max_seqs = int(lengths.size()) + between(0, 200);
  return spec;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("balanced batches of several rows", "[balanced]", Machines) {
  std::mt19937 random(7);
  for (const int max_query_len : {1, 2, 4, 7, 16})
    for (int round = 0; round < 5; ++round) {
      CaseSpec spec = random_case(random, max_query_len);
      spec.shape.causal = round != 4;
      expect_right<one_menu<TestType>>(spec, 3);
    }
}

TEMPLATE_LIST_TEST_CASE("balanced batches with windows", "[balanced]", Machines) {
  std::mt19937 random(8);
  for (const int window : {1, 15, 16, 17, 100, 600})
    for (const int max_query_len : {1, 5}) {
      CaseSpec spec = random_case(random, max_query_len);
      spec.shape.sliding_window = true;
      spec.window = window;
      expect_right<one_menu<TestType>>(spec);
    }
}

TEMPLATE_LIST_TEST_CASE("balanced batches: each row sees its own window exactly", "[balanced]", Machines) {
  for (const int window : {1, 16, 33}) {
    CaseSpec spec = balanced_case(3, 1, {700, 64, 17, 300, 1}, {4, 1, 16, 7, 3}, 16);
    spec.shape.sliding_window = true;
    spec.window = window;
    PagedCase paged(spec);
    show_probabilities(paged);
    REQUIRE(run_paged_attention<one_menu<TestType>>(paged));
    int wrong = 0, row = 0;
    for (std::size_t sequence = 0; sequence < spec.seq_lens.size(); ++sequence)
      for (int j = 0; j < spec.query_lens[sequence]; ++j, ++row) {
        const int end = std::max(spec.seq_lens[sequence] - spec.query_lens[sequence] + j + 1, 0);
        for (int head = 0; head < 3; ++head) wrong += !saw_exactly(paged, row, head, std::max(end - window, 0), end);
      }
    CHECK(wrong == 0);
  }
}

TEMPLATE_LIST_TEST_CASE("balanced batches with sinks, caps, biases and FP8 output", "[balanced]", Machines) {
  std::mt19937 random(9);
  for (int round = 0; round < 8; ++round) {
    CaseSpec spec = random_case(random, round % 2 == 0 ? 1 : 6);
    spec.shape.sinks = round % 4 != 3;
    spec.shape.alibi = round % 3 != 0;
    spec.shape.soft_cap = round % 3 != 1;
    spec.soft_cap = spec.shape.soft_cap ? 3.f : 0.f;
    if (round % 4 == 2) spec.shape.out = DType::e4m3_ocp, spec.out_scale = 0.1f;
    expect_right<one_menu<TestType>>(spec);
  }
}

TEMPLATE_LIST_TEST_CASE("balanced batches with tree masks", "[balanced]", Machines) {
  std::mt19937 random(10);
  for (const int max_query_len : {1, 4, 9, 16}) {
    CaseSpec spec = random_case(random, max_query_len);
    spec.shape.tree_mask = true;
    expect_right<one_menu<TestType>>(spec);
  }
}

TEMPLATE_LIST_TEST_CASE("a balanced batch of several rows gives the same bits every time", "[balanced]", Machines) {
  CaseSpec spec = balanced_case(8, 2, {1500, 3, 700, 64, 0, 129}, {4, 2, 16, 1, 3, 0}, 16);
  PagedCase paged(spec);
  expect_right<one_menu<TestType>>(paged, 5);
  const auto results = results_of(paged);
  for (int i = 0; i < 4; ++i) {
    REQUIRE(run_paged_attention<one_menu<TestType>>(paged));
    CHECK((results_of(paged) == results));
  }
}
