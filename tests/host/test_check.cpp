// check(): every rule is reached, "yes" means that a kernel exists.
#include "hpa/check.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "check_cases.hpp"
#include "hpa/decode.hpp"
#include "hpa/plan.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

using PlainMenu = hpa::default_menu::with<hpa::query_types<DType::f16>, hpa::head_sizes<128>, hpa::block_sizes<16>,
                                          hpa::feature_sets<Features::none>>;
using PlainI8 = hpa::default_menu::with<hpa::query_types<DType::f16>, hpa::kv_types<DType::i8>, hpa::head_sizes<128>,
                                        hpa::block_sizes<16>, hpa::feature_sets<Features::none>>;
/// gpt-oss and its like.
using SinksMenu = PlainMenu::with<hpa::feature_sets<Features::none, Features::window | Features::sinks>>;
/// What the tables have no shape for.
using OddMenu = hpa::default_menu::with<hpa::query_types<DType::f16>, hpa::head_sizes<96, 128>, hpa::block_sizes<8, 16, 48>>;
using SmallMenu = hpa::default_menu::with<hpa::query_types<DType::bf16>, hpa::head_sizes<128>, hpa::block_sizes<16>>;
using BytesMenu = hpa::default_menu::with<hpa::kv_types<DType::bf16, DType::e4m3_fnuz, DType::i8>, hpa::head_sizes<128>,
                                          hpa::block_sizes<16>, hpa::feature_sets<Features::all>>;

/// The number of the first rule that refuses; -1 when none does. A rule has the same number in the table of every menu.
template <class Menu>
int first_refusal(const DecodeShape& shape, const Device& device) {
  int index = 0;
  for (const hpa::detail::Rule& rule : hpa::detail::RuleTable<Menu>::rules) {
    if (!rule.holds(shape, device)) return index;
    ++index;
  }
  return -1;
}

/// A change to the good shape or device, and the member that check() must name.
struct BadShape {
  const char* field;
  Status status;
  std::function<void(DecodeShape&, Device&)> spoil;
};

constexpr Status invalid = Status::invalid_argument, unsupported = Status::unsupported;

