// MergeArgs: sizes and device pointers of one merge_states().
#pragma once

#include <cstdint>

#include "hpa/types.hpp"

namespace hpa {

/// States that one merge can combine.
inline constexpr int max_merge_states = 16;

/// Attention of some rows over a part of their keys.
struct MergeState {
  const void* out = nullptr;   // [num_rows, num_heads, head_size]; where lse is infinite it may hold anything
  const float* lse = nullptr;  // [num_rows, num_heads], natural logarithm; -inf or +inf: the row saw no key of this part
  std::int64_t lse_row_stride = 0, lse_head_stride = 0;  // [num_heads, num_rows] has strides 1 and num_rows
};

/// One merge: sizes, and device pointers. Strides are in elements; a stride of 0 means dense.
///
/// Pointers to out are 8-byte aligned and strides multiples of 4, as decode() writes it. Where all pointers are 16-byte aligned and
/// head_size and all strides are multiples of 8, loads and stores are of 16 bytes.
struct MergeArgs {
  MergeState states[max_merge_states];  // the first num_states of them count
  int num_states = 0;                   // 1 to 16
  DType state_type = DType::f16;        // of every state's out: f16 or bf16
  DType out_type = DType::f16;          // of out: f16 or bf16, rounded to nearest even; beyond fp16's range infinite
  int num_rows = 0;                     // 0: nothing to do, and no pointer is looked at
  int num_heads = 0;                    // query heads
  int head_size = 0;                    // of the output: head_size_v of the attention. A multiple of 4
  std::int64_t state_row_stride = 0, state_head_stride = 0;  // of every state's out
  void* out = nullptr;  // [num_rows, num_heads, head_size]; may be one state's out, with that one's strides, and else must not
                        // overlap any. 0 where all states are empty
  float* lse =
      nullptr;  // [num_rows, num_heads], natural logarithm, -inf where all states are empty; nullptr = not wanted. Must not
                // overlap any state's lse
  std::int64_t out_row_stride = 0, out_head_stride = 0;
  std::int64_t lse_row_stride = 0, lse_head_stride = 0;  // of lse above
};

}  // namespace hpa
