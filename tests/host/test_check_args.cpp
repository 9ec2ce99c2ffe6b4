// check() of arguments: every impossible one is refused by name, for decode, append and copy_blocks, and before anything runs.
// Pointers here lead nowhere: whatever touches memory before the arguments have been found good is killed.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "check_cases.hpp"
#include "hpa/cache.hpp"
#include "hpa/decode.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

using OneKernel = hpa::default_menu::with<hpa::query_types<DType::f16>, hpa::head_sizes<128>, hpa::block_sizes<16>,
                                          hpa::feature_sets<Features::none>>;
using BytesMenu = hpa::default_menu::with<hpa::query_types<DType::f16>, hpa::kv_types<DType::e4m3_ocp, DType::e5m2_ocp, DType::i8>,
                                          hpa::head_sizes<128>, hpa::block_sizes<16>, hpa::feature_sets<Features::all>>;
using Shape = DecodeShape;

const float not_a_number = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();

/// i8 KV with a scale for each token, FP8 output.
DecodeShape bytes_shape() {
  DecodeShape shape = good_shape();
  shape.kv = DType::i8;
  shape.out = DType::e4m3_ocp;
  shape.token_scales = true;
  return shape;
}

DecodeArgs bytes_args() {
  DecodeArgs args = good_args();
  args.cache.key_token_scales = args.cache.value_token_scales = nowhere<float>();
  return args;
}

}  // namespace

