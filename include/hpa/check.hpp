// check(): the one rule table that says yes or no, and why. Pure: touches no device.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hpa/args.hpp"
#include "hpa/detail/strides.hpp"
#include "hpa/kernel/workspace_layout.hpp"
#include "hpa/menu.hpp"
#include "hpa/rule_text.hpp"

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

/// What a menu without Features::all says to the shapes that need it.
template <class Menu>
struct PlainOnly {
  static constexpr const char* only = "not compiled in; this menu has Features::plain alone";
  static constexpr bool allows(bool plain) { return plain || Menu::feature_sets::has(Features::all); }
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
  using Plain = PlainOnly<Menu>;
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
      Rule{none, "out", Plain::only, [](S s, D) { return Plain::allows(s.out == s.query); }},
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
      Rule{none, "max_query_len", Plain::only, [](S s, D) { return Plain::allows(s.max_query_len == 1); }},
      Rule{none, "max_query_len", "more than 16 query rows", [](S s, D) { return s.max_query_len <= max_query_rows; }},
      Rule{none, "alibi", Plain::only, [](S s, D) { return Plain::allows(!s.alibi); }},
      Rule{none, "sliding_window", Plain::only, [](S s, D) { return Plain::allows(!s.sliding_window); }},
      Rule{none, "soft_cap", Plain::only, [](S s, D) { return Plain::allows(!s.soft_cap); }},
      Rule{none, "sinks", Plain::only, [](S s, D) { return Plain::allows(!s.sinks); }},
      Rule{none, "tree_mask", Plain::only, [](S s, D) { return Plain::allows(!s.tree_mask); }},
      Rule{none, "token_scales", Plain::only, [](S s, D) { return Plain::allows(!s.token_scales); }},
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
           [](S s, D d) { return kernel::max_slots(s, kernel::partition_rule(s, d)) <= max_partitions; }},
  };
};

inline bool aligned(const void* pointer, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0; }

struct PointerRule {
  const void* pointer;
  std::size_t alignment;
  const char* field;
};

template <std::size_t N>
inline Verdict check_alignment(const PointerRule (&pointers)[N]) {
  for (const PointerRule& rule : pointers)
    if (!aligned(rule.pointer, rule.alignment))
      return {Status::invalid_argument, rule.field,
              rule.alignment == 16 ? "must be 16-byte aligned" : "not aligned to its elements"};
  return {};
}

template <std::size_t N>
inline Verdict check_pointers(const PointerRule (&pointers)[N]) {
  for (const PointerRule& rule : pointers)
    if (rule.pointer == nullptr) return {Status::invalid_argument, rule.field, "must not be null"};
  return check_alignment(pointers);
}

/// A pointer or value that belongs to a feature: given exactly when the shape has the feature.
inline Verdict check_feature(bool in_shape, bool given, const char* field, const char* missing, const char* unexpected) {
  if (in_shape == given) return {};
  return {Status::invalid_argument, field, given ? unexpected : missing};
}

inline Verdict check_features(const DecodeShape& shape, const DecodeArgs& args) {
  const Verdict verdicts[] = {
      check_feature(shape.lse, args.lse != nullptr, "lse", "must not be null: shape.lse is set", "given, but shape.lse is not set"),
      check_feature(shape.alibi, args.alibi_slopes != nullptr, "alibi_slopes", "must not be null: shape.alibi is set",
                    "given, but shape.alibi is not set"),
      check_feature(shape.sinks, args.sinks != nullptr, "sinks", "must not be null: shape.sinks is set",
                    "given, but shape.sinks is not set"),
      check_feature(shape.soft_cap, args.soft_cap != 0.f, "soft_cap", "must be positive: shape.soft_cap is set",
                    "given, but shape.soft_cap is not set"),
      check_feature(false, args.cache.k_scale != nullptr && size_of(shape.kv) == 2, "k_scale", "",
                    "given, but 16-bit KV has no scale"),
      check_feature(false, args.cache.v_scale != nullptr && size_of(shape.kv) == 2, "v_scale", "",
                    "given, but 16-bit KV has no scale"),
      check_feature(false, args.out_scale != nullptr && size_of(shape.out) == 2, "out_scale", "",
                    "given, but 16-bit output has no scale"),
      check_feature(shape.tree_mask, args.tree_masks != nullptr, "tree_masks", "must not be null: shape.tree_mask is set",
                    "given, but shape.tree_mask is not set"),
      check_feature(shape.token_scales, args.cache.key_token_scales != nullptr, "key_token_scales",
                    "must not be null: shape.token_scales is set", "given, but shape.token_scales is not set"),
      check_feature(shape.token_scales, args.cache.value_token_scales != nullptr, "value_token_scales",
                    "must not be null: shape.token_scales is set", "given, but shape.token_scales is not set"),
      check_feature(false, args.cache.key_token_stride != 0 && shape.layout == KvLayout::vllm, "key_token_stride", "",
                    "given, but the vllm layout has no token stride"),
      check_feature(false, args.cache.value_token_stride != 0 && shape.layout == KvLayout::vllm, "value_token_stride", "",
                    "given, but the vllm layout has no token stride"),
  };
  for (const Verdict& verdict : verdicts)
    if (!verdict) return verdict;
  return {};
}

