// The machines that README's table of what is supported speaks of: those of all platforms at once, for rules that are asked on one.
#pragma once

#include <initializer_list>

#include "hpa/check.hpp"

namespace hpa::support_table {

struct Machines {
  static constexpr bool runs_on(Arch arch) { return arch != Arch::gfx11 && arch != Arch::gfx12; }
};

/// Whether a platform's own machine runs on the same of its chips.
template <class Machine>
constexpr bool agrees(std::initializer_list<Arch> chips) {
  for (const Arch chip : chips)
    if (Machine::runs_on(chip) != Machines::runs_on(chip)) return false;
  return true;
}

}  // namespace hpa::support_table