const std::vector<BadShape> bad_shapes = {
    {"num_heads", invalid, [](DecodeShape& s, Device&) { s.num_heads = 0; }},
    {"num_heads", invalid, [](DecodeShape& s, Device&) { s.num_heads = -8; }},
    {"num_kv_heads", invalid, [](DecodeShape& s, Device&) { s.num_kv_heads = 0; }},
    {"num_kv_heads", invalid, [](DecodeShape& s, Device&) { s.num_kv_heads = -2; }},
    {"num_kv_heads", invalid, [](DecodeShape& s, Device&) { s.num_kv_heads = 3; }},
    {"num_kv_heads", invalid, [](DecodeShape& s, Device&) { s.num_kv_heads = 16; }},
    {"head_size", invalid, [](DecodeShape& s, Device&) { s.head_size = 0; }},
    {"head_size", invalid, [](DecodeShape& s, Device&) { s.head_size = -128; }},
    {"head_size_v", invalid, [](DecodeShape& s, Device&) { s.head_size_v = -128; }},
    {"block_size", invalid, [](DecodeShape& s, Device&) { s.block_size = 0; }},
    {"block_size", invalid, [](DecodeShape& s, Device&) { s.block_size = -16; }},
    {"max_seqs", invalid, [](DecodeShape& s, Device&) { s.max_seqs = 0; }},
    {"max_seqs", invalid, [](DecodeShape& s, Device&) { s.max_seqs = -1; }},
    {"max_query_len", invalid, [](DecodeShape& s, Device&) { s.max_query_len = 0; }},
    {"max_query_len", invalid, [](DecodeShape& s, Device&) { s.max_query_len = -1; }},
    {"max_seq_len", invalid, [](DecodeShape& s, Device&) { s.max_seq_len = 0; }},
    {"max_seq_len", invalid, [](DecodeShape& s, Device&) { s.max_seq_len = std::numeric_limits<int>::min(); }},
    {"max_total_kv_tokens", invalid, [](DecodeShape& s, Device&) { s.max_total_kv_tokens = -1; }},
    {"device", invalid, [](DecodeShape&, Device& d) { d.compute_units = 0; }},
    {"device", invalid, [](DecodeShape&, Device& d) { d.compute_units = -8; }},
    {"device", unsupported, [](DecodeShape&, Device& d) { d.arch = Arch::gfx942; }},
    {"device", unsupported, [](DecodeShape&, Device& d) { d.arch = Arch::sm90; }},
    {"query", unsupported, [](DecodeShape& s, Device&) { s.query = s.kv = s.out = DType::e4m3_ocp; }},
    {"kv", unsupported, [](DecodeShape& s, Device&) { s.kv = DType::bf16; }},
    {"kv", unsupported, [](DecodeShape& s, Device&) { s.kv = DType::e4m3_fnuz; }},
    {"kv", unsupported, [](DecodeShape& s, Device&) { s.kv = DType::i8; }},
    {"out", unsupported, [](DecodeShape& s, Device&) { s.out = DType::bf16; }},
    {"out", unsupported, [](DecodeShape& s, Device&) { s.out = DType::i8; }},
    {"layout", unsupported, [](DecodeShape& s, Device&) { s.layout = KvLayout::hnd; }},
    {"layout", unsupported, [](DecodeShape& s, Device&) { s.layout = KvLayout::nhd; }},
    {"head_size", unsupported, [](DecodeShape& s, Device&) { s.head_size = 96; }},
    {"head_size_v", unsupported, [](DecodeShape& s, Device&) { s.head_size_v = 64; }},
    {"block_size", unsupported, [](DecodeShape& s, Device&) { s.block_size = 8; }},
    {"max_query_len", unsupported, [](DecodeShape& s, Device&) { s.max_query_len = 17; }},
    {"max_query_len", unsupported, [](DecodeShape& s, Device&) { s.max_query_len = std::numeric_limits<int>::max(); }},
    {"tree_mask", invalid, [](DecodeShape& s, Device&) { s.tree_mask = true, s.causal = false; }},
    {"tree_mask", unsupported, [](DecodeShape& s, Device&) { s.tree_mask = s.alibi = true; }},
    {"tree_mask", unsupported, [](DecodeShape& s, Device&) { s.tree_mask = s.sliding_window = true; }},
    {"token_scales", unsupported, [](DecodeShape& s, Device&) { s.token_scales = true; }},
    {"num_heads", unsupported, [](DecodeShape& s, Device&) { s.num_heads = 65536; }},
    {"max_seqs", unsupported, [](DecodeShape& s, Device&) { s.max_seqs = (1 << 26) + 1; }},
    {"max_seqs", unsupported, [](DecodeShape& s, Device&) { s.max_seqs = std::numeric_limits<int>::max(); }},
    {"max_seq_len", unsupported, [](DecodeShape& s, Device&) { s.max_seq_len = (1 << 30) + 1; }},
    {"max_seq_len", unsupported, [](DecodeShape& s, Device&) { s.max_seq_len = std::numeric_limits<int>::max(); }},
    {"max_total_kv_tokens", unsupported,
     [](DecodeShape& s, Device&) {
       s.max_seqs = 1 << 26;
       s.max_seq_len = 1 << 30;
     }},
};

/// What a menu of plain kernels alone refuses beside that.
const std::vector<BadShape> beyond_plain = {
    {"out", unsupported, [](DecodeShape& s, Device&) { s.out = DType::e4m3_fnuz; }},
    {"max_query_len", unsupported, [](DecodeShape& s, Device&) { s.max_query_len = 2; }},
    {"alibi", unsupported, [](DecodeShape& s, Device&) { s.alibi = true; }},
    {"sliding_window", unsupported, [](DecodeShape& s, Device&) { s.sliding_window = true; }},
    {"soft_cap", unsupported, [](DecodeShape& s, Device&) { s.soft_cap = true; }},
    {"sinks", unsupported, [](DecodeShape& s, Device&) { s.sinks = true; }},
    {"tree_mask", unsupported, [](DecodeShape& s, Device&) { s.tree_mask = true; }},
};

/// What a menu may name, and no table has a shape for.
const std::vector<BadShape> beyond_tables = {
    {"head_size", unsupported, [](DecodeShape& s, Device&) { s.head_size = 96; }},
    {"head_size", unsupported, [](DecodeShape&, Device& d) { d.lds_bytes = 16 * 1024; }},
    {"block_size", unsupported, [](DecodeShape& s, Device&) { s.block_size = 8; }},
    {"block_size", unsupported, [](DecodeShape& s, Device&) { s.block_size = 48; }},
};