/// What decode() and the cache's writers ask of a cache.
inline Verdict check_cache(const DecodeShape& shape, const KvCache& cache) {
  if (cache.num_blocks < 0) return {Status::invalid_argument, "num_blocks", "must be positive, or 0 where it is not known"};
  if (cache.scale_stride != 0 && cache.scale_stride != 1)
    return {Status::invalid_argument, "scale_stride", "must be 0, for one scale, or 1, for one a KV head"};
  const StridePair key{cache.key_block_stride, cache.key_head_stride, "key_block_stride", "key_head_stride"};
  const StridePair value{cache.value_block_stride, cache.value_head_stride, "value_block_stride", "value_head_stride"};
  const StrideCounts counts{cache.num_blocks, shape.num_kv_heads};
  const std::int64_t slab = std::int64_t{shape.head_size} * shape.block_size, limit = elements_in_4_gib(shape.kv);
  const int x = per_16_bytes(shape.kv);
  if (Verdict v = check_strides(key, slab, counts, x, limit, limit); !v) return v;
  return check_strides(value, slab, counts, x, limit, limit);
}

/// Rows of query and out; 0 where only the device knows.
constexpr int known_rows(const Batch& batch) { return batch.query_start_loc == nullptr ? batch.num_seqs : 0; }

/// In place a row is read as a whole, in all its partitions, before it is written. That takes the same bytes for both.
inline Verdict check_in_place(const DecodeShape& shape, const DecodeArgs& args) {
  if (args.out != args.query) return {};
  const StrideCounts counts{known_rows(args.batch), shape.num_heads};
  const StridePair query = dense_strides({args.query_row_stride, args.query_head_stride, "", ""}, shape.head_size, counts);
  const StridePair out = dense_strides({args.out_row_stride, args.out_head_stride, "", ""}, shape.head_size_of_v(), counts);
  if (shape.out == shape.query && shape.head_size_of_v() == shape.head_size && query.outer == out.outer && query.inner == out.inner)
    return {};
  return {Status::invalid_argument, "out", "is the query, of another type or with other strides"};
}

inline Verdict check_batch(const DecodeShape& shape, const Batch& batch) {
  const Status bad = Status::invalid_argument;
  if (batch.num_seqs < 0) return {bad, "num_seqs", "must not be negative"};
  if (batch.num_seqs == 0) return {};  // tensors of nothing may be null
  if (batch.num_seqs > shape.max_seqs) return {bad, "num_seqs", "more than shape.max_seqs"};
  if (batch.block_table_width <= 0) return {bad, "block_table_width", "must be positive"};
  const PointerRule pointers[] = {{batch.block_tables, 4, "block_tables"}, {batch.seq_lens, 4, "seq_lens"}};
  if (Verdict v = check_pointers(pointers); !v) return v;
  const PointerRule optional_pointers[] = {{batch.query_start_loc, 4, "query_start_loc"}, {batch.table_starts, 8, "table_starts"}};
  if (Verdict v = check_alignment(optional_pointers); !v) return v;
  if (Verdict v = check_feature(shape.sliding_window, batch.window != 0, "window", "must be positive: shape.sliding_window is set",
                                "given, but shape.sliding_window is not set");
      !v)
    return v;
  if (shape.sliding_window && batch.window < 0) return {bad, "window", "must be positive"};
  if (batch.num_seqs == 1 || batch.table_starts != nullptr) return {};
  if (batch.block_table_row_stride != 0 && batch.block_table_row_stride < batch.block_table_width)
    return {bad, "block_table_row_stride", "smaller than the data it steps over"};
  if (batch.block_table_row_stride > max_stride) return {bad, "block_table_row_stride", "larger than any memory"};
  return {};
}