TEST_CASE("decode refuses impossible arguments by name", "[check]") {
  using Args = DecodeArgs;
  check_refused<hpa::default_menu, Args>(
      good_shape(), good_args(),
      {
          {"num_seqs", [](Shape&, Args& a) { a.batch.num_seqs = -1; }},
          {"num_seqs", [](Shape& s, Args& a) { a.batch.num_seqs = s.max_seqs + 1; }},
          {"block_table_width", [](Shape&, Args& a) { a.batch.block_table_width = 0; }},
          {"block_table_width", [](Shape&, Args& a) { a.batch.block_table_width = -63; }},
          {"scale_stride", [](Shape&, Args& a) { a.cache.scale_stride = 2; }},
          {"scale_stride", [](Shape&, Args& a) { a.cache.scale_stride = -1; }},
          {"num_blocks", [](Shape&, Args& a) { a.cache.num_blocks = -1; }},
          {"query", [](Shape&, Args& a) { a.query = nullptr; }},
          {"keys", [](Shape&, Args& a) { a.cache.keys = nullptr; }},
          {"values", [](Shape&, Args& a) { a.cache.values = nullptr; }},
          {"out", [](Shape&, Args& a) { a.out = nullptr; }},
          {"block_tables", [](Shape&, Args& a) { a.batch.block_tables = nullptr; }},
          {"seq_lens", [](Shape&, Args& a) { a.batch.seq_lens = nullptr; }},
          {"query", [](Shape&, Args& a) { a.query = nowhere<void>(8); }},
          {"keys", [](Shape&, Args& a) { a.cache.keys = nowhere<void>(8); }},
          {"values", [](Shape&, Args& a) { a.cache.values = nowhere<void>(2); }},
          {"out", [](Shape&, Args& a) { a.out = nowhere<void>(4); }},
          {"block_tables", [](Shape&, Args& a) { a.batch.block_tables = nowhere<std::int32_t>(2); }},
          {"table_starts", [](Shape&, Args& a) { a.batch.table_starts = nowhere<std::int64_t>(4); }},
          {"seq_lens", [](Shape&, Args& a) { a.batch.seq_lens = nowhere<std::int32_t>(1); }},
          {"query_start_loc", [](Shape&, Args& a) { a.batch.query_start_loc = nowhere<std::int32_t>(2); }},
          {"lse", [](Shape& s, Args& a) { s.lse = true, a.lse = nowhere<float>(2); }},
          {"alibi_slopes", [](Shape& s, Args& a) { s.alibi = true, a.alibi_slopes = nowhere<float>(1); }},
          {"lse", [](Shape& s, Args&) { s.lse = true; }},
          {"lse", [](Shape&, Args& a) { a.lse = nowhere<float>(); }},
          {"alibi_slopes", [](Shape& s, Args&) { s.alibi = true; }},
          {"alibi_slopes", [](Shape&, Args& a) { a.alibi_slopes = nowhere<float>(); }},
          {"sinks", [](Shape& s, Args&) { s.sinks = true; }},
          {"sinks", [](Shape&, Args& a) { a.sinks = nowhere<float>(); }},
          {"sinks", [](Shape& s, Args& a) { s.sinks = true, a.sinks = nowhere<float>(2); }},
          {"soft_cap", [](Shape&, Args& a) { a.soft_cap = 30.f; }},
          {"soft_cap", [](Shape&, Args& a) { a.soft_cap = not_a_number; }},
          {"soft_cap", [](Shape& s, Args&) { s.soft_cap = true; }},
          {"soft_cap", [](Shape& s, Args& a) { s.soft_cap = true, a.soft_cap = -0.f; }},
          {"soft_cap", [](Shape& s, Args& a) { s.soft_cap = true, a.soft_cap = -30.f; }},
          {"soft_cap", [](Shape& s, Args& a) { s.soft_cap = true, a.soft_cap = not_a_number; }},
          {"soft_cap", [](Shape& s, Args& a) { s.soft_cap = true, a.soft_cap = infinity; }},
          {"soft_cap", [](Shape& s, Args& a) { s.soft_cap = true, a.soft_cap = std::numeric_limits<float>::denorm_min(); }},
          {"window", [](Shape&, Args& a) { a.batch.window = 128; }},
          {"window", [](Shape&, Args& a) { a.batch.window = -1; }},
          {"window", [](Shape& s, Args&) { s.sliding_window = true; }},
          {"window", [](Shape& s, Args& a) { s.sliding_window = true, a.batch.window = -1; }},
          {"window", [](Shape& s, Args& a) { s.sliding_window = true, a.batch.window = std::numeric_limits<int>::min(); }},
          {"tree_masks", [](Shape& s, Args&) { s.tree_mask = true; }},
          {"tree_masks", [](Shape&, Args& a) { a.tree_masks = nowhere<std::uint32_t>(); }},
          {"tree_masks", [](Shape& s, Args& a) { s.tree_mask = true, a.tree_masks = nowhere<std::uint32_t>(2); }},
          {"key_token_scales", [](Shape&, Args& a) { a.cache.key_token_scales = nowhere<float>(); }},
          {"value_token_scales", [](Shape&, Args& a) { a.cache.value_token_scales = nowhere<float>(); }},
          {"k_scale", [](Shape&, Args& a) { a.cache.k_scale = nowhere<float>(); }},
          {"v_scale", [](Shape&, Args& a) { a.cache.v_scale = nowhere<float>(); }},
          {"out_scale", [](Shape&, Args& a) { a.out_scale = nowhere<float>(); }},
          {"out_scale", [](Shape& s, Args& a) { s.out = DType::e4m3_fnuz, a.out_scale = nowhere<float>(2); }},
          {"out", [](Shape& s, Args& a) { s.out = DType::e4m3_fnuz, a.out = nowhere<void>(2); }},
          {"key_token_stride", [](Shape&, Args& a) { a.cache.key_token_stride = 128; }},
          {"value_token_stride", [](Shape&, Args& a) { a.cache.value_token_stride = 128; }},
          {"scale", [](Shape&, Args& a) { a.scale = not_a_number; }},
          {"scale", [](Shape&, Args& a) { a.scale = infinity; }},
          {"scale", [](Shape&, Args& a) { a.scale = -infinity; }},
          {"block_table_row_stride", [](Shape&, Args& a) { a.batch.block_table_row_stride = 62; }},
          {"block_table_row_stride", [](Shape&, Args& a) { a.batch.block_table_row_stride = -63; }},
          {"block_table_row_stride",
           [](Shape&, Args& a) { a.batch.block_table_row_stride = std::numeric_limits<std::int64_t>::max(); }},
      });
  check_strides<hpa::default_menu, Args>(
      good_shape(), good_args(),
      {
          {&Args::query_row_stride, &Args::query_head_stride, "query_row_stride", "query_head_stride", 128, 8, 8, DType::f16,
           false},
          {&Args::out_row_stride, &Args::out_head_stride, "out_row_stride", "out_head_stride", 128, 8, 4, DType::f16, false},
          {in_cache<Args>(&KvCache::key_block_stride), in_cache<Args>(&KvCache::key_head_stride), "key_block_stride",
           "key_head_stride", 128 * 16, 2, 8, DType::f16, true},
          {in_cache<Args>(&KvCache::value_block_stride), in_cache<Args>(&KvCache::value_head_stride), "value_block_stride",
           "value_head_stride", 128 * 16, 2, 8, DType::f16, true},
      });
}

