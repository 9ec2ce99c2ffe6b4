// A workload in device memory: as many sets of buffers as keep every cache cold, and what the library is asked to do with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gpu.hpp"
#include "hpa/hpa.hpp"
#include "kernels.hpp"
#include "workloads.hpp"

namespace bench {

/// A way to ask for the same.
struct Variant {
  const char* suffix;
  hpa::Split split;
  bool allow_early_kv_loads;
};

/// `Type` of query and output, `Kv` of the caches. `Can`: what the kernels can do; the workload asks for nothing of it.
template <hpa::DType Type, hpa::DType Kv = Type, hpa::Features Can = hpa::Features::none>
class Problem {
 public:
  static constexpr int block_size = 16;
  static constexpr int threads = 256, workgroups = 2048;  // of plain kernels
  using Menu =
      hpa::default_menu::with<hpa::query_types<Type>, hpa::kv_types<Kv>, hpa::block_sizes<block_size>, hpa::feature_sets<Can>>;

  Problem(const Workload& of, const Variant& variant, const Effort& effort)
      : workload(of),
        shape(shape_of(of, variant.split)),
        allow_early_kv_loads_(variant.allow_early_kv_loads),
        table_width_((shape.max_seq_len + block_size - 1) / block_size),
        blocks_(count_blocks(of)),
        sets(std::clamp(int(std::ceil(effort.rotated_bytes / kv_bytes())), 2, 640)),
        keys_(sets * blocks_ * elements_per_block()),
        values_(sets * blocks_ * elements_per_block()),
        query_(sets * rows_size()),
        out_(sets * rows_size()),
        tables_(random_tables()),
        read_order_(block_order()),
        seq_lens_(of.seq_lens),
        workspace_(workspace_bytes()),
        effort_(effort) {
    fill_random<Kv><<<workgroups, threads, 0, stream>>>(keys_.data(), keys_.size(), 1, 2.f);
    fill_random<Kv><<<workgroups, threads, 0, stream>>>(values_.data(), values_.size(), 2, 2.f);
    fill_random<Type><<<workgroups, threads, 0, stream>>>(query_.data(), query_.size(), 3, 2.f);
    for (int set = 0; set < sets; ++set)
      poison_tails<<<unsigned(num_seqs()), threads, 0, stream>>>(cache(set), keys_.data(), values_.data(), seq_lens_.data());
    stream.synchronize();
    workspace_.fill(0xff);
  }

  const Workload workload;
  const hpa::DecodeShape shape;
  GpuStream stream;

  int num_seqs() const { return int(workload.seq_lens.size()); }
  double kv_bytes() const { return 2.0 * hpa::size_of(Kv) * double(blocks_) * double(elements_per_block()); }
  std::size_t workspace_bytes() const { return hpa::workspace_bytes<Menu>(shape, device()); }

  /// Workgroups of the decode launch that the plan leaves without work, of all of them; the plan must be there. Only for machines
  /// whose grid is one list.
  double idle_workgroups() const {
    const hpa::kernel::PartitionRule rule = hpa::kernel::partition_rule(shape, device());
    const hpa::kernel::WorkspaceLayout layout = hpa::kernel::layout_of(shape, rule);
    const hpa::tuning::KernelShape kernel = hpa::decode_kernel_shape<Menu>(shape, device());
    const int workgroups = hpa::detail::ring_workgroups(shape, kernel, rule, layout, device());
    const std::vector<std::byte> bytes = workspace_.download(0, layout.states);
    std::vector<std::int32_t> shares(std::size_t(rule.shares + 1));
    hpa::kernel::PlanCounts counts;
    std::memcpy(&counts, bytes.data(), sizeof counts);
    if (rule.shares > 0) std::memcpy(shares.data(), bytes.data() + layout.shares, shares.size() * sizeof shares[0]);
    int busy = std::min(workgroups, counts.num_items * shape.num_kv_heads);
    if (rule.shares > 0) {
      busy = 0;
      for (int i = 0; i < rule.shares; ++i) busy += shares[std::size_t(i)] < shares[std::size_t(i) + 1] ? shape.num_kv_heads : 0;
    }
    return (workgroups - busy) * hpa::detail::passes(shape, kernel);
  }

  void plan() { expect(hpa::plan<Menu>(shape, args(0).batch, workspace(), stream)); }
  void decode(int set) { expect(hpa::decode<Menu>(shape, args(set), workspace(), stream)); }

  /// ||out - reference|| / ||reference|| of the worst of the first and the last set; the plan must be there. Infinite when NaN.
  double error() {
    out_.fill(0xff);
    double worst = 0;
    for (const int set : {0, sets - 1}) {
      decode(set);
      worst = std::max(worst, error_of(set));
    }
    return worst;
  }

  /// The same for outputs that are there already.
  double error_after_timing() { return std::max(error_of(0), error_of(sets - 1)); }

