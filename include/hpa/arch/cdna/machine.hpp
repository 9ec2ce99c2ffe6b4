// AMD CDNA: gfx90a, gfx942, gfx950. Waves of 64 lanes, matrix instructions 16x16x16 (gfx950: 16x16x32, half as many).
#pragma once

#include <type_traits>

#include "hpa/arch/cdna/bytes.hpp"
#include "hpa/arch/cdna/products.hpp"
#include "hpa/arch/cdna/scan.hpp"
#include "hpa/arch/cdna/staged_query.hpp"
#include "hpa/arch/device_lane.hpp"
#include "hpa/types.hpp"

#if defined(__HIP_DEVICE_COMPILE__)
#define HPA_GLOBAL_MEMORY __attribute__((address_space(1)))
#define HPA_CONSTANT_MEMORY __attribute__((address_space(4)))
#else
#define HPA_GLOBAL_MEMORY
#define HPA_CONSTANT_MEMORY
#endif

namespace hpa::arch {

namespace cdna {
#if defined(__gfx950__)
inline constexpr bool rounds_to_bf16 = true;  // by one instruction for two floats
#else
inline constexpr bool rounds_to_bf16 = false;
#endif

/// A type that one load or store instruction of T's size can have.
template <class T>
using Memory =
    std::conditional_t<sizeof(T) == 16, std::uint32_t __attribute__((ext_vector_type(4))),
                       std::conditional_t<sizeof(T) == 8, std::uint32_t __attribute__((ext_vector_type(2))),
                                          std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                                             std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>>;

/// A value that the optimiser knows nothing of: arithmetic on it is neither hoisted nor shared.
HPA_DEVICE int hide(int value) {
#if defined(__HIP_DEVICE_COMPILE__)
  asm volatile("" : "+v"(value));
#endif
  return value;
}

/// Rounded to nearest even. Without the instruction a NaN stays one only if its lower half is zero, as it is when it comes from the
/// matrix products or from the hardware.
HPA_DEVICE std::uint32_t bf16_pair([[maybe_unused]] float low, [[maybe_unused]] float high) {
#if defined(__HIP_DEVICE_COMPILE__)
  if constexpr (rounds_to_bf16) {
    using BFloat2 = __bf16 __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(std::uint32_t, BFloat2{__bf16(low), __bf16(high)});
  }
  const auto rounded = [](std::uint32_t bits) { return bits + 0x7fff + (bits >> 16 & 1); };
  return __builtin_amdgcn_perm(rounded(bits_of(high)), rounded(bits_of(low)), 0x07060302);
#else
  return 0;
#endif
}
}  // namespace cdna

struct Cdna {
  static constexpr int width = 64;
  static constexpr int decode_waves = 4, lone_decode_waves = 8, plan_waves = 16, reduce_waves = 1,
                       copy_waves = 4;   // waves a workgroup, by kernel
  static constexpr int plan_shares = 1;  // workgroups that write for the same sequences
  static constexpr int min_waves_per_simd = 4;
  static constexpr bool runs_on(Arch arch) { return arch == Arch::gfx90a || arch == Arch::gfx942 || arch == Arch::gfx950; }

  template <class T>
  using Lane = DeviceLane<T>;
  using Floats4 = CdnaFloats4;
  static constexpr int reduce_batch = 4;   // partials of a row in flight at a time
  static constexpr int reduce_pieces = 2;  // of four elements, that a lane has of its head
  static constexpr bool copies_to_lds = false;
  /// Whether keys of 8 bits are multiplied as they are. Two terms hold bf16, not f16; gfx950 widens two codes by one instruction.
  static constexpr bool multiplies(DType query, DType kv) {
    return cdna::converts_fnuz && query == DType::bf16 && kv == DType::e4m3_fnuz;
  }
  template <DType Query, DType Kv, int>
  using Products = CdnaProductsOf<Cdna, Mfma<Query>, ByteMfma<Kv>, Query, Kv>;
  template <DType Query, DType Kv, int HeadSize>
  using StagedQuery = StagedQueryOf<Cdna, Query, Kv, HeadSize>;
  template <class T, int Threads>
  using BlockScan = CdnaBlockScan<T, Threads>;

  class Wave {
   public:
    HPA_DEVICE explicit Wave(std::byte* lds)
        : lds_(lds), index_(__builtin_amdgcn_readfirstlane(int(threadIdx.x) / width)), thread_(cdna::hide(int(threadIdx.x))) {}

