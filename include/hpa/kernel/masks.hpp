// Masks and biases: causal order, windows, tree masks, ALiBi and soft cap as kernels know them.
#pragma once

#include "hpa/features.hpp"
#include "hpa/kernel/query_rows.hpp"
#include "hpa/types.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// A range of visible tokens: [begin, end), counted from a first token that the owner names.
struct Visible {
  int begin, end;
  HPA_HOST_DEVICE bool has(int token) const { return token >= begin && token < end; }
  /// All ones for a visible token, else 0. Arithmetic alone: comparisons would take registers.
  HPA_HOST_DEVICE std::uint32_t mask(int token) const { return std::uint32_t(((token - end) & ~(token - begin)) >> 31); }
  /// The same tokens, counted from `first`.
  HPA_HOST_DEVICE Visible from(int first) const { return {begin - first, end - first}; }
  HPA_HOST_DEVICE bool covers(int tile_tokens) const { return begin <= 0 && end >= tile_tokens; }
};

/// Visible tokens where a tree mask may hide new ones: a token from `first_new` on is visible if its bit is set.
struct SeenTokens : Visible {
  int first_new;
  std::uint32_t new_tokens;
  HPA_HOST_DEVICE bool has(int token) const { return mask(token) != 0; }
  HPA_HOST_DEVICE std::uint32_t mask(int token) const {
    const int place = token - first_new, bit = place < 0 ? 0 : place > 31 ? 31 : place;
    return Visible::mask(token) & (std::uint32_t(place >> 31) | (0u - (new_tokens >> bit & 1)));
  }
};

/// Features::all at run time: what is on, and the arrays that it reads.
struct FeatureParams {
  const float* alibi_slopes;        // [num_heads]; nullptr = off, as for the other pointers
  const std::uint32_t* tree_masks;  // [num_rows]
  float soft_cap;                   // in base 2; 0 = off
  std::int32_t window;              // 0 = off
  std::int32_t causal;
};

/// Whether rows of C's kernels differ in what is done to their scores: then each has RowFacts. Else they all see the same tokens.
template <class C>
inline constexpr bool has_row_facts = has_any(C::features, Features::query_rows | Features::alibi);

/// What every tile needs to know of one query row. Lies in LDS, one for each row of the pass.
struct alignas(16) RowFacts {
  float slope;            // ALiBi, times log2(e)
  std::int32_t position;  // of the row in its sequence
  std::int32_t begin;     // the first key that its window leaves
  std::uint32_t sees;  // bit 16 + i: the token i after the row's own; bit 0 stands for all earlier ones, bit 31 for all later ones

  /// The largest score that a key may have: infinity where the row sees it, else -infinity. Arithmetic alone: comparisons would
  /// take registers.
  HPA_DEVICE float limit(int key) const {
    const int place = key - position + 16, bit = place < 0 ? 0 : place > 31 ? 31 : place;
    const std::uint32_t hidden = ~(sees >> bit) << 31 | (std::uint32_t(key - begin) & 0x80000000u);
    return float_of(0x7f800000u | hidden);
  }
};

/// What some row of several sees; only for tiles that not every row sees all of. In LDS.
struct alignas(16) EdgeFacts {
  Visible any;             // tokens of the item that some row sees, windows looked at
  std::int32_t first_new;  // position of the first row
  std::uint32_t any_new;   // new tokens that some row sees, a bit each

  /// The same tokens, counted from `first`.
  HPA_DEVICE SeenTokens from(int first) const { return {any.from(first), first_new - first, any_new}; }
};

/// What every tile of an item needs to know of features.
struct TileFeatures {
  float soft_cap;  // in base 2; 0 = off
  bool alibi;
  Visible all;  // tokens that every row of the sequence sees

  HPA_DEVICE bool all_seen(int first, int tile_tokens) const { return all.from(first).covers(tile_tokens); }
};

/// The features of a call, of which those that C's kernels lack are off, and the compiler knows that they are.
template <class C>
HPA_DEVICE decltype(auto) known_off(const FeatureParams& f) {
  if constexpr (covers(C::features, Features::tree | Features::window | Features::alibi | Features::soft_cap)) {
    return (f);  // itself: a copy would be read at once, not as it is needed
  } else {
    FeatureParams known = f;
    if constexpr (!C::can(Features::alibi)) known.alibi_slopes = nullptr;
    if constexpr (!C::can(Features::tree)) known.tree_masks = nullptr;
    if constexpr (!C::can(Features::soft_cap)) known.soft_cap = 0.f;
    if constexpr (!C::can(Features::window)) known.window = 0;
    if constexpr (!C::can(Features::query_rows)) known.causal = 0;  // a row alone sees all keys either way
    return known;
  }
}

/// The end of the keys that the first of a sequence's `item.rows` query rows sees.
HPA_DEVICE std::int32_t first_row_end(const FeatureParams& f, const Item& item) {
  return f.causal && f.tree_masks == nullptr ? item.seq_len - item.rows + 1 : item.seq_len;
}

HPA_DEVICE TileFeatures tile_features(const FeatureParams& f, const Item& item) {
  const std::int32_t end = f.tree_masks != nullptr ? item.seq_len - item.rows : first_row_end(f, item);
  return {f.soft_cap, f.alibi_slopes != nullptr, {f.window != 0 ? item.seq_len - f.window : 0, end}};
}

template <class Wave>
HPA_DEVICE EdgeFacts edge_facts(const Wave& wave, const FeatureParams& f, const Item& item) {
  std::uint32_t any_new = ~0u;
  if (f.tree_masks != nullptr) {
    any_new = 0;
    for (std::int32_t row = 0; row < item.rows; ++row) any_new |= wave.uniform(f.tree_masks + item.query_row + row);
  }
  return {{f.window != 0 ? first_row_end(f, item) - f.window : 0, item.end}, item.seq_len - item.rows, any_new};
}

/// The facts of a query row: from the call's arrays, and from its place in the sequence.
template <class Wave>
HPA_DEVICE RowFacts read_facts(const FeatureParams& f, const Item& item, const RowPlace& row) {
  const float slope = f.alibi_slopes == nullptr ? 0.f : Wave::template load<float>(f.alibi_slopes + row.head);
  const std::int32_t position = item.seq_len - item.rows + row.query_row, end = f.causal ? position + 1 : item.seq_len;
  const std::uint32_t all_new = (1u << item.rows) - 1;  // at most 16 rows
  std::uint32_t new_keys = f.causal ? (2u << row.query_row) - 1 : all_new;
  if (f.tree_masks != nullptr)
    new_keys = all_new & Wave::template load<std::uint32_t>(f.tree_masks + item.query_row + row.query_row);
  const std::int32_t begin = f.window == 0 || end < f.window ? 0 : end - f.window, older = 16 - row.query_row;
  return {slope * log2_e, position, begin, new_keys << older | ((1u << older) - 1)};
}

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
