// Random problems with 16-bit KV: every combination that check() accepts gives what the reference gives.
#include "random_case.hpp"

using hpa::DType;
using hpa::Features;

TEMPLATE_LIST_TEST_CASE("random problems with 16-bit KV", "[random]", hpa::test::Machines) {
  using Menu = hpa::default_menu::with<hpa::machine<TestType>>;
  hpa::test::run_random_cases<Menu>("16-bit KV", {}, 0.9);
}
