// The machines by name, as far as host code needs them to choose one. What a machine must have: machine.hpp.
#pragma once

#include <utility>

#include "hpa/arch/arch.hpp"
#include "hpa/status.hpp"
#include "hpa/tuning/cdna.hpp"
#include "hpa/tuning/host.hpp"
#include "hpa/tuning/nvidia.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

struct Cdna;    // cdna/machine.hpp
struct Nvidia;  // nvidia/machine.hpp
/// Emulates the machine `Of` on the CPU: its wave width, its lane maps (host/machine.hpp).
template <class Of>
struct HostMachine;

/// What is known of a machine without its code. The library's own machines have a specialisation each; other machines say it
/// themselves.
template <class Machine>
struct Facts {
  static constexpr int width = Machine::width;
  static constexpr bool runs_on(Arch arch) { return Machine::runs_on(arch); }
  using Tuning = typename Machine::Tuning;  // the shapes of its kernels
};
template <>
struct Facts<Cdna> {
  static constexpr int width = 64;  // lanes of a wave
  static constexpr bool runs_on(Arch arch) { return arch == Arch::gfx90a || arch == Arch::gfx942 || arch == Arch::gfx950; }
  using Tuning = tuning::Cdna;
};
template <>
struct Facts<Nvidia> {
  static constexpr int width = 32;
  static constexpr bool runs_on(Arch arch) {
    return arch == Arch::sm80 || arch == Arch::sm86 || arch == Arch::sm89 || arch == Arch::sm90 || arch == Arch::sm100 ||
           arch == Arch::sm120;
  }
  using Tuning = tuning::Nvidia;
};
template <class Of>
struct Facts<HostMachine<Of>> {
  static constexpr int width = Facts<Of>::width;
  static constexpr bool runs_on(Arch arch) { return arch == Arch::host; }
  using Tuning = tuning::Host<typename Facts<Of>::Tuning>;
};

#if defined(HPA_PLATFORM_HIP)
using DefaultMachine = Cdna;
#elif defined(HPA_PLATFORM_CUDA)
using DefaultMachine = Nvidia;
#else
using DefaultMachine = HostMachine<Cdna>;
#endif

/// Several machines of one platform, for programs that serve them all. A device gets the first that runs on it.
template <class... List>
struct Machines {};

/// Stands for a machine where a value is wanted.
template <class M>
struct MachineTag {
  using type = M;
};

namespace machines {
template <class F>
Verdict dispatch(Machines<>, Arch, F&&) {
  return {Status::unsupported, "device", "no machine of this build runs on it"};
}
template <class First, class... Rest, class F>
Verdict dispatch(Machines<First, Rest...>, Arch arch, F&& f) {
  return Facts<First>::runs_on(arch) ? f(MachineTag<First>{}) : dispatch(Machines<Rest...>{}, arch, std::forward<F>(f));
}
template <class... List>
constexpr bool one_runs_on(Machines<List...>, Arch arch) {
  return (Facts<List>::runs_on(arch) || ...);
}

/// One machine is a list of one.
template <class M>
struct ListOf {
  using type = Machines<M>;
};
template <class... List>
struct ListOf<Machines<List...>> {
  using type = Machines<List...>;
};
}  // namespace machines

/// Whether a machine, or one of several Machines, runs on a chip.
template <class M>
constexpr bool runs_on(Arch arch) {
  return machines::one_runs_on(typename machines::ListOf<M>::type{}, arch);
}

/// f(MachineTag<..>{}) -> Verdict, for the machine M or for that one of several Machines that a device gets. The one place where a machine
/// is chosen at run time.
template <class M, class F>
Verdict dispatch_machine(Arch arch, F&& f) {
  return machines::dispatch(typename machines::ListOf<M>::type{}, arch, std::forward<F>(f));
}

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
