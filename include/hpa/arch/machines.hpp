// Which machines there are, by name alone: as much as host code needs to choose one. What a machine must have: machine.hpp.
#pragma once

#include "hpa/arch/arch.hpp"

namespace hpa::arch {

struct Cdna;    // cdna/machine.hpp
struct Nvidia;  // nvidia/machine.hpp
/// Emulates the machine `Of` on the CPU: its wave width, its lane maps (host/machine.hpp).
template <class Of>
struct HostMachine;

/// What is known of a machine before its code is: the library's own have a specialisation each, others say it themselves.
template <class Machine>
struct Facts {
  static constexpr int width = Machine::width;
  static constexpr bool runs_on(Arch arch) { return Machine::runs_on(arch); }
};
template <>
struct Facts<Cdna> {
  static constexpr int width = 64;  // lanes of a wave
  static constexpr bool runs_on(Arch arch) { return arch == Arch::gfx90a || arch == Arch::gfx942 || arch == Arch::gfx950; }
};
template <>
struct Facts<Nvidia> {
  static constexpr int width = 32;
  static constexpr bool runs_on(Arch arch) { return arch == Arch::sm80 || arch == Arch::sm90; }
};
template <class Of>
struct Facts<HostMachine<Of>> {
  static constexpr int width = Facts<Of>::width;
  static constexpr bool runs_on(Arch arch) { return arch == Arch::host; }
};

#if defined(HPA_PLATFORM_HIP)
using DefaultMachine = Cdna;
#elif defined(HPA_PLATFORM_CUDA)
using DefaultMachine = Nvidia;
#else
using DefaultMachine = HostMachine<Cdna>;
#endif

}  // namespace hpa::arch
