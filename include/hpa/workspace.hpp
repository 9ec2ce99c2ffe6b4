// workspace_bytes(): how much device memory plan() and decode() need.
#pragma once

#include <cstddef>

#include "hpa/check.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {

/// Bytes of workspace that are enough on this device for plan() and decode() of this shape, and of every shape that differs from it in
/// smaller max_seqs, max_query_len, max_seq_len or max_total_kv_tokens alone: an engine that makes a shape for each batch size
/// allocates once, for its largest. Pure; lengths never enter; larger caps never give fewer bytes. 0 when check() says no.
///
/// A smaller workspace is refused only where the call's own shape needs more: plan() and decode() do not ask for what other shapes
/// need. Shapes that differ in heads, types or Split have sizes of their own; one workspace for several of them has the largest.
template <class Menu = default_menu>
std::size_t workspace_bytes(const DecodeShape& shape, const Device& device) {
  return check<Menu>(shape, device) ? kernel::largest_bytes(shape, device) : 0;
}

/// workspace_bytes() for plan_with and decode_with.
template <class Config, class Machine = arch::DefaultMachine>
std::size_t workspace_bytes_with(const DecodeShape& shape, const Device& device) {
  if (!check<menu_of<Config, Machine>>(shape, device)) return 0;
  if (Config::partition_tokens > 0 && shape.split != Split::by_length) return 0;
  const kernel::PartitionRule rule = kernel::partition_rule(shape, device, Config::partition_tokens);
  return kernel::max_partials(shape, rule) > detail::max_partitions
             ? 0
             : kernel::largest_bytes(shape, device, Config::partition_tokens);
}

}  // namespace HPA_PLATFORM
}  // namespace hpa
