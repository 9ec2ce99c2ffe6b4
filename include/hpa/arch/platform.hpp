// The platform that this source is compiled for: HIP, CUDA or the host, and what functions of kernels are marked with.
#pragma once

// The platform follows the compiler in use; define one of the three to force it.
#if !defined(HPA_PLATFORM_HIP) && !defined(HPA_PLATFORM_CUDA) && !defined(HPA_PLATFORM_HOST)
#if defined(__HIP__) || defined(__HIPCC__)
#define HPA_PLATFORM_HIP 1
#elif defined(__CUDACC__)
#define HPA_PLATFORM_CUDA 1
#else
#define HPA_PLATFORM_HOST 1
#endif
#endif

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "hip-paged-attention needs Inf and NaN: add -fno-finite-math-only, behind -ffast-math"
#endif
#if defined(__HIP_DEVICE_COMPILE__) && !defined(__OPTIMIZE__)
#error "hip-paged-attention: AMD kernels cannot be compiled at -O0; -Xarch_device -O1 leaves the host's half there"
#endif
#if defined(__gfx950__) && defined(__clang_major__) && __clang_major__ < 20
#error "hip-paged-attention: gfx950 needs LLVM 20 or newer (ROCm 7)"
#endif

// Whether the compiler in use can compile the platform's kernels. A plain C++ compiler that is told of a GPU's platform can only
// declare its calls: declare.hpp.
#if defined(HPA_PLATFORM_HIP) && (defined(__HIP__) || defined(__HIPCC__))
#define HPA_HIP_KERNELS 1
#include <hip/hip_runtime.h>
#elif defined(HPA_PLATFORM_CUDA) && defined(__CUDACC__)
#define HPA_CUDA_KERNELS 1
#include <cuda_runtime.h>
#endif

#if defined(HPA_HIP_KERNELS) || defined(HPA_CUDA_KERNELS)
#define HPA_HOST_DEVICE __host__ __device__ __forceinline__
#define HPA_DEVICE __device__ __forceinline__
#define HPA_UNROLL _Pragma("unroll")
#define HPA_DO_NOT_UNROLL _Pragma("unroll 1")  // where code that has not been used lately would cost more than its loop
#else
#define HPA_HOST_DEVICE inline
#define HPA_DEVICE inline
#define HPA_UNROLL  // clang on the host warns of loops that it then leaves alone
#define HPA_DO_NOT_UNROLL
#endif

// What depends on the platform lies in an inline namespace of the platform, so that one program can have sources of several: the same
// function has one name a platform, and the linker does not take one for the other. Callers write hpa::decode as ever. All of hpa::arch, hpa::detail and
// hpa::kernel lies in it; whether `namespace hpa::arch` would go on with an inline one is a matter of the compiler.
#if defined(HPA_PLATFORM_HIP)
#define HPA_PLATFORM on_hip
#elif defined(HPA_PLATFORM_CUDA)
#define HPA_PLATFORM on_cuda
#else
#define HPA_PLATFORM on_host
#endif

#if defined(HPA_PLATFORM_HIP)
struct ihipStream_t;
#elif defined(HPA_PLATFORM_CUDA)
struct CUstream_st;
#endif

namespace hpa {
inline namespace HPA_PLATFORM {

#if defined(HPA_PLATFORM_HIP)
using Stream = ::ihipStream_t*;  // hipStream_t
#elif defined(HPA_PLATFORM_CUDA)
using Stream = ::CUstream_st*;  // cudaStream_t
#else
/// The host's stream: work runs at once, in the calling thread and threads of its own, and is complete when a call returns.
struct Stream {
  int threads = 0;  // workgroups at work at the same time; 0 = as many as the machine has cores
};
#endif

}  // namespace HPA_PLATFORM
}  // namespace hpa
