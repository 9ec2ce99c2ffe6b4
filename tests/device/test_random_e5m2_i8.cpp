// Random problems with KV of 8 bits, e5m2_ocp and i8.
#include <iterator>

#include "random_case.hpp"

using hpa::DType;

#if defined(HPA_TEST_FEWER_TYPES)
using KvTypes = hpa::kv_types<DType::i8>;
#else
using KvTypes = hpa::kv_types<DType::e5m2_ocp, DType::i8>;
#endif

TEMPLATE_LIST_TEST_CASE("random problems with e5m2_ocp and i8 KV", "[random]", hpa::test::Machines) {
  using Menu = hpa::default_menu::with<hpa::test::QueriesOfBytes, KvTypes, hpa::machine<TestType>>;
  hpa::test::run_random_cases<Menu>("e5m2_ocp and i8 KV", {std::begin(KvTypes::values), std::end(KvTypes::values)}, 0.9);
}
