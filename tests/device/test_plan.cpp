// plan(): the work list that it leaves in the workspace, and what it finds wrong in lengths and query starts.
#include "hpa/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "paged_case.hpp"

using namespace hpa;
using namespace hpa::test;
using hpa::kernel::Item;
using hpa::kernel::PartitionRule;
using hpa::kernel::PlanHeader;
using hpa::kernel::SplitRow;
using hpa::kernel::WorkspaceLayout;

namespace {

#if defined(HPA_PLATFORM_HOST)
using Menus = std::tuple<hpa::default_menu, hpa::default_menu::with<hpa::query_types<DType::f16>, hpa::head_sizes<128>,
                                                                    hpa::block_sizes<16>, hpa::feature_sets<hpa::Features::none>,
                                                                    hpa::machine<hpa::arch::HostMachine<hpa::arch::Nvidia>>>>;
#else
using Menus = std::tuple<hpa::default_menu>;
#endif

using Ints = std::vector<std::int32_t>;

DecodeShape shape_of(int max_seqs, int max_seq_len, int num_kv_heads = 1) {
  DecodeShape shape;
  shape.num_heads = 2 * num_kv_heads;
  shape.num_kv_heads = num_kv_heads;
  shape.max_seqs = max_seqs;
  shape.max_seq_len = max_seq_len;
  return shape;
}

Device this_device() {
  Device device;
  REQUIRE(hpa::current_device(&device));
  return device;
}

/// What plan must see in one sequence; the rules of the API, one after another.
struct Expected {
  bool active = false;   // has items
  bool skipped = false;  // has more rows than max_query_len
  std::int32_t query_row = 0;
  std::int64_t seq_len = 0;  // of the items; 0 also for a sequence in error
  std::string error;         // the field at fault
};

/// One call of plan() on lengths between unmapped pages, and what it left.
class Planned {
 public:
  /// `starts` empty: no query_start_loc. `width` 0: wide enough for max_seq_len.
  Planned(const DecodeShape& shape, Ints lengths, Ints starts = {}, int width = 0)
      : shape_(shape),
        lengths_(std::move(lengths)),
        starts_(std::move(starts)),
        width_(width == 0 ? int(hpa::kernel::ceil_div(shape.max_seq_len, shape.block_size)) : width),
        rule_(hpa::kernel::partition_rule(shape, this_device())),
        layout_(hpa::kernel::layout_of(shape, rule_)),
        workspace_(layout_.bytes, 16, Guard::end) {
    workspace_.fill(0xff);
    workspace_.upload();
  }

  /// Other lengths, on the workspace as the last plan left it.
  void set(Ints lengths, Ints starts = {}) {
    lengths_ = std::move(lengths);
    starts_ = std::move(starts);
  }

  template <class Menu>
  Verdict plan() {
    Buffer lengths = upload(lengths_), starts = upload(starts_);
    Batch batch;
    batch.block_tables = reinterpret_cast<const std::int32_t*>(std::uintptr_t{0x1000});  // not read: leads nowhere
    batch.seq_lens = reinterpret_cast<const std::int32_t*>(lengths.device());
    batch.query_start_loc = starts_.empty() ? nullptr : reinterpret_cast<const std::int32_t*>(starts.device());
    batch.num_seqs = int(lengths_.size());
    batch.block_table_width = width_;
    const Verdict verdict = hpa::plan<Menu>(shape_, batch, workspace(), {});
    error_ = hpa::workspace_error(workspace(), {}, &error_sequence_);  // waits for the stream
    report_verdict_ = hpa::plan_report(workspace(), {}, &report_);
    workspace_.download();
    return verdict;
  }

