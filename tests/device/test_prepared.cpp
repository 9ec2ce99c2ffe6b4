// prepare(): a step that is checked once, and what plan() and decode() of it still look at.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "calls.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

template <class Menu>
std::size_t bytes_of(const PagedCase& paged) {
  return hpa::workspace_bytes<Menu>(paged.shape(), this_device());
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("the calls of a prepared step give the bits of the calls that check everything", "[prepared]", Machines) {
  using Menu = small_menu<TestType>;
  for (const hpa::Split split : {hpa::Split::by_length, hpa::Split::balanced}) {
    CaseSpec spec = small_case(DType::f16, 6, 2, {40, 1500, 0, 17});
    spec.query_lens = {1, 3, 1, 0};
    spec.shape.max_query_len = 3;
    spec.shape.split = split;
    PagedCase paged(spec);
    REQUIRE(hpa::test::run_paged_attention<Menu>(paged));
    const auto results = hpa::test::results_of(paged);
    REQUIRE(
        paged.run(bytes_of<Menu>(paged), {}, [](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, Stream on) {
          const Prepared<Menu> step = hpa::prepare<Menu>(shape, args.batch, workspace);
          CHECK(step);
          CHECK(step.batch().num_seqs == 4);
          CHECK(step.shape().num_heads == 6);
          if (const Verdict v = plan(step, on); !v) return v;
          for (int layer = 0; layer < 3; ++layer)
            if (const Verdict v = decode(step, args, on); !v) return v;
          return hpa::workspace_error(workspace, on);
        }));
    CHECK((hpa::test::results_of(paged) == results));
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  }
}

TEMPLATE_LIST_TEST_CASE("a prepared step stays right for other lengths in the same arrays", "[prepared]", Machines) {
  using Menu = small_menu<TestType>;
  PagedCase paged(small_case(DType::f16, 4, 1, {300, 1400, 60}));
  Buffer workspace(bytes_of<Menu>(paged), 16, Guard::end);
  const Prepared<Menu> step = hpa::prepare<Menu>(paged.shape(), paged.args().batch, {workspace.device(), workspace.size()});
  REQUIRE(step);
  for (const std::vector<int>& lengths : {std::vector<int>{300, 1400, 60}, {1, 2, 3}, {0, 1399, 299}}) {
    paged.set_seq_lens(lengths);
    REQUIRE(paged.run(16, {}, [&](const DecodeShape&, const DecodeArgs& args, Workspace, Stream on) {
      if (const Verdict v = plan(step, on); !v) return v;
      return decode(step, args, on);
    }));
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  }
}

TEMPLATE_LIST_TEST_CASE("what prepare() refuses is refused by the step's calls, and so is a step that was never prepared",
                        "[prepared]", Machines) {
  using Menu = small_menu<TestType>;
  PagedCase paged(small_case(DType::f16, 4, 2, {40, 17}));
  const auto refused = [&](const char* field, Status status,
                           const std::function<void(DecodeShape&, DecodeArgs&, Workspace&)>& spoil) {
    INFO(field);
    (void)paged.run(bytes_of<Menu>(paged), {}, [&](DecodeShape shape, DecodeArgs args, Workspace workspace, Stream on) {
      spoil(shape, args, workspace);
      const Prepared<Menu> step = hpa::prepare<Menu>(shape, args.batch, workspace);
      CHECK(!step);
      for (const Verdict& v : {step.verdict(), plan(step, on), decode(step, args, on)}) {
        CHECK(v.field == std::string(field));
        CHECK(v.status == status);
      }
      return Verdict{};
    });
    CHECK(paged.outputs_untouched());
  };
  const Status bad = Status::invalid_argument;
  refused("num_heads", bad, [](DecodeShape& s, DecodeArgs&, Workspace&) { s.num_heads = 0; });
  refused("head_size", Status::unsupported, [](DecodeShape& s, DecodeArgs&, Workspace&) { s.head_size = 100; });
  refused("num_seqs", bad, [](DecodeShape&, DecodeArgs& a, Workspace&) { a.batch.num_seqs = 3; });
  refused("seq_lens", bad, [](DecodeShape&, DecodeArgs& a, Workspace&) { a.batch.seq_lens = nullptr; });
  refused("workspace", bad, [](DecodeShape&, DecodeArgs&, Workspace& w) { w.data = nullptr; });
  refused("workspace", Status::workspace_too_small, [](DecodeShape&, DecodeArgs&, Workspace& w) { w.bytes = 64; });
  const Prepared<Menu> none;
  CHECK(!none);
  CHECK(plan(none, Stream{}).field == std::string("prepared"));
  CHECK(decode(none, paged.args(), Stream{}).field == std::string("prepared"));
  CHECK(decode(none, paged.args(), Stream{}).status == bad);
}

TEMPLATE_LIST_TEST_CASE("a layer of a prepared step is refused where it differs from the step or is wrong itself", "[prepared]",
                        Machines) {
  using Menu = small_menu<TestType>;
  CaseSpec spec = small_case(DType::f16, 4, 2, {40, 17, 5});
  spec.query_lens = {1, 1, 1};
  PagedCase paged(spec);
  const auto refused = [&](const char* field, const std::function<void(DecodeArgs&)>& change) {
    INFO(field);
    (void)paged.run(bytes_of<Menu>(paged), {}, [&](const DecodeShape& shape, DecodeArgs args, Workspace workspace, Stream on) {
      const Prepared<Menu> step = hpa::prepare<Menu>(shape, args.batch, workspace);
      CHECK(plan(step, on));
      change(args);
      const Verdict v = decode(step, args, on);
      CHECK(v.field == std::string(field));
      CHECK(v.status == Status::invalid_argument);
      CHECK(std::string(v.why) != "");
      CHECK(hpa::workspace_error(workspace, on));
      return Verdict{};
    });
    CHECK(paged.outputs_untouched());
  };
  refused("num_seqs", [](DecodeArgs& a) { a.batch.num_seqs = 2; });
  refused("num_seqs", [](DecodeArgs& a) { a.batch.num_seqs = 0; });
  refused("block_tables", [](DecodeArgs& a) { ++a.batch.block_tables; });
  refused("table_starts", [](DecodeArgs& a) { a.batch.table_starts = reinterpret_cast<const std::int64_t*>(a.query); });
  refused("seq_lens", [](DecodeArgs& a) { ++a.batch.seq_lens; });
  refused("query_start_loc", [](DecodeArgs& a) { a.batch.query_start_loc = nullptr; });
  refused("block_table_width", [](DecodeArgs& a) { --a.batch.block_table_width; });
  refused("block_table_row_stride", [](DecodeArgs& a) { a.batch.block_table_row_stride = 100; });
  refused("window", [](DecodeArgs& a) { a.batch.window = 5; });
  refused("query", [](DecodeArgs& a) { a.query = nullptr; });
  refused("query", [](DecodeArgs& a) { a.query = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(a.query) + 8); });
  refused("keys", [](DecodeArgs& a) { a.cache.keys = nullptr; });
  refused("values", [](DecodeArgs& a) { a.cache.values = nullptr; });
  refused("out", [](DecodeArgs& a) { a.out = nullptr; });
  refused("lse", [](DecodeArgs& a) { a.lse = nullptr; });
  refused("sinks", [](DecodeArgs& a) { a.sinks = a.lse; });
  refused("num_blocks", [](DecodeArgs& a) { a.cache.num_blocks = -1; });
  refused("query_row_stride", [](DecodeArgs& a) { a.query_row_stride = 4; });
}

