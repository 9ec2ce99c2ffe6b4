// What cannot be done: refused before anything is touched where the host can see it, reported by workspace_error() where only the
// device can, with no access outside the tensors and the other sequences right.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "calls.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

constexpr std::int32_t largest = std::numeric_limits<std::int32_t>::max(), smallest = std::numeric_limits<std::int32_t>::min();

/// What workspace_error() said.
struct Report {
  Verdict verdict;
  int sequence = -1;
};

template <class Menu>
Report run_and_ask(PagedCase& paged) {
  Report report;
  const Verdict verdict = paged.run(hpa::workspace_bytes<Menu>(paged.shape(), this_device()), {},
                                    [&](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, hpa::Stream stream) {
                                      const Verdict launched = hpa::paged_attention<Menu>(shape, args, workspace, stream);
                                      report.verdict = hpa::workspace_error(workspace, stream, &report.sequence);
                                      return launched;
                                    });
  INFO(verdict.field << ": " << verdict.why);
  REQUIRE(verdict);
  return report;
}

bool is_empty_row(const PagedCase& paged, int sequence) {
  const std::vector<std::uint8_t> bytes = paged.result_of(sequence);
  const std::size_t out_bytes = std::size_t(paged.shape().head_size) * 2;
  for (std::size_t at = 0; at < bytes.size(); at += out_bytes + 4) {
    if (!std::all_of(bytes.begin() + std::ptrdiff_t(at), bytes.begin() + std::ptrdiff_t(at + out_bytes),
                     [](std::uint8_t b) { return b == 0; }))
      return false;
    const std::uint8_t minus_infinity[] = {0x00, 0x00, 0x80, 0xff};
    if (!std::equal(minus_infinity, minus_infinity + 4, bytes.begin() + std::ptrdiff_t(at + out_bytes))) return false;
  }
  return true;
}

/// `spoil` makes sequence 1 of the case wrong on the device: it comes out empty, the others right, and the report names it.
template <class Menu>
void expect_reported(CaseSpec spec, const char* field, const std::function<void(PagedCase&)>& spoil) {
  for (const Guard guard : {Guard::end, Guard::start}) {
    spec.guard = guard;
    PagedCase paged(spec);
    paged.spec.unchecked = {1};
    spoil(paged);
    INFO(describe(paged.spec));
    const Report report = run_and_ask<Menu>(paged);
    CHECK(report.verdict.status == Status::invalid_argument);
    CHECK(report.verdict.field == std::string(field));
    CHECK(report.sequence == 1);
    CHECK(is_empty_row(paged, 1));
    CHECK(paged.check_against_reference(tolerance_of(spec.shape.query)).problem == "");
  }
}

template <class Menu>
void expect_refused(const char* field, Status status, const std::function<void(DecodeShape&, DecodeArgs&, Workspace&)>& spoil) {
  CaseSpec spec = small_case(DType::f16, 4, 2, {40, 17});
  spec.padding.query_row = 8;  // all strides given
  PagedCase paged(spec);
  INFO("expected: " << field);
  const auto refused = [&](const Verdict& verdict) {
    INFO(verdict.field << ": " << verdict.why);
    CHECK(verdict.status == status);
    CHECK(verdict.field == std::string(field));
    CHECK(std::string(verdict.why) != "");
  };
  const std::size_t bytes = hpa::workspace_bytes<Menu>(paged.shape(), this_device());
  bool concerns_plan = true;
  (void)paged.run(bytes, {}, [&](DecodeShape shape, DecodeArgs args, Workspace workspace, hpa::Stream stream) {
    spoil(shape, args, workspace);
    // plan looks at the shape, the batch and the workspace; what only a layer has is not its business.
    concerns_plan = field == std::string("workspace") || !hpa::check<Menu>(shape, args.batch, this_device());
    if (concerns_plan) refused(hpa::plan<Menu>(shape, args.batch, workspace, stream));
    refused(hpa::decode<Menu>(shape, args, workspace, stream));
    refused(hpa::paged_attention<Menu>(shape, args, workspace, stream));
    return Verdict{};
  });
  CHECK(paged.outputs_untouched());
  CHECK(paged.write_where_none_is_due() == "");
  const std::vector<std::uint8_t> left = paged.workspace.bytes();
  CHECK(std::all_of(left.begin(), left.end(), [](std::uint8_t byte) { return byte == 0xff; }));
  if (concerns_plan) return;
  CHECK(paged.run(std::size_t{1} << 20, {}, [&](DecodeShape shape, DecodeArgs args, Workspace workspace, hpa::Stream stream) {
    spoil(shape, args, workspace);
    return hpa::plan<Menu>(shape, args.batch, workspace, stream);
  }));
}

