// NVIDIA: sm_80 and up. Warps of 32 lanes, mma.m16n8k16. Tiles come to shared memory by asynchronous copies: plain sm_80 ones, or
// bulk copies on sm_90 where a tile is one piece of memory.
#pragma once

#include <type_traits>

#include "hpa/arch/device_lane.hpp"
#include "hpa/arch/nvidia/bytes.hpp"
#include "hpa/arch/nvidia/copies.hpp"
#include "hpa/arch/nvidia/products.hpp"
#include "hpa/types.hpp"

namespace hpa::arch {

namespace nvidia {
inline constexpr unsigned all_lanes = 0xffffffffu;

/// A type that one load or store instruction of T's size can have.
template <class T>
using Memory =
    std::conditional_t<sizeof(T) == 16, uint4,
                       std::conditional_t<sizeof(T) == 8, uint2,
                                          std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                                             std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>>;
}  // namespace nvidia

struct Nvidia {
  static constexpr int width = 32;
  static constexpr int plan_waves = 32, copy_waves = 4;  // waves a workgroup, by kernel
  static constexpr int plan_shares = 8;                  // workgroups that write for the same sequences
  static constexpr int reduce_waves = 8;                 // they share a row, or have one each
  static constexpr bool runs_on(Arch arch) { return arch == Arch::sm80 || arch == Arch::sm90; }
  static constexpr int reduce_batch = 2;   // partials of a row that a wave has in flight at a time
  static constexpr int reduce_pieces = 1;  // of four elements, that a lane has of its head
  static constexpr bool copies_to_lds = true;
  static constexpr int ring_bytes = 131072;  // in flight, of all decode waves of a multiprocessor: enough to saturate the memory
  static constexpr int unit_workgroups = 2;  // decode workgroups that share a multiprocessor where rows fill the chip

  template <class T>
  using Lane = DeviceLane<T>;
  using Floats4 = NvidiaFloats4;
  template <DType Query, DType Kv, int Rows>
  using Products = WarpProducts<Mma<Query>, Rows, layout::Codec<Nvidia, Kv, Query>, Mma<output_type(Query, Kv)>>;
  template <class T, int Threads>
  using BlockScan = NoBlockScan;
  template <int Stages, class... Strips>
  using Copies = std::conditional_t<HPA_CUDA_ARCH >= 900 && (Strips::dense && ...), nvidia::BulkCopies<Stages, Strips...>,
                                    nvidia::GroupedCopies<Stages, Strips...>>;

  class Wave {
   public:
    HPA_DEVICE explicit Wave(std::byte* lds) : lds_(lds) {}

    // ids
    HPA_DEVICE int index() const { return int(threadIdx.x) / width; }
    HPA_DEVICE int waves() const { return int(blockDim.x) / width; }
    HPA_DEVICE int workgroup_x() const { return int(blockIdx.x); }
    HPA_DEVICE int workgroup_y() const { return int(blockIdx.y); }
    HPA_DEVICE int workgroup_z() const { return int(blockIdx.z); }
    HPA_DEVICE int workgroups_x() const { return int(gridDim.x); }
    HPA_DEVICE void refresh() {}
    static HPA_DEVICE std::uint32_t made_anew(std::uint32_t constant) { return constant; }
    template <class Part, class Params>
    static HPA_DEVICE const Part& reread(const Params& params) {
      return params;
    }
    template <class Body>
    HPA_DEVICE void each(Body&& body) const {
      body(int(threadIdx.x) % width);
    }
    template <class Body>
    HPA_DEVICE void each_afresh(Body&& body) const {
      each(body);
    }

    // shuffle, ballot
    HPA_DEVICE bool any(const Lane<bool>& condition) const { return __any_sync(nvidia::all_lanes, condition.value) != 0; }
    template <class T, class Source>
    HPA_DEVICE Lane<T> shuffle(const Lane<T>& value, Source&& source) const {
      constexpr int words = sizeof(T) / 4;
      const int from = source(int(threadIdx.x) % width);
      const auto in = __builtin_bit_cast(Words<words>, value.value);
      Words<words> out;
      HPA_UNROLL
      for (int i = 0; i < words; ++i) out.word[i] = __shfl_sync(nvidia::all_lanes, in.word[i], from);
      return {__builtin_bit_cast(T, out)};
    }
    template <class T>
    HPA_DEVICE T broadcast(const Lane<T>& value, int lane) const {
      return shuffle(value, [&](int) { return lane; }).value;
    }

