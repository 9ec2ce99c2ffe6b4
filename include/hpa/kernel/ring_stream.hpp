// A wave's tiles through LDS: a ring of stages, filled by asynchronous copies that run ahead over the ends of items, so that the
// memory has work while waves merge.
#pragma once

#include "hpa/arch/async_copy.hpp"
#include "hpa/kernel/softmax.hpp"
#include "hpa/kernel/tile_cursor.hpp"

namespace hpa::kernel {

/// The query rows of an item, in registers.
template <class M, class C>
struct QueryRegisters {
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  typename Traits::template Lane<Words<Products::query_words>> operand[Traits::steps][Products::row_slots];

  template <class RowAddress>
  HPA_DEVICE void request(const typename M::Wave& wave, RowAddress&& row_address) {
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int slot = 0; slot < Products::row_slots; ++slot) {
        const Place first = Products::query_at(lane, 0);
        const char* const row = row_address(slot * Products::rows_a_slot + first.token);
        HPA_UNROLL
        for (int step = 0; step < Traits::steps; ++step)
          load_runs<typename M::Wave, Products::query_run, true>(wave, operand[step][slot][lane], [&](int i) {
            return row + (step * Products::element_step + Products::query_at(lane, i).element) * size_of(C::query);
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
  using Slab = VllmSlab<C::kv, Traits::tokens>;
  using Keys = arch::Strip<C::head_size / Slab::x, Traits::tokens * 16, C::block_size * 16>;
  using Values = arch::Strip<C::head_size, Traits::tokens * size_of(C::kv), C::block_size * size_of(C::kv)>;
  static constexpr int bytes = Keys::bytes + Values::bytes;
  template <class T>
  using Lane = typename M::template Lane<T>;

  HPA_DEVICE explicit StagedTile(const std::byte* data) : data_(data) {}

  /// Scores in base 2. Even and odd steps are summed apart: half as long a chain of products.
  HPA_DEVICE Scores<M, C> multiply_keys(Wave& wave, const QueryRegisters<M, C>& query, float scale_log2) const {
    Scores<M, C> even, odd;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int slot = 0; slot < Products::row_slots; ++slot) even.product[slot][lane] = odd.product[slot][lane] = M::Floats4::zero();
    });
    HPA_UNROLL
    for (int step = 0; step < Traits::steps; ++step) {
      const auto keys = wave.load_matrices([&](int lane) {
        const Place row = Products::key_matrix_row(lane);
        return data_ + Slab::key_offset(row.token, row.element) + step * Slab::key_offset(0, Products::element_step);
      });
      HPA_UNROLL
      for (int slot = 0; slot < Products::row_slots; ++slot)
        Products::scores((step % 2 == 0 ? even : odd).product[slot], keys, query.operand[step][slot]);
    }
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int slot = 0; slot < Products::row_slots; ++slot)
        even.product[slot][lane] = (even.product[slot][lane] + odd.product[slot][lane]) * scale_log2;
    });
    return even;
  }

  /// Adds the values to the output. Those that no row sees become zero: a probability of zero does not hide a NaN.
  template <bool Masked>
  HPA_DEVICE void add_values(Wave& wave, RunningSoftmax<M, C>& softmax,
                             const typename RunningSoftmax<M, C>::Probabilities (&probabilities)[Products::row_slots],
                             const Visible& visible) const {
    HPA_UNROLL
    for (int dim = 0; dim < Traits::dims; ++dim) {
      Lane<Words<Products::value_words>> values;
      wave.each([&](int lane) {
        load_values(lane, dim, values[lane]);
        if constexpr (Masked) mask(lane, values[lane], visible);
      });
      HPA_UNROLL
      for (int slot = 0; slot < Products::row_slots; ++slot) Products::output(softmax.output[slot][dim], values, probabilities[slot]);
    }
  }

 private:
  HPA_DEVICE void load_values(int lane, int dim, Words<Products::value_words>& values) const {
    constexpr int words_a_run = Products::value_run / 2;
    HPA_UNROLL
    for (int word = 0; word < Products::value_words; word += words_a_run) {
      const Place at = Products::value_at(lane, 2 * word);
      const auto* const from = data_ + Keys::bytes + Slab::value_offset(0, dim * Products::dim_step + at.element) + at.token * size_of(C::kv);
      const auto run = *reinterpret_cast<const Words<words_a_run>*>(from);
      HPA_UNROLL
      for (int i = 0; i < words_a_run; ++i) values.word[word + i] = run.word[i];
    }
  }

  static HPA_DEVICE void mask(int lane, Words<Products::value_words>& values, const Visible& visible) {
    HPA_UNROLL
    for (int word = 0; word < Products::value_words; ++word) {
      const int token = Products::value_at(lane, 2 * word).token;
      values.word[word] &= (visible.has(token) ? 0xffffu : 0u) | (visible.has(token + 1) ? 0xffff0000u : 0u);
    }
  }

  const std::byte* data_;
};

/// The ring of one wave.
template <class M, class C, int Waves, int RingBytes>
class RingStream {
 public:
  using Tile = StagedTile<M, C>;
  using Wave = typename M::Wave;
  using Cursor = TileCursor<M, C, Waves>;
  static constexpr int stages = RingBytes / Tile::bytes;
  using Copies = typename M::template Copies<stages, typename Tile::Keys, typename Tile::Values>;
  static constexpr int lds_bytes = stages * Tile::bytes;  // a wave
  static constexpr int bookkeeping_bytes = 8 * stages;    // a wave, whatever Copies needs
  static_assert(stages >= 2 && Copies::bookkeeping_bytes <= bookkeeping_bytes);

  HPA_DEVICE RingStream(Wave& wave, std::byte* ring, std::byte* bookkeeping, const Cursor& cursor)
      : cursor_(cursor), ring_(ring), copies_(wave, bookkeeping) {}

  /// Asks for the wave's first tiles, `early` of them before the kernel before this one has ended.
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
  /// Whether the id of that tile's block was negative; block 0 was read in its stead.
  HPA_DEVICE bool negative_id() const { return (negative_ids_ >> stage_ & 1) != 0; }

  /// The tile's keys have been used: their place takes other ones.
  HPA_DEVICE void release_keys(Wave& wave) {
    if (!cursor_.at_end()) copies_.template request<0>(wave, stage_, place_of(stage_), cursor_.keys(), cursor_.lane());
  }
  /// The same of its values, and the turn goes to the next tile.
  HPA_DEVICE void release_values(Wave& wave) {
    if (cursor_.at_end()) {
      copies_.pass(stage_);
    } else {
      copies_.template request<1>(wave, stage_, place_of(stage_) + Tile::Keys::bytes, cursor_.values(), cursor_.lane());
      const std::int32_t negative = cursor_.negative_id();
      negative_ids_ = (negative_ids_ & ~(1 << stage_)) | negative << stage_;
      cursor_.next(wave);
    }
    stage_ = stage_ + 1 == stages ? 0 : stage_ + 1;
  }

 private:
  HPA_DEVICE std::byte* place_of(int stage) const { return ring_ + stage * Tile::bytes; }

  Cursor cursor_;
  std::byte* ring_;
  Copies copies_;
  std::int32_t stage_ = 0, negative_ids_ = 0;  // of the stages: a bit each
};

}  // namespace hpa::kernel