template <class T>
T* moved(T* pointer, int bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) + std::uintptr_t(bytes));
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("what the host can see is refused by name before anything is touched", "[errors]", Machines) {
  using S = DecodeShape&;
  using A = DecodeArgs&;
  using W = Workspace&;
  const Status bad = Status::invalid_argument, none = Status::unsupported;
  const auto refuse = expect_refused<small_menu<TestType>>;
  refuse("num_heads", bad, [](S s, A, W) { s.num_heads = 0; });
  refuse("num_heads", bad, [](S s, A, W) { s.num_heads = -4; });
  refuse("num_kv_heads", bad, [](S s, A, W) { s.num_kv_heads = 0; });
  refuse("num_kv_heads", bad, [](S s, A, W) { s.num_kv_heads = 3; });
  refuse("max_seqs", bad, [](S s, A, W) { s.max_seqs = 0; });
  refuse("max_seq_len", bad, [](S s, A, W) { s.max_seq_len = -1; });
  refuse("max_query_len", bad, [](S s, A, W) { s.max_query_len = 0; });
  refuse("max_total_kv_tokens", bad, [](S s, A, W) { s.max_total_kv_tokens = -1; });
  refuse("head_size", none, [](S s, A, W) { s.head_size = 100; });
  refuse("head_size_v", none, [](S s, A, W) { s.head_size_v = 128; });
  refuse("block_size", none, [](S s, A, W) { s.block_size = 8; });
  refuse("kv", none, [](S s, A, W) { s.kv = DType::e4m3_ocp; });
  refuse("query", none, [](S s, A, W) { s.query = s.kv = s.out = DType::i8; });
  refuse("out", none, [](S s, A, W) { s.out = DType::bf16; });
  refuse("layout", none, [](S s, A, W) { s.layout = hpa::KvLayout::nhd; });
  refuse("max_query_len", none, [](S s, A, W) { s.max_query_len = 17; });
  refuse("tree_mask", none, [](S s, A, W) { s.tree_mask = s.alibi = true; });
  refuse("token_scales", none, [](S s, A, W) { s.token_scales = true; });
  refuse("window", bad, [](S s, A, W) { s.sliding_window = true; });
  refuse("soft_cap", bad, [](S s, A, W) { s.soft_cap = true; });
  refuse("soft_cap", bad, [](S s, A a, W) { s.soft_cap = true, a.soft_cap = -1.f; });
  refuse("sinks", bad, [](S s, A, W) { s.sinks = true; });
  refuse("tree_masks", bad, [](S s, A, W) { s.tree_mask = true; });
  refuse("num_seqs", bad, [](S, A a, W) { a.batch.num_seqs = -1; });
  refuse("num_seqs", bad, [](S s, A, W) { s.max_seqs = 1; });
  refuse("block_table_width", bad, [](S, A a, W) { a.batch.block_table_width = 0; });
  refuse("query", bad, [](S, A a, W) { a.query = nullptr; });
  refuse("query", bad, [](S, A a, W) { a.query = moved(a.query, 8); });
  refuse("keys", bad, [](S, A a, W) { a.cache.keys = nullptr; });
  refuse("keys", bad, [](S, A a, W) { a.cache.keys = moved(a.cache.keys, 2); });
  refuse("values", bad, [](S, A a, W) { a.cache.values = nullptr; });
  refuse("values", bad, [](S, A a, W) { a.cache.values = moved(a.cache.values, 8); });
  refuse("out", bad, [](S, A a, W) { a.out = nullptr; });
  refuse("out", bad, [](S, A a, W) { a.out = moved(a.out, 4); });
  refuse("lse", bad, [](S, A a, W) { a.lse = nullptr; });
  refuse("lse", bad, [](S, A a, W) { a.lse = moved(a.lse, 2); });
  refuse("lse", bad, [](S s, A, W) { s.lse = false; });
  refuse("block_tables", bad, [](S, A a, W) { a.batch.block_tables = nullptr; });
  refuse("block_tables", bad, [](S, A a, W) { a.batch.block_tables = moved(a.batch.block_tables, 1); });
  refuse("table_starts", bad, [](S, A a, W) { a.batch.table_starts = reinterpret_cast<const std::int64_t*>(moved(a.query, 4)); });
  refuse("seq_lens", bad, [](S, A a, W) { a.batch.seq_lens = nullptr; });
  refuse("query_start_loc", bad, [](S, A a, W) { a.batch.query_start_loc = moved(a.batch.seq_lens, 2); });
  refuse("alibi_slopes", bad, [](S s, A, W) { s.alibi = true; });
  refuse("alibi_slopes", bad, [](S, A a, W) { a.alibi_slopes = a.lse; });
  refuse("window", bad, [](S, A a, W) { a.batch.window = 16; });
  refuse("k_scale", bad, [](S, A a, W) { a.cache.k_scale = a.lse; });
  refuse("out_scale", bad, [](S, A a, W) { a.out_scale = a.lse; });
  refuse("scale", bad, [](S, A a, W) { a.scale = std::nanf(""); });
  refuse("query_head_stride", bad, [](S, A a, W) { a.query_head_stride = 32; });
  refuse("query_row_stride", bad, [](S, A a, W) { a.query_row_stride = 4 * 64 - 8; });
  refuse("query_row_stride", bad, [](S, A a, W) { a.query_row_stride += 4; });
  refuse("query_row_stride", bad, [](S, A a, W) { a.query_row_stride = -512; });
  refuse("key_head_stride", bad, [](S, A a, W) { a.cache.key_head_stride = 512; });
  refuse("key_block_stride", bad, [](S, A a, W) { a.cache.key_block_stride = 2 * 1024 - 8; });
  refuse("value_head_stride", bad, [](S, A a, W) { a.cache.value_head_stride += 4, a.cache.value_block_stride += 8; });
  refuse("value_block_stride", bad, [](S, A a, W) { a.cache.value_block_stride = 1024 + 512; });
  refuse("out_head_stride", bad, [](S, A a, W) { a.out_head_stride = 62; });
  refuse("out_row_stride", bad, [](S, A a, W) { a.out_row_stride = 4 * 64 - 4; });
  refuse("block_table_row_stride", bad, [](S, A a, W) { a.batch.block_table_row_stride = a.batch.block_table_width - 1; });
  refuse("workspace", bad, [](S, A, W w) { w.data = nullptr; });
  refuse("workspace", bad, [](S, A, W w) { w.data = moved(w.data, 8); });
  refuse("workspace", Status::workspace_too_small, [](S, A, W w) { --w.bytes; });
  refuse("workspace", Status::workspace_too_small, [](S s, A, W) { s.max_seq_len += 2000; });
}

