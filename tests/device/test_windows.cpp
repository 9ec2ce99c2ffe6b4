// Sliding windows: a row sees the last W keys up to its own, exactly; what lies before every row's window is neither planned nor read.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "probes.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

/// A batch whose blocks before all windows are ids of no memory.
CaseSpec window_case(DType type, int window, std::vector<int> seq_lens, std::vector<int> query_lens = {}) {
  CaseSpec spec = small_case(type, 3, 1, std::move(seq_lens));
  spec.shape.sliding_window = true;
  spec.window = window;
  spec.unmapped_expired = true;
  if (!query_lens.empty()) spec.shape.max_query_len = *std::max_element(query_lens.begin(), query_lens.end());
  spec.query_lens = std::move(query_lens);
  return spec;
}

/// Every row saw its own window, and nothing else.
void check_windows(const PagedCase& paged) {
  int wrong = 0;
  for (int sequence = 0; sequence < paged.num_seqs(); ++sequence) {
    const hpa::reference::RowRange rows = hpa::reference::rows_of(paged.host_args(), sequence);
    for (int j = 0; j < rows.count; ++j) {
      const int length = paged.spec.seq_lens[std::size_t(sequence)];
      const int end = std::max(paged.shape().causal ? length - rows.count + j + 1 : length, 0);
      const int begin = std::max(end - paged.spec.window, 0);
      for (int head = 0; head < paged.shape().num_heads; ++head) wrong += !saw_exactly(paged, rows.first + j, head, begin, end);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a window begins and ends at the exact key", "[windows]", Machines) {
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const int window : {1, 2, 15, 16, 17, 31, 32, 33, 47, 64}) {
      std::vector<int> lengths;
      for (int length = 0; length <= 100; length += length < 64 ? 3 : 1) lengths.push_back(length);
      for (const int length : {127, 128, 129, 255, 300}) lengths.push_back(length);
      PagedCase paged(window_case(type, window, lengths));
      show_probabilities(paged);
      INFO(describe(paged.spec));
      REQUIRE(run_paged_attention<hpa::test::small_menu<TestType>>(paged));
      check_windows(paged);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("each of several rows has its own window", "[windows]", Machines) {
  for (const int window : {1, 2, 5, 16, 17, 32, 40}) {
    std::vector<int> lengths, rows;
    for (const int length : {1, 5, 16, 17, 31, 33, 48, 64, 65, 97, 200})
      for (const int count : {1, 2, 4, 9, 16}) lengths.push_back(length), rows.push_back(count);
    PagedCase paged(window_case(DType::f16, window, lengths, rows));
    show_probabilities(paged);
    INFO(describe(paged.spec));
    REQUIRE(run_paged_attention<one_menu<TestType>>(paged));
    check_windows(paged);
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  }
}

TEMPLATE_LIST_TEST_CASE("without causal order all rows have the window of the last key", "[windows]", Machines) {
  for (const int window : {1, 16, 40}) {
    CaseSpec spec = window_case(DType::f16, window, {1, 17, 64, 65, 200, 3}, {2, 3, 16, 1, 5, 8});
    spec.shape.causal = false;
    PagedCase paged(spec);
    show_probabilities(paged);
    REQUIRE(run_paged_attention<one_menu<TestType>>(paged));
    check_windows(paged);
  }
}

TEMPLATE_LIST_TEST_CASE("a window over cut rows", "[windows]", Machines) {
  const auto run = [](auto config, int window) {
    using C = decltype(config);
    for (const int rows : {1, 3, 16}) {
      CaseSpec spec = window_case(C::query, window, {window - 1, window, window + 1, 2 * window, 3 * window + 5, 700},
                                  std::vector<int>(6, rows));
      spec.guard = rows == 1 ? Guard::end : Guard::start;
      PagedCase paged(spec);
      INFO(describe(paged.spec) << ", partitions of " << C::partition_tokens);
      REQUIRE(run_decode_with<C, TestType>(paged));
      CHECK(paged.check_against_reference(tolerance_of(C::query)).problem == "");
    }
  };
  for (const int window : {15, 32, 33, 100, 256}) {
    run(Config<64, 16, DType::f16, DType::f16, 32, Features::all>{}, window);
    run(Config<64, 16, DType::f16, DType::f16, 128, Features::all>{}, window);
  }
}

TEMPLATE_LIST_TEST_CASE("a window as long as the sequence, or longer than any, is none", "[windows]", Machines) {
  CaseSpec spec = small_case(DType::f16, 4, 1, {1, 31, 300, 700, 16});
  spec.query_lens = {1, 3, 1, 4, 2};
  spec.shape.max_query_len = 4;
  PagedCase without(spec);
  expect_right<one_menu<TestType>>(without);
  spec.shape.sliding_window = true;
  for (const int window : {700, 701, 1 << 20, std::numeric_limits<int>::max()}) {
    spec.window = window;
    PagedCase with(spec);
    REQUIRE(run_paged_attention<one_menu<TestType>>(with));
    CHECK((results_of(with) == results_of(without)));
  }
}

TEMPLATE_LIST_TEST_CASE("what lies before every window never changes a bit", "[windows]", Machines) {
  for (const int rows : {1, 4}) {
    CaseSpec spec = window_case(DType::bf16, 40, {39, 40, 41, 100, 129, 700}, std::vector<int>(6, rows));
    spec.tail = Tail::zero;
    PagedCase clean(spec);
    expect_right<one_menu<TestType, DType::bf16>>(clean);
    for (const Tail tail : {Tail::nan, Tail::plus_inf, Tail::minus_inf, Tail::largest, Tail::random}) {
      spec.tail = tail;
      spec.unmapped_expired = tail == Tail::random;  // else whole expired blocks are of NaN
      PagedCase poisoned(spec);
      REQUIRE(run_paged_attention<one_menu<TestType, DType::bf16>>(poisoned));
      CHECK((results_of(poisoned) == results_of(clean)));
    }
    // Entries of expired blocks are no ids of anything.
    PagedCase renamed(spec);
    for (const std::int32_t entry : {-1, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()}) {
      for (int column = 0; column < (700 - rows + 1 - 40) / 16; ++column) renamed.block_table(5, column) = entry;
      REQUIRE(run_paged_attention<one_menu<TestType, DType::bf16>>(renamed));
      CHECK((results_of(renamed) == results_of(clean)));
      CHECK(hpa::workspace_error({renamed.workspace.device(), renamed.workspace.size()}, {}));
    }
  }
}

TEMPLATE_LIST_TEST_CASE("partitions wholly before the window are not planned", "[windows]", Machines) {
  using Menu = one_menu<TestType>;
  for (const int window : {16, 100, 1000}) {
    for (const int rows : {1, 5}) {
      const std::vector<int> lengths = {20000, 15, 4000, 999, 0};
      CaseSpec spec = window_case(DType::f16, window, lengths, std::vector<int>(lengths.size(), rows));
      PagedCase paged(spec);
      INFO("window " << window << ", rows " << rows);
      expect_right<Menu>(paged);
      const hpa::kernel::PartitionRule rule = hpa::kernel::partition_rule(paged.shape(), this_device());
      const hpa::kernel::WorkspaceLayout layout = hpa::kernel::layout_of(paged.shape(), rule);
      const auto* header = paged.workspace.as<hpa::kernel::PlanHeader>();
      const auto* items = reinterpret_cast<const hpa::kernel::Item*>(paged.workspace.data() + layout.items);
      REQUIRE(header->num_items <= layout.max_items);
      std::vector<int> planned(lengths.size(), 0), first(lengths.size(), std::numeric_limits<int>::max());
      for (int i = 0; i < header->num_items; ++i) {
        planned[std::size_t(items[i].sequence)] += items[i].end - items[i].begin;
        first[std::size_t(items[i].sequence)] = std::min(first[std::size_t(items[i].sequence)], items[i].begin);
      }
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        const int first_key = std::max(lengths[i] - rows + 1 - window, 0);
        CHECK(first[i] == first_key / 16 * 16);
        CHECK(planned[i] == lengths[i] - first[i]);
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("a window moves with lengths that grow, shrink and vanish, in one workspace", "[windows]", Machines) {
  using Menu = one_menu<TestType>;
  PagedCase paged(window_case(DType::f16, 50, {900, 900, 900}, {4, 1, 2}));
  Buffer workspace(hpa::workspace_bytes<Menu>(paged.shape(), this_device()), 16, Guard::end);
  workspace.fill(0xff);
  workspace.upload();
  const auto step = [&](const DecodeShape& shape, const DecodeArgs& args, Workspace, hpa::Stream stream) {
    const Workspace kept{workspace.device(), workspace.size()};
    if (const Verdict verdict = hpa::paged_attention<Menu>(shape, args, kept, stream); !verdict) return verdict;
    return hpa::workspace_error(kept, stream);
  };
  for (const std::vector<int>& lengths : std::vector<std::vector<int>>{
           {1, 1, 1}, {50, 51, 52}, {53, 54, 900}, {0, 0, 0}, {899, 65, 66}, {900, 900, 900}, {3, 0, 49}}) {
    paged.set_seq_lens(lengths);
    INFO(describe(paged.spec));
    REQUIRE(paged.run(16, {}, step));
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
    workspace.download();
    CHECK(workspace.canary_intact());
  }
}

TEMPLATE_LIST_TEST_CASE("a plan for another window, or another order, is reported and nothing is written", "[windows]", Machines) {
  using Menu = one_menu<TestType>;
  PagedCase paged(window_case(DType::f16, 40, {100, 17}, {2, 2}));
  const auto expect_reported = [&](auto change) {
    Verdict error;
    REQUIRE(paged.run(std::size_t{1} << 20, {},
                      [&](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, hpa::Stream stream) {
                        DecodeShape other_shape = shape;
                        DecodeArgs other = args;
                        change(other_shape, other);
                        if (const Verdict verdict = hpa::plan<Menu>(other_shape, other.batch, workspace, stream); !verdict)
                          return verdict;
                        const Verdict verdict = hpa::decode<Menu>(shape, args, workspace, stream);
                        error = hpa::workspace_error(workspace, stream);
                        return verdict;
                      }));
    CHECK(error.field == std::string("workspace"));
    CHECK(paged.outputs_untouched());
  };
  expect_reported([](DecodeShape&, DecodeArgs& args) { args.batch.window = 41; });
  expect_reported([](DecodeShape& shape, DecodeArgs& args) { shape.sliding_window = false, args.batch.window = 0; });
  expect_reported([](DecodeShape& shape, DecodeArgs&) { shape.causal = false; });
  expect_reported([](DecodeShape& shape, DecodeArgs&) { shape.max_query_len = 3; });
}
