// Queries of any magnitude with caches of 8-bit floats: a machine may scale and split the rows before it multiplies them.
#include <cmath>
#include <limits>

#include "probes.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

#if defined(HPA_TEST_FEWER_TYPES)
using E4m3Types = hpa::kv_types<DType::e4m3_fnuz>;
#else
using E4m3Types = hpa::kv_types<DType::e4m3_fnuz, DType::e4m3_ocp>;
#endif

template <class Machine>
using bytes_menu = hpa::default_menu::with<hpa::query_types<DType::bf16>, E4m3Types, hpa::block_sizes<16>,
                                           hpa::feature_sets<Features::none>, hpa::machine<Machine>>;

CaseSpec bytes_case(DType kv, int head_size, int num_heads) {
  CaseSpec spec = small_case(DType::bf16, num_heads, 1, {1, 33, 300});
  spec.shape.kv = kv;
  spec.shape.head_size = head_size;
  return spec;
}

/// Calls f(spec) for both types and head sizes.
template <class F>
void each_bytes_case(int num_heads, F&& f) {
  for (const DType kv : E4m3Types::values)
    for (const int head_size : {64, 128}) f(bytes_case(kv, head_size, num_heads));
}

float query_of(const PagedCase& paged, int row, int head, int element) {
  const auto& strides = paged.strides();
  return load_element(paged.shape().query, paged.query.data(), row * strides.query_row + head * strides.query_head + element);
}

/// Every element times factor(head, element).
template <class F>
void multiply_queries(PagedCase& paged, F&& factor) {
  for (int row = 0; row < paged.num_rows(); ++row)
    for (int head = 0; head < paged.shape().num_heads; ++head)
      for (int d = 0; d < paged.shape().head_size; ++d)
        paged.set_query(row, head, d, query_of(paged, row, head, d) * float(factor(head, d)));
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("queries from the largest to the smallest numbers, with the scale that brings logits back", "[magnitudes]",
                        Machines) {
  each_bytes_case(8, [](CaseSpec spec) {
    for (const int exponent : {118, 60, -60, -118}) {
      spec.query_amplitude = std::ldexp(1.f, exponent);
      spec.scale = std::ldexp(1.f, -exponent - 3);
      expect_right<bytes_menu<TestType>>(spec);
    }
  });
}

TEMPLATE_LIST_TEST_CASE("rows of all magnitudes beside each other, zeros among them", "[magnitudes]", Machines) {
  each_bytes_case(16, [](const CaseSpec& spec) {
    PagedCase paged(spec);
    multiply_queries(paged, [](int head, int) { return head == 5 ? 0.0 : std::ldexp(1.0, 2 - 7 * head); });
    expect_right<bytes_menu<TestType>>(paged);
  });
}

TEMPLATE_LIST_TEST_CASE("one element of a row a thousand times the others", "[magnitudes]", Machines) {
  each_bytes_case(8, [](CaseSpec spec) {
    spec.scale = 0.02f;
    PagedCase paged(spec);
    multiply_queries(paged, [](int head, int element) { return element == 7 * head ? 40.0 : 0.04; });
    expect_right<bytes_menu<TestType>>(paged);
  });
}

TEMPLATE_LIST_TEST_CASE("Inf or NaN in a row makes that row NaN, and no other", "[magnitudes]", Machines) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()})
    each_bytes_case(16, [&](CaseSpec spec) {
      PagedCase clean(spec), paged(spec);
      const int row = 2, head = 11;
      paged.set_query(row, head, 19, bad);
      REQUIRE(run_paged_attention<bytes_menu<TestType>>(clean));
      REQUIRE(run_paged_attention<bytes_menu<TestType>>(paged));
      int wrong = 0;
      for (int r = 0; r < paged.num_rows(); ++r)
        for (int h = 0; h < spec.shape.num_heads; ++h)
          for (int d = 0; d < spec.shape.head_size; ++d) {
            const float got = out_of(paged, r, h, d);
            wrong += r == row && h == head ? !std::isnan(got) : got != out_of(clean, r, h, d);
          }
      CHECK(wrong == 0);
    });
}

TEMPLATE_LIST_TEST_CASE("a key that is NaN in one element makes its sequence NaN, and no other", "[magnitudes]", Machines) {
  each_bytes_case(8, [](CaseSpec spec) {
    PagedCase clean(spec), paged(spec);
    const int sequence = 1;
    paged.set_key(sequence, 17, 0, 5, std::numeric_limits<float>::quiet_NaN());
    REQUIRE(run_paged_attention<bytes_menu<TestType>>(clean));
    REQUIRE(run_paged_attention<bytes_menu<TestType>>(paged));
    int wrong = 0;
    for (int row = 0; row < paged.num_rows(); ++row)
      for (int head = 0; head < spec.shape.num_heads; ++head)
        for (int d = 0; d < spec.shape.head_size; ++d) {
          const float got = out_of(paged, row, head, d);
          wrong += row == sequence ? !std::isnan(got) : got != out_of(clean, row, head, d);
        }
    CHECK(wrong == 0);
  });
}
