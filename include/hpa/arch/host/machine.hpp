// The host's machine: whole waves emulated on the CPU. A per-lane value is an array of one value a lane, a wave is a thread, the
// workgroup barrier is a real barrier and LDS is memory that starts as NaN; so address, undefined-behaviour and thread sanitisers
// check the GPU kernels' bounds, arithmetic and LDS races. Wave width and lane ownership are CDNA's or NVIDIA's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hpa/arch/cdna/staged_query.hpp"
#include "hpa/arch/host/copies.hpp"
#include "hpa/arch/host/products.hpp"
#include "hpa/arch/host/workgroup.hpp"
#include "hpa/arch/portable_bytes.hpp"
#include "hpa/arch/products.hpp"
#include "hpa/types.hpp"

namespace hpa::arch {

/// Wave width 64: CDNA's lanes. 32: NVIDIA's.
template <int Width>
struct HostMachine {
  static_assert(Width == 64 || Width == 32, "wave widths are 64 (CDNA) and 32 (NVIDIA)");
  static constexpr int width = Width;
  static constexpr int decode_waves = 4, plan_waves = 2, reduce_waves = 2, copy_waves = 2;  // waves a workgroup, by kernel
  static constexpr int plan_shares = Width == 32 ? 2 : 1;  // workgroups that write for the same sequences
  static constexpr int lone_decode_waves = decode_waves;   // one kernel less to compile; more threads would show nothing new
  static constexpr bool runs_on(Arch arch) { return arch == Arch::host; }
  static constexpr int reduce_batch = 4;   // partials of a row in flight at a time
  static constexpr int reduce_pieces = 1;  // of four elements, that a lane has of its head
  static constexpr bool copies_to_lds = Width == 32;
  static constexpr int ring_bytes = 65536;   // in flight, of all decode waves of a compute unit
  static constexpr int unit_workgroups = 1;  // one kernel less to compile; another workgroup size would show nothing new

  template <class T>
  using Lane = HostLane<T, Width>;
  using Floats4 = HostFloats4;
  /// As gfx942: whether keys of 8 bits are multiplied as they are.
  static constexpr bool multiplies(DType query, DType kv) { return query == DType::bf16 && kv == DType::e4m3_fnuz; }
  template <DType Query, DType Kv, int Rows>
  using Products = std::conditional_t<
      Width == 64, CdnaProductsOf<HostMachine, EmulatedMfma<Query>, EmulatedByteMfma<Kv>, Query, Kv>,
      WarpProducts<EmulatedMma<Query>, Rows, Elements<HostMachine, Kv, Query>, EmulatedMma<output_type(Query, Kv)>>>;
  template <DType Query, DType Kv, int HeadSize>
  using StagedQuery = StagedQueryOf<HostMachine, Query, Kv, HeadSize>;
  template <int Stages, class... Strips>
  using Copies = HostCopies<Stages, Strips...>;

  template <class T, int Threads>
  using BlockScan = NoBlockScan;

  class Wave {
   public:
    Wave(HostWorkgroup& workgroup, int index) : workgroup_(workgroup), index_(index) {}

    // ids
    int index() const { return index_; }
    int waves() const { return workgroup_.waves(); }
    int workgroup_x() const { return x_; }
    int workgroup_y() const { return y_; }
    int workgroup_z() const { return z_; }
    int workgroups_x() const { return workgroups_x_; }
    void place(int x, int y, int z, int workgroups_x) { x_ = x, y_ = y, z_ = z, workgroups_x_ = workgroups_x; }
    void refresh() {}
    template <class Params>
    static const Params& loaded(const Params& params) {
      return params;
    }
    template <class Part, class Params>
    static const Part& reread(const Params& params) {
      return params;
    }
    static std::uint32_t made_anew(std::uint32_t constant) { return constant; }
    /// Runs the body for every lane; the lane's values are element `lane` of Lane objects.
    template <class Body>
    void each(Body&& body) const {
      for (int lane = 0; lane < Width; ++lane) body(lane);
    }
    template <class Body>
    void each_afresh(Body&& body) const {
      each(body);
    }

    // shuffle, ballot
    bool any(const Lane<bool>& condition) const {
      bool found = false;
      for (int lane = 0; lane < Width; ++lane) found |= condition[lane];
      return found;
    }
    /// Lane `lane` gets the value of lane `source(lane)`.
    template <class T, class Source>
    Lane<T> shuffle(const Lane<T>& value, Source&& source) const {
      Lane<T> result;
      for (int lane = 0; lane < Width; ++lane) result[lane] = value[source(lane)];
      return result;
    }
    /// Every lane gets the largest value of its group of `Lanes`.
    template <int Lanes>
    void spread_max(Lane<std::uint32_t>& value) const {
      for (int first = 0; first < Width; first += Lanes) {
        const std::uint32_t largest = *std::max_element(value.value + first, value.value + first + Lanes);
        std::fill_n(value.value + first, Lanes, largest);
      }
    }
    /// The value of one lane, the same one for all.
    template <class T>
    T broadcast(const Lane<T>& value, int lane) const {
      return value[lane];
    }

