// How sequences are cut on a device, and how a workspace is divided into areas.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hpa/arch/arch.hpp"
#include "hpa/args.hpp"
#include "hpa/kernel/plan_records.hpp"
#include "hpa/kernel/row_state.hpp"
#include "hpa/status.hpp"
#include "hpa/tuning/choose.hpp"

namespace hpa {

inline namespace HPA_PLATFORM {
namespace kernel {

/// The rule by which plan() cuts sequences of a shape on a device. `partition_tokens`: tokens of every partition; 0 = the library
/// chooses.
constexpr PartitionRule partition_rule(const DecodeShape& shape, const Device& device, int partition_tokens = 0) {
  const tuning::CutRule cut = tuning::cut_rule(device);
  const std::int64_t sequence_heads = std::int64_t{shape.max_seqs} * shape.num_kv_heads;
  PartitionRule rule;
  rule.fixed = partition_tokens;
  rule.compute_units = device.compute_units;
  rule.sequence_heads =
      sequence_heads < device.compute_units ? int(sequence_heads) : device.compute_units;  // more make no difference
  if (!rule.fills_the_chip())
    rule.fill_fraction = std::uint32_t(ceil_div(std::int64_t{rule.sequence_heads} << 32, rule.compute_units));
  rule.whole_sequence_tokens = cut.whole_sequence_tokens;
  rule.long_partition = cut.long_partition;
  rule.min_partition = cut.min_partition;
  const std::int64_t rows_per_head = std::int64_t{shape.gqa_ratio()} * shape.max_query_len;
  const int rows_per_pass = rows_per_head < cut.rows_per_pass ? int(rows_per_head) : cut.rows_per_pass;
  while (rule.min_partition < cut.min_tokens_per_row * rows_per_pass) rule.min_partition *= 2;
  rule.min_saving = cut.min_saving;
  if (shape.split == Split::balanced) {
    const std::int64_t columns = shape.num_kv_heads * ceil_div(rows_per_head, cut.rows_per_pass);
    const std::int64_t resident =
        std::int64_t{device.compute_units} * (rule.fills_the_chip() ? cut.workgroups_per_unit : cut.latency_workgroups_per_unit);
    rule.shares = resident > columns ? int(resident / columns) : 1;
    rule.sequence_cost = cut.sequence_cost;
  }
  return rule;
}

/// Sizes and byte offsets of the areas of a workspace: header, items, split rows, shares, states, partials. They follow from
/// capacities alone.
struct WorkspaceLayout {
  std::int64_t max_items = 0, max_partials = 0, max_split_rows = 0;
  std::size_t items = 0, split_rows = 0, shares = 0, states = 0, partials = 0, bytes = 0;
};

/// Items that a plan of this shape can have at most.
constexpr std::int64_t max_items(const DecodeShape& shape, const PartitionRule& rule) {
  const std::int64_t seqs = shape.max_seqs;
  if (rule.shares > 0) return seqs + rule.shares - 1;
  const std::int64_t by_length = seqs * rule.max_partitions(shape.max_seq_len),
                     by_total = seqs + shape.total_kv_tokens() / rule.min_tokens();
  return by_length < by_total ? by_length : by_total;
}

/// Partials that a plan of this shape can have at most: one for each query row of each item.
constexpr std::int64_t max_partials(const DecodeShape& shape, const PartitionRule& rule) {
  return max_items(shape, rule) * shape.max_query_len;
}

constexpr WorkspaceLayout layout_of(const DecodeShape& shape, const PartitionRule& rule) {
  const std::int64_t seqs = shape.max_seqs;
  WorkspaceLayout layout;
  layout.max_items = max_items(shape, rule);
  if (rule.shares > 0) {  // every cut is the border of two shares
    const std::int64_t cuts = shape.max_seq_len < 2 * rule.min_partition ? 0 : rule.shares - 1;
    layout.max_split_rows = (seqs < cuts ? seqs : cuts) * shape.max_query_len;
    layout.max_partials = (layout.max_items < 2 * cuts ? layout.max_items : 2 * cuts) * shape.max_query_len;
  } else if (rule.max_partitions(shape.max_seq_len) > 1) {
    layout.max_partials = max_partials(shape, rule);
    layout.max_split_rows = (seqs < layout.max_items / 2 ? seqs : layout.max_items / 2) * shape.max_query_len;
  }
  const auto after = [](std::size_t offset, std::int64_t count, std::size_t size) {
    return (offset + std::size_t(count) * size + 255) / 256 * 256;
  };
  layout.items = after(0, 1, sizeof(PlanHeader));
  layout.split_rows = after(layout.items, layout.max_items, sizeof(Item));
  layout.shares = after(layout.split_rows, layout.max_split_rows, sizeof(SplitRow));
  layout.states = after(layout.shares, rule.shares > 0 ? rule.shares + 1 : 0, sizeof(std::int32_t));
  layout.partials = after(layout.states, layout.max_partials * shape.num_heads, sizeof(RowState));
  layout.bytes = after(layout.partials, layout.max_partials * shape.num_heads * shape.head_size_of_v(), sizeof(float));
  return layout;
}

/// Bytes that hold the layout of every shape with as many sequences and query rows or fewer. Those can need more than the shape itself:
/// rows that do not fill the chip are cut finer, and so are rows of fewer query rows. So the size never falls as a cap grows.
constexpr std::size_t largest_bytes(DecodeShape shape, const Device& device, int partition_tokens = 0) {
  const int max_seqs = shape.max_seqs, max_query_len = shape.max_query_len;
  const int not_filling = (device.compute_units - 1) / shape.num_kv_heads;  // sequences whose rows do not fill the chip, at most
  std::size_t most = 0;
  for (shape.max_query_len = 1; shape.max_query_len <= max_query_len; ++shape.max_query_len) {
    const auto take = [&](int seqs) {
      shape.max_seqs = seqs;
      const std::size_t bytes = layout_of(shape, partition_rule(shape, device, partition_tokens)).bytes;
      if (bytes > most) most = bytes;
    };
    for (int seqs = 1; seqs < max_seqs && seqs <= not_filling; ++seqs) take(seqs);
    take(max_seqs);  // among those that fill the chip more sequences need more
  }
  return most;
}

/// The areas of a workspace as pointers.
struct CarvedWorkspace {
  PlanHeader* header;
  Item* items;
  SplitRow* split_rows;
  std::int32_t* shares;  // nullptr by length
  RowState* states;
  float* partials;
};

inline CarvedWorkspace carve(const Workspace& workspace, const WorkspaceLayout& layout) {
  auto* const base = static_cast<std::byte*>(workspace.data);
  return {reinterpret_cast<PlanHeader*>(base),
          reinterpret_cast<Item*>(base + layout.items),
          reinterpret_cast<SplitRow*>(base + layout.split_rows),
          layout.shares == layout.states ? nullptr : reinterpret_cast<std::int32_t*>(base + layout.shares),
          reinterpret_cast<RowState*>(base + layout.states),
          reinterpret_cast<float*>(base + layout.partials)};
}

inline Verdict check_workspace(const Workspace& workspace, std::size_t needed) {
  if (workspace.data == nullptr) return {Status::invalid_argument, "workspace", "data must not be null"};
  if (reinterpret_cast<std::uintptr_t>(workspace.data) % 16 != 0)
    return {Status::invalid_argument, "workspace", "data must be 16-byte aligned"};
  if (workspace.bytes < needed)
    return {Status::workspace_too_small, "workspace", "bytes is less than workspace_bytes(shape, device)"};
  return {};
}

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
