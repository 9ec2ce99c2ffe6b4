// The runtime behind a platform: which device is current and what it is, how a few bytes come back, what its errors say.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hpa/arch/arch.hpp"
#include "hpa/status.hpp"

// HIP and CUDA call the same things by the same names, but for how these begin.
#if defined(HPA_HIP_KERNELS)
#define HPA_RUNTIME(name) hip##name
#elif defined(HPA_CUDA_KERNELS)
#define HPA_RUNTIME(name) cuda##name
#elif !defined(HPA_PLATFORM_HOST)
#error "this source is compiled by no compiler of the GPU platform that it names: include hpa/declare.hpp, which declares the calls"
#endif

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

#if defined(HPA_RUNTIME)

using Error = HPA_RUNTIME(Error_t);

inline Verdict verdict_of(Error error) {
  return error == HPA_RUNTIME(Success) ? Verdict{} : Verdict{Status::device_error, "stream", HPA_RUNTIME(GetErrorString)(error)};
}

/// The error of the last call, which is then forgotten.
inline Error take_error() { return HPA_RUNTIME(GetLastError)(); }

inline Verdict current_ordinal(int* ordinal) { return verdict_of(HPA_RUNTIME(GetDevice)(ordinal)); }

inline Verdict read_back(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (Verdict v = verdict_of(HPA_RUNTIME(MemcpyAsync)(to, from, bytes, HPA_RUNTIME(MemcpyDeviceToHost), stream)); !v) return v;
  return verdict_of(HPA_RUNTIME(StreamSynchronize)(stream));
}

/// A number for each device, 0 at first. Devices beyond its size always read 0. Its objects have hidden visibility: two libraries
/// in one process may be of different versions, with different kernels, so each has its own.
class DeviceMemo {
 public:
  std::uint32_t of(int ordinal) const { return in_range(ordinal) ? numbers_[ordinal].load(std::memory_order_relaxed) : 0; }
  void set(int ordinal, std::uint32_t number) {
    if (in_range(ordinal)) numbers_[ordinal].store(number, std::memory_order_relaxed);
  }

 private:
  static constexpr int devices = 64;
  static bool in_range(int ordinal) { return ordinal >= 0 && ordinal < devices; }
  std::atomic<std::uint32_t> numbers_[devices] = {};
};

#undef HPA_RUNTIME
#endif

#if defined(HPA_HIP_KERNELS)

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
  device->lds_bytes = int(properties.sharedMemPerBlock);
  return {};
}

#elif defined(HPA_CUDA_KERNELS)

template <int>
__global__ void any_kernel() {}

/// __CUDA_ARCH__ of the code that a device runs of a kernel, or 0 if there is none for it.
template <class... Params>
int pass_of(void (*kernel)(Params...)) {
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess) return attributes.ptxVersion * 10;
  static_cast<void>(take_error());
  return 0;
}

inline Verdict query_device(int ordinal, Device* device) {
  const auto ask = [&](cudaDeviceAttr attribute, int* value) {
    return verdict_of(cudaDeviceGetAttribute(value, attribute, ordinal));
  };
  int major = 0, minor = 0;
  if (Verdict v = ask(cudaDevAttrComputeCapabilityMajor, &major); !v) return v;
  if (Verdict v = ask(cudaDevAttrComputeCapabilityMinor, &minor); !v) return v;
  if (major < 8) return {Status::unsupported, "device", "the library needs compute capability 8.0 or above"};
  device->arch = arch_of_capability(major, minor);
  if (Verdict v = ask(cudaDevAttrMaxSharedMemoryPerBlockOptin, &device->lds_bytes); !v) return v;
  // A device may run code that was made for one with less LDS: sm_80's where there is no other.
  const int pass = pass_of(any_kernel<0>), of_pass = lds_bytes_of_pass(pass);
  if (pass > 0 && of_pass < device->lds_bytes) device->lds_bytes = of_pass;
  return ask(cudaDevAttrMultiProcessorCount, &device->compute_units);
}

#else

inline Verdict read_back(void* to, const void* from, std::size_t bytes, Stream) {
  std::memcpy(to, from, bytes);
  return {};
}

/// The device that the host stands for: eight compute units, whatever the machine has, so that a sequence is cut the same way
/// everywhere. A test may let it stand for another chip, between calls.
[[gnu::visibility("hidden")]] inline Device host_device{Arch::host, 8};

#endif

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
