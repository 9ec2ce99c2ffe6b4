// The rule that cuts rows, the layout of a workspace sized by it, and that no batch within the caps ever needs more.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "hpa/check.hpp"
#include "hpa/workspace.hpp"

using namespace hpa;
using hpa::kernel::PartitionRule;
using hpa::kernel::WorkspaceLayout;

namespace {

constexpr Arch archs[] = {Arch::gfx90a, Arch::gfx942, Arch::gfx950, Arch::gfx11, Arch::gfx12, Arch::sm80,
                          Arch::sm86,   Arch::sm89,   Arch::sm90,   Arch::sm100, Arch::sm120, Arch::host};

PartitionRule rule_of(Arch arch, int rows, int compute_units, int fixed = 0) {
  DecodeShape shape;
  shape.num_kv_heads = 1;
  shape.max_seqs = rows;
  return hpa::kernel::partition_rule(shape, {arch, compute_units}, fixed);
}

std::vector<PartitionRule> rules() {
  std::vector<PartitionRule> all;
  for (const Arch arch : archs)
    for (const int units : {1, 7, 8, 104, 132, 304})
      for (const int rows : {1, 2, 3, 5, 7, 8, 31, 103, 131, 303, 304, 100000}) all.push_back(rule_of(arch, rows, units));
  for (const int fixed : {16, 32, 48, 256, 4096}) all.push_back(rule_of(Arch::host, 4, 8, fixed));
  return all;
}

/// Every length at first, then the neighbourhoods of multiples of 128 that grow, then of powers of two.
std::vector<std::int64_t> lengths() {
  std::vector<std::int64_t> all;
  for (std::int64_t length = 0; length <= 5000; ++length) all.push_back(length);
  for (std::int64_t base = 5120; base < 1 << 30; base += base / 1024 * 128)
    for (const int near : {-1, 0, 1}) all.push_back(base + near);
  for (int power = 13; power <= 30; ++power)
    for (const int near : {-1, 0, 1}) all.push_back(std::min((std::int64_t{1} << power) + near, std::int64_t{1} << 30));
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

/// What plan needs for one batch.
struct Need {
  std::int64_t items = 0, partials = 0, split_rows = 0;
  void add(const PartitionRule& rule, std::int64_t length, int query_rows) {
    const std::int64_t partitions = rule.partitions(length);
    items += partitions;
    partials += partitions > 1 ? partitions * query_rows : 0;
    split_rows += partitions > 1 ? query_rows : 0;
  }
  bool fits(const WorkspaceLayout& layout) const {
    return items <= layout.max_items && partials <= layout.max_partials && split_rows <= layout.max_split_rows;
  }
};

/// Fills a batch with lengths from `next` until a cap is met.
template <class Next>
Need need_of(const DecodeShape& shape, const PartitionRule& rule, Next&& next) {
  Need need;
  std::int64_t left = shape.total_kv_tokens();
  for (int sequence = 0; sequence < shape.max_seqs; ++sequence) {
    const std::int64_t length = std::min<std::int64_t>({next(), shape.max_seq_len, left});
    need.add(rule, length, shape.max_query_len);
    left -= length;
  }
  return need;
}

DecodeShape shape_of(int heads, int kv_heads, int max_seqs, int max_seq_len) {
  DecodeShape shape;
  shape.num_heads = heads;
  shape.num_kv_heads = kv_heads;
  shape.max_seqs = max_seqs;
  shape.max_seq_len = max_seq_len;
  return shape;
}

}  // namespace

TEST_CASE("partitions cover a row exactly and stay within the rule's own bounds", "[partition]") {
  const std::vector<std::int64_t> all = lengths();
  for (const PartitionRule& rule : rules()) {
    INFO("sequence heads " << rule.sequence_heads << ", compute units " << rule.compute_units << ", fixed " << rule.fixed
                           << ", least " << rule.min_partition);
    int not_covering = 0, too_many = 0, too_short = 0, not_whole_blocks = 0;
    std::int64_t most = 1;
    for (const std::int64_t length : all) {
      const std::int64_t tokens = rule.tokens(length), partitions = rule.partitions(length);
      // The last partition ends at or past the length, the one before it ends short of it.
      not_covering +=
          partitions < 1 || partitions * tokens < length || (partitions - 1) * tokens >= std::max<std::int64_t>(length, 1);
      too_short += partitions > 1 && tokens < rule.min_tokens();
      not_whole_blocks += tokens % 16 != 0 || (rule.fixed == 0 && tokens % 64 != 0);
      most = std::max(most, partitions);
      too_many += length > 0 && most > rule.max_partitions(length);
    }
    CHECK(not_covering == 0);
    CHECK(too_many == 0);
    CHECK(too_short == 0);
    CHECK(not_whole_blocks == 0);
  }
}

TEST_CASE("what the rule is tuned for", "[partition]") {
  // Rows that fill the chip are uncut up to 4096 tokens and then cut by 2048, later by more.
  const PartitionRule full = rule_of(Arch::gfx942, 304, 304);
  CHECK(full.partitions(0) == 1);
  CHECK(full.partitions(1) == 1);
  CHECK(full.partitions(4096) == 1);
  CHECK(full.partitions(4097) == 3);
  CHECK(full.tokens(131072) == 2048);
  CHECK(full.partitions(131072) == 64);
  CHECK(full.tokens(131073) == 4096);
  // A lone row is cut for the uncut chip, but into nothing shorter than is worth it, and not to save less than a second launch costs.
  const PartitionRule lone = rule_of(Arch::gfx942, 1, 304);
  CHECK(lone.partitions(512) == 1);
  CHECK(lone.partitions(1279) == 1);
  CHECK(lone.partitions(1280) == 3);
  CHECK(lone.max_partitions(1279) == 1);  // so there is no second launch
  CHECK(lone.partitions(1 << 17) == 256);
  CHECK(lone.partitions(1 << 30) <= 304);
  CHECK(lone.partitions(1 << 30) > 304 / 2);
  // Upstream's cuts.
  const PartitionRule upstream = rule_of(Arch::gfx942, 304, 304, 256);
  CHECK(upstream.partitions(256) == 1);
  CHECK(upstream.partitions(257) == 2);
  CHECK(upstream.partitions(131072) == 512);
}

TEST_CASE("partitions are no shorter for several query rows, up to a pass full of them", "[partition]") {
  // A partition's partial results are one for each row, so a row has less to gain from a cut.
  for (const Arch arch : archs)
    for (const int max_seqs : {1, 2, 50}) {
      DecodeShape shape = shape_of(4, 1, max_seqs, 100000);
      PartitionRule before = hpa::kernel::partition_rule(shape, {arch, 304});
      for (int rows = 2; rows <= 16; ++rows) {
        shape.max_query_len = rows;
        const PartitionRule rule = hpa::kernel::partition_rule(shape, {arch, 304});
        INFO(hpa::name(arch) << ", rows " << rows);
        int shorter = 0;
        for (std::int64_t length = 1; length < 200000; length += 1 + length / 9)
          shorter += rule.tokens(length) < before.tokens(length);
        CHECK(shorter == 0);
        if (rows > 4) CHECK(rule.min_partition == before.min_partition);  // 4 heads times 4 rows are a pass
        before = rule;
      }
    }
}

TEST_CASE("no batch within the caps needs more than the workspace holds", "[partition]") {
  std::mt19937 random(11);
  const auto up_to = [&](std::int64_t most) { return std::int64_t(random() % std::uint64_t(most + 1)); };
  int overflows = 0, batches = 0;
  for (int i = 0; i < 4000; ++i) {
    DecodeShape shape =
        shape_of(8, 1 << random() % 4, 1 + int(up_to(random() % 2 ? 20 : 400)), 1 + int(up_to(random() % 2 ? 6000 : 300000)));
    const std::int64_t all = std::int64_t{shape.max_seqs} * shape.max_seq_len;
    if (random() % 2) shape.max_query_len = 1 + int(up_to(15));
    if (random() % 2) shape.max_total_kv_tokens = 1 + up_to(random() % 2 ? all : all / shape.max_seqs);
    const Device device{archs[random() % std::size(archs)], 1 + int(up_to(400))};
    const int fixed = random() % 4 ? 0 : 16 * int(1 + up_to(20));
    const PartitionRule rule = hpa::kernel::partition_rule(shape, device, fixed);
    const WorkspaceLayout layout = hpa::kernel::layout_of(shape, rule);
    // Lengths at random; one more than fits uncut partitions, which wastes most; the shortest that are cut; one long row.
    const std::int64_t uncut = rule.fixed > 0          ? rule.fixed
                               : rule.fills_the_chip() ? rule.whole_sequence_tokens
                                                       : rule.min_partition;
    std::int64_t long_row = shape.max_seq_len;
    const std::vector<Need> needs = {
        need_of(shape, rule, [&] { return up_to(shape.max_seq_len); }),
        need_of(shape, rule, [&] { return 1 + rule.min_tokens() * up_to(shape.max_seq_len / rule.min_tokens()); }),
        need_of(shape, rule, [&] { return uncut + 1; }),
        need_of(shape, rule, [&] { return random() % 2 ? uncut + 1 : 0; }),
        need_of(shape, rule, [&] { return std::exchange(long_row, 1); }),
        need_of(shape, rule, [&] { return shape.max_seq_len; }),
        need_of(shape, rule, [&] { return 0; }),
    };
    for (const Need& need : needs) {
      overflows += !need.fits(layout);
      ++batches;
    }
  }
  INFO("of " << batches);
  CHECK(overflows == 0);
}

TEST_CASE("the parts of a workspace follow one another and hold what the layout counts", "[partition]") {
  for (const int max_seq_len : {1, 100, 4096, 4097, 131072})
    for (const int max_seqs : {1, 3, 64, 1000})
      for (const auto& [fixed, query_rows] : {std::pair{0, 1}, {0, 5}, {256, 1}, {256, 16}}) {
        DecodeShape shape = shape_of(64, 8, max_seqs, max_seq_len);
        shape.max_query_len = query_rows;
        const PartitionRule rule = hpa::kernel::partition_rule(shape, {Arch::gfx942, 304}, fixed);
        const WorkspaceLayout layout = hpa::kernel::layout_of(shape, rule);
        const auto partials = std::size_t(layout.max_partials);
        INFO("max_seq_len " << max_seq_len << ", max_seqs " << max_seqs << ", fixed " << fixed << ", query rows " << query_rows);
        CHECK(layout.items >= sizeof(hpa::kernel::PlanHeader));
        CHECK(layout.split_rows - layout.items >= std::size_t(layout.max_items) * sizeof(hpa::kernel::Item));
        CHECK(layout.states - layout.split_rows >= std::size_t(layout.max_split_rows) * sizeof(hpa::kernel::SplitRow));
        CHECK(layout.partials - layout.states >= partials * 64 * sizeof(hpa::kernel::RowState));
        CHECK(layout.bytes - layout.partials >= partials * 64 * 128 * sizeof(float));
        for (const std::size_t offset : {layout.items, layout.split_rows, layout.states, layout.partials}) CHECK(offset % 16 == 0);
        // Within a few hundred bytes: nothing is reserved that no plan can use.
        const std::size_t used = sizeof(hpa::kernel::PlanHeader) + std::size_t(layout.max_items) * sizeof(hpa::kernel::Item) +
                                 std::size_t(layout.max_split_rows) * sizeof(hpa::kernel::SplitRow) +
                                 partials * 64 * (sizeof(hpa::kernel::RowState) + 128 * sizeof(float));
        CHECK(layout.bytes < used + 5 * 256);
        if (rule.max_partitions(max_seq_len) == 1) CHECK(layout.max_partials == 0);
      }
}

TEST_CASE("a workspace is sized by splits that can be, not by every partition of every sequence", "[partition]") {
  // The menu of this build checks its own device, so the layout is asked for directly.
  const auto bytes = [](const DecodeShape& shape, const Device& device) {
    return hpa::kernel::layout_of(shape, hpa::kernel::partition_rule(shape, device)).bytes;
  };
  for (const Arch arch : archs)
    for (const int units : {8, 104, 132, 304})
      for (const int kv_heads : {1, 8, 64}) {
        INFO(hpa::name(arch) << ", " << units << " units, " << kv_heads << " KV heads");
        DecodeShape shape = shape_of(64, kv_heads, 128, 131072);
        const std::size_t all = bytes(shape, {arch, units});
        CHECK(all < std::size_t{512} << 20);
        // A cache of a million tokens holds fewer splits than 128 sequences of 131072 would.
        shape.max_total_kv_tokens = 1 << 20;
        CHECK(bytes(shape, {arch, units}) <= all);
        if (kv_heads == 8 && units <= 304) CHECK(bytes(shape, {arch, units}) < all / 2);
      }
}

TEST_CASE("a workspace is enough for all shapes of smaller caps, and larger caps never give fewer bytes", "[partition]") {
  std::mt19937 random(12);
  const auto up_to = [&](std::int64_t most) { return std::int64_t(random() % std::uint64_t(most + 1)); };
  int too_small = 0, fell = 0, more_than_own = 0;
  for (int i = 0; i < 1500; ++i) {
    DecodeShape shape =
        shape_of(8, 1 << random() % 4, 1 + int(up_to(random() % 2 ? 20 : 400)), 1 + int(up_to(random() % 2 ? 6000 : 300000)));
    shape.split = random() % 2 ? hpa::Split::balanced : hpa::Split::by_length;
    shape.max_query_len = 1 + int(up_to(random() % 2 ? 15 : 0));
    const std::int64_t all = std::int64_t{shape.max_seqs} * shape.max_seq_len;
    if (random() % 2) shape.max_total_kv_tokens = 1 + up_to(random() % 2 ? all : all / shape.max_seqs);
    const Device device{archs[random() % std::size(archs)], 1 + int(up_to(400))};
    const int fixed = shape.split == hpa::Split::balanced || random() % 4 ? 0 : 16 * int(1 + up_to(20));
    const auto own = [&](const DecodeShape& of) {
      return hpa::kernel::layout_of(of, hpa::kernel::partition_rule(of, device, fixed)).bytes;
    };
    const std::size_t bytes = hpa::kernel::largest_bytes(shape, device, fixed);
    more_than_own += bytes > own(shape);
    for (int j = 0; j < 20; ++j) {
      DecodeShape fewer = shape;
      if (random() % 2) fewer.max_seqs = 1 + int(up_to(shape.max_seqs - 1));
      if (random() % 2) fewer.max_seq_len = 1 + int(up_to(shape.max_seq_len - 1));
      if (random() % 2) fewer.max_query_len = 1 + int(up_to(shape.max_query_len - 1));
      if (random() % 2) fewer.max_total_kv_tokens = 1 + up_to(shape.total_kv_tokens() - 1);
      too_small += own(fewer) > bytes;
      fell += hpa::kernel::largest_bytes(fewer, device, fixed) > bytes;
    }
  }
  CHECK(too_small == 0);
  CHECK(fell == 0);
  CHECK(more_than_own > 100);  // the cases are such that a shape's own size would not do
}

TEST_CASE("workspace_bytes is a function of the shape and grows with its lengths and heads", "[partition]") {
  const Device host{Arch::host, 8};
  for (const int kv_heads : {1, 4})
    for (const int max_seqs : {1, 2, 7, 64}) {
      std::size_t before = 0;
      for (int max_seq_len = 1; max_seq_len < 1 << 20; max_seq_len += 1 + max_seq_len / 7) {
        const DecodeShape shape = shape_of(8, kv_heads, max_seqs, max_seq_len);
        const std::size_t bytes = hpa::workspace_bytes(shape, host);
        CHECK(bytes >= before);
        CHECK(bytes == hpa::workspace_bytes(shape, host));
        DecodeShape more = shape;
        more.num_heads *= 2;
        CHECK(hpa::workspace_bytes(more, host) >= bytes);
        DecodeShape fewer = shape;
        fewer.max_total_kv_tokens = max_seq_len;
        CHECK(hpa::workspace_bytes(fewer, host) <= bytes);
        DecodeShape features = shape;  // partial results are fp32 and full rows, whatever they are made of
        features.alibi = features.sliding_window = features.soft_cap = features.sinks = features.lse = true;
        features.out = DType::e4m3_fnuz;
        CHECK(hpa::workspace_bytes(features, host) == bytes);
        before = bytes;
      }
    }
}
