// What a machine must have, and what most machines have alike.
//
// Kernels are templates over a machine M. A machine of a GPU is a folder here: machine.hpp (the machine), wave.hpp (its Wave),
// products.hpp (its matrix instructions), bytes.hpp (its 8-bit conversions), copies.hpp (its asynchronous copies, where it has them).
// host/ emulates each on the CPU. Below, "default" is what MachineDefaults or WaveDefaults gives: a machine's own files show only what is
// special about it. tests/host/test_machines.cpp holds every machine against this list.
//
// M, all of it static:
//
//   width                                  lanes of a wave
//   runs_on(Arch)                          the chips that it is for: Facts<M> in machines.hpp
//   compiles_here                          whether the compiler's pass is for one of them, or for the host: elsewhere kernels are empty
//   Tuning                                 the shapes of its kernels: tuning/
//   compiles_for(bytes)                    whether the pass is for chips with so many bytes of LDS a workgroup           (default: yes)
//   copies_to_lds                          whether tiles come to LDS by asynchronous copies, or to registers by loads  (default: no)
//     if so: Copies<Stages, Strips..>      async_copy.hpp has their list
//     if not: StagedQuery<Query, Kv, HeadSize>     cdna/staged_query.hpp
//            multiplies(Query, Kv)         whether 8-bit keys are multiplied as they are                                 (default: no)
//   Lane<T>                                one T a lane; value[lane] in a body that each() runs for `lane`
//   Floats4                                D of a matrix product: four floats a lane; zero(), [i], * float, + Floats4
//   Products<Query, Kv, Rows>              attention's two products; below
//   BlockScan<T, Threads>                  available, lds_bytes, exclusive(T& value, std::byte* lds) -> T     (default: NoBlockScan)
//   Wave                                   below
//
//   pack<Type>(low, high) -> word          two floats as 16-bit elements, rounded to nearest even; every NaN stays one
//   pack_plain<Type>(low, high)            the same of floats whose NaNs carry nothing: those of products, or of drop_payload()  (default: pack)
//   pack_probabilities<Type>(low, high)    the same, may truncate: sums are taken of what it gave                       (default: pack)
//   unpack<Type>(word, half) -> float      exactly
//   widen<From, To>(codes) -> Words<2>     four 8-bit codes as 16-bit elements, exactly; NaN gives NaN, Inf Inf
//   narrow<To>(a, b, c, d) -> codes        to nearest even, saturating, Inf too; NaN gives NaN (i8: 0)             (default: narrow_exactly)
//   narrow_bounded<To>(Floats4) -> codes   the same within the type's range, or NaN                                   (default: narrow)
//   floats<From>(codes) -> Floats4         four 8-bit floats                                                   (default: Format::decode)
//   exp2, log2, reciprocal (float) -> float
//   quotient(a, b) -> float                rounded as IEEE has it, whatever the flags                                   (default: a / b)
//   max, min (float, float) -> float       max(NaN, b) and min(NaN, b) are b
//
// Wave: one for each wave of a workgroup, made by entry() or by the host's launch. Values are of the whole wave; each() is where lanes are.
//
//   index(), waves()                       the wave's number in its workgroup, and how many there are
//   workgroup_x(), _y(), _z(), workgroups_x()
//   each(body)                             body(lane) for every lane
//   any(Lane<bool>) -> bool                whether it holds in some lane
//   count(Lane<bool>) -> int               in how many lanes it holds
//   shuffle(Lane<T>, source) -> Lane<T>    lane l gets the value of lane source(l); T is of whole words
//   broadcast(Lane<T>, lane) -> T          one lane's value                                                          (default: by shuffle)
//   spread_max<Lanes>(Lane<uint32>&)       every lane gets the largest of its group of `Lanes`, a power of two       (default: by shuffle)
//   load<T>(address), store(address, T)    global memory (and LDS, on the host); T has 1, 2, 4, 8 or 16 bytes
//   load_shared<T>(address)                the same where other waves of the workgroup load it too                      (default: load)
//   uniform(const T*) -> T                 one address for all lanes; T is of whole words
//   store_at(T* to, Lane<int32> place, Lane<T>)    to[place] = value where place is not negative                     (default: by each)
//   atomic_min(int*, int), atomic_add(int*, int)   of the whole device
//   lds() -> std::byte*                    the workgroup's LDS, 16-byte aligned
//   load_matrices(address) -> Lane<Words<4>>, transpose_matrices<N>(Lane<Words<N>>)    where Products need them: WarpProducts
//   barrier()                              of the workgroup: LDS and control
//   await_previous_launch(), allow_next_launch()   where a kernel may start before its predecessor has ended     (default: nothing)
//
//   For the optimiser alone; results are the same without them (default: nothing, or the value as it is):
//
//   loaded(value) -> value                 pins: a uniform value is in scalar registers from here on, loaded now and not where it is used
//   reread<Base>(params) -> Base           unpins: the kernel's arguments are read again here, not kept in registers until here
//   made_anew(constant) -> constant        opaque: a constant is made where it is used, not kept in a register
//   refresh()                              forgets the lane and the wave's index: arithmetic on them is done anew after it
//   each_afresh(body)                      each(), whose lane arithmetic is kept from no call to the next
//   keep_order()                           a fence: loads and arithmetic stay on their side of it
//   await(values..)                        waits here for values that were loaded, once, where each use would wait for its own
//
// Products: who holds what of a matrix product's operands, and the products themselves (products.hpp; a row is a query row of the tile).
//
//   rows, row_sets, set_rows               rows of a tile; sets of D's that hold them; rows of a set that one lane holds
//   tile_tokens, score_products, element_step, dim_step, key_steps, prob_type, output_run
//   key_words, key_run, query_words, query_run, value_words, value_run, prob_words
//   key_at(lane, product, i), query_at(lane, step, i), value_at(lane, dim, i) -> Place
//   score_row(lane, i), score_token(lane, product, i), output_row(lane, set, i), output_element(lane, dim, i)
//   token_lane_bits, token_lane_bit(i), score_lane_of(row)
//   scores(wave, d, keys, query, step)     d += keys query
//   to_operand(wave, packed)               packed scores become the output product's operand
//   output(wave, d, values, probabilities), output_scaled(.., scale)     d += values probabilities
#pragma once

