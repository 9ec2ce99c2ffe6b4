// The rule table: what a shape must be for a menu to have a kernel for it on a device. Pure: touches no device.
#pragma once

#include <array>
#include <cstdint>

#include "hpa/device.hpp"
#include "hpa/kernel/workspace_layout.hpp"
#include "hpa/menu.hpp"
#include "hpa/rule_text.hpp"
#include "hpa/status.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {

namespace detail {

/// One line of the rule table: the shape passes when `holds` does.
struct Rule {
  Status status;
  const char* field;
  const char* why;  // nullptr: as `tell` has it
  bool (*holds)(const DecodeShape&, const Device&);
  const char* (*tell)(const DecodeShape&, const Device&) = nullptr;
  bool of_decode_alone = false;  // append and copy_blocks take any size

  const char* reason(const DecodeShape& shape, const Device& device) const { return why != nullptr ? why : tell(shape, device); }
};

inline constexpr int max_grid_yz = 65535;  // workgroups in y or z, of both makers' launches
inline constexpr std::int64_t max_partitions = 0x7fffffff;
inline constexpr const char* too_many_partitions = "more than 2^31 partitions: lower it, or max_seqs";
inline constexpr int max_query_rows = 16;  // of a sequence: a bit each in a tree mask, a pass each at a GQA ratio of 16

/// What a menu says to shapes that need features which no set on its axis has. Each is asked for together with those before it in
/// each_feature, the order of their rules: the field that is named is the first one that takes the shape out of the menu.
template <class Menu>
struct FeatureRules {
  using Sets = typename Menu::feature_sets;
  static constexpr const char* why = SetsText<Sets>::text.data;
  static constexpr bool allow(const DecodeShape& shape, Features one) {
    return !asks_for(shape, one) || Sets::smallest(needed(shape, one)) >= 0;
  }
};

/// The shape of the menu's kernel on a device.
template <class Menu>
constexpr tuning::KernelShape shape_on(const DecodeShape& shape, const Device& device, bool fills_the_chip) {
  return tuning::kernel_shape_of<typename Menu::Machine>(device, tuning::sizes_of(shape), fills_the_chip);
}

/// Rules in order; a rule may rely on those above it.
template <class Menu>
struct RuleTable {
  using S = const DecodeShape&;
  using D = const Device&;
  using Can = FeatureRules<Menu>;
  static constexpr Status bad = Status::invalid_argument, none = Status::unsupported;
  // An array that knows its size: nvcc loops over no other.
  static constexpr std::array rules = {
      Rule{bad, "num_heads", "must be positive", [](S s, D) { return s.num_heads > 0; }},
      Rule{bad, "num_kv_heads", "must be positive", [](S s, D) { return s.num_kv_heads > 0; }},
      Rule{bad, "num_kv_heads", "must divide num_heads", [](S s, D) { return s.num_heads % s.num_kv_heads == 0; }},
      Rule{bad, "head_size", "must be positive", [](S s, D) { return s.head_size > 0; }},
      Rule{bad, "head_size_v", "must be positive, or 0 for head_size", [](S s, D) { return s.head_size_v >= 0; }},
      Rule{bad, "block_size", "must be positive", [](S s, D) { return s.block_size > 0; }},
      Rule{bad, "max_seqs", "must be positive", [](S s, D) { return s.max_seqs > 0; }},
      Rule{bad, "max_query_len", "must be positive", [](S s, D) { return s.max_query_len > 0; }},
      Rule{bad, "max_seq_len", "must be positive", [](S s, D) { return s.max_seq_len > 0; }},
      Rule{bad, "max_total_kv_tokens", "must be positive, or 0 for max_seqs * max_seq_len",
           [](S s, D) { return s.max_total_kv_tokens >= 0; }},
      Rule{bad, "device", "compute_units must be positive", [](S, D d) { return d.compute_units > 0; }},
      Rule{none, "device", nullptr, [](S, D d) { return arch::runs_on<typename Menu::Machine>(d.arch); },
           [](S, D d) { return no_kernel_for<typename Menu::Machine>(d.arch); }},
      Rule{none, "query", AxisText<typename Menu::query_types>::text.data, [](S s, D) { return Menu::query_types::has(s.query); }},
      Rule{none, "kv", "16-bit KV must be of the query's type", [](S s, D) { return size_of(s.kv) == 1 || s.kv == s.query; }},
      Rule{none, "kv", AxisText<typename Menu::kv_types>::text.data, [](S s, D) { return Menu::kv_types::has(s.kv); }},
      Rule{none, "out", "must be the query's type or an FP8 one",
           [](S s, D) { return s.out == s.query || (size_of(s.out) == 1 && s.out != DType::i8); }},
      Rule{none, "out", Can::why, [](S s, D) { return Can::allow(s, Features::fp8_out); }},
      Rule{none, "layout", "only KvLayout::vllm", [](S s, D) { return s.layout == KvLayout::vllm; }},
      Rule{none, "head_size", AxisText<typename Menu::head_sizes>::text.data,
           [](S s, D) { return Menu::head_sizes::has(s.head_size); }},
      Rule{none, "head_size_v", "must equal head_size", [](S s, D) { return s.head_size_of_v() == s.head_size; }},
      Rule{none, "block_size", AxisText<typename Menu::block_sizes>::text.data,
           [](S s, D) { return Menu::block_sizes::has(s.block_size); }},
      Rule{none, "head_size", nullptr, [](S s, D d) { return shape_on<Menu>(s, d, true) && shape_on<Menu>(s, d, false); },
           [](S s, D d) { return no_shape_for<HeadSize, typename Menu::head_sizes>(s.head_size, d.arch); }, true},
      Rule{none, "block_size", nullptr, [](S s, D d) { return tuning::reads_blocks_of(shape_on<Menu>(s, d, true), s.block_size); },
           [](S s, D d) { return no_shape_for<BlockSize, typename Menu::block_sizes>(s.block_size, d.arch); }, true},
      Rule{none, "max_query_len", Can::why, [](S s, D) { return Can::allow(s, Features::query_rows); }},
      Rule{none, "max_query_len", "more than 16 query rows", [](S s, D) { return s.max_query_len <= max_query_rows; }},
      Rule{none, "alibi", Can::why, [](S s, D) { return Can::allow(s, Features::alibi); }},
      Rule{none, "sliding_window", Can::why, [](S s, D) { return Can::allow(s, Features::window); }},
      Rule{none, "soft_cap", Can::why, [](S s, D) { return Can::allow(s, Features::soft_cap); }},
      Rule{none, "sinks", Can::why, [](S s, D) { return Can::allow(s, Features::sinks); }},
      Rule{none, "tree_mask", Can::why, [](S s, D) { return Can::allow(s, Features::tree); }},
      Rule{none, "token_scales", Can::why, [](S s, D) { return Can::allow(s, Features::token_scales); }},
      Rule{bad, "tree_mask", "stands in place of causal order: causal must be set",
           [](S s, D) { return !s.tree_mask || s.causal; }},
      Rule{none, "tree_mask", "not with alibi: the depth of a row in the tree is not known",
           [](S s, D) { return !s.tree_mask || !s.alibi; }},
      Rule{none, "tree_mask", "not with sliding_window: the depth of a row in the tree is not known",
           [](S s, D) { return !s.tree_mask || !s.sliding_window; }},
      Rule{none, "token_scales", "only with i8 KV", [](S s, D) { return !s.token_scales || s.kv == DType::i8; }},
      Rule{none, "num_heads", "more than 65535 heads", [](S s, D) { return s.num_heads <= max_grid_yz; }},
      Rule{none, "max_seqs", "more than 2^26 sequences", [](S s, D) { return s.max_seqs <= 1 << 26; }},
      Rule{none, "max_seq_len", "more than 2^30 tokens", [](S s, D) { return s.max_seq_len <= 1 << 30; }},
      Rule{none, "max_total_kv_tokens", too_many_partitions,
           [](S s, D d) { return kernel::max_partials(s, kernel::partition_rule(s, d)) <= max_partitions; }},
  };
};

/// The first rule that fails; `decodes`: those of decode alone as well.
template <class Menu>
Verdict first_refusal(const DecodeShape& shape, const Device& device, bool decodes) {
  for (const Rule& rule : RuleTable<Menu>::rules)
    if ((decodes || !rule.of_decode_alone) && !rule.holds(shape, device))
      return {rule.status, rule.field, rule.reason(shape, device)};
  return {};
}

}  // namespace detail
}  // namespace HPA_PLATFORM
}  // namespace hpa