    // ids
    HPA_DEVICE int index() const { return index_; }
    HPA_DEVICE int waves() const { return int(blockDim.x) / width; }
    HPA_DEVICE int workgroup_x() const { return int(blockIdx.x); }
    HPA_DEVICE int workgroup_y() const { return int(blockIdx.y); }
    HPA_DEVICE int workgroup_z() const { return int(blockIdx.z); }
    HPA_DEVICE int workgroups_x() const { return int(gridDim.x); }
    /// Lane arithmetic after this is done anew: kept across a long loop it would cost the registers that the loop needs.
    HPA_DEVICE void refresh() { thread_ = cdna::hide(int(threadIdx.x)), index_ = loaded(index_); }
    /// Kernel arguments, all loaded by now: the compiler would load each where it is first used, and wait for it there.
    template <class Params>
    static HPA_DEVICE Params loaded(const Params& params) {
      auto words = __builtin_bit_cast(Words<sizeof(Params) / 4>, params);
#if defined(__HIP_DEVICE_COMPILE__)
      HPA_UNROLL
      for (int i = 0; i < int(sizeof(Params) / 4); ++i) {
        words.word[i] = std::uint32_t(__builtin_amdgcn_readfirstlane(int(words.word[i])));  // scalar, whatever the optimiser proves
        asm volatile("" : "+s"(words.word[i]));
      }
#endif
      return __builtin_bit_cast(Params, words);
    }
    /// A part of the kernel's arguments, read where it is used: kept in registers from the start it would cost others theirs.
    template <class Part, class Params>
    static HPA_DEVICE Part reread([[maybe_unused]] const Params& params) {
#if defined(__HIP_DEVICE_COMPILE__)
      if constexpr (std::is_empty_v<Part>) {
        return {};
      } else {
        const auto offset =
            reinterpret_cast<const char*>(static_cast<const Part*>(&params)) - reinterpret_cast<const char*>(&params);
        int zero = 0;
        asm volatile("" : "+s"(zero));
        return uniform((const Part*)((const HPA_CONSTANT_MEMORY char*)__builtin_amdgcn_kernarg_segment_ptr() + offset + zero));
      }
#else
      return params;
#endif
    }
    /// A constant that is not kept in a register between its uses.
    static HPA_DEVICE std::uint32_t made_anew(std::uint32_t constant) { return std::uint32_t(cdna::hide(int(constant))); }
    template <class Body>
    HPA_DEVICE void each(Body&& body) const {
      body(thread_ & 63);
    }
    /// As each(), with lane arithmetic that is never kept in a register from one call to the next.
    template <class Body>
    HPA_DEVICE void each_afresh(Body&& body) const {
      body(cdna::hide(int(threadIdx.x)) & 63);
    }

    // shuffle, ballot
    HPA_DEVICE bool any(const Lane<bool>& condition) const { return __builtin_amdgcn_ballot_w64(condition.value) != 0; }
    template <class T, class Source>
    HPA_DEVICE Lane<T> shuffle(const Lane<T>& value, Source&& source) const {
      constexpr int words = sizeof(T) / 4;
      const int from = source(cdna::hide(int(threadIdx.x)) & 63) * 4;
      const auto in = __builtin_bit_cast(Words<words>, value.value);
      Words<words> out;
      HPA_UNROLL
      for (int i = 0; i < words; ++i) out.word[i] = std::uint32_t(__builtin_amdgcn_ds_bpermute(from, int(in.word[i])));
      return {__builtin_bit_cast(T, out)};
    }

    /// Every lane gets the largest value of its group of `Lanes`, 8 or 16, by exchanges within rows of 16 lanes.
    template <int Lanes>
    HPA_DEVICE void spread_max([[maybe_unused]] Lane<std::uint32_t>& value) const {
      static_assert(Lanes == 8 || Lanes == 16);
#if defined(__HIP_DEVICE_COMPILE__)
      const auto with = [&](auto control) {
        const auto other = std::uint32_t(__builtin_amdgcn_mov_dpp(int(value.value), decltype(control)::value, 0xf, 0xf, true));
        value.value = other > value.value ? other : value.value;
      };
      with(std::integral_constant<int, 0xb1>{});                              // quad_perm: 1, 0, 3, 2
      with(std::integral_constant<int, 0x4e>{});                              // quad_perm: 2, 3, 0, 1
      with(std::integral_constant<int, 0x141>{});                             // the lane as far from the other end of eight
      if constexpr (Lanes == 16) with(std::integral_constant<int, 0x140>{});  // of sixteen
#endif
    }