  std::vector<Expected> expected() const {
    std::vector<Expected> all;
    std::int64_t total = 0;
    std::int32_t rows_taken = 0;  // by the sequences before
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      Expected e;
      std::int64_t rows = 1;
      e.query_row = std::int32_t(i);
      if (!starts_.empty()) {
        e.query_row = starts_[i];
        rows = std::int64_t{starts_[i + 1]} - starts_[i];
        if (starts_[i] < 0 || rows < 0 || starts_[i + 1] > starts_[lengths_.size()])
          e.error = "query_start_loc";
        else if (rows == 1 && starts_[i] < rows_taken)
          e.error = "query_start_loc";
        if (starts_[i] >= 0 && rows >= 0 && starts_[i + 1] <= starts_[lengths_.size()])
          rows_taken = std::max(rows_taken, starts_[i + 1]);
      }
      e.active = e.error.empty() && rows == 1;
      e.skipped = e.error.empty() && rows > 1;
      if (e.active) {
        const std::int64_t length = lengths_[i];
        if (length < 0 || length > shape_.max_seq_len || length > std::int64_t{width_} * shape_.block_size) {
          e.error = "seq_lens";
        } else {
          total += length;
          if (length > 0 && total > shape_.total_kv_tokens())
            e.error = "seq_lens";
          else
            e.seq_len = length;
        }
      }
      all.push_back(e);
    }
    return all;
  }