TEST_CASE("decode of 8-bit caches refuses impossible arguments by name", "[check]") {
  using Args = DecodeArgs;
  check_refused<BytesMenu, Args>(
      bytes_shape(), bytes_args(),
      {
          {"key_token_scales", [](Shape&, Args& a) { a.cache.key_token_scales = nullptr; }},
          {"value_token_scales", [](Shape&, Args& a) { a.cache.value_token_scales = nullptr; }},
          {"key_token_scales", [](Shape& s, Args&) { s.token_scales = false; }},
          {"value_token_scales", [](Shape& s, Args& a) { s.token_scales = false, a.cache.key_token_scales = nullptr; }},
          {"key_token_scales", [](Shape&, Args& a) { a.cache.key_token_scales = nowhere<float>(2); }},
          {"value_token_scales", [](Shape&, Args& a) { a.cache.value_token_scales = nowhere<float>(1); }},
          {"k_scale", [](Shape&, Args& a) { a.cache.k_scale = nowhere<float>(2); }},
          {"v_scale", [](Shape&, Args& a) { a.cache.v_scale = nowhere<float>(3); }},
          {"out_scale", [](Shape&, Args& a) { a.out_scale = nowhere<float>(1); }},
          {"out_scale", [](Shape& s, Args& a) { s.out = s.query, a.out_scale = nowhere<float>(); }},
          {"keys", [](Shape&, Args& a) { a.cache.keys = nowhere<void>(8); }},
          {"values", [](Shape&, Args& a) { a.cache.values = nowhere<void>(1); }},
          {"out", [](Shape&, Args& a) { a.out = nowhere<void>(2); }},
          {"out", [](Shape& s, Args& a) { s.out = s.query, a.out = nowhere<void>(4); }},
      });
  check_strides<BytesMenu, Args>(
      bytes_shape(), bytes_args(),
      {
          {&Args::query_row_stride, &Args::query_head_stride, "query_row_stride", "query_head_stride", 128, 8, 8, DType::f16,
           false},
          {&Args::out_row_stride, &Args::out_head_stride, "out_row_stride", "out_head_stride", 128, 8, 4, DType::e4m3_ocp, false},
          {in_cache<Args>(&KvCache::key_block_stride), in_cache<Args>(&KvCache::key_head_stride), "key_block_stride",
           "key_head_stride", 128 * 16, 2, 16, DType::i8, true},
          {in_cache<Args>(&KvCache::value_block_stride), in_cache<Args>(&KvCache::value_head_stride), "value_block_stride",
           "value_head_stride", 128 * 16, 2, 16, DType::i8, true},
      });
}

