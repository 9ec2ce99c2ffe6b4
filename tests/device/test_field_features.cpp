// Faults reported in public, as inputs: those of masks, windows, several query rows and what is done to logits. The ids are those of the
// list of field cases.
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

/// f16, head size 64, blocks of 16 tokens, of the given query rows a sequence.
CaseSpec rows_case(int num_heads, int num_kv_heads, std::vector<int> seq_lens, std::vector<int> query_lens, int max_query_len) {
  CaseSpec spec = small_case(DType::f16, num_heads, num_kv_heads, std::move(seq_lens));
  spec.query_lens = std::move(query_lens);
  spec.shape.max_query_len = max_query_len;
  return spec;
}

CaseSpec window_case(int window, std::vector<int> seq_lens) {
  CaseSpec spec = small_case(DType::f16, 2, 1, std::move(seq_lens));
  spec.shape.sliding_window = true;
  spec.window = window;
  spec.unmapped_expired = true;
  return spec;
}

template <int PartitionTokens>
using Cut = Config<64, 16, DType::f16, DType::f16, PartitionTokens, Features::all>;

}  // namespace

TEMPLATE_LIST_TEST_CASE("F03: short requests in the pages of long ones, with a window", "[field]", Machines) {
  CaseSpec spec = window_case(300, {8192, 8192, 300});
  spec.unmapped_expired = false;
  PagedCase reused(spec);
  REQUIRE(run_paged_attention<one_menu<TestType>>(reused));
  const std::vector<int> lengths = {2048, 2041, 17};
  spec.shape = reused.shape();
  spec.seq_lens = lengths;
  PagedCase fresh(spec);
  expect_right<one_menu<TestType>>(fresh);
  // The long requests' tokens are still there, in the blocks that they had; what the short ones see is written over them.
  for (int sequence = 0; sequence < 3; ++sequence)
    for (int token = std::max(lengths[std::size_t(sequence)] - 300, 0); token < lengths[std::size_t(sequence)]; ++token)
      for (int d = 0; d < 64; ++d) {
        const std::int64_t block = fresh.block_table(sequence, token / 16);
        const auto key = hpa::reference::key_index(fresh.shape(), fresh.strides(), block, token % 16, 0, d);
        reused.set_key(sequence, token, 0, d, hpa::load_element(DType::f16, fresh.key_cache.data(), key));
        reused.set_value(sequence, token, 0, d, hpa::test::value_of(fresh, sequence, token, 0, d));
      }
  std::copy(lengths.begin(), lengths.end(), reused.seq_lens.as<std::int32_t>());
  REQUIRE(run_paged_attention<one_menu<TestType>>(reused));
  CHECK((results_of(reused) == results_of(fresh)));
}

TEMPLATE_LIST_TEST_CASE("F04: cross-attention, fewer keys than query rows", "[field]", Machines) {
  CaseSpec spec = rows_case(4, 2, {3, 1, 0, 40, 15}, {8, 16, 4, 2, 16}, 16);
  spec.shape.causal = false;
  PagedCase paged(spec);
  expect_right<one_menu<TestType>>(paged);
  paged.set_seq_lens({0, 0, 0, 0, 0});  // a warm-up without keys, then the same pages with some
  expect_right<one_menu<TestType>>(paged);
  paged.set_seq_lens({2, 1, 0, 33, 15});
  expect_right<one_menu<TestType>>(paged);
}

TEMPLATE_LIST_TEST_CASE("F26: rows before the first key have an lse of minus infinity", "[field]", Machines) {
  PagedCase paged(rows_case(4, 2, {3, 20}, {5, 16}, 16));
  expect_right<one_menu<TestType>>(paged);
  for (int head = 0; head < 4; ++head) {
    CHECK(lse_of(paged, 0, head) == -infinity);
    CHECK(lse_of(paged, 1, head) == -infinity);
    CHECK(std::isfinite(lse_of(paged, 2, head)));
  }
}

TEMPLATE_LIST_TEST_CASE("F42: 71 query heads on one KV head, several rows", "[field]", Machines) {
  expect_right<one_menu<TestType>>(rows_case(71, 1, {1, 150, 0, 33}, {1, 3, 2, 4}, 4), 3);
}

TEMPLATE_LIST_TEST_CASE("F59: scratch of mixed batches whose rows are more than sequences", "[field]", Machines) {
  expect_right<one_menu<TestType>>(rows_case(4, 2, {700, 300, 17, 640, 900}, {16, 60, 16, 0, 16}, 16), 5);
}

