// The machines that the device tests run on: a device's own, or on the host both emulated ones.
#pragma once

#include <tuple>

#include "hpa/menu.hpp"

namespace hpa::test {

#if defined(HPA_PLATFORM_HOST)
using Machines = std::tuple<arch::HostMachine<64>, arch::HostMachine<32>>;  // CDNA's lanes, NVIDIA's lanes
#else
using Machines = std::tuple<arch::DefaultMachine>;
#endif

template <class Machine>
using full_menu = menu_for<axis<DType::f16, DType::bf16>, axis<64, 128>, axis<16, 32>, axis<false, true>, Machine>;

}  // namespace hpa::test
