// What a softmax keeps of a row, and how what was computed apart becomes one: the only place that knows.
#pragma once

#include "hpa/arch/platform.hpp"
#include "hpa/kernel/math.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// The softmax of some of a row's tokens, whose output is kept beside it: total = sum of exp2(score - maximum), output = sum of
/// exp2(score - maximum) * v, not divided. A wave has one for each of its rows, and a partial result in the workspace is one.
struct RowState {
  float maximum;  // base 2, at or near the largest score; `unset` when nothing was seen
  float total;    // negative: the row failed, as one of its block ids cannot be; it counts as empty

  static constexpr float unset = -__FLT_MAX__;  // finite, so that a masked score less it is -inf and not NaN
  static constexpr float failed_total = -1.f;

  static HPA_HOST_DEVICE constexpr RowState none() { return {unset, 0.f}; }

  HPA_HOST_DEVICE constexpr bool failed() const { return total < 0.f; }
  /// Nothing was seen, or nothing counts. NaN is not empty.
  HPA_HOST_DEVICE constexpr bool empty() const { return total == 0.f || failed(); }

  /// The natural logarithm of the sum of exp(score), of a row that is not empty.
  template <class M>
  HPA_DEVICE float lse() const {
    return (maximum + M::log2(total)) * ln_2;
  }

  /// Moves the maximum up to `to`; returns what an output summed against the old maximum is multiplied with. `log2_unit`: what maxima
  /// are multiplied with to be in base 2.
  template <class M>
  HPA_DEVICE float raise(float to, float log2_unit = 1.f) {
    const float raised = M::max(maximum, to), keep = M::exp2((maximum - raised) * log2_unit);
    *this = {raised, total * keep};
    return keep;
  }

  /// What the outputs of this state and of another are multiplied with before they are added.
  struct Weights {
    float keep, weight;
  };

  /// Becomes the state of both. Neither has failed.
  template <class M>
  HPA_DEVICE Weights absorb(const RowState& other, float log2_unit = 1.f) {
    const float keep = raise<M>(other.maximum, log2_unit), weight = M::exp2((other.maximum - maximum) * log2_unit);
    total += other.total * weight;
    return {keep, weight};
  }

  /// The state of the first `count` of N states; `weight` is what their outputs are multiplied with before they are added. States from
  /// `count` on are copies of others, so that all can be loaded without a branch; their weight is 0. One that failed makes all fail.
  template <class M, int N>
  static HPA_DEVICE RowState merged(const RowState (&states)[N], float (&weight)[N], int count = N) {
    RowState all{states[0].maximum, 0.f};
    float least_total = 0.f;  // negative when one failed
    HPA_UNROLL
    for (int i = 1; i < N; ++i) all.maximum = M::max(all.maximum, states[i].maximum);
    HPA_UNROLL
    for (int i = 0; i < N; ++i) {
      weight[i] = i < count ? M::exp2(states[i].maximum - all.maximum) : 0.f;
      all.total += states[i].total * weight[i];
      least_total = M::min(states[i].total, least_total);  // in this order a NaN is passed over
    }
    if (least_total < 0.f) all.total = failed_total;
    return all;
  }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
