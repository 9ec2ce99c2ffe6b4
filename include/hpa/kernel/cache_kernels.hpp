// The cache's writers on the device: append, with or without quantising, and copy_blocks; vllm layout. Rows are read and blocks are
// copied 16 bytes at a time.
#pragma once

#include "hpa/kernel/kv_view.hpp"
#include "hpa/kernel/result.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

struct AppendParams {
  RowView key, value;  // [num_tokens, num_kv_heads, head_size]
  KvView key_cache, value_cache;
  const std::int64_t* slot_mapping;
  std::int32_t num_tokens, num_kv_heads, head_size, block_size;
};

/// Where a token goes.
struct Slot {
  std::int32_t block;
  int offset;
};

/// Calls f(token, slot) for every token of a wave that has a slot. Grid x and the waves of a workgroup cover tokens.
template <int Waves, class Wave, class F>
HPA_DEVICE void each_token(const Wave& wave, const AppendParams& p, F&& f) {
  for (std::int32_t token = wave.workgroup_x() * Waves + wave.index(); token < p.num_tokens; token += wave.workgroups_x() * Waves) {
    const std::int64_t slot = wave.uniform(p.slot_mapping + token);
    if (slot >= 0) f(token, Slot{std::int32_t(slot / p.block_size), int(slot % p.block_size)});
  }
}

/// 16-bit caches: elements are copied as bits. A lane has eight elements of one token and head, of each cache.
template <class M>
struct AppendKernel {
  using Machine = M;
  using Params = AppendParams;
  using Wave = typename M::Wave;
  static constexpr int waves = M::copy_waves;
  static constexpr int lds_bytes = 0;
  static constexpr int x = 8;

  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    const int pieces = p.num_kv_heads * (p.head_size / x);
    each_token<waves>(wave, p, [&](std::int32_t token, const Slot& slot) {
      wave.each([&](int lane) {
        for (int piece = lane; piece < pieces; piece += M::width) {
          const int head = piece / (p.head_size / x), element = piece % (p.head_size / x) * x;
          write_key(p, token, head, element, slot);
          write_value(p, token, head, element, slot);
        }
      });
    });
  }

 private:
  static HPA_DEVICE void write_key(const Params& p, std::int32_t token, int head, int element, const Slot& slot) {
    char* const slab = const_cast<char*>(p.key_cache.head(head).slab(slot.block));
    const auto piece = Wave::template load<Words<4>>(p.key.at(token, head) + 2 * element);
    Wave::store(slab + (element / x * p.block_size + slot.offset) * 16, piece);
  }

  static HPA_DEVICE void write_value(const Params& p, std::int32_t token, int head, int element, const Slot& slot) {
    char* const slab = const_cast<char*>(p.value_cache.head(head).slab(slot.block));
    const auto piece = Wave::template load<Words<4>>(p.value.at(token, head) + 2 * element);
    HPA_UNROLL
    for (int i = 0; i < x; ++i)
      Wave::store(slab + ((element + i) * p.block_size + slot.offset) * 2, std::uint16_t(piece.word[i / 2] >> (16 * (i % 2))));
  }
};

struct QuantiseParams : AppendParams {
  const float *k_scale, *v_scale;               // one float, or nullptr = 1
  KvView key_token_scales, value_token_scales;  // [num_blocks, num_kv_heads, block_size], float
};

