// The calls that a source of the program makes, the same text on every platform.
#pragma once

#include "hpa/check.hpp"
#include "hpa/device.hpp"
#include "hpa/workspace.hpp"
#include "says.hpp"

static Says ask() {
  hpa::Device device;
  if (!hpa::current_device(&device)) return {};
  const hpa::DecodeShape shape = plain_shape();
  const hpa::Device other{device.arch == hpa::Arch::host ? hpa::Arch::gfx942 : hpa::Arch::host, 8};
  return {device.arch, device.compute_units, bool(hpa::check(shape, device)), hpa::check(shape, other).why,
          hpa::workspace_bytes(shape, device)};
}
