// A warp of an NVIDIA GPU.
#pragma once

#include <cstddef>
#include <type_traits>

#include "hpa/arch/device_lane.hpp"
#include "hpa/arch/machine.hpp"
#include "hpa/arch/nvidia/copies.hpp"

#if defined(HPA_CUDA_KERNELS)

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch::nvidia {

inline constexpr unsigned all_lanes = 0xffffffffu;

/// A type that one load or store instruction of T's size can have.
template <class T>
using Memory =
    std::conditional_t<sizeof(T) == 16, uint4,
                       std::conditional_t<sizeof(T) == 8, uint2,
                                          std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                                             std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>>;

class Wave : public WaveDefaults<Wave> {
  template <class T>
  using Lane = DeviceLane<T>;
  static constexpr int width = Facts<Nvidia>::width;

 public:
  HPA_DEVICE explicit Wave(std::byte* lds) : lds_(lds) {}

  // ids
  HPA_DEVICE int index() const { return int(threadIdx.x) / width; }
  HPA_DEVICE int waves() const { return int(blockDim.x) / width; }
  HPA_DEVICE int workgroup_x() const { return int(blockIdx.x); }
  HPA_DEVICE int workgroup_y() const { return int(blockIdx.y); }
  HPA_DEVICE int workgroup_z() const { return int(blockIdx.z); }
  HPA_DEVICE int workgroups_x() const { return int(gridDim.x); }
  template <class Body>
  HPA_DEVICE void each(Body&& body) const {
    body(int(threadIdx.x) % width);
  }

  // shuffle, ballot
  HPA_DEVICE bool any(const Lane<bool>& condition) const { return __any_sync(all_lanes, condition.value) != 0; }
  HPA_DEVICE int count(const Lane<bool>& condition) const { return __popc(__ballot_sync(all_lanes, condition.value)); }
  template <class T, class Source>
  HPA_DEVICE Lane<T> shuffle(const Lane<T>& value, Source&& source) const {
    constexpr int words = sizeof(T) / 4;
    const int from = source(int(threadIdx.x) % width);
    const auto in = __builtin_bit_cast(Words<words>, value.value);
    Words<words> out;
    HPA_UNROLL
    for (int i = 0; i < words; ++i) out.word[i] = __shfl_sync(all_lanes, in.word[i], from);
    return {__builtin_bit_cast(T, out)};
  }

  // memory, LDS, barrier
  template <class T>
  static HPA_DEVICE T load(const void* address) {
    return __builtin_bit_cast(T, __ldcg(static_cast<const Memory<T>*>(address)));
  }
  /// Loads a value that other waves of the workgroup load too: through L1. Not for memory that a previous kernel may still be
  /// writing.
  template <class T>
  static HPA_DEVICE T load_shared(const void* address) {
    return __builtin_bit_cast(T, *static_cast<const Memory<T>*>(address));
  }
  template <class T>
  static HPA_DEVICE void store(void* address, const T& value) {
    *static_cast<Memory<T>*>(address) = __builtin_bit_cast(Memory<T>, value);
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
    const Halves halves = __builtin_bit_cast(Halves, record.value);
    const auto either = [&](Half if_odd, const Half& if_even) {
      HPA_UNROLL
      for (int i = 0; i < 4; ++i) if_odd.word[i] = odd ? if_odd.word[i] : if_even.word[i];
      return if_odd;
    };
    const Half received = shuffle(Lane<Half>{either(halves.half[0], halves.half[1])}, partner).value;
    const std::int32_t partner_place = shuffle(place, partner).value;
    const auto store_half = [&](std::int32_t at, const Half& half) {
      if (at >= 0) store(reinterpret_cast<Half*>(to + at) + (odd ? 1 : 0), half);
    };
    store_half(odd ? partner_place : place.value, either(received, halves.half[0]));  // of the even lane's record
    store_half(odd ? place.value : partner_place, either(halves.half[1], received));  // of the odd lane's
  }
  template <class T>
  static HPA_DEVICE T uniform(const T* address) {
    using Vector = std::conditional_t<sizeof(T) % 16 == 0, uint4, std::conditional_t<sizeof(T) % 8 == 0, uint2, std::uint32_t>>;
    struct Vectors {
      Vector vector[sizeof(T) / sizeof(Vector)];
    } vectors;
    HPA_UNROLL
    for (int i = 0; i < int(sizeof(T) / sizeof(Vector)); ++i)
      vectors.vector[i] = __ldcg(reinterpret_cast<const Vector*>(address) + i);
    return __builtin_bit_cast(T, vectors);
  }
  static HPA_DEVICE void atomic_min(int* address, int value) { atomicMin(address, value); }
  static HPA_DEVICE void atomic_add(int* address, int value) { atomicAdd(address, value); }
  HPA_DEVICE std::byte* lds() const { return lds_; }
  /// Four 8x8 matrices of 16-bit elements from LDS; lane l gives the address of row l % 8 of matrix l / 8.
  template <class Address>
  HPA_DEVICE Lane<Words<4>> load_matrices(Address&& address) const {
    Words<4> m;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m.word[0]), "=r"(m.word[1]), "=r"(m.word[2]), "=r"(m.word[3])
                 : "r"(shared_address(address(int(threadIdx.x) % width))));
    return {m};
  }
  /// Transposes N 8x8 matrices of 16-bit elements. Word i of a lane is two elements of matrix i, in row lane / 4.
  template <int N>
  HPA_DEVICE Lane<Words<N>> transpose_matrices(const Lane<Words<N>>& in) const {
    Lane<Words<N>> result;
    HPA_UNROLL
    for (int i = 0; i < N; ++i)
      asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result.value.word[i]) : "r"(in.value.word[i]));
    return result;
  }
  HPA_DEVICE void barrier() const { __syncthreads(); }

  // launches that overlap: of the kernel before this one in the stream, and of the one after it
  HPA_DEVICE void await_previous_launch() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  }
  HPA_DEVICE void allow_next_launch() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
  }

 private:
  std::byte* lds_;
};

}  // namespace arch::nvidia
}  // namespace HPA_PLATFORM
}  // namespace hpa

#endif
