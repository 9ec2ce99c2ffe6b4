// The shapes of kernels on AMD CDNA, as measured: gfx90a, gfx942, gfx950.
#pragma once

#include <array>

#include "hpa/tuning/kernel_shape.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace tuning {

struct Cdna {
  static constexpr int unit_waves = 16;                // that a compute unit holds when its SIMDs have four each
  static constexpr std::array lds_classes{64 * 1024};  // kernels need no more, though gfx950 has it
  static constexpr std::array row_classes{16};         // rows a pass: products have no fewer

  /// The shape of the decode kernel. Where sequences fill the chip, workgroups of few waves read most with the fewest
  /// instructions; where they do not, the latency of each sequence counts, and more waves take its tiles.
  static constexpr KernelShape decode_kernel_shape(int chip_lds_bytes, const Sizes& sizes, bool fills_the_chip) {
    KernelShape shape;
    if (!sizes.same_heads() || (sizes.head_k != 64 && sizes.head_k != 128)) return shape;
    shape.waves = fills_the_chip ? 4 : 8;
    shape.workgroups_per_unit = shape.resident_workgroups = unit_waves / shape.waves;
    shape.lds_bytes = chip_lds_bytes / shape.workgroups_per_unit;
    shape.chip_lds_bytes = chip_lds_bytes;
    shape.rows_per_pass = 16;
    shape.tile_tokens = 32;
    shape.stages = 1;
    shape.bytes_per_stage = shape.tile_tokens * sizes.token_bytes();
    // A thread merges four elements of a row; as many rows as there are threads and LDS for.
    const int chunks = sizes.head_v / 4;
    shape.merge_rows =
        smaller(smaller(shape.waves * 64 / chunks, shape.lds_bytes / (shape.waves * chunks * 16)), shape.rows_per_pass);
    // 8-bit operands leave registers to spare.
    shape.value_batch = shape.query_ahead = sizes.kv_bits == 16 ? 1 : 4;
    return shape;
  }

  /// The shape of the reduce kernel. `row_waves`: waves that merge a row together, or one.
  static constexpr ReduceShape reduce_kernel_shape(int /*head_size*/, bool /*features*/, int /*row_waves*/) {
    return {{1, unit_waves, unit_waves}, 2, 4};
  }
  static constexpr int reduce_row_waves = 1;  // waves that merge a row together where sequences do not fill the chip
  static constexpr PlanShape plan_kernel_shape() { return {{16, 1, 1}, 1}; }
  /// The shape of the kernels of append(), copy_blocks() and merge_states().
  static constexpr KernelShape copy_kernel_shape() { return {4, 4, 4}; }

  static constexpr CutRule cut_rule(int /*chip_lds_bytes*/) { return {4096, 2048, 512, 64, 768, 192, 16, 4, 2}; }
};

}  // namespace tuning
}  // namespace HPA_PLATFORM
}  // namespace hpa
