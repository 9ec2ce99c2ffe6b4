// NaN with all bits set, as in memory that was never written: in a scale, a sink, an lse or a state it makes its rows NaN, whatever the
// machine's arithmetic makes of the bits.
#include <cmath>
#include <cstdint>
#include <vector>

#include "calls.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

template <class Machine>
using nan_menu =
    hpa::default_menu::with<hpa::query_types<DType::bf16>, hpa::kv_types<DType::bf16, DType::e4m3_ocp, DType::i8>,
                            hpa::head_sizes<64>, hpa::block_sizes<16>, hpa::feature_sets<Features::all>, hpa::machine<Machine>>;
template <class Machine>
using merge_menu =
    hpa::default_menu::with<hpa::head_sizes<64>, hpa::block_sizes<16>, hpa::feature_sets<Features::none>, hpa::machine<Machine>>;

CaseSpec case_of(DType kv) {
  CaseSpec spec = small_case(DType::bf16, 4, 2, {5, 700});  // one row is cut
  spec.shape.kv = kv;
  return spec;
}

/// Elements of out that are no NaN.
template <class Menu>
int numbers_in(PagedCase& paged) {
  REQUIRE(run_paged_attention<Menu>(paged));
  int numbers = 0;
  const int elements = paged.num_rows() * paged.shape().num_heads * paged.shape().head_size;
  for (int i = 0; i < elements; ++i) numbers += !std::isnan(hpa::load_element(DType::bf16, paged.out.data(), i));
  return numbers;
}

float all_ones() { return hpa::float_of(0xffffffffu); }

}  // namespace

TEMPLATE_LIST_TEST_CASE("a scale of the values that is NaN with all bits set makes out NaN", "[nan]", Machines) {
  CaseSpec spec = case_of(DType::e4m3_ocp);
  spec.v_scale = all_ones();
  PagedCase paged(spec);
  CHECK(numbers_in<nan_menu<TestType>>(paged) == 0);
}

TEMPLATE_LIST_TEST_CASE("a scale of the keys that is NaN with all bits set makes out NaN", "[nan]", Machines) {
  CaseSpec spec = case_of(DType::e4m3_ocp);
  spec.k_scale = all_ones();
  PagedCase paged(spec);
  CHECK(numbers_in<nan_menu<TestType>>(paged) == 0);
}

TEMPLATE_LIST_TEST_CASE("sinks that are NaN with all bits set make out NaN", "[nan]", Machines) {
  CaseSpec spec = case_of(DType::bf16);
  spec.shape.sinks = true;
  PagedCase paged(spec);
  paged.sinks.fill(0xff);
  CHECK(numbers_in<nan_menu<TestType>>(paged) == 0);
}

TEMPLATE_LIST_TEST_CASE("token scales that are NaN with all bits set make out NaN", "[nan]", Machines) {
  for (const bool of_values : {false, true}) {
    CaseSpec spec = case_of(DType::i8);
    spec.shape.token_scales = true;
    PagedCase paged(spec);
    (of_values ? paged.value_token_scales : paged.key_token_scales).fill(0xff);
    INFO(of_values);
    CHECK(numbers_in<nan_menu<TestType>>(paged) == 0);
  }
}

TEMPLATE_LIST_TEST_CASE("a state or an lse that is NaN with all bits set makes its merged row NaN", "[nan]", Machines) {
  constexpr int head_size = 64;
  for (const DType from : {DType::f16, DType::bf16})
    for (const bool in_lse : {false, true}) {
      std::vector<Buffer> outs, lses;
      for (int state = 0; state < 2; ++state) {
        outs.emplace_back(2 * head_size, 16, hpa::test::Guard::end);
        lses.emplace_back(4, 4, hpa::test::Guard::end);
        outs.back().fill(0), lses.back().fill(0);
      }
      (in_lse ? lses : outs)[1].fill(0xff);
      if (!in_lse)  // positive NaN as well as negative
        for (int i = 0; i < head_size; i += 2) outs[1].data()[2 * i + 1] = 0x7f;
      Buffer out(2 * head_size, 16, hpa::test::Guard::end);
      out.fill(0);
      MergeArgs args;
      args.num_states = 2, args.num_rows = 1, args.num_heads = 1, args.head_size = head_size;
      args.state_type = from, args.out_type = DType::bf16;
      for (Buffer* buffer : {&outs[0], &outs[1], &lses[0], &lses[1], &out}) buffer->upload();
      for (std::size_t state = 0; state < 2; ++state)
        args.states[state] = {outs[state].device(), reinterpret_cast<const float*>(lses[state].device())};
      args.out = out.device();
      REQUIRE(hpa::merge_states<merge_menu<TestType>>(args, {}));
      out.download();
      int numbers = 0;
      for (int i = 0; i < head_size; ++i) numbers += !std::isnan(hpa::load_element(DType::bf16, out.data(), i));
      INFO(name(from) << (in_lse ? ", lse" : ", out"));
      CHECK(numbers == 0);
    }
}
