// A menu with several machines of one platform: the device chooses at run time.
#include <atomic>
#include <string>

#include "calls.hpp"

using hpa::Arch;
using hpa::Device;
using hpa::DType;
using hpa::Status;
using hpa::Verdict;
using hpa::arch::Cdna;
using hpa::arch::HostMachine;
using hpa::arch::Nvidia;
using hpa::test::CaseSpec;
using hpa::test::one_menu;
using hpa::test::PagedCase;
using hpa::test::run_paged_attention;
using hpa::test::small_case;
using hpa::test::tolerance_of;

namespace {

/// An emulated machine for one chip alone, which counts its waves.
template <class Of, Arch Chip>
struct MachineFor : HostMachine<Of> {
  static constexpr bool runs_on(Arch arch) { return arch == Chip; }
  inline static std::atomic<int> waves{0};
  struct Wave : HostMachine<Of>::Wave {
    Wave(hpa::arch::HostWorkgroup& workgroup, int index) : HostMachine<Of>::Wave(workgroup, index) { ++waves; }
  };
};
using First = MachineFor<Cdna, Arch::host>;
using Second = MachineFor<Nvidia, Arch::sm90>;
using Both = hpa::arch::Machines<First, Second>;
using menu = one_menu<Both>;

/// The host counts as another chip while this lives.
class Counts {
 public:
  explicit Counts(Arch as) { hpa::arch::host_device.arch = as; }
  ~Counts() { hpa::arch::host_device.arch = Arch::host; }
};

std::string refusal_on(Arch arch) {
  const Verdict verdict = hpa::check<menu>(PagedCase(small_case(DType::f16, 4, 2, {1})).shape(), Device{arch, 8});
  return std::string(verdict.field) + ": " + verdict.why;
}

}  // namespace

TEST_CASE("a device gets the first machine that runs on it", "[machines]") {
  const auto width_on = [](Arch arch) {
    int width = 0;
    const Verdict verdict = hpa::arch::dispatch_machine<Both>(arch, [&](auto machine) {
      width = decltype(machine)::type::width;
      return Verdict{};
    });
    CHECK(bool(verdict) == (width != 0));
    return width;
  };
  CHECK(width_on(Arch::host) == 64);
  CHECK(width_on(Arch::sm90) == 32);
  CHECK(width_on(Arch::gfx942) == 0);
  using Twice = hpa::arch::Machines<HostMachine<Nvidia>, HostMachine<Cdna>>;
  CHECK(hpa::arch::dispatch_machine<Twice>(Arch::host, [](auto machine) {
    return decltype(machine)::type::width == 32 ? Verdict{} : Verdict{Status::unsupported, "", ""};
  }));
  CHECK(hpa::arch::runs_on<Both>(Arch::sm90));
  CHECK(!hpa::arch::runs_on<Both>(Arch::gfx942));
  CHECK(hpa::arch::runs_on<HostMachine<Cdna>>(Arch::host));
}

TEST_CASE("one menu serves two machines, each on its own chip", "[machines]") {
  for (const Arch chip : {Arch::host, Arch::sm90}) {
    const Counts counts(chip);
    INFO("the device is " << name(chip));
    First::waves = Second::waves = 0;
    PagedCase paged(small_case(DType::f16, 6, 2, {1, 37, 300, 0}));
    REQUIRE(run_paged_attention<menu>(paged));
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
    CHECK((First::waves > 0) == (chip == Arch::host));
    CHECK((Second::waves > 0) == (chip == Arch::sm90));
  }
}

TEST_CASE("a chip that none of a menu's machines runs on is refused by name", "[machines]") {
  CHECK(refusal_on(Arch::gfx942) == "device: the device is gfx942; this build has kernels for sm_90, host");
  const Counts counts(Arch::gfx942);
  First::waves = Second::waves = 0;
  PagedCase paged(small_case(DType::f16, 6, 2, {1}));
  CHECK(paged.run(4096, {}, [](auto&&... arguments) { return hpa::paged_attention<menu>(arguments...); }).field ==
        std::string("device"));
  CHECK(First::waves + Second::waves == 0);
}
