// vLLM's cache layout: K [blocks, kv_heads, head_size / x, block_size, x], V [blocks, kv_heads, head_size, block_size], where x
// elements are 16 bytes. The elements of a (block, KV head) lie together: its slab.
#pragma once

#include "hpa/arch/async_copy.hpp"
#include "hpa/shape.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace layout {

/// Along what V runs in memory: elements that are neighbours there are neighbouring tokens, or neighbouring head elements.
enum class Along { tokens, elements };

/// Byte offsets inside a slab, for elements of `Bits` bits. They are sums: of a token's offset and of an element's. `block_size` is a
/// constant in the decode kernels, where the compiler folds it, and a run-time value for the cache's writers.
template <int Bits>
struct Vllm {
  static constexpr int x = 128 / Bits;  // elements of one key that lie together
  static constexpr Along value_run = Along::tokens;

  static HPA_HOST_DEVICE constexpr int key_offset(int block_size, int token, int element) {
    return ((element / x * block_size + token) * x + element % x) * Bits / 8;
  }
  static HPA_HOST_DEVICE constexpr int value_offset(int block_size, int token, int element) {
    return (element * block_size + token) * Bits / 8;
  }

  /// `Tokens` tokens of a slab, as asynchronous copies bring them; in LDS they are a slab of as many tokens.
  template <int HeadSize, int Tokens, int BlockSize>
  using KeyStrip = arch::Strip<HeadSize / x, Tokens * 16, BlockSize * 16>;
  template <int HeadSize, int Tokens, int BlockSize>
  using ValueStrip = arch::Strip<HeadSize, Tokens * Bits / 8, BlockSize * Bits / 8>;
};

namespace choose {
template <KvLayout Layout, int Bits>
struct Choice {
  static_assert(Layout == KvLayout::vllm, "decode kernels exist for KvLayout::vllm alone");
  using Type = Vllm<Bits>;
};
}  // namespace choose

/// The type that says where elements of `Bits` bits lie in a cache of this layout.
template <KvLayout Layout, int Bits>
using LayoutOf = typename choose::Choice<Layout, Bits>::Type;

}  // namespace layout
}  // namespace HPA_PLATFORM
}  // namespace hpa
