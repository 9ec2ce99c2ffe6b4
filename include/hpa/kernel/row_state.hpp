// RowState: the state of a row's softmax, and how states of disjoint tokens are merged. All merges of the library are here.
#pragma once

#include "hpa/arch/platform.hpp"
#include "hpa/kernel/math.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// The state of a row's softmax over some of its tokens. The output is kept beside it. total = sum of exp2(score - maximum);
/// output = sum of exp2(score - maximum) * v, not divided. A wave has a state for each of its rows, and so has a partial in the
/// workspace.
struct RowState {
  float maximum;  // base 2, at or near the largest score; `unset` when nothing was seen
  float total;    // negative: the row failed, because a block id was bad; it counts as empty

  static constexpr float unset = -__FLT_MAX__;  // finite, so that a masked score less it is -inf and not NaN
  static constexpr float failed_total = -1.f;

  static HPA_HOST_DEVICE constexpr RowState none() { return {unset, 0.f}; }

  HPA_HOST_DEVICE constexpr bool failed() const { return total < 0.f; }
  /// Whether the row saw no token, or failed. A NaN is not empty.
  HPA_HOST_DEVICE constexpr bool empty() const { return total == 0.f || failed(); }

  /// The natural logarithm of the sum of exp(score), of a row that is not empty.
  template <class M>
  HPA_DEVICE float lse() const {
    return (maximum + M::log2(total)) * ln_2;
  }

  /// Raises the maximum to at least `to`. Returns the factor of the output that was summed against the old maximum. `log2_unit`:
  /// the factor that brings maxima to base 2.
  template <class M>
  HPA_DEVICE float raise(float to, float log2_unit = 1.f) {
    const float raised = M::max(maximum, to), keep = M::exp2((maximum - raised) * log2_unit);
    *this = {raised, total * keep};
    return keep;
  }

  /// The factors of the outputs of two states before they are added: `keep` of this state's, `weight` of the other's.
  struct Weights {
    float keep, weight;
  };

  /// Merges another state into this one. Neither may have failed.
  template <class M>
  HPA_DEVICE Weights absorb(const RowState& other, float log2_unit = 1.f) {
    const float keep = raise<M>(other.maximum, log2_unit), weight = M::exp2((other.maximum - maximum) * log2_unit);
    total += other.total * weight;
    return {keep, weight};
  }

  /// Merges the first `count` of N states. `weight`: the factors of their outputs before they are added. States from `count` on
  /// are copies of others, so that all can be loaded without a branch; their weight is 0. If one of the states failed, the result
  /// has failed.
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
