// The shapes of kernels on the host: few waves, as each is a thread, and one shape for all sizes, as more would show nothing new.
#pragma once

#include <array>

#include "hpa/tuning/kernel_shape.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace tuning {

/// The table of an emulated machine. `Of`: the table of the machine that it stands for; what kernels are made of is taken from
/// there, and the number of waves is the host's.
template <class Of>
struct Host {
  static constexpr std::array lds_classes{160 * 1024};
  static constexpr auto row_classes = Of::row_classes;

  static constexpr KernelShape decode_kernel_shape(int chip_lds_bytes, const Sizes& sizes, bool /*fills_the_chip*/) {
    KernelShape shape = Of::decode_kernel_shape(Of::lds_classes[0], sizes, false);
    if (!shape) return shape;
    shape.waves = 4;
    shape.workgroups_per_unit = shape.resident_workgroups = 1;
    shape.chip_lds_bytes = shape.lds_bytes = chip_lds_bytes;
    return shape;
  }

  static constexpr ReduceShape reduce_kernel_shape(int /*head_size*/, bool /*features*/, int /*row_waves*/) {
    return {{2, 4, 1}, 1, 4};
  }
  static constexpr int reduce_row_waves = 2;  // waves that merge a row together where sequences do not fill the chip
  static constexpr PlanShape plan_kernel_shape() { return {{2, 1, 1}, Of::plan_kernel_shape().writers > 1 ? 2 : 1}; }
  static constexpr KernelShape copy_kernel_shape() { return {2, 2, 1}; }
  static constexpr CutRule cut_rule(int /*chip_lds_bytes*/) { return {4096, 2048, 128, 0, 0, 64, 16, 1, 1}; }
};

}  // namespace tuning
}  // namespace HPA_PLATFORM
}  // namespace hpa
