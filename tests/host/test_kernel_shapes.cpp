// The tables of kernel shapes: what they choose fits the chip that it is chosen for, on every chip there is.
#include <string>
#include <type_traits>
#include <vector>

#include "catch.hpp"
#include "hpa/check.hpp"
#include "hpa/detail/launch_decode.hpp"

using namespace hpa;
using hpa::arch::Cdna;
using hpa::arch::HostMachine;
using hpa::arch::Machines;
using hpa::arch::Nvidia;
using hpa::tuning::KernelShape;

namespace {

/// A GPU's own table and kernels, whose sizes are those of its emulation: LDS is laid out alike.
template <class Of>
struct MachineOf : HostMachine<Of> {
  using Tuning = typename hpa::arch::Facts<Of>::Tuning;
  static constexpr bool runs_on(Arch arch) { return hpa::arch::Facts<Of>::runs_on(arch); }
};
using Gpus = Machines<MachineOf<Cdna>, MachineOf<Nvidia>>;

using Menu = hpa::default_menu::with<hpa::kv_types<DType::f16, DType::bf16, DType::e4m3_ocp, DType::e4m3_fnuz, DType::i8>,
                                     hpa::head_sizes<64, 96, 128, 256>, hpa::block_sizes<8, 16, 32, 48, 64>, hpa::machine<Gpus>>;

/// By their makers' documents: bytes of LDS of a workgroup and of a compute unit, and those that a unit needs beside each workgroup's.
struct Chip {
  const char* name;
  Device device;
  int workgroup_bytes, unit_bytes, beside;
};
const std::vector<Chip> chips = {
    {"gfx90a", {Arch::gfx90a, 104}, 65536, 65536, 0},
    {"gfx942", {Arch::gfx942, 304}, 65536, 65536, 0},
    {"gfx950", {Arch::gfx950, 256}, 163840, 163840, 0},
    {"sm_80, A100", {Arch::sm80, 108}, 166912, 167936, 1024},
    {"sm_80, A30", {Arch::sm80, 56}, 166912, 167936, 1024},
    {"sm_86, A10", {Arch::sm86, 72}, 101376, 102400, 1024},
    {"sm_87", {Arch::sm80, 16, 166912}, 166912, 167936, 1024},
    {"sm_87 with sm_86's code", {Arch::sm80, 16, 101376}, 166912, 167936, 1024},
    {"sm_89, L4", {Arch::sm89, 58}, 101376, 102400, 1024},
    {"sm_89, L40S", {Arch::sm89, 142}, 101376, 102400, 1024},
    {"sm_90, H200", {Arch::sm90, 132}, 232448, 233472, 1024},
    {"sm_90 with sm_80's code", {Arch::sm90, 132, 166912}, 232448, 233472, 1024},
    {"sm_100, B200", {Arch::sm100, 148}, 232448, 233472, 1024},
    {"sm_120", {Arch::sm120, 188}, 101376, 102400, 1024},
};

DecodeShape shape_of(DType query, DType kv, int head_size, int gqa_ratio, int max_seqs) {
  DecodeShape shape;
  shape.query = shape.out = query, shape.kv = kv;
  shape.head_size = head_size;
  shape.num_kv_heads = 8, shape.num_heads = 8 * gqa_ratio;
  shape.max_seqs = max_seqs, shape.max_seq_len = 4096;
  return shape;
}

/// The kernel that decode() would launch: its shape, and the LDS that it takes.
struct Chosen {
  KernelShape shape;
  int lds_bytes = 0;
};
Chosen chosen_for(const DecodeShape& shape, const Device& device) {
  Chosen chosen;
  const bool fills = hpa::kernel::partition_rule(shape, device).fills_the_chip();
  Menu::dispatch(shape, [&](auto config) {
    using C = decltype(config);
    static_cast<void>(hpa::arch::dispatch_machine<Gpus>(device.arch, [&](auto machine) {
      using M = typename decltype(machine)::type;
      hpa::tuning::visit_kernel_shape<M, C>(device, hpa::tuning::rows_per_kv_head(shape), fills, [&](auto constant) {
        using Shaped = hpa::kernel::Shaped<C, decltype(constant)>;
        using Kernel =
            typename std::conditional_t<M::copies_to_lds, hpa::kernel::RingKernel<M, Shaped>, hpa::kernel::DecodeKernel<M, Shaped>>;
        chosen = {Kernel::shape, Kernel::lds_bytes};
      });
      return hpa::Verdict{};
    }));
  });
  return chosen;
}

bool fits(const Chip& chip, const Chosen& chosen) {
  return chosen.lds_bytes <= chip.workgroup_bytes &&
         chosen.shape.workgroups_per_unit * (chosen.lds_bytes + chip.beside) <= chip.unit_bytes;
}

/// Calls f(shape) for types, sizes, rows, features and batches.
template <class F>
void each_shape(F&& f) {
  for (const DType query : {DType::f16, DType::bf16})
    for (const DType kv : {query, DType::e4m3_ocp, DType::e4m3_fnuz, DType::i8})
      for (const int head_size : {64, 96, 128, 256})
        for (const int block_size : {8, 16, 32, 48, 64})
          for (const int gqa_ratio : {1, 4, 7, 8, 9, 16, 40})
            for (const int max_seqs : {1, 4, 16, 64, 300})
              for (const int rows : {1, 4})
                for (const bool features : {false, true}) {
                  DecodeShape shape = shape_of(query, kv, head_size, gqa_ratio, max_seqs);
                  shape.block_size = block_size;
                  shape.max_query_len = rows;
                  shape.sinks = features, shape.token_scales = features && kv == DType::i8;
                  f(shape);
                }
}

}  // namespace