const std::set<std::string> shape_fields = {"query",        "kv",
                                            "out",          "layout",
                                            "split",        "head_size",
                                            "head_size_v",  "block_size",
                                            "num_heads",    "num_kv_heads",
                                            "max_seqs",     "max_query_len",
                                            "max_seq_len",  "max_total_kv_tokens",
                                            "alibi",        "sliding_window",
                                            "soft_cap",     "sinks",
                                            "lse",          "tree_mask",
                                            "token_scales", "device"};

/// Each shape is refused by name; the numbers of the rules that do so.
template <class Menu>
std::set<int> rules_that_refuse(const DecodeShape& good, const std::vector<BadShape>& table) {
  REQUIRE(hpa::check<Menu>(good, host_device));
  std::set<int> reached;
  int number = 0;
  for (const BadShape& bad : table) {
    INFO("shape " << number++ << ", " << bad.field);
    DecodeShape shape = good;
    Device device = host_device;
    bad.spoil(shape, device);
    const Verdict verdict = hpa::check<Menu>(shape, device);
    CHECK(verdict.status == bad.status);
    CHECK(std::string(verdict.field) == bad.field);
    CHECK(std::string(verdict.why) != "");
    CHECK(hpa::workspace_bytes<Menu>(shape, device) == 0);
    const int rule = first_refusal<Menu>(shape, device);
    REQUIRE(rule >= 0);
    CHECK(std::string(hpa::detail::RuleTable<Menu>::rules[std::size_t(rule)].reason(shape, device)) == verdict.why);
    reached.insert(rule);
  }
  return reached;
}

/// What the plain kernel does not do, and what no kernel does. Written down a second time, without the library's own words for it.
bool is_beyond_plain(const DecodeShape& s) {
  return s.out != s.query || s.max_query_len != 1 || s.alibi || s.sliding_window || s.soft_cap || s.sinks || s.tree_mask ||
         s.token_scales;
}
bool is_beyond_window_and_sinks(const DecodeShape& s) {
  return s.out != s.query || s.max_query_len != 1 || s.alibi || s.soft_cap || s.tree_mask || s.token_scales;
}
bool is_beyond_all(const DecodeShape& s) {
  const bool fp8_out = s.out == DType::e4m3_fnuz || s.out == DType::e4m3_ocp || s.out == DType::e5m2_ocp;
  return s.layout != KvLayout::vllm || s.max_query_len > 16 || (s.out != s.query && !fp8_out) ||
         (s.tree_mask && (s.alibi || s.sliding_window || !s.causal)) || (s.token_scales && s.kv != DType::i8);
}

/// Whether the menu has a kernel for the shape: dispatch finds one, made for the shape's own types and sizes, that can do what the
/// shape wants and no more than it must.
template <class Menu>
bool kernel_exists(const DecodeShape& shape) {
  bool fits = false;
  const bool found = Menu::dispatch(shape, [&](auto config) {
    using C = decltype(config);
    Features smallest = Features::all;
    for (const Features set : Menu::feature_sets::values)
      if (set == Features::none ? !is_beyond_plain(shape) : set != Features::all && !is_beyond_window_and_sinks(shape)) {
        smallest = set;
        break;
      }
    fits = C::query == shape.query && C::kv == shape.kv && C::head_size == shape.head_size &&
           C::head_size == shape.head_size_of_v() && C::block_size == shape.block_size && C::features == smallest;
  });
  return found && fits && !is_beyond_all(shape);
}

constexpr int no_features = 0, features_end = 1 << 9;

/// Calls f(shape) for every combination of types, sizes, layouts, features and query rows.
template <class F>
void each_shape(F&& f) {
  DecodeShape shape = good_shape();
  const int sizes[][2] = {{64, 0}, {128, 128}, {128, 64}, {96, 0}};
  for (const DType query : {DType::f16, DType::bf16, DType::e4m3_fnuz})
    for (const DType kv : {DType::f16, DType::bf16, DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8})
      for (const DType out : {DType::f16, DType::bf16, DType::e5m2_ocp, DType::i8})
        for (const auto& [head_size, head_size_v] : sizes)
          for (const int block_size : {8, 16, 32})
            for (const KvLayout layout : {KvLayout::vllm, KvLayout::hnd})
              for (int features = no_features; features < features_end; ++features)
                for (const int rows : {1, 16, 17}) {
                  shape.query = query, shape.kv = kv, shape.out = out;
                  shape.head_size = head_size, shape.head_size_v = head_size_v;
                  shape.block_size = block_size, shape.layout = layout;
                  shape.alibi = features & 1, shape.sliding_window = features & 2, shape.soft_cap = features & 4;
                  shape.sinks = features & 8, shape.lse = features & 16, shape.causal = !(features & 32);
                  shape.tree_mask = features & 64, shape.token_scales = features & 128;
                  shape.split = features & 256 ? Split::balanced : Split::by_length;
                  shape.max_query_len = rows;
                  f(shape);
                }
}

