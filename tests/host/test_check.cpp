// check(): every rule is reached, "yes" means that a kernel exists, and every impossible argument is refused by name. Pointers here
// lead nowhere: whatever touches memory before the arguments have been found good is killed.
#include "hpa/check.hpp"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"
#include "hpa/cache.hpp"
#include "hpa/decode.hpp"

using hpa::AppendArgs;
using hpa::Arch;
using hpa::CopyBlocksArgs;
using hpa::DecodeArgs;
using hpa::DecodeShape;
using hpa::Device;
using hpa::DType;
using hpa::KvLayout;
using hpa::Status;
using hpa::Verdict;
using hpa::Workspace;

namespace {

using SmallMenu = hpa::menu_for<hpa::axis<DType::bf16>, hpa::axis<128>, hpa::axis<16>>;
using OneKernel = hpa::menu_for<hpa::axis<DType::f16>, hpa::axis<128>, hpa::axis<16>, hpa::axis<hpa::Features::plain>>;

const Device host{Arch::host, 8};

DecodeShape good_shape() {
  DecodeShape shape;
  shape.num_heads = 8;
  shape.num_kv_heads = 2;
  shape.max_seqs = 4;
  shape.max_seq_len = 1000;
  return shape;
}

/// Well aligned, and nobody's.
template <class T>
T* nowhere(int offset = 0) {
  return reinterpret_cast<T*>(std::uintptr_t(0x1000 + offset));
}

DecodeArgs good_args() {
  DecodeArgs args;
  args.query = nowhere<void>();
  args.key_cache = nowhere<void>();
  args.value_cache = nowhere<void>();
  args.out = nowhere<void>();
  args.block_tables = nowhere<std::int32_t>();
  args.seq_lens = nowhere<std::int32_t>();
  args.num_seqs = 3;
  args.block_table_width = 63;
  return args;
}

AppendArgs good_append() {
  AppendArgs args;
  args.key = nowhere<void>();
  args.value = nowhere<void>();
  args.key_cache = nowhere<void>();
  args.value_cache = nowhere<void>();
  args.slot_mapping = nowhere<std::int64_t>();
  args.num_tokens = 5;
  return args;
}

CopyBlocksArgs good_copy() {
  CopyBlocksArgs args;
  args.key_cache = nowhere<void>();
  args.value_cache = nowhere<void>();
  args.block_pairs = nowhere<std::int64_t>();
  args.num_pairs = 5;
  return args;
}

/// The number of the first rule that refuses; -1 when none does.
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
    {"out", unsupported, [](DecodeShape& s, Device&) { s.out = DType::bf16; }},
    {"layout", unsupported, [](DecodeShape& s, Device&) { s.layout = KvLayout::hnd; }},
    {"layout", unsupported, [](DecodeShape& s, Device&) { s.layout = KvLayout::nhd; }},
    {"head_size", unsupported, [](DecodeShape& s, Device&) { s.head_size = 96; }},
    {"head_size_v", unsupported, [](DecodeShape& s, Device&) { s.head_size_v = 64; }},
    {"block_size", unsupported, [](DecodeShape& s, Device&) { s.block_size = 8; }},
    {"max_query_len", unsupported, [](DecodeShape& s, Device&) { s.max_query_len = 2; }},
    {"sliding_window", unsupported, [](DecodeShape& s, Device&) { s.sliding_window = true; }},
    {"soft_cap", unsupported, [](DecodeShape& s, Device&) { s.soft_cap = true; }},
    {"sinks", unsupported, [](DecodeShape& s, Device&) { s.sinks = true; }},
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

const std::set<std::string> shape_fields = {
    "query",     "kv",           "out",      "layout",        "split",       "head_size",           "head_size_v", "block_size",
    "num_heads", "num_kv_heads", "max_seqs", "max_query_len", "max_seq_len", "max_total_kv_tokens", "alibi",       "sliding_window",
    "soft_cap",  "sinks",        "lse",      "device"};

/// Whether the menu has a kernel for the shape: dispatch finds one, made for the shape's own types and sizes, and the shape wants
/// nothing that no kernel does.
template <class Menu>
bool kernel_exists(const DecodeShape& shape) {
  bool fits = false;
  const bool found = Menu::dispatch(shape, [&](auto config) {
    using C = decltype(config);
    fits = C::query == shape.query && C::kv == shape.kv && C::out == shape.out && C::head_size == shape.head_size &&
           C::head_size == shape.head_size_of_v() && C::block_size == shape.block_size && C::alibi == shape.alibi;
  });
  const bool asks_for_more = shape.layout != KvLayout::vllm || shape.sliding_window ||
                             shape.soft_cap || shape.sinks || shape.max_query_len != 1;
  return found && fits && !asks_for_more;
}

/// Calls f(shape) for every combination of types, sizes, layouts, features and GQA ratios.
template <class F>
void each_shape(F&& f) {
  DecodeShape shape = good_shape();
  for (const DType query : {DType::f16, DType::bf16, DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8})
    for (const DType kv : {DType::f16, DType::bf16, DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8})
      for (const DType out : {DType::f16, DType::bf16, DType::e4m3_ocp})
        for (const int head_size : {16, 32, 64, 80, 96, 128, 192, 256})
          for (const int block_size : {1, 8, 16, 32, 64, 128})
            for (const KvLayout layout : {KvLayout::vllm, KvLayout::hnd, KvLayout::nhd})
              for (int features = 0; features < 64; ++features)
                for (const int ratio : {1, 8, 17}) {
                  shape.query = query, shape.kv = kv, shape.out = out;
                  shape.head_size = head_size, shape.block_size = block_size, shape.layout = layout;
                  shape.head_size_v = features & 32 ? 64 : 0;
                  shape.alibi = features & 1, shape.sliding_window = features & 2, shape.soft_cap = features & 4;
                  shape.sinks = features & 8, shape.lse = features & 16;
                  shape.num_kv_heads = 2, shape.num_heads = 2 * ratio;
                  f(shape);
                }
}

/// Shapes on which check() and the kernels disagree, and how many were accepted.
template <class Menu>
void check_agreement(int expected_yes) {
  int disagreements = 0, yes = 0;
  each_shape([&](const DecodeShape& shape) {
    const bool accepted = bool(hpa::check<Menu>(shape, host));
    yes += accepted;
    disagreements += accepted != kernel_exists<Menu>(shape);
  });
  CHECK(disagreements == 0);
  CHECK(yes == expected_yes);
}

template <class Args>
struct BadArgs {
  const char* field;
  std::function<void(DecodeShape&, Args&)> spoil;
};

template <class Args>
void check_refused(const Args& good, const std::vector<BadArgs<Args>>& table) {
  int number = 0;
  for (const BadArgs<Args>& bad : table) {
    INFO("case " << number++ << ", " << bad.field);
    DecodeShape shape = good_shape();
    Args args = good;
    bad.spoil(shape, args);
    REQUIRE(hpa::check(shape, host));  // the shape alone is fine
    const Verdict verdict = hpa::check(shape, args, host);
    CHECK(verdict.status == invalid);
    CHECK(std::string(verdict.field) == bad.field);
    CHECK(std::string(verdict.why) != "");
  }
}

/// A pair of strides and what they step over, as the good shape has it.
template <class Args>
struct Strides {
  std::int64_t Args::*outer;
  std::int64_t Args::*inner;
  const char* outer_field;
  const char* inner_field;
  std::int64_t piece;  // elements that lie together
  int count;           // of inner steps in an outer one
  int multiple;        // elements of one vector load or store
  bool is_cache;       // whose outer stride, like every inner one, must be below 4 GiB
};

template <class Args>
void check_strides(const Args& good, const std::vector<Strides<Args>>& table) {
  const DecodeShape shape = good_shape();
  const auto verdict_of = [&](const Strides<Args>& s, std::int64_t outer, std::int64_t inner) {
    Args args = good;
    args.*s.outer = outer;
    args.*s.inner = inner;
    return hpa::check(shape, args, host);
  };
  for (const Strides<Args>& s : table) {
    INFO(s.outer_field << ", " << s.inner_field);
    const std::int64_t dense = s.piece * s.count, wide = s.piece + s.multiple;
    struct Case {
      std::int64_t outer, inner;
      const char* field;  // nullptr = good
    };
    const Case cases[] = {
        {0, 0, nullptr},
        {dense, s.piece, nullptr},
        {dense, 0, nullptr},
        {0, s.piece, nullptr},
        {0, wide, nullptr},
        {wide * s.count, wide, nullptr},
        {dense + s.multiple, 0, nullptr},
        {wide * (s.count - 1) + s.piece, wide, nullptr},  // the last piece needs no gap after it
        {s.piece, 100 * s.piece, nullptr},                // heads outside, rows inside
        {0, s.piece - s.multiple, s.inner_field},
        {0, -s.piece, s.inner_field},
        {0, std::numeric_limits<std::int64_t>::min(), s.inner_field},
        {s.piece - s.multiple, 0, s.outer_field},
        {dense - s.multiple, 0, s.outer_field},
        {dense, wide, s.outer_field},
        {-dense, 0, s.outer_field},
        {std::numeric_limits<std::int64_t>::min(), 0, s.outer_field},
        {s.piece, s.piece, s.inner_field},  // every row on top of the one before
        {0, s.piece + 1, s.inner_field},
        {0, s.piece + s.multiple / 2, s.inner_field},
        {dense + 1, 0, s.outer_field},
        {dense + s.multiple / 2, 0, s.outer_field},
    };
    for (const Case& c : cases) {
      INFO("outer " << c.outer << ", inner " << c.inner);
      const Verdict verdict = verdict_of(s, c.outer, c.inner);
      CHECK(verdict.status == (c.field == nullptr ? Status::ok : invalid));
      CHECK(std::string(verdict.field) == (c.field == nullptr ? "" : c.field));
    }
    // Kernels hold inner strides and those of blocks in 32 bits; no memory has strides near 2^63, and products with them are
    // not numbers.
    const std::int64_t gib_4 = (std::int64_t{1} << 32) / 2, huge = std::int64_t{1} << 62;
    CHECK(verdict_of(s, gib_4 - s.multiple, 0).status == Status::ok);
    CHECK(verdict_of(s, s.piece, gib_4 - s.multiple).status == Status::ok);
    CHECK(bool(verdict_of(s, gib_4, 0)) == !s.is_cache);
    CHECK(bool(verdict_of(s, 0, gib_4 / s.count)) == !s.is_cache);  // the dense outer stride is 4 GiB
    for (const std::int64_t large : {gib_4, huge, huge / 4 * 7, std::numeric_limits<std::int64_t>::max() / 8 * 8}) {
      INFO("stride " << large);
      CHECK(std::string(verdict_of(s, 0, large).field) == s.inner_field);
      CHECK(std::string(verdict_of(s, s.piece, large).field) == s.inner_field);
      if (large == gib_4 && !s.is_cache) continue;
      CHECK(std::string(verdict_of(s, large, 0).field) == s.outer_field);
    }
  }
}

}  // namespace