#include <cstdint>

#include "hpa/arch/machines.hpp"
#include "hpa/arch/portable_bytes.hpp"
#include "hpa/arch/portable_rounding.hpp"
#include "hpa/arch/products.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// The members that most machines have alike. M: the machine that derives from it.
template <class M>
struct MachineDefaults {
  static constexpr int width = Facts<M>::width;
  static constexpr bool runs_on(Arch arch) { return Facts<M>::runs_on(arch); }
  using Tuning = typename Facts<M>::Tuning;
  static constexpr bool compiles_here = true;
  static constexpr bool compiles_for(int) { return true; }
  static constexpr bool copies_to_lds = false;
  static constexpr bool multiplies(DType, DType) { return false; }
  template <class T, int Threads>
  using BlockScan = NoBlockScan;

  template <DType Type>
  static HPA_DEVICE std::uint32_t pack_plain(float low, float high) {
    return M::template pack<Type>(low, high);
  }
  template <DType Type>
  static HPA_DEVICE std::uint32_t pack_probabilities(float low, float high) {
    return M::template pack<Type>(low, high);
  }
  template <DType To>
  static HPA_DEVICE std::uint32_t narrow(float a, float b, float c, float d) {
    return narrow_exactly<To>(a, b, c, d);
  }
  template <DType To, class Floats4>
  static HPA_DEVICE std::uint32_t narrow_bounded(const Floats4& x) {
    return M::template narrow<To>(x[0], x[1], x[2], x[3]);
  }
  template <DType From>
  static HPA_DEVICE auto floats(std::uint32_t codes) {
    auto x = M::Floats4::zero();
    HPA_UNROLL
    for (int i = 0; i < 4; ++i) x[i] = Format<From>::decode(codes >> (8 * i) & 0xffu);
    return x;
  }
  static HPA_DEVICE float quotient(float a, float b) { return a / b; }
};

/// The members that the waves of most machines have alike. Wave: the class that derives from it.
template <class Wave>
struct WaveDefaults {
  // for the optimiser alone
  template <class T>
  static HPA_DEVICE const T& loaded(const T& value) {
    return value;
  }
  template <class Base, class Params>
  static HPA_DEVICE const Base& reread(const Params& params) {
    return params;
  }
  static HPA_DEVICE std::uint32_t made_anew(std::uint32_t constant) { return constant; }
  HPA_DEVICE void refresh() const {}
  template <class Body>
  HPA_DEVICE void each_afresh(Body&& body) const {
    self().each(body);
  }
  HPA_DEVICE void keep_order() const {}
  template <class... Values>
  HPA_DEVICE void await(const Values&...) const {}

  // by other means of the wave
  template <class Value>
  HPA_DEVICE auto broadcast(const Value& value, int lane) const {
    return self().shuffle(value, [lane](int) { return lane; })[0];
  }
  template <int Lanes, class Value>
  HPA_DEVICE void spread_max(Value& value) const {
    static_assert(Lanes > 0 && (Lanes & (Lanes - 1)) == 0, "groups of lanes are powers of two");
    HPA_UNROLL
    for (int distance = 1; distance < Lanes; distance *= 2) {
      const auto other = self().shuffle(value, [distance](int lane) { return lane ^ distance; });
      self().each([&](int lane) { value[lane] = other[lane] > value[lane] ? other[lane] : value[lane]; });
    }
  }
  template <class T>
  static HPA_DEVICE T load_shared(const void* address) {
    return Wave::template load<T>(address);
  }
  template <class T, class Places, class Records>
  HPA_DEVICE void store_at(T* to, const Places& place, const Records& record) const {
    self().each([&](int lane) {
      if (place[lane] >= 0) to[place[lane]] = record[lane];
    });
  }

  // launches that do not overlap
  HPA_DEVICE void await_previous_launch() const {}
  HPA_DEVICE void allow_next_launch() const {}

 private:
  HPA_DEVICE const Wave& self() const { return static_cast<const Wave&>(*this); }
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
