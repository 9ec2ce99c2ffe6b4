// Scales of single tokens, for i8 caches.
#pragma once

#include "hpa/kernel/decode_params.hpp"
#include "hpa/kernel/transform.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

/// The token scales of a tile, in LDS; nullptr: all are 1.
struct TileScales {
  const float* keys;
  const float* values;
};

/// The token scales of a tile on their way to LDS. A tile has half as many tokens as a wave has lanes, so each lane has one scale,
/// of K or of V.
template <class M, class C>
class ScalesPrefetch {
 public:
  using Traits = TileTraits<M, C>;
  /// A wave's place in LDS: the scales of a tile's keys, then of its values.
  struct alignas(16) Lds {
    float scale[M::width];
  };

  /// Prepares for an item. Called before its first request.
  HPA_DEVICE void start(const typename M::Wave& wave, const TokenScaleParams& scales) {
    wave.each([&](int lane) { base_[lane] = lane < Traits::tokens ? scales.keys : scales.values; });
  }

  HPA_DEVICE void request(const typename M::Wave& wave, const TokenScaleParams& scales, const typename Traits::Blocks& blocks) {
    static_assert(M::width == 2 * Traits::tokens);
    if (!scales.given()) return;
    wave.each_afresh([&](int lane) {
      const int token = lane % Traits::tokens;
      const KvView view{base_[lane], scales.block_stride, scales.head_stride};
      scale_[lane] = wave.template load<float>(view.slab(blocks.block_of(token)) + blocks.slot_of(token) * int(sizeof(float)));
    });
  }

  /// Writes the scales to `lds`, which belongs to the wave.
  HPA_DEVICE TileScales stage(const typename M::Wave& wave, const TokenScaleParams& scales, float* lds) const {
    if (!scales.given()) return {nullptr, nullptr};
    wave.each_afresh([&](int lane) { lds[lane] = arch::drop_payload(scale_[lane]); });
    return {lds, lds + Traits::tokens};
  }

 private:
  typename Traits::template Lane<float> scale_;
  typename Traits::template Lane<const char*> base_;  // the scales of K or of V, as the lane's half of the wave needs
};

template <class M, class C>
HPA_DEVICE void scale_tokens(const typename M::Wave& wave, Scores<M, C>& scores, const float* scales) {
  if (scales == nullptr) return;
  wave.each_afresh([&](int lane) { scores.each_score(lane, [&](auto& score, int, int token) { score = score * scales[token]; }); });
}

/// The value scales of a tile, for the tokens that a lane holds values of.
template <class M, class C>
class ValueScales {
 public:
  using Traits = TileTraits<M, C>;
  using Products = typename Traits::Products;

  /// Tokens that no row sees have no scale, whatever is stored there.
  template <class Seen>
  HPA_DEVICE ValueScales(const typename M::Wave& wave, const float* scales, const Seen& visible) {
    wave.each_afresh([&](int lane) {
      HPA_UNROLL
      for (int i = 0; i < tokens; ++i) {
        const int token = Products::value_at(lane, 0, i).token;
        scale_[i][lane] = scales == nullptr ? 1.f : float_of(bits_of(scales[token]) & visible.mask(token));
      }
    });
  }

  template <class D, class A, class B>
  HPA_DEVICE void output(const typename M::Wave& wave, D& sum, const A& values, const B& probabilities) const {
    Products::output_scaled(wave, sum, values, probabilities, [&](int lane, int element) {
      return scale_[Products::value_at(0, 0, element).token - Products::value_at(0, 0, 0).token][lane];
    });
  }

 private:
  static constexpr int tokens = Products::value_run;  // a lane's tokens are one run, whatever the head element
  typename Traits::template Lane<float> scale_[tokens];
};

/// The product of values and probabilities: the machine's own, or with each token's scale. `seen()`: the tokens of the tile that
/// some row sees.
template <class M, class C, class Seen>
HPA_DEVICE auto value_product([[maybe_unused]] const typename M::Wave& wave, [[maybe_unused]] const TileScales& scales,
                              [[maybe_unused]] Seen&& seen) {
  if constexpr (C::token_scales)
    return ValueScales<M, C>(wave, scales.values, seen());
  else
    return typename TileTraits<M, C>::Products{};
}

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