  double decode_us(double estimate_us) {
    return microseconds_per_call(effort_, stream, sets, estimate_us, [&](int set) { decode(set); });
  }
  double plan_us() {
    return microseconds_per_call(effort_, stream, 1, 10, [&](int) { plan(); });
  }
  /// Time to read the set's blocks and nothing else: the best of some launches.
  double floor_us(int compute_units) {
    struct Launch {
      int workgroups_per_unit, threads;
    };
    double best = std::numeric_limits<double>::infinity();
    for (const Launch launch : {Launch{8, 256}, Launch{4, 512}, Launch{4, 256}, Launch{2, 256}, Launch{2, 512}, Launch{1, 256}})
      best = std::min(best, microseconds_per_call(effort_, stream, sets, std::max(2.5, kv_bytes() / 4.5e6), [&](int set) {
                        read_blocks<<<unsigned(compute_units * launch.workgroups_per_unit), unsigned(launch.threads), 0, stream>>>(
                            reinterpret_cast<const uint4*>(keys_.data()), reinterpret_cast<const uint4*>(values_.data()),
                            read_order_.data() + set * blocks_, int(blocks_), int(elements_per_block() / hpa::per_16_bytes(Kv)),
                            sink_.data());
                      }));
    return best;
  }

 private:
  static hpa::DecodeShape shape_of(const Workload& of, hpa::Split split) {
    hpa::DecodeShape shape;
    shape.split = split;
    shape.query = shape.out = Type;
    shape.kv = Kv;
    shape.head_size = of.head_size;
    shape.num_heads = of.num_heads;
    shape.num_kv_heads = of.num_kv_heads;
    shape.max_seqs = int(of.seq_lens.size());
    shape.max_seq_len = *std::max_element(of.seq_lens.begin(), of.seq_lens.end());
    return shape;
  }
  static std::size_t count_blocks(const Workload& of) {
    std::size_t blocks = 0;
    for (const int length : of.seq_lens) blocks += std::size_t((length + block_size - 1) / block_size);
    return blocks;
  }
  static hpa::Device device() {
    hpa::Device device;
    expect(hpa::current_device(&device));
    return device;
  }
  static void expect(const hpa::Verdict& verdict) {
    if (!verdict) throw std::runtime_error(std::string(verdict.field) + ": " + verdict.why);
  }

  std::size_t elements_per_block() const { return std::size_t(shape.num_kv_heads) * shape.head_size * block_size; }
  std::size_t rows_size() const { return workload.seq_lens.size() * shape.num_heads * shape.head_size; }

  /// Physical blocks in random order, sequence by sequence; what a sequence does not need is an id that must not be read.
  std::vector<std::int32_t> block_order() const {
    std::vector<std::int32_t> order(sets * blocks_);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(5));
    return order;
  }
  std::vector<std::int32_t> random_tables() const {
    const std::vector<std::int32_t> order = block_order();
    std::vector<std::int32_t> tables(sets * workload.seq_lens.size() * table_width_, -1);
    std::size_t used = 0;
    for (std::size_t row = 0; row < sets * workload.seq_lens.size(); ++row) {
      const int blocks = (workload.seq_lens[row % workload.seq_lens.size()] + block_size - 1) / block_size;
      for (int column = 0; column < blocks; ++column) tables[row * table_width_ + column] = order[used++];
    }
    return tables;
  }

  const std::int32_t* table(int set) const { return tables_.data() + std::size_t(set) * workload.seq_lens.size() * table_width_; }
  Cache<Kv> cache(int set) const {
    return {keys_.data(), values_.data(), table(set), table_width_, block_size, shape.num_kv_heads, shape.head_size};
  }
  hpa::DecodeArgs args(int set) const {
    hpa::DecodeArgs args;
    args.query = query_.data() + set * rows_size();
    args.cache.keys = keys_.data();
    args.cache.values = values_.data();
    args.out = out_.data() + set * rows_size();
    args.batch.block_tables = table(set);
    args.batch.seq_lens = seq_lens_.data();
    args.batch.num_seqs = num_seqs();
    args.batch.block_table_width = table_width_;
    args.allow_early_kv_loads = allow_early_kv_loads_;
    return args;
  }
  hpa::Workspace workspace() const { return {workspace_.data(), workspace_.size()}; }

  double error_of(int set) {
    GpuArray<float> reference(rows_size());
    const float scale = 1.f / std::sqrt(float(shape.head_size));
    reference_attention<Type, Kv><<<dim3(unsigned(num_seqs()), unsigned(shape.num_heads)), reference_threads, 0, stream>>>(
        cache(set), query_.data() + set * rows_size(), seq_lens_.data(), shape.num_heads, scale, reference.data());
    stream.synchronize();
    const std::vector<float> expected = reference.download(0, rows_size());
    const std::vector<std::uint16_t> got = out_.download(set * rows_size(), rows_size());
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double delta = double(hpa::Format<Type>::decode(got[i])) - expected[i];
      difference += delta * delta;
      norm += double(expected[i]) * expected[i];
    }
    const double error = std::sqrt(difference / norm);
    return error < std::numeric_limits<double>::infinity() ? error : std::numeric_limits<double>::infinity();
  }

  const bool allow_early_kv_loads_;
  const int table_width_;
  const std::size_t blocks_;  // of one set

 public:
  const int sets;

 private:
  GpuArray<Code<Kv>> keys_, values_;
  GpuArray<std::uint16_t> query_, out_;
  GpuArray<std::int32_t> tables_, read_order_, seq_lens_;
  GpuArray<std::byte> workspace_;
  const Effort effort_;
  GpuArray<std::uint32_t> sink_{1};
};

}  // namespace bench
