// A scale for each KV head: what append writes by it, and what decode makes of it.
#include "calls.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

template <class Machine>
using bytes_menu =
    hpa::default_menu::with<hpa::query_types<DType::f16>, hpa::kv_types<DType::e4m3_ocp>, hpa::head_sizes<64>, hpa::block_sizes<16>,
                            hpa::feature_sets<Features::none>, hpa::machine<Machine>>;

}  // namespace

TEMPLATE_LIST_TEST_CASE("decode takes each KV head's own scales", "[head scales]", Machines) {
  for (const Guard guard : {Guard::end, Guard::start})
    for (const int max_seqs : {3, 64}) {  // cut, or whole
      CaseSpec spec = small_case(DType::f16, 12, 3, {5, 700, 64});
      spec.shape.kv = DType::e4m3_ocp;
      spec.shape.max_seqs = max_seqs;
      spec.guard = guard;
      spec.k_scale = 0.5f, spec.v_scale = 0.25f;
      spec.head_scales = true;
      expect_right<bytes_menu<TestType>>(spec);
      spec.k_scale = 0.f;  // nullptr
      expect_right<bytes_menu<TestType>>(spec);
    }
}

TEMPLATE_LIST_TEST_CASE("append divides by each KV head's own scales", "[head scales]", Machines) {
  CaseSpec spec = small_case(DType::f16, 3, 3, {16});
  spec.shape.kv = DType::e4m3_ocp;
  spec.k_scale = 0.5f, spec.v_scale = 0.25f;
  spec.head_scales = true;
  PagedCase paged(spec);
  const int heads = 3, size = 64;
  Buffer rows(std::size_t(heads * size) * 2, 16, Guard::end), slots(8, 8, Guard::end);
  for (int i = 0; i < heads * size; ++i) hpa::store_element(DType::f16, rows.data(), i, float(i % 7 * (1 + i / size)));
  *slots.as<std::int64_t>() = std::int64_t{paged.block_table(0, 0)} * 16 + 5;
  rows.upload(), slots.upload();
  REQUIRE(paged.run(16, {}, [&](const hpa::DecodeShape& shape, const hpa::DecodeArgs& decode, hpa::Workspace, hpa::Stream stream) {
    hpa::AppendArgs args;
    args.cache = decode.cache;
    args.new_keys = args.new_values = rows.device();
    args.slot_mapping = slots.device_as<std::int64_t>();
    args.num_tokens = 1;
    return hpa::append<bytes_menu<TestType>>(shape, args, stream);
  }));
  const std::int64_t block = paged.block_table(0, 0);
  int wrong = 0;
  for (int head = 0; head < heads; ++head)
    for (int d = 0; d < size; ++d) {
      const float written = float((head * size + d) % 7 * (1 + head));
      std::uint8_t key = 0, value = 0;
      hpa::store_element(DType::e4m3_ocp, &key, 0, written / (0.5f * float(1 + head)));
      hpa::store_element(DType::e4m3_ocp, &value, 0, written / (0.25f * float(1 + 3 * head)));
      wrong += paged.key_cache.data()[hpa::reference::key_index(paged.shape(), paged.strides(), block, 5, head, d)] != key;
      wrong += paged.value_cache.data()[hpa::reference::value_index(paged.shape(), paged.strides(), block, 5, head, d)] != value;
    }
  CHECK(wrong == 0);
}
