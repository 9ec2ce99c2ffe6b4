// Every machine that this platform has, held against the list in hpa/arch/machine.hpp.
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "catch.hpp"
#include "hpa/arch/host/machine.hpp"

using hpa::Arch;
using hpa::DType;
using hpa::arch::Cdna;
using hpa::arch::Facts;
using hpa::arch::HostMachine;
using hpa::arch::Nvidia;
using hpa::arch::Place;
using hpa::arch::Words;

namespace {

using Machines = std::tuple<HostMachine<Cdna>, HostMachine<Nvidia>>;

/// As the list has them: names, types and what they must agree in.
template <class M>
void check_constants() {
  static_assert(M::width == Facts<M>::width && M::width % 32 == 0);
  static_assert(std::is_same_v<decltype(M::runs_on(Arch::host)), bool>);
  using Table = typename M::Tuning;
  static_assert(Table::plan_kernel_shape().kernel && Table::plan_kernel_shape().writers > 0 && Table::copy_kernel_shape());
  static_assert(Table::reduce_kernel_shape(128, true, 1).kernel && Table::reduce_kernel_shape(128, true, 1).vectors > 0);
  static_assert(Table::reduce_kernel_shape(128, true, 1).partials_ahead > 0);
  static_assert(Table::decode_kernel_shape(Table::lds_classes[0], {128, 128, 16, Table::row_classes[0]}, true).stages > 0);
  static_assert(std::is_same_v<decltype(M::template BlockScan<int, 64>::available), const bool>);
  if constexpr (M::copies_to_lds) {
    static_assert(M::template Copies<2, hpa::arch::Strip<2, 16, 16>>::bookkeeping_bytes >= 0);
  } else {
    static_assert(std::is_same_v<decltype(M::multiplies(DType::bf16, DType::i8)), bool>);
    static_assert(M::template StagedQuery<DType::bf16, DType::bf16, 64>::lds_bytes > 0);
  }
}

/// Every lane map names places inside its tile, and the operands are as long as the maps need.
template <class P>
void check_products() {
  static_assert(P::rows == P::row_sets * (P::rows / P::row_sets) && P::tile_tokens > 0 && P::prob_words > 0 && P::output_run > 0);
  static_assert(P::key_words > 0 && P::query_words > 0 && P::value_words > 0 && P::set_rows > 0);
  const auto inside = [](const Place& at, int tokens, int elements) {
    return at.token >= 0 && at.token < tokens && at.element >= 0 && at.element < elements;
  };
  int outside = 0;
  for (int lane = 0; lane < P::width; ++lane) {
    for (int product = 0; product < P::score_products; ++product)
      for (int i = 0; i < P::key_run; ++i)
        outside += !inside(P::key_at(lane, product, i), P::tile_tokens, P::key_steps * P::element_step);
    for (int step = 0; step < P::key_steps; ++step)
      for (int i = 0; i < P::query_run; ++i)
        outside += !inside(P::query_at(lane, step, i), P::rows, P::key_steps * P::element_step);
    constexpr int dims = 2;
    for (int dim = 0; dim < dims; ++dim)
      for (int i = 0; i < P::value_run; ++i) outside += !inside(P::value_at(lane, dim, i), P::tile_tokens, dims * P::dim_step);
    for (int i = 0; i < 4; ++i) {
      for (int dim = 0; dim < dims; ++dim)
        outside += P::output_element(lane, dim, i) < 0 || P::output_element(lane, dim, i) >= dims * P::dim_step;
      for (int set = 0; set < P::row_sets; ++set) {
        outside += P::output_row(lane, set, i) < 0 || P::output_row(lane, set, i) >= P::rows;
        outside += P::score_row(lane, set) < 0 || P::score_row(lane, set) >= P::rows;
      }
      for (int product = 0; product < P::score_products; ++product)
        outside += P::score_token(lane, product, i) < 0 || P::score_token(lane, product, i) >= P::tile_tokens;
    }
  }
  for (int row = 0; row < P::rows; ++row) outside += P::score_lane_of(row) < 0 || P::score_lane_of(row) >= P::width;
  for (int i = 0; i < P::token_lane_bits; ++i) outside += P::token_lane_bit(i) <= 0 || P::token_lane_bit(i) >= P::width;
  CHECK(outside == 0);
}

struct Pair {
  std::uint32_t first, second;
};

/// Memory that a wave loads and stores, one vector a lane.
struct alignas(16) Memory {
  std::int32_t number[64];
};

}  // namespace

TEMPLATE_LIST_TEST_CASE("a machine has the constants and types of the list", "[machines]", Machines) {
  using M = TestType;
  check_constants<M>();
  check_products<typename M::template Products<DType::bf16, DType::bf16, 16>>();
  check_products<typename M::template Products<DType::f16, DType::e4m3_ocp, 16>>();
  check_products<typename M::template Products<DType::bf16, DType::i8, 16>>();
  if (M::copies_to_lds) check_products<typename M::template Products<DType::bf16, DType::bf16, 8>>();
}