TEST_CASE("every rule is reached by a shape that breaks it and none before", "[check]") {
  REQUIRE(hpa::check(good_shape(), host));
  using Table = hpa::detail::RuleTable<hpa::default_menu>;
  std::set<int> reached;
  int number = 0;
  for (const BadShape& bad : bad_shapes) {
    INFO("shape " << number++ << ", " << bad.field);
    DecodeShape shape = good_shape();
    Device device = host;
    bad.spoil(shape, device);
    const Verdict verdict = hpa::check(shape, device);
    CHECK(verdict.status == bad.status);
    CHECK(std::string(verdict.field) == bad.field);
    const int rule = first_refusal<hpa::default_menu>(shape, device);
    REQUIRE(rule >= 0);
    if (Table::rules[rule].why != nullptr) CHECK(std::string(Table::rules[rule].why) == verdict.why);
    CHECK(std::string(verdict.why) != "");
    CHECK(hpa::workspace_bytes(shape, device) == 0);
    reached.insert(rule);
  }
  int index = 0;
  for (const hpa::detail::Rule& rule : Table::rules) {
    INFO("rule " << index << ": " << rule.field);
    CHECK(shape_fields.count(rule.field) == 1);
    if (rule.why != nullptr) CHECK(std::string(rule.why) != "");
    CHECK(rule.status != Status::ok);
    // A menu with ALiBi on and off cannot refuse it; the small menu below does.
    const bool always_holds = std::string(rule.field) == "alibi" && hpa::default_menu::alibi::size == 2;
    CHECK((reached.count(index) == 1) == !always_holds);
    ++index;
  }
}

