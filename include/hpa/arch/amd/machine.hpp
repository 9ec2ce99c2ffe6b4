// What AMD's machines have in common beside their waves: 16-bit conversions, and functions of one float.
#pragma once

#include "hpa/arch/amd/wave.hpp"
#include "hpa/arch/machine.hpp"
#include "hpa/types.hpp"

#if defined(HPA_HIP_KERNELS)

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch::amd {

#if defined(__gfx950__)
inline constexpr bool rounds_to_bf16 = true;  // by one instruction for two floats
#else
inline constexpr bool rounds_to_bf16 = false;
#endif

/// Two floats as bf16, rounded to nearest even. A NaN stays NaN if its lower half is zero, as in results of matrix products; any
/// NaN does where the chip rounds by itself.
HPA_DEVICE std::uint32_t bf16_pair([[maybe_unused]] float low, [[maybe_unused]] float high) {
#if defined(__HIP_DEVICE_COMPILE__)
  if constexpr (rounds_to_bf16) {
    using BFloat2 = __bf16 __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(std::uint32_t, BFloat2{__bf16(low), __bf16(high)});
  }
  return __builtin_amdgcn_perm(round_to_bf16(bits_of(high)), round_to_bf16(bits_of(low)), 0x07060302);
#else
  return 0;
#endif
}

/// The part of a machine that is AMD's. M: the machine that derives from it.
template <class M>
struct Machine : MachineDefaults<M> {
  template <class T>
  using Lane = DeviceLane<T>;
  using Wave = amd::Wave<Facts<M>::width>;

  // conversions and functions of one float
  template <DType Type>
  static HPA_DEVICE std::uint32_t pack(float low, float high) {
    if constexpr (Type == DType::bf16 && !rounds_to_bf16)
      return pack_plain<Type>(drop_payload(low), drop_payload(high));
    else
      return pack_plain<Type>(low, high);
  }
  template <DType Type>
  static HPA_DEVICE std::uint32_t pack_plain([[maybe_unused]] float low, [[maybe_unused]] float high) {
#if defined(__HIP_DEVICE_COMPILE__)
    if constexpr (Type == DType::f16) {
      using Half2 = _Float16 __attribute__((ext_vector_type(2)));
      return __builtin_bit_cast(std::uint32_t, Half2{_Float16(low), _Float16(high)});
    } else {
      return amd::bf16_pair(low, high);
    }
#else
    return 0;
#endif
  }
  /// Unpacks half 0 or 1 of a word that pack() made, exactly.
  template <DType Type>
  static HPA_DEVICE float unpack(std::uint32_t word, int half) {
    const auto code = std::uint16_t(word >> (16 * half));
    if constexpr (Type == DType::f16)
      return float(__builtin_bit_cast(_Float16, code));
    else
      return float_of(std::uint32_t(code) << 16);
  }
  /// Packs two probabilities. Truncates where rounding is more than one instruction: their sum is taken of the truncated ones.
  template <DType Type>
  static HPA_DEVICE std::uint32_t pack_probabilities([[maybe_unused]] float low, [[maybe_unused]] float high) {
#if defined(__HIP_DEVICE_COMPILE__)
    if constexpr (Type == DType::f16)
      return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_pkrtz(low, high));
    else if constexpr (amd::rounds_to_bf16)
      return pack<Type>(low, high);
    else
      return __builtin_amdgcn_perm(bits_of(high), bits_of(low), 0x07060302);
#else
    return 0;
#endif
  }
  static HPA_DEVICE float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
  static HPA_DEVICE float log2(float x) { return __builtin_amdgcn_logf(x); }
  static HPA_DEVICE float reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }
  static HPA_DEVICE float max(float a, float b) { return __builtin_fmaxf(a, b); }
  static HPA_DEVICE float min(float a, float b) { return __builtin_fminf(a, b); }
};

}  // namespace arch::amd
}  // namespace HPA_PLATFORM
}  // namespace hpa

#endif
