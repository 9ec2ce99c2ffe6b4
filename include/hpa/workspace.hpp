// workspace_bytes(): how much device memory plan() and decode() need.
#pragma once

#include <cstddef>

#include "hpa/check.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {

/// Bytes of workspace that plan() and decode() of this shape need on this device. Pure; lengths never enter. 0 when check() says no.
///
/// Every shape has its own size, and fewer sequences can need more: rows that do not fill the chip are cut. An engine that shares
/// one workspace between shapes takes the largest of their sizes.
template <class Menu = default_menu>
std::size_t workspace_bytes(const DecodeShape& shape, const Device& device) {
  return check<Menu>(shape, device) ? kernel::layout_of(shape, kernel::partition_rule(shape, device)).bytes : 0;
}

/// workspace_bytes() for plan_with and decode_with.
template <class Config, class Machine = arch::DefaultMachine>
std::size_t workspace_bytes_with(const DecodeShape& shape, const Device& device) {
  if (!check<menu_of<Config, Machine>>(shape, device)) return 0;
  if (Config::partition_tokens > 0 && shape.split != Split::by_length) return 0;
  const kernel::PartitionRule rule = kernel::partition_rule(shape, device, Config::partition_tokens);
  return kernel::max_slots(shape, rule) > detail::max_partitions ? 0 : kernel::layout_of(shape, rule).bytes;
}

}  // namespace HPA_PLATFORM
}  // namespace hpa
