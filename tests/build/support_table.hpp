// The machines that README's table of what is supported speaks of: those of all platforms at once, for rules that are asked on one.
#pragma once

#include <initializer_list>

#include "hpa/check.hpp"

namespace hpa::support_table {

using Machines = arch::Machines<arch::Cdna, arch::Nvidia, arch::HostMachine<arch::Cdna>>;

/// Whether a platform's own machine runs on the same of its chips.
template <class Machine>
constexpr bool agrees(std::initializer_list<Arch> chips) {
  for (const Arch chip : chips)
    if (arch::runs_on<Machine>(chip) != arch::runs_on<Machines>(chip)) return false;
  return true;
}

}  // namespace hpa::support_table
