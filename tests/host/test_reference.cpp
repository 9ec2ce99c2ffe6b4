// The oracle against what can be worked out by hand.
#include "hpa/reference.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "catch.hpp"
#include "paged_case.hpp"

namespace reference = hpa::reference;
using namespace hpa;
using namespace hpa::test;
using reference::Row;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr DType all_types[] = {DType::f16,      DType::bf16,     DType::e4m3_fnuz,
                               DType::e4m3_ocp, DType::e5m2_ocp, DType::i8};
constexpr KvLayout all_layouts[] = {KvLayout::vllm, KvLayout::hnd, KvLayout::nhd};

/// Two heads of one KV head, 16 elements, blocks of 4 tokens; zero queries, so that every visible key has the same weight.
CaseSpec small(std::vector<int> seq_lens) {
  CaseSpec spec;
  spec.shape.head_size = 16;
  spec.shape.block_size = 4;
  spec.shape.num_heads = 2;
  spec.shape.num_kv_heads = 1;
  spec.shape.lse = true;
  spec.seq_lens = std::move(seq_lens);
  spec.query_amplitude = 0.f;
  return spec;
}

Row row(const PagedCase& paged, int sequence, int query_row, int head) {
  return reference::row(paged.shape(), paged.host_args(), sequence, query_row, head);
}

/// V of token t is t + element / 8 in every head.
void count_in_values(PagedCase& paged, int sequence, int begin, int end) {
  for (int token = begin; token < end; ++token)
    for (int head = 0; head < paged.shape().num_kv_heads; ++head)
      for (int d = 0; d < paged.shape().head_size_of_v(); ++d)
        paged.set_value(sequence, token, head, d, float(token) + float(d) / 8.f);
}

void check_counted(const Row& row, double mean_token) {
  for (std::size_t d = 0; d < row.out.size(); ++d) CHECK(row.out[d] == Approx(mean_token + double(d) / 8).margin(1e-12));
}

/// Query e0 * a; key of token t is e0 * keys[t]; so the logit is scale * a * keys[t].
void set_logits(PagedCase& paged, float a, const std::vector<float>& keys) {
  for (int head = 0; head < paged.shape().num_heads; ++head) paged.set_query(0, head, 0, a);
  for (std::size_t token = 0; token < keys.size(); ++token)
    for (int d = 0; d < paged.shape().head_size; ++d) paged.set_key(0, int(token), 0, d, d == 0 ? keys[token] : 0.f);
}

hpa::Verdict run_reference(PagedCase& paged) {
  return paged.run(0, {}, [&](const DecodeShape& shape, const DecodeArgs&, hpa::Workspace, hpa::Stream) {
    reference::decode(shape, paged.host_args());
    return hpa::Verdict{};
  });
}

}  // namespace