  /// Compares the work list with the lengths; empty, or what is wrong.
  std::string problem() const {
    const hpa::kernel::CarvedWorkspace areas =
        hpa::kernel::carve({const_cast<std::uint8_t*>(workspace_.data()), layout_.bytes}, layout_);
    const PlanHeader& header = *areas.header;
    if (header.num_items < 0 || header.num_items > layout_.max_items) return "more items than the workspace holds";
    if (header.num_split_rows < 0 || header.num_split_rows > layout_.max_split_rows)
      return "more split rows than the workspace holds";
    const std::vector<Expected> all = expected();
    const std::vector<std::vector<Item>> items = items_by_sequence(areas.items, header.num_items);
    if (items.empty()) return "an item of no sequence";
    std::set<std::int32_t> partials;
    std::int64_t split_row = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Expected& e = all[i];
      const std::string where = "sequence " + std::to_string(i) + ": ";
      if (e.active != !items[i].empty()) return where + (e.active ? "items are missing" : "items of no row");
      if (!e.active) continue;
      const auto partitions = std::int64_t(items[i].size());
      if (shape_.split == hpa::Split::by_length && partitions != rule_.partitions(e.seq_len)) return where + "cut by another rule";
      std::int64_t end = 0;
      for (std::int64_t index = 0; index < partitions; ++index) {
        const Item& item = items[i][std::size_t(index)];
        if (item.query_row != e.query_row || item.seq_len != e.seq_len) return where + "an item of another row";
        if (item.begin != end || item.end < item.begin || (item.end == item.begin && e.seq_len > 0))
          return where + "a gap or an overlap";
        if (item.begin % 64 != 0) return where + "an item that begins within a tile";
        end = item.end;
        if ((item.partial < 0) != (partitions == 1)) return where + "a partial where none is due, or none where one is";
        if (item.partial < 0) continue;
        if (item.partial >= layout_.max_partials || !partials.insert(item.partial).second)
          return where + "a partial that is not there, or twice";
        if (item.partial != items[i][0].partial + index) return where + "partials out of order";
      }
      if (end != e.seq_len) return where + "items end at " + std::to_string(end);
      if (partitions == 1) continue;
      if (split_row >= header.num_split_rows) return where + "split rows are missing";
      const SplitRow& row = areas.split_rows[split_row++];
      if (row.query_row != e.query_row || row.partial != items[i][0].partial || row.partitions != partitions)
        return where + "a wrong split row";
    }
    if (split_row != header.num_split_rows) return "split rows of no sequence";
    const std::string order = shape_.split == hpa::Split::balanced ? shares_problem(areas, header.num_items)
                                                                   : order_problem(areas.items, header.num_items);
    if (!order.empty()) return order;
    if (!workspace_.canary_intact()) return "written outside the workspace";
    const std::string report = report_problem(all, items);
    return report.empty() ? error_problem(all) : report;
  }

  const hpa::PlanReport& report() const { return report_; }
  const Verdict& error() const { return error_; }
  int error_sequence() const { return error_sequence_; }
  int num_items() const { return reinterpret_cast<const PlanHeader*>(workspace_.data())->num_items; }
  std::vector<std::uint8_t> bytes() const { return workspace_.bytes(); }

 private:
  static Buffer upload(const Ints& ints) {
    Buffer buffer(ints.size() * sizeof(std::int32_t), alignof(std::int32_t), Guard::end);
    std::copy(ints.begin(), ints.end(), buffer.as<std::int32_t>());
    buffer.upload();
    return buffer;
  }

  Workspace workspace() const { return {workspace_.device(), layout_.bytes}; }

  /// [sequence][index]; empty when an item has no sequence.
  std::vector<std::vector<Item>> items_by_sequence(const Item* items, std::int32_t count) const {
    std::vector<std::vector<Item>> all(lengths_.size());
    for (const Item* item = items; item != items + count; ++item) {
      if (item->sequence < 0 || item->sequence >= int(all.size())) return {};
      all[std::size_t(item->sequence)].push_back(*item);
    }
    for (std::vector<Item>& of_one : all)
      std::sort(of_one.begin(), of_one.end(), [](const Item& a, const Item& b) { return a.begin < b.begin; });
    return all;
  }

  /// By length: long items first, then those half as long, then the others; the batch's order among them.
  std::string order_problem(const Item* items, std::int32_t count) const {
    const auto size = [&](const Item& item) {
      const int tokens = item.end - item.begin;
      return tokens >= rule_.long_partition ? 0 : 2 * tokens >= rule_.long_partition ? 1 : 2;
    };
    const auto place = [&](const Item& item) { return std::tuple(size(item), item.sequence, item.begin); };
    for (std::int32_t i = 1; i < count; ++i)
      if (!(place(items[i - 1]) < place(items[i]))) return "item " + std::to_string(i) + " is out of order";
    return "";
  }

  /// Balanced: the shares follow one another, hold all items in the batch's order, and none has more than its part of the cost.
  std::string shares_problem(const hpa::kernel::CarvedWorkspace& areas, std::int32_t count) const {
    const std::int32_t* const shares = areas.shares;
    std::int64_t all = 0, most = 0;
    if (shares[0] != 0 || shares[rule_.shares] != count) return "shares do not hold all items";
    for (int k = 0; k < rule_.shares; ++k) {
      if (shares[k + 1] < shares[k]) return "share " + std::to_string(k) + " ends before it begins";
      std::int64_t cost = 0;
      for (std::int32_t i = shares[k]; i < shares[k + 1]; ++i) {
        const Item& item = areas.items[i];
        if (i > 0 && std::tuple(item.sequence, item.begin) <= std::tuple(areas.items[i - 1].sequence, areas.items[i - 1].begin))
          return "item " + std::to_string(i) + " is out of order";
        cost += item.end - item.begin + (item.begin == 0 ? rule_.sequence_cost : 0);
      }
      all += cost;
      most = std::max(most, cost);
    }
    // Rows are whole multiples of 64 in the plan, and a cut that would leave less than min_partition is not made.
    const std::int64_t share = all / rule_.shares + 64 * (1 + std::int64_t(lengths_.size()) / rule_.shares);
    const std::int64_t least = rule_.sequence_cost + rule_.min_partition + 64;
    const std::int64_t allowed = std::max(share, least) + 2 * rule_.min_partition + rule_.sequence_cost + 64;
    return most <= allowed ? "" : "a share costs " + std::to_string(most) + " of " + std::to_string(all);
  }

  /// plan_report() counts every sequence once, and the items.
  std::string report_problem(const std::vector<Expected>& all, const std::vector<std::vector<Item>>& items) const {
    hpa::PlanReport right;
    for (std::size_t i = 0; i < all.size(); ++i) {
      ++(!all[i].error.empty() ? right.in_error
         : all[i].skipped      ? right.skipped
         : all[i].seq_len > 0  ? right.decoded
                               : right.empty);
      right.items += std::int64_t(items[i].size());
      right.partials += items[i].size() > 1 ? std::int64_t(items[i].size()) : 0;
    }
    if (!report_verdict_) return std::string("no report: ") + report_verdict_.why;
    if (report_.decoded != right.decoded) return "report: decoded is " + std::to_string(report_.decoded);
    if (report_.skipped != right.skipped) return "report: skipped is " + std::to_string(report_.skipped);
    if (report_.empty != right.empty) return "report: empty is " + std::to_string(report_.empty);
    if (report_.in_error != right.in_error) return "report: in_error is " + std::to_string(report_.in_error);
    if (report_.items != right.items) return "report: items is " + std::to_string(report_.items);
    if (report_.partials != right.partials) return "report: partials is " + std::to_string(report_.partials);
    const bool same = report_.first_error.status == error_.status && std::string(report_.first_error.why) == error_.why &&
                      report_.first_error_sequence == error_sequence_;
    return same ? "" : "report: not the error that workspace_error() names";
  }

  /// workspace_error() names the first sequence in error, and nothing when there is none.
  std::string error_problem(const std::vector<Expected>& all) const {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].error.empty()) continue;
      if (error_) return "sequence " + std::to_string(i) + ": its error is not reported";
      if (error_.status != Status::invalid_argument || error_.field != all[i].error || std::string(error_.why).empty())
        return std::string("the error is reported as ") + error_.field;
      return error_sequence_ == int(i) ? "" : "the error is reported of sequence " + std::to_string(error_sequence_);
    }
    return error_ && error_sequence_ == -1 ? "" : std::string("an error is reported where there is none: ") + error_.why;
  }

  DecodeShape shape_;
  Ints lengths_, starts_;
  int width_;
  PartitionRule rule_;
  WorkspaceLayout layout_;
  Buffer workspace_;
  Verdict error_, report_verdict_;
  int error_sequence_ = 0;
  hpa::PlanReport report_;
};