TEMPLATE_LIST_TEST_CASE("lengths beyond the caps make an empty row and a report", "[errors]", Machines) {
  using Menu = small_menu<TestType>;
  CaseSpec spec = small_case(DType::f16, 3, 1, {40, 100, 90});
  const auto with_length = [](std::int32_t length) {
    return [length](PagedCase& paged) { paged.seq_lens.as<std::int32_t>()[1] = length; };
  };
  spec.shape.max_seq_len = 100;
  for (const std::int32_t length : {101, 112, 113, 100000, largest, -1, smallest})
    expect_reported<Menu>(spec, "seq_lens", with_length(length));
  spec.shape.max_seq_len = 4000;  // the table is 7 blocks wide
  for (const std::int32_t length : {113, 128, 4000, 4001, -100}) expect_reported<Menu>(spec, "seq_lens", with_length(length));
  spec.shape.max_seqs = 100;
  for (const std::int32_t length : {113, 4000, largest, -1}) expect_reported<Menu>(spec, "seq_lens", with_length(length));
}

TEMPLATE_LIST_TEST_CASE("where lengths add up to more than the workspace was sized for, the rest is empty", "[errors]", Machines) {
  CaseSpec spec = small_case(DType::f16, 3, 1, {40, 500, 90});
  spec.query_lens = {1, 1, 1};
  spec.shape.max_seq_len = 1000;
  spec.shape.max_total_kv_tokens = 140;
  PagedCase paged(spec);
  paged.spec.unchecked = {1, 2};
  const Report report = run_and_ask<small_menu<TestType>>(paged);
  CHECK(report.verdict.field == std::string("seq_lens"));
  CHECK(report.sequence == 1);
  CHECK(is_empty_row(paged, 1));
  CHECK(is_empty_row(paged, 2));
  CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  // A skipped sequence does not count; lengths up to the cap itself are right.
  spec.query_lens = {1, 9, 1};
  spec.seq_lens[2] = 100;
  PagedCase skipped(spec);
  CHECK(run_and_ask<small_menu<TestType>>(skipped).verdict);
  CHECK(skipped.check_against_reference(tolerance_of(DType::f16)).problem == "");
}

