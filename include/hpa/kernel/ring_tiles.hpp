// RingTiles: a wave's tiles in LDS. A ring of stages is filled by asynchronous copies, which run ahead over the ends of items, so
// that memory has work while waves merge.
#pragma once

#include "hpa/arch/async_copy.hpp"
#include "hpa/kernel/softmax.hpp"
#include "hpa/kernel/tile_cursor.hpp"
#include "hpa/kernel/token_scales.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// The query rows of an item, in registers.
template <class M, class C>
struct QueryRegisters {
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  typename Traits::template Lane<Words<Products::query_words>> operand[Traits::steps][Products::row_sets];

  template <class RowAddress>
  HPA_DEVICE void request(const typename M::Wave& wave, RowAddress&& row_address) {
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int set = 0; set < Products::row_sets; ++set) {
        const char* const row = row_address(set * Products::rows_per_set + Products::query_at(lane, 0, 0).token);
        HPA_UNROLL
        for (int step = 0; step < Traits::steps; ++step)
          load_runs<typename M::Wave, C::query, Products::query_run, true>(wave, operand[step][set][lane], [&](int i) {
            return row + Products::query_at(lane, step, i).element * size_of(C::query);
          });
      }
    });
  }
};

/// A tile in LDS, laid out like a cache block of as many tokens: keys, then values.
template <class M, class C>
class StagedTile {
 public:
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  using Wave = typename M::Wave;
  using Layout = typename Traits::Layout;
  using Keys = typename Layout::template KeyStrip<C::head_size, Traits::tokens, C::block_size>;
  using Values = typename Layout::template ValueStrip<C::head_size, Traits::tokens, C::block_size>;
  using Scales = arch::Strip<1, Traits::tokens* int(sizeof(float)), C::block_size* int(sizeof(float))>;  // token_scales only
  static constexpr int scales_bytes = C::token_scales ? 2 * Scales::bytes : 0;
  static constexpr int bytes = Keys::bytes + Values::bytes + scales_bytes;
  template <class T>
  using Lane = typename M::template Lane<T>;

  HPA_DEVICE explicit StagedTile(const std::byte* data) : data_(data) {}

  /// The token scales of the tile; nullptr where `given` is false: all are 1.
  HPA_DEVICE TileScales scales(bool given) const {
    if (!given) return {nullptr, nullptr};
    const auto* const first = reinterpret_cast<const float*>(data_ + Keys::bytes + Values::bytes);
    return {first, first + Traits::tokens};
  }

  /// The scores of the tile, in base 2. Even and odd steps are summed apart: that halves the chain of dependent products.
  HPA_DEVICE Scores<M, C> multiply_keys(Wave& wave, const QueryRegisters<M, C>& query, float scale_log2) const {
    Scores<M, C> even, odd;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int set = 0; set < Products::row_sets; ++set) even.product[set][lane] = odd.product[set][lane] = M::Floats4::zero();
    });
    HPA_UNROLL
    for (int first = 0; first < Traits::steps; first += Products::key_steps) {
      const auto keys = wave.load_matrices([&](int lane) {
        const Place row = Products::key_matrix_row(lane);
        return data_ + Layout::key_offset(Traits::tokens, row.token, row.element) +
               Layout::key_offset(Traits::tokens, 0, first * Products::element_step);
      });
      HPA_UNROLL
      for (int step = first; step < first + Products::key_steps; ++step) {
        HPA_UNROLL
        for (int set = 0; set < Products::row_sets; ++set)
          Products::scores(wave, (step % 2 == 0 ? even : odd).product[set], keys, query.operand[step][set], step);
      }
    }
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int set = 0; set < Products::row_sets; ++set)
        even.product[set][lane] = (even.product[set][lane] + odd.product[set][lane]) * scale_log2;
    });
    return even;
  }

  /// Adds the values to the output. `Masked`: values that no row sees become zero, as a probability of zero does not hide a NaN.
  template <bool Masked, class Seen>
  HPA_DEVICE void add_values(Wave& wave, RunningSoftmax<M, C>& softmax,
                             const typename RunningSoftmax<M, C>::Probabilities (&probabilities)[Products::row_sets],
                             const Seen& visible, const TileScales& scales) const {
    const auto multiply = value_product<M, C>(wave, scales, [&] { return visible; });
    HPA_UNROLL
    for (int dim = 0; dim < Traits::dims; ++dim) {
      Lane<Words<Products::value_words>> values;
      wave.each([&](int lane) {
        load_values(lane, dim, values[lane]);
        if constexpr (Masked) ValueMask<M, C>(lane, visible).apply(values[lane]);
      });
      HPA_UNROLL
      for (int set = 0; set < Products::row_sets; ++set)
        multiply.output(wave, softmax.output[set][dim], values, probabilities[set]);
    }
  }

 private:
  HPA_DEVICE void load_values(int lane, int dim, Words<Products::value_words>& values) const {
    constexpr int bits = layout::code_bits(C::kv), words_per_run = Products::value_run * bits / 32;
    HPA_UNROLL
    for (int word = 0; word < Products::value_words; word += words_per_run) {
      const Place at = Products::value_at(lane, dim, 32 / bits * word);
      const auto* const from = data_ + Keys::bytes + Layout::value_offset(Traits::tokens, 0, at.element) +
                               Layout::value_offset(Traits::tokens, at.token, 0);
      const auto run = *reinterpret_cast<const Words<words_per_run>*>(from);
      HPA_UNROLL
      for (int i = 0; i < words_per_run; ++i) values.word[word + i] = run.word[i];
    }
  }

  const std::byte* data_;
};