TEST_CASE("a smaller menu refuses what it leaves out, and says what it has", "[check]") {
  DecodeShape shape = good_shape();
  CHECK(hpa::check<OneKernel>(shape, host));
  CHECK(std::string(hpa::check<SmallMenu>(shape, host).field) == "query");
  CHECK(std::string(hpa::check<SmallMenu>(shape, host).why) == "not compiled in; this menu has bf16");
  shape.alibi = true;
  CHECK(std::string(hpa::check<OneKernel>(shape, host).field) == "alibi");
  CHECK(std::string(hpa::check<OneKernel>(shape, host).why) == "not compiled in; this menu has off");
  shape.head_size = 96;
  CHECK(std::string(hpa::check(shape, host).why) == "not compiled in; this menu has 64, 128");
}

TEST_CASE("check says yes exactly where a kernel exists", "[check]") {
  const int features = 2 * 2, ratios = 3;  // ALiBi, lse; everything else must be off
  const int head_sizes = 2 + 1;            // 64 with head_size_v 64 is named twice
  check_agreement<hpa::default_menu>(2 * head_sizes * 2 * features * ratios);
  check_agreement<SmallMenu>(features * ratios);
  check_agreement<OneKernel>(ratios * 2);
  CHECK(hpa::default_menu::decode_kernels == 16);
  CHECK(SmallMenu::decode_kernels == 2);
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
    CHECK(hpa::check(shape, host).status == Status::ok);
    CHECK(hpa::workspace_bytes(shape, host) > 0);
  }
}

