// The query rows that one pass over the cache serves: which they are, and what each of them sees.
#pragma once

#include "hpa/kernel/work_list.hpp"

namespace hpa::kernel {

inline constexpr float log2_e = 1.4426950408889634f;
inline constexpr float ln_2 = 0.6931471805599453f;

/// Tokens that are seen: [begin, end), counted from whatever first token the owner says.
struct Visible {
  int begin, end;
  HPA_HOST_DEVICE bool has(int token) const { return token >= begin && token < end; }
  /// All ones for a token that is seen, else 0: arithmetic alone, as compares would take registers.
  HPA_HOST_DEVICE std::uint32_t mask(int token) const { return std::uint32_t(((token - end) & ~(token - begin)) >> 31); }
  /// Of a tile at `first`, counted from the tile's first token.
  HPA_HOST_DEVICE Visible from(int first) const { return {begin - first, end - first}; }
  HPA_HOST_DEVICE bool whole(int tile_tokens) const { return begin <= 0 && end >= tile_tokens; }
};

/// The same where a tree mask may leave new tokens out: those from `first_new` on are seen when their bit is set.
struct SeenTokens : Visible {
  int first_new;
  std::uint32_t new_tokens;
  static constexpr std::uint32_t all = ~0u;  // no tree mask
  HPA_HOST_DEVICE bool has(int token) const { return mask(token) != 0; }
  HPA_HOST_DEVICE std::uint32_t mask(int token) const {
    const int place = token - first_new, bit = place < 0 ? 0 : place > 31 ? 31 : place;
    return Visible::mask(token) & (std::uint32_t(place >> 31) | (0u - (new_tokens >> bit & 1)));
  }
  HPA_HOST_DEVICE bool whole(int tile_tokens) const {
    return Visible::whole(tile_tokens) && (new_tokens == all || first_new >= tile_tokens);
  }
};

/// A query row of a sequence, counted from the sequence's first, and a query head.
struct RowPlace {
  std::int32_t query_row, head;
};

/// Query heads a KV head.
struct GqaRatio {
  std::int32_t ratio;
  float inverse;
  /// index / ratio, exact for index < 16 * ratio: the quotient of index + 1/2 is further from an integer than its rounding reaches.
  HPA_HOST_DEVICE std::int32_t divide(std::int32_t index) const { return std::int32_t((float(index) + 0.5f) * inverse); }
};

/// The rows of one pass: of all (query row, head) pairs that read one KV head, heads fastest, up to `Rows` from the part's first on.
template <class C, int Rows>
struct QueryRows {
  std::int32_t first_head;  // of the KV head's query heads; in the plain case, of the pass's
  std::int32_t first, count;
  GqaRatio gqa;

  /// `count` is not positive when the part has no rows of this item.
  static HPA_DEVICE QueryRows of(std::int32_t kv_head, std::int32_t part, const GqaRatio& gqa, const Item& item) {
    const std::int32_t first = part * Rows, left = (C::general ? gqa.ratio * item.rows : gqa.ratio) - first;
    return {kv_head * gqa.ratio + (C::general ? 0 : first), first, left < Rows ? left : Rows, gqa};
  }

  HPA_DEVICE RowPlace at(int row) const {
    if constexpr (!C::general) return {0, first_head + row};
    const std::int32_t index = first + row, query_row = gqa.divide(index);
    return {query_row, first_head + index - query_row * gqa.ratio};
  }
  /// Rows past the last are read as the last one's, so that nothing is masked.
  HPA_DEVICE RowPlace inside(int row) const { return at(row < count ? row : count - 1); }
};

/// What is on or off at run time in a kernel with Features::all.
struct FeatureParams {
  const float* alibi_slopes;        // [num_heads]; nullptr = off, as for the other pointers
  const std::uint32_t* tree_masks;  // [num_rows]
  float soft_cap;                   // in base 2; 0 = off
  std::int32_t window;              // 0 = off
  std::int32_t causal;
};

/// What a row must know of itself at every tile. In LDS, one a row of the pass.
struct alignas(16) RowFacts {
  float slope;            // ALiBi, times log2(e)
  std::int32_t position;  // of the row in its sequence
  std::int32_t begin;     // the first key that its window leaves
  std::uint32_t sees;     // bit 0: the tokens before the new ones; bit 1 + i: the sequence's i-th new token

  /// Infinity for a key that the row sees, else less: what scores are cut to. Arithmetic alone, as compares would take registers.
  HPA_DEVICE float limit(int key, int first_new) const {
    const int place = key - first_new + 1, bit = place < 0 ? 0 : place > 31 ? 31 : place;
    const std::uint32_t hidden = ~(sees >> bit) << 31 | (std::uint32_t(key - begin) & 0x80000000u);
    return float_of(0x7f800000u | hidden);
  }
};

/// What every tile of an item needs to know of Features::all. Tokens are counted from the sequence's first.
struct TileFeatures {
  const RowFacts* facts;   // of the pass's rows, in LDS
  float soft_cap;          // in base 2; 0 = off
  bool alibi;
  std::int32_t first_new;  // position of the first row; the tokens before it are seen by all rows, windows apart
  std::int32_t any_begin;  // the first token that some row sees
  std::uint32_t any_new;   // new tokens that some row sees, a bit each
  Visible all;             // what every row sees

  /// What some row sees of a tile at `first`, which ends at `end` or before: counted from the tile's first token.
  HPA_DEVICE SeenTokens seen(int first, int end) const { return {{any_begin - first, end - first}, first_new - first, any_new}; }

  template <class Wave>
  static HPA_DEVICE TileFeatures of(const Wave& wave, const FeatureParams& f, const Item& item, const RowFacts* facts) {
    const std::int32_t first_new = item.seq_len - item.rows;
    const bool ordered = f.causal && f.tree_masks == nullptr;
    const std::int32_t first_end = ordered ? first_new + 1 : item.seq_len;  // where the first row's keys end
    const std::int32_t all_end = f.tree_masks != nullptr ? first_new : first_end;
    const bool windowed = f.window != 0;
    std::uint32_t any_new = SeenTokens::all;
    if (f.tree_masks != nullptr) {
      any_new = 0;
      for (std::int32_t row = 0; row < item.rows; ++row) any_new |= wave.uniform(f.tree_masks + item.query_row + row);
    }
    return {facts,   f.soft_cap, f.alibi_slopes != nullptr, first_new, windowed ? first_end - f.window : 0,
            any_new, {windowed ? item.seq_len - f.window : 0, all_end}};
  }
};

/// What a row is told by the call's arrays, and what follows from its place.
template <class Wave>
HPA_DEVICE RowFacts read_facts(const FeatureParams& f, const Item& item, const RowPlace& row) {
  const float slope = f.alibi_slopes == nullptr ? 0.f : Wave::template load<float>(f.alibi_slopes + row.head);
  const std::int32_t position = item.seq_len - item.rows + row.query_row, end = f.causal ? position + 1 : item.seq_len;
  const std::uint32_t all_new = (1u << item.rows) - 1;  // at most 16 rows
  std::uint32_t new_keys = f.causal ? (2u << row.query_row) - 1 : all_new;
  if (f.tree_masks != nullptr) new_keys = all_new & Wave::template load<std::uint32_t>(f.tree_masks + item.query_row + row.query_row);
  const std::int32_t begin = f.window == 0 || end < f.window ? 0 : end - f.window;
  return {slope * log2_e, position, begin, new_keys << 1 | 1};
}

}  // namespace hpa::kernel