/// Shapes on which check() and the kernels disagree, and how many were accepted.
template <class Menu>
void check_agreement(int expected_yes) {
  int disagreements = 0, yes = 0;
  each_shape([&](const DecodeShape& shape) {
    const bool accepted = bool(hpa::check<Menu>(shape, host_device));
    yes += accepted;
    disagreements += accepted != kernel_exists<Menu>(shape);
  });
  CHECK(disagreements == 0);
  CHECK(yes == expected_yes);
}

}  // namespace

TEST_CASE("every rule is reached by a shape that breaks it and none before", "[check]") {
  std::set<int> reached = rules_that_refuse<hpa::default_menu>(good_shape(), bad_shapes);
  reached.merge(rules_that_refuse<PlainMenu>(good_shape(), beyond_plain));
  DecodeShape i8 = good_shape();
  i8.kv = DType::i8;
  reached.merge(
      rules_that_refuse<PlainI8>(i8, {{"token_scales", unsupported, [](DecodeShape& s, Device&) { s.token_scales = true; }}}));
  reached.merge(rules_that_refuse<OddMenu>(good_shape(), beyond_tables));
  int index = 0;
  for (const hpa::detail::Rule& rule : hpa::detail::RuleTable<hpa::default_menu>::rules) {
    INFO("rule " << index << ": " << rule.field << (rule.why != nullptr ? rule.why : ""));
    CHECK(shape_fields.count(rule.field) == 1);
    CHECK((rule.why != nullptr ? std::string(rule.why) != "" : rule.tell != nullptr));
    CHECK(rule.status != Status::ok);
    CHECK(reached.count(index) == 1);
    ++index;
  }
}

TEST_CASE("a smaller menu refuses what it leaves out, and says what it has", "[check]") {
  DecodeShape shape = good_shape();
  CHECK(hpa::check<PlainMenu>(shape, host_device));
  CHECK(std::string(hpa::check<SmallMenu>(shape, host_device).field) == "query");
  CHECK(std::string(hpa::check<SmallMenu>(shape, host_device).why) == "not compiled in; this menu has bf16");
  shape.kv = DType::e4m3_ocp;
  CHECK(std::string(hpa::check<BytesMenu>(shape, host_device).field) == "kv");
  CHECK(std::string(hpa::check<BytesMenu>(shape, host_device).why) == "not compiled in; this menu has bf16, e4m3_fnuz, i8");
  shape.kv = DType::f16;  // of the query's type, and yet not there
  CHECK(std::string(hpa::check<BytesMenu>(shape, host_device).field) == "kv");
  shape.alibi = true;
  CHECK(std::string(hpa::check<PlainMenu>(shape, host_device).field) == "alibi");
  CHECK(std::string(hpa::check<PlainMenu>(shape, host_device).why) == "not compiled in; this menu's sets of features: none");
  shape.head_size = 96;
  CHECK(std::string(hpa::check(shape, host_device).why) == "not compiled in; this menu has 64, 128");
}

TEST_CASE("a menu that names what no table has a shape for compiles and is refused by name", "[check]") {
  DecodeShape shape = good_shape();
  const auto refusal = [&] { return std::string(hpa::check<OddMenu>(shape, host_device).why); };
  shape.head_size = 96;
  CHECK(refusal() == "no kernel shape for head size 96 on host");
  CHECK(!OddMenu::dispatch(shape, [](auto) {}));
  CHECK(hpa::paged_attention<OddMenu>(shape, good_args(), Workspace{nowhere<void>(), 1 << 20}, {}).why == refusal());
  shape.head_size = 128, shape.block_size = 8;
  CHECK(refusal() == "no kernel shape for blocks of 8 on host");
  CHECK(!OddMenu::dispatch(shape, [](auto) {}));
}

