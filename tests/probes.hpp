// Reading single numbers of a PagedCase's results, and inputs whose results show by themselves who saw what.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "calls.hpp"

namespace hpa::test {

inline float out_of(const PagedCase& paged, std::int64_t row, int head, int element) {
  const reference::Strides& s = paged.strides();
  return load_element(paged.shape().out, paged.out.data(), row * s.out_row + head * s.out_head + element);
}

inline float lse_of(const PagedCase& paged, std::int64_t row, int head) {
  return paged.lse.as<float>()[row * paged.shape().num_heads + head];
}

inline float value_of(const PagedCase& paged, int sequence, int token, int kv_head, int element) {
  const int block_size = paged.shape().block_size;
  const std::int64_t block = paged.block_table(sequence, token / block_size);
  const std::int64_t index =
      reference::value_index(paged.shape(), paged.strides(), block - paged.spec.first_block_id, token % block_size, kv_head, element);
  return load_element(paged.shape().kv, paged.value_cache.data(), index);
}

/// All elements of all queries.
inline void set_queries(PagedCase& paged, float value) {
  for (int row = 0; row < paged.num_rows(); ++row)
    for (int head = 0; head < paged.shape().num_heads; ++head)
      for (int d = 0; d < paged.shape().head_size; ++d) paged.set_query(row, head, d, value);
}

/// Half a unit in the last place of a value near 1.
inline double rounding_of(DType type) { return type == DType::f16 ? 0x1p-11 : 0x1p-8; }

/// Makes out a row of probabilities: queries of zero, and token t's value is 1 in element t modulo the head size, else 0. Only tokens
/// that some row sees are set; those must be at most as many as the head size.
inline void show_probabilities(PagedCase& paged) {
  set_queries(paged, 0.f);
  for (int sequence = 0; sequence < paged.num_seqs(); ++sequence) {
    if (!reference::is_computed(paged.shape(), paged.host_args(), sequence)) continue;
    const reference::KeyRange keys = paged.visible_to_any(sequence);
    for (std::int64_t token = keys.begin; token < keys.end; ++token)
      for (int head = 0; head < paged.shape().num_kv_heads; ++head)
        for (int d = 0; d < paged.shape().head_size; ++d)
          paged.set_value(sequence, int(token), head, d, d == token % paged.shape().head_size ? 1.f : 0.f);
  }
}

/// The row saw tokens [begin, end) of the sequence, with equal weight, and no others.
inline bool saw_exactly(const PagedCase& paged, std::int64_t row, int head, std::int64_t begin, std::int64_t end) {
  const int size = paged.shape().head_size;
  std::vector<double> expected(std::size_t(size), 0.0);
  for (std::int64_t token = begin; token < end; ++token) expected[std::size_t(token % size)] = 1.0 / double(end - begin);
  bool right = true;
  for (int d = 0; d < size; ++d) {
    const double got = out_of(paged, row, head, d), due = expected[std::size_t(d)];
    right = right && (due == 0 ? got == 0 : std::abs(got / due - 1) < 1.01 * rounding_of(paged.shape().out));
  }
  const double lse = lse_of(paged, row, head);
  return right && (begin >= end ? lse == -std::numeric_limits<double>::infinity() : std::abs(lse - std::log(double(end - begin))) < 1e-5);
}

/// ||a - b|| / ||b|| over the out of all rows of two runs of the same batch.
inline double distance(const PagedCase& a, const PagedCase& b) {
  double difference = 0, norm = 0;
  for (int row = 0; row < b.num_rows(); ++row)
    for (int head = 0; head < b.shape().num_heads; ++head)
      for (int d = 0; d < b.shape().head_size; ++d) {
        const double off = double(out_of(a, row, head, d)) - out_of(b, row, head, d);
        difference += off * off;
        norm += std::pow(double(out_of(b, row, head, d)), 2);
      }
  return std::sqrt(difference / norm);
}

}  // namespace hpa::test