TEMPLATE_LIST_TEST_CASE("a machine has the conversions and functions of the list", "[machines]", Machines) {
  using M = TestType;
  CHECK(M::template unpack<DType::bf16>(M::template pack<DType::bf16>(1.5f, -2.f), 0) == 1.5f);
  CHECK(M::template unpack<DType::f16>(M::template pack<DType::f16>(1.5f, -2.f), 1) == -2.f);
  CHECK(M::template pack_plain<DType::bf16>(1.5f, -2.f) == M::template pack<DType::bf16>(1.5f, -2.f));
  const std::uint32_t probabilities = M::template pack_probabilities<DType::f16>(0.5f, 1.f);
  CHECK(M::template unpack<DType::f16>(probabilities, 0) == 0.5f);
  CHECK(M::template unpack<DType::f16>(probabilities, 1) == 1.f);
  typename M::Floats4 four = M::Floats4::zero();
  for (int i = 0; i < 4; ++i) four[i] = float(i + 1);
  four = four * 2.f + M::Floats4::zero();
  const std::uint32_t codes = M::template narrow<DType::e4m3_ocp>(2.f, 4.f, 6.f, 8.f);
  CHECK(M::template narrow_bounded<DType::e4m3_ocp>(four) == codes);
  for (int i = 0; i < 4; ++i) CHECK(M::template floats<DType::e4m3_ocp>(codes)[i] == four[i]);
  const Words<2> wide = M::template widen<DType::e4m3_ocp, DType::f16>(codes);
  for (int i = 0; i < 4; ++i) CHECK(M::template unpack<DType::f16>(wide.word[i / 2], i % 2) == four[i]);
  CHECK(M::exp2(3.f) == 8.f);
  CHECK(M::log2(8.f) == 3.f);
  CHECK(M::reciprocal(4.f) == 0.25f);
  CHECK(M::quotient(1.f, 3.f) == 1.f / 3.f);
  const float nan = hpa::float_of(0x7fc00000u);
  CHECK(M::max(nan, 1.f) == 1.f);
  CHECK(M::min(nan, 1.f) == 1.f);
  CHECK(M::max(1.f, 2.f) == 2.f);
  CHECK(M::min(1.f, 2.f) == 1.f);
}

TEMPLATE_LIST_TEST_CASE("a wave does what the list says", "[machines]", Machines) {
  using M = TestType;
  using Wave = typename M::Wave;
  hpa::arch::HostWorkgroup workgroup(1, 64);
  Wave wave(workgroup, 0);
  CHECK(wave.index() == 0);
  CHECK(wave.waves() == 1);
  CHECK(wave.workgroup_x() + wave.workgroup_y() + wave.workgroup_z() == 0);
  CHECK(wave.workgroups_x() == 1);
  CHECK(wave.lds() != nullptr);

  typename M::template Lane<Pair> pairs;
  typename M::template Lane<std::uint32_t> numbers;
  typename M::template Lane<bool> is_last, never;
  wave.each([&](int lane) {
    pairs[lane] = {std::uint32_t(lane), std::uint32_t(2 * lane)};
    numbers[lane] = std::uint32_t(lane ^ 3);
    is_last[lane] = lane == M::width - 1;
    never[lane] = false;
  });
  CHECK(wave.any(is_last));
  CHECK(!wave.any(never));
  CHECK(wave.count(is_last) == 1);
  CHECK(wave.count(never) == 0);
  const auto turned = wave.shuffle(pairs, [](int lane) { return M::width - 1 - lane; });
  int wrong = 0;
  wave.each([&](int lane) { wrong += turned[lane].second != 2 * std::uint32_t(M::width - 1 - lane); });
  CHECK(wrong == 0);
  CHECK(wave.broadcast(pairs, 5).second == 10);
  auto largest = numbers;
  wave.template spread_max<8>(largest);
  wave.each([&](int lane) { wrong += largest[lane] != std::uint32_t(lane / 8 * 8 + 7); });
  largest = numbers;
  wave.template spread_max<32>(largest);
  wave.each([&](int lane) { wrong += largest[lane] != std::uint32_t(lane / 32 * 32 + 31); });
  CHECK(wrong == 0);

  Memory memory{};
  typename M::template Lane<std::int32_t> places, records;
  wave.each([&](int lane) { places[lane] = lane % 2 == 0 ? lane : -1, records[lane] = lane + 1; });
  wave.store_at(memory.number, places, records);
  for (int i = 0; i < 64; ++i) wrong += memory.number[i] != (i % 2 == 0 && i < M::width ? i + 1 : 0);
  CHECK(wrong == 0);
  wave.store(memory.number + 1, std::int32_t{7});
  CHECK(wave.template load<std::int32_t>(memory.number + 1) == 7);
  CHECK(wave.template load_shared<std::int32_t>(memory.number + 1) == 7);
  CHECK(wave.uniform(reinterpret_cast<const Words<2>*>(memory.number)).word[1] == 7);
  wave.atomic_min(memory.number + 1, 5);
  wave.atomic_min(memory.number + 1, 6);
  CHECK(memory.number[1] == 5);
  wave.atomic_add(memory.number + 1, 3);
  CHECK(memory.number[1] == 8);
  wave.barrier();

  // for the optimiser alone: values come back as they went in
  struct Part {
    int value;
  };
  struct Params : Part {
    int other;
  };
  const Params params{{3}, 4};
  CHECK(wave.loaded(params).other == 4);
  CHECK(wave.template reread<Part>(params).value == 3);
  CHECK(wave.made_anew(9u) == 9u);
  wave.refresh();
  int lanes = 0;
  wave.each_afresh([&](int) { ++lanes; });
  CHECK(lanes == M::width);
  wave.keep_order();
  wave.await(pairs, numbers);
  wave.await_previous_launch();
  wave.allow_next_launch();
}
