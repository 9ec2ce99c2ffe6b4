// Which decode kernels exist. The axes of a menu are both what dispatch() instantiates and what check() accepts.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "hpa/arch/launch.hpp"
#include "hpa/kernel/config.hpp"
#include "hpa/shape.hpp"

namespace hpa {

/// A choice made at run time among values that are compiled in.
template <auto First, auto... Rest>
struct axis {
  using Value = decltype(First);
  static constexpr std::size_t size = 1 + sizeof...(Rest);
  static constexpr Value values[size] = {First, Rest...};

  static constexpr bool has(Value value) { return ((value == First) || ... || (value == Rest)); }

  /// Calls f(integral_constant) for `value`; false when it is not compiled in.
  template <class F>
  static constexpr bool visit(Value value, F&& f) {
    const auto one = [&](auto constant) { return value == decltype(constant)::value && (f(constant), true); };
    return (one(std::integral_constant<Value, First>{}) || ... || one(std::integral_constant<Value, Rest>{}));
  }
};

/// A menu of decode kernels for one machine: the product of its axes.
template <class MachineType, class QueryTypes, class HeadSizes, class BlockSizes, class Alibi>
struct menu {
  using Machine = MachineType;
  using query_types = QueryTypes;  // of query, KV and output alike
  using head_sizes = HeadSizes;
  using block_sizes = BlockSizes;
  using alibi = Alibi;
  static constexpr std::size_t decode_kernels = QueryTypes::size * HeadSizes::size * BlockSizes::size * Alibi::size;

  /// Calls f(Config<..>{}) for the kernel that computes `shape`; false when there is none.
  template <class F>
  static bool dispatch(const DecodeShape& shape, F&& f) {
    if (!is_compiled(shape)) return false;
    QueryTypes::visit(shape.query, [&](auto query) { dispatch_rest(shape, query, f); });
    return true;
  }

  /// Whether the shape's values are all on the axes, and the rest is what these kernels compute.
  static constexpr bool is_compiled(const DecodeShape& shape) {
    return QueryTypes::has(shape.query) && shape.kv == shape.query && shape.out == shape.query &&
           HeadSizes::has(shape.head_size) && shape.head_size_of_v() == shape.head_size && BlockSizes::has(shape.block_size) &&
           Alibi::has(shape.alibi) && shape.layout == KvLayout::vllm;
  }

 private:
  template <class Query, class F>
  static void dispatch_rest(const DecodeShape& shape, Query query, F&& f) {
    HeadSizes::visit(shape.head_size, [&](auto head_size) {
      BlockSizes::visit(shape.block_size, [&](auto block_size) {
        Alibi::visit(shape.alibi, [&](auto alibi_on) {
          f(Config<decltype(head_size)::value, decltype(block_size)::value, decltype(query)::value, decltype(query)::value, 0,
                   decltype(alibi_on)::value>{});
        });
      });
    });
  }
};

/// What is compiled when nothing else is asked for. An engine that needs less names a smaller menu and compiles only that:
///   using mine = hpa::menu_for<hpa::axis<hpa::DType::bf16>, hpa::axis<128>, hpa::axis<16>>;
///   hpa::decode<mine>(shape, args, workspace, stream);
template <class QueryTypes = axis<DType::f16, DType::bf16>, class HeadSizes = axis<64, 128>, class BlockSizes = axis<16, 32>,
          class Alibi = axis<false, true>, class Machine = arch::DefaultMachine>
using menu_for = menu<Machine, QueryTypes, HeadSizes, BlockSizes, Alibi>;

using default_menu = menu_for<>;

}  // namespace hpa