TEST_CASE("a chip has the LDS that its maker says, whether the runtime was asked or not", "[shapes]") {
  for (const Chip& chip : chips) {
    INFO(chip.name);
    CHECK(hpa::lds_bytes(chip.device.arch) ==
          (chip.device.lds_bytes == 0 ? chip.workgroup_bytes : hpa::lds_bytes(chip.device.arch)));
    CHECK(chip.device.lds() <= chip.workgroup_bytes);
  }
  CHECK(hpa::arch_of_capability(8, 0) == Arch::sm80);
  CHECK(hpa::arch_of_capability(8, 6) == Arch::sm86);
  CHECK(hpa::arch_of_capability(8, 7) == Arch::sm80);
  CHECK(hpa::arch_of_capability(8, 9) == Arch::sm89);
  CHECK(hpa::arch_of_capability(9, 0) == Arch::sm90);
  CHECK(hpa::arch_of_capability(10, 3) == Arch::sm100);
  CHECK(hpa::arch_of_capability(12, 0) == Arch::sm120);
  CHECK(hpa::arch::lds_bytes_of_pass(800) == 166912);
  CHECK(hpa::arch::lds_bytes_of_pass(860) == 101376);
  CHECK(hpa::arch::lds_bytes_of_pass(900) == 232448);
  CHECK(hpa::arch::lds_bytes_of_pass(1210) == 101376);
}

TEST_CASE("what check accepts has a kernel that fits the chip, and what it refuses for its shape has none", "[shapes]") {
  for (const Chip& chip : chips) {
    INFO(chip.name);
    int accepted = 0, missing = 0, too_large = 0, unfit_rows = 0, refused_with_kernel = 0, of_other_chips = 0, not_as_said = 0;
    each_shape([&](const DecodeShape& shape) {
      const Chosen chosen = chosen_for(shape, chip.device);
      if (!hpa::check<Menu>(shape, chip.device)) {
        refused_with_kernel += bool(chosen.shape);
        return;
      }
      ++accepted;
      missing += !chosen.shape || chosen.lds_bytes == 0;
      const KernelShape said = hpa::decode_kernel_shape<Menu>(shape, chip.device);
      not_as_said += said.waves != chosen.shape.waves || said.stages != chosen.shape.stages ||
                     said.workgroups_per_unit != chosen.shape.workgroups_per_unit ||
                     said.rows_per_pass != chosen.shape.rows_per_pass;
      too_large += !fits(chip, chosen) || chosen.lds_bytes > chosen.shape.lds_bytes;
      unfit_rows += chosen.shape.rows_per_pass <= 0;
      of_other_chips += chosen.shape.chip_lds_bytes > chip.device.lds();
    });
    CHECK(accepted > 2000);
    CHECK(missing == 0);
    CHECK(too_large == 0);
    CHECK(unfit_rows == 0);
    CHECK(refused_with_kernel == 0);
    CHECK(of_other_chips == 0);
    CHECK(not_as_said == 0);
  }
}