TEST_CASE("the size of a workspace is known to every menu and configuration", "[check]") {
  // What a custom menu accepts need not be in the default one.
  using Wide = hpa::menu_for<hpa::axis<DType::f16>, hpa::axis<256>, hpa::axis<16>>;
  using WideConfig = hpa::Config<256, 16, DType::f16>;
  DecodeShape shape = good_shape();
  shape.head_size = 256;
  REQUIRE(hpa::check<Wide>(shape, host));
  CHECK(hpa::workspace_bytes<Wide>(shape, host) > 0);
  CHECK(hpa::workspace_bytes_with<WideConfig>(shape, host) > 0);
  CHECK(hpa::workspace_bytes(shape, host) == 0);
}

TEST_CASE("short fixed partitions of a huge shape are refused, not wrapped around", "[check]") {
  using Short = hpa::Config<128, 16, DType::f16, DType::f16, 16>;
  DecodeShape shape = good_shape();
  shape.num_heads = 65535, shape.num_kv_heads = 1;
  shape.max_seqs = 1 << 20, shape.max_seq_len = 1 << 30, shape.max_total_kv_tokens = std::int64_t{1} << 38;  // 2^34 partitions
  REQUIRE(hpa::check(shape, host));
  CHECK(hpa::workspace_bytes_with<Short>(shape, host) == 0);
  const Verdict verdict = hpa::plan_with<Short>(shape, good_args(), Workspace{nowhere<void>(), std::size_t(1) << 60}, {});
  CHECK(verdict.status == unsupported);
  CHECK(std::string(verdict.field) == "max_total_kv_tokens");
}

