// FP8 output: out = quantise(value / out_scale), rounded to nearest even, saturating; from the decode kernel and from the reduce.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "probes.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

constexpr DType fp8_types[] = {DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp};

CaseSpec fp8_case(DType query, DType out, int num_heads, int num_kv_heads, std::vector<int> seq_lens) {
  CaseSpec spec = small_case(query, num_heads, num_kv_heads, std::move(seq_lens));
  spec.shape.out = out;
  return spec;
}

std::uint8_t code_of(DType type, float value) {
  std::uint8_t code = 0;
  hpa::store_element(type, &code, 0, value);
  return code;
}

float largest_of(DType type) { return type == DType::e4m3_fnuz ? 240.f : type == DType::e4m3_ocp ? 448.f : 57344.f; }

}  // namespace

TEMPLATE_LIST_TEST_CASE("a single key gives its value's code, whatever the value", "[fp8 out]", Machines) {
  for (const DType query : {DType::f16, DType::bf16}) {
    for (const DType out : fp8_types) {
      for (const float scale : {0.f, 1.f, 0.25f, 4.f}) {  // 0: no pointer
        CaseSpec spec = fp8_case(query, out, 3, 1, {1, 1, 1, 1});
        spec.out_scale = scale;
        PagedCase paged(spec);
        // From far below the smallest to far above the largest code, among them points half way between codes.
        for (int sequence = 0; sequence < 4; ++sequence)
          for (int d = 0; d < 64; ++d) {
            const int i = sequence * 64 + d;
            paged.set_value(sequence, 0, 0, d,
                            (i % 2 == 0 ? 1.f : -1.f) * float(8 + i / 2 % 8) * std::exp2(float(i / 16) * 2.f - 18.f));
          }
        paged.set_value(0, 0, 0, 0, 0.f);
        paged.set_value(0, 0, 0, 1, -0.f);
        REQUIRE(run_paged_attention<small_menu<TestType>>(paged));
        int wrong = 0, saturated = 0;
        for (int sequence = 0; sequence < 4; ++sequence)
          for (int head = 0; head < 3; ++head)
            for (int d = 0; d < 64; ++d) {
              const float value = hpa::test::value_of(paged, sequence, 0, 0, d) / (scale == 0.f ? 1.f : scale);
              const std::uint8_t got = paged.out.data()[(sequence * 3 + head) * 64 + d];
              wrong += got != code_of(out, value) && !(value == 0.f && hpa::load_element(out, &got, 0) == 0.f);
              saturated += std::abs(hpa::load_element(out, &got, 0)) == largest_of(out);
            }
        INFO(describe(paged.spec));
        CHECK(wrong == 0);
        CHECK((saturated > 0) == (15.f * 4096.f / (scale == 0.f ? 1.f : scale) > largest_of(out)));
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("FP8 output of whole and of cut rows is the reference's", "[fp8 out]", Machines) {
  for (const DType out : fp8_types) {
    for (const int max_seqs : {6, 64}) {
      CaseSpec spec = fp8_case(out == DType::e5m2_ocp ? DType::bf16 : DType::f16, out, 6, 2, {0, 1, 33, 300, 700, 2});
      spec.shape.max_seqs = max_seqs;
      expect_right<small_menu<TestType>>(spec);
      spec.out_scale = 0.02f;
      spec.query_lens = {2, 1, 3, 9, 4, 4};
      spec.shape.max_query_len = 4;
      expect_right<small_menu<TestType>>(spec);
      spec.padding.out_row = 4, spec.padding.out_head = 12;
      expect_right<small_menu<TestType>>(spec);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("what is too large saturates, in cut rows as well", "[fp8 out]", Machines) {
  using Fine = Config<64, 16, DType::f16, DType::f16, 32, Features::all>;
  for (const DType out : fp8_types) {
    CaseSpec spec = fp8_case(DType::f16, out, 4, 1, {20, 300});
    spec.out_scale = out == DType::e5m2_ocp ? 0.01f : 1.f;
    PagedCase paged(spec);
    for (int sequence = 0; sequence < 2; ++sequence)
      for (int token = 0; token < spec.seq_lens[std::size_t(sequence)]; ++token)
        for (int d = 0; d < 64; ++d) paged.set_value(sequence, token, 0, d, (d % 2 == 0 ? 1.f : -1.f) * float(1000 + d));
    REQUIRE(run_decode_with<Fine, TestType>(paged));
    int wrong = 0;
    for (int row = 0; row < 2; ++row)
      for (int head = 0; head < 4; ++head)
        for (int d = 0; d < 64; ++d) wrong += out_of(paged, row, head, d) != (d % 2 == 0 ? 1.f : -1.f) * largest_of(out);
    CHECK(wrong == 0);
  }
}

TEMPLATE_LIST_TEST_CASE("an out_scale whose reciprocal no float can hold", "[fp8 out]", Machines) {
  for (const DType out : fp8_types)
    for (const int length : {3, 700}) {  // in one item, and cut
      CaseSpec spec = fp8_case(DType::bf16, out, 4, 1, {length});
      spec.out_scale = 0x1p-128f;
      spec.query_amplitude = 0.f;
      PagedCase paged(spec);
      for (int token = 0; token < length; ++token)
        for (int d = 0; d < 64; ++d) paged.set_value(0, token, 0, d, d % 2 == 0 ? 0.f : d % 4 == 1 ? 0x1p-121f : 1.f);
      REQUIRE(run_paged_attention<one_menu<TestType, DType::bf16>>(paged));
      int wrong = 0;
      for (int head = 0; head < 4; ++head)
        for (int d = 0; d < 64; ++d)
          wrong += out_of(paged, 0, head, d) != (d % 2 == 0 ? 0.f : d % 4 == 1 ? 128.f : largest_of(out));
      CHECK(wrong == 0);
      CHECK(paged.check_against_reference(std::numeric_limits<double>::infinity(), 1e-3).problem == "");
    }
}

TEMPLATE_LIST_TEST_CASE("an empty row is zero bytes, which no type takes for NaN", "[fp8 out]", Machines) {
  for (const DType out : fp8_types) {
    CaseSpec spec = fp8_case(DType::f16, out, 3, 1, {0, 2, 0});
    spec.query_lens = {1, 4, 2};  // and rows before the first key
    spec.shape.max_query_len = 4;
    spec.out_scale = 0.5f;
    PagedCase paged(spec);
    expect_right<one_menu<TestType>>(paged);
    for (const int row : {0, 1, 2, 5, 6}) {
      const std::uint8_t* bytes = paged.out.data() + row * 3 * 64;
      CHECK(std::all_of(bytes, bytes + 3 * 64, [](std::uint8_t byte) { return byte == 0; }));
    }
  }
}

TEMPLATE_LIST_TEST_CASE("a NaN that a row sees is a NaN in FP8", "[fp8 out]", Machines) {
  for (const DType out : fp8_types) {
    PagedCase paged(fp8_case(DType::f16, out, 2, 1, {40, 40}));
    paged.spec.unchecked = {0};
    paged.set_value(0, 7, 0, 9, std::numeric_limits<float>::quiet_NaN());
    REQUIRE(run_paged_attention<one_menu<TestType>>(paged));
    CHECK(std::isnan(out_of(paged, 0, 1, 9)));
    CHECK(!std::isnan(out_of(paged, 0, 1, 8)));
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  }
}

TEMPLATE_LIST_TEST_CASE("lse does not know of out_scale, and the scale is read at every run", "[fp8 out]", Machines) {
  CaseSpec spec = fp8_case(DType::f16, DType::e4m3_ocp, 4, 1, {5, 300});
  spec.out_scale = 1.f;
  PagedCase paged(spec);
  expect_right<one_menu<TestType>>(paged);
  const std::vector<std::uint8_t> out = paged.out.bytes(), lse = paged.lse.bytes();
  *paged.out_scale.as<float>() = 0.125f;
  expect_right<one_menu<TestType>>(paged);
  CHECK(paged.lse.bytes() == lse);
  CHECK(paged.out.bytes() != out);
}