    // memory, LDS, barrier
    template <class T>
    static T load(const void* address) {
      T value;
      std::memcpy(&value, address, sizeof value);
      return value;
    }
    /// The same where other waves of the workgroup load it too.
    template <class T>
    static T load_shared(const void* address) {
      return load<T>(address);
    }
    template <class T>
    static void store(void* address, const T& value) {
      std::memcpy(address, &value, sizeof value);
    }
    /// to[place[lane]] = record[lane], where the place is not negative.
    template <class T>
    void store_at(T* to, const Lane<std::int32_t>& place, const Lane<T>& record) const {
      each([&](int lane) {
        if (place[lane] >= 0) to[place[lane]] = record[lane];
      });
    }
    /// A load with the same address in every lane, from memory that no kernel of the launch writes.
    template <class T>
    static T uniform(const T* address) {
      return load<T>(address);
    }
    /// Waits for values that were loaded and for all that was asked for before them.
    template <class... T>
    void await(const Lane<T>&...) const {}
    static void atomic_min(int* address, int value) {
      int seen = __atomic_load_n(address, __ATOMIC_RELAXED);
      while (value < seen && !__atomic_compare_exchange_n(address, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      }
    }
    std::byte* lds() const { return workgroup_.lds(); }
    /// Four 8x8 matrices of 16-bit elements from LDS; lane l gives the address of row l % 8 of matrix l / 8. Width 32.
    template <class Address>
    Lane<Words<4>> load_matrices(Address&& address) const {
      Lane<Words<4>> result;
      for (int lane = 0; lane < Width; ++lane)
        for (int matrix = 0; matrix < 4; ++matrix)
          result[lane].word[matrix] = load<std::uint32_t>(address(8 * matrix + lane / 4) + 4 * (lane % 4));
      return result;
    }
    /// Each word of the operand is a lane's part of an 8x8 matrix of 16-bit elements, row lane / 4; transposed. Width 32.
    template <int N>
    Lane<Words<N>> transpose_matrices(const Lane<Words<N>>& in) const {
      Lane<Words<N>> result;
      const auto element = [&](int word, int row, int col) {
        return in[4 * row + col / 2].word[word] >> (16 * (col % 2)) & 0xffffu;
      };
      for (int lane = 0; lane < Width; ++lane)
        for (int word = 0; word < N; ++word)
          result[lane].word[word] = element(word, 2 * (lane % 4), lane / 4) | element(word, 2 * (lane % 4) + 1, lane / 4) << 16;
      return result;
    }
    void barrier() const { workgroup_.barrier(); }
    void keep_order() const {}

    // launches do not overlap
    void await_previous_launch() const {}
    void allow_next_launch() const {}

   private:
    HostWorkgroup& workgroup_;
    int index_, x_ = 0, y_ = 0, z_ = 0, workgroups_x_ = 1;
  };

  // conversions and functions of one float
  template <DType Type>
  static std::uint32_t pack(float low, float high) {
    return Format<Type>::encode(low) | Format<Type>::encode(high) << 16;
  }
  /// Half 0 or 1 of what pack() made, exactly.
  template <DType Type>
  static float unpack(std::uint32_t word, int half) {
    return Format<Type>::decode(word >> (16 * half) & 0xffffu);
  }
  /// As pack(), for probabilities: a machine may truncate, since their sum is taken of the rounded values.
  template <DType Type>
  static std::uint32_t pack_probabilities(float low, float high) {
    return pack<Type>(low, high);
  }
  /// Four 8-bit codes, byte 0 first, as four 16-bit elements; exact. NaN gives NaN, Inf Inf.
  template <DType From, DType To>
  static Words<2> widen(std::uint32_t codes) {
    return widen_by_table<From, To>(codes);
  }
  /// Four floats as four 8-bit codes, byte 0 first: rounded to nearest even, saturating, Inf too; NaN gives NaN (i8: 0).
  template <DType To>
  static std::uint32_t narrow(float a, float b, float c, float d) {
    return narrow_exactly<To>(a, b, c, d);
  }
  /// The same of floats within the type's range, or NaN.
  template <DType To>
  static std::uint32_t narrow_bounded(const HostFloats4& x) {
    return narrow<To>(x[0], x[1], x[2], x[3]);
  }
  /// Four 8-bit floats, byte 0 first.
  template <DType From>
  static HostFloats4 floats(std::uint32_t codes) {
    HostFloats4 x;
    for (int i = 0; i < 4; ++i) x[i] = Format<From>::decode(codes >> (8 * i) & 0xffu);
    return x;
  }
  static float exp2(float x) { return std::exp2(x); }
  static float log2(float x) { return std::log2(x); }
  static float reciprocal(float x) { return 1.f / x; }
  static float quotient(float a, float b) { return a / b; }
  static float max(float a, float b) { return a > b ? a : b; }
  static float min(float a, float b) { return a < b ? a : b; }
};

}  // namespace hpa::arch