template <class Menu>
Verdict first_refusal(const DecodeShape& shape, const Device& device, bool decodes) {
  for (const Rule& rule : RuleTable<Menu>::rules)
    if ((decodes || !rule.of_decode_alone) && !rule.holds(shape, device))
      return {rule.status, rule.field, rule.reason(shape, device)};
  return {};
}
}  // namespace detail

/// Whether the menu has a kernel for the shape on the device; else the first rule that fails.
template <class Menu = default_menu>
Verdict check(const DecodeShape& shape, const Device& device) {
  return detail::first_refusal<Menu>(shape, device, true);
}

/// The numbers of the kernel that decode() launches for the shape on the device, for programs that explain or measure; an empty shape
/// when check() says no.
template <class Menu = default_menu>
tuning::KernelShape decode_kernel_shape(const DecodeShape& shape, const Device& device) {
  tuning::KernelShape chosen;
  if (!check<Menu>(shape, device)) return chosen;
  const bool fills_the_chip = kernel::partition_rule(shape, device).rows_fill_the_chip();
  Menu::dispatch(shape, [&](auto config) {
    const tuning::Sizes sizes = tuning::sizes_of<decltype(config)>(tuning::rows_per_kv_head(shape));
    chosen = tuning::kernel_shape_of<typename Menu::Machine>(device, sizes, fills_the_chip);
  });
  return chosen;
}

/// As check(shape, device), and what plan() reads: null or misaligned pointers, counts, strides and the window. Reads no device memory.
template <class Menu = default_menu>
Verdict check(const DecodeShape& shape, const Batch& batch, const Device& device) {
  if (Verdict v = check<Menu>(shape, device); !v) return v;
  return detail::check_batch(shape, batch);
}

namespace detail {
/// What a layer has of its own: pointers, strides and values.
inline Verdict check_layer(const DecodeShape& shape, const DecodeArgs& args) {
  if (args.batch.num_seqs == 0) return {};
  const Status bad = Status::invalid_argument;
  const PointerRule pointers[] = {{args.query, 16, "query"},
                                  {args.cache.keys, 16, "keys"},
                                  {args.cache.values, 16, "values"},
                                  {args.out, std::size_t(4 * size_of(shape.out)), "out"}};
  if (Verdict v = check_pointers(pointers); !v) return v;
  const PointerRule optional_pointers[] = {{args.lse, 4, "lse"},
                                           {args.alibi_slopes, 4, "alibi_slopes"},
                                           {args.sinks, 4, "sinks"},
                                           {args.cache.k_scale, 4, "k_scale"},
                                           {args.cache.v_scale, 4, "v_scale"},
                                           {args.out_scale, 4, "out_scale"},
                                           {args.cache.key_token_scales, 4, "key_token_scales"},
                                           {args.cache.value_token_scales, 4, "value_token_scales"},
                                           {args.tree_masks, 4, "tree_masks"}};
  if (Verdict v = check_alignment(optional_pointers); !v) return v;
  if (Verdict v = check_features(shape, args); !v) return v;
  if (!std::isfinite(args.scale)) return {bad, "scale", "must be finite"};
  if (shape.soft_cap && !(args.soft_cap > 0.f && std::isnormal(args.soft_cap)))
    return {bad, "soft_cap", "must be positive, finite and no subnormal number"};
  if (Verdict v = check_strides({args.query_row_stride, args.query_head_stride, "query_row_stride", "query_head_stride"},
                                shape.head_size, {known_rows(args.batch), shape.num_heads}, per_16_bytes(shape.query),
                                elements_in_4_gib(shape.query), max_stride);
      !v)
    return v;
  if (Verdict v = check_cache(shape, args.cache); !v) return v;
  if (Verdict v =
          check_strides({args.out_row_stride, args.out_head_stride, "out_row_stride", "out_head_stride"}, shape.head_size_of_v(),
                        {known_rows(args.batch), shape.num_heads}, 4, elements_in_4_gib(shape.out), max_stride);
      !v)
    return v;
  return check_in_place(shape, args);
}
}  // namespace detail

/// As above, and what a layer has: null, misaligned or impossible pointers, strides and values. Reads no device memory.
template <class Menu = default_menu>
Verdict check(const DecodeShape& shape, const DecodeArgs& args, const Device& device) {
  if (Verdict v = check<Menu>(shape, args.batch, device); !v) return v;
  return detail::check_layer(shape, args);
}

}  // namespace HPA_PLATFORM
}  // namespace hpa