TEST_CASE("decode refuses impossible arguments by name", "[check]") {
  REQUIRE(hpa::check(good_shape(), good_args(), host));
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  using Shape = DecodeShape;
  using Args = DecodeArgs;
  check_refused<DecodeArgs>(
      good_args(),
      {
          {"num_seqs", [](Shape&, Args& a) { a.num_seqs = 0; }},
          {"num_seqs", [](Shape&, Args& a) { a.num_seqs = -1; }},
          {"num_seqs", [](Shape& s, Args& a) { a.num_seqs = s.max_seqs + 1; }},
          {"block_table_width", [](Shape&, Args& a) { a.block_table_width = 0; }},
          {"block_table_width", [](Shape&, Args& a) { a.block_table_width = -63; }},
          {"query", [](Shape&, Args& a) { a.query = nullptr; }},
          {"key_cache", [](Shape&, Args& a) { a.key_cache = nullptr; }},
          {"value_cache", [](Shape&, Args& a) { a.value_cache = nullptr; }},
          {"out", [](Shape&, Args& a) { a.out = nullptr; }},
          {"block_tables", [](Shape&, Args& a) { a.block_tables = nullptr; }},
          {"seq_lens", [](Shape&, Args& a) { a.seq_lens = nullptr; }},
          {"query", [](Shape&, Args& a) { a.query = nowhere<void>(8); }},
          {"key_cache", [](Shape&, Args& a) { a.key_cache = nowhere<void>(8); }},
          {"value_cache", [](Shape&, Args& a) { a.value_cache = nowhere<void>(2); }},
          {"out", [](Shape&, Args& a) { a.out = nowhere<void>(4); }},
          {"block_tables", [](Shape&, Args& a) { a.block_tables = nowhere<std::int32_t>(2); }},
          {"seq_lens", [](Shape&, Args& a) { a.seq_lens = nowhere<std::int32_t>(1); }},
          {"query_start_loc", [](Shape&, Args& a) { a.query_start_loc = nowhere<std::int32_t>(2); }},
          {"lse", [](Shape& s, Args& a) { s.lse = true, a.lse = nowhere<float>(2); }},
          {"alibi_slopes", [](Shape& s, Args& a) { s.alibi = true, a.alibi_slopes = nowhere<float>(1); }},
          {"lse", [](Shape& s, Args&) { s.lse = true; }},
          {"lse", [](Shape&, Args& a) { a.lse = nowhere<float>(); }},
          {"alibi_slopes", [](Shape& s, Args&) { s.alibi = true; }},
          {"alibi_slopes", [](Shape&, Args& a) { a.alibi_slopes = nowhere<float>(); }},
          {"sinks", [](Shape&, Args& a) { a.sinks = nowhere<float>(); }},
          {"soft_cap", [](Shape&, Args& a) { a.soft_cap = 30.f; }},
          {"soft_cap", [=](Shape&, Args& a) { a.soft_cap = nan; }},
          {"window", [](Shape&, Args& a) { a.window = 128; }},
          {"window", [](Shape&, Args& a) { a.window = -1; }},
          {"k_scale", [](Shape&, Args& a) { a.k_scale = nowhere<float>(); }},
          {"v_scale", [](Shape&, Args& a) { a.v_scale = nowhere<float>(); }},
          {"out_scale", [](Shape&, Args& a) { a.out_scale = nowhere<float>(); }},
          {"key_token_stride", [](Shape&, Args& a) { a.key_token_stride = 128; }},
          {"value_token_stride", [](Shape&, Args& a) { a.value_token_stride = 128; }},
          {"scale", [=](Shape&, Args& a) { a.scale = nan; }},
          {"scale", [=](Shape&, Args& a) { a.scale = infinity; }},
          {"scale", [=](Shape&, Args& a) { a.scale = -infinity; }},
          {"block_table_row_stride", [](Shape&, Args& a) { a.block_table_row_stride = 62; }},
          {"block_table_row_stride", [](Shape&, Args& a) { a.block_table_row_stride = -63; }},
          {"block_table_row_stride", [](Shape&, Args& a) { a.block_table_row_stride = std::numeric_limits<std::int64_t>::max(); }},
      });
  check_strides<DecodeArgs>(
      good_args(),
      {
          {&Args::query_row_stride, &Args::query_head_stride, "query_row_stride", "query_head_stride", 128, 8, 8, false},
          {&Args::out_row_stride, &Args::out_head_stride, "out_row_stride", "out_head_stride", 128, 8, 4, false},
          {&Args::key_block_stride, &Args::key_head_stride, "key_block_stride", "key_head_stride", 128 * 16, 2, 8, true},
          {&Args::value_block_stride, &Args::value_head_stride, "value_block_stride", "value_head_stride", 128 * 16, 2, 8, true},
      });
}