TEST_CASE("chips with less LDS get kernels with fewer waves, not those of sm_90", "[shapes]") {
  const Chip& a100 = chips[3];
  const DecodeShape few = shape_of(DType::bf16, DType::bf16, 128, 4, 4);
  REQUIRE(hpa::check<Menu>(few, a100.device));
  const Chosen on_a100 = chosen_for(few, a100.device), on_h200 = chosen_for(few, {Arch::sm90, 132});
  CHECK(on_h200.lds_bytes == 199808);
  CHECK(!fits(a100, on_h200));  // and so a launch would fail
  CHECK(fits(a100, on_a100));
  CHECK(on_a100.shape.waves == 6);
  const Chip l40s{"sm_89", {Arch::sm89, 128}, 101376, 102400, 1024};
  DecodeShape many = shape_of(DType::bf16, DType::bf16, 64, 4, 64);
  CHECK(!fits(l40s, chosen_for(many, {Arch::sm90, 128})));
  CHECK(fits(l40s, chosen_for(many, l40s.device)));
  many.sinks = true;
  CHECK(fits(l40s, chosen_for(many, l40s.device)));
  DecodeShape scales = shape_of(DType::bf16, DType::i8, 128, 4, 4);
  scales.token_scales = true;
  CHECK(chosen_for(scales, {Arch::sm90, 132}).lds_bytes > 166912);
  CHECK(fits(a100, chosen_for(scales, a100.device)));
}

TEST_CASE("a refusal names the size and the chip", "[shapes]") {
  const auto why = [](const DecodeShape& shape, Arch arch) {
    const hpa::Verdict verdict = hpa::check<Menu>(shape, {arch, 100});
    return std::string(verdict.field) + ": " + verdict.why;
  };
  DecodeShape shape = shape_of(DType::f16, DType::f16, 96, 4, 4);
  CHECK(why(shape, Arch::gfx942) == "head_size: no kernel shape for head size 96 on gfx942");
  CHECK(why(shape, Arch::sm86) == "head_size: no kernel shape for head size 96 on sm_86");
  shape.head_size = 128, shape.block_size = 48;
  CHECK(why(shape, Arch::gfx90a) == "block_size: no kernel shape for blocks of 48 on gfx90a");
  CHECK(hpa::check<Menu>(shape, {Arch::sm90, 100}));
}

TEST_CASE("cuts and kernels are of one mind about how many workgroups a unit has", "[shapes]") {
  for (const Chip& chip : chips)
    for (const int head_size : {64, 128})
      for (const bool fills : {false, true}) {
        INFO(chip.name << ", head size " << head_size << (fills ? ", rows fill the chip" : ""));
        const hpa::tuning::CutRule rule = hpa::tuning::cut_rule(chip.device);
        const KernelShape shape =
            hpa::tuning::kernel_shape_of<Machines<Cdna, Nvidia>>(chip.device, {head_size, head_size, 16, 4}, fills);
        CHECK(shape.workgroups_per_unit == (fills ? rule.workgroups_per_unit : rule.latency_workgroups_per_unit));
        CHECK(shape.resident_workgroups == shape.workgroups_per_unit);
      }
}
