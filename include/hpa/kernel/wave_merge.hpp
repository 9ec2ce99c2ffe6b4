// WaveMerge: how the waves of a workgroup, each with the output of its own tiles, merge them in LDS.
#pragma once

#include <algorithm>

#include "hpa/kernel/result.hpp"
#include "hpa/kernel/softmax.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// Places in LDS of four elements each, `Chunks` of them a row. Rows are rotated against each other, so that lanes of different
/// rows use different banks. Places beyond the last multiple of eight are not rotated.
template <int Chunks>
struct RotatedRows {
  static constexpr int row_places = Chunks, grouped = Chunks / 8 * 8;
  static HPA_HOST_DEVICE constexpr int place(int row, int chunk) {
    if (grouped < Chunks && chunk >= grouped) return row * Chunks + chunk;
    return row * Chunks + (chunk & ~7) + ((chunk ^ row) & 7);
  }
  static HPA_HOST_DEVICE constexpr int place_of_float(int row, int element) { return 4 * place(row, element / 4) + element % 4; }
};

/// Places in LDS of four elements each, `Chunks` of them a row and one that is left free, so that lanes of different rows use
/// different banks. For kernels that have LDS to spare.
template <int Chunks>
struct PaddedRows {
  static constexpr int row_places = Chunks + 1;
  static HPA_HOST_DEVICE constexpr int place(int row, int chunk) { return row * row_places + chunk; }
  static HPA_HOST_DEVICE constexpr int place_of_float(int row, int element) { return 4 * row * row_places + element; }
};

/// Merges `MergeRows` rows at a time, for any head size that is a multiple of four. A thread merges four elements of a row.
template <class M, class C, int Waves, int MergeRows, template <int> class Rows>
struct WaveMerge {
  using Wave = typename M::Wave;
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;
  using Floats4 = typename M::Floats4;
  using Softmax = RunningSoftmax<M, C>;
  static constexpr int rows = Products::rows, merge_rows = MergeRows, chunks = C::head_size / 4;
  using Places = Rows<chunks>;
  static_assert(C::head_size % 4 == 0 && MergeRows > 0, "a thread merges four elements of a row");

  struct States {
    RowState state[Waves * rows];
  };
  /// The outputs of all waves, for the rows that are merged at a time.
  struct Outputs {
    Floats4 chunk[Waves * MergeRows * Places::row_places];
  };
  /// The merged state of a row, and what each wave's output is multiplied with.
  struct Weighed {
    RowState state;
    float weight[Waves];
  };

  /// Writes the states of the wave's rows. `failed`: a block id was bad, so all of them failed.
  static HPA_DEVICE void write_states(const Wave& wave, States& states, const Softmax& softmax, bool failed) {
    RowState* const wave_states = states.state + wave.index() * rows;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int i = 0; i < Softmax::lane_rows; ++i) {
        const int row = Products::score_row(lane, i);
        const float total = softmax.total[i / Products::set_rows][lane][i % Products::set_rows];
        if (lane == Products::score_lane_of(row))
          wave_states[row] = {softmax.reference[i][lane], failed ? RowState::failed_total : total};
      }
    });
  }

  /// Writes the wave's outputs of rows [first, first + MergeRows).
  static HPA_DEVICE void write_outputs(const Wave& wave, Outputs& outputs, int first, const Softmax& softmax) {
    constexpr int run = Products::output_run;
    wave.each([&](int lane) {
      HPA_UNROLL
      for (int set = 0; set < Products::row_sets; ++set) {
        HPA_UNROLL
        for (int i = 0; i < 4; i += run) {
          const int row = Products::output_row(lane, set, i) - first;
          if constexpr (MergeRows < rows)
            if (row < 0 || row >= MergeRows) continue;
          HPA_UNROLL
          for (int dim = 0; dim < Traits::dims; ++dim) {
            const int element = Products::output_element(lane, dim, i);
            if constexpr (run == 4)
              outputs.chunk[Places::place(row_of_wave(wave.index(), row), element / 4)] = softmax.output[set][dim][lane];
            else
              reinterpret_cast<float*>(outputs.chunk)[Places::place_of_float(row_of_wave(wave.index(), row), element)] =
                  softmax.output[set][dim][lane][i];
          }
        }
      }
    });
  }

  /// Merges the states that the first `active` waves wrote for a row. The other waves wrote none.
  static HPA_DEVICE Weighed weigh(const States& states, int row, int active = Waves) {
    Weighed weighed;
    RowState state[Waves];
    HPA_UNROLL
    for (int w = 0; w < Waves; ++w) state[w] = states.state[of_active(w, active) * rows + row];
    weighed.state = RowState::merged<M>(state, weighed.weight, active);
    if (active == 0) weighed.state = RowState::none();  // no tokens: LDS is uninitialised, ignore it
    return weighed;
  }

  /// Adds up the waves' outputs of four elements. `row` counts from the first row that was written.
  static HPA_DEVICE Floats4 sum(const Outputs& outputs, int row, int chunk, const float (&weight)[Waves], int active = Waves) {
    Floats4 partial_sum[Waves], sum{0.f, 0.f, 0.f, 0.f};
    HPA_UNROLL
    for (int w = 0; w < Waves; ++w) partial_sum[w] = outputs.chunk[Places::place(row_of_wave(of_active(w, active), row), chunk)];
    HPA_UNROLL
    for (int w = 0; w < Waves; ++w) sum = sum + partial_sum[w] * weight[w];
    return sum;
  }

 private:
  /// The index of a wave's row among the rows of all waves.
  static HPA_DEVICE int row_of_wave(int wave, int row) { return wave * MergeRows + row; }
  /// The wave itself, or wave 0 for one that wrote nothing: its weight is 0.
  static HPA_DEVICE int of_active(int wave, int active) { return wave < active ? wave : 0; }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
