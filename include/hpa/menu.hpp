// Which decode kernels exist. The axes of a menu are both what dispatch() instantiates and what check() accepts.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "hpa/arch/machines.hpp"
#include "hpa/config.hpp"
#include "hpa/shape.hpp"
#include "hpa/tuning/choose.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {

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

/// A menu of decode kernels for one machine, or for each of several arch::Machines: the product of its axes.
template <class MachineType, class QueryTypes, class HeadSizes, class BlockSizes, class FeatureSets, class KvTypes>
struct menu {
  using Machine = MachineType;
  using query_types = QueryTypes;  // and of 16-bit KV and output
  using head_sizes = HeadSizes;
  using block_sizes = BlockSizes;
  using feature_sets = FeatureSets;
  using kv_types = KvTypes;

  /// The kernels that dispatch() may choose. 16-bit KV goes with queries of its own type alone.
  static constexpr bool has_kv(DType query, DType kv) { return KvTypes::has(kv) && (size_of(kv) == 1 || kv == query); }

  /// Calls f(Config<..>{}) for the kernel that computes `shape`; false when there is none. The plain kernel where it will do.
  template <class F>
  static bool dispatch(const DecodeShape& shape, F&& f) {
    if (!is_compiled(shape)) return false;
    bool found = false;
    const auto take = [&](auto config) {
      if constexpr (tuning::has_kernel<MachineType, decltype(config)>) f(config), found = true;
    };
    const bool plain = FeatureSets::has(Features::plain) && !needs_features(shape);
    FeatureSets::visit(plain ? Features::plain : Features::all, [&](auto features) {
      QueryTypes::visit(shape.query, [&](auto query) {
        KvTypes::visit(shape.kv, [&](auto kv) { dispatch_sizes(shape, features, query, kv, take); });
      });
    });
    return found;
  }

  /// Whether the shape's values are all on the axes, and the rest is what these kernels compute.
  static constexpr bool is_compiled(const DecodeShape& shape) {
    return QueryTypes::has(shape.query) && has_kv(shape.query, shape.kv) && HeadSizes::has(shape.head_size) &&
           shape.head_size_of_v() == shape.head_size && BlockSizes::has(shape.block_size) && shape.layout == KvLayout::vllm &&
           (FeatureSets::has(Features::all) || !needs_features(shape));
  }

 private:
  template <class FeatureSet, class Query, class Kv, class F>
  static void dispatch_sizes([[maybe_unused]] const DecodeShape& shape, FeatureSet, Query, Kv, [[maybe_unused]] const F& f) {
    if constexpr (has_kv(Query::value, Kv::value)) {
      HeadSizes::visit(shape.head_size, [&](auto head_size) {
        BlockSizes::visit(shape.block_size, [&](auto block_size) {
          f(Config<decltype(head_size)::value, decltype(block_size)::value, Query::value, Kv::value, 0, FeatureSet::value>{});
        });
      });
    }
  }
};

/// What is compiled when nothing else is asked for. An engine that needs less names a smaller menu and compiles only that; one with
/// 8-bit KV names its type:
///   using mine = hpa::menu_for<hpa::axis<hpa::DType::bf16>, hpa::axis<128>, hpa::axis<16>, hpa::axis<hpa::Features::plain>,
///                              hpa::axis<hpa::DType::bf16, hpa::DType::e4m3_fnuz>>;
///   hpa::decode<mine>(shape, args, workspace, stream);
template <class QueryTypes = axis<DType::f16, DType::bf16>, class HeadSizes = axis<64, 128>, class BlockSizes = axis<16, 32>,
          class FeatureSets = axis<Features::plain, Features::all>, class KvTypes = QueryTypes,
          class Machine = arch::DefaultMachine>
using menu_for = menu<Machine, QueryTypes, HeadSizes, BlockSizes, FeatureSets, KvTypes>;

using default_menu = menu_for<>;

/// The menu that has the one kernel.
template <class Config, class Machine = arch::DefaultMachine>
using menu_of = menu_for<axis<Config::query>, axis<Config::head_size>, axis<Config::block_size>, axis<Config::features>,
                         axis<Config::kv>, Machine>;

}  // namespace HPA_PLATFORM
}  // namespace hpa