/// 8-bit caches: code = element / scale, rounded and saturated. A division, not a product with the reciprocal, which rounds twice.
/// With `TokenScales` the scale is that of the (token, head): the largest magnitude becomes 127. A lane has eight elements.
template <class M, DType Query, DType Kv, bool TokenScales>
struct QuantiseKernel {
  using Machine = M;
  using Params = QuantiseParams;
  using Wave = typename M::Wave;
  template <class T>
  using Lane = typename M::template Lane<T>;
  static constexpr int waves = M::copy_waves;
  static constexpr int lds_bytes = 0;
  static constexpr int run_length = 8, x = per_16_bytes(Kv);
  static_assert(size_of(Query) == 2 && size_of(Kv) == 1);

  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    const float k_scale = p.k_scale == nullptr ? 1.f : wave.uniform(p.k_scale);
    const float v_scale = p.v_scale == nullptr ? 1.f : wave.uniform(p.v_scale);
    each_token<waves>(wave, p, [&](std::int32_t token, const Slot& slot) {
      write(wave, p, p.key, token, slot, k_scale, p.key_token_scales, [&](int head, int element, const Words<2>& codes) {
        char* const slab = const_cast<char*>(p.key_cache.head(head).slab(slot.block));
        Wave::store(slab + (element / x * p.block_size + slot.offset) * x + element % x, codes);
      });
      write(wave, p, p.value, token, slot, v_scale, p.value_token_scales, [&](int head, int element, const Words<2>& codes) {
        char* const slab = const_cast<char*>(p.value_cache.head(head).slab(slot.block)) + slot.offset;
        HPA_UNROLL
        for (int i = 0; i < run_length; ++i)
          Wave::store(slab + (element + i) * p.block_size, std::uint8_t(codes.word[i / 4] >> (8 * (i % 4))));
      });
    });
  }

 private:
  /// Quantises a token's rows and calls store(head, element, codes) for each eight of its codes.
  template <class Store>
  static HPA_DEVICE void write(const Wave& wave, const Params& p, const RowView& rows, std::int32_t token, const Slot& slot,
                               float scale_of_all, const KvView& token_scales, Store&& store) {
    const int runs = p.head_size / run_length, pieces = p.num_kv_heads * runs;
    for (int first = 0; first < pieces; first += M::width) {
      Lane<Words<4>> piece;
      Lane<float> scale;
      wave.each([&](int lane) {
        const int at = first + lane;
        piece[lane] = {};
        if (at < pieces) piece[lane] = Wave::template load<Words<4>>(rows.at(token, at / runs) + 2 * (at % runs * run_length));
        scale[lane] = scale_of_all;
      });
      if constexpr (TokenScales) {
        scale = scales_of_rows(wave, piece, runs);
        wave.each([&](int lane) {
          const int at = first + lane;
          if (at >= pieces || at % runs != 0) return;
          Wave::store(const_cast<char*>(token_scales.head(at / runs).slab(slot.block)) + 4 * slot.offset, scale[lane]);
        });
      }
      wave.each([&](int lane) {
        const int at = first + lane;
        const Words<2> codes{{quantised(piece[lane], 0, scale[lane]), quantised(piece[lane], 4, scale[lane])}};
        if (at < pieces) store(at / runs, at % runs * run_length, codes);
      });
    }
  }

  static HPA_DEVICE float element(const Words<4>& piece, int i) {
    return Format<Query>::decode(piece.word[i / 2] >> (16 * (i % 2)) & 0xffffu);
  }

  static HPA_DEVICE std::uint32_t quantised(const Words<4>& piece, int first, float scale) {
    const auto scaled = [&](int i) { return M::quotient(element(piece, first + i), scale); };
    return M::template narrow<Kv>(scaled(0), scaled(1), scaled(2), scaled(3));
  }

  /// max |x| / 127 over the `runs` lanes of a row, a power of two. NaN does not count.
  static HPA_DEVICE Lane<float> scales_of_rows(const Wave& wave, const Lane<Words<4>>& piece, int runs) {
    const auto larger = [](float a, float b) { return b > a ? b : a; };
    Lane<float> most;
    wave.each([&](int lane) {
      most[lane] = 0.f;
      HPA_UNROLL
      for (int i = 0; i < run_length; ++i) most[lane] = larger(most[lane], __builtin_fabsf(element(piece[lane], i)));
    });
    for (int bit = 1; bit < runs; bit *= 2) {
      const Lane<float> other = wave.shuffle(most, [&](int lane) { return lane ^ bit; });
      wave.each([&](int lane) { most[lane] = larger(most[lane], other[lane]); });
    }
    wave.each([&](int lane) { most[lane] = M::quotient(most[lane], 127.f); });
    return most;
  }
};

struct CopyBlocksParams {
  KvView key_cache, value_cache;
  KvView key_token_scales, value_token_scales;  // of nullptr: none
  const std::int64_t* block_pairs;
  std::int32_t num_pairs;
  std::int32_t slab_bytes;   // of one (block, KV head), K and V alike
  std::int32_t scale_bytes;  // of its token scales
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
      copy_slab<Words<4>>(wave, p.key_cache, std::int32_t(from), std::int32_t(to), p.slab_bytes);
      copy_slab<Words<4>>(wave, p.value_cache, std::int32_t(from), std::int32_t(to), p.slab_bytes);
      if (p.key_token_scales.data == nullptr) continue;
      copy_slab<float>(wave, p.key_token_scales, std::int32_t(from), std::int32_t(to), p.scale_bytes);
      copy_slab<float>(wave, p.value_token_scales, std::int32_t(from), std::int32_t(to), p.scale_bytes);
    }
  }

 private:
  template <class Piece>
  static HPA_DEVICE void copy_slab(const Wave& wave, const KvView& cache, std::int32_t from, std::int32_t to, int bytes) {
    constexpr int piece = int(sizeof(Piece));
    const char* const source = cache.head(wave.workgroup_y()).slab(from);
    char* const target = const_cast<char*>(cache.head(wave.workgroup_y()).slab(to));
    wave.each([&](int lane) {
      for (int at = lane * piece; at < bytes; at += M::width * piece)
        Wave::store(target + at, Wave::template load<Piece>(source + at));
    });
  }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