TEST_CASE("cache indices follow each layout's order in memory", "[reference]") {
  for (const KvLayout layout : all_layouts) {
    for (const DType type : {DType::f16, DType::e4m3_ocp}) {
      DecodeShape shape;
      shape.layout = layout;
      shape.kv = type;
      shape.num_heads = shape.num_kv_heads = 3;
      shape.head_size = 32;
      shape.head_size_v = 48;
      shape.block_size = 4;
      const reference::Strides strides = reference::strides(shape, {});
      const int x = hpa::per_16_bytes(type);
      std::int64_t key = 0, value = 0;
      int wrong = 0;
      const auto key_is_next = [&](int block, int slot, int head, int d) {
        wrong += reference::key_index(shape, strides, block, slot, head, d) != key++;
      };
      const auto value_is_next = [&](int block, int slot, int head, int d) {
        wrong += reference::value_index(shape, strides, block, slot, head, d) != value++;
      };
      for (int block = 0; block < 2; ++block) {
        if (layout == KvLayout::vllm) {
          for (int head = 0; head < 3; ++head)
            for (int outer = 0; outer < 32 / x; ++outer)
              for (int slot = 0; slot < 4; ++slot)
                for (int inner = 0; inner < x; ++inner) key_is_next(block, slot, head, outer * x + inner);
          for (int head = 0; head < 3; ++head)
            for (int d = 0; d < 48; ++d)
              for (int slot = 0; slot < 4; ++slot) value_is_next(block, slot, head, d);
        } else {
          const bool hnd = layout == KvLayout::hnd;
          for (int i = 0; i < (hnd ? 3 : 4); ++i) {
            for (int j = 0; j < (hnd ? 4 : 3); ++j) {
              for (int d = 0; d < 32; ++d) key_is_next(block, hnd ? j : i, hnd ? i : j, d);
              for (int d = 0; d < 48; ++d) value_is_next(block, hnd ? j : i, hnd ? i : j, d);
            }
          }
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("strides: given ones are kept, zeros build on the next inner one", "[reference]") {
  DecodeShape shape;
  shape.head_size = 64;
  shape.block_size = 16;
  shape.num_heads = 8;
  shape.num_kv_heads = 2;
  DecodeArgs args;
  args.batch.block_table_width = 5;
  args.query_head_stride = 72;
  args.cache.key_head_stride = 2000;
  args.cache.value_block_stride = 9999;
  reference::Strides s = reference::strides(shape, args);
  CHECK(s.query_head == 72);
  CHECK(s.query_row == 8 * 72);
  CHECK(s.out_row == 8 * 64);
  CHECK(s.key_block == 2 * 2000);
  CHECK(s.value_head == 16 * 64);
  CHECK(s.value_block == 9999);
  CHECK(s.table_row == 5);
  shape.layout = KvLayout::nhd;
  args.cache.key_head_stride = 80;
  s = reference::strides(shape, args);
  CHECK(s.key_token == 2 * 80);
  CHECK(s.key_block == 16 * 2 * 80);
  CHECK(s.value_head == 64);
}

TEST_CASE("one key: the row is its V exactly, for every type and layout", "[reference]") {
  for (const DType type : all_types) {
    for (const KvLayout layout : all_layouts) {
      INFO(hpa::name(type) << " layout " << int(layout));
      CaseSpec spec = small({1});
      spec.shape.kv = spec.shape.query = spec.shape.out = type;
      spec.shape.layout = layout;
      spec.query_amplitude = 1.f;
      spec.value_amplitude = type == DType::i8 ? 40.f : 1.f;
      PagedCase paged(spec);
      REQUIRE(bool(run_reference(paged)));
      const std::int64_t block = paged.block_table(0, 0);
      int wrong = 0;
      for (int head = 0; head < 2; ++head) {
        for (int d = 0; d < 16; ++d) {
          const std::int64_t index = reference::value_index(paged.shape(), paged.strides(), block, 0, 0, d);
          const float stored = hpa::load_element(type, paged.value_cache.data(), index);
          wrong += row(paged, 0, 0, head).out[std::size_t(d)] != double(stored);
          wrong += hpa::load_element(type, paged.out.data(), head * 16 + d) != stored;
        }
      }
      CHECK(wrong == 0);
      CHECK(paged.check_against_reference(1e-12, 1e-6).problem == "");
    }
  }
}

TEST_CASE("a zero query gives the mean of the visible V and lse = log of their number", "[reference]") {
  for (const int length : {1, 3, 4, 5, 37}) {
    PagedCase paged(small({length}));
    count_in_values(paged, 0, 0, length);
    const Row result = row(paged, 0, 0, 1);
    check_counted(result, (length - 1) / 2.0);
    CHECK(result.lse == Approx(std::log(length)).margin(1e-12));
  }
}

TEST_CASE("two keys: logits are scaled, 1 / sqrt(head size) by default", "[reference]") {
  CaseSpec spec = small({2});
  for (const float scale : {0.f, 0.75f}) {
    spec.scale = scale;
    PagedCase paged(spec);
    set_logits(paged, 2.f, {3.f, 0.f});
    count_in_values(paged, 0, 0, 2);
    const double logit = (scale == 0.f ? 0.25 : 0.75) * 6;
    const Row result = row(paged, 0, 0, 0);
    check_counted(result, 1 / (1 + std::exp(logit)));
    CHECK(result.lse == Approx(std::log(std::exp(logit) + 1)));
  }
}

TEST_CASE("large logits neither overflow nor vanish", "[reference]") {
  CaseSpec spec = small({2});
  spec.scale = 1.f;
  PagedCase paged(spec);
  for (const float sign : {1.f, -1.f}) {
    set_logits(paged, 256.f, {sign * 64.f, sign * 64.0625f});
    count_in_values(paged, 0, 0, 2);
    const double difference = double(sign) * 16;
    check_counted(row(paged, 0, 0, 0), 1 / (1 + std::exp(-difference)));
    CHECK(row(paged, 0, 0, 0).lse == Approx(sign > 0 ? 16400 : -16384).epsilon(1e-9));
  }
}

TEST_CASE("a window shows the last keys, the query's own included", "[reference]") {
  for (const int window : {0, 1, 3, 4, 9, 10, 11, 1000}) {
    CaseSpec spec = small({10});
    spec.shape.sliding_window = true;
    spec.window = window;
    PagedCase paged(spec);
    const int seen = window == 0 || window > 10 ? 10 : window;
    count_in_values(paged, 0, 10 - seen, 10);
    const Row result = row(paged, 0, 0, 0);
    check_counted(result, 10 - seen + (seen - 1) / 2.0);
    CHECK(result.lse == Approx(std::log(seen)).margin(1e-12));
  }
}

TEST_CASE("ALiBi adds slope * (key position - query position)", "[reference]") {
  CaseSpec spec = small({3});
  spec.shape.alibi = true;
  PagedCase paged(spec);
  paged.alibi_slopes.as<float>()[0] = 0.5f;
  paged.alibi_slopes.as<float>()[1] = -2.f;
  count_in_values(paged, 0, 0, 3);
  for (const int head : {0, 1}) {
    const double slope = head == 0 ? 0.5 : -2;
    const double w0 = std::exp(-2 * slope), w1 = std::exp(-slope), sum = w0 + w1 + 1;
    const Row result = row(paged, 0, 0, head);
    check_counted(result, (w1 + 2) / sum);
    CHECK(result.lse == Approx(std::log(sum)));
  }
}

TEST_CASE("a row whose tree mask hides every key is an empty row, with a sink as well", "[reference]") {
  CaseSpec spec = small({1});
  spec.shape.sinks = spec.shape.tree_mask = true;
  spec.shape.max_query_len = 2;
  spec.query_lens = {2};
  spec.tree_masks = {1u, 3u};  // the only token is the second new one: the first row sees none
  PagedCase paged(spec);
  paged.sinks.as<float>()[0] = paged.sinks.as<float>()[1] = 0.f;
  count_in_values(paged, 0, 0, 1);
  CHECK(row(paged, 0, 0, 0).lse == -infinity);
  CHECK(row(paged, 0, 0, 0).out == std::vector<double>(16, 0.0));
  CHECK(row(paged, 0, 1, 0).lse == Approx(std::log(2.0)));  // of the token and the sink, both with logit 0
}

TEST_CASE("a sink weighs in the denominator and has no value", "[reference]") {
  CaseSpec spec = small({5, 0});
  spec.shape.sinks = true;
  PagedCase paged(spec);
  paged.sinks.as<float>()[0] = 1.5f;
  paged.sinks.as<float>()[1] = -std::numeric_limits<float>::infinity();
  for (int token = 0; token < 5; ++token)
    for (int d = 0; d < 16; ++d) paged.set_value(0, token, 0, d, 1.f);
  const double sum = 5 + std::exp(1.5);
  CHECK(row(paged, 0, 0, 0).out[3] == Approx(5 / sum));
  CHECK(row(paged, 0, 0, 0).lse == Approx(std::log(sum)));
  CHECK(row(paged, 0, 0, 1).out[3] == Approx(1));
  CHECK(row(paged, 0, 0, 1).lse == Approx(std::log(5.0)));
  CHECK(row(paged, 1, 0, 0).out[3] == 0);
  CHECK(row(paged, 1, 0, 0).lse == -infinity);
}

TEST_CASE("the soft cap bends scaled logits before ALiBi is added", "[reference]") {
  CaseSpec spec = small({2});
  spec.shape.soft_cap = spec.shape.alibi = true;
  spec.soft_cap = 2.f;
  spec.scale = 0.5f;
  PagedCase paged(spec);
  paged.alibi_slopes.as<float>()[0] = 0.25f;
  set_logits(paged, 4.f, {5.f, 1.f});
  count_in_values(paged, 0, 0, 2);
  const double l0 = 2 * std::tanh(10.0 / 2) - 0.25, l1 = 2 * std::tanh(2.0 / 2);
  check_counted(row(paged, 0, 0, 0), 1 / (1 + std::exp(l0 - l1)));
  CHECK(row(paged, 0, 0, 0).lse == Approx(std::log(std::exp(l0) + std::exp(l1))));
}

TEST_CASE("fields whose feature is not in the shape do nothing", "[reference]") {
  CaseSpec spec = small({6});
  spec.query_amplitude = 1.f;
  const PagedCase plain(spec);
  spec.soft_cap = 0.1f;
  spec.window = 2;
  const PagedCase given(spec);
  CHECK(row(plain, 0, 0, 0).out == row(given, 0, 0, 0).out);
}

TEST_CASE("several query rows are causal, rows before the first key are empty", "[reference]") {
  CaseSpec spec = small({6, 2});
  spec.query_lens = {3, 4};
  spec.shape.max_query_len = 4;
  PagedCase paged(spec);
  count_in_values(paged, 0, 0, 6);
  count_in_values(paged, 1, 0, 2);
  for (int j = 0; j < 3; ++j) check_counted(row(paged, 0, j, 0), (3 + j) / 2.0);
  for (int j = 0; j < 2; ++j) {
    CHECK(row(paged, 1, j, 0).lse == -infinity);
    CHECK(row(paged, 1, j, 0).out == std::vector<double>(16, 0.0));
  }
  check_counted(row(paged, 1, 2, 0), 0);
  check_counted(row(paged, 1, 3, 0), 0.5);

  spec.shape.sliding_window = true;
  spec.window = 2;
  PagedCase windowed(spec);
  count_in_values(windowed, 0, 2, 6);
  for (int j = 0; j < 3; ++j) check_counted(row(windowed, 0, j, 0), 2.5 + j);
}

TEST_CASE("prefills are skipped, sequences with no query write nothing, empty rows are zero", "[reference]") {
  CaseSpec spec = small({9, 9, 7, 12, 0, 3});
  spec.query_lens = {1, 5, 0, 2, 1, 1};
  spec.shape.max_query_len = 2;
  PagedCase paged(spec);
  REQUIRE(bool(run_reference(paged)));
  CHECK(paged.check_against_reference(1e-3, 1e-6).problem == "");
  const DecodeArgs args = paged.host_args();
  const bool computed[] = {true, false, false, true, true, true};
  for (int sequence = 0; sequence < 6; ++sequence)
    CHECK(reference::is_computed(paged.shape(), args, sequence) == computed[sequence]);
  for (const std::uint8_t byte : paged.result_of(1)) CHECK(byte == PagedCase::sentinel);
  const std::int64_t empty_row = reference::rows_of(args, 4).first;
  CHECK(empty_row == 8);
  for (int i = 0; i < 2 * 16; ++i) CHECK(hpa::load_element(DType::f16, paged.out.data(), empty_row * 2 * 16 + i) == 0.f);
  CHECK(args.lse[empty_row * 2] == -std::numeric_limits<float>::infinity());
}

TEST_CASE("query heads share KV heads in groups, V may be narrower than K", "[reference]") {
  CaseSpec spec = small({5});
  spec.shape.num_heads = 6;
  spec.shape.num_kv_heads = 2;
  spec.shape.head_size_v = 8;
  spec.query_amplitude = 1.f;
  PagedCase paged(spec);
  for (int token = 0; token < 5; ++token)
    for (int kv_head = 0; kv_head < 2; ++kv_head)
      for (int d = 0; d < 8; ++d) paged.set_value(0, token, kv_head, d, float(10 + kv_head));
  for (int head = 0; head < 6; ++head) {
    const Row result = row(paged, 0, 0, head);
    CHECK(result.out.size() == 8);
    CHECK(result.out[7] == Approx(head < 3 ? 10 : 11));
  }
}

TEST_CASE("layouts, strides, block sizes and physical order do not matter", "[reference]") {
  CaseSpec spec = small({21, 1, 8});
  spec.shape.num_kv_heads = 2;
  spec.shape.num_heads = 4;
  spec.query_amplitude = 1.f;
  spec.query_lens = {2, 1, 1};
  spec.shape.max_query_len = 2;
  spec.shape.alibi = true;
  const PagedCase plain(spec);
  for (const KvLayout layout : all_layouts) {
    for (const int block_size : {1, 4, 16, 32}) {
      for (const bool padded : {false, true}) {
        CaseSpec other = spec;
        other.shape.layout = layout;
        other.shape.block_size = block_size;
        other.block_seed = unsigned(block_size);
        other.spare_columns = 2;
        other.first_block_id = padded ? 100000 : 0;
        if (padded) other.padding = {8, 16, 24, 8, 3, 40, 16, 8, 24, 8, 16};
        PagedCase paged(other);
        int different = 0;
        for (int sequence = 0; sequence < 3; ++sequence)
          for (int j = 0; j < spec.query_lens[std::size_t(sequence)]; ++j)
            for (int head = 0; head < 4; ++head) {
              const Row a = row(plain, sequence, j, head), b = row(paged, sequence, j, head);
              different += a.out != b.out || a.lse != b.lse;
            }
        CHECK(different == 0);
        REQUIRE(bool(run_reference(paged)));
        CHECK(paged.check_against_reference(1e-3, 1e-5).problem == "");
      }
    }
  }
}

TEST_CASE("8-bit caches: k_scale multiplies logits, v_scale the result, out_scale divides it", "[reference]") {
  for (const DType type : {DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8}) {
    INFO(hpa::name(type));
    CaseSpec spec = small({2});
    spec.shape.kv = spec.shape.out = type;
    spec.scale = 1.f;
    spec.k_scale = 0.031f;
    spec.v_scale = 7.5f;
    spec.out_scale = 0.25f;
    PagedCase paged(spec);
    set_logits(paged, 4.f, {8.f, -8.f});
    for (int d = 0; d < 16; ++d) {
      paged.set_value(0, 0, 0, d, 2.f);
      paged.set_value(0, 1, 0, d, -1.f);
    }
    const double logit = 32 * double(0.031f), w0 = 1 / (1 + std::exp(-2 * logit));
    const double expected = 7.5 * (2 * w0 - (1 - w0));
    CHECK(row(paged, 0, 0, 0).out[5] == Approx(expected));
    CHECK(row(paged, 0, 0, 0).lse == Approx(std::log(2 * std::cosh(logit))));
    REQUIRE(bool(run_reference(paged)));
    std::uint8_t quantised[1];
    hpa::store_element(type, quantised, 0, float(expected / 0.25));
    CHECK(paged.out.data()[5] == quantised[0]);
    CHECK(paged.check_against_reference(0.1, 1e-5).problem == "");
  }
}

TEST_CASE("only visible bytes are read", "[reference]") {
  using hpa::test::Guard;
  using hpa::test::Tail;
  CaseSpec spec = small({17, 30, 4, 1});
  spec.query_amplitude = 1.f;
  spec.shape.sliding_window = true;
  spec.window = 13;
  PagedCase clean(spec);
  REQUIRE(bool(run_reference(clean)));
  for (const Guard guard : {Guard::end, Guard::start}) {
    for (const Tail tail : {Tail::nan, Tail::zero, Tail::plus_inf, Tail::minus_inf, Tail::largest, Tail::random}) {
      spec.guard = guard;
      spec.tail = tail;
      PagedCase paged(spec);
      REQUIRE(bool(run_reference(paged)));
      CHECK(paged.out.bytes() == clean.out.bytes());
      CHECK(paged.lse.bytes() == clean.lse.bytes());
    }
  }
}

TEST_CASE("NaN that a row does see is not hidden", "[reference]") {
  PagedCase paged(small({3}));
  paged.set_key(0, 1, 0, 0, std::numeric_limits<float>::quiet_NaN());
  CHECK(std::isnan(row(paged, 0, 0, 0).out[0]));
  CHECK(std::isnan(row(paged, 0, 0, 0).lse));
}