TEST_CASE("decode accepts what is merely unusual", "[check]") {
  DecodeShape shape = good_shape();
  DecodeArgs args = good_args();
  args.scale = -0.5f;
  args.num_seqs = shape.max_seqs;
  args.block_table_width = 1;  // narrower than max_seq_len: longer sequences are found on the device
  args.block_table_row_stride = 1;
  args.out = nowhere<void>(8);
  args.query_start_loc = nowhere<std::int32_t>(4);
  CHECK(hpa::check(shape, args, host).status == Status::ok);
  shape.lse = shape.alibi = true;
  args.lse = nowhere<float>(4);
  args.alibi_slopes = nowhere<float>(4);
  CHECK(hpa::check(shape, args, host).status == Status::ok);
  // One head: both strides may be the same.
  shape.num_heads = shape.num_kv_heads = 1;
  args.query_row_stride = args.query_head_stride = 128;
  CHECK(hpa::check(shape, args, host).status == Status::ok);
}

TEST_CASE("append refuses impossible arguments by name", "[check]") {
  REQUIRE(hpa::check(good_shape(), good_append(), host));
  using Shape = DecodeShape;
  using Args = AppendArgs;
  check_refused<AppendArgs>(good_append(), {
                                               {"num_tokens", [](Shape&, Args& a) { a.num_tokens = 0; }},
                                               {"num_tokens", [](Shape&, Args& a) { a.num_tokens = -1; }},
                                               {"key", [](Shape&, Args& a) { a.key = nullptr; }},
                                               {"value", [](Shape&, Args& a) { a.value = nullptr; }},
                                               {"key_cache", [](Shape&, Args& a) { a.key_cache = nullptr; }},
                                               {"value_cache", [](Shape&, Args& a) { a.value_cache = nullptr; }},
                                               {"slot_mapping", [](Shape&, Args& a) { a.slot_mapping = nullptr; }},
                                               {"key", [](Shape&, Args& a) { a.key = nowhere<void>(8); }},
                                               {"value", [](Shape&, Args& a) { a.value = nowhere<void>(2); }},
                                               {"key_cache", [](Shape&, Args& a) { a.key_cache = nowhere<void>(4); }},
                                               {"value_cache", [](Shape&, Args& a) { a.value_cache = nowhere<void>(1); }},
                                               {"slot_mapping", [](Shape&, Args& a) { a.slot_mapping = nowhere<std::int64_t>(4); }},
                                           });
  check_strides<AppendArgs>(
      good_append(),
      {
          {&Args::key_token_stride, &Args::key_head_stride, "key_token_stride", "key_head_stride", 128, 2, 8, false},
          {&Args::value_token_stride, &Args::value_head_stride, "value_token_stride", "value_head_stride", 128, 2, 8, false},
          {&Args::cache_key_block_stride, &Args::cache_key_head_stride, "cache_key_block_stride", "cache_key_head_stride", 128 * 16,
           2, 8, true},
          {&Args::cache_value_block_stride, &Args::cache_value_head_stride, "cache_value_block_stride", "cache_value_head_stride",
           128 * 16, 2, 8, true},
      });
}

