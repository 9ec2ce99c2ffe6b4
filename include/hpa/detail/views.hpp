// What kernels see of tensors: bases and strides in bytes, dense where the caller gave 0.
#pragma once

#include <cstdint>

#include "hpa/kernel/kv_view.hpp"
#include "hpa/kernel/result.hpp"
#include "hpa/shape.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace detail {

/// Strides in bytes, dense where 0: `piece` elements, `inner_count` of them in one outer step.
struct ByteStrides {
  std::int64_t outer, inner;
};
constexpr ByteStrides byte_strides(std::int64_t outer, std::int64_t inner, std::int64_t piece, std::int64_t inner_count,
                                   DType type) {
  const std::int64_t dense_inner = inner == 0 ? piece : inner;
  return {(outer == 0 ? dense_inner * inner_count : outer) * size_of(type), dense_inner * size_of(type)};
}

inline kernel::KvView kv_view(const void* cache, std::int64_t block_stride, std::int64_t head_stride, const DecodeShape& shape) {
  const ByteStrides strides =
      byte_strides(block_stride, head_stride, std::int64_t{shape.head_size} * shape.block_size, shape.num_kv_heads, shape.kv);
  return {static_cast<const char*>(cache), std::uint32_t(strides.outer), std::uint32_t(strides.inner)};
}

inline kernel::RowView row_view(const void* data, std::int64_t row_stride, std::int64_t head_stride, int heads, int head_size,
                                DType type) {
  const ByteStrides strides = byte_strides(row_stride, head_stride, head_size, heads, type);
  return {static_cast<char*>(const_cast<void*>(data)), strides.outer, std::uint32_t(strides.inner)};
}

inline kernel::KvView token_scale_view(const float* scales, const DecodeShape& shape) {
  const std::uint32_t head_stride = std::uint32_t(shape.block_size) * sizeof(float);
  return {reinterpret_cast<const char*>(scales), std::uint32_t(shape.num_kv_heads) * head_stride, head_stride};
}

}  // namespace detail
}  // namespace HPA_PLATFORM
}  // namespace hpa
