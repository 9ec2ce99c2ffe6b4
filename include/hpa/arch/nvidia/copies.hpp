// NVIDIA's asynchronous copies to shared memory, by sm_80's instructions and by sm_90's. Their interface: async_copy.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "hpa/arch/async_copy.hpp"
#include "hpa/arch/device_lane.hpp"

#if defined(HPA_CUDA_KERNELS)

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch::nvidia {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool copies_in_bulk = true;
#else
inline constexpr bool copies_in_bulk = false;
#endif

HPA_DEVICE unsigned shared_address(const void* pointer) { return unsigned(__cvta_generic_to_shared(pointer)); }

/// The cache is read once: its lines are the first to leave L2, so that tables, queries and partials stay.
HPA_DEVICE std::uint64_t evict_first() {
  std::uint64_t policy = 0;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// cp.async: every lane copies vectors of 16 bytes; a stage is a group of copies.
template <int Stages, class... Strips>
class GroupedCopies {
 public:
  static constexpr int bookkeeping_bytes = 0;

  template <class Wave>
  HPA_DEVICE GroupedCopies(const Wave&, std::byte*) : policy_(evict_first()) {}

  template <int I, class Wave>
  HPA_DEVICE void request(const Wave& wave, int stage, std::byte* to, const DeviceLane<const char*>& from, int from_lane) {
    using OneStrip = std::tuple_element_t<I, std::tuple<Strips...>>;
    const char* const source = wave.broadcast(from, from_lane);  // all lanes take part, so each has read what is overwritten
    wave.each([&](int lane) {
      if (OneStrip::vectors < 32 && lane >= OneStrip::vectors) return;
      copy<OneStrip>(shared_address(to) + 16u * unsigned(lane), source + OneStrip::source_of(lane),
                     std::make_integer_sequence<int, (OneStrip::vectors + 31) / 32>{});
    });
    if (I + 1 == sizeof...(Strips)) pass(stage);
  }
  HPA_DEVICE void pass(int) { asm volatile("cp.async.commit_group;" ::: "memory"); }

  template <class Wave>
  HPA_DEVICE void wait(const Wave&, int) {
    asm volatile("cp.async.wait_group %0;" ::"n"(Stages - 1) : "memory");
    __syncwarp();
  }

 private:
  /// The lane's vectors lie at constant distances, which the instruction adds by itself.
  template <class OneStrip, int... Turn>
  HPA_DEVICE void copy(unsigned target, const char* from, std::integer_sequence<int, Turn...>) const {
    static_assert(OneStrip::vectors < 32 || (OneStrip::vectors % 32 == 0 && 32 % OneStrip::vectors_per_row == 0));
    (copy_vector<512 * Turn, OneStrip::source_of(32 * Turn)>(target, from), ...);
  }
  template <int ToOffset, int FromOffset>
  HPA_DEVICE void copy_vector(unsigned target, const char* from) const {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0+%3], [%1+%4], 16, %2;" ::"r"(target), "l"(from),
                 "l"(policy_), "n"(ToOffset), "n"(FromOffset)
                 : "memory");
  }

  std::uint64_t policy_;
};

/// cp.async.bulk: one lane asks for a strip at once; an mbarrier a stage counts its bytes.
template <int Stages, class... Strips>
class BulkCopies {
 public:
  static constexpr int bookkeeping_bytes = 8 * Stages;

  template <class Wave>
  HPA_DEVICE BulkCopies(const Wave& wave, std::byte* bookkeeping) : barriers_(shared_address(bookkeeping)), policy_(evict_first()) {
    wave.each([&](int lane) {
      if (lane < Stages) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers_ + 8u * unsigned(lane)) : "memory");
    });
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
  }

  template <int I, class Wave>
  HPA_DEVICE void request(const Wave& wave, int stage, std::byte* to, const DeviceLane<const char*>& from, int from_lane) {
    using OneStrip = std::tuple_element_t<I, std::tuple<Strips...>>;
    constexpr int stage_bytes = (Strips::bytes + ...);
    __syncwarp();  // every lane has read what is overwritten
    wave.each([&](int lane) {
      if (lane != from_lane) return;
      if (I == 0)
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier_of(stage)), "n"(stage_bytes)
                     : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
              shared_address(to)),
          "l"(from[lane]), "n"(OneStrip::bytes), "r"(barrier_of(stage)), "l"(policy_)
          : "memory");
    });
  }
  HPA_DEVICE void pass(int) {}

  template <class Wave>
  HPA_DEVICE void wait(const Wave&, int stage) {
    asm volatile(
        "{\n.reg .pred arrived;\n"
        "retry: mbarrier.try_wait.parity.shared::cta.b64 arrived, [%0], %1;\n"
        "@!arrived bra retry;\n}" ::"r"(barrier_of(stage)),
        "r"(phases_ >> stage & 1)
        : "memory");
    phases_ ^= 1u << stage;
  }

 private:
  HPA_DEVICE unsigned barrier_of(int stage) const { return barriers_ + 8u * unsigned(stage); }
  unsigned barriers_, phases_ = 0;  // a bit a stage: the parity that its barrier has next
  std::uint64_t policy_;
};

}  // namespace arch::nvidia
}  // namespace HPA_PLATFORM
}  // namespace hpa

#endif
