// KvView, TileBlocks, BlockIds: addresses in the paged cache. Nothing else multiplies a block id by a stride; the product has 64
// bits.
#pragma once

#include <cstdint>

#include "hpa/types.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// One cache: a base and two strides in bytes, each below 4 GiB. The bytes of a (block, KV head) lie together: its slab, whose inner
/// order a layout knows (layout/).
struct KvView {
  const char* data;
  std::uint32_t block_stride, head_stride;

  /// The cache of one KV head.
  HPA_HOST_DEVICE KvView head(std::int32_t kv_head) const {
    return {data + std::uint64_t(std::uint32_t(kv_head)) * head_stride, block_stride, head_stride};
  }
  /// Block ids are 32 bits and not negative; the product is taken in 64.
  HPA_HOST_DEVICE const char* slab(std::int32_t block) const { return data + std::uint64_t(std::uint32_t(block)) * block_stride; }
  /// The same in bytes from `data`, for a cache that may not be there: a null pointer has no addresses beside it.
  HPA_HOST_DEVICE std::uint64_t offset(std::int32_t kv_head, std::int32_t block) const {
    return std::uint64_t(std::uint32_t(kv_head)) * head_stride + std::uint64_t(std::uint32_t(block)) * block_stride;
  }
};

/// The one or two blocks that hold a tile of tokens. Where there is no second block it is the first again: the same addresses,
/// masked like other tokens past the end.
template <int TileTokens, int BlockSize>
struct TileBlocks {
  static_assert(BlockSize % TileTokens == 0 || TileTokens == 2 * BlockSize, "a tile is a part of one block, or two blocks");
  static constexpr bool two = TileTokens > BlockSize;

  std::int32_t first, second;
  std::int32_t first_slot;  // of the tile in its block; 0 when the tile is two blocks

  HPA_HOST_DEVICE std::int32_t block_of(int token) const { return two && token >= BlockSize ? second : first; }
  HPA_HOST_DEVICE int slot_of(int token) const { return two ? token % BlockSize : first_slot + token; }
};

/// The block ids of a cache: [0, limit). Where the number of blocks is not known, all that are not negative.
struct BlockIds {
  std::uint32_t limit;
  HPA_HOST_DEVICE bool have(std::int32_t block) const { return std::uint32_t(block) < limit; }
  /// The block, or block 0 in place of a bad id. Ids are checked where they are read; a row with a bad one comes out empty.
  HPA_HOST_DEVICE std::int32_t or_first(std::int32_t block) const { return have(block) ? block : 0; }
};

/// Reads the block ids of the tile that starts at token `begin` of a sequence with `seq_len` tokens. Entries at or past
/// ceil(seq_len / BlockSize) are never read.
template <int TileTokens, int BlockSize, class Wave>
HPA_DEVICE TileBlocks<TileTokens, BlockSize> read_blocks(const Wave& wave, const std::int32_t* table_row, int begin, int seq_len) {
  using Blocks = TileBlocks<TileTokens, BlockSize>;
  const unsigned block = unsigned(begin) / BlockSize, last = unsigned(seq_len - 1) / BlockSize, next = block + 1;
  const std::int32_t first = wave.uniform(table_row + block);
  const std::int32_t second = Blocks::two ? wave.uniform(table_row + (next < last ? next : last)) : first;
  return {first, second, Blocks::two ? 0 : int(unsigned(begin) % BlockSize)};
}

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
