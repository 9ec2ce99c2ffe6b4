// ItemQueue and WorkQueue: the items of a workgroup, in their order.
#pragma once

#include "hpa/kernel/decode_params.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// A workgroup's items [index, end) of the plan's list, every `step`-th. By length the step is the number of workgroups that run
/// beside each other. Balanced: the items are neighbours, and the plan's shares say where they begin and end.
class ItemQueue {
 public:
  /// `place`: the workgroup's number among those that run beside each other. `first`, `step`: by length.
  template <class Wave>
  HPA_DEVICE ItemQueue(const Wave& wave, const DecodeParams& p, std::int32_t num_items, std::int32_t place, std::int32_t first,
                       std::int32_t step)
      : index_(first), end_(num_items), step_(step) {
    if (p.shares == nullptr) return;
    end_ = wave.uniform(p.shares + place + 1), index_ = wave.uniform(p.shares + place), step_ = 1;
    if (index_ >= end_) index_ = end_ = 0;  // read() may then read the list's first item
  }

  HPA_DEVICE bool at_end() const { return index_ >= end_; }
  /// The item where the queue stands. A new queue can be read even at its end: the list has room for an item of each workgroup.
  template <class Wave>
  HPA_DEVICE Item read(const Wave& wave, const DecodeParams& p) const {
    Item item = wave.uniform(p.items + index_);
    item.keep_inside(p.table_tokens);
    return item;
  }
  HPA_DEVICE void next() { index_ += step_; }

 protected:
  std::int32_t index_, end_, step_;
};

/// An item for one KV head.
struct Work {
  Item item;
  std::int32_t kv_head;
};

/// The parameters of the ring kernel. Grid y covers passes over the query rows of a KV head.
template <class C>
struct RingParams : DecodeParamsOf<C> {
  std::int32_t num_kv_heads;
  std::int32_t item_step, head_step;  // by length: from a workgroup's (item, KV head) pair to its next, the grid's width
  using Rows = QueryRows<C, C::shape.rows_per_pass>;

  template <class Wave>
  HPA_DEVICE Rows rows_of(const Wave& wave, const Work& work) const {
    return Rows::of(work.kv_head, wave.workgroup_y(), this->gqa, work.item);
  }
};

/// One workgroup's (item, KV head) pairs. By length: every n-th of all pairs, heads running fastest, where n workgroups run beside
/// each other. Balanced: neighbouring items for one head.
class WorkQueue : public ItemQueue {
 public:
  template <class Wave, class C>
  HPA_DEVICE WorkQueue(const Wave& wave, const RingParams<C>& p, std::int32_t num_items)
      : WorkQueue(wave, p, num_items,
                  p.shares == nullptr ? place_of(wave.workgroup_x(), wave.workgroups_x()) : wave.workgroup_x()) {}

  template <class Wave>
  HPA_DEVICE Work read(const Wave& wave, const DecodeParams& p) const {
    return {ItemQueue::read(wave, p), kv_head_};
  }
  HPA_DEVICE void next() {
    ItemQueue::next();
    kv_head_ += head_step_;
    if (kv_head_ >= num_kv_heads_) kv_head_ -= num_kv_heads_, ++index_;
  }
  /// The next (item, KV head) pair, if there is one, otherwise `last`.
  template <class Wave>
  HPA_DEVICE Work next_or(const Wave& wave, const DecodeParams& p, const Work& last) {
    if (!at_end()) next();
    return at_end() ? last : read(wave, p);
  }

 private:
  template <class Wave, class C>
  HPA_DEVICE WorkQueue(const Wave& wave, const RingParams<C>& p, std::int32_t num_items, std::int32_t place)
      : WorkQueue(wave, p, num_items, place, std::int32_t(unsigned(place) / unsigned(p.num_kv_heads))) {}
  template <class Wave, class C>
  HPA_DEVICE WorkQueue(const Wave& wave, const RingParams<C>& p, std::int32_t num_items, std::int32_t place, std::int32_t first)
      : ItemQueue(wave, p, num_items, first, first, p.item_step),
        num_kv_heads_(p.num_kv_heads),
        kv_head_(place - first * p.num_kv_heads),
        head_step_(p.head_step) {}

  /// The place in the list where workgroup x of n begins. The last places have one pair less than the first, or shorter items.
  /// Workgroups start in the order of x. Every eighth of them, x = 0, 8, 16, .., takes a place from the end on; the others take
  /// the remaining places, likewise from the end on. Where launches overlap, the first to start take the multiprocessors that
  /// ended first: light places in a row would lie in the same region of the chip launch after launch.
  ///
  ///   n = 16    x       0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
  ///             place  15 13 12 11 10  9  8  7 14  6  5  4  3  2  1  0
  static HPA_DEVICE std::int32_t place_of(std::int32_t x, std::int32_t workgroups) {
    constexpr unsigned every = 8;
    const auto eighth = std::int32_t(unsigned(x) / every);
    if (x % std::int32_t(every) == 0) return workgroups - 1 - eighth;
    const std::int32_t others = workgroups - std::int32_t((unsigned(workgroups) + every - 1) / every);
    return others - (x - eighth);
  }

  std::int32_t num_kv_heads_, kv_head_, head_step_;
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