    // memory, LDS, barrier
    template <class T>
    static HPA_DEVICE T load(const void* address) {
      return __builtin_bit_cast(T, *(const HPA_GLOBAL_MEMORY cdna::Memory<T>*)(address));
    }
    template <class T>
    static HPA_DEVICE void store(void* address, const T& value) {
      *(HPA_GLOBAL_MEMORY cdna::Memory<T>*)(address) = __builtin_bit_cast(cdna::Memory<T>, value);
    }
    /// to[place[lane]] = record[lane], where the place is not negative.
    template <class T>
    HPA_DEVICE void store_at(T* to, const Lane<std::int32_t>& place, const Lane<T>& record) const {
      each([&](int lane) {
        if (place[lane] >= 0) to[place[lane]] = record[lane];
      });
    }
    template <class T>
    static HPA_DEVICE T uniform(const T* address) {
      const auto* words = (const HPA_CONSTANT_MEMORY std::uint32_t*)(address);
      Words<sizeof(T) / 4> value;
      HPA_UNROLL
      for (int i = 0; i < int(sizeof(T) / 4); ++i) value.word[i] = words[i];
      return __builtin_bit_cast(T, value);
    }
    /// Waits for values that were loaded and for all that was asked for before them: once, where each use would wait for its own.
    template <class... T>
    HPA_DEVICE void await([[maybe_unused]] const Lane<T>&... values) const {
      keep_order();
#if defined(__HIP_DEVICE_COMPILE__)
      wait_for(__builtin_bit_cast(cdna::Memory<T>, values.value)...);
#endif
      keep_order();
    }
    static HPA_DEVICE void atomic_min([[maybe_unused]] int* address, [[maybe_unused]] int value) {
#if defined(__HIP_DEVICE_COMPILE__)
      __hip_atomic_fetch_min((HPA_GLOBAL_MEMORY int*)(address), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
    }
    HPA_DEVICE std::byte* lds() const { return lds_; }
    HPA_DEVICE void barrier() const { __syncthreads(); }
    /// Instructions stay on their side of it: loads are asked for where the source asks for them.
    HPA_DEVICE void keep_order() const { __builtin_amdgcn_sched_barrier(0); }

    // launches do not overlap
    HPA_DEVICE void await_previous_launch() const {}
    HPA_DEVICE void allow_next_launch() const {}

   private:
    template <class T>
    static HPA_DEVICE void wait_for(const T& a) {
      asm volatile("" : : "v"(a));
    }
    template <class T, class U>
    static HPA_DEVICE void wait_for(const T& a, const U& b) {
      asm volatile("" : : "v"(a), "v"(b));
    }

    std::byte* lds_;
    int index_, thread_;
  };

  // conversions and functions of one float
  template <DType Type>
  static HPA_DEVICE std::uint32_t pack([[maybe_unused]] float low, [[maybe_unused]] float high) {
#if defined(__HIP_DEVICE_COMPILE__)
    if constexpr (Type == DType::f16) {
      using Half2 = _Float16 __attribute__((ext_vector_type(2)));
      return __builtin_bit_cast(std::uint32_t, Half2{_Float16(low), _Float16(high)});
    } else {
      return cdna::bf16_pair(low, high);
    }
#else
    return 0;
#endif
  }
  /// Half 0 or 1 of what pack() made, exactly.
  template <DType Type>
  static HPA_DEVICE float unpack(std::uint32_t word, int half) {
    const auto code = std::uint16_t(word >> (16 * half));
    if constexpr (Type == DType::f16)
      return float(__builtin_bit_cast(_Float16, code));
    else
      return float_of(std::uint32_t(code) << 16);
  }
  /// Truncates where rounding is not one instruction: the sum of the probabilities is taken of the truncated ones.
  template <DType Type>
  static HPA_DEVICE std::uint32_t pack_probabilities([[maybe_unused]] float low, [[maybe_unused]] float high) {
#if defined(__HIP_DEVICE_COMPILE__)
    if constexpr (Type == DType::f16)
      return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_pkrtz(low, high));
    else if constexpr (cdna::rounds_to_bf16)
      return pack<Type>(low, high);
    else
      return __builtin_amdgcn_perm(bits_of(high), bits_of(low), 0x07060302);
#else
    return 0;
#endif
  }
  /// Four 8-bit codes, byte 0 first, as four 16-bit elements; exact. NaN gives NaN, Inf Inf.
  template <DType From, DType To>
  static HPA_DEVICE Words<2> widen(std::uint32_t codes) {
    if constexpr (cdna::converts<From>)
      return cdna::widen_natively<From, To>(codes);
    else
      return cdna::widen_by_bits<From, To>(codes);
  }
  /// Four floats as four 8-bit codes, byte 0 first: rounded to nearest even, saturating, Inf too; NaN gives NaN (i8: 0).
  template <DType To>
  static HPA_DEVICE std::uint32_t narrow(float a, float b, float c, float d) {
    if constexpr (cdna::converts<To>)
      return cdna::narrow_natively<To>(a, b, c, d);
    else
      return narrow_exactly<To>(a, b, c, d);
  }
  /// The same of floats within the range of an 8-bit type that the chip converts, or NaN.
  template <DType To>
  static HPA_DEVICE std::uint32_t narrow_bounded(const Floats4& x) {
    return cdna::narrow_bounded<To>(x[0], x[1], x[2], x[3]);
  }
  /// Four 8-bit floats, byte 0 first, of a type that the chip converts.
  template <DType From>
  static HPA_DEVICE Floats4 floats(std::uint32_t codes) {
    return Floats4::from(cdna::floats4_of<From>(codes));
  }
  static HPA_DEVICE float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
  static HPA_DEVICE float log2(float x) { return __builtin_amdgcn_logf(x); }
  static HPA_DEVICE float reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }
  static HPA_DEVICE float quotient(float a, float b) { return a / b; }
  static HPA_DEVICE float max(float a, float b) { return __builtin_fmaxf(a, b); }
  static HPA_DEVICE float min(float a, float b) { return __builtin_fminf(a, b); }
};

}  // namespace hpa::arch
