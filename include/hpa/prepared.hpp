// Prepared: what the calls of a step have in common, checked and derived once. For engines that launch layer by layer, without graphs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hpa/args.hpp"
#include "hpa/check.hpp"
#include "hpa/device.hpp"
#include "hpa/menu.hpp"
#include "hpa/shape.hpp"
#include "hpa/status.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {

namespace detail {

/// FNV-1a over whole numbers.
struct Hash {
  std::uint32_t value = 2166136261u;
  constexpr Hash& add(std::int64_t field) {
    for (int byte = 0; byte < 8; ++byte) value = (value ^ std::uint32_t(field >> (8 * byte) & 0xff)) * 16777619u;
    return *this;
  }
  template <class Axis>
  constexpr Hash& add_axis() {
    add(std::int64_t(Axis::size));
    for (const auto element : Axis::values) add(std::int64_t(element));
    return *this;
  }
  /// A machine is known by the width of its waves and the chips that it runs on.
  template <class... List>
  constexpr Hash& add_machines(arch::Machines<List...>) {
    (add_machine<List>(), ...);
    return *this;
  }

 private:
  template <class Machine>
  constexpr void add_machine() {
    std::int64_t chips = 0;
    for (int chip = 0; chip <= int(Arch::host); ++chip)
      if (arch::runs_on<Machine>(Arch(chip))) chips |= std::int64_t{1} << chip;
    add(arch::Facts<Machine>::width).add(chips);
  }
};

/// What a menu's plan and a menu's decode must have in common: all of its axes. Another menu may have other kernels for the same shape,
/// and a call that names none means default_menu.
template <class Menu>
inline constexpr std::uint32_t menu_stamp = Hash{}
                                                .add_axis<typename Menu::query_types>()
                                                .template add_axis<typename Menu::kv_types>()
                                                .template add_axis<typename Menu::head_sizes>()
                                                .template add_axis<typename Menu::block_sizes>()
                                                .template add_axis<typename Menu::feature_sets>()
                                                .add_machines(typename arch::machines::ListOf<typename Menu::Machine>::type{})
                                                .value;

/// A mark of what a plan was made for, and by which menu; decode() refuses a workspace that was planned for something else.
constexpr std::uint32_t stamp_of(const DecodeShape& shape, const Batch& batch, int partition_tokens, std::uint32_t menu) {
  const std::int64_t fields[] = {menu,
                                 shape.head_size,
                                 shape.block_size,
                                 shape.num_heads,
                                 shape.num_kv_heads,
                                 shape.max_seqs,
                                 shape.max_query_len,
                                 shape.max_seq_len,
                                 shape.total_kv_tokens(),
                                 batch.num_seqs,
                                 partition_tokens,
                                 shape.sliding_window ? batch.window : 0,
                                 shape.ordered(),
                                 std::int64_t(shape.split)};
  Hash hash;
  for (const std::int64_t field : fields) hash.add(field);
  return hash.value;
}

/// All that plan() and decode() derive on the host from a shape, arguments and a workspace.
struct Prepared {
  Verdict verdict;
  Device device;
  kernel::PartitionRule rule;
  kernel::WorkspaceLayout layout;
  kernel::CarvedWorkspace areas;
  std::uint32_t stamp;
};

/// Tokens that a row of the block table has entries for, or as many as a length can say.
constexpr std::int32_t table_tokens(const DecodeShape& shape, const Batch& batch) {
  const std::int64_t tokens = std::int64_t{batch.block_table_width} * shape.block_size, most = 0x7fffffff;
  return std::int32_t(tokens < most ? tokens : most);
}

inline const Batch& batch_of(const Batch& batch) { return batch; }
inline const Batch& batch_of(const DecodeArgs& args) { return args.batch; }

/// `Input` is what the call has: a Batch for plan(), DecodeArgs for decode().
template <class Menu, class Input>
Prepared prepare(const DecodeShape& shape, const Input& input, const Workspace& workspace, int partition_tokens) {
  Prepared p{};
  if (p.verdict = current_device(&p.device); !p.verdict) return p;
  if (p.verdict = check<Menu>(shape, input, p.device); !p.verdict) return p;
  if (partition_tokens > 0 && shape.split != Split::by_length) {
    p.verdict = {Status::unsupported, "split", "a kernel with partition_tokens cuts by length"};
    return p;
  }
  p.rule = kernel::partition_rule(shape, p.device, partition_tokens);
  if (kernel::max_partials(shape, p.rule) > max_partitions) {
    p.verdict = {Status::unsupported, "max_total_kv_tokens", too_many_partitions};
    return p;
  }
  p.layout = kernel::layout_of(shape, p.rule);
  if (p.verdict = kernel::check_workspace(workspace, p.layout.bytes); !p.verdict) return p;
  p.areas = kernel::carve(workspace, p.layout);
  p.stamp = stamp_of(shape, batch_of(input), partition_tokens, menu_stamp<Menu>);
  return p;
}

/// A layer's batch is the step's.
inline Verdict check_same_batch(const Batch& prepared, const Batch& batch) {
  const char* field = nullptr;
  const auto must_be = [&](bool same, const char* name) {
    if (!same && field == nullptr) field = name;
  };
  must_be(batch.num_seqs == prepared.num_seqs, "num_seqs");
  must_be(batch.block_tables == prepared.block_tables, "block_tables");
  must_be(batch.table_starts == prepared.table_starts, "table_starts");
  must_be(batch.seq_lens == prepared.seq_lens, "seq_lens");
  must_be(batch.query_start_loc == prepared.query_start_loc, "query_start_loc");
  must_be(batch.block_table_width == prepared.block_table_width, "block_table_width");
  must_be(batch.block_table_row_stride == prepared.block_table_row_stride, "block_table_row_stride");
  must_be(batch.window == prepared.window, "window");
  return field == nullptr ? Verdict{} : Verdict{Status::invalid_argument, field, "is not that of the batch that was prepared"};
}

}  // namespace detail

/// A step that prepare() has checked: a copy of its shape, batch and workspace, pointers and not what they point to, and what the calls
/// derive from them. Made once a step; plan() and decode() of it then look at nothing twice. It names its menu, so neither call can
/// mean another one. One that was refused, or that prepare() did not make, is refused by both with its verdict.
///
/// It stays right as long as the batch's arrays and the workspace stay where they are and the thread's device is the one that it was
/// made on, whatever the arrays hold: for many steps, where they have the same num_seqs.
template <class Menu>
class Prepared {
 public:
  Prepared() { step_.verdict = {Status::invalid_argument, "prepared", "was not made by prepare()"}; }

  const Verdict& verdict() const { return step_.verdict; }
  explicit operator bool() const { return bool(step_.verdict); }
  const DecodeShape& shape() const { return shape_; }
  const Batch& batch() const { return batch_; }

 private:
  template <class Of>
  friend Prepared<Of> prepare(const DecodeShape&, const Batch&, Workspace);
  template <class Of>
  friend Verdict plan(const Prepared<Of>&, Stream);
  template <class Of>
  friend Verdict decode(const Prepared<Of>&, const DecodeArgs&, Stream);

  Prepared(const DecodeShape& shape, const Batch& batch, const detail::Prepared& step)
      : shape_(shape), batch_(batch), step_(step) {}

  DecodeShape shape_;
  Batch batch_;
  detail::Prepared step_{};
};

}  // namespace HPA_PLATFORM
}  // namespace hpa
