// Config: what a decode kernel knows at compile time.
#pragma once

#include "hpa/types.hpp"

namespace hpa {

/// One instance of the decode kernel. The GQA ratio, head counts, strides and lengths are run-time values.
///
/// `PartitionTokens` is the tokens a partition that plan_with() cuts: 0 = the library's rule, 256 = upstream's cuts. It must be a
/// multiple of the block size.
template <int HeadSize, int BlockSize, DType Query, DType Kv = Query, int PartitionTokens = 0, bool Alibi = false>
struct Config {
  static constexpr int head_size = HeadSize;
  static constexpr int block_size = BlockSize;
  static constexpr DType query = Query;
  static constexpr DType kv = Kv;
  static constexpr DType out = Query;
  static constexpr int partition_tokens = PartitionTokens;
  static constexpr bool alibi = Alibi;
  static constexpr int tile_rows = 16;  // query rows that one pass over the cache serves
  static_assert(PartitionTokens >= 0 && PartitionTokens % BlockSize == 0, "a partition is a whole number of blocks");
};

namespace kernel {

/// The same with 8 rows a pass: half of the registers where a machine's products have rows to skip.
template <class C>
struct FewRows : C {
  static constexpr int tile_rows = 8;
};

}  // namespace kernel
}  // namespace hpa
