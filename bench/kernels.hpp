// The benchmark's own kernels: random data, a plain reference, and the floor: what reading the same blocks takes.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "gpu.hpp"
#include "hpa/types.hpp"

namespace bench {

/// An element as it is stored.
template <hpa::DType Type>
using Code = std::conditional_t<hpa::size_of(Type) == 2, std::uint16_t, std::uint8_t>;

/// Uniform in (-amplitude, amplitude), about as spread as a normal distribution.
template <hpa::DType Type>
__global__ void fill_random(Code<Type>* data, std::size_t count, std::uint64_t seed, float amplitude) {
  for (std::size_t i = blockIdx.x * std::size_t(blockDim.x) + threadIdx.x; i < count; i += std::size_t(gridDim.x) * blockDim.x) {
    std::uint64_t bits = (i + 1) * 0x9e3779b97f4a7c15u + seed;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    const float unit = float(bits >> 40) / 8388608.f - 1.f;
    data[i] = Code<Type>(hpa::Format<Type>::encode(unit * amplitude));
  }
}

/// The cache of one set as a plain kernel sees it, vllm layout, dense.
template <hpa::DType Kv>
struct Cache {
  static constexpr int x = hpa::per_16_bytes(Kv);
  const Code<Kv>*keys, *values;
  const std::int32_t* block_tables;
  int table_width, block_size, num_kv_heads, head_size;

  __device__ std::size_t slab(int sequence, int token, int kv_head) const {
    const std::size_t block = std::size_t(block_tables[std::size_t(sequence) * table_width + token / block_size]);
    return (block * num_kv_heads + kv_head) * head_size * block_size;
  }
  __device__ std::size_t key(int sequence, int token, int kv_head, int element) const {
    return slab(sequence, token, kv_head) + (element / x * block_size + token % block_size) * x + element % x;
  }
  __device__ std::size_t value(int sequence, int token, int kv_head, int element) const {
    return slab(sequence, token, kv_head) + element * block_size + token % block_size;
  }
};

/// Slots past each sequence's end, in its last block, become NaN. One workgroup a sequence.
template <hpa::DType Kv>
__global__ void poison_tails(Cache<Kv> cache, Code<Kv>* keys, Code<Kv>* values, const std::int32_t* seq_lens) {
  const int sequence = blockIdx.x, length = seq_lens[sequence];
  const int end = (length + cache.block_size - 1) / cache.block_size * cache.block_size;
  for (int token = length; token < end; ++token)
    for (int i = threadIdx.x; i < cache.num_kv_heads * cache.head_size; i += blockDim.x) {
      keys[cache.key(sequence, token, i / cache.head_size, i % cache.head_size)] = Code<Kv>(hpa::Format<Kv>::nan);
      values[cache.value(sequence, token, i / cache.head_size, i % cache.head_size)] = Code<Kv>(hpa::Format<Kv>::nan);
    }
}

constexpr int reference_threads = 256;

/// Attention in fp32, in the plainest way: one workgroup a (sequence, head), a token a thread for the scores, an element a thread for
/// the output. out: [sequence, head, element].
template <hpa::DType Type, hpa::DType Kv>
__global__ void reference_attention(Cache<Kv> cache, const std::uint16_t* query, const std::int32_t* seq_lens, int num_heads,
                                    float scale, float* out) {
  __shared__ float scores[reference_threads];
  const int sequence = blockIdx.x, head = blockIdx.y, kv_head = head / (num_heads / cache.num_kv_heads), thread = threadIdx.x;
  const std::uint16_t* const row = query + (std::size_t(sequence) * num_heads + head) * cache.head_size;
  const auto decode = [](Code<Kv> code) { return hpa::Format<Kv>::decode(code); };
  float maximum = -INFINITY, total = 0.f, sum = 0.f;
  for (int first = 0; first < seq_lens[sequence]; first += reference_threads) {
    const int count = min(reference_threads, seq_lens[sequence] - first);
    if (thread < count) {
      float score = 0.f;
      for (int d = 0; d < cache.head_size; ++d)
        score += hpa::Format<Type>::decode(row[d]) * decode(cache.keys[cache.key(sequence, first + thread, kv_head, d)]);
      scores[thread] = score * scale;
    }
    __syncthreads();
    float raised = maximum;
    for (int i = 0; i < count; ++i) raised = fmaxf(raised, scores[i]);
    const float keep = expf(maximum - raised);
    total *= keep, sum *= keep, maximum = raised;
    for (int i = 0; i < count; ++i) {
      const float weight = expf(scores[i] - maximum);
      total += weight;
      if (thread < cache.head_size) sum += weight * decode(cache.values[cache.value(sequence, first + i, kv_head, thread)]);
    }
    __syncthreads();
  }
  if (thread < cache.head_size) out[(std::size_t(sequence) * num_heads + head) * cache.head_size + thread] = sum / total;
}

/// Reads `blocks` blocks of both caches through a table, 16 bytes a lane and load, and does nothing with them. A warp reads runs of
/// 32 lanes * 4 loads.
__global__ void read_blocks(const uint4* keys, const uint4* values, const std::int32_t* table, int blocks, int vectors_per_block,
                            std::uint32_t* sink) {
  constexpr int loads = 4;
  const int lane = threadIdx.x % 32, runs_per_block = vectors_per_block / (32 * loads), runs = blocks * runs_per_block;
  const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
  std::uint32_t seen = 0;
  for (int run = warp; run < runs; run += warps) {
    const int block = run / runs_per_block;
    const std::size_t at = std::size_t(table[block]) * vectors_per_block + (run - block * runs_per_block) * 32 * loads + lane;
    uint4 key[loads], value[loads];
#pragma unroll
    for (int i = 0; i < loads; ++i) key[i] = load_once(keys + at + i * 32);
#pragma unroll
    for (int i = 0; i < loads; ++i) value[i] = load_once(values + at + i * 32);
#pragma unroll
    for (int i = 0; i < loads; ++i)
      seen ^= key[i].x ^ key[i].y ^ key[i].z ^ key[i].w ^ value[i].x ^ value[i].y ^ value[i].z ^ value[i].w;
  }
  if (seen == 0x9e3779b9u) *sink = seen;  // keeps the loads
}

}  // namespace bench
