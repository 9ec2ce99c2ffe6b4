// AppendKernel, QuantiseKernel, CopyBlocksKernel: the kernels that write the cache. Head and block sizes are run-time values. Rows
// are read and blocks are copied 16 bytes at a time.
#pragma once

#include "hpa/kernel/kv_view.hpp"
#include "hpa/kernel/result.hpp"
#include "hpa/layout/codec.hpp"
#include "hpa/layout/vllm.hpp"
#include "hpa/tuning/kernel_shape.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

struct AppendParams {
  RowView key, value;  // [num_tokens, num_kv_heads, head_size]
  KvView key_cache, value_cache;
  const std::int64_t* slot_mapping;
  std::int32_t num_tokens, num_kv_heads, head_size, block_size;
  BlockIds block_ids;
};

/// The place of a token in the cache: a block, and a place in it.
struct Slot {
  std::int32_t block;
  int offset;
};

/// Calls f(token, slot) for every token of the wave that has a slot. Grid x and the waves of a workgroup cover tokens.
template <int Waves, class Wave, class F>
HPA_DEVICE void each_token(const Wave& wave, const AppendParams& p, F&& f) {
  for (std::int32_t token = wave.workgroup_x() * Waves + wave.index(); token < p.num_tokens; token += wave.workgroups_x() * Waves) {
    const std::int64_t slot = wave.uniform(p.slot_mapping + token);
    if (slot >= 0 && slot < std::int64_t{p.block_ids.limit} * p.block_size)
      f(token, Slot{std::int32_t(slot / p.block_size), int(slot % p.block_size)});
  }
}

/// append() for 16-bit caches: copies elements as bits. A lane has eight elements of one token and head, of K and of V. Head sizes
/// are multiples of eight.
template <class M, class Layout = layout::Vllm<16>>
struct AppendKernel {
  using Machine = M;
  using Params = AppendParams;
  using Wave = typename M::Wave;
  static constexpr tuning::KernelShape shape = M::Tuning::copy_kernel_shape();
  static constexpr int waves = shape.waves;
  static constexpr int lds_bytes = 0;
  static constexpr int x = 8;  // elements of 16 bytes
  static_assert(Layout::x == x && Layout::value_run == layout::Along::tokens,
                "a lane's elements of K lie together, those of V apart");

  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    const int vectors = p.num_kv_heads * (p.head_size / x);
    each_token<waves>(wave, p, [&](std::int32_t token, const Slot& slot) {
      wave.each([&](int lane) {
        for (int vector = lane; vector < vectors; vector += M::width) {
          const int head = vector / (p.head_size / x), element = vector % (p.head_size / x) * x;
          write_key(p, token, head, element, slot);
          write_value(p, token, head, element, slot);
        }
      });
    });
  }

 private:
  static HPA_DEVICE void write_key(const Params& p, std::int32_t token, int head, int element, const Slot& slot) {
    char* const slab = const_cast<char*>(p.key_cache.head(head).slab(slot.block));
    const auto vector = Wave::template load<Words<4>>(p.key.at(token, head) + 2 * element);
    Wave::store(slab + Layout::key_offset(p.block_size, slot.offset, element), vector);
  }

  static HPA_DEVICE void write_value(const Params& p, std::int32_t token, int head, int element, const Slot& slot) {
    char* const slab = const_cast<char*>(p.value_cache.head(head).slab(slot.block));
    const auto vector = Wave::template load<Words<4>>(p.value.at(token, head) + 2 * element);
    HPA_UNROLL
    for (int i = 0; i < x; ++i)
      Wave::store(slab + Layout::value_offset(p.block_size, slot.offset, element + i),
                  std::uint16_t(vector.word[i / 2] >> (16 * (i % 2))));
  }
};

struct QuantiseParams : AppendParams {
  const float *k_scale, *v_scale;               // nullptr = 1
  std::int32_t scale_stride;                    // between KV heads
  KvView key_token_scales, value_token_scales;  // [num_blocks, num_kv_heads, block_size], float
};

