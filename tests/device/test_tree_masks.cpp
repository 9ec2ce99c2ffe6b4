// Tree masks of speculative decoding: bit i of a row's mask says whether the row sees the i-th new token of its sequence. Rows of a
// tree are compared with the chains of their ancestors, each a plain sequence of its own.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "probes.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

const float infinity = std::numeric_limits<float>::infinity();

CaseSpec tree_case(DType type, int num_heads, int num_kv_heads, std::vector<int> seq_lens, std::vector<int> query_lens) {
  CaseSpec spec = small_case(type, num_heads, num_kv_heads, std::move(seq_lens));
  spec.shape.tree_mask = true;
  spec.shape.max_query_len = *std::max_element(query_lens.begin(), query_lens.end());
  spec.query_lens = std::move(query_lens);
  return spec;
}

/// Two roots, of which the first has three children, one of them with children of its own: the parent of each row, -1 = a root.
const std::vector<int> parents = {-1, -1, 0, 0, 0, 1, 2, 2, 6, 3, 8, 8, 5, 9};

/// A node, its parent, and so on to the root, in order of position.
std::vector<int> chain_of(int node) {
  std::vector<int> chain;
  for (; node >= 0; node = parents[std::size_t(node)]) chain.insert(chain.begin(), node);
  return chain;
}

std::vector<std::uint32_t> masks_of_tree() {
  std::vector<std::uint32_t> masks;
  for (std::size_t node = 0; node < parents.size(); ++node) {
    masks.push_back(0);
    for (const int ancestor : chain_of(int(node))) masks.back() |= 1u << ancestor;
  }
  return masks;
}

float key_of(const PagedCase& paged, int sequence, int token, int kv_head, int element) {
  const std::int64_t block = paged.block_table(sequence, token / 16);
  return hpa::load_element(paged.shape().kv, paged.key_cache.data(),
                           hpa::reference::key_index(paged.shape(), paged.strides(), block, token % 16, kv_head, element));
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("each row of a tree is the end of the chain of its ancestors", "[tree]", Machines) {
  const int nodes = int(parents.size());
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const int old : {0, 5, 16, 100}) {
      CaseSpec spec = tree_case(type, 6, 2, {old + nodes}, {nodes});
      spec.tree_masks = masks_of_tree();
      PagedCase tree(spec);
      INFO(describe(tree.spec));
      expect_right<small_menu<TestType>>(tree);
      // The chains, as sequences that hold the old tokens and then the ancestors.
      CaseSpec plain = small_case(type, 6, 2, {});
      for (int node = 0; node < nodes; ++node) plain.seq_lens.push_back(old + int(chain_of(node).size()));
      PagedCase chains(plain);
      for (int node = 0; node < nodes; ++node) {
        const std::vector<int> chain = chain_of(node);
        for (int token = 0; token < plain.seq_lens[std::size_t(node)]; ++token) {
          const int from = token < old ? token : old + chain[std::size_t(token - old)];
          for (int head = 0; head < 2; ++head)
            for (int d = 0; d < 64; ++d) {
              chains.set_key(node, token, head, d, key_of(tree, 0, from, head, d));
              chains.set_value(node, token, head, d, hpa::test::value_of(tree, 0, from, head, d));
            }
        }
      }
      std::copy(tree.query.data(), tree.query.data() + tree.query.size(), chains.query.data());
      expect_right<small_menu<TestType>>(chains);
      CHECK(distance(tree, chains) < tolerance_of(type).out);
      int wrong = 0;
      for (int row = 0; row < nodes; ++row)
        for (int head = 0; head < 6; ++head) wrong += !(std::abs(lse_of(tree, row, head) - lse_of(chains, row, head)) < tolerance_of(type).lse);
      CHECK(wrong == 0);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("random trees of any size beside each other, beside prefills and in cut rows", "[tree]", Machines) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    CaseSpec spec = tree_case(seed % 2 == 0 ? DType::f16 : DType::bf16, 5, 1, {16, 40, 300, 7, 33, 64, 0, 129}, {16, 3, 8, 7, 20, 1, 4, 16});
    spec.shape.max_query_len = 16;
    spec.seed = seed;
    spec.unmapped_expired = true;
    expect_right<small_menu<TestType>>(spec);
  }
  using Fine = Config<64, 16, DType::f16, DType::f16, 32, Features::all>;
  for (const int old : {16, 24, 31, 32, 100, 250}) {
    PagedCase paged(tree_case(DType::f16, 5, 1, {old + 16, old + 5, 3}, {16, 5, 3}));
    REQUIRE(run_decode_with<Fine, TestType>(paged));
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  }
}

TEMPLATE_LIST_TEST_CASE("trees with soft caps, sinks and FP8 output", "[tree]", Machines) {
  CaseSpec spec = tree_case(DType::f16, 6, 2, {40, 300, 9}, {16, 3, 9});
  spec.shape.soft_cap = spec.shape.sinks = true;
  spec.soft_cap = 2.f;
  expect_right<small_menu<TestType>>(spec);
  spec.shape.out = DType::e4m3_fnuz;
  spec.out_scale = 0.05f;
  expect_right<small_menu<TestType>>(spec);
}

TEMPLATE_LIST_TEST_CASE("bits past a sequence's rows say nothing", "[tree]", Machines) {
  for (const int rows : {1, 3, 15, 16}) {
    CaseSpec spec = tree_case(DType::f16, 3, 1, {rows, 40, 200}, {rows, rows, rows});
    for (int row = 0; row < 3 * rows; ++row) spec.tree_masks.push_back((2u << row % rows) - 1);
    PagedCase clean(spec);
    expect_right<one_menu<TestType>>(clean);
    for (const std::uint32_t beyond : {0xffffffffu, 0xaaaaaaaau, 0x80000000u, 0x00010000u}) {
      CaseSpec junk = spec;
      for (std::uint32_t& mask : junk.tree_masks) mask |= beyond << rows;
      PagedCase paged(junk);
      REQUIRE(run_paged_attention<one_menu<TestType>>(paged));
      CHECK((results_of(paged) == results_of(clean)));
    }
  }
}

