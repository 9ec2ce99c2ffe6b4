// RowView, ResultView and the stores of results: into the output, or into partials for the reduce kernel.
#pragma once

#include "hpa/arch/portable_rounding.hpp"
#include "hpa/arch/products.hpp"
#include "hpa/features.hpp"
#include "hpa/kernel/query_rows.hpp"
#include "hpa/kernel/row_state.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

using arch::Words;

/// Rows of query and out: [row, head]; strides in bytes, between heads below 4 GiB.
struct RowView {
  char* data;
  std::int64_t row_stride;
  std::uint32_t head_stride;
  HPA_HOST_DEVICE char* at(std::int64_t row, std::int32_t head) const {
    return data + row * row_stride + std::uint64_t(std::uint32_t(head)) * head_stride;
  }
};

/// The tensors that decode and reduce write.
struct ResultView {
  RowView out;
  float* lse;        // [num_rows, num_heads] or nullptr
  float* partials;   // [partials, num_heads, head_size]
  RowState* states;  // [partials, num_heads]
  std::int32_t num_heads;
};

struct SinkParams {
  const float* sinks;  // [num_heads]; nullptr = off
};
struct Fp8OutParams {
  const float* out_scale;  // nullptr = 1
  DType out;
};
struct NoSinks {};
struct NoFp8Out {};

/// What kernels with these features may do to a row when it is complete, however many partials it had.
template <Features Can>
struct FinishOf : std::conditional_t<covers(Can, Features::sinks), SinkParams, NoSinks>,
                  std::conditional_t<covers(Can, Features::fp8_out), Fp8OutParams, NoFp8Out> {
  static constexpr bool has_sinks = covers(Can, Features::sinks), has_fp8_out = covers(Can, Features::fp8_out);
};

/// Adds a sink's logit to the denominator. `sum`, which was summed against a smaller maximum, is scaled down.
template <class M, class Floats4>
HPA_DEVICE void add_sink(float logit_log2, Floats4& sum, RowState& state) {
  sum = sum * state.absorb<M>({logit_log2, 1.f}).keep;
}

/// Four floats as codes of an FP8 type that is known at run time.
template <class M, class Floats4>
HPA_DEVICE std::uint32_t narrow_to(DType type, const Floats4& v) {
  switch (type) {
    case DType::e4m3_fnuz: return M::template narrow<DType::e4m3_fnuz>(v[0], v[1], v[2], v[3]);
    case DType::e4m3_ocp: return M::template narrow<DType::e4m3_ocp>(v[0], v[1], v[2], v[3]);
    default: return M::template narrow<DType::e5m2_ocp>(v[0], v[1], v[2], v[3]);
  }
}

/// Writes four neighbouring elements of one row's output, and the row's lse. `sum` is not divided yet.
template <class M, DType Out, class Finish, class Floats4>
HPA_DEVICE void store_result(const ResultView& result, [[maybe_unused]] const Finish& finish, std::int64_t row, std::int32_t head,
                             int element, Floats4 sum, RowState state) {
  const bool empty = state.empty();
  if constexpr (Finish::has_sinks)
    if (finish.sinks != nullptr && !empty)
      add_sink<M>(arch::drop_payload(M::Wave::template load<float>(finish.sinks + head)) * log2_e, sum, state);
  const float divide = empty ? 0.f : M::reciprocal(state.total);
  if (result.lse != nullptr && element == 0)
    M::Wave::store(result.lse + row * result.num_heads + head, empty ? -__builtin_inff() : state.lse<M>());
  if constexpr (Finish::has_fp8_out)
    if (finish.out != Out) {
      const float scale = finish.out_scale == nullptr ? 1.f : M::Wave::template load<float>(finish.out_scale);
      sum = sum * divide;
      HPA_UNROLL
      for (int i = 0; i < 4; ++i) sum[i] = M::quotient(sum[i], scale);  // 1 / scale may be beyond the floats
      const std::uint32_t codes = empty ? 0u : narrow_to<M>(finish.out, sum);
      return M::Wave::store(result.out.at(row, head) + element, codes);
    }
  Words<2> packed{{0, 0}};
  if (!empty)
    packed = {{M::template pack_plain<Out>(sum[0] * divide, sum[1] * divide),
               M::template pack_plain<Out>(sum[2] * divide, sum[3] * divide)}};
  M::Wave::store(result.out.at(row, head) + element * size_of(Out), packed);
}

/// Writes four neighbouring elements of the result of an item for one row: into the output if the item is all of the row, else
/// into a partial for the reduce kernel.
template <class M, class C, class Finish, class Floats4>
HPA_DEVICE void store_item(const ResultView& result, const Finish& finish, const Item& item, const RowPlace& row, int element,
                           const Floats4& sum, const RowState& state) {
  if (item.partial < 0)
    return store_result<M, C::query>(result, finish, item.query_row + row.query_row, row.head, element, sum, state);
  const std::int64_t at = std::int64_t(item.partial + row.query_row) * result.num_heads + row.head;
  M::Wave::store(result.partials + at * C::head_size + element, sum);
  if (element == 0) M::Wave::store(result.states + at, state);
}

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