    // memory, LDS, barrier
    template <class T>
    static HPA_DEVICE T load(const void* address) {
      return __builtin_bit_cast(T, __ldcg(static_cast<const nvidia::Memory<T>*>(address)));
    }
    /// The same where other waves of the workgroup load it too: through L1. Not of what a kernel before may still be writing.
    template <class T>
    static HPA_DEVICE T load_shared(const void* address) {
      return __builtin_bit_cast(T, *static_cast<const nvidia::Memory<T>*>(address));
    }
    template <class T>
    static HPA_DEVICE void store(void* address, const T& value) {
      *static_cast<nvidia::Memory<T>*>(address) = __builtin_bit_cast(nvidia::Memory<T>, value);
    }
    /// to[place[lane]] = record[lane], where the place is not negative. Records have 32 bytes, a sector: two lanes store the halves of
    /// one record at a time, since a lane that stores both of its own sends the sector twice.
    template <class T>
    HPA_DEVICE void store_at(T* to, const Lane<std::int32_t>& place, const Lane<T>& record) const {
      using Half = Words<4>;
      struct Halves {
        Half half[2];
      };
      static_assert(sizeof(T) == sizeof(Halves));
      const auto partner = [](int lane) { return lane ^ 1; };
      const bool odd = threadIdx.x % 2 != 0;
      const Halves own = __builtin_bit_cast(Halves, record.value);
      const auto either = [&](Half if_odd, const Half& if_even) {
        HPA_UNROLL
        for (int i = 0; i < 4; ++i) if_odd.word[i] = odd ? if_odd.word[i] : if_even.word[i];
        return if_odd;
      };
      const Half others = shuffle(Lane<Half>{either(own.half[0], own.half[1])}, partner).value;
      const std::int32_t others_place = shuffle(place, partner).value;
      const auto store_half = [&](std::int32_t at, const Half& half) {
        if (at >= 0) store(reinterpret_cast<Half*>(to + at) + (odd ? 1 : 0), half);
      };
      store_half(odd ? others_place : place.value, either(others, own.half[0]));  // of the even lane's record
      store_half(odd ? place.value : others_place, either(own.half[1], others));  // of the odd lane's
    }
    template <class T>
    static HPA_DEVICE T uniform(const T* address) {
      using Piece = std::conditional_t<sizeof(T) % 16 == 0, uint4, std::conditional_t<sizeof(T) % 8 == 0, uint2, std::uint32_t>>;
      struct Pieces {
        Piece piece[sizeof(T) / sizeof(Piece)];
      } pieces;
      HPA_UNROLL
      for (int i = 0; i < int(sizeof(T) / sizeof(Piece)); ++i)
        pieces.piece[i] = __ldcg(reinterpret_cast<const Piece*>(address) + i);
      return __builtin_bit_cast(T, pieces);
    }
    static HPA_DEVICE void atomic_min(int* address, int value) { atomicMin(address, value); }
    HPA_DEVICE std::byte* lds() const { return lds_; }
    /// Four 8x8 matrices of 16-bit elements from LDS; lane l gives the address of row l % 8 of matrix l / 8.
    template <class Address>
    HPA_DEVICE Lane<Words<4>> load_matrices(Address&& address) const {
      Words<4> m;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(m.word[0]), "=r"(m.word[1]), "=r"(m.word[2]), "=r"(m.word[3])
                   : "r"(nvidia::shared_address(address(int(threadIdx.x) % width))));
      return {m};
    }
    /// Each word is the lane's part of an 8x8 matrix of 16-bit elements, row lane / 4; transposed.
    template <int N>
    HPA_DEVICE Lane<Words<N>> transpose_matrices(const Lane<Words<N>>& in) const {
      Lane<Words<N>> result;
      HPA_UNROLL
      for (int i = 0; i < N; ++i)
        asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result.value.word[i]) : "r"(in.value.word[i]));
      return result;
    }
    HPA_DEVICE void barrier() const { __syncthreads(); }
    HPA_DEVICE void keep_order() const {}

    // launches that overlap: of the kernel before this one in the stream, and of the one after it
    HPA_DEVICE void await_previous_launch() const {
#if HPA_CUDA_ARCH >= 900
      asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    }
    HPA_DEVICE void allow_next_launch() const {
#if HPA_CUDA_ARCH >= 900
      asm volatile("griddepcontrol.launch_dependents;");
#endif
    }

   private:
    std::byte* lds_;
  };

  // conversions and functions of one float
  template <DType Type>
  static HPA_DEVICE std::uint32_t pack(float low, float high) {
    std::uint32_t packed;
    if constexpr (Type == DType::f16)
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    else
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
  /// Half 0 or 1 of what pack() made, exactly.
  template <DType Type>
  static HPA_DEVICE float unpack(std::uint32_t word, int half) {
    const auto code = std::uint16_t(word >> (16 * half));
    if constexpr (Type == DType::bf16) return float_of(std::uint32_t(code) << 16);
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(code));
    return value;
  }
  template <DType Type>
  static HPA_DEVICE std::uint32_t pack_probabilities(float low, float high) {
    return pack<Type>(low, high);
  }
  /// Four 8-bit codes, byte 0 first, as four 16-bit elements; exact. NaN gives NaN, Inf Inf.
  template <DType From, DType To>
  static HPA_DEVICE Words<2> widen(std::uint32_t codes) {
    if constexpr (nvidia::converts<From>)
      return nvidia::widen_natively<From, To>(codes);
    else
      return nvidia::widen_by_bits<From, To>(codes);
  }
  /// Four floats as four 8-bit codes, byte 0 first: rounded to nearest even, saturating, Inf too; NaN gives NaN (i8: 0).
  template <DType To>
  static HPA_DEVICE std::uint32_t narrow(float a, float b, float c, float d) {
    if constexpr (nvidia::converts<To>)
      return nvidia::narrow_natively<To>(a, b, c, d);
    else
      return narrow_exactly<To>(a, b, c, d);
  }
  static HPA_DEVICE float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static HPA_DEVICE float log2(float x) { return __log2f(x); }
  static HPA_DEVICE float reciprocal(float x) { return __frcp_rn(x); }
  static HPA_DEVICE float quotient(float a, float b) { return __fdiv_rn(a, b); }  // with --use_fast_math too
  static HPA_DEVICE float max(float a, float b) { return fmaxf(a, b); }
  static HPA_DEVICE float min(float a, float b) { return fminf(a, b); }
};

}  // namespace hpa::arch