/// Query starts of sequences with so many rows each.
Ints starts_of(const Ints& rows) {
  Ints starts = {0};
  for (const std::int32_t count : rows) starts.push_back(starts.back() + count);
  return starts;
}

template <class Menu>
void check_plan(const DecodeShape& shape, const Ints& lengths, const Ints& starts = {}, int width = 0) {
  Planned planned(shape, lengths, starts, width);
  CHECK(planned.plan<Menu>());
  CHECK(planned.problem() == "");
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("every active row is covered once", "[plan]", Menus) {
  std::mt19937 random(21);
  const auto up_to = [&](int most) { return std::int32_t(random() % unsigned(most + 1)); };
  for (int round = 0; round < 150; ++round) {
    INFO("round " << round);
    const int max_seqs = 1 + up_to(round % 3 == 0 ? 400 : 20), max_seq_len = 1 + up_to(round % 2 == 0 ? 60000 : 500);
    DecodeShape shape = shape_of(max_seqs, max_seq_len, 1 << up_to(3));
    Ints lengths(std::size_t(1 + up_to(max_seqs - 1))), rows;
    for (std::int32_t& length : lengths) length = up_to(4) == 0 ? 0 : up_to(4) == 0 ? max_seq_len : up_to(max_seq_len);
    for (std::size_t i = 0; i < lengths.size(); ++i)
      rows.push_back(up_to(3) == 0 ? up_to(1) * (2 + up_to(1000)) : 1);  // none, one, a prefill
    if (up_to(2) == 0) shape.max_total_kv_tokens = 1 + std::int64_t{up_to(max_seqs)} * up_to(max_seq_len);
    check_plan<TestType>(shape, lengths, up_to(1) == 0 ? Ints{} : starts_of(rows));
  }
}

TEMPLATE_LIST_TEST_CASE("a balanced plan covers every active row once, in equal shares", "[plan]", Menus) {
  std::mt19937 random(22);
  const auto up_to = [&](int most) { return std::int32_t(random() % unsigned(most + 1)); };
  for (int round = 0; round < 200; ++round) {
    INFO("round " << round);
    const int max_seqs = 1 + up_to(round % 3 == 0 ? 3000 : 20), max_seq_len = 1 + up_to(round % 2 == 0 ? 60000 : 500);
    DecodeShape shape = shape_of(max_seqs, max_seq_len, 1 << up_to(4));
    shape.split = hpa::Split::balanced;
    Ints lengths(std::size_t(1 + up_to(max_seqs - 1))), rows;
    const int usual = up_to(max_seq_len);
    for (std::int32_t& length : lengths)
      length = up_to(4) == 0 ? 0 : up_to(4) == 0 ? max_seq_len : up_to(1) == 0 ? usual : up_to(max_seq_len);
    for (std::size_t i = 0; i < lengths.size(); ++i)
      rows.push_back(up_to(3) == 0 ? up_to(1) * (2 + up_to(1000)) : 1);  // none, one, a prefill
    if (up_to(2) == 0) shape.max_total_kv_tokens = 1 + std::int64_t{up_to(max_seqs)} * up_to(max_seq_len);
    if (up_to(9) == 0) lengths[std::size_t(up_to(int(lengths.size()) - 1))] = -1;
    check_plan<TestType>(shape, lengths, up_to(1) == 0 ? Ints{} : starts_of(rows));
  }
  for (const Ints& lengths : {Ints{0}, Ints{1}, Ints(1025, 0), Ints(1024, 1), Ints(2048, 4096), Ints{1 << 30}, Ints(8, 1 << 30)}) {
    INFO(lengths.size() << " of " << lengths[0]);
    DecodeShape shape = shape_of(int(lengths.size()), 1 << 30);
    shape.split = hpa::Split::balanced;
    check_plan<TestType>(shape, lengths);
  }
}

TEMPLATE_LIST_TEST_CASE("batches at the edges", "[plan]", Menus) {
  const int max = std::numeric_limits<std::int32_t>::max();
  check_plan<TestType>(shape_of(4, 100), {0});
  check_plan<TestType>(shape_of(4, 100), {0, 0, 0, 0});
  check_plan<TestType>(shape_of(4, 100), {1, 100, 99, 0});
  check_plan<TestType>(shape_of(1, 1), {1});
  // Nobody has a row to decode: lengths of skipped sequences are not even looked at.
  check_plan<TestType>(shape_of(4, 100), {max, -1, 7}, {0, 0, 0, 0});
  check_plan<TestType>(shape_of(4, 100), {max, -1, 7}, {0, 5, 10, 15});
  check_plan<TestType>(shape_of(4, 100), {7, 8, 9}, {3, 4, 4, 5});  // starts above 0
  check_plan<TestType>(shape_of(1, 1 << 30), {1 << 30});
  check_plan<TestType>(shape_of(1000, 8), Ints(1000, 8));
  check_plan<TestType>(shape_of(1000, 8192), Ints(1000, 8192));
  // The last sequences of a workgroup's stride, and the first of the next.
  for (const int count : {63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 2049}) {
    INFO(count << " sequences");
    check_plan<TestType>(shape_of(count, 6000), Ints(std::size_t(count), 5000));
  }
}

TEMPLATE_LIST_TEST_CASE("lengths that cannot be become empty rows and are reported", "[plan]", Menus) {
  const int max = std::numeric_limits<std::int32_t>::max(), min = std::numeric_limits<std::int32_t>::min();
  struct Case {
    Ints lengths;
    int width;  // of the block table
    int sequence;
    const char* why;
  };
  const Case cases[] = {
      {{50, -1, 100}, 7, 1, "negative"},         {{min, 100, 100}, 7, 0, "negative"},
      {{50, 100, 101}, 7, 2, "max_seq_len"},     {{50, max, 7}, 7, 1, "max_seq_len"},
      {{80, 81, 7}, 5, 1, "block_table_width"},  {{max, 81, -5}, 5, 0, "max_seq_len"},  // of several, the first sequence
      {{1, 100, 17}, 1, 1, "block_table_width"},
  };
  for (const Case& c : cases) {
    INFO("sequence " << c.sequence << ", " << c.why);
    Planned planned(shape_of(4, 100), c.lengths, {}, c.width);
    CHECK(planned.plan<TestType>());
    CHECK(planned.problem() == "");
    CHECK(planned.error_sequence() == c.sequence);
    CHECK(std::string(planned.error().field) == "seq_lens");
    CHECK(std::string(planned.error().why).find(c.why) != std::string::npos);
  }
  // Late in a large batch.
  Ints lengths(700, 100);
  lengths[699] = 101;
  lengths[300] = -7;
  check_plan<TestType>(shape_of(700, 100), lengths);
}

TEMPLATE_LIST_TEST_CASE("query starts that cannot be are reported, and their sequences have no rows", "[plan]", Menus) {
  const int max = std::numeric_limits<std::int32_t>::max(), min = std::numeric_limits<std::int32_t>::min();
  struct Case {
    Ints starts;
    int sequence, items;
  };
  const Case cases[] = {
      {{0, 1000000, 1000001, 2}, 0, 0},  // one million rows, if the last start is right
      {{-1, 0, 1, 2}, 0, 2},
      {{0, 1, -5, 2}, 1, 1},
      {{0, 1, 2, 1}, 1, 1},
      {{0, 1, 0, 1}, 1, 1},  // the last sequence claims the first one's row
      {{0, 1, 2, -1}, 0, 0},
      {{5, 4, 5, 6}, 0, 2},
      {{min, max, 0, 1}, 0, 1},
      {{0, max, 1, 2}, 0, 1},
      {{max, min, min, max}, 0, 0},
      {{0, 0, 0, min}, 0, 0},
  };
  for (const Case& c : cases) {
    INFO("starts " << c.starts[0] << ", " << c.starts[1] << ", " << c.starts[2] << ", " << c.starts[3]);
    Planned planned(shape_of(4, 100), {10, 20, 30}, c.starts);
    CHECK(planned.plan<TestType>());
    CHECK(planned.problem() == "");
    CHECK(planned.error_sequence() == c.sequence);
    CHECK(std::string(planned.error().field) == "query_start_loc");
    CHECK(planned.num_items() == c.items);
  }
}

TEMPLATE_LIST_TEST_CASE("a sequence beyond the tokens that the shape allows is empty, those before it are not", "[plan]", Menus) {
  DecodeShape shape = shape_of(8, 100);
  struct Case {
    Ints lengths;
    int total, sequence;  // -1: all fit
  };
  const Case cases[] = {
      {{100, 100, 50, 0, 0}, 250, -1},
      {{100, 100, 51}, 250, 2},
      {{100, 0, 100, 100, 0, 100}, 250, 3},
      {{2}, 1, 0},
      {{1, 0, 0, 1}, 1, 3},
      {{100, -1, 101, 100, 50}, 250, 1},  // what is in error already takes nothing
  };
  for (const Case& c : cases) {
    shape.max_total_kv_tokens = c.total;
    INFO("total " << c.total << ", sequence " << c.sequence);
    Planned planned(shape, c.lengths);
    CHECK(planned.plan<TestType>());
    CHECK(planned.problem() == "");
    CHECK(planned.error_sequence() == c.sequence);
  }
  // Sums beyond 32 bits, and beyond the first workgroup's stride.
  shape = shape_of(2000, 1 << 30);
  shape.max_total_kv_tokens = std::int64_t{1} << 33;
  Ints lengths(2000, 0);
  for (const std::size_t i : {0, 1, 2, 3, 500, 501, 502, 1000, 1001}) lengths[i] = 1 << 30;
  Planned planned(shape, lengths);
  CHECK(planned.plan<TestType>());
  CHECK(planned.problem() == "");
  CHECK(planned.error_sequence() == 1001);
}

TEMPLATE_LIST_TEST_CASE("the report counts every sequence once: decoded, skipped, empty or in error", "[plan]", Menus) {
  for (const hpa::Split split : {hpa::Split::by_length, hpa::Split::balanced}) {
    DecodeShape shape = shape_of(8, 100);
    shape.split = split;
    // Two of one row, a prefill of five, one without a row, one without a token, one that is too long, one decoded; then padding.
    Planned planned(shape, {50, 60, 70, 80, 0, 101, 9, 33}, {0, 1, 2, 7, 7, 8, 9, 10, 0});
    CHECK(planned.plan<TestType>());
    const hpa::PlanReport& report = planned.report();
    CHECK(report.decoded == 3);
    CHECK(report.skipped == 1);
    CHECK(report.empty == 3);
    CHECK(report.in_error == 1);
    CHECK(report.first_error.field == std::string("seq_lens"));
    CHECK(report.first_error_sequence == 5);
    CHECK(report.items == 5);  // of rows that become empty too
    CHECK(report.partials == 0);
    planned.set({});
    CHECK(planned.plan<TestType>());
    CHECK(report.decoded + report.skipped + report.empty + report.in_error == 0);
    CHECK(report.items == 0);
    CHECK(report.first_error);
    CHECK(report.first_error_sequence == -1);
    // Strides of all kinds, each counted once however many workgroups there are.
    for (const int count : {64, 1000, 1024, 1025, 5000}) {
      Ints lengths(std::size_t(count), 7), rows(std::size_t(count), 1);
      for (int i = 0; i < count; ++i) {
        rows[std::size_t(i)] = i % 7 == 0 ? 3 : i % 5 == 0 ? 0 : 1;
        lengths[std::size_t(i)] = i % 3 == 0 ? 0 : i % 11 == 0 ? -1 : 7;
      }
      DecodeShape large = shape_of(count, 100);
      large.split = split;
      check_plan<TestType>(large, lengths, starts_of(rows));
    }
  }
}

TEMPLATE_LIST_TEST_CASE("the report counts the partials of sequences that were cut", "[plan]", Menus) {
  for (const hpa::Split split : {hpa::Split::by_length, hpa::Split::balanced}) {
    DecodeShape shape = shape_of(3, 60000);
    shape.split = split;
    Planned planned(shape, {60000, 5, 60000});
    CHECK(planned.plan<TestType>());
    CHECK(planned.problem() == "");
    CHECK(planned.report().partials >= 2);
    CHECK(planned.report().items >= planned.report().partials);
  }
}

TEST_CASE("a report is refused where there is none, or nowhere to write it", "[plan]") {
  Buffer workspace(sizeof(PlanHeader), 16, Guard::end);
  hpa::PlanReport report;
  report.decoded = 7;
  for (const int byte : {0x00, 0xff}) {
    workspace.fill(std::uint8_t(byte));
    workspace.upload();
    const Verdict verdict = hpa::plan_report({workspace.device(), workspace.size()}, {}, &report);
    CHECK(verdict.field == std::string("workspace"));
    CHECK(report.decoded == 0);
  }
  CHECK(hpa::plan_report({workspace.device(), workspace.size()}, {}, nullptr).field == std::string("report"));
  CHECK(hpa::plan_report({nullptr, workspace.size()}, {}, &report).field == std::string("workspace"));
  CHECK(hpa::plan_report({workspace.device(), 8}, {}, &report).status == Status::workspace_too_small);
}

TEMPLATE_LIST_TEST_CASE("a plan replaces the one before it, error and all", "[plan]", Menus) {
  const DecodeShape shape = shape_of(300, 20000);
  Planned planned(shape, Ints(300, 20000));
  CHECK(planned.plan<TestType>());
  CHECK(planned.problem() == "");
  const Ints batches[] = {{-1, 5}, {20000, 4097, 4096}, {0}, Ints(300, 1), {20001}, Ints(299, 8192)};
  for (const Ints& lengths : batches) {
    planned.set(lengths);
    CHECK(planned.plan<TestType>());
    CHECK(planned.problem() == "");
  }
}

TEMPLATE_LIST_TEST_CASE("the same lengths give the same bytes", "[plan]", Menus) {
  Ints lengths, rows;
  for (int i = 0; i < 500; ++i) {
    lengths.push_back(i * 7919 % 20000);
    rows.push_back(i % 5 == 0 ? 3 : 1);
  }
  Planned first(shape_of(500, 20000), lengths, starts_of(rows)), second(shape_of(500, 20000), lengths, starts_of(rows));
  CHECK(first.plan<TestType>());
  CHECK(second.plan<TestType>());
  CHECK(first.bytes() == second.bytes());
}

TEST_CASE("a workspace without a plan is said to have none", "[plan]") {
  for (const int byte : {0x00, 0xff}) {
    Buffer workspace(sizeof(PlanHeader), 16, Guard::end);
    workspace.fill(std::uint8_t(byte));
    workspace.upload();
    int sequence = 7;
    const Verdict verdict = hpa::workspace_error({workspace.device(), workspace.size()}, {}, &sequence);
    CHECK(verdict.status == Status::invalid_argument);
    CHECK(std::string(verdict.field) == "workspace");
    CHECK(sequence == -1);
  }
}
