// Which items are a workgroup's, and in which order.
#pragma once

#include "hpa/kernel/decode_params.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// An item for one KV head.
struct Work {
  Item item;
  std::int32_t kv_head;
};

/// Grid y covers passes over the query rows of a KV head, where one pass does not serve all of them.
template <class C>
struct RingParams : DecodeParamsOf<C> {
  std::int32_t num_kv_heads;
  std::int32_t item_step, head_step;  // by length: from one piece of work of a workgroup to the next, the grid's width
  using Rows = QueryRows<C, C::tile_rows>;

  template <class Wave>
  HPA_DEVICE Rows rows_of(const Wave& wave, const Work& work) const {
    return Rows::of(work.kv_head, wave.workgroup_y(), this->gqa, work.item);
  }
};

/// One workgroup's share of all (item, KV head) pairs. By length: every so many, heads running fastest. Balanced: neighbouring items
/// for one head.
class WorkQueue {
 public:
  template <class Wave, class C>
  HPA_DEVICE WorkQueue(const Wave& wave, const RingParams<C>& p, std::int32_t num_items)
      : items_(p.items), num_kv_heads_(p.num_kv_heads), end_(num_items), item_step_(p.item_step), head_step_(p.head_step) {
    const std::int32_t place = p.shares == nullptr ? place_of(wave.workgroup_x(), wave.workgroups_x()) : wave.workgroup_x();
    item_ = std::int32_t(unsigned(place) / unsigned(p.num_kv_heads));
    kv_head_ = place - item_ * p.num_kv_heads;
    if (p.shares == nullptr) return;
    const std::int32_t share = item_;
    item_ = wave.uniform(p.shares + share), end_ = wave.uniform(p.shares + share + 1);
    if (item_ >= end_) item_ = end_ = 0;  // so that read() finds the list's first item
  }

  HPA_DEVICE bool at_end() const { return item_ >= end_; }
  template <class Wave>
  HPA_DEVICE Work read(const Wave& wave) const {
    return {wave.uniform(items_ + item_), kv_head_};
  }
  HPA_DEVICE void advance() {
    item_ += item_step_;
    kv_head_ += head_step_;
    if (kv_head_ >= num_kv_heads_) kv_head_ -= num_kv_heads_, ++item_;
  }
  /// The next piece of work, if there is one, otherwise `last`.
  template <class Wave>
  HPA_DEVICE Work next_or(const Wave& wave, const Work& last) {
    if (!at_end()) advance();
    return at_end() ? last : read(wave);
  }

 private:
  /// Where in the list a workgroup begins. Those that begin last have a piece less than the others, or shorter ones. Every eighth of
  /// those that start first is one of them, which spreads them over the chip where launches overlap: first starters take the places
  /// of those that have just ended, so in a row they would lie in the same part of it launch after launch.
  static HPA_DEVICE std::int32_t place_of(std::int32_t x, std::int32_t workgroups) {
    constexpr unsigned every = 8;
    const auto eighth = std::int32_t(unsigned(x) / every);
    if (x % std::int32_t(every) == 0) return workgroups - 1 - eighth;
    const std::int32_t others = workgroups - std::int32_t((unsigned(workgroups) + every - 1) / every);
    return others - (x - eighth);
  }

  const Item* items_;
  std::int32_t num_kv_heads_, item_ = 0, kv_head_ = 0, end_, item_step_, head_step_;
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
