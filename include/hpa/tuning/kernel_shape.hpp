// How kernels are shaped, as numbers. Each file beside this one is the table of one maker's chips: every number in it was measured there.
#pragma once

#include "hpa/arch/platform.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace tuning {

/// The sizes by which a table chooses the shape of a decode kernel.
struct Sizes {
  int head_k = 0, head_v = 0;  // elements
  int kv_bits = 0;             // of an element of the cache
  int rows = 0;                // query rows of a KV head: those of all its heads
  bool token_scales = false;   // each token may have a scale for its keys and one for its values, a float each

  constexpr bool same_heads() const { return head_k == head_v; }
  constexpr int token_bytes() const { return (head_k + head_v) * kv_bits / 8 + (token_scales ? 8 : 0); }
};

/// A kernel's numbers. Kernels, launch bounds, grids, check() and whoever prints them read the same ones.
struct KernelShape {
  int waves = 0;                // of a workgroup; 0: there is no kernel
  int workgroups_per_unit = 0;  // of a grid, for each compute unit
  int resident_workgroups = 0;  // of a compute unit that registers must leave room for: the launch bounds
  int lds_bytes = 0;            // of a workgroup, at most; 0 = not decode's, little
  int chip_lds_bytes = 0;       // decode: LDS that a workgroup can have on the chips of this shape; 0 = any

  // decode alone
  int rows_per_pass = 0;    // query rows that one pass over a KV head's cache serves
  int tile_tokens = 0;      // tokens that a wave multiplies at a time
  int stages = 0;           // tiles of a wave that are under way: in a ring in LDS, or one in registers
  int bytes_per_stage = 0;  // of keys, values and scales of a tile
  int merge_rows = 0;       // rows of all waves that are merged in LDS at a time
  int value_batch = 0;      // products of a tile whose values are asked for and awaited together
  int query_ahead = 0;      // products whose query is read ahead

  constexpr explicit operator bool() const { return waves > 0; }
  constexpr int waves_per_simd() const { return resident_workgroups * waves < 4 ? 1 : resident_workgroups * waves / 4; }
  /// Bytes of the cache that are on their way to one compute unit at a time.
  constexpr int bytes_in_flight() const { return workgroups_per_unit * waves * stages * bytes_per_stage; }
};

/// The shape of the plan kernels.
struct PlanShape {
  KernelShape kernel;
  int writers = 0;  // workgroups that read the same sequences; each writes for other ones of them
};

/// The shape of the reduce kernel.
struct ReduceShape {
  KernelShape kernel;
  int vectors = 0;         // of four elements each, that a lane has of its head
  int partials_ahead = 0;  // of a row, that a wave has in flight at a time
};

/// The numbers of a machine from which PartitionRule is made.
struct CutRule {
  int whole_sequence_tokens = 4096;  // where sequences fill the chip: those up to this length are not cut
  int long_partition = 2048;         // tokens of a partition of longer sequences
  int min_partition = 128;           // tokens of a partition at least, where sequences do not fill the chip
  int min_tokens_per_row = 0;  // likewise, for each row of a pass: with fewer tokens, moving partials costs more than the cut saves
  int min_saving = 0;          // tokens that such a cut must save a workgroup: the cost of the second launch
  int sequence_cost = 0;       // balanced: cost of a sequence beside its tokens, in tokens
  int rows_per_pass = 16;      // query rows of a KV head beyond which its cache is read once more
  int workgroups_per_unit = 1;          // balanced: of decode, where sequences fill the chip
  int latency_workgroups_per_unit = 1;  // balanced: of decode, where they do not and latency counts
};

/// A KernelShape as a type, for kernels to be templates of. Equal shapes are one type.
template <int... Members>
struct ShapeConstant {
  static constexpr KernelShape value{Members...};
};

/// Source::value as such a type.
template <class Source>
using ConstantOf = ShapeConstant<Source::value.waves, Source::value.workgroups_per_unit, Source::value.resident_workgroups,
                                 Source::value.lds_bytes, Source::value.chip_lds_bytes, Source::value.rows_per_pass,
                                 Source::value.tile_tokens, Source::value.stages, Source::value.bytes_per_stage,
                                 Source::value.merge_rows, Source::value.value_batch, Source::value.query_ahead>;

constexpr int smaller(int a, int b) { return a < b ? a : b; }

}  // namespace tuning
}  // namespace HPA_PLATFORM
}  // namespace hpa
