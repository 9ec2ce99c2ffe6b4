// Several query rows of a sequence: row j of q rows is at position L - q + j and sees the keys up to there, or all keys where the order
// is not causal.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "probes.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

/// A batch of sequences with the given lengths and query rows.
CaseSpec rows_case(DType type, int num_heads, int num_kv_heads, std::vector<int> seq_lens, std::vector<int> query_lens) {
  CaseSpec spec = small_case(type, num_heads, num_kv_heads, std::move(seq_lens));
  spec.shape.max_query_len = *std::max_element(query_lens.begin(), query_lens.end());
  spec.query_lens = std::move(query_lens);
  return spec;
}

/// Every length beside every number of rows, lengths shorter than the rows among them.
CaseSpec every_length_and_rows(DType type, int num_heads, int num_kv_heads) {
  std::vector<int> seq_lens, query_lens;
  for (const int length : {0, 1, 2, 5, 15, 16, 17, 31, 32, 33, 48, 49, 64})
    for (const int rows : {1, 2, 3, 5, 8, 15, 16}) {
      seq_lens.push_back(length);
      query_lens.push_back(rows);
    }
  return rows_case(type, num_heads, num_kv_heads, seq_lens, query_lens);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("row j of q sees keys 0 to L - q + j and no other", "[rows]", Machines) {
  for (const DType type : {DType::f16, DType::bf16}) {
    PagedCase paged(every_length_and_rows(type, 3, 1));
    show_probabilities(paged);
    REQUIRE(run_paged_attention<small_menu<TestType>>(paged));
    int wrong = 0, row = 0;
    for (int sequence = 0; sequence < paged.num_seqs(); ++sequence)
      for (int j = 0; j < paged.spec.query_lens[std::size_t(sequence)]; ++j, ++row) {
        const int end = paged.spec.seq_lens[std::size_t(sequence)] - paged.spec.query_lens[std::size_t(sequence)] + j + 1;
        for (int head = 0; head < 3; ++head) wrong += !saw_exactly(paged, row, head, 0, std::max(end, 0));
      }
    CHECK(wrong == 0);
    CHECK(paged.check_against_reference(tolerance_of(type)).problem == "");
  }
}

TEMPLATE_LIST_TEST_CASE("without causal order every row sees all keys", "[rows]", Machines) {
  CaseSpec spec = every_length_and_rows(DType::f16, 2, 1);
  spec.shape.causal = false;
  PagedCase paged(spec);
  show_probabilities(paged);
  REQUIRE(run_paged_attention<one_menu<TestType>>(paged));
  int wrong = 0, row = 0;
  for (int sequence = 0; sequence < paged.num_seqs(); ++sequence)
    for (int j = 0; j < paged.spec.query_lens[std::size_t(sequence)]; ++j, ++row)
      for (int head = 0; head < 2; ++head) wrong += !saw_exactly(paged, row, head, 0, paged.spec.seq_lens[std::size_t(sequence)]);
  CHECK(wrong == 0);
}

TEMPLATE_LIST_TEST_CASE("a single row has the same bits in causal order and without", "[rows]", Machines) {
  for (const bool rows_given : {false, true}) {
    CaseSpec spec = small_case(DType::f16, 6, 2, {0, 1, 33, 700});
    if (rows_given) spec.query_lens = {1, 1, 1, 1};
    PagedCase causal(spec);
    expect_right<small_menu<TestType>>(causal);
    spec.shape.causal = false;
    PagedCase all(spec);
    expect_right<small_menu<TestType>>(all);
    CHECK((results_of(all) == results_of(causal)));
  }
}

TEMPLATE_LIST_TEST_CASE("a row of several is the row of a shorter sequence with one row", "[rows]", Machines) {
  // The same keys, values and queries by two kernels: the one for several rows, and the plain one on as many sequences.
  for (const DType type : {DType::f16, DType::bf16}) {
    const int rows = 6, length = 150;
    PagedCase several(rows_case(type, 5, 1, {length}, {rows}));
    REQUIRE(run_paged_attention<small_menu<TestType>>(several));
    std::vector<int> lengths;
    for (int j = 0; j < rows; ++j) lengths.push_back(length - rows + j + 1);
    CaseSpec spec = small_case(type, 5, 1, lengths);
    spec.sequence_seeds.assign(rows, 0);  // as sequence 0 of the other batch
    PagedCase single(spec);
    std::copy(several.query.data(), several.query.data() + several.query.size(), single.query.data());
    expect_right<small_menu<TestType>>(single);
    CHECK(distance(several, single) < tolerance_of(type).out);
    for (std::size_t i = 0; i < single.lse.size() / 4; ++i)
      CHECK(std::abs(several.lse.as<float>()[i] - single.lse.as<float>()[i]) < tolerance_of(type).lse);
  }
}

TEMPLATE_LIST_TEST_CASE("any number of rows beside any number of heads a KV head", "[rows]", Machines) {
  for (const int ratio : {1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 24}) {
    for (const int rows : {1, 2, 3, 5, 7, 8, 13, 16}) {
      CaseSpec spec = rows_case(ratio % 2 == 0 ? DType::f16 : DType::bf16, 2 * ratio, 2, {40 + ratio, 5, rows}, {rows, 1, (rows + 1) / 2});
      spec.seed = unsigned(100 * ratio + rows);
      expect_right<small_menu<TestType>>(spec, 3);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("sequences with fewer rows than others, with none, and with too many beside each other", "[rows]", Machines) {
  for (const int max_query_len : {2, 4, 16}) {
    for (const bool padded : {false, true}) {
      CaseSpec spec = rows_case(DType::f16, 6, 2, {33, 500, 40, 64, 90, 3, 0, 17, 300}, {4, 17, 1, 0, 2, 4, 3, 40, 16});
      spec.shape.max_query_len = max_query_len;
      if (padded) {
        spec.padding.query_row = 24, spec.padding.query_head = 8, spec.padding.out_row = 12, spec.padding.out_head = 4;
        spec.padding.table_row = 3;
      }
      expect_right<small_menu<TestType>>(spec);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("rows before the first key are empty", "[rows]", Machines) {
  PagedCase paged(rows_case(DType::bf16, 2, 1, {3, 0, 1}, {8, 4, 16}));
  expect_right<one_menu<TestType, DType::bf16>>(paged);
  int row = 0;
  for (const auto& [length, rows] : {std::pair{3, 8}, {0, 4}, {1, 16}})
    for (int j = 0; j < rows; ++j, ++row)
      for (int head = 0; head < 2; ++head) {
        const bool empty = length - rows + j < 0;
        CHECK((hpa::test::lse_of(paged, row, head) == -std::numeric_limits<float>::infinity()) == empty);
        const std::uint16_t* out = paged.out.as<std::uint16_t>() + (row * 2 + head) * 64;
        CHECK(std::all_of(out, out + 64, [](std::uint16_t code) { return code == 0; }) == empty);
      }
}

TEMPLATE_LIST_TEST_CASE("rows whose keys are cut into partitions", "[rows]", Machines) {
  const auto run = [](auto config, int max_query_len) {
    using C = decltype(config);
    const int size = C::partition_tokens;
    CaseSpec spec = small_case(C::query, 5, 1, {});
    for (const int edge : {size, 2 * size, 5 * size})
      for (const int offset : {-1, 0, 1, 3, 7}) {
        spec.seq_lens.push_back(edge + offset);
        spec.query_lens.push_back(1 + (edge + offset) % max_query_len);
      }
    spec.shape.max_query_len = max_query_len;
    spec.guard = hpa::test::Guard::start;
    PagedCase paged(spec);
    INFO(describe(paged.spec) << ", partitions of " << size);
    REQUIRE(run_decode_with<C, TestType>(paged));
    CHECK(paged.check_against_reference(tolerance_of(C::query), 3).problem == "");
  };
  for (const int max_query_len : {2, 5, 16}) {
    run(Config<64, 16, DType::f16, DType::f16, 32, Features::all>{}, max_query_len);
    run(Config<64, 16, DType::bf16, DType::bf16, 128, Features::all>{}, max_query_len);
  }
}

TEMPLATE_LIST_TEST_CASE("in a partition that only the last rows reach the others have nothing", "[rows]", Machines) {
  // 16 rows; the last partition holds 1, 7 or 15 of the new tokens, which the rows before them do not see.
  using Fine = Config<64, 16, DType::f16, DType::f16, 32, Features::all>;
  for (const int beyond : {1, 7, 15, 16}) {
    PagedCase paged(rows_case(DType::f16, 3, 1, {32 + beyond, 64 + beyond}, {16, 16}));
    show_probabilities(paged);
    REQUIRE(run_decode_with<Fine, TestType>(paged));
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
    int wrong = 0;
    for (int j = 0; j < 16; ++j)
      for (int head = 0; head < 3; ++head) wrong += !saw_exactly(paged, j, head, 0, 32 + beyond - 16 + j + 1);
    CHECK(wrong == 0);
  }
}

TEMPLATE_LIST_TEST_CASE("what no row sees never changes a bit of several rows", "[rows]", Machines) {
  for (const bool causal : {true, false}) {
    CaseSpec spec = rows_case(DType::bf16, 6, 2, {1, 15, 17, 33, 100, 257, 0, 3}, {4, 4, 2, 1, 5, 16, 2, 5});
    spec.shape.causal = causal;
    spec.spare_columns = 2;
    spec.tail = Tail::zero;
    PagedCase clean(spec);
    expect_right<one_menu<TestType, DType::bf16>>(clean);
    for (const Tail tail : {Tail::nan, Tail::plus_inf, Tail::minus_inf, Tail::largest, Tail::random}) {
      spec.tail = tail;
      PagedCase poisoned(spec);
      REQUIRE(run_paged_attention<one_menu<TestType, DType::bf16>>(poisoned));
      CHECK((results_of(poisoned) == results_of(clean)));
      CHECK(poisoned.write_where_none_is_due() == "");
    }
  }
}

TEMPLATE_LIST_TEST_CASE("several rows have the same bits alone, in any batch and at any place in memory", "[rows]", Machines) {
  for (const int max_seqs : {4, 64}) {  // rows that do not fill the chip, and rows that do
    CaseSpec batch = rows_case(DType::f16, 3, 1, {700, 3, 31, 260}, {4, 5, 1, 3});
    batch.shape.max_seqs = max_seqs;
    batch.shape.max_seq_len = 1000;
    batch.sequence_seeds = {50, 51, 52, 53};
    PagedCase together(batch);
    expect_right<one_menu<TestType>>(together);
    for (std::size_t sequence = 0; sequence < 4; ++sequence) {
      CaseSpec spec = batch;
      spec.seq_lens = {batch.seq_lens[sequence]};
      spec.query_lens = {batch.query_lens[sequence]};
      spec.sequence_seeds = {batch.sequence_seeds[sequence]};
      spec.block_seed = unsigned(7 + sequence);
      PagedCase alone(spec);
      REQUIRE(run_paged_attention<one_menu<TestType>>(alone));
      CHECK((alone.result_of(0) == together.result_of(int(sequence))));
    }
    batch.seq_lens = {31, 44, 700, 260};  // other neighbours, one of them skipped, another order, other rows of query and out
    batch.query_lens = {1, 9, 4, 3};
    batch.sequence_seeds = {52, 60, 50, 53};
    PagedCase others(batch);
    REQUIRE(run_paged_attention<one_menu<TestType>>(others));
    CHECK((others.result_of(0) == together.result_of(2)));
    CHECK((others.result_of(2) == together.result_of(0)));
    CHECK((others.result_of(3) == together.result_of(3)));
  }
}

TEMPLATE_LIST_TEST_CASE("every run of several rows gives the same bits", "[rows]", Machines) {
  CaseSpec spec = rows_case(DType::bf16, 20, 1, {5, 33, 900, 128}, {8, 2, 7, 1});
  PagedCase paged(spec);
  REQUIRE(run_paged_attention<one_menu<TestType, DType::bf16>>(paged));
  const auto first = results_of(paged);
  for (int i = 0; i < 5; ++i) {
    REQUIRE(run_paged_attention<one_menu<TestType, DType::bf16>>(paged));
    CHECK((results_of(paged) == first));
  }
}

TEMPLATE_LIST_TEST_CASE("a NaN key reaches the rows that see it and no others", "[rows]", Machines) {
  for (const int length : {20, 32, 100}) {
    for (const int seen_from : {0, 1, 3}) {  // the key belongs to this row's own position, or to an old token
      PagedCase paged(rows_case(DType::f16, 3, 1, {length, 40}, {4, 2}));
      paged.spec.unchecked = {0};
      paged.set_key(0, seen_from == 0 ? 5 : length - 4 + seen_from, 0, 7, std::numeric_limits<float>::quiet_NaN());
      REQUIRE(run_paged_attention<one_menu<TestType>>(paged));
      CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
      for (int row = 0; row < 4; ++row)
        for (int head = 0; head < 3; ++head) {
          INFO("length " << length << ", seen from row " << seen_from << ", row " << row);
          CHECK(std::isnan(hpa::test::out_of(paged, row, head, 0)) == (row >= seen_from));
          CHECK(std::isnan(hpa::test::lse_of(paged, row, head)) == (row >= seen_from));
        }
    }
  }
}
