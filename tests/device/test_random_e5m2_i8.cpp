// Random problems with KV of 8 bits, e5m2_ocp and i8.
#include "random_case.hpp"

using hpa::axis;
using hpa::DType;
using hpa::Features;

TEMPLATE_LIST_TEST_CASE("random problems with e5m2_ocp and i8 KV", "[random]", hpa::test::Machines) {
  using Menu = hpa::menu_for<axis<DType::f16, DType::bf16>, axis<64, 128>, axis<16, 32>, axis<Features::plain, Features::all>,
                             axis<DType::e5m2_ocp, DType::i8>, TestType>;
  hpa::test::run_random_cases<Menu>("e5m2_ocp and i8 KV", {DType::e5m2_ocp, DType::i8}, 0.9);
}
