// rocPRIM's block scan for CDNA, where rocPRIM is there and supports the target. HPA_ROCPRIM=0 chooses the library's own scan.
#pragma once

#include <cstddef>

#include "hpa/arch/arch.hpp"

#if defined(HPA_HIP_KERNELS)

#if defined(HPA_ROCPRIM)
#define HPA_DETAIL_ROCPRIM HPA_ROCPRIM
#elif __has_include(<rocprim/rocprim_version.hpp>)
#include <rocprim/rocprim_version.hpp>
#if defined(__gfx950__) && ROCPRIM_VERSION < 400000
#define HPA_DETAIL_ROCPRIM 0  // ROCm 6's headers stop at an #error on gfx950
#else
#define HPA_DETAIL_ROCPRIM 1
#endif
#else
#define HPA_DETAIL_ROCPRIM 0
#endif

#if HPA_DETAIL_ROCPRIM
#include <rocprim/block/block_scan.hpp>
#endif

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wdeprecated-declarations"  // of rocPRIM's own storage types, by ROCm 6.4

/// Prefix sums over the workgroup by the platform's library. `available` false: kernel/block_scan.hpp scans by itself.
template <class T, int Threads>
struct CdnaBlockScan {
#if HPA_DETAIL_ROCPRIM && defined(__HIP_DEVICE_COMPILE__)
  using Scan = rocprim::block_scan<T, Threads>;
  static constexpr bool available = true;
  static constexpr int lds_bytes = int(sizeof(typename Scan::storage_type));

  /// Replaces `value` by the sum of all before it; returns the sum of all.
  static HPA_DEVICE T exclusive(T& value, std::byte* lds) {
    T total;
    const T zero{};
    Scan().exclusive_scan(value, value, zero, total, *reinterpret_cast<typename Scan::storage_type*>(lds),
                          [](const T& a, const T& b) { return a + b; });
    __syncthreads();  // lds may be written again
    return total;
  }
#else
  static constexpr bool available = false;
  static constexpr int lds_bytes = 0;
#endif
};

#pragma clang diagnostic pop

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa

#undef HPA_DETAIL_ROCPRIM

#endif
