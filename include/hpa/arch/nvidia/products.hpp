// Mma: NVIDIA's matrix instructions.
#pragma once

#include "hpa/arch/device_lane.hpp"
#include "hpa/arch/products.hpp"
#include "hpa/types.hpp"

#if defined(HPA_CUDA_KERNELS)

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// Four floats of a lane: D of a matrix product.
struct alignas(16) NvidiaFloats4 {
  float value[4];
  static HPA_DEVICE NvidiaFloats4 zero() { return {0.f, 0.f, 0.f, 0.f}; }
  HPA_DEVICE float& operator[](int i) { return value[i]; }
  HPA_DEVICE const float& operator[](int i) const { return value[i]; }
  HPA_DEVICE NvidiaFloats4 operator*(float by) const { return {value[0] * by, value[1] * by, value[2] * by, value[3] * by}; }
  HPA_DEVICE NvidiaFloats4 operator+(const NvidiaFloats4& o) const {
    return {value[0] + o[0], value[1] + o[1], value[2] + o[2], value[3] + o[3]};
  }
};

/// D += A B, 16x8x16.
template <DType Type>
struct Mma {
  static_assert(Type == DType::f16 || Type == DType::bf16);
  static constexpr DType type = Type;
  using Map = MmaM16N8K16;
  using Sum = DeviceLane<NvidiaFloats4>;

  static HPA_DEVICE void fma(Sum& d, const DeviceLane<Words<4>>& a, const DeviceLane<Words<2>>& b) {
    const std::uint32_t* word = a.value.word;
    issue(d.value.value, word[0], word[1], word[2], word[3], b.value.word[0], b.value.word[1]);
  }
  /// A comes as row r's two words, then row r + 8's; the instruction's registers alternate between the rows.
  static HPA_DEVICE void fma_rows(Sum& d, const DeviceLane<Words<4>>& a, const DeviceLane<Words<2>>& b) {
    const std::uint32_t* word = a.value.word;
    issue(d.value.value, word[0], word[2], word[1], word[3], b.value.word[0], b.value.word[1]);
  }

 private:
  static HPA_DEVICE void issue(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                               std::uint32_t b0, std::uint32_t b1) {
    if constexpr (Type == DType::f16)
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa

#endif