/// The ring of one wave.
template <class M, class C>
class RingTiles {
 public:
  using Traits = TileTraits<M, C>;
  using Tile = StagedTile<M, C>;
  using Wave = typename M::Wave;
  static constexpr int waves = C::shape.waves, stages = C::shape.stages;
  using Cursor = TileCursor<M, C, waves>;
  using Copies = std::conditional_t<
      C::token_scales,
      typename M::template Copies<stages, typename Tile::Keys, typename Tile::Values, typename Tile::Scales, typename Tile::Scales>,
      typename M::template Copies<stages, typename Tile::Keys, typename Tile::Values>>;
  /// A wave's stages in LDS.
  struct alignas(16) Ring {
    std::byte stage[stages][Tile::bytes];
  };
  /// The LDS that Copies needs, a wave.
  struct alignas(8) Bookkeeping {
    std::byte stage[stages][8];
  };
  static_assert(Tile::bytes == C::shape.bytes_per_stage && Traits::tokens == C::shape.tile_tokens,
                "a tile is not what its row in tuning/ says");
  static_assert(stages >= 2, "a ring has two stages: copies run ahead of the products");
  static_assert(Copies::bookkeeping_bytes <= int(sizeof(Bookkeeping)), "Copies needs more than 8 bytes a stage");

  /// `rings`, `bookkeeping`: of all waves of the workgroup.
  HPA_DEVICE RingTiles(Wave& wave, Ring (&rings)[waves], Bookkeeping (&bookkeeping)[waves], const Cursor& cursor)
      : cursor_(cursor), ring_(place_of_wave(wave, rings)), copies_(wave, place_of_wave(wave, bookkeeping)) {}

  /// Asks for the wave's first tiles, `early` of them before the previous kernel has ended.
  HPA_DEVICE void open(Wave& wave, int early) {
    HPA_DO_NOT_UNROLL
    for (int stage = 0; stage < stages; ++stage) {
      if (stage == early) wave.await_previous_launch();
      release_keys(wave);
      release_values(wave);
    }
    if (early >= stages) wave.await_previous_launch();
    cursor_.look_ahead(wave);
  }

  /// The wave's next tile, once it has arrived.
  HPA_DEVICE Tile arrived(Wave& wave) {
    copies_.wait(wave, stage_);
    return Tile(place_of(stage_));
  }
  /// Whether the block id of the tile that arrived() returned was bad. Block 0 was read instead.
  HPA_DEVICE bool bad_id() const { return (bad_ids_ >> stage_ & 1) != 0; }

  /// Frees the keys of the current tile, whose place takes those of a later tile.
  HPA_DEVICE void release_keys(Wave& wave) {
    if (!cursor_.at_end()) copies_.template request<0>(wave, stage_, place_of(stage_), cursor_.keys(), cursor_.lane());
  }
  /// Frees the values of the current tile, whose place takes those of a later tile, and turns to the next tile.
  HPA_DEVICE void release_values(Wave& wave) {
    if (cursor_.at_end()) {
      copies_.pass(stage_);
    } else {
      std::byte* const values = place_of(stage_) + Tile::Keys::bytes;
      copies_.template request<1>(wave, stage_, values, cursor_.values(), cursor_.lane());
      if constexpr (C::token_scales) {
        std::byte* const scales = values + Tile::Values::bytes;
        copies_.template request<2>(wave, stage_, scales, cursor_.key_scales(), cursor_.lane());
        copies_.template request<3>(wave, stage_, scales + Tile::Scales::bytes, cursor_.value_scales(), cursor_.lane());
      }
      const std::int32_t bad = cursor_.bad_id();
      bad_ids_ = (bad_ids_ & ~(1 << stage_)) | bad << stage_;
      cursor_.next(wave);
    }
    stage_ = stage_ + 1 == stages ? 0 : stage_ + 1;
  }

 private:
  /// The element of an array in LDS that belongs to the wave. 32-bit arithmetic: 64-bit offsets cost a register that the 16-row
  /// kernels do not have.
  template <class T>
  static HPA_DEVICE std::byte* place_of_wave(const Wave& wave, T (&of_waves)[waves]) {
    return reinterpret_cast<std::byte*>(of_waves) + wave.index() * int(sizeof(T));
  }
  HPA_DEVICE std::byte* place_of(int stage) const { return ring_ + stage * Tile::bytes; }

  Cursor cursor_;
  std::byte* ring_;
  Copies copies_;
  std::int32_t stage_ = 0, bad_ids_ = 0;  // of the stages: a bit each
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