TEMPLATE_LIST_TEST_CASE("a negative block id within the length makes an empty row and a report", "[errors]", Machines) {
  using Menu = small_menu<TestType>;
  for (const int max_seqs : {3, 64}) {  // 600 tokens are cut, or in one piece
    CaseSpec spec = small_case(DType::f16, 18, 1, {40, 600, 90});
    spec.shape.max_seqs = max_seqs;
    for (const int column : {0, 1, 16, 36, 37})
      for (const std::int32_t id : {-1, smallest, -7})
        expect_reported<Menu>(spec, "block_tables", [&](PagedCase& paged) { paged.block_table(1, column) = id; });
    expect_reported<Menu>(spec, "block_tables", [&](PagedCase& paged) {
      for (int column = 0; column < 38; ++column) paged.block_table(1, column) = -1;
    });
    spec.seq_lens[1] = 1;
    expect_reported<Menu>(spec, "block_tables", [&](PagedCase& paged) { paged.block_table(1, 0) = -1; });
  }
}

TEMPLATE_LIST_TEST_CASE("a block id at or past num_blocks makes an empty row and a report", "[errors]", Machines) {
  using Menu = small_menu<TestType>;
  const std::int32_t blocks = 3 + 38 + 6 + 3;  // and some that are spare
  for (const int max_seqs : {3, 64}) {
    CaseSpec spec = small_case(DType::f16, 18, 1, {40, 600, 90});
    spec.shape.max_seqs = max_seqs;
    spec.num_blocks_given = true;
    for (const int column : {0, 1, 16, 36, 37})
      for (const std::int32_t id : {blocks, blocks + 1, largest, -1, smallest})
        expect_reported<Menu>(spec, "block_tables", [&](PagedCase& paged) {
          REQUIRE(paged.args().cache.num_blocks == blocks);
          paged.block_table(1, column) = id;
        });
    PagedCase right(spec);  // the last block is one of them
    CHECK(run_and_ask<Menu>(right).verdict);
    CHECK(right.check_against_reference(tolerance_of(DType::f16)).problem == "");
  }
}

TEMPLATE_LIST_TEST_CASE("a negative start in the block table makes an empty row and a report", "[errors]", Machines) {
  using Menu = small_menu<TestType>;
  for (const hpa::Split split : {hpa::Split::by_length, hpa::Split::balanced})
    for (const int max_seqs : {3, 64}) {
      CaseSpec spec = small_case(DType::f16, 18, 1, {40, 600, 90});
      spec.shape.max_seqs = max_seqs;
      spec.shape.split = split;
      spec.table_starts = true;
      for (const std::int64_t start : {std::int64_t{-1}, std::int64_t{smallest}, std::numeric_limits<std::int64_t>::min()})
        expect_reported<Menu>(spec, "table_starts", [&](PagedCase& paged) { paged.table_starts.as<std::int64_t>()[1] = start; });
    }
}