TEMPLATE_LIST_TEST_CASE("a step decoded on a workspace that was planned for another one writes nothing and is reported",
                        "[prepared]", Machines) {
  using Menu = small_menu<TestType>;
  PagedCase paged(small_case(DType::f16, 4, 2, {40, 17, 5}));
  Verdict error;
  REQUIRE(
      paged.run(bytes_of<Menu>(paged), {}, [&](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, Stream on) {
        Batch fewer = args.batch;
        fewer.num_seqs = 2;
        const Prepared<Menu> step = hpa::prepare<Menu>(shape, args.batch, workspace),
                             other = hpa::prepare<Menu>(shape, fewer, workspace);
        if (const Verdict v = plan(step, on); !v) return v;
        if (const Verdict v = plan(other, on); !v) return v;  // in the same workspace
        const Verdict v = decode(step, args, on);
        error = hpa::workspace_error(workspace, on);
        return v;
      }));
  CHECK(error.field == std::string("workspace"));
  CHECK(paged.outputs_untouched());
}

TEMPLATE_LIST_TEST_CASE("a prepared step with no sequences", "[prepared]", Machines) {
  using Menu = small_menu<TestType>;
  PagedCase paged(small_case(DType::f16, 4, 2, {40, 17}));
  REQUIRE(paged.run(bytes_of<Menu>(paged), {}, [](const DecodeShape& shape, const DecodeArgs&, Workspace workspace, Stream on) {
    const Prepared<Menu> step = hpa::prepare<Menu>(shape, {}, workspace);
    CHECK(plan(step, on));
    return decode(step, DecodeArgs{}, on);
  }));
  CHECK(paged.outputs_untouched());
}
