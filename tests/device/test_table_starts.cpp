// Block tables whose rows begin where table_starts says: CSR tables, rows with a column of their own.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "calls.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

constexpr hpa::Split splits[] = {hpa::Split::by_length, hpa::Split::balanced};

/// Bits of the case with the table in rows, and then with `table` and `starts`.
template <class Menu>
void expect_same_bits(PagedCase& paged, const std::vector<std::int32_t>& table, const std::vector<std::int64_t>& starts,
                      std::int64_t row_stride = 0) {
  REQUIRE(run_paged_attention<Menu>(paged));
  const auto results = results_of(paged);
  Buffer entries(table.size() * 4, 4, Guard::end), places(starts.size() * 8, 8, Guard::end);
  std::copy(table.begin(), table.end(), entries.as<std::int32_t>());
  std::copy(starts.begin(), starts.end(), places.as<std::int64_t>());
  entries.upload(), places.upload();
  REQUIRE(paged.run(hpa::workspace_bytes<Menu>(paged.shape(), this_device()), {},
                    [&](const DecodeShape& shape, DecodeArgs args, Workspace workspace, hpa::Stream stream) {
                      args.batch.block_tables = reinterpret_cast<const std::int32_t*>(entries.device());
                      args.batch.table_starts = reinterpret_cast<const std::int64_t*>(places.device());
                      args.batch.block_table_row_stride = row_stride;
                      if (const Verdict v = hpa::paged_attention<Menu>(shape, args, workspace, stream); !v) return v;
                      return hpa::workspace_error(workspace, stream);
                    }));
  CHECK((results_of(paged) == results));
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a table in CSR form, each row as long as its sequence", "[table_starts]", Machines) {
  for (const hpa::Split split : splits)
    for (const Guard guard : {Guard::end, Guard::start})
      for (const int max_seqs : {0, 100}) {  // cut, or in one piece
        CaseSpec spec = small_case(DType::f16, 6, 2, {40, 1500, 0, 17, 16, 333});
        spec.query_lens = {1, 3, 1, 0, 2, 7};  // one has no row, one is skipped
        spec.shape.max_query_len = 3;
        spec.shape.max_seqs = max_seqs;
        spec.shape.split = split;
        spec.guard = guard;
        spec.table_starts = true;
        expect_right<small_menu<TestType>>(spec);
      }
}

TEMPLATE_LIST_TEST_CASE("plain kernels and 16-token windows read the rows that table_starts names", "[table_starts]", Machines) {
  CaseSpec spec = small_case(DType::f16, 4, 1, {5, 900, 64, 2000});
  spec.table_starts = true;
  expect_right<small_menu<TestType>>(spec);
  spec.shape.sliding_window = true;
  spec.window = 16;
  spec.unmapped_expired = true;
  expect_right<small_menu<TestType>>(spec);
}

TEMPLATE_LIST_TEST_CASE("rows that overlap, begin at a column of their own or are out of order give the bits of a plain table",
                        "[table_starts]", Machines) {
  using Menu = small_menu<TestType>;
  for (const hpa::Split split : splits) {
    CaseSpec spec = small_case(DType::f16, 4, 1, {40, 700, 90});
    spec.shape.split = split;
    PagedCase paged(spec);
    const int width = paged.table_width();  // 44 blocks
    std::vector<std::int32_t> table(std::size_t(3 * (width + 5)), -1);
    std::vector<std::int64_t> starts;
    for (int i = 0; i < 3; ++i) {  // rows begin at columns 3, 0 and 5 of a wider table, the last sequence's first
      starts.push_back((2 - i) * (width + 5) + (i == 0 ? 3 : i == 1 ? 0 : 5));
      for (int column = 0; column < (paged.spec.seq_lens[std::size_t(i)] + 15) / 16; ++column)
        table[std::size_t(starts.back() + column)] = paged.block_table(i, column);
    }
    expect_same_bits<Menu>(paged, table, starts);
    expect_same_bits<Menu>(paged, table, starts, 1);  // no row lies by the stride
  }
  // One row for all sequences: each reads as much of it as it is long.
  CaseSpec spec = small_case(DType::f16, 4, 1, {700, 40, 90});
  spec.shared_prefix_blocks = 44;
  PagedCase paged(spec);
  std::vector<std::int32_t> table;
  for (int column = 0; column < 44; ++column) table.push_back(paged.block_table(0, column));
  expect_same_bits<Menu>(paged, table, {0, 0, 0});
}

TEMPLATE_LIST_TEST_CASE("block_table_width bounds a row that table_starts names as any other", "[table_starts]", Machines) {
  using Menu = small_menu<TestType>;
  CaseSpec spec = small_case(DType::f16, 4, 1, {40, 700, 90});
  spec.table_starts = true;
  PagedCase paged(spec);
  paged.spec.unchecked = {1};
  Verdict error;
  int sequence = 0;
  REQUIRE(paged.run(hpa::workspace_bytes<Menu>(paged.shape(), this_device()), {},
                    [&](const DecodeShape& shape, DecodeArgs args, Workspace workspace, hpa::Stream stream) {
                      args.batch.block_table_width = 6;
                      const Verdict v = hpa::paged_attention<Menu>(shape, args, workspace, stream);
                      error = hpa::workspace_error(workspace, stream, &sequence);
                      return v;
                    }));
  CHECK(error.field == std::string("seq_lens"));
  CHECK(sequence == 1);
  CHECK(paged.check_against_reference(hpa::test::tolerance_of(DType::f16)).problem == "");
}
