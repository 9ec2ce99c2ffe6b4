// Random problems with KV of 8 bits, e4m3_fnuz and e4m3_ocp.
#include "random_case.hpp"

using hpa::DType;
using hpa::Features;

TEMPLATE_LIST_TEST_CASE("random problems with e4m3_fnuz and e4m3_ocp KV", "[random]", hpa::test::Machines) {
  using Menu = hpa::default_menu::with<hpa::kv_types<DType::e4m3_fnuz, DType::e4m3_ocp>, hpa::machine<TestType>>;
  hpa::test::run_random_cases<Menu>("e4m3_fnuz and e4m3_ocp KV", {DType::e4m3_fnuz, DType::e4m3_ocp}, 0.9);
}