TEMPLATE_LIST_TEST_CASE("where decode's table is narrower than plan's, longer sequences are empty and nothing past it is read", "[errors]",
                        Machines) {
  using Menu = small_menu<TestType>;
  for (const hpa::Split split : {hpa::Split::by_length, hpa::Split::balanced})
    for (const int max_seqs : {4, 64})
      for (const int rows : {1, 2}) {
        CaseSpec spec = small_case(DType::f16, 18, 1, {40, 600, 96, 97});  // 600 tokens are cut, or in one piece
        spec.shape.max_seqs = max_seqs;
        spec.shape.split = split;
        spec.shape.max_query_len = rows;
        spec.query_lens = std::vector<int>(4, rows);
        PagedCase paged(spec);
        paged.spec.unchecked = {1, 3};
        const int width = 6;  // 96 tokens; the last row ends where memory does
        Buffer narrow(std::size_t(4 * width) * 4, 4, Guard::end);
        for (int i = 0; i < 4 * width; ++i) narrow.as<std::int32_t>()[i] = paged.block_table(i / width, i % width);
        narrow.upload();
        Report report;
        hpa::PlanReport counts;
        REQUIRE(paged.run(hpa::workspace_bytes<Menu>(paged.shape(), this_device()), {},
                          [&](const DecodeShape& shape, DecodeArgs args, Workspace workspace, hpa::Stream stream) {
                            if (const Verdict v = hpa::plan<Menu>(shape, args.batch, workspace, stream); !v) return v;
                            args.batch.block_tables = reinterpret_cast<const std::int32_t*>(narrow.device());
                            args.batch.block_table_width = width;
                            args.batch.block_table_row_stride = 0;
                            const Verdict v = hpa::decode<Menu>(shape, args, workspace, stream);
                            report.verdict = hpa::workspace_error(workspace, stream, &report.sequence);
                            CHECK(hpa::plan_report(workspace, stream, &counts));
                            return v;
                          }));
        INFO("max_seqs " << max_seqs << ", " << report.verdict.field << ": " << report.verdict.why);
        CHECK(report.verdict.field == std::string("block_table_width"));
        CHECK(report.verdict.status == Status::invalid_argument);
        CHECK(report.sequence == 1);
        CHECK(counts.first_error_sequence == 1);
        CHECK(is_empty_row(paged, 1));
        CHECK(is_empty_row(paged, 3));
        CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
      }
}

TEMPLATE_LIST_TEST_CASE("query_start_loc that is negative or decreases", "[errors]", Machines) {
  struct Wrong {
    std::vector<std::int32_t> starts;
    std::vector<int> lost;  // sequences whose rows nothing can tell
  };
  const std::vector<Wrong> all = {{{0, 1, -1, 3, 4}, {1, 2}},   {{0, 1, -2000000000, 3, 4}, {1, 2}},
                                  {{0, 2, 1, 3, 4}, {0, 1, 2}}, {{0, 1, largest, 3, 4}, {1, 2}},
                                  {{-1, 1, 2, 3, 4}, {0}},      {{0, 1, 100, 3, 4}, {1, 2}},
                                  {{0, 1, 0, 1, 2}, {1, 2, 3}}};
  for (const Wrong& wrong : all) {
    CaseSpec spec = small_case(DType::f16, 3, 1, {40, 100, 90, 33});
    spec.query_lens = {1, 1, 1, 1};
    PagedCase paged(spec);
    paged.spec.unchecked = wrong.lost;
    std::copy(wrong.starts.begin(), wrong.starts.end(), paged.query_start_loc.as<std::int32_t>());
    INFO("second start " << wrong.starts[1] << ", third " << wrong.starts[2]);
    const Report report = run_and_ask<small_menu<TestType>>(paged);
    CHECK(report.verdict.field == std::string("query_start_loc"));
    CHECK(report.verdict.status == Status::invalid_argument);
    CHECK(std::find(wrong.lost.begin(), wrong.lost.end(), report.sequence) != wrong.lost.end());
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  }
}

