// The cache's writers on the device: append and copy_blocks, vllm layout. Elements are copied as bits, 16 bytes at a time.
#pragma once

#include "hpa/kernel/kv_view.hpp"
#include "hpa/kernel/result.hpp"

namespace hpa::kernel {

struct AppendParams {
  RowView key, value;  // [num_tokens, num_kv_heads, head_size]
  KvView key_cache, value_cache;
  const std::int64_t* slot_mapping;
  std::int32_t num_tokens, num_kv_heads, head_size, block_size;
};

/// Eight elements of 16 bits of one token and head, in each cache.
template <class M>
struct AppendKernel {
  using Machine = M;
  using Params = AppendParams;
  using Wave = typename M::Wave;
  static constexpr int waves = M::copy_waves;
  static constexpr int lds_bytes = 0;
  static constexpr int x = 8;

  /// Grid x and the waves of a workgroup cover tokens.
  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    const int pieces = p.num_kv_heads * (p.head_size / x);
    for (std::int32_t token = wave.workgroup_x() * waves + wave.index(); token < p.num_tokens;
         token += wave.workgroups_x() * waves) {
      const std::int64_t slot = wave.uniform(p.slot_mapping + token);
      if (slot < 0) continue;
      wave.each([&](int lane) {
        for (int piece = lane; piece < pieces; piece += M::width) {
          const int head = piece / (p.head_size / x), element = piece % (p.head_size / x) * x;
          write_key(p, token, head, element, std::int32_t(slot / p.block_size), int(slot % p.block_size));
          write_value(p, token, head, element, std::int32_t(slot / p.block_size), int(slot % p.block_size));
        }
      });
    }
  }

 private:
  static HPA_DEVICE void write_key(const Params& p, std::int32_t token, int head, int element, std::int32_t block, int offset) {
    char* const slab = const_cast<char*>(p.key_cache.head(head).slab(block));
    const auto piece = Wave::template load<Words<4>>(p.key.at(token, head) + 2 * element);
    Wave::store(slab + (element / x * p.block_size + offset) * 16, piece);
  }

  static HPA_DEVICE void write_value(const Params& p, std::int32_t token, int head, int element, std::int32_t block, int offset) {
    char* const slab = const_cast<char*>(p.value_cache.head(head).slab(block));
    const auto piece = Wave::template load<Words<4>>(p.value.at(token, head) + 2 * element);
    HPA_UNROLL
    for (int i = 0; i < x; ++i)
      Wave::store(slab + ((element + i) * p.block_size + offset) * 2, std::uint16_t(piece.word[i / 2] >> (16 * (i % 2))));
  }
};

struct CopyBlocksParams {
  KvView key_cache, value_cache;
  const std::int64_t* block_pairs;
  std::int32_t num_pairs;
  std::int32_t slab_bytes;  // of one (block, KV head), K and V alike
};

template <class M>
struct CopyBlocksKernel {
  using Machine = M;
  using Params = CopyBlocksParams;
  using Wave = typename M::Wave;
  static constexpr int waves = M::copy_waves;
  static constexpr int lds_bytes = 0;

  /// Grid x and the waves of a workgroup cover pairs, grid y covers KV heads.
  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    for (std::int32_t i = wave.workgroup_x() * waves + wave.index(); i < p.num_pairs; i += wave.workgroups_x() * waves) {
      const std::int64_t from = wave.uniform(p.block_pairs + 2 * i), to = wave.uniform(p.block_pairs + 2 * i + 1);
      if (from < 0 || to < 0) continue;
      copy_slab(wave, p.key_cache, std::int32_t(from), std::int32_t(to), p.slab_bytes);
      copy_slab(wave, p.value_cache, std::int32_t(from), std::int32_t(to), p.slab_bytes);
    }
  }

 private:
  static HPA_DEVICE void copy_slab(const Wave& wave, const KvView& cache, std::int32_t from, std::int32_t to, int bytes) {
    const char* const source = cache.head(wave.workgroup_y()).slab(from);
    char* const target = const_cast<char*>(cache.head(wave.workgroup_y()).slab(to));
    wave.each([&](int lane) {
      for (int at = lane * 16; at < bytes; at += M::width * 16) Wave::store(target + at, Wave::template load<Words<4>>(source + at));
    });
  }
};

}  // namespace hpa::kernel
