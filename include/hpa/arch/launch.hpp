// The runtime behind the machines: which device is current, how a kernel is launched, how a few bytes come back.
#pragma once

#include <cstring>

#include "hpa/arch/arch.hpp"
#include "hpa/status.hpp"

#include "hpa/arch/host.hpp"

namespace hpa {

namespace arch {
using DefaultMachine = HostMachine<64>;

/// Workgroups in x and y.
struct Grid {
  int x, y;
};

template <class Kernel>
Verdict launch(Grid grid, const typename Kernel::Params& params, Stream stream) {
  return run_on_host<Kernel>(grid.x, grid.y, params, stream.threads);
}

/// Copies `bytes` of device memory to the host, after all that the stream holds.
inline Verdict read_back(void* to, const void* from, std::size_t bytes, Stream) {
  std::memcpy(to, from, bytes);
  return {};
}
}  // namespace arch

/// The device that calls of this thread run on. The host counts as eight compute units, whatever the machine has, so that a row is
/// cut the same way everywhere.
inline Verdict current_device(Device* device) {
  if (device == nullptr) return {Status::invalid_argument, "device", "must not be null"};
  *device = {Arch::host, 8};
  return {};
}

}  // namespace hpa