TEMPLATE_LIST_TEST_CASE("entries at the end of query_start_loc that repeat or are 0 are padding", "[errors]", Machines) {
  const auto expect = [](hpa::Split split, const std::vector<int>& seq_lens, const std::vector<int>& query_lens, int padded,
                         bool repeat) {
    CaseSpec spec = small_case(DType::f16, 3, 1, seq_lens);
    spec.query_lens = query_lens;
    spec.shape.max_query_len = 4;
    spec.shape.split = split;
    PagedCase paged(spec);
    auto* const starts = paged.query_start_loc.as<std::int32_t>();
    const std::size_t last = seq_lens.size() - std::size_t(padded);
    std::fill(starts + last + 1, starts + seq_lens.size() + 1, repeat ? starts[last] : 0);
    INFO(seq_lens.size() << " sequences, the last " << padded << " are padding");
    const Report report = run_and_ask<small_menu<TestType>>(paged);
    CHECK(report.verdict);
    CHECK(report.sequence == -1);
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  };
  for (const hpa::Split split : {hpa::Split::by_length, hpa::Split::balanced})
    for (const bool repeat : {true, false}) {
      expect(split, {40, 0}, {1, 1}, 1, repeat);
      expect(split, {40, 700, 33, 17, 12}, {1, 4, 2, 1, 1}, 2, repeat);
      expect(split, {40, 90}, {1, 1}, 2, repeat);
      expect(split, {40, 90, 33}, {0, 0, 2}, 0, repeat);
      expect(split, {40, 90, 33, 5}, {0, 0, 2, 1}, 1, repeat);
      for (const int padded : {1, 31, 32, 33, 63, 64, 65, 129, 199, 200})
        expect(split, std::vector<int>(200, 5), std::vector<int>(200, 1), padded, repeat);
      for (const int padded : {3, 300, 1200}) expect(split, std::vector<int>(1201, 3), std::vector<int>(1201, 1), padded, repeat);
    }
}

TEMPLATE_LIST_TEST_CASE("a step with no sequences", "[errors]", Machines) {
  using Menu = small_menu<TestType>;
  for (const hpa::Split split : {hpa::Split::by_length, hpa::Split::balanced}) {
    CaseSpec spec = small_case(DType::f16, 3, 1, {40, 2000});
    spec.shape.split = split;
    PagedCase paged(spec);
    paged.spec.unchecked = {0, 1};
    REQUIRE(paged.run(hpa::workspace_bytes<Menu>(paged.shape(), this_device()), {},
                      [](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, hpa::Stream stream) {
                        const hpa::Batch nothing;
                        DecodeArgs none = args;
                        none.batch = nothing;
                        CHECK(hpa::plan<Menu>(shape, nothing, workspace, stream));
                        CHECK(hpa::decode<Menu>(shape, none, workspace, stream));
                        CHECK(hpa::decode<Menu>(shape, DecodeArgs{}, workspace, stream));
                        CHECK(hpa::workspace_error(workspace, stream));
                        return hpa::paged_attention<Menu>(shape, DecodeArgs{}, workspace, stream);
                      }));
    CHECK(paged.outputs_untouched());
    CHECK(paged.write_where_none_is_due() == "");
    paged.spec.unchecked = {};
    CHECK(run_and_ask<Menu>(paged).verdict);
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  }
}

TEMPLATE_LIST_TEST_CASE("the first sequence at fault is reported, and the next plan starts anew", "[errors]", Machines) {
  using Menu = small_menu<TestType>;
  PagedCase paged(small_case(DType::f16, 2, 1, {40, 50, 60, 70}));
  paged.spec.unchecked = {1, 2, 3};
  const Buffer workspace(hpa::workspace_bytes<Menu>(paged.shape(), this_device()), 16, Guard::end);
  const Workspace kept{workspace.device(), workspace.size()};
  Report report;
  const auto step = [&](const DecodeShape& shape, const DecodeArgs& args, Workspace, hpa::Stream stream) {
    const Verdict verdict = hpa::paged_attention<Menu>(shape, args, kept, stream);
    report.verdict = hpa::workspace_error(kept, stream, &report.sequence);
    return verdict;
  };
  paged.block_table(1, 3) = -1;
  paged.seq_lens.as<std::int32_t>()[2] = -5;
  paged.seq_lens.as<std::int32_t>()[3] = 1000;
  REQUIRE(paged.run(16, {}, step));
  CHECK(report.sequence == 1);
  CHECK(report.verdict.field == std::string("block_tables"));
  paged.set_seq_lens({40, 50, 60, 70});
  paged.seq_lens.as<std::int32_t>()[3] = 1000;
  REQUIRE(paged.run(16, {}, step));
  CHECK(report.sequence == 3);
  CHECK(report.verdict.field == std::string("seq_lens"));
  hpa::PlanReport counts;  // of the plan; that decode met a bad block id, the step before, is an error and counts nowhere
  REQUIRE(hpa::plan_report(kept, {}, &counts));
  CHECK(counts.decoded == 3);
  CHECK(counts.in_error == 1);
  CHECK(counts.first_error_sequence == 3);
  paged.set_seq_lens({40, 50, 60, 70});
  paged.spec.unchecked = {};
  REQUIRE(paged.run(16, {}, step));
  CHECK(report.verdict);
  CHECK(report.sequence == -1);
  CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
}

