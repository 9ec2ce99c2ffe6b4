// How a kernel of a platform's machine is launched.
#pragma once

#include <atomic>
#include <cstring>
#include <type_traits>

#include "hpa/arch/runtime.hpp"

#if defined(HPA_PLATFORM_HIP)
#include "hpa/arch/cdna/machine.hpp"
#elif defined(HPA_PLATFORM_CUDA)
#include "hpa/arch/nvidia/machine.hpp"
#else
#include "hpa/arch/host/machine.hpp"
#endif

namespace hpa::arch {

#if defined(HPA_PLATFORM_HIP)

/// Why there is no code for the current device, which has a machine but was not among the targets of this build.
inline const char* no_code_for(const char* gcn_name) {
  if (std::strncmp(gcn_name, "gfx90a", 6) == 0) return "gfx90a, for which this program was not compiled: --offload-arch=gfx90a";
  if (std::strncmp(gcn_name, "gfx942", 6) == 0) return "gfx942, for which this program was not compiled: --offload-arch=gfx942";
  if (std::strncmp(gcn_name, "gfx950", 6) == 0) return "gfx950, for which this program was not compiled: --offload-arch=gfx950";
  return "this program was not compiled for the device's architecture";
}

inline Verdict verdict_of_launch(hipError_t error) {
  if (error != hipErrorNoBinaryForGpu && error != hipErrorInvalidDeviceFunction) return verdict_of(error);
  int ordinal = 0;
  hipDeviceProp_t properties;
  const bool known = hipGetDevice(&ordinal) == hipSuccess && hipGetDeviceProperties(&properties, ordinal) == hipSuccess;
  return {Status::unsupported, "device", no_code_for(known ? properties.gcnArchName : "")};
}

template <class Kernel>
__global__ __launch_bounds__(Kernel::waves* Kernel::Machine::width,
                             Kernel::Machine::min_waves_per_simd) void entry(const typename Kernel::Params params) {
  alignas(16) __shared__ std::byte lds[Kernel::lds_bytes > 0 ? Kernel::lds_bytes : 1];
  typename Kernel::Machine::Wave wave(lds);
  Kernel::run(wave, params);
}

template <class Kernel>
Verdict launch(Grid grid, const typename Kernel::Params& params, Stream stream) {
  (void)hipGetLastError();  // an error of somebody else's must not be reported as ours
  entry<Kernel>
      <<<dim3(unsigned(grid.x), unsigned(grid.y), unsigned(grid.z)), dim3(Kernel::waves * Kernel::Machine::width), 0, stream>>>(
          params);
  return verdict_of_launch(hipGetLastError());
}

#elif defined(HPA_PLATFORM_CUDA)

/// Workgroups that one multiprocessor must have registers for: as many as the kernel says, or one.
template <class Kernel, class = void>
inline constexpr int resident_workgroups = 1;
template <class Kernel>
inline constexpr int resident_workgroups<Kernel, std::enable_if_t<(Kernel::resident_workgroups > 0)>> = Kernel::resident_workgroups;

template <class Kernel>
__global__ __launch_bounds__(Kernel::waves* Kernel::Machine::width,
                             resident_workgroups<Kernel>) void entry(const __grid_constant__ typename Kernel::Params params) {
  extern __shared__ uint4 lds[];
  typename Kernel::Machine::Wave wave(reinterpret_cast<std::byte*>(lds));
  Kernel::run(wave, params);
}

/// Whether a kernel is written to start while the kernel before it in the stream still runs: it then waits by itself.
template <class Kernel, class = void>
inline constexpr bool starts_early = false;
template <class Kernel>
inline constexpr bool starts_early<Kernel, std::enable_if_t<Kernel::starts_early>> = true;

/// Once a kernel and device: more than 48 KiB of LDS must be asked for. `early`: the device can start kernels early.
template <class Kernel>
Verdict prepare(bool* early) {
  constexpr int remembered = 64;
  static std::atomic<std::uint8_t> prepared[remembered];  // 0, or 1 + early
  int ordinal = 0, major = 0;
  if (Verdict v = current_ordinal(&ordinal); !v) return v;
  const std::uint8_t known = ordinal < remembered ? prepared[ordinal].load(std::memory_order_relaxed) : 0;
  if (known != 0) return *early = known == 2, Verdict{};
  if (Verdict v = verdict_of(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal)); !v) return v;
  if (Kernel::lds_bytes > 48 * 1024)
    if (Verdict v = verdict_of(cudaFuncSetAttribute(entry<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::lds_bytes));
        !v)
      return v;
  // The same division of L1 and LDS for every kernel: a multiprocessor must be empty to change it.
  if (Verdict v = verdict_of(
          cudaFuncSetAttribute(entry<Kernel>, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
      !v)
    return v;
  *early = major >= 9;
  if (ordinal < remembered) prepared[ordinal].store(std::uint8_t(*early ? 2 : 1), std::memory_order_relaxed);
  return {};
}

template <class Kernel>
Verdict launch(Grid grid, const typename Kernel::Params& params, Stream stream) {
  static_cast<void>(cudaGetLastError());  // an error of somebody else's must not be reported as ours
  bool early = false;
  if (Verdict v = prepare<Kernel>(&early); !v) return v;
  const dim3 workgroups(unsigned(grid.x), unsigned(grid.y), unsigned(grid.z)), threads(Kernel::waves * Kernel::Machine::width);
  if (!early || !starts_early<Kernel>) {
    entry<Kernel><<<workgroups, threads, Kernel::lds_bytes, stream>>>(params);
    return verdict_of(cudaGetLastError());
  }
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = workgroups;
  config.blockDim = threads;
  config.dynamicSmemBytes = Kernel::lds_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  const Verdict verdict = verdict_of(cudaLaunchKernelEx(&config, entry<Kernel>, params));
  static_cast<void>(cudaGetLastError());  // reported: it must not meet the next call
  return verdict;
}

#else

template <class Kernel>
Verdict launch(Grid grid, const typename Kernel::Params& params, Stream stream) {
  return run_on_host<Kernel>(grid, params, stream.threads);
}

#endif

}  // namespace hpa::arch
