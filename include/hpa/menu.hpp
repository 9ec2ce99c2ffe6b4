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

/// The axes of a menu, in the order in which every list has them.
template <DType... Types>
struct query_types : axis<Types...> {};  // and of 16-bit KV and output
template <DType... Types>
struct kv_types : axis<Types...> {};  // 16-bit KV goes with queries of its own type alone
template <>
struct kv_types<> {};  // those of the queries
template <int... Sizes>
struct head_sizes : axis<Sizes...> {};
template <int... Sizes>
struct block_sizes : axis<Sizes...> {};
/// Of several sets that have what a shape needs, the smallest is its own.
template <Features... Sets>
struct feature_sets : axis<Sets...> {
  /// The place on the axis of the set with the fewest features among those that cover `needed`, the first of equals; -1: none does.
  static constexpr int smallest(Features needed) {
    int best = -1;
    for (int i = 0; i < int(sizeof...(Sets)); ++i)
      if (covers(feature_sets::values[i], needed) &&
          (best < 0 || count(feature_sets::values[i]) < count(feature_sets::values[best])))
        best = i;
    return best;
  }
};
template <class Machine>
struct machine {};  // or arch::Machines<..>, of which the device gets one

namespace detail {
/// A menu with other axes in place of its own.
template <class Menu, class... Axes>
struct With;
/// An axis of KV types; an empty one stands for the types of the queries.
template <class Axis, class Queries>
struct OrQueries {
  using type = Axis;
};
template <DType... Types>
struct OrQueries<kv_types<>, query_types<Types...>> {
  using type = kv_types<Types...>;
};
}  // namespace detail

/// A menu of decode kernels: the product of its axes.
template <class QueryTypes, class NamedKvTypes, class HeadSizes, class BlockSizes, class FeatureSets, class MachineType>
struct menu {
  using Machine = MachineType;
  using KvTypes = typename detail::OrQueries<NamedKvTypes, QueryTypes>::type;
  using query_types = QueryTypes;
  using kv_types = KvTypes;
  using head_sizes = HeadSizes;
  using block_sizes = BlockSizes;
  using feature_sets = FeatureSets;

  /// This menu with other axes: default_menu::with<kv_types<DType::e4m3_fnuz>, head_sizes<64>>.
  template <class... Axes>
  using with = typename detail::With<menu, Axes...>::type;

  /// The kernels that dispatch() may choose.
  static constexpr bool has_kv(DType query, DType kv) { return KvTypes::has(kv) && (size_of(kv) == 1 || kv == query); }

  /// Calls f(Config<..>{}) for the kernel that computes `shape`; false when there is none. Of several sets of features that will
  /// do it is the smallest.
  template <class F>
  static bool dispatch(const DecodeShape& shape, F&& f) {
    if (!is_compiled(shape)) return false;
    bool found = false;
    const auto take = [&](auto config) {
      if constexpr (tuning::has_kernel<MachineType, decltype(config)>) f(config), found = true;
    };
    FeatureSets::visit(FeatureSets::values[FeatureSets::smallest(needed(shape))], [&](auto features) {
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
           FeatureSets::smallest(needed(shape)) >= 0;
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

namespace detail {
template <class Menu>
struct With<Menu> {
  using type = Menu;
};
template <class Menu, class Axis, class... Rest>
struct With<Menu, Axis, Rest...> {
  static_assert(sizeof(Axis) == 0,
                "an axis is query_types, kv_types, head_sizes, block_sizes, feature_sets or machine, with its values");
};
template <class Q, class K, class H, class B, class F, class M, DType... Values, class... Rest>
struct With<menu<Q, K, H, B, F, M>, query_types<Values...>, Rest...> : With<menu<query_types<Values...>, K, H, B, F, M>, Rest...> {
};
template <class Q, class K, class H, class B, class F, class M, DType... Values, class... Rest>
struct With<menu<Q, K, H, B, F, M>, kv_types<Values...>, Rest...> : With<menu<Q, kv_types<Values...>, H, B, F, M>, Rest...> {};
template <class Q, class K, class H, class B, class F, class M, int... Values, class... Rest>
struct With<menu<Q, K, H, B, F, M>, head_sizes<Values...>, Rest...> : With<menu<Q, K, head_sizes<Values...>, B, F, M>, Rest...> {};
template <class Q, class K, class H, class B, class F, class M, int... Values, class... Rest>
struct With<menu<Q, K, H, B, F, M>, block_sizes<Values...>, Rest...> : With<menu<Q, K, H, block_sizes<Values...>, F, M>, Rest...> {
};
template <class Q, class K, class H, class B, class F, class M, Features... Values, class... Rest>
struct With<menu<Q, K, H, B, F, M>, feature_sets<Values...>, Rest...>
    : With<menu<Q, K, H, B, feature_sets<Values...>, M>, Rest...> {};
template <class Q, class K, class H, class B, class F, class M, class Value, class... Rest>
struct With<menu<Q, K, H, B, F, M>, machine<Value>, Rest...> : With<menu<Q, K, H, B, F, Value>, Rest...> {};
}  // namespace detail

/// The menu of calls that name none. An engine that needs less names a smaller menu and compiles only that; one with 8-bit KV
/// names its type:
///   using mine = hpa::default_menu::with<hpa::query_types<hpa::DType::bf16>, hpa::kv_types<hpa::DType::bf16, hpa::DType::e4m3_fnuz>,
///                                        hpa::head_sizes<128>, hpa::block_sizes<16>, hpa::feature_sets<hpa::Features::none>>;
///   hpa::decode<mine>(shape, args, workspace, stream);
using default_menu = menu<query_types<DType::f16, DType::bf16>, kv_types<>, head_sizes<64, 128>, block_sizes<16, 32>,
                          feature_sets<Features::none, Features::all>, arch::DefaultMachine>;

/// The menu that has the one kernel.
template <class Config, class Machine = arch::DefaultMachine>
using menu_of = menu<query_types<Config::query>, kv_types<Config::kv>, head_sizes<Config::head_size>,
                     block_sizes<Config::block_size>, feature_sets<Config::features>, Machine>;

}  // namespace HPA_PLATFORM
}  // namespace hpa