TEMPLATE_LIST_TEST_CASE("a workspace that holds no plan, or another shape's, is reported and nothing is written", "[errors]",
                        Machines) {
  using Menu = small_menu<TestType>;
  using Coarse = hpa::Config<64, 16, DType::f16, DType::f16, 256>;
  CaseSpec spec = small_case(DType::f16, 4, 2, {40, 600, 3});
  spec.shape.max_seqs = 8;
  PagedCase paged(spec);
  const auto expect_nothing = [&](const char* what, const std::function<Verdict(DecodeShape, DecodeArgs, Workspace)>& first) {
    INFO(what);
    Verdict error;
    REQUIRE(paged.run(std::size_t{1} << 20, {},
                      [&](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, hpa::Stream stream) {
                        if (const Verdict verdict = first(shape, args, workspace); !verdict) return verdict;
                        const Verdict verdict = hpa::decode<Menu>(shape, args, workspace, stream);
                        error = hpa::workspace_error(workspace, stream);
                        return verdict;
                      }));
    CHECK(error.field == std::string("workspace"));
    CHECK(error.status == Status::invalid_argument);
    CHECK(paged.outputs_untouched());
    CHECK(paged.write_where_none_is_due() == "");
  };
  const auto planned_with = [](const std::function<void(DecodeShape&, DecodeArgs&)>& change) {
    return [change](DecodeShape shape, DecodeArgs args, Workspace workspace) {
      change(shape, args);
      return hpa::plan<Menu>(shape, args.batch, workspace, {});
    };
  };
  expect_nothing("no plan", [](DecodeShape, DecodeArgs, Workspace) { return Verdict{}; });
  expect_nothing("num_heads", planned_with([](DecodeShape& s, DecodeArgs& a) {
                   s.num_heads = 6;
                   a.query_row_stride = a.out_row_stride = 0;
                 }));
  expect_nothing("num_kv_heads", planned_with([](DecodeShape& s, DecodeArgs&) { s.num_kv_heads = 1; }));
  expect_nothing("max_seqs", planned_with([](DecodeShape& s, DecodeArgs&) { s.max_seqs = 3; }));
  expect_nothing("max_seq_len", planned_with([](DecodeShape& s, DecodeArgs&) { s.max_seq_len = 601; }));
  expect_nothing("max_total_kv_tokens", planned_with([](DecodeShape& s, DecodeArgs&) { s.max_total_kv_tokens = 650; }));
  expect_nothing("num_seqs", planned_with([](DecodeShape&, DecodeArgs& a) { a.batch.num_seqs = 2; }));
  // A menu that differs in any axis is another one: its plan is not for this decode, the same kernel though it may choose.
  const auto planned_by = [](auto menu) {
    return [](DecodeShape shape, DecodeArgs args, Workspace workspace) {
      return hpa::plan<decltype(menu)>(shape, args.batch, workspace, {});
    };
  };
  expect_nothing("head_sizes", planned_by(typename Menu::template with<hpa::head_sizes<64, 128>>{}));
  expect_nothing("block_sizes", planned_by(typename Menu::template with<hpa::block_sizes<32, 16>>{}));
  expect_nothing("query_types", planned_by(typename Menu::template with<hpa::query_types<DType::f16>>{}));
  expect_nothing("kv_types", planned_by(typename Menu::template with<hpa::kv_types<DType::f16, DType::i8>>{}));
  expect_nothing("feature_sets", planned_by(typename Menu::template with<hpa::feature_sets<hpa::Features::all>>{}));
  expect_nothing("partition size", [](DecodeShape shape, DecodeArgs args, Workspace workspace) {
    return hpa::plan_with<Coarse, TestType>(shape, args.batch, workspace, {});
  });
}
