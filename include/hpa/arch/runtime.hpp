// The runtime behind a platform: which device is current and what it is, how a few bytes come back, what its errors say.
#pragma once

#include <cstring>

#include "hpa/arch/arch.hpp"
#include "hpa/status.hpp"

namespace hpa::arch {

#if defined(HPA_PLATFORM_HIP)

inline Verdict verdict_of(hipError_t error) {
  return error == hipSuccess ? Verdict{} : Verdict{Status::device_error, "stream", hipGetErrorString(error)};
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

inline Verdict verdict_of(cudaError_t error) {
  return error == cudaSuccess ? Verdict{} : Verdict{Status::device_error, "stream", cudaGetErrorString(error)};
}

inline Verdict current_ordinal(int* ordinal) { return verdict_of(cudaGetDevice(ordinal)); }

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

}  // namespace hpa::arch
