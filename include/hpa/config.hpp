// Config: what a decode kernel knows at compile time.
#pragma once

#include "hpa/features.hpp"
#include "hpa/tuning/kernel_shape.hpp"

namespace hpa {

/// One instance of the decode kernel. The GQA ratio, head counts, strides and lengths are run-time values.
///
/// `PartitionTokens` is the tokens a partition that plan_with() cuts: 0 = the library's rule, 256 = upstream's cuts. It must be a
/// multiple of the block size.
template <int HeadSize, int BlockSize, DType Query, DType Kv = Query, int PartitionTokens = 0, Features Can = Features::none,
          KvLayout Layout = KvLayout::vllm>
struct Config {
  static constexpr int head_size = HeadSize;
  static constexpr int block_size = BlockSize;
  static constexpr DType query = Query;  // and of the output, unless that is 8 bits
  static constexpr DType kv = Kv;
  static constexpr KvLayout layout = Layout;
  static constexpr int partition_tokens = PartitionTokens;
  static constexpr Features features = Can;
  /// Whether its kernels have a feature: what is not needed is not compiled.
  static HPA_HOST_DEVICE constexpr bool can(Features feature) { return covers(Can, feature); }
  static constexpr bool token_scales = covers(Can, Features::token_scales) && Kv == DType::i8;  // a scale for every token, or none
  using Kernel = Config<HeadSize, BlockSize, Query, Kv, 0, Can, Layout>;  // what is compiled: how plan cuts is nothing to a kernel
  static_assert(PartitionTokens >= 0 && PartitionTokens % BlockSize == 0, "a partition is a whole number of blocks");
  static_assert(size_of(Query) == 2 && (size_of(Kv) == 1 || Kv == Query), "16-bit KV has the query's type");
};

inline namespace HPA_PLATFORM {
namespace kernel {

/// A Config and the shape of the kernel that computes it. Shape: a tuning::ShapeConstant.
template <class Config, class Shape>
struct Shaped : Config {
  static constexpr tuning::KernelShape shape = Shape::value;
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
