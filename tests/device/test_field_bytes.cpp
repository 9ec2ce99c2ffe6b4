// Faults reported in public, as inputs: those of 8-bit caches and their scales. The ids are those of the list of field cases.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "probes.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

#if defined(HPA_TEST_FEWER_TYPES)
using Fp8Types = hpa::kv_types<DType::e4m3_fnuz>;
#else
using Fp8Types = hpa::kv_types<DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp>;
#endif
constexpr auto& fp8_types = Fp8Types::values;

template <class Machine>
using bytes_menu =
    hpa::default_menu::with<hpa::query_types<DType::f16>, Fp8Types, hpa::head_sizes<64>, hpa::block_sizes<16>, hpa::machine<Machine>>;

template <class Machine>
using i8_menu = hpa::default_menu::with<hpa::query_types<DType::f16>, hpa::kv_types<DType::i8>, hpa::head_sizes<64>,
                                        hpa::block_sizes<16>, hpa::feature_sets<Features::all>, hpa::machine<Machine>>;

CaseSpec bytes_case(DType kv, int num_heads, int num_kv_heads, std::vector<int> seq_lens) {
  CaseSpec spec = small_case(DType::f16, num_heads, num_kv_heads, std::move(seq_lens));
  spec.shape.kv = kv;
  return spec;
}

/// Codes of some tens, with scales that bring them back to about 1.
CaseSpec i8_case(int num_heads, int num_kv_heads, std::vector<int> seq_lens, bool token_scales) {
  CaseSpec spec = bytes_case(DType::i8, num_heads, num_kv_heads, std::move(seq_lens));
  spec.key_amplitude = spec.value_amplitude = 30.f;
  spec.shape.token_scales = token_scales;
  if (token_scales)
    spec.token_scale = 1.f / 30.f;
  else
    spec.k_scale = spec.v_scale = 1.f / 30.f;
  return spec;
}

DecodeShape valid_shape() {
  DecodeShape shape;
  shape.num_heads = 8;
  shape.num_kv_heads = 2;
  shape.max_seqs = 4;
  shape.max_seq_len = 1000;
  return shape;
}

