// The strides of a caller: which ones are allowed, and what a stride of 0 stands for.
#pragma once

#include <cstdint>

#include "hpa/arch/platform.hpp"
#include "hpa/status.hpp"
#include "hpa/types.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace detail {

inline constexpr std::int64_t max_stride = std::int64_t{1} << 44;  // elements: products with strides stay below 2^63 bytes

/// Kernels hold strides between heads and between blocks in 32 bits, in bytes.
constexpr std::int64_t elements_in_4_gib(DType type) { return (std::int64_t{1} << 32) / size_of(type); }

/// Strides of something addressed as outer * outer_stride + inner * inner_stride, elements. 0 = dense.
struct StridePair {
  std::int64_t outer, inner;
  const char* outer_field;
  const char* inner_field;
};

/// The number of outer and of inner steps; 0 = not known.
struct StrideCounts {
  std::int64_t outer, inner;
};

/// The strides that kernels get: dense ones in place of 0. The stride of a dimension of size 1 is multiplied with 0 alone, so any
/// value will do.
constexpr StridePair dense_strides(const StridePair& s, std::int64_t run, const StrideCounts& counts) {
  const std::int64_t inner = s.inner == 0 || counts.inner == 1 ? run : s.inner;
  return {s.outer == 0 || counts.outer == 1 ? inner * counts.inner : s.outer, inner, s.outer_field, s.inner_field};
}

/// Whether two runs have an element in common, where inner steps are longer than outer ones.
constexpr bool runs_overlap(std::int64_t outer, std::int64_t inner, std::int64_t run, const StrideCounts& counts) {
  for (std::int64_t i = 1; i < counts.inner; ++i) {
    const std::int64_t outer_steps = i * inner / outer, before = outer_steps < counts.outer ? outer_steps : counts.outer - 1;
    if (i * inner - before * outer < run) return true;
    if (before + 1 < counts.outer && (before + 1) * outer - i * inner < run) return true;
  }
  return false;
}

/// Checks a pair of strides. `run` elements lie together; an outer step has `counts.inner` such runs. Strides must be multiples of
/// `multiple` and stay below the limits.
inline Verdict check_strides(const StridePair& given, std::int64_t run, const StrideCounts& counts, int multiple,
                             std::int64_t inner_limit, std::int64_t outer_limit) {
  const Status bad = Status::invalid_argument;
  const std::int64_t inner = given.inner == 0 || counts.inner == 1 ? run : given.inner;
  if (inner < run) return {bad, given.inner_field, "smaller than the data it steps over"};
  if (inner >= inner_limit) return {Status::unsupported, given.inner_field, "4 GiB or more"};
  const bool dense = given.outer == 0 || counts.outer == 1;
  const std::int64_t outer = dense ? inner * counts.inner : given.outer;
  if (outer >= outer_limit)
    return {Status::unsupported, dense ? given.inner_field : given.outer_field, "too large a step in memory"};
  if (outer < run || (inner < outer && counts.inner > 1 && outer < (counts.inner - 1) * inner + run))
    return {bad, given.outer_field, "smaller than the data it steps over"};
  if (inner == outer && counts.inner > 1) return {bad, given.inner_field, "equal to the outer stride: the data overlap"};
  if (outer < inner && counts.outer > 1 && runs_overlap(outer, inner, run, counts))
    return {bad, given.inner_field, "such that the data overlap"};
  if (inner % multiple != 0) return {bad, given.inner_field, "not a multiple of one vector load or store"};
  if (outer % multiple != 0) return {bad, given.outer_field, "not a multiple of one vector load or store"};
  return {};
}

}  // namespace detail
}  // namespace HPA_PLATFORM
}  // namespace hpa
