// How the host runs a kernel: a wave is a thread, a workgroup is what its threads share. Only run_wave() knows the kernel's type.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "hpa/arch/arch.hpp"
#include "hpa/status.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// A workgroup: LDS and barrier of its waves.
class HostWorkgroup {
 public:
  HostWorkgroup(int waves, std::size_t lds_bytes)
      : waves_(waves), lds_bytes_(lds_bytes), lds_(new LdsUnit[lds_bytes / sizeof(LdsUnit) + 1]) {
    poison_lds();
  }

  int waves() const { return waves_; }
  std::byte* lds() { return lds_[0].bytes; }
  void poison_lds() { std::memset(lds_.get(), 0xff, lds_bytes_); }

  /// All waves wait for each other; the last one to come calls `then` before any goes on.
  template <class Then>
  void barrier(Then&& then) {
    const unsigned generation = generation_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == waves_) {
      then();
      arrived_.store(0, std::memory_order_relaxed);
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        generation_.store(generation + 1, std::memory_order_release);
      }
      released_.notify_all();
      return;
    }
    const auto released = [&] { return generation_.load(std::memory_order_acquire) != generation; };
    for (int i = 0; i < yields; ++i) {
      if (released()) return;
      std::this_thread::yield();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    released_.wait(lock, released);
  }
  void barrier() {
    barrier([] {});
  }

 private:
  struct alignas(16) LdsUnit {
    std::byte bytes[16];
  };
  /// Looks before a wave sleeps. Sleeping costs more than a look; but beside other programs each look may last as long as their turn.
  static constexpr int yields = 8;
  const int waves_;
  const std::size_t lds_bytes_;
  std::unique_ptr<LdsUnit[]> lds_;
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> generation_{0};
  std::mutex mutex_;
  std::condition_variable released_;
};

/// A kernel without its type, so that threads and exceptions are not compiled once more for every kernel.
struct HostKernel {
  void (*run)(HostWorkgroup& workgroup, int wave, const Grid& place, int workgroups_x, const void* params);
  int waves;
  std::size_t lds_bytes;
};

template <class Kernel>
void run_wave(HostWorkgroup& workgroup, int index, const Grid& place, int workgroups_x, const void* params) {
  typename Kernel::Machine::Wave wave(workgroup, index);
  wave.place(place.x, place.y, place.z, workgroups_x);
  Kernel::run(wave, *static_cast<const typename Kernel::Params*>(params));
}

/// Runs a kernel's grid on threads of the host; each wave is a thread, the first one the caller's. Where threads cannot be had and the
/// program is compiled without exceptions, the standard library ends it.
inline Verdict run_on_host(const HostKernel& kernel, const Grid& grid, const void* params, int threads) {
  const long workgroups = long(grid.x) * grid.y * grid.z;
  const int cores = threads > 0 ? threads : int(std::thread::hardware_concurrency());
  const int teams = int(std::min<long>(workgroups, std::max(1, cores / kernel.waves)));
  enum Gate { closed, open, cancelled };
  std::atomic<Gate> gate{closed};  // nobody starts before all can: a workgroup with a wave missing would wait at its first barrier
  std::vector<std::unique_ptr<HostWorkgroup>> shared;
  std::vector<std::thread> waves;
  const auto run_wave_of = [&](HostWorkgroup& workgroup, int team, int index) {
    while (gate.load(std::memory_order_acquire) == closed) std::this_thread::yield();
    if (gate.load(std::memory_order_acquire) == cancelled) return;
    for (long id = team; id < workgroups; id += teams) {
      kernel.run(workgroup, index, {int(id % grid.x), int(id / grid.x % grid.y), int(id / grid.x / grid.y)}, grid.x, params);
      workgroup.barrier([&] { workgroup.poison_lds(); });  // for the next one
    }
  };
  const auto start = [&] {
    for (int team = 0; team < teams; ++team) {
      shared.push_back(std::make_unique<HostWorkgroup>(kernel.waves, kernel.lds_bytes));
      for (int index = team == 0 ? 1 : 0; index < kernel.waves; ++index)
        waves.emplace_back([&run_wave_of, workgroup = shared.back().get(), team, index] { run_wave_of(*workgroup, team, index); });
    }
  };
  Verdict verdict;
#if defined(__cpp_exceptions)
  try {
    start();
    gate.store(open, std::memory_order_release);
  } catch (const std::system_error&) {
    gate.store(cancelled, std::memory_order_release);
    verdict = {Status::device_error, "stream", "the host could not start the threads of a workgroup"};
  }
#else
  start();
  gate.store(open, std::memory_order_release);
#endif
  if (verdict && teams > 0) run_wave_of(*shared.front(), 0, 0);
  for (std::thread& wave : waves) wave.join();
  return verdict;
}

template <class Kernel>
Verdict run_on_host(const Grid& grid, const typename Kernel::Params& params, int threads) {
  return run_on_host({run_wave<Kernel>, int(Kernel::waves), std::size_t(Kernel::lds_bytes)}, grid, &params, threads);
}

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
