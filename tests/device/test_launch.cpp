// What cannot run on a device is refused before it is launched; what the runtime refuses comes back in the runtime's own words.
#include <string>

#include "catch.hpp"
#include "paged_case.hpp"

using namespace hpa;

TEST_CASE("a device without kernels is refused by name, and so is what the menu has instead") {
  DecodeShape shape;
  shape.num_heads = shape.num_kv_heads = 1;
  shape.max_seqs = 1;
  shape.max_seq_len = 16;
  for (const Arch arch : {Arch::gfx11, Arch::gfx12}) {  // of which no machine has kernels
    const Verdict verdict = hpa::check(shape, Device{arch, 48});
    CAPTURE(verdict.why);
    CHECK(verdict.status == Status::unsupported);
    CHECK(verdict.field == std::string("device"));
    CHECK(hpa::workspace_bytes(shape, Device{arch, 48}) == 0);
    CHECK(std::string(verdict.why).find(hpa::name(arch)) != std::string::npos);
    Device here;
    REQUIRE(hpa::current_device(&here));
    CHECK(std::string(verdict.why).find(hpa::name(here.arch)) != std::string::npos);
  }
}

#if defined(HPA_PLATFORM_HIP)
TEST_CASE("the architecture is read from the runtime's name of the chip") {
  const auto named = [](const char* gcn_name) {
    Arch arch{};
    return hpa::arch::arch_named(gcn_name, &arch) ? hpa::name(arch) : "none";
  };
  CHECK(named("gfx90a") == std::string("gfx90a"));
  CHECK(named("gfx90a:sramecc+:xnack-") == std::string("gfx90a"));
  CHECK(named("gfx942:sramecc+:xnack-") == std::string("gfx942"));
  CHECK(named("gfx950:sramecc+:xnack-") == std::string("gfx950"));
  CHECK(named("gfx1100") == std::string("gfx11"));
  CHECK(named("gfx1151") == std::string("gfx11"));
  CHECK(named("gfx1201") == std::string("gfx12"));
  for (const char* const other : {"gfx900", "gfx906:sramecc-", "gfx908", "gfx1030", ""}) CHECK(named(other) == std::string("none"));
}
#endif

#if !defined(HPA_PLATFORM_HOST)

// What each runtime calls an empty grid: CUDA's launch with attributes has a word of its own.
#if defined(HPA_PLATFORM_HIP)
#define GPU(name) hip##name
constexpr hipError_t empty_grid = hipErrorInvalidConfiguration;
#else
#define GPU(name) cuda##name
constexpr cudaError_t empty_grid = cudaErrorInvalidValue;
#endif

namespace {

/// A call that all rules accept.
Verdict run_small_case() {
  hpa::test::CaseSpec spec;
  spec.shape.num_heads = spec.shape.num_kv_heads = 1;
  spec.seq_lens = {20};
  hpa::test::PagedCase paged(spec);
  Device device;
  REQUIRE(hpa::current_device(&device));
  return paged.run(hpa::workspace_bytes(paged.shape(), device), {},
                   [](auto&&... arguments) { return hpa::paged_attention(arguments...); });
}

}  // namespace

TEST_CASE("a launch that the runtime refuses comes back in its own words, and the next call works") {
  using Plan = hpa::kernel::PlanKernel<hpa::default_menu::Machine, true>;
  const Verdict verdict = hpa::arch::launch<Plan>({0, 1}, Plan::Params{}, hpa::Stream{});
  CHECK(verdict.status == Status::device_error);
  CHECK(verdict.why == std::string(GPU(GetErrorString)(empty_grid)));
  CHECK(GPU(GetLastError)() == GPU(Success));
  CHECK(run_small_case());
}

TEST_CASE("an error that somebody else left behind is not reported as the library's") {
  REQUIRE(GPU(SetDevice)(-1) != GPU(Success));
  CHECK(run_small_case());
}

#endif
