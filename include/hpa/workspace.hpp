// workspace_bytes(), and how a workspace is carved.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hpa/args.hpp"
#include "hpa/kernel/work_list.hpp"
#include "hpa/status.hpp"

namespace hpa {

namespace kernel {

/// The rule by which plan cuts rows of this shape on this device. `partition_tokens` = 0: the library's own.
constexpr PartitionRule partition_rule(const DecodeShape& shape, const Device& device, int partition_tokens = 0) {
  const Tuning tuned = tuning(device.arch);
  const std::int64_t rows = std::int64_t{shape.max_seqs} * shape.num_kv_heads;
  PartitionRule rule;
  rule.fixed = partition_tokens;
  rule.compute_units = device.compute_units;
  rule.rows = rows < device.compute_units ? int(rows) : device.compute_units;  // more rows make no difference
  rule.whole_row_tokens = tuned.whole_row_tokens;
  rule.long_partition = tuned.long_partition;
  rule.min_partition = tuned.min_partition;
  const std::int64_t rows_a_head = std::int64_t{shape.gqa_ratio()} * shape.max_query_len;
  const int rows_a_pass = rows_a_head < 16 ? int(rows_a_head) : 16;
  while (rule.min_partition < tuned.min_tokens_a_row * rows_a_pass) rule.min_partition *= 2;
  rule.min_saving = tuned.min_saving;
  return rule;
}

/// Byte offsets of a workspace's parts. Sized by capacities alone: header, items, split rows, partial states, partial outputs.
struct WorkspaceLayout {
  std::int64_t max_items = 0, max_slots = 0, max_split_rows = 0;
  std::size_t items = 0, split_rows = 0, states = 0, partials = 0, bytes = 0;
};

/// Items that a plan of this shape can have at most.
constexpr std::int64_t max_items(const DecodeShape& shape, const PartitionRule& rule) {
  const std::int64_t seqs = shape.max_seqs;
  const std::int64_t by_length = seqs * rule.max_partitions(shape.max_seq_len), by_total = seqs + shape.total_kv_tokens() / rule.min_tokens();
  return by_length < by_total ? by_length : by_total;
}

/// Partial results that it can have at most: one for every query row of every item.
constexpr std::int64_t max_slots(const DecodeShape& shape, const PartitionRule& rule) {
  return max_items(shape, rule) * shape.max_query_len;
}

constexpr WorkspaceLayout layout_of(const DecodeShape& shape, const PartitionRule& rule) {
  const std::int64_t seqs = shape.max_seqs, parts = rule.max_partitions(shape.max_seq_len);
  WorkspaceLayout layout;
  layout.max_items = max_items(shape, rule);
  layout.max_slots = parts > 1 ? max_slots(shape, rule) : 0;
  layout.max_split_rows = parts > 1 ? (seqs < layout.max_items / 2 ? seqs : layout.max_items / 2) * shape.max_query_len : 0;
  const auto after = [](std::size_t offset, std::int64_t count, std::size_t size) {
    return (offset + std::size_t(count) * size + 255) / 256 * 256;
  };
  layout.items = after(0, 1, sizeof(PlanHeader));
  layout.split_rows = after(layout.items, layout.max_items, sizeof(Item));
  layout.states = after(layout.split_rows, layout.max_split_rows, sizeof(SplitRow));
  layout.partials = after(layout.states, layout.max_slots * shape.num_heads, sizeof(PartialState));
  layout.bytes = after(layout.partials, layout.max_slots * shape.num_heads * shape.head_size_of_v(), sizeof(float));
  return layout;
}

/// The parts of a workspace as pointers.
struct CarvedWorkspace {
  PlanHeader* header;
  Item* items;
  SplitRow* split_rows;
  PartialState* states;
  float* partials;
};

inline CarvedWorkspace carve(const Workspace& workspace, const WorkspaceLayout& layout) {
  auto* const base = static_cast<std::byte*>(workspace.data);
  return {reinterpret_cast<PlanHeader*>(base), reinterpret_cast<Item*>(base + layout.items),
          reinterpret_cast<SplitRow*>(base + layout.split_rows), reinterpret_cast<PartialState*>(base + layout.states),
          reinterpret_cast<float*>(base + layout.partials)};
}

inline Verdict check_workspace(const Workspace& workspace, std::size_t needed) {
  if (workspace.data == nullptr) return {Status::invalid_argument, "workspace", "data must not be null"};
  if (reinterpret_cast<std::uintptr_t>(workspace.data) % 16 != 0)
    return {Status::invalid_argument, "workspace", "data must be 16-byte aligned"};
  if (workspace.bytes < needed) return {Status::workspace_too_small, "workspace", "bytes is less than workspace_bytes(shape, device)"};
  return {};
}

}  // namespace kernel
}  // namespace hpa
