// QueryRows: the (query row, head) pairs of one pass over the cache of a KV head.
#pragma once

#include "hpa/features.hpp"
#include "hpa/kernel/plan_records.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

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

/// The rows of a pass. A row of a pass is a (query row, head) pair; all pairs that read one KV head are numbered with heads
/// fastest, and pass n has up to `Rows` of them, from n * Rows on.
template <class C, int Rows>
struct QueryRows {
  std::int32_t first_head;  // of the KV head's query heads; with one query row a sequence, of the pass's
  std::int32_t first, count;
  GqaRatio gqa;

  /// The rows of pass `pass` that an item has. `count` is not positive when it has none.
  static HPA_DEVICE QueryRows of(std::int32_t kv_head, std::int32_t pass, const GqaRatio& gqa, const Item& item) {
    const std::int32_t first = pass * Rows, left = (C::can(Features::query_rows) ? gqa.ratio * item.rows : gqa.ratio) - first;
    return {kv_head * gqa.ratio + (C::can(Features::query_rows) ? 0 : first), first, left < Rows ? left : Rows, gqa};
  }

  HPA_DEVICE RowPlace at(int row) const {
    if constexpr (!C::can(Features::query_rows)) return {0, first_head + row};
    const std::int32_t index = first + row, query_row = gqa.divide(index);
    return {query_row, first_head + index - query_row * gqa.ratio};
  }
  /// The row's place; of a row past the last the place of the last, so that loads need no mask.
  HPA_DEVICE RowPlace clamped(int row) const { return at(row < count ? row : count - 1); }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