/// append() for 8-bit caches: code = element / scale, rounded and saturated. Divides, because a product with the reciprocal would
/// round twice. With `TokenScales` the scale is that of the (token, head): the largest magnitude becomes 127. A lane has eight
/// elements at a time; head sizes are multiples of 16, as those of 8-bit caches are.
template <class M, DType Query, DType Kv, bool TokenScales, class Layout = layout::Vllm<layout::code_bits(Kv)>>
struct QuantiseKernel {
  using Machine = M;
  using Params = QuantiseParams;
  using Wave = typename M::Wave;
  template <class T>
  using Lane = typename M::template Lane<T>;
  static constexpr tuning::KernelShape shape = M::Tuning::copy_kernel_shape();
  static constexpr int waves = shape.waves;
  static constexpr int lds_bytes = 0;
  static constexpr int run_length = 8;
  static_assert(layout::code_bits(Query) == 16 && layout::code_bits(Kv) == 8, "16-bit rows become 8-bit codes");
  static_assert(Layout::x % run_length == 0 && Layout::value_run == layout::Along::tokens,
                "a lane's codes of K lie together, those of V apart");

  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    each_token<waves>(wave, p, [&](std::int32_t token, const Slot& slot) {
      write(wave, p, p.key, token, slot, p.k_scale, p.key_token_scales, [&](int head, int element, const Words<2>& codes) {
        char* const slab = const_cast<char*>(p.key_cache.head(head).slab(slot.block));
        Wave::store(slab + Layout::key_offset(p.block_size, slot.offset, element), codes);
      });
      write(wave, p, p.value, token, slot, p.v_scale, p.value_token_scales, [&](int head, int element, const Words<2>& codes) {
        char* const slab = const_cast<char*>(p.value_cache.head(head).slab(slot.block));
        HPA_UNROLL
        for (int i = 0; i < run_length; ++i)
          Wave::store(slab + Layout::value_offset(p.block_size, slot.offset, element + i),
                      std::uint8_t(codes.word[i / 4] >> (8 * (i % 4))));
      });
    });
  }

 private:
  /// How the rows of a token are divided among the lanes of a wave. `lanes` neighbouring lanes have the row of one head: a run of
  /// it each or, where the row is long, every `lanes`-th run.
  struct RowLanes {
    int runs, lanes, rows;  // runs of a row, lanes a row, rows at a time
    HPA_DEVICE explicit RowLanes(int head_size)
        : runs(head_size / run_length), lanes(runs < M::width ? runs : M::width), rows(M::width / lanes) {}
    HPA_DEVICE int first_run(int lane) const { return lane % lanes; }
    /// The head whose row a lane has, of those from `first_head` on; `heads` when it has none.
    HPA_DEVICE int head(int lane, int first_head, int heads) const {
      const int head = first_head + lane / lanes;
      return lane < rows * lanes && head < heads ? head : heads;
    }
    /// The lane `by` places further among the lanes of a row; behind the last comes the first.
    HPA_DEVICE int neighbour(int lane, int by) const {
      if (lane >= rows * lanes) return lane;
      const int place = lane % lanes + by;
      return lane - lane % lanes + (place < lanes ? place : place - lanes);
    }
  };

  /// Quantises a token's rows and calls store(head, element, codes) for each eight of its codes.
  template <class Store>
  static HPA_DEVICE void write(const Wave& wave, const Params& p, const RowView& rows, std::int32_t token, const Slot& slot,
                               const float* scales, const KvView& token_scales, Store&& store) {
    const RowLanes row_lanes(p.head_size);
    const auto load = [&](int head, int run) {
      return Wave::template load<Words<4>>(rows.at(token, head) + 2 * (run * run_length));
    };
    for (int first_head = 0; first_head < p.num_kv_heads; first_head += row_lanes.rows) {
      Lane<Words<4>> vector;  // the lane's first run
      Lane<float> scale;
      wave.each([&](int lane) {
        const int head = row_lanes.head(lane, first_head, p.num_kv_heads);
        vector[lane] = {};
        scale[lane] = 1.f;
        if (head == p.num_kv_heads) return;
        vector[lane] = load(head, row_lanes.first_run(lane));
        if (scales != nullptr) scale[lane] = Wave::template load<float>(scales + head * p.scale_stride);
      });
      if constexpr (TokenScales) {
        wave.each([&](int lane) {
          const int head = row_lanes.head(lane, first_head, p.num_kv_heads);
          scale[lane] = largest(vector[lane]);
          if (head == p.num_kv_heads) return;
          for (int run = row_lanes.first_run(lane) + row_lanes.lanes; run < row_lanes.runs; run += row_lanes.lanes)
            scale[lane] = larger(scale[lane], largest(load(head, run)));
        });
        for (int by = 1; by < row_lanes.lanes; by *= 2) {
          const Lane<float> other = wave.shuffle(scale, [&](int lane) { return row_lanes.neighbour(lane, by); });
          wave.each([&](int lane) { scale[lane] = larger(scale[lane], other[lane]); });
        }
        wave.each([&](int lane) {
          const int head = row_lanes.head(lane, first_head, p.num_kv_heads);
          scale[lane] = M::quotient(scale[lane], 127.f);
          if (head == p.num_kv_heads || row_lanes.first_run(lane) != 0) return;
          Wave::store(const_cast<char*>(token_scales.head(head).slab(slot.block)) + 4 * slot.offset, scale[lane]);
        });
      }
      wave.each([&](int lane) {
        const int head = row_lanes.head(lane, first_head, p.num_kv_heads);
        if (head == p.num_kv_heads) return;
        for (int run = row_lanes.first_run(lane); run < row_lanes.runs; run += row_lanes.lanes) {
          const Words<4> elements = run < row_lanes.lanes ? vector[lane] : load(head, run);
          store(head, run * run_length, Words<2>{{quantised(elements, 0, scale[lane]), quantised(elements, 4, scale[lane])}});
        }
      });
    }
  }

  static HPA_DEVICE float element(const Words<4>& vector, int i) {
    return Format<Query>::decode(vector.word[i / 2] >> (16 * (i % 2)) & 0xffffu);
  }

  static HPA_DEVICE std::uint32_t quantised(const Words<4>& vector, int first, float scale) {
    const auto scaled = [&](int i) { return M::quotient(element(vector, first + i), scale); };
    return M::template narrow<Kv>(scaled(0), scaled(1), scaled(2), scaled(3));
  }

  static HPA_DEVICE float larger(float a, float b) { return b > a ? b : a; }
  /// The largest magnitude of a run. NaN does not count.
  static HPA_DEVICE float largest(const Words<4>& vector) {
    float most = 0.f;
    HPA_UNROLL
    for (int i = 0; i < run_length; ++i) most = larger(most, __builtin_fabsf(element(vector, i)));
    return most;
  }
};

