// MergeKernel: merges attentions of the same rows over disjoint keys by their log-sum-exps, in the order of their index.
#pragma once

#include "hpa/kernel/result.hpp"
#include "hpa/merge_args.hpp"
#include "hpa/tuning/kernel_shape.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// Log-sum-exps, [row, head]. Strides are in elements.
template <class Float>
struct LseView {
  Float* data;
  std::int64_t row_stride, head_stride;
  HPA_DEVICE Float* at(std::int32_t row, std::int32_t head) const { return data + row * row_stride + head * head_stride; }
};

/// The out and lse of one hpa::MergeState.
struct MergeSource {
  const void* out;
  LseView<const float> lse;
};

struct MergeParams {
  MergeSource states[max_merge_states];  // by value, in the kernel's arguments
  RowView out;
  LseView<float> lse;             // data may be nullptr
  std::int64_t state_row_stride;  // of every state's out, in bytes
  std::uint32_t state_head_stride;
  std::int32_t num_states, num_rows, num_heads;
  std::int32_t vectors;  // of `Elements` elements in a head
};

/// A lane has `Elements` neighbouring elements of one head: 8, or 4 where addresses do not allow 16-byte loads. It reads them of
/// all states before it writes them, so that out may be the out of a state.
template <class M, DType State, DType Out, int Elements>
struct MergeKernel {
  using Machine = M;
  using Params = MergeParams;
  using Wave = typename M::Wave;
  using Vector = Words<Elements / 2>;
  static constexpr tuning::KernelShape shape = M::Tuning::copy_kernel_shape();
  static constexpr int waves = shape.waves;
  static constexpr int lds_bytes = 0;
  static constexpr int batch = 4;  // states in flight at a time

  /// Grid x covers rows; grid y, the waves of a workgroup and their lanes cover the vectors of a row.
  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    wave.each([&](int lane) {
      const int place = (wave.workgroup_y() * waves + wave.index()) * M::width + lane;
      const int head = place / p.vectors, element = place % p.vectors * Elements;
      if (head >= p.num_heads) return;
      for (std::int32_t row = wave.workgroup_x(); row < p.num_rows; row += wave.workgroups_x()) merge(p, row, head, element);
    });
  }

 private:
  struct Sum {
    RowState state = RowState::none();  // of the log-sum-exps: natural logarithms
    float weighted[Elements] = {};      // sum of exp(lse - maximum) * out
  };

  static HPA_DEVICE void merge(const Params& p, std::int32_t row, std::int32_t head, int element) {
    Sum sum;
    for (int first = 0; first < p.num_states; first += batch) {
      float lse[batch];
      Vector vector[batch];
      HPA_UNROLL
      for (int i = 0; i < batch; ++i) {  // past the last state the last one again, so that all loads are in flight at once
        const MergeSource& state = p.states[first + i < p.num_states ? first + i : p.num_states - 1];
        const RowView out{static_cast<char*>(const_cast<void*>(state.out)), p.state_row_stride, p.state_head_stride};
        lse[i] = Wave::template load<float>(state.lse.at(row, head));
        vector[i] = Wave::template load<Vector>(out.at(row, head) + element * size_of(State));
      }
      HPA_UNROLL
      for (int i = 0; i < batch; ++i)
        if (first + i < p.num_states) add(sum, lse[i], vector[i]);
    }
    store(p, row, head, element, sum);
  }

  /// Adds a state. An empty one adds nothing: its weight is 0, and its out may hold NaN.
  static HPA_DEVICE void add(Sum& sum, float lse, const Vector& vector) {
    if (__builtin_fabsf(lse) == __builtin_inff()) return;
    const auto [keep, weight] = sum.state.template absorb<M>({lse, 1.f}, log2_e);
    HPA_UNROLL
    for (int i = 0; i < Elements; ++i)
      sum.weighted[i] = sum.weighted[i] * keep + M::template unpack<State>(vector.word[i / 2], i % 2) * weight;
  }

  static HPA_DEVICE void store(const Params& p, std::int32_t row, std::int32_t head, int element, const Sum& sum) {
    const bool empty = sum.state.empty();
    const float divide = empty ? 0.f : M::reciprocal(sum.state.total);
    Vector vector;
    HPA_UNROLL
    for (int i = 0; i < Elements; i += 2)
      vector.word[i / 2] = M::template pack<Out>(sum.weighted[i] * divide, sum.weighted[i + 1] * divide);
    Wave::store(p.out.at(row, head) + element * size_of(Out), vector);
    if (p.lse.data != nullptr && element == 0)
      Wave::store(p.lse.at(row, head), empty ? -__builtin_inff() : sum.state.maximum + M::log2(sum.state.total) * ln_2);
  }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