TEMPLATE_LIST_TEST_CASE("F68: query lengths 4, 1, 3, 0, 2: row i of n sees L - n + i + 1 keys", "[field]", Machines) {
  const std::vector<int> lengths = {40, 1, 17, 9, 64}, rows = {4, 1, 3, 0, 2};
  PagedCase paged(rows_case(4, 2, lengths, rows, 4));
  show_probabilities(paged);
  REQUIRE(run_paged_attention<one_menu<TestType>>(paged));
  int wrong = 0, row = 0;
  for (std::size_t sequence = 0; sequence < lengths.size(); ++sequence)
    for (int i = 0; i < rows[sequence]; ++i, ++row)
      for (int head = 0; head < 4; ++head) wrong += !saw_exactly(paged, row, head, 0, lengths[sequence] - rows[sequence] + i + 1);
  CHECK(wrong == 0);
}

TEMPLATE_LIST_TEST_CASE("F70: a plan for one query length and a run with another", "[field]", Machines) {
  using Menu = one_menu<TestType>;
  PagedCase paged(rows_case(4, 2, {40, 700}, {4, 4}, 4));
  for (const int planned : {1, 3, 8}) {
    Verdict error;
    REQUIRE(paged.run(std::size_t{1} << 20, {},
                      [&](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, hpa::Stream stream) {
                        DecodeShape other = shape;
                        other.max_query_len = planned;
                        if (const Verdict verdict = hpa::plan<Menu>(other, args.batch, workspace, stream); !verdict) return verdict;
                        const Verdict verdict = hpa::decode<Menu>(shape, args, workspace, stream);
                        error = hpa::workspace_error(workspace, stream);
                        return verdict;
                      }));
    CHECK(error.field == std::string("workspace"));
    CHECK(paged.outputs_untouched());
  }
  DecodeShape shape = paged.shape();
  shape.max_query_len = 17;
  const Verdict verdict = hpa::check<Menu>(shape, this_device());
  CHECK(verdict.status == Status::unsupported);
  CHECK(verdict.field == std::string("max_query_len"));
}

TEMPLATE_LIST_TEST_CASE("F72: of rows 0, 1, 6, 7, 7, 8 those of sequences that are too long keep their bytes", "[field]", Machines) {
  for (const int max_query_len : {1, 2, 4, 5})
    expect_right<one_menu<TestType>>(rows_case(4, 2, {33, 500, 40, 64, 90}, {1, 5, 1, 0, 1}, max_query_len));
}

TEMPLATE_LIST_TEST_CASE("F84: sinks in one piece and in splits", "[field]", Machines) {
  for (const int rows : {1, 4}) {
    CaseSpec spec = rows_case(4, 1, {300, 33, 3}, std::vector<int>(3, rows), rows);
    spec.shape.sinks = true;
    spec.sinks = {0.f, 3.f, -2.f, 6.f};
    PagedCase whole(spec), split(spec);
    REQUIRE(run_decode_with<Cut<512>, TestType>(whole));
    CHECK(whole.check_against_reference(tolerance_of(DType::f16)).problem == "");
    REQUIRE(run_decode_with<Cut<32>, TestType>(split));
    CHECK(split.check_against_reference(tolerance_of(DType::f16)).problem == "");
    CHECK(hpa::test::distance(split, whole) < tolerance_of(DType::f16).out);
  }
}

TEMPLATE_LIST_TEST_CASE("F86: a window counts keys, the current one included", "[field]", Machines) {
  for (const int window : {1, 2, 3, 16, 17}) {
    PagedCase paged(window_case(window, {1, 2, 3, 16, 17, 18, 33, 100}));
    show_probabilities(paged);
    REQUIRE(run_paged_attention<one_menu<TestType>>(paged));
    int wrong = 0;
    for (int sequence = 0; sequence < paged.num_seqs(); ++sequence) {
      const int length = paged.spec.seq_lens[std::size_t(sequence)];
      wrong += !saw_exactly(paged, sequence, 0, std::max(length - window, 0), length);
    }
    CHECK(wrong == 0);
  }
}

TEMPLATE_LIST_TEST_CASE("F10, F87: windows shorter than the sequence, neither end on a block", "[field]", Machines) {
  expect_right<one_menu<TestType>>(window_case(100, {1000, 99, 101, 520}));
  expect_right<one_menu<TestType>>(window_case(512, {512, 513, 600, 1025, 4001}));
}