struct CopyBlocksParams {
  KvView key_cache, value_cache;
  KvView key_token_scales, value_token_scales;  // data is nullptr: there are none
  const std::int64_t* block_pairs;
  BlockIds block_ids;
  std::int32_t num_pairs;
  std::int32_t slab_bytes;   // of one (block, KV head), K and V alike
  std::int32_t scale_bytes;  // of its token scales
};

/// Copies blocks of K and V, with their token scales, onto other blocks.
template <class M>
struct CopyBlocksKernel {
  using Machine = M;
  using Params = CopyBlocksParams;
  using Wave = typename M::Wave;
  static constexpr tuning::KernelShape shape = M::Tuning::copy_kernel_shape();
  static constexpr int waves = shape.waves;
  static constexpr int lds_bytes = 0;

  /// Grid x and the waves of a workgroup cover pairs, grid y covers KV heads.
  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    for (std::int32_t i = wave.workgroup_x() * waves + wave.index(); i < p.num_pairs; i += wave.workgroups_x() * waves) {
      const std::int64_t from = wave.uniform(p.block_pairs + 2 * i), to = wave.uniform(p.block_pairs + 2 * i + 1);
      if (from < 0 || to < 0 || from >= p.block_ids.limit || to >= p.block_ids.limit) continue;
      copy_slab<Words<4>>(wave, p.key_cache, std::int32_t(from), std::int32_t(to), p.slab_bytes);
      copy_slab<Words<4>>(wave, p.value_cache, std::int32_t(from), std::int32_t(to), p.slab_bytes);
      if (p.key_token_scales.data == nullptr) continue;
      copy_slab<float>(wave, p.key_token_scales, std::int32_t(from), std::int32_t(to), p.scale_bytes);
      copy_slab<float>(wave, p.value_token_scales, std::int32_t(from), std::int32_t(to), p.scale_bytes);
    }
  }

 private:
  template <class Vector>
  static HPA_DEVICE void copy_slab(const Wave& wave, const KvView& cache, std::int32_t from, std::int32_t to, int bytes) {
    constexpr int vector_bytes = int(sizeof(Vector));
    const char* const source = cache.head(wave.workgroup_y()).slab(from);
    char* const target = const_cast<char*>(cache.head(wave.workgroup_y()).slab(to));
    wave.each([&](int lane) {
      for (int at = lane * vector_bytes; at < bytes; at += M::width * vector_bytes)
        Wave::store(target + at, Wave::template load<Vector>(source + at));
    });
  }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