TEST_CASE("copy_blocks refuses impossible arguments by name", "[check]") {
  REQUIRE(hpa::check(good_shape(), good_copy(), host));
  using Shape = DecodeShape;
  using Args = CopyBlocksArgs;
  check_refused<CopyBlocksArgs>(good_copy(), {
                                                 {"num_pairs", [](Shape&, Args& a) { a.num_pairs = 0; }},
                                                 {"num_pairs", [](Shape&, Args& a) { a.num_pairs = -1; }},
                                                 {"key_cache", [](Shape&, Args& a) { a.key_cache = nullptr; }},
                                                 {"value_cache", [](Shape&, Args& a) { a.value_cache = nullptr; }},
                                                 {"block_pairs", [](Shape&, Args& a) { a.block_pairs = nullptr; }},
                                                 {"key_cache", [](Shape&, Args& a) { a.key_cache = nowhere<void>(8); }},
                                                 {"value_cache", [](Shape&, Args& a) { a.value_cache = nowhere<void>(8); }},
                                                 {"block_pairs", [](Shape&, Args& a) { a.block_pairs = nowhere<std::int64_t>(4); }},
                                             });
  check_strides<CopyBlocksArgs>(
      good_copy(),
      {
          {&Args::key_block_stride, &Args::key_head_stride, "key_block_stride", "key_head_stride", 128 * 16, 2, 8, true},
          {&Args::value_block_stride, &Args::value_head_stride, "value_block_stride", "value_head_stride", 128 * 16, 2, 8, true},
      });
}

TEST_CASE("a workspace that cannot hold the plan is refused before anything runs", "[check]") {
  Device device;
  REQUIRE(hpa::current_device(&device));
  const DecodeShape shape = good_shape();
  const DecodeArgs args = good_args();
  const std::size_t needed = hpa::workspace_bytes(shape, device);
  REQUIRE(needed > 0);
  struct Case {
    Workspace workspace;
    Status status;
  };
  const Case cases[] = {
      {{nullptr, needed}, invalid},
      {{nullptr, 0}, invalid},
      {{nowhere<void>(8), needed}, invalid},
      {{nowhere<void>(), needed - 1}, Status::workspace_too_small},
      {{nowhere<void>(), 0}, Status::workspace_too_small},
  };
  for (const Case& c : cases) {
    INFO("data " << c.workspace.data << ", bytes " << c.workspace.bytes);
    using Call = Verdict (*)(const DecodeShape&, const DecodeArgs&, Workspace, hpa::Stream);
    for (const Call call : {Call{hpa::plan}, Call{hpa::decode<OneKernel>}, Call{hpa::paged_attention<OneKernel>}}) {
      const Verdict verdict = call(shape, args, c.workspace, {});
      CHECK(verdict.status == c.status);
      CHECK(std::string(verdict.field) == "workspace");
    }
    if (c.workspace.bytes < needed - 1 || c.status == invalid)
      CHECK(hpa::workspace_error(c.workspace, {}).status ==
            (c.workspace.bytes == 0 && c.workspace.data != nullptr ? Status::workspace_too_small : invalid));
  }
}

TEST_CASE("calls pass on what check finds", "[check]") {
  const Workspace workspace{nowhere<void>(), std::size_t(1) << 40};
  DecodeArgs args = good_args();
  args.key_cache = nullptr;
  CHECK(std::string(hpa::plan(good_shape(), args, workspace, {}).field) == "key_cache");
  CHECK(std::string(hpa::decode<OneKernel>(good_shape(), args, workspace, {}).field) == "key_cache");
  CHECK(std::string(hpa::paged_attention<OneKernel>(good_shape(), args, workspace, {}).field) == "key_cache");
  CHECK(std::string(hpa::decode_with<hpa::Config<64, 16, DType::f16>>(good_shape(), good_args(), workspace, {}).field) ==
        "head_size");
  AppendArgs append = good_append();
  append.slot_mapping = nullptr;
  CHECK(std::string(hpa::append(good_shape(), append, {}).field) == "slot_mapping");
  CopyBlocksArgs copy = good_copy();
  copy.num_pairs = 0;
  CHECK(std::string(hpa::copy_blocks(good_shape(), copy, {}).field) == "num_pairs");
  CHECK(std::string(hpa::current_device(nullptr).field) == "device");
}

TEST_CASE("a device without kernels is told what it is and what there are kernels for", "[check]") {
  const DecodeShape shape = good_shape();
  const Verdict verdict = hpa::check(shape, Device{Arch::gfx11, 96});
  CHECK(verdict.status == Status::unsupported);
  CHECK(std::string(verdict.why) == "the device is gfx11; this build has kernels for host");
  CHECK(std::string(hpa::check(shape, Device{Arch::sm90, 132}).why) == "the device is sm_90; this build has kernels for host");
}
