// The runtime behind the machines: which device is current, how a kernel is launched, how a few bytes come back.
#pragma once

#include <atomic>
#include <cstring>
#include <type_traits>

#include "hpa/arch/arch.hpp"
#include "hpa/status.hpp"

#if defined(HPA_PLATFORM_HIP)
#include "hpa/arch/cdna.hpp"
#elif defined(HPA_PLATFORM_CUDA)
#include "hpa/arch/nvidia.hpp"
#else
#include "hpa/arch/host.hpp"
#endif

namespace hpa {

namespace arch {

#if defined(HPA_PLATFORM_HIP)

using DefaultMachine = Cdna;

inline Verdict verdict_of(hipError_t error) {
  return error == hipSuccess ? Verdict{} : Verdict{Status::device_error, "stream", hipGetErrorString(error)};
}

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
  __shared__ alignas(16) std::byte lds[Kernel::lds_bytes > 0 ? Kernel::lds_bytes : 1];
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

inline Verdict read_back(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (Verdict v = verdict_of(hipMemcpyAsync(to, from, bytes, hipMemcpyDeviceToHost, stream)); !v) return v;
  return verdict_of(hipStreamSynchronize(stream));
}

inline bool arch_named(const char* gcn_name, Arch* arch) {
  for (const Arch candidate : {Arch::gfx90a, Arch::gfx942, Arch::gfx950})
    if (std::strncmp(gcn_name, name(candidate), std::strlen(name(candidate))) == 0) {
      *arch = candidate;
      return true;
    }
  *arch = std::strncmp(gcn_name, "gfx12", 5) == 0 ? Arch::gfx12 : Arch::gfx11;
  return std::strncmp(gcn_name, "gfx11", 5) == 0 || std::strncmp(gcn_name, "gfx12", 5) == 0;
}

inline Verdict query_device(int ordinal, Device* device) {
  hipDeviceProp_t properties;
  if (Verdict v = verdict_of(hipGetDeviceProperties(&properties, ordinal)); !v) return v;
  if (!arch_named(properties.gcnArchName, &device->arch))
    return {Status::unsupported, "device", "the library knows gfx90a, gfx942, gfx950, gfx11 and gfx12; this device is another"};
  device->compute_units = properties.multiProcessorCount;
  return {};
}

inline Verdict current_ordinal(int* ordinal) { return verdict_of(hipGetDevice(ordinal)); }

#elif defined(HPA_PLATFORM_CUDA)

using DefaultMachine = Nvidia;

inline Verdict verdict_of(cudaError_t error) {
  return error == cudaSuccess ? Verdict{} : Verdict{Status::device_error, "stream", cudaGetErrorString(error)};
}

inline Verdict current_ordinal(int* ordinal) { return verdict_of(cudaGetDevice(ordinal)); }

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

inline Verdict read_back(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (Verdict v = verdict_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream)); !v) return v;
  return verdict_of(cudaStreamSynchronize(stream));
}

inline Verdict query_device(int ordinal, Device* device) {
  int major = 0;
  if (Verdict v = verdict_of(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal)); !v) return v;
  if (major < 8) return {Status::unsupported, "device", "the library needs compute capability 8.0 or above"};
  device->arch = major < 9 ? Arch::sm80 : Arch::sm90;
  return verdict_of(cudaDeviceGetAttribute(&device->compute_units, cudaDevAttrMultiProcessorCount, ordinal));
}

#else

using DefaultMachine = HostMachine<64>;

template <class Kernel>
Verdict launch(Grid grid, const typename Kernel::Params& params, Stream stream) {
  return run_on_host<Kernel>(grid, params, stream.threads);
}

inline Verdict read_back(void* to, const void* from, std::size_t bytes, Stream) {
  std::memcpy(to, from, bytes);
  return {};
}

/// The host counts as eight compute units, whatever the machine has, so that a row is cut the same way everywhere.
inline Verdict query_device(int, Device* device) {
  *device = {Arch::host, 8};
  return {};
}

inline Verdict current_ordinal(int* ordinal) {
  *ordinal = 0;
  return {};
}

#endif

}  // namespace arch

/// The device that calls of this thread run on. Asks the runtime once a device; later calls read what it said.
inline Verdict current_device(Device* device) {
  if (device == nullptr) return {Status::invalid_argument, "device", "must not be null"};
  constexpr int remembered = 64;
  static std::atomic<std::uint32_t> known[remembered];  // 0, or compute units * 256 + arch
  int ordinal = 0;
  if (Verdict v = arch::current_ordinal(&ordinal); !v) return v;
  if (ordinal < remembered)
    if (const std::uint32_t seen = known[ordinal].load(std::memory_order_relaxed); seen != 0) {
      *device = {Arch(seen & 0xff), int(seen >> 8)};
      return {};
    }
  if (Verdict v = arch::query_device(ordinal, device); !v) return v;
  if (ordinal < remembered)
    known[ordinal].store(std::uint32_t(device->compute_units) << 8 | std::uint32_t(device->arch), std::memory_order_relaxed);
  return {};
}

}  // namespace hpa
