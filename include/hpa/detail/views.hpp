// Tensors as kernels see them: bases and strides in bytes, dense where the caller gave 0.
#pragma once

#include <cstdint>

#include "hpa/args.hpp"
#include "hpa/detail/strides.hpp"
#include "hpa/kernel/kv_view.hpp"
#include "hpa/kernel/result.hpp"
#include "hpa/shape.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace detail {

/// Strides in bytes, as dense_strides() has them in elements.
struct ByteStrides {
  std::int64_t outer, inner;
};
constexpr ByteStrides byte_strides(std::int64_t outer, std::int64_t inner, std::int64_t run, const StrideCounts& counts,
                                   DType type) {
  const StridePair dense = dense_strides({outer, inner, "", ""}, run, counts);
  return {dense.outer * size_of(type), dense.inner * size_of(type)};
}

inline kernel::KvView kv_view(const DecodeShape& shape, const void* data, std::int64_t block_stride, std::int64_t head_stride,
                              std::int64_t num_blocks) {
  const ByteStrides strides = byte_strides(block_stride, head_stride, std::int64_t{shape.head_size} * shape.block_size,
                                           {num_blocks, shape.num_kv_heads}, shape.kv);
  return {static_cast<const char*>(data), std::uint32_t(strides.outer), std::uint32_t(strides.inner)};
}
inline kernel::KvView key_view(const DecodeShape& shape, const KvCache& cache) {
  return kv_view(shape, cache.keys, cache.key_block_stride, cache.key_head_stride, cache.num_blocks);
}
inline kernel::KvView value_view(const DecodeShape& shape, const KvCache& cache) {
  return kv_view(shape, cache.values, cache.value_block_stride, cache.value_head_stride, cache.num_blocks);
}

/// The valid block ids of a cache: below num_blocks where that is known, else below 2^31.
constexpr kernel::BlockIds block_ids(const KvCache& cache) {
  const std::int64_t most = std::int64_t{1} << 31;
  return {std::uint32_t(cache.num_blocks == 0 || cache.num_blocks > most ? most : cache.num_blocks)};
}

inline kernel::RowView row_view(const void* data, std::int64_t row_stride, std::int64_t head_stride, const StrideCounts& counts,
                                int head_size, DType type) {
  const ByteStrides strides = byte_strides(row_stride, head_stride, head_size, counts, type);
  return {static_cast<char*>(const_cast<void*>(data)), strides.outer, std::uint32_t(strides.inner)};
}

inline kernel::KvView token_scale_view(const DecodeShape& shape, const float* scales) {
  const std::uint32_t head_stride = std::uint32_t(shape.block_size) * sizeof(float);
  return {reinterpret_cast<const char*>(scales), std::uint32_t(shape.num_kv_heads) * head_stride, head_stride};
}

}  // namespace detail
}  // namespace HPA_PLATFORM
}  // namespace hpa