TEMPLATE_LIST_TEST_CASE("a mask of causal order gives the causal result, one of all bits that without order", "[tree]", Machines) {
  CaseSpec plain = small_case(DType::f16, 5, 1, {16, 33, 300, 5});
  plain.query_lens = {16, 4, 7, 8};
  plain.shape.max_query_len = 16;
  for (const bool causal : {true, false}) {
    plain.shape.causal = causal;
    PagedCase ordered(plain);
    expect_right<one_menu<TestType>>(ordered);
    CaseSpec spec = tree_case(DType::f16, 5, 1, plain.seq_lens, plain.query_lens);
    for (const int rows : plain.query_lens)
      for (int row = 0; row < rows; ++row) spec.tree_masks.push_back(causal ? (2u << row) - 1 : 0xffffffffu);
    PagedCase tree(spec);
    expect_right<one_menu<TestType>>(tree);
    CHECK(distance(tree, ordered) < tolerance_of(DType::f16).out);
  }
}

TEMPLATE_LIST_TEST_CASE("a mask of nothing leaves the old tokens, and an empty row where there are none", "[tree]", Machines) {
  CaseSpec spec = tree_case(DType::f16, 2, 1, {4, 20}, {4, 4});
  spec.tree_masks = {0, 1, 0, 8, 0, 1, 0, 8};
  PagedCase paged(spec);
  expect_right<one_menu<TestType>>(paged);
  for (const int row : {0, 2}) {
    CHECK(lse_of(paged, row, 1) == -infinity);
    for (int d = 0; d < 64; ++d) CHECK(out_of(paged, row, 1, d) == 0.f);
  }
  for (int d = 0; d < 64; ++d) CHECK(out_of(paged, 1, 0, d) == hpa::test::value_of(paged, 0, 0, 0, d));  // it sees token 0 alone
  CHECK(std::isfinite(lse_of(paged, 4, 0)));
}

TEMPLATE_LIST_TEST_CASE("more rows than tokens: bits of tokens that are not there say nothing", "[tree]", Machines) {
  // Row i's own token is at L - q + i; those before the first are not in the cache.
  CaseSpec spec = tree_case(DType::bf16, 3, 1, {3, 0, 1}, {8, 4, 16});
  for (int row = 0; row < 28; ++row) spec.tree_masks.push_back(row % 3 == 0 ? 0xffffffffu : 0x55555555u << row % 2);
  expect_right<one_menu<TestType, DType::bf16>>(spec);
}

TEMPLATE_LIST_TEST_CASE("a new token that no row sees may hold anything", "[tree]", Machines) {
  // A pruned branch: tokens 1 and 3 of five are in no mask.
  for (const int old : {0, 30, 200}) {
    CaseSpec spec = tree_case(DType::f16, 3, 1, {old + 5}, {5});
    spec.tree_masks = {0b00001, 0b00001, 0b00101, 0b00101, 0b10101};
    PagedCase clean(spec);
    for (const int token : {1, 3})
      for (int d = 0; d < 64; ++d) clean.set_key(0, old + token, 0, d, 0.f), clean.set_value(0, old + token, 0, d, 0.f);
    expect_right<one_menu<TestType>>(clean);
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity, 65504.f}) {
      PagedCase poisoned(spec);
      for (const int token : {1, 3})
        for (int d = 0; d < 64; ++d) poisoned.set_key(0, old + token, 0, d, poison), poisoned.set_value(0, old + token, 0, d, poison);
      INFO("old " << old << ", poison " << poison);
      REQUIRE(run_paged_attention<one_menu<TestType>>(poisoned));
      CHECK((results_of(poisoned) == results_of(clean)));
    }
  }
}

TEMPLATE_LIST_TEST_CASE("trees have the same bits alone, in any batch and at any place in memory", "[tree]", Machines) {
  CaseSpec batch = tree_case(DType::f16, 3, 1, {700, 14, 60}, {4, 14, 2});
  batch.shape.max_seqs = 4;
  batch.sequence_seeds = {50, 51, 52};
  batch.tree_masks = {1, 3, 5, 0xb};
  for (const std::uint32_t mask : masks_of_tree()) batch.tree_masks.push_back(mask);
  batch.tree_masks.insert(batch.tree_masks.end(), {1, 2});
  PagedCase together(batch);
  expect_right<one_menu<TestType>>(together);
  CaseSpec alone = batch;
  alone.shape.max_seq_len = 700;
  alone.seq_lens = {14}, alone.query_lens = {14}, alone.sequence_seeds = {51};
  alone.tree_masks = masks_of_tree();
  alone.block_seed = 9;
  PagedCase one(alone);
  REQUIRE(run_paged_attention<one_menu<TestType>>(one));
  CHECK((one.result_of(0) == together.result_of(1)));
  alone.seq_lens = {60, 700}, alone.query_lens = {2, 4}, alone.sequence_seeds = {52, 50};
  alone.tree_masks = {1, 2, 1, 3, 5, 0xb};
  PagedCase two(alone);
  REQUIRE(run_paged_attention<one_menu<TestType>>(two));
  CHECK((two.result_of(0) == together.result_of(2)));
  CHECK((two.result_of(1) == together.result_of(0)));
}
