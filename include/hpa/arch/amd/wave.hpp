// A wave of an AMD GPU, of 64 lanes (CDNA) or 32 (RDNA): ids, kernel arguments, permutes, memory.
#pragma once

#include <cstddef>
#include <type_traits>

#include "hpa/arch/device_lane.hpp"
#include "hpa/arch/machine.hpp"

#if defined(HPA_HIP_KERNELS)

#if defined(__HIP_DEVICE_COMPILE__)
#define HPA_GLOBAL_MEMORY __attribute__((address_space(1)))
#define HPA_CONSTANT_MEMORY __attribute__((address_space(4)))
#else
#define HPA_GLOBAL_MEMORY
#define HPA_CONSTANT_MEMORY
#endif

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch::amd {

/// A type that one load or store instruction of T's size can have.
template <class T>
using Memory =
    std::conditional_t<sizeof(T) == 16, std::uint32_t __attribute__((ext_vector_type(4))),
                       std::conditional_t<sizeof(T) == 8, std::uint32_t __attribute__((ext_vector_type(2))),
                                          std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                                             std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>>;

/// Hides a value from the optimiser: arithmetic on it is neither hoisted nor shared.
HPA_DEVICE int hide(int value) {
#if defined(__HIP_DEVICE_COMPILE__)
  asm volatile("" : "+v"(value));
#endif
  return value;
}

template <int Width>
class Wave : public WaveDefaults<Wave<Width>> {
  template <class T>
  using Lane = DeviceLane<T>;

 public:
  HPA_DEVICE explicit Wave(std::byte* lds)
      : lds_(lds), index_(__builtin_amdgcn_readfirstlane(int(threadIdx.x) / Width)), thread_(hide(int(threadIdx.x))) {}

  // ids
  HPA_DEVICE int index() const { return index_; }
  HPA_DEVICE int waves() const { return int(blockDim.x) / Width; }
  HPA_DEVICE int workgroup_x() const { return int(blockIdx.x); }
  HPA_DEVICE int workgroup_y() const { return int(blockIdx.y); }
  HPA_DEVICE int workgroup_z() const { return int(blockIdx.z); }
  HPA_DEVICE int workgroups_x() const { return int(gridDim.x); }
  /// Makes lane arithmetic start anew: kept across a long loop it would cost the registers that the loop needs.
  HPA_DEVICE void refresh() { thread_ = hide(int(threadIdx.x)), index_ = loaded(index_); }
  /// The kernel's arguments, loaded here. Otherwise the compiler would load each one, and wait for it, where it is first used.
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
  /// A base class of the kernel's arguments, read here: kept in registers from the start it would take registers from others.
  template <class Base, class Params>
  static HPA_DEVICE Base reread([[maybe_unused]] const Params& params) {
#if defined(__HIP_DEVICE_COMPILE__)
    if constexpr (std::is_empty_v<Base>) {
      return {};
    } else {
      const auto offset = reinterpret_cast<const char*>(static_cast<const Base*>(&params)) - reinterpret_cast<const char*>(&params);
      int zero = 0;
      asm volatile("" : "+s"(zero));
      return uniform((const Base*)((const HPA_CONSTANT_MEMORY char*)__builtin_amdgcn_kernarg_segment_ptr() + offset + zero));
    }
#else
    return params;
#endif
  }
  /// The constant, made here and not kept in a register between its uses.
  static HPA_DEVICE std::uint32_t made_anew(std::uint32_t constant) { return std::uint32_t(hide(int(constant))); }
  template <class Body>
  HPA_DEVICE void each(Body&& body) const {
    body(thread_ & (Width - 1));
  }
  /// Runs the body like each(), but its lane arithmetic is never kept in a register from one call to the next.
  template <class Body>
  HPA_DEVICE void each_afresh(Body&& body) const {
    body(hide(int(threadIdx.x)) & (Width - 1));
  }

  // shuffle, ballot
  HPA_DEVICE bool any(const Lane<bool>& condition) const {
    if constexpr (Width == 64)
      return __builtin_amdgcn_ballot_w64(condition.value) != 0;
    else
      return __builtin_amdgcn_ballot_w32(condition.value) != 0;
  }
  HPA_DEVICE int count(const Lane<bool>& condition) const {
    if constexpr (Width == 64)
      return __builtin_popcountll(__builtin_amdgcn_ballot_w64(condition.value));
    else
      return __builtin_popcount(__builtin_amdgcn_ballot_w32(condition.value));
  }
  template <class T, class Source>
  HPA_DEVICE Lane<T> shuffle(const Lane<T>& value, Source&& source) const {
    constexpr int words = sizeof(T) / 4;
    const int from = source(hide(int(threadIdx.x)) & (Width - 1)) * 4;
    const auto in = __builtin_bit_cast(Words<words>, value.value);
    Words<words> out;
    HPA_UNROLL
    for (int i = 0; i < words; ++i) out.word[i] = std::uint32_t(__builtin_amdgcn_ds_bpermute(from, int(in.word[i])));
    return {__builtin_bit_cast(T, out)};
  }

  /// Every lane gets the largest value of its group of `Lanes`: by exchanges within rows of 16 lanes, where they reach that far.
  template <int Lanes>
  HPA_DEVICE void spread_max([[maybe_unused]] Lane<std::uint32_t>& value) const {
#if defined(__HIP_DEVICE_COMPILE__)
    if constexpr (Lanes == 8 || Lanes == 16) {
      const auto with = [&](auto control) {
        const auto other = std::uint32_t(__builtin_amdgcn_mov_dpp(int(value.value), decltype(control)::value, 0xf, 0xf, true));
        value.value = other > value.value ? other : value.value;
      };
      with(std::integral_constant<int, 0xb1>{});                              // quad_perm: 1, 0, 3, 2
      with(std::integral_constant<int, 0x4e>{});                              // quad_perm: 2, 3, 0, 1
      with(std::integral_constant<int, 0x141>{});                             // the lane as far from the other end of eight
      if constexpr (Lanes == 16) with(std::integral_constant<int, 0x140>{});  // the lane as far from the other end of sixteen
    } else {
      WaveDefaults<Wave>::template spread_max<Lanes>(value);
    }
#endif
  }

  // memory, LDS, barrier
  template <class T>
  static HPA_DEVICE T load(const void* address) {
    return __builtin_bit_cast(T, *(const HPA_GLOBAL_MEMORY Memory<T>*)(address));
  }
  template <class T>
  static HPA_DEVICE void store(void* address, const T& value) {
    *(HPA_GLOBAL_MEMORY Memory<T>*)(address) = __builtin_bit_cast(Memory<T>, value);
  }
  template <class T>
  static HPA_DEVICE T uniform(const T* address) {
    const auto* words = (const HPA_CONSTANT_MEMORY std::uint32_t*)(address);
    Words<sizeof(T) / 4> value;
    HPA_UNROLL
    for (int i = 0; i < int(sizeof(T) / 4); ++i) value.word[i] = words[i];
    return __builtin_bit_cast(T, value);
  }
  /// Waits for values that were loaded, and for all that was asked for before them: once, where each use would wait by itself.
  template <class... T>
  HPA_DEVICE void await([[maybe_unused]] const Lane<T>&... values) const {
    keep_order();
#if defined(__HIP_DEVICE_COMPILE__)
    wait_for(__builtin_bit_cast(Memory<T>, values.value)...);
#endif
    keep_order();
  }
  static HPA_DEVICE void atomic_min([[maybe_unused]] int* address, [[maybe_unused]] int value) {
#if defined(__HIP_DEVICE_COMPILE__)
    __hip_atomic_fetch_min((HPA_GLOBAL_MEMORY int*)(address), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
  }
  static HPA_DEVICE void atomic_add([[maybe_unused]] int* address, [[maybe_unused]] int value) {
#if defined(__HIP_DEVICE_COMPILE__)
    __hip_atomic_fetch_add((HPA_GLOBAL_MEMORY int*)(address), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
  }
  HPA_DEVICE std::byte* lds() const { return lds_; }
  HPA_DEVICE void barrier() const { __syncthreads(); }
  /// A fence for the scheduler: instructions stay on their side of it, so that loads are asked for where the source asks for them.
  HPA_DEVICE void keep_order() const { __builtin_amdgcn_sched_barrier(0); }

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
}  // namespace arch::amd
}  // namespace HPA_PLATFORM
}  // namespace hpa

#undef HPA_GLOBAL_MEMORY
#undef HPA_CONSTANT_MEMORY

#endif
