// KeyTile, ValueTile, QueryTile: the keys and values of a tile in registers, and the query rows that multiply them.
#pragma once

#include "hpa/arch/products.hpp"
#include "hpa/kernel/kv_view.hpp"
#include "hpa/kernel/plan_records.hpp"
#include "hpa/layout/vllm.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

using arch::Place;
using arch::Words;

/// The compile-time facts of tiles of a (machine, config) pair.
template <class M, class C>
struct TileTraits {
  using Products = typename M::template Products<C::query, C::kv, C::shape.rows_per_pass>;
  using Layout = layout::LayoutOf<C::layout, layout::code_bits(C::kv)>;
  using Blocks = TileBlocks<Products::tile_tokens, C::block_size>;
  template <class T>
  using Lane = typename M::template Lane<T>;
  static constexpr int tokens = Products::tile_tokens;
  static constexpr int steps = C::head_size / Products::element_step;  // calls of scores() a product
  static constexpr int dims = C::head_size / Products::dim_step;       // calls of output() a tile
  static_assert(C::head_size % Products::element_step == 0 && C::head_size % Products::dim_step == 0);
  static_assert(Layout::value_run == layout::Along::tokens, "these products take runs of tokens from memory");
};

/// Loads a lane's words of an operand: runs of `Run` elements of `Type`, each of which lies together in memory. `Shared`: other
/// waves of the workgroup load the same.
template <class Wave, DType Type, int Run, bool Shared = false, int N, class Address>
HPA_DEVICE void load_runs(const Wave& wave, Words<N>& operand, Address&& address_of_element) {
  constexpr int run_words = Run * layout::code_bits(Type) / 32;
  HPA_UNROLL
  for (int run = 0; run < N / run_words; ++run) {
    Words<run_words> words;
    if constexpr (Shared)
      words = wave.template load_shared<Words<run_words>>(address_of_element(run * Run));
    else
      words = wave.template load<Words<run_words>>(address_of_element(run * Run));
    HPA_UNROLL
    for (int i = 0; i < run_words; ++i) operand.word[run * run_words + i] = words.word[i];
  }
}

/// The keys of one tile: [step of elements][score product].
template <class M, class C>
struct KeyTile {
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  static constexpr int operands = Traits::steps / Products::key_steps;
  typename Traits::template Lane<Words<Products::key_words>> operand[operands][Products::score_products];

  HPA_DEVICE void request(const typename M::Wave& wave, const KvView& cache, const typename Traits::Blocks& blocks) {
    wave.each([&](int lane) {
      const Place first = Products::key_at(lane, 0, 0);  // a lane's other runs lie at constant distances from it
      const char* start = cache.slab(blocks.block_of(first.token)) +
                          Traits::Layout::key_offset(C::block_size, blocks.slot_of(first.token), first.element);
      HPA_UNROLL
      for (int i = 0; i < operands; ++i) {
        HPA_UNROLL
        for (int product = 0; product < Products::score_products; ++product) {
          const int distance = Traits::Layout::key_offset(C::block_size, product * Products::product_tokens,
                                                          i * Products::key_steps * Products::element_step);
          load_runs<typename M::Wave, C::kv, Products::key_run>(wave, operand[i][product][lane],
                                                                [&](int) { return start + distance; });
        }
      }
    });
  }
};

/// The values of one tile: [step of head elements].
template <class M, class C>
struct ValueTile {
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  typename Traits::template Lane<Words<Products::value_words>> operand[Traits::dims];

  HPA_DEVICE void request(const typename M::Wave& wave, int dim, const KvView& cache, const typename Traits::Blocks& blocks) {
    wave.each([&](int lane) {
      const Place first = Products::value_at(lane, 0, 0);
      const char* start = cache.slab(blocks.block_of(first.token)) +
                          Traits::Layout::value_offset(C::block_size, blocks.slot_of(first.token), first.element);
      load_runs<typename M::Wave, C::kv, Products::value_run>(wave, operand[dim][lane], [&](int i) {
        return start + Traits::Layout::value_offset(C::block_size, 0, Products::value_at(lane, dim, i).element - first.element);
      });
    });
  }
};

/// The query rows of a pass on their way to LDS, where they become operands [step][lane]. The workgroup's waves load them
/// together, a fragment at a time.
template <class M, class C, int Waves>
struct QueryTile {
  using Staged = typename M::template StagedQuery<C::query, C::kv, C::head_size>;
  using Operand = typename Staged::Operand;
  static constexpr int turns = int(ceil_div(Staged::fragments, Waves));

  typename M::template Lane<Operand> fragments[turns];

  /// Asks for the wave's fragments. `row_address(row)`: the first element of a query row; rows past the last have the address of
  /// the last, so nothing is masked. A wave without a fragment loads the first row: that is cheaper than a branch.
  template <class RowAddress>
  HPA_DEVICE void request(const typename M::Wave& wave, RowAddress&& row_address) {
    HPA_UNROLL
    for (int turn = 0; turn < turns; ++turn) {
      const int n = wave.index() + turn * Waves, fragment = int(unsigned(n) % Staged::fragments);
      const bool exists = is_fragment(n);
      wave.each_afresh([&](int lane) {
        load_runs<typename M::Wave, C::query, Staged::fragment_elements>(wave, fragments[turn][lane], [&](int i) {
          const Place at = Staged::source_of(lane, fragment);
          return row_address(exists ? at.token : 0) + (at.element + i) * size_of(C::query);
        });
      });
    }
  }

  /// Writes the wave's fragments to LDS.
  HPA_DEVICE void stage(const typename M::Wave& wave, Operand* lds) const {
    HPA_UNROLL
    for (int turn = 0; turn < turns; ++turn) {
      const int n = wave.index() + turn * Waves;
      if (is_fragment(n)) Staged::stage(wave, fragments[turn], n, lds);
    }
  }

 private:
  static HPA_DEVICE bool is_fragment(int n) { return Staged::fragments % Waves == 0 || n < Staged::fragments; }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
