// The shapes of kernels on NVIDIA, as measured on sm_90 and as they fit the LDS of chips that have less.
#pragma once

#include <array>

#include "hpa/tuning/kernel_shape.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace tuning {

struct Nvidia {
  static constexpr std::array lds_classes{227 * 1024, 163 * 1024,
                                          99 * 1024};  // of a workgroup: sm_90 and sm_100; sm_80; sm_86, 89, 120
  static constexpr int lds_beside = 1024;              // of each workgroup, that the hardware takes for itself
  static constexpr std::array row_classes{8, 16};  // half of the rows are half of the registers, where products have rows to skip
  static constexpr int unit_bytes = 128 * 1024;    // in flight, of all waves of a multiprocessor: enough to saturate the memory
  static constexpr int ring_bytes = 16 * 1024;     // of them a wave's

  /// Decode workgroups of a multiprocessor. Where sequences fill the chip, two workgroups hide each other's merges. Where they do
  /// not, one has the multiprocessor to itself, so that a sequence is cut into fewer partitions. Halves of little LDS would hold a
  /// wave or two each.
  static constexpr int workgroups_per_unit(int chip_lds_bytes, bool fills_the_chip) {
    return fills_the_chip && chip_lds_bytes >= 163 * 1024 ? 2 : 1;
  }

  static constexpr KernelShape decode_kernel_shape(int chip_lds_bytes, const Sizes& sizes, bool fills_the_chip) {
    KernelShape shape;
    if (!sizes.same_heads() || (sizes.head_k != 64 && sizes.head_k != 128)) return shape;
    const int workgroups = workgroups_per_unit(chip_lds_bytes, fills_the_chip);
    const bool few_rows = sizes.rows <= 8;
    shape.workgroups_per_unit = shape.resident_workgroups = workgroups;
    shape.chip_lds_bytes = chip_lds_bytes;
    shape.rows_per_pass = few_rows ? 8 : 16;
    shape.tile_tokens = 16;
    shape.bytes_per_stage = shape.tile_tokens * sizes.token_bytes();
    shape.merge_rows = shape.rows_per_pass;
    shape.value_batch = shape.query_ahead = 1;
    int ring = ring_bytes;
    shape.waves = unit_bytes / workgroups / ring;
    // Where a token has few bytes for its arithmetic, more waves with shorter rings hide more of the merges; registers limit their
    // number.
    if (workgroups > 1 && few_rows && (sizes.head_k == 64 || (sizes.kv_bits == 8 && !sizes.token_scales))) {
      ring /= 2;
      shape.waves = sizes.head_k == 64 ? 8 : 6;
    }
    shape.stages = ring / shape.bytes_per_stage;
    shape.lds_bytes = (chip_lds_bytes + lds_beside) / workgroups - lds_beside;
    shape.waves = smaller(shape.waves, shape.lds_bytes / wave_lds_bytes(sizes, shape));
    return shape;
  }

  /// LDS of a wave: its ring and a barrier a stage, rows of output and their states in two sets of 8 or one of 16, and the facts
  /// of rows.
  static constexpr int wave_lds_bytes(const Sizes& sizes, const KernelShape& shape) {
    return shape.stages * (shape.bytes_per_stage + 8) + 16 * (4 * (sizes.head_v + 4) + 8) + 16 * shape.rows_per_pass;
  }

  /// The shape of the reduce kernel. `row_waves`: waves that merge a row together, or one. With one, the budget of registers is
  /// 1/6 of the register file: decode leaves that much of a multiprocessor free. Kernels with Features::all have none such.
  static constexpr ReduceShape reduce_kernel_shape(int /*head_size*/, bool features, int row_waves) {
    return {{8, 8, row_waves == 8 || features ? 1 : 6}, 1, 2};
  }
  static constexpr int reduce_row_waves = 8;  // waves that merge a row together where sequences do not fill the chip
  static constexpr PlanShape plan_kernel_shape() { return {{32, 1, 1}, 8}; }
  /// The shape of the kernels of append(), copy_blocks() and merge_states().
  static constexpr KernelShape copy_kernel_shape() { return {4, 2, 1}; }

  static constexpr CutRule cut_rule(int chip_lds_bytes) {
    return {4096, 2048, 64, 0, 384, 192, 16, workgroups_per_unit(chip_lds_bytes, true), workgroups_per_unit(chip_lds_bytes, false)};
  }
};

}  // namespace tuning
}  // namespace HPA_PLATFORM
}  // namespace hpa