TEST_CASE("decode accepts what is merely unusual", "[check]") {
  DecodeShape shape = good_shape();
  DecodeArgs args = good_args();
  args.scale = -0.5f;
  args.batch.num_seqs = shape.max_seqs;
  args.batch.block_table_width = 1;  // narrower than max_seq_len: longer sequences are found on the device
  args.batch.block_table_row_stride = 1;
  args.out = nowhere<void>(8);
  args.batch.query_start_loc = nowhere<std::int32_t>(4);
  CHECK(hpa::check(shape, args, host_device).status == Status::ok);
  CHECK(hpa::check(shape, DecodeArgs{}, host_device));  // no sequences, and no tensors
  shape.lse = shape.alibi = true;
  args.lse = nowhere<float>(4);
  args.alibi_slopes = nowhere<float>(4);
  CHECK(hpa::check(shape, args, host_device).status == Status::ok);
  // Features with the largest, the smallest and no values.
  shape.sliding_window = shape.soft_cap = shape.sinks = true;
  args.sinks = nowhere<float>(4);
  for (const float cap : {std::numeric_limits<float>::min(), std::numeric_limits<float>::max()})
    for (const int window : {1, 1000, 1001, std::numeric_limits<int>::max()}) {
      args.soft_cap = cap, args.batch.window = window;
      CHECK(hpa::check(shape, args, host_device).status == Status::ok);
    }
  shape.out = DType::e5m2_ocp;
  args.out = nowhere<void>(4);
  CHECK(hpa::check(shape, args, host_device).status == Status::ok);
  args.out_scale = nowhere<float>(4);
  CHECK(hpa::check(shape, args, host_device).status == Status::ok);
  DecodeShape bytes = bytes_shape();
  DecodeArgs scaled = bytes_args();
  CHECK(hpa::check<BytesMenu>(bytes, scaled, host_device).status == Status::ok);  // without a scale for all
  scaled.cache.k_scale = scaled.cache.v_scale = nowhere<float>(4);
  CHECK(hpa::check<BytesMenu>(bytes, scaled, host_device).status == Status::ok);
  bytes.kv = DType::e4m3_ocp, bytes.token_scales = false;
  scaled.cache.key_token_scales = scaled.cache.value_token_scales = nullptr;
  CHECK(hpa::check<BytesMenu>(bytes, scaled, host_device).status == Status::ok);
  // One head: both strides may be the same.
  shape.num_heads = shape.num_kv_heads = 1;
  args.query_row_stride = args.query_head_stride = 128;
  CHECK(hpa::check(shape, args, host_device).status == Status::ok);
}

TEST_CASE("calls with nothing to do are ok", "[check]") {
  AppendArgs append;
  CopyBlocksArgs copy;
  CHECK(hpa::check(good_shape(), append, host_device));
  CHECK(hpa::check(good_shape(), copy, host_device));
  CHECK(hpa::append(good_shape(), append, {}));
  CHECK(hpa::copy_blocks(good_shape(), copy, {}));
}