TEST_CASE("check says yes exactly where a kernel exists", "[check]") {
  // Soft cap, sinks and lse go with everything; ALiBi, windows and bidirectional rows with all but tree masks.
  const int splits = 2, features = splits * 8 * (8 + 1), rows = 2, outs = 2;
  check_agreement<hpa::default_menu>(2 * 2 * 2 * outs * features * rows);
  check_agreement<SmallMenu>(outs * features * rows);
  check_agreement<PlainMenu>(splits * 2 * 2);  // lse; one row sees all keys, in causal order or not
  check_agreement<PlainI8>(splits * 2 * 2);
  check_agreement<SinksMenu>(splits * 2 * 2 * 4);
  const int kv_types = 1 + 2;                                                      // e4m3_fnuz; i8 without and with token scales
  check_agreement<BytesMenu>((kv_types + kv_types + 1) * outs * features * rows);  // bf16 queries have bf16 KV as well
}

TEST_CASE("one row needs the plain kernel alone, in causal order or not", "[check]") {
  DecodeShape shape = good_shape();
  for (const bool causal : {true, false}) {
    shape.causal = causal;
    CHECK(hpa::needed(shape) == Features::none);
    CHECK(hpa::check<PlainMenu>(shape, host_device));
  }
  shape.max_query_len = 2;
  CHECK(hpa::needed(shape) == Features::query_rows);
}

TEST_CASE("shapes at the limits are accepted", "[check]") {
  const std::vector<std::function<void(DecodeShape&)>> changes = {
      [](DecodeShape& s) { s.num_heads = s.num_kv_heads = 65535; },
      [](DecodeShape& s) { s.num_heads = 65535, s.num_kv_heads = 1; },
      [](DecodeShape& s) { s.num_heads = s.num_kv_heads = 1; },
      [](DecodeShape& s) { s.max_seqs = 1 << 26; },
      [](DecodeShape& s) { s.max_seq_len = 1 << 30; },
      [](DecodeShape& s) { s.max_seqs = 1 << 26, s.max_seq_len = 1 << 30, s.max_total_kv_tokens = 1 << 30; },
      [](DecodeShape& s) { s.max_seqs = 1, s.max_seq_len = 1; },
      [](DecodeShape& s) { s.max_total_kv_tokens = 1; },
      [](DecodeShape& s) { s.max_total_kv_tokens = std::numeric_limits<std::int64_t>::max(); },
      [](DecodeShape& s) { s.head_size_v = 128; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    INFO("change " << i);
    DecodeShape shape = good_shape();
    changes[i](shape);
    CHECK(hpa::check(shape, host_device).status == Status::ok);
    CHECK(hpa::workspace_bytes(shape, host_device) > 0);
  }
}

TEST_CASE("the size of a workspace is known to every menu and configuration", "[check]") {
  // What a custom menu accepts need not be in the default one.
  using Wide = hpa::default_menu::with<hpa::query_types<DType::f16>, hpa::head_sizes<128>, hpa::block_sizes<64>>;
  using WideConfig = hpa::Config<128, 64, DType::f16>;
  DecodeShape shape = good_shape();
  shape.block_size = 64;
  REQUIRE(hpa::check<Wide>(shape, host_device));
  CHECK(hpa::workspace_bytes<Wide>(shape, host_device) > 0);
  CHECK(hpa::workspace_bytes_with<WideConfig>(shape, host_device) > 0);
  CHECK(hpa::workspace_bytes(shape, host_device) == 0);
}

TEST_CASE("short fixed partitions of a huge shape are refused, not wrapped around", "[check]") {
  using Short = hpa::Config<128, 16, DType::f16, DType::f16, 16>;
  DecodeShape shape = good_shape();
  shape.num_heads = 65535, shape.num_kv_heads = 1;
  shape.max_seqs = 1 << 20, shape.max_seq_len = 1 << 30, shape.max_total_kv_tokens = std::int64_t{1} << 38;  // 2^34 partitions
  REQUIRE(hpa::check(shape, host_device));
  CHECK(hpa::workspace_bytes_with<Short>(shape, host_device) == 0);
  const Verdict verdict = hpa::plan_with<Short>(shape, good_args().batch, Workspace{nowhere<void>(), std::size_t(1) << 60}, {});
  CHECK(verdict.status == unsupported);
  CHECK(std::string(verdict.field) == "max_total_kv_tokens");
}

TEST_CASE("a device without kernels is told what it is and what there are kernels for", "[check]") {
  const DecodeShape shape = good_shape();
  const Verdict verdict = hpa::check(shape, Device{Arch::gfx11, 96});
  CHECK(verdict.status == Status::unsupported);
  CHECK(std::string(verdict.why) == "the device is gfx11; this build has kernels for host");
  CHECK(std::string(hpa::check(shape, Device{Arch::sm90, 132}).why) == "the device is sm_90; this build has kernels for host");
}
