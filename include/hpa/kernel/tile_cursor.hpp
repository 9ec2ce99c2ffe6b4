// TileCursor: where a wave's next tile lies, over all items of its workgroup.
#pragma once

#include "hpa/kernel/tile.hpp"
#include "hpa/kernel/work_queue.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// Tiles of an item, for a pass that has `rows` query rows of it.
template <int TileTokens>
HPA_DEVICE std::int32_t tiles_of(const Item& item, std::int32_t rows) {
  return rows > 0 ? std::int32_t(unsigned(item.end - item.begin + TileTokens - 1) / unsigned(TileTokens)) : 0;
}

/// How many of an item's tiles index, index + waves, .. there are: the tiles of wave `index`.
HPA_HOST_DEVICE constexpr std::int32_t tiles_of_wave(std::int32_t tiles, std::int32_t index, std::int32_t waves) {
  return tiles > index ? (tiles - index + waves - 1) / waves : 0;
}

/// The cursor runs ahead of the arithmetic, over the ends of items. Lane j holds where the wave's j-th next tile lies: one load of
/// block ids serves as many tiles as a wave has lanes. The next load is under way before it is needed, and so is the next item.
template <class M, class C, int Waves>
class TileCursor {
 public:
  using Wave = typename M::Wave;
  template <class T>
  using Lane = typename M::template Lane<T>;

  /// `list` stands at `first`, which exists. Waits for the first block ids alone.
  HPA_DEVICE TileCursor(Wave& wave, const RingParams<C>& params, const WorkQueue& list, const Work& first)
      : params_(params), list_(list), work_(first) {
    next_work_ = list_.next_or(wave, params_, first);
    advance(wave);
  }

  HPA_DEVICE bool at_end() const { return used_ == count_; }

  // About the wave's next tile, which exists: the lane that holds where its keys and values lie, and whether its item has a bad
  // block id, which block 0 replaces.
  HPA_DEVICE int lane() const { return used_; }
  HPA_DEVICE const Lane<const char*>& keys() const { return keys_; }
  HPA_DEVICE const Lane<const char*>& values() const { return values_; }
  HPA_DEVICE const Lane<const char*>& key_scales() const { return scales_.keys; }  // token_scales only
  HPA_DEVICE const Lane<const char*>& value_scales() const { return scales_.values; }
  HPA_DEVICE bool bad_id() const { return bad_id_; }

  /// Before the first next(): how many of the wave's first tiles hold none of the last `rows` tokens of `first`'s sequence.
  HPA_DEVICE std::int32_t tiles_before_last(const Wave& wave, const Work& first, std::int32_t rows) const {
    const std::int32_t tokens = first.item.seq_len - rows - first.item.begin;
    const std::int32_t tiles =
        tiles_of_wave(tokens > 0 ? std::int32_t(unsigned(tokens) / unsigned(tile_tokens)) : 0, wave.index(), Waves);
    return tiles < count_ ? tiles : count_;
  }

  HPA_DEVICE void next(Wave& wave) {
    if (++used_ == count_) advance(wave);
  }
  /// Asks for ids ahead of their use.
  HPA_DEVICE void look_ahead(Wave& wave) {
    if (following_.count == unknown) following_ = fetch(wave);
  }

 private:
  static constexpr int tile_tokens = TileTraits<M, C>::tokens, token_step = Waves * tile_tokens;
  static constexpr std::int32_t unknown = -1;

  /// Consecutive tiles of the wave in one item.
  struct Chunk {
    Lane<std::int32_t> blocks;
    std::int32_t first_token, kv_head;
    std::int32_t count = unknown;  // unknown: not asked for yet; 0: no tiles are left
  };

  HPA_DEVICE void advance(Wave& wave) {
    look_ahead(wave);
    locate(wave, following_);
    following_.count = unknown;
    if (started_ && count_ > 0) look_ahead(wave);
    started_ = true;
  }

  /// Makes the tiles of a chunk the next ones.
  HPA_DEVICE void locate(Wave& wave, const Chunk& chunk) {
    using Layout = typename TileTraits<M, C>::Layout;
    const DecodeParams& caches = params_;  // TokenScaleParams has a member `keys` too
    const KvView keys = caches.keys.head(chunk.kv_head), values = caches.values.head(chunk.kv_head);
    const BlockIds ids = caches.block_ids;
    Lane<bool> bad;
    used_ = 0, count_ = chunk.count;
    wave.each([&](int lane) {
      const std::int32_t block = ids.or_first(chunk.blocks[lane]);
      const int slot = int(unsigned(chunk.first_token + lane * token_step) % unsigned(C::block_size));
      bad[lane] = !ids.have(chunk.blocks[lane]);
      keys_[lane] = keys.slab(block) + Layout::key_offset(C::block_size, slot, 0);
      values_[lane] = values.slab(block) + Layout::value_offset(C::block_size, slot, 0);
      if constexpr (C::token_scales) locate_scales(lane, chunk.kv_head, block, slot);
    });
    bad_id_ = wave.any(bad);
  }

  /// Finds where token scales lie. Without scales the copies take other bytes, which are not used.
  HPA_DEVICE void locate_scales(int lane, std::int32_t kv_head, std::int32_t block, int slot) {
    const TokenScaleParams& all = params_;
    const auto offset = std::int64_t(all.of_keys().offset(kv_head, block)) + slot * int(sizeof(float));
    scales_.keys[lane] = all.given() ? all.keys + offset : keys_[lane];
    scales_.values[lane] = all.given() ? all.values + offset : keys_[lane];
  }

  /// Asks for the block ids of the next chunk.
  HPA_DEVICE Chunk fetch(Wave& wave) {
    Chunk chunk;
    chunk.first_token = chunk.kv_head = chunk.count = 0;
    wave.each([&](int lane) { chunk.blocks[lane] = 0; });
    for (; !done_; next_work(wave)) {
      const Item& item = work_.item;
      const auto tiles = tiles_of<tile_tokens>(item, params_.rows_of(wave, work_).count);
      const std::int32_t left = tiles_of_wave(tiles, wave.index(), Waves) - tiles_done_;
      if (left <= 0) continue;
      chunk.count = left < M::width ? left : M::width;
      chunk.first_token = item.begin + (wave.index() + tiles_done_ * Waves) * tile_tokens;
      chunk.kv_head = work_.kv_head;
      tiles_done_ += chunk.count;
      const std::int32_t* const row = params_.table_row(wave, item.sequence);
      wave.each([&](int lane) {
        const unsigned column = unsigned(chunk.first_token + lane * token_step) / unsigned(C::block_size);
        if (lane < chunk.count) chunk.blocks[lane] = wave.template load<std::int32_t>(row + column);
      });
      break;
    }
    return chunk;
  }

  HPA_DEVICE void next_work(Wave& wave) {
    done_ = list_.at_end();
    work_ = next_work_;
    tiles_done_ = 0;
    next_work_ = list_.next_or(wave, params_, next_work_);
  }

  const RingParams<C>& params_;
  WorkQueue list_;  // stands at next_work_
  Work work_, next_work_;
  bool done_ = false;  // work_ is none
  bool started_ = false;
  std::int32_t tiles_done_ = 0;  // of work_
  Chunk following_;
  std::int32_t used_ = 0, count_ = 0;  // of the tiles that lanes know of
  bool bad_id_ = false;
  Lane<const char*> keys_, values_;
  struct Scales {
    Lane<const char*> keys, values;
  };
  std::conditional_t<C::token_scales, Scales, NoTokenScales> scales_;
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
