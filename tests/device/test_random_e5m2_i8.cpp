// Random problems with KV of 8 bits, e5m2_ocp and i8.
#include "random_case.hpp"

using hpa::DType;
using hpa::Features;

TEMPLATE_LIST_TEST_CASE("random problems with e5m2_ocp and i8 KV", "[random]", hpa::test::Machines) {
  using Menu = hpa::default_menu::with<hpa::kv_types<DType::e5m2_ocp, DType::i8>, hpa::machine<TestType>>;
  hpa::test::run_random_cases<Menu>("e5m2_ocp and i8 KV", {DType::e5m2_ocp, DType::i8}, 0.9);
}