template <class Menu>
void expect_refused(const DecodeShape& shape, const char* field) {
  const Verdict verdict = hpa::check<Menu>(shape, this_device());
  INFO("KV " << hpa::name(shape.kv) << ", block size " << shape.block_size);
  CHECK(!verdict);
  CHECK(verdict.field == std::string(field));
  CHECK(std::string(verdict.why) != "");
  CHECK(hpa::workspace_bytes<Menu>(shape, this_device()) == 0);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("F79: all 256 codes through the values, in the format that the caller names", "[field]", Machines) {
  for (const DType kv : fp8_types) {
    PagedCase paged(bytes_case(kv, 2, 1, {1, 1, 1, 1}));
    for (int sequence = 0; sequence < 4; ++sequence)
      for (int d = 0; d < 64; ++d) {
        const std::int64_t block = paged.block_table(sequence, 0);
        paged.value_cache.data()[hpa::reference::value_index(paged.shape(), paged.strides(), block, 0, 0, d)] =
            std::uint8_t(sequence * 64 + d);
      }
    REQUIRE(run_paged_attention<bytes_menu<TestType>>(paged));
    int wrong = 0, numbers = 0;
    for (int code = 0; code < 256; ++code)
      for (const int head : {0, 1}) {
        const auto byte = std::uint8_t(code);
        const float due = hpa::load_element(kv, &byte, 0), got = out_of(paged, code / 64, head, code % 64);
        wrong += std::isfinite(due) ? got != due : std::isfinite(got);
        numbers += std::isfinite(due);
      }
    INFO(hpa::name(kv));
    CHECK(wrong == 0);
    CHECK(numbers == 2 * (kv == DType::e4m3_fnuz ? 255 : kv == DType::e4m3_ocp ? 254 : 248));
  }
}

TEMPLATE_LIST_TEST_CASE("F79: all 256 codes through the keys", "[field]", Machines) {
  for (const DType kv : fp8_types) {
    CaseSpec spec = bytes_case(kv, 1, 1, std::vector<int>(256, 1));  // a sequence each, whose lse is its only logit
    spec.scale = 1.f;
    PagedCase paged(spec);
    set_queries(paged, 0.f);
    for (int code = 0; code < 256; ++code) {
      const int element = code % 64;
      for (int d = 0; d < 64; ++d) paged.set_key(code, 0, 0, d, 0.f);
      paged.set_query(code, 0, element, 1.f);
      paged.key_cache.data()[hpa::reference::key_index(paged.shape(), paged.strides(), paged.block_table(code, 0), 0, 0, element)] =
          std::uint8_t(code);
    }
    REQUIRE(run_paged_attention<bytes_menu<TestType>>(paged));
    int wrong = 0;
    for (int code = 0; code < 256; ++code) {
      const auto byte = std::uint8_t(code);
      const float due = hpa::load_element(kv, &byte, 0), got = lse_of(paged, code, 0);
      const bool right = std::isfinite(due) ? std::abs(got - due) <= 1e-6f * std::abs(due) : !std::isfinite(got) || got == due;
      wrong += !right;
    }
    INFO(hpa::name(kv));
    CHECK(wrong == 0);
  }
}

TEMPLATE_LIST_TEST_CASE("F80: scales that differ, values near the largest", "[field]", Machines) {
  for (const DType kv : fp8_types) {
    CaseSpec spec = bytes_case(kv, 6, 2, {1, 40, 300, 700});
    spec.k_scale = 0.031f, spec.v_scale = 7.5f;
    spec.key_amplitude = spec.value_amplitude = kv == DType::e4m3_fnuz ? 150.f : 300.f;  // some saturate
    expect_right<bytes_menu<TestType>>(spec);
    spec.query_lens = {1, 4, 2, 3};
    spec.shape.max_query_len = 4;
    expect_right<bytes_menu<TestType>>(spec);
    // All keys the largest number there is, and a sum of products far beyond f16.
    spec.scale = 1e-4f;
    PagedCase paged(spec);
    set_queries(paged, 30.f);
    for (int sequence = 0; sequence < 4; ++sequence)
      for (int token = 0; token < spec.seq_lens[std::size_t(sequence)]; ++token)
        for (int head = 0; head < 2; ++head)
          for (int d = 0; d < 64; ++d) paged.set_key(sequence, token, head, d, token % 2 == 0 ? 1e6f : -1e6f);
    REQUIRE(run_paged_attention<bytes_menu<TestType>>(paged));
    CHECK(paged.check_against_reference(5e-3, 2e-2).problem == "");  // e5m2: logits of up to 340
  }
}

TEMPLATE_LIST_TEST_CASE("F84: sinks on 8-bit caches, in one piece and in splits", "[field]", Machines) {
  for (const int rows : {1, 4}) {
    CaseSpec spec = bytes_case(DType::e4m3_fnuz, 4, 1, {300, 33, 3});
    spec.query_lens.assign(3, rows);
    spec.shape.max_query_len = rows;
    spec.shape.sinks = true;
    spec.sinks = {0.f, 3.f, -2.f, 6.f};
    spec.k_scale = 0.5f, spec.v_scale = 2.f;
    PagedCase whole(spec), split(spec);
    REQUIRE(run_decode_with<Config<64, 16, DType::f16, DType::e4m3_fnuz, 512, Features::all>, TestType>(whole));
    CHECK(whole.check_against_reference(tolerance_of(DType::f16)).problem == "");
    REQUIRE(run_decode_with<Config<64, 16, DType::f16, DType::e4m3_fnuz, 32, Features::all>, TestType>(split));
    CHECK(split.check_against_reference(tolerance_of(DType::f16)).problem == "");
    CHECK(hpa::test::distance(split, whole) < tolerance_of(DType::f16).out);
  }
}

TEMPLATE_LIST_TEST_CASE("F10: a window over an 8-bit cache whose other tokens are NaN", "[field]", Machines) {
  for (const DType kv : fp8_types) {
    CaseSpec spec = bytes_case(kv, 2, 1, {1000, 99, 101});
    spec.shape.sliding_window = true;
    spec.window = 100;
    spec.unmapped_expired = true;
    spec.v_scale = 0.3f;
    expect_right<bytes_menu<TestType>>(spec);
  }
}

TEMPLATE_LIST_TEST_CASE("F10: a window over an i8 cache, the scales of all other tokens NaN", "[field]", Machines) {
  for (const bool token_scales : {false, true}) {
    CaseSpec spec = i8_case(2, 1, {1000, 99, 101, 17}, token_scales);
    spec.shape.sliding_window = true;
    spec.window = 100;
    spec.unmapped_expired = true;
    expect_right<i8_menu<TestType>>(spec);
    spec.query_lens = {4, 1, 3, 2};
    spec.shape.max_query_len = 4;
    expect_right<i8_menu<TestType>>(spec);
  }
}

TEMPLATE_LIST_TEST_CASE("F82: one block and one head, where as many scales would do for either meaning", "[field]", Machines) {
  // The shape says which: a scale for all, one a token, or both.
  CaseSpec spec = i8_case(1, 1, {16}, false);
  spec.spare_blocks = 0;
  PagedCase tensor(spec);
  expect_right<i8_menu<TestType>>(tensor);
  spec.shape.token_scales = true;
  PagedCase both(spec);  // scales of 0.5 to 1.5 beside those for all
  expect_right<i8_menu<TestType>>(both);
  CHECK(hpa::test::distance(both, tensor) > 0.05);
  spec.k_scale = spec.v_scale = 0.f;
  spec.token_scale = 1.f / 30.f;
  PagedCase token(spec);
  expect_right<i8_menu<TestType>>(token);
  CHECK(hpa::test::distance(token, both) < tolerance_of(DType::f16).out);
  DecodeArgs args = token.args();
  args.cache.value_token_scales = nullptr;
  CHECK(hpa::check<i8_menu<TestType>>(token.shape(), args, this_device()).field == std::string("value_token_scales"));
  DecodeShape shape = token.shape();
  shape.token_scales = false;
  CHECK(hpa::check<i8_menu<TestType>>(shape, token.args(), this_device()).field == std::string("key_token_scales"));
}

TEMPLATE_LIST_TEST_CASE("F78, F81: caches of a type that no kernel was compiled for, and pages smaller than a vector", "[field]",
                        Machines) {
  using Menu = bytes_menu<TestType>;
  DecodeShape shape = valid_shape();
  shape.head_size = 64;
  for (const DType kv : {DType::bf16, DType::f16, DType::i8}) {  // f16 is the query's own type: this menu has FP8 alone
    shape.kv = kv;
    expect_refused<Menu>(shape, "kv");
  }
  for (const DType kv : fp8_types)
    for (const int block_size : {1, 4, 8}) {
      shape.kv = kv;
      shape.block_size = block_size;
      expect_refused<Menu>(shape, "block_size");
    }
}

TEST_CASE("F81: the default menu has no 8-bit cache and says so", "[field]") {
  for (const DType kv : {DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8, DType::bf16}) {
    DecodeShape shape = valid_shape();
    shape.kv = kv;
    expect_refused<hpa::default_menu>(shape, "kv");
  }
}
