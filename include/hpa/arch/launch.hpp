// How a kernel of a platform's machine is launched.
#pragma once

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

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// The shape of a kernel: the one that it names, or one of its number of waves alone.
template <class Kernel, class = void>
inline constexpr tuning::KernelShape shape_of{Kernel::waves, 1, 1};
template <class Kernel>
inline constexpr tuning::KernelShape shape_of<Kernel, std::enable_if_t<(Kernel::shape.waves > 0)>> = Kernel::shape;

/// Whether a pass of the compiler has code of a kernel: not where it is for chips that the machine does not run on, or that have other LDS
/// than the kernel's shape is for.
template <class Kernel>
inline constexpr bool compiles_here =
    Kernel::Machine::compiles_here&& Kernel::Machine::compiles_for(shape_of<Kernel>.chip_lds_bytes);

#if defined(HPA_PLATFORM_HOST)

template <class Kernel>
Verdict launch(Grid grid, const typename Kernel::Params& params, Stream stream) {
  return run_on_host<Kernel>(grid, params, stream.threads);
}

#else

inline dim3 dim3_of(const Grid& grid) { return dim3(unsigned(grid.x), unsigned(grid.y), unsigned(grid.z)); }

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
                             shape_of<Kernel>.waves_per_simd()) void entry(const typename Kernel::Params params) {
  if constexpr (compiles_here<Kernel>) {
    alignas(16) __shared__ std::byte lds[Kernel::lds_bytes > 0 ? Kernel::lds_bytes : 1];
    typename Kernel::Machine::Wave wave(lds);
    Kernel::run(wave, params);
  }
}

template <class Kernel>
Verdict launch(Grid grid, const typename Kernel::Params& params, Stream stream) {
  static_cast<void>(take_error());  // an error of somebody else's must not be reported as ours
  entry<Kernel><<<dim3_of(grid), dim3(Kernel::waves * Kernel::Machine::width), 0, stream>>>(params);
  return verdict_of_launch(take_error());
}

#else

template <class Kernel>
__global__ __launch_bounds__(Kernel::waves* Kernel::Machine::width,
                             shape_of<Kernel>.resident_workgroups) void entry(const __grid_constant__
                                                                              typename Kernel::Params params) {
  if constexpr (compiles_here<Kernel>) {
    extern __shared__ uint4 lds[];
    typename Kernel::Machine::Wave wave(reinterpret_cast<std::byte*>(lds));
    Kernel::run(wave, params);
  }
}

/// Whether a kernel is written to start while the kernel before it in the stream still runs: it then waits by itself.
template <class Kernel, class = void>
inline constexpr bool starts_early = false;
template <class Kernel>
inline constexpr bool starts_early<Kernel, std::enable_if_t<Kernel::starts_early>> = true;

/// Whether the kernel was prepared on a device: 1, or 2 where the device can start kernels early. Hidden: each library prepares
/// its own kernel.
template <class Kernel>
struct [[gnu::visibility("hidden")]] Prepared {
  static inline DeviceMemo on;
};

/// Prepares a kernel for a device, once: asks for more than 48 KiB of LDS where the kernel needs it. `early`: whether the device
/// can start kernels early.
template <class Kernel>
Verdict prepare(int ordinal, bool* early) {
  if (const std::uint32_t known = Prepared<Kernel>::on.of(ordinal); known != 0) return *early = known == 2, Verdict{};
  int major = 0;
  if (Verdict v = verdict_of(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal)); !v) return v;
  if (constexpr int needed = shape_of<Kernel>.chip_lds_bytes; needed > 0)
    if (const int pass = pass_of(entry<Kernel>); pass > 0 && lds_bytes_of_pass(pass) != needed)
      return {Status::unsupported, "device",
              "this program was compiled for devices with more LDS: compile it for sm_86, sm_89 or sm_120"};
  if (Kernel::lds_bytes > 48 * 1024)
    if (Verdict v = verdict_of(cudaFuncSetAttribute(entry<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::lds_bytes));
        !v)
      return v;
  // All kernels get one division of L1 and LDS: a multiprocessor must be empty to change it.
  if (Verdict v = verdict_of(
          cudaFuncSetAttribute(entry<Kernel>, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
      !v)
    return v;
  *early = major >= 9;
  Prepared<Kernel>::on.set(ordinal, *early ? 2 : 1);
  return {};
}

template <class Kernel>
cudaError_t start(Grid grid, const typename Kernel::Params& params, Stream stream, bool early) {
  const dim3 workgroups = dim3_of(grid), threads(Kernel::waves * Kernel::Machine::width);
  if (!early || !starts_early<Kernel>) {
    entry<Kernel><<<workgroups, threads, Kernel::lds_bytes, stream>>>(params);
    return take_error();
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
  const cudaError_t error = cudaLaunchKernelEx(&config, entry<Kernel>, params);
  static_cast<void>(take_error());  // reported: it must not meet the next call
  return error;
}

template <class Kernel>
Verdict launch(Grid grid, const typename Kernel::Params& params, Stream stream) {
  static_cast<void>(take_error());  // an error of somebody else's must not be reported as ours
  int ordinal = 0;
  bool early = false;
  if (Verdict v = current_ordinal(&ordinal); !v) return v;
  if (Verdict v = prepare<Kernel>(ordinal, &early); !v) return v;
  cudaError_t error = start<Kernel>(grid, params, stream, early);
  if (error == cudaErrorInvalidValue) {  // as after cudaDeviceReset(), which forgets what was asked for
    Prepared<Kernel>::on.set(ordinal, 0);
    if (Verdict v = prepare<Kernel>(ordinal, &early); !v) return v;
    error = start<Kernel>(grid, params, stream, early);
  }
  return verdict_of(error);
}

#endif
#endif

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