TEMPLATE_LIST_TEST_CASE("F88: what means no window", "[field]", Machines) {
  using Menu = one_menu<TestType>;
  PagedCase paged(small_case(DType::f16, 2, 1, {600, 33}));
  expect_right<Menu>(paged);  // sliding_window off and window 0
  const auto results = results_of(paged);
  DecodeShape shape = paged.shape();
  DecodeArgs args = paged.args();
  for (const int window : {-1, 1, 600}) {  // a window that nobody asked for
    args.batch.window = window;
    CHECK(hpa::check<Menu>(shape, args, this_device()).field == std::string("window"));
  }
  shape.sliding_window = true;
  for (const int window : {0, -1, std::numeric_limits<int>::min()}) {  // and one that is none
    args.batch.window = window;
    CHECK(hpa::check<Menu>(shape, args, this_device()).field == std::string("window"));
  }
  CaseSpec spec = paged.spec;
  spec.shape.sliding_window = true;
  for (const int window : {600, 601, std::numeric_limits<int>::max()}) {
    spec.window = window;
    PagedCase wide(spec);
    REQUIRE(run_paged_attention<Menu>(wide));
    CHECK((results_of(wide) == results));
  }
}

TEMPLATE_LIST_TEST_CASE("F91: a soft cap of 50 on scores of about 200, and the same without", "[field]", Machines) {
  for (const bool capped : {true, false}) {
    CaseSpec spec = small_case(DType::f16, 2, 1, {5, 33, 300});
    spec.shape.soft_cap = capped;
    spec.soft_cap = capped ? 50.f : 0.f;
    spec.scale = 1.f;
    PagedCase paged(spec);
    set_queries(paged, 0.f);
    for (int row = 0; row < 3; ++row)
      for (int head = 0; head < 2; ++head) paged.set_query(row, head, 0, 16.f), paged.set_query(row, head, 1, 1.f);
    for (int sequence = 0; sequence < 3; ++sequence)
      for (int token = 0; token < spec.seq_lens[std::size_t(sequence)]; ++token) {
        paged.set_key(sequence, token, 0, 0, 12.5f);                  // 200
        paged.set_key(sequence, token, 0, 1, float(token % 5) * 4.f);  // to 216: 49.97 to 49.98 under the cap
      }
    expect_right<one_menu<TestType>>(paged);
    CHECK((lse_of(paged, 2, 0) < 56.f) == capped);
  }
  PagedCase paged(small_case(DType::f16, 2, 1, {33}));
  DecodeShape shape = paged.shape();
  DecodeArgs args = paged.args();
  shape.soft_cap = true;
  for (const float cap : {0.f, -50.f, std::numeric_limits<float>::quiet_NaN(), infinity}) {
    args.soft_cap = cap;
    CHECK(hpa::check<one_menu<TestType>>(shape, args, this_device()).field == std::string("soft_cap"));
  }
}

TEMPLATE_LIST_TEST_CASE("F95, G09: scores below -1e4 inside the window, far above outside", "[field]", Machines) {
  for (const int rows : {1, 4}) {
    CaseSpec spec = window_case(40, {17, 300, 61});
    spec.unmapped_expired = false;
    spec.query_lens.assign(3, rows);
    spec.shape.max_query_len = rows;
    spec.scale = 1.f;
    PagedCase paged(spec);
    set_queries(paged, 0.f);
    for (int row = 0; row < 3 * rows; ++row)
      for (int head = 0; head < 2; ++head) paged.set_query(row, head, 0, 100.f), paged.set_query(row, head, 1, 1.f);
    for (int sequence = 0; sequence < 3; ++sequence) {
      const int length = paged.spec.seq_lens[std::size_t(sequence)], first_seen = std::max(length - rows + 1 - 40, 0);
      for (int token = 0; token < length; ++token)
        for (int d = 0; d < 64; ++d) {
          const bool seen = token >= first_seen;
          paged.set_key(sequence, token, 0, d, d == 0 ? (seen ? -200.f : 200.f) : d == 1 && seen ? float(token % 3) : 0.f);
          if (!seen) paged.set_value(sequence, token, 0, d, 1000.f);
        }
    }
    REQUIRE(run_paged_attention<one_menu<TestType>>(paged));
    CHECK(paged.check_against_reference(5e-3, 0.02).problem == "");  // logits of 2e4 have a spacing of 2e-3
  }
}