TEST_CASE("strides of dimensions of size 1 are not looked at", "[check]") {
  DecodeShape shape = good_shape();
  shape.num_heads = 2, shape.num_kv_heads = 1;
  const std::int64_t strides[] = {
      1, 64, 3, -5, std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
  for (const std::int64_t stride : strides) {
    INFO("stride " << stride);
    DecodeArgs args = good_args();
    args.cache.key_head_stride = args.cache.value_head_stride = stride;
    CHECK(hpa::check(shape, args, host_device));
    AppendArgs append = good_append();
    append.cache = args.cache;
    append.new_key_head_stride = append.new_value_head_stride = stride;
    CHECK(hpa::check(shape, append, host_device));
    append.num_tokens = 1;
    append.new_key_token_stride = append.new_value_token_stride = stride;
    CHECK(hpa::check(shape, append, host_device));
    CopyBlocksArgs copy = good_copy();
    copy.cache = args.cache;
    CHECK(hpa::check(shape, copy, host_device));
    copy.cache.num_blocks = 1;
    copy.cache.key_block_stride = copy.cache.value_block_stride = stride;
    CHECK(hpa::check(shape, copy, host_device));
    DecodeShape one_head = shape;
    one_head.num_heads = 1;
    args.query_head_stride = args.out_head_stride = stride;
    CHECK(hpa::check(one_head, args, host_device));
    CHECK(!hpa::check(shape, args, host_device));
    args.batch.num_seqs = 1;
    args.query_row_stride = args.out_row_stride = args.batch.block_table_row_stride = stride;
    CHECK(hpa::check(one_head, args, host_device));
    args.batch.query_start_loc = nowhere<std::int32_t>();  // then there may be more rows
    const bool is_a_stride = stride % 8 == 0 && stride >= 128 && stride < std::int64_t{1} << 44;
    CHECK(bool(hpa::check(one_head, args, host_device)) == is_a_stride);
  }
}

TEST_CASE("output rows that overlap are refused", "[check]") {
  DecodeShape shape = good_shape();
  shape.num_heads = 2, shape.num_kv_heads = 1;
  const auto verdict = [&](std::int64_t row, std::int64_t head, bool starts) {
    DecodeArgs args = good_args();  // 3 rows of 2 heads of 128
    args.out_row_stride = row, args.out_head_stride = head;
    if (starts) args.batch.query_start_loc = nowhere<std::int32_t>();
    return hpa::check(shape, args, host_device);
  };
  struct Case {
    std::int64_t row, head;
    bool good;
  };
  for (const Case& c : {Case{128, 256, false}, Case{128, 252, false}, Case{128, 380, false}, Case{128, 384, true},
                        Case{256, 384, true}, Case{256, 380, false}, Case{256, 388, false}, Case{256, 512, false},
                        Case{256, 640, true}, Case{132, 264, false}, Case{128, 1 << 30, true}}) {
    INFO("row stride " << c.row << ", head stride " << c.head);
    const Verdict known = verdict(c.row, c.head, false);
    CHECK(bool(known) == c.good);
    CHECK(std::string(known.field) == (c.good ? "" : "out_head_stride"));
    CHECK(verdict(c.row, c.head, true));  // the number of rows is not known
  }
}

TEST_CASE("out may be the query with the same strides", "[check]") {
  DecodeArgs args = good_args();
  args.out = const_cast<void*>(args.query);
  CHECK(hpa::check(good_shape(), args, host_device));
  args.query_row_stride = 8 * 128, args.out_head_stride = 128;  // as if dense
  CHECK(hpa::check(good_shape(), args, host_device));
  args.out_row_stride = 8 * 128 + 8;
  CHECK(std::string(hpa::check(good_shape(), args, host_device).field) == "out");
  args.query_row_stride = 8 * 128 + 8;
  CHECK(hpa::check(good_shape(), args, host_device));
  DecodeShape bytes = good_shape();
  bytes.out = DType::e4m3_ocp;
  CHECK(std::string(hpa::check(bytes, args, host_device).field) == "out");
}

TEST_CASE("append refuses impossible arguments by name", "[check]") {
  using Args = AppendArgs;
  check_refused<hpa::default_menu, Args>(good_shape(), good_append(),
                                         {
                                             {"num_tokens", [](Shape&, Args& a) { a.num_tokens = -1; }},
                                             {"new_keys", [](Shape&, Args& a) { a.new_keys = nullptr; }},
                                             {"new_values", [](Shape&, Args& a) { a.new_values = nullptr; }},
                                             {"keys", [](Shape&, Args& a) { a.cache.keys = nullptr; }},
                                             {"values", [](Shape&, Args& a) { a.cache.values = nullptr; }},
                                             {"slot_mapping", [](Shape&, Args& a) { a.slot_mapping = nullptr; }},
                                             {"new_keys", [](Shape&, Args& a) { a.new_keys = nowhere<void>(8); }},
                                             {"new_values", [](Shape&, Args& a) { a.new_values = nowhere<void>(2); }},
                                             {"keys", [](Shape&, Args& a) { a.cache.keys = nowhere<void>(4); }},
                                             {"values", [](Shape&, Args& a) { a.cache.values = nowhere<void>(1); }},
                                             {"slot_mapping", [](Shape&, Args& a) { a.slot_mapping = nowhere<std::int64_t>(4); }},
                                         });
  check_strides<hpa::default_menu, Args>(
      good_shape(), good_append(),
      {
          {&Args::new_key_token_stride, &Args::new_key_head_stride, "new_key_token_stride", "new_key_head_stride", 128, 2, 8,
           DType::f16, false},
          {&Args::new_value_token_stride, &Args::new_value_head_stride, "new_value_token_stride", "new_value_head_stride", 128, 2,
           8, DType::f16, false},
          {in_cache<Args>(&KvCache::key_block_stride), in_cache<Args>(&KvCache::key_head_stride), "key_block_stride",
           "key_head_stride", 128 * 16, 2, 8, DType::f16, true},
          {in_cache<Args>(&KvCache::value_block_stride), in_cache<Args>(&KvCache::value_head_stride), "value_block_stride",
           "value_head_stride", 128 * 16, 2, 8, DType::f16, true},
      });
}

TEST_CASE("copy_blocks refuses impossible arguments by name", "[check]") {
  using Args = CopyBlocksArgs;
  check_refused<hpa::default_menu, Args>(good_shape(), good_copy(),
                                         {
                                             {"num_pairs", [](Shape&, Args& a) { a.num_pairs = -1; }},
                                             {"keys", [](Shape&, Args& a) { a.cache.keys = nullptr; }},
                                             {"values", [](Shape&, Args& a) { a.cache.values = nullptr; }},
                                             {"block_pairs", [](Shape&, Args& a) { a.block_pairs = nullptr; }},
                                             {"keys", [](Shape&, Args& a) { a.cache.keys = nowhere<void>(8); }},
                                             {"values", [](Shape&, Args& a) { a.cache.values = nowhere<void>(8); }},
                                             {"block_pairs", [](Shape&, Args& a) { a.block_pairs = nowhere<std::int64_t>(4); }},
                                         });
  check_strides<hpa::default_menu, Args>(
      good_shape(), good_copy(),
      {
          {in_cache<Args>(&KvCache::key_block_stride), in_cache<Args>(&KvCache::key_head_stride), "key_block_stride",
           "key_head_stride", 128 * 16, 2, 8, DType::f16, true},
          {in_cache<Args>(&KvCache::value_block_stride), in_cache<Args>(&KvCache::value_head_stride), "value_block_stride",
           "value_head_stride", 128 * 16, 2, 8, DType::f16, true},
      });
}

TEST_CASE("a workspace that cannot hold the plan is refused before anything runs", "[check]") {
  Device device;
  REQUIRE(hpa::current_device(&device));
  const DecodeShape shape = good_shape();
  const DecodeArgs args = good_args();
  const std::size_t needed = hpa::kernel::layout_of(shape, hpa::kernel::partition_rule(shape, device)).bytes;
  REQUIRE(needed <= hpa::workspace_bytes(shape, device));  // which smaller shapes share
  struct Case {
    Workspace workspace;
    Status status;
  };
  const Case cases[] = {
      {{nullptr, needed}, Status::invalid_argument},          {{nullptr, 0}, Status::invalid_argument},
      {{nowhere<void>(8), needed}, Status::invalid_argument}, {{nowhere<void>(), needed - 1}, Status::workspace_too_small},
      {{nowhere<void>(), 0}, Status::workspace_too_small},
  };
  for (const Case& c : cases) {
    INFO("data " << c.workspace.data << ", bytes " << c.workspace.bytes);
    using Call = Verdict (*)(const DecodeShape&, const DecodeArgs&, Workspace, hpa::Stream);
    const Call plan = [](const DecodeShape& s, const DecodeArgs& a, Workspace w, hpa::Stream on) {
      return hpa::plan(s, a.batch, w, on);
    };
    for (const Call call : {Call{plan}, Call{hpa::decode<OneKernel>}, Call{hpa::paged_attention<OneKernel>}}) {
      const Verdict verdict = call(shape, args, c.workspace, {});
      CHECK(verdict.status == c.status);
      CHECK(std::string(verdict.field) == "workspace");
    }
    if (c.workspace.bytes < needed - 1 || c.status == Status::invalid_argument)
      CHECK(hpa::workspace_error(c.workspace, {}).status ==
            (c.workspace.bytes == 0 && c.workspace.data != nullptr ? Status::workspace_too_small : Status::invalid_argument));
  }
}

TEST_CASE("calls pass on what check finds", "[check]") {
  const Workspace workspace{nowhere<void>(), std::size_t(1) << 40};
  DecodeArgs args = good_args();
  args.cache.keys = nullptr;
  hpa::Batch batch = good_args().batch;
  batch.seq_lens = nullptr;
  CHECK(std::string(hpa::plan(good_shape(), batch, workspace, {}).field) == "seq_lens");
  CHECK(std::string(hpa::decode<OneKernel>(good_shape(), args, workspace, {}).field) == "keys");
  CHECK(std::string(hpa::paged_attention<OneKernel>(good_shape(), args, workspace, {}).field) == "keys");
  CHECK(std::string(hpa::decode_with<hpa::Config<64, 16, DType::f16>>(good_shape(), good_args(), workspace, {}).field) ==
        "head_size");
  AppendArgs append = good_append();
  append.slot_mapping = nullptr;
  CHECK(std::string(hpa::append(good_shape(), append, {}).field) == "slot_mapping");
  CopyBlocksArgs copy = good_copy();
  copy.num_pairs = -1;
  CHECK(std::string(hpa::copy_blocks(good_shape(), copy, {}).field) == "num_pairs");
  CHECK(std::string(hpa::current_device(nullptr).field) == "device");
}
