// The choice of a kernel's shape from the tables, for a device and sizes: at run time and at compile time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "hpa/arch/machines.hpp"
#include "hpa/config.hpp"
#include "hpa/shape.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace tuning {

/// The class of chips in a table that a device belongs to: the one with most LDS that the device has; 0 = it has too little.
template <class Table>
constexpr int lds_class(const Device& device) {
  int most = 0;
  for (const int bytes : Table::lds_classes)
    if (bytes <= device.lds() && bytes > most) most = bytes;
  return most;
}

/// Rows of a pass, where a KV head has `rows`: the fewest in the table that hold all of them, else the most in the table.
template <class Table>
constexpr int row_class(int rows) {
  int most = 0;
  for (const int pass : Table::row_classes) {
    if (rows <= pass) return pass;
    most = pass;
  }
  return most;
}

constexpr int rows_per_kv_head(const DecodeShape& shape) {
  const std::int64_t rows = std::int64_t{shape.gqa_ratio()} * shape.max_query_len;
  return int(rows < 0x7fffffff ? rows : 0x7fffffff);
}
constexpr Sizes sizes_of(const DecodeShape& shape) {
  return {shape.head_size, shape.head_size_of_v(), 8 * size_of(shape.kv), rows_per_kv_head(shape), shape.token_scales};
}
template <class C>
constexpr Sizes sizes_of(int rows) {
  return {C::head_size, C::head_size, 8 * size_of(C::kv), rows, C::token_scales};
}

/// Whether kernels of this shape can read blocks of `block_size` tokens: a tile is a part of one block or, where it comes to
/// registers, two blocks.
constexpr bool reads_blocks_of(const KernelShape& shape, int block_size) {
  return shape && (block_size % shape.tile_tokens == 0 || (shape.stages == 1 && 2 * block_size == shape.tile_tokens));
}

/// The shape of machine M's decode kernel on a device; empty where there is none. `fills_the_chip`: whether there are (sequence,
/// KV head) pairs enough to give each compute unit one.
template <class M>
constexpr KernelShape decode_kernel_shape(const Device& device, Sizes sizes, bool fills_the_chip) {
  using Table = typename arch::Facts<M>::Tuning;
  const int bytes = lds_class<Table>(device);
  sizes.rows = row_class<Table>(sizes.rows);
  return bytes > 0 ? Table::decode_kernel_shape(bytes, sizes, fills_the_chip) : KernelShape{};
}

namespace choose {
template <class... List>
constexpr KernelShape of_first(arch::Machines<List...>, const Device& device, const Sizes& sizes, bool fills_the_chip) {
  KernelShape shape;
  static_cast<void>(
      ((arch::Facts<List>::runs_on(device.arch) && (shape = decode_kernel_shape<List>(device, sizes, fills_the_chip), true)) ||
       ...));
  return shape;
}
template <class... List>
constexpr CutRule cut_rule_of_first(arch::Machines<List...>, const Device& device) {
  CutRule rule;
  const auto take = [&](const CutRule& of_machine) { return rule = of_machine, true; };
  static_cast<void>(((arch::Facts<List>::runs_on(device.arch) &&
                      take(arch::Facts<List>::Tuning::cut_rule(lds_class<typename arch::Facts<List>::Tuning>(device)))) ||
                     ... || take(Cdna::cut_rule(0))));
  return rule;
}

/// A row of M's table for C, by number.
template <class M, class C, std::size_t Number>
struct Row {
  using Table = typename arch::Facts<M>::Tuning;
  static constexpr std::size_t row_classes = Table::row_classes.size(), numbers = 2 * row_classes * Table::lds_classes.size();
  static constexpr bool fills_the_chip = Number % 2 == 0;
  static constexpr int rows = Table::row_classes[Number / 2 % row_classes];
  static constexpr int chip_lds_bytes = Table::lds_classes[Number / 2 / row_classes % Table::lds_classes.size()];
  static constexpr KernelShape of_table = Table::decode_kernel_shape(chip_lds_bytes, sizes_of<C>(rows), fills_the_chip);
  static constexpr KernelShape value = reads_blocks_of(of_table, C::block_size) ? of_table : KernelShape{};
};

template <class M, class C, class F, std::size_t... Number>
bool visit(std::index_sequence<Number...>, const Device& device, int rows, bool fills_the_chip, F&& f) {
  using Table = typename arch::Facts<M>::Tuning;
  const int bytes = lds_class<Table>(device), pass = row_class<Table>(rows);
  const auto one = [&](auto number) {
    using R = Row<M, C, decltype(number)::value>;
    if constexpr (R::value) {
      if (R::chip_lds_bytes != bytes || R::rows != pass || R::fills_the_chip != fills_the_chip) return false;
      f(ConstantOf<R>{});
      return true;
    } else {
      return false;
    }
  };
  return (one(std::integral_constant<std::size_t, Number>{}) || ...);
}
template <class M, class C, std::size_t... Number>
constexpr bool is_any(std::index_sequence<Number...>) {
  return (bool(Row<M, C, Number>::value) || ...);
}
template <class M, class C>
using Numbers = std::make_index_sequence<Row<M, C, 0>::numbers>;
template <class C, class... List>
constexpr bool one_has_kernel(arch::Machines<List...>) {
  return (is_any<List, C>(Numbers<List, C>{}) || ...);
}
}  // namespace choose

/// decode_kernel_shape() for M, or, where M is several Machines, for the one that the device gets.
template <class M>
constexpr KernelShape kernel_shape_of(const Device& device, const Sizes& sizes, bool fills_the_chip) {
  return choose::of_first(typename arch::machines::ListOf<M>::type{}, device, sizes, fills_the_chip);
}

/// Whether M's table, or that of one of several Machines, has any row for C.
template <class M, class C>
inline constexpr bool has_kernel = choose::one_has_kernel<C>(typename arch::machines::ListOf<M>::type{});

/// Calls f(ShapeConstant<..>{}) for the shape of C's kernel on a device; false when there is none.
template <class M, class C, class F>
bool visit_kernel_shape(const Device& device, int rows, bool fills_the_chip, F&& f) {
  return choose::visit<M, C>(choose::Numbers<M, C>{}, device, rows, fills_the_chip, f);
}

/// The numbers by which sequences are cut on a device, whatever the platform of this source.
constexpr CutRule cut_rule(const Device& device) {
  return choose::cut_rule_of_first(arch::Machines<arch::Cdna, arch::Nvidia, arch::HostMachine<arch::Cdna>>{}, device);
}

}  // namespace tuning
}  // namespace HPA_PLATFORM
}  // namespace hpa
