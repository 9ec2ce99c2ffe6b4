// One plan and one decode of a batch of equal sequences, checked: the program to run under a profiler or a counter of instructions.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "device_memory.hpp"
#include "hpa/hpa.hpp"

using examples::DeviceArray;

namespace {

void require(const hpa::Verdict& verdict) {
  if (!verdict) throw std::runtime_error(std::string(verdict.field) + ": " + verdict.why);
}

std::vector<std::uint16_t> random_elements(hpa::DType type, std::size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> elements(count);  // twice what 8-bit types need
  for (std::size_t i = 0; i < count; ++i) hpa::store_element(type, elements.data(), std::int64_t(i), normal(random));
  return elements;
}

/// The worst relative L2 error of a row. The tables, lengths and caches are on the host here.
double worst_error(const hpa::DecodeShape& shape, const hpa::DecodeArgs& host, const std::vector<std::uint16_t>& out) {
  double worst = 0;
  const int query_len = shape.max_query_len;  // of every sequence
  for (int row = 0; row < host.batch.num_seqs * query_len; ++row)
    for (int head = 0; head < shape.num_heads; ++head) {
      const hpa::reference::Row expected = hpa::reference::row(shape, host, row / query_len, row % query_len, head);
      double difference = 0, norm = 0;
      for (int i = 0; i < shape.head_size; ++i) {
        const std::int64_t at = (std::int64_t(row) * shape.num_heads + head) * shape.head_size + i;
        const double delta = hpa::load_element(shape.out, out.data(), at) - expected.out[std::size_t(i)];
        difference += delta * delta;
        norm += expected.out[std::size_t(i)] * expected.out[std::size_t(i)];
      }
      const double error = std::sqrt(difference / norm);
      worst = error <= worst ? worst : error;  // a NaN stays
    }
  return worst;
}

/// The platform's table, and the shapes of a batch that fills the chip, whatever the batch.
struct FullChipTable : hpa::arch::DefaultMachine::Tuning {
  static constexpr hpa::tuning::KernelShape decode_kernel_shape(int chip_lds_bytes, const hpa::tuning::Sizes& sizes, bool) {
    return hpa::arch::DefaultMachine::Tuning::decode_kernel_shape(chip_lds_bytes, sizes, true);
  }
};
struct FullChip : hpa::arch::DefaultMachine {
  using Tuning = FullChipTable;
};

template <class Machine, class Config>
void decode_by_config(const hpa::DecodeShape& shape, const hpa::DecodeArgs& args) {
  hpa::Device device;
  require(hpa::current_device(&device));
  DeviceArray<std::byte> memory(hpa::workspace_bytes_with<Config, Machine>(shape, device));
  const hpa::Workspace workspace{memory.data(), memory.size()};
  require(hpa::plan_with<Config, Machine>(shape, args.batch, workspace, hpa::Stream{}));
  require(hpa::decode_with<Config, Machine>(shape, args, workspace, hpa::Stream{}));
  require(hpa::workspace_error(workspace, hpa::Stream{}));
}

/// Plan and decode with partitions of a fixed length, for the kernels that are compiled with it.
template <class Machine, int Tokens, hpa::DType Query>
void decode_in_partitions(const hpa::DecodeShape& shape, const hpa::DecodeArgs& args) {
  using hpa::Config, hpa::DType;
  if (shape.kv == DType::e4m3_fnuz) return decode_by_config<Machine, Config<128, 16, Query, DType::e4m3_fnuz, Tokens>>(shape, args);
  if (shape.kv == DType::e4m3_ocp) return decode_by_config<Machine, Config<128, 16, Query, DType::e4m3_ocp, Tokens>>(shape, args);
  decode_by_config<Machine, Config<128, 16, Query, Query, Tokens>>(shape, args);
}

template <class Machine, int Tokens>
void decode_in_partitions(const hpa::DecodeShape& shape, const hpa::DecodeArgs& args) {
  if (shape.query == hpa::DType::f16) return decode_in_partitions<Machine, Tokens, hpa::DType::f16>(shape, args);
  decode_in_partitions<Machine, Tokens, hpa::DType::bf16>(shape, args);
}

template <class Menu>
void decode_by_menu(const hpa::DecodeShape& shape, const hpa::DecodeArgs& args) {
  hpa::Device device;
  require(hpa::current_device(&device));
  DeviceArray<std::byte> memory(hpa::workspace_bytes<Menu>(shape, device));
  const hpa::Workspace workspace{memory.data(), memory.size()};
  require(hpa::plan<Menu>(shape, args.batch, workspace, hpa::Stream{}));
  require(hpa::decode<Menu>(shape, args, workspace, hpa::Stream{}));
  require(hpa::workspace_error(workspace, hpa::Stream{}));
}

/// How a decode is done, besides what its shape says.
struct Way {
  int partition = 0;     // tokens, or 0 for the library's rule
  bool filled = false;   // the waves of a batch that fills the chip
  std::string features;  // the kernel's set, whatever the shape needs; empty: none or all, as it needs
};

template <class Machine>
void decode_once(const hpa::DecodeShape& shape, const hpa::DecodeArgs& args, const Way& way) {
  if (way.partition == 512) return decode_in_partitions<Machine, 512>(shape, args);
  if (way.partition == 1024) return decode_in_partitions<Machine, 1024>(shape, args);
  if (way.partition == 2048) return decode_in_partitions<Machine, 2048>(shape, args);
  using hpa::DType, hpa::Features, hpa::feature_sets;
  using Types = hpa::kv_types<DType::f16, DType::bf16, DType::e4m3_fnuz, DType::e4m3_ocp, DType::i8>;
  using Menu = hpa::default_menu::with<Types, hpa::machine<Machine>>;
  if (way.features == "none") return decode_by_menu<typename Menu::template with<feature_sets<Features::none>>>(shape, args);
  if (way.features == "all") return decode_by_menu<typename Menu::template with<feature_sets<Features::all>>>(shape, args);
  if (way.features == "window+sinks")
    return decode_by_menu<typename Menu::template with<feature_sets<Features::window | Features::sinks>>>(shape, args);
  decode_by_menu<Menu>(shape, args);
}

/// `options`: the values of what the shape turns on.
int run(const hpa::DecodeShape& shape, const hpa::DecodeArgs& options, int context, const Way& way) {
  const int seqs = options.batch.num_seqs;
  const int width = (context + shape.block_size - 1) / shape.block_size;
  std::mt19937 random(1);
  std::vector<std::int32_t> tables(std::size_t(seqs) * width), lengths(std::size_t(seqs), context);
  std::iota(tables.begin(), tables.end(), 0);
  std::shuffle(tables.begin(), tables.end(), random);
  const std::size_t cache_size = tables.size() * shape.num_kv_heads * shape.head_size * shape.block_size;
  const std::size_t rows_size = std::size_t(seqs) * shape.max_query_len * shape.num_heads * shape.head_size;
  auto keys = random_elements(shape.kv, cache_size, random), values = random_elements(shape.kv, cache_size, random);
  const auto query = random_elements(shape.query, rows_size, random);
  const std::vector<float> slopes(std::size_t(shape.num_heads), 0.01f), sinks(std::size_t(shape.num_heads), 1.f);
  std::vector<std::int32_t> row_starts(std::size_t(seqs) + 1);
  for (int i = 0; i <= seqs; ++i) row_starts[std::size_t(i)] = i * shape.max_query_len;
  std::vector<std::uint32_t> tree_masks(std::size_t(seqs) *
                                        shape.max_query_len);  // a row sees itself and every second row before it
  for (std::size_t i = 0; i < tree_masks.size(); ++i) {
    const unsigned row = unsigned(i) % unsigned(shape.max_query_len);
    tree_masks[i] = (row % 2 ? 0xaaaau : 0x5555u) & ((2u << row) - 1);
  }

  hpa::DecodeArgs host = options;
  host.query = query.data(), host.cache.keys = keys.data(), host.cache.values = values.data();
  host.batch.block_tables = tables.data(), host.batch.seq_lens = lengths.data();
  host.batch.block_table_width = width;
  if (shape.alibi) host.alibi_slopes = slopes.data();
  if (shape.sinks) host.sinks = sinks.data();
  if (shape.max_query_len > 1) host.batch.query_start_loc = row_starts.data();
  if (shape.tree_mask) host.tree_masks = tree_masks.data();

  hpa::Device device;
  require(hpa::current_device(&device));
  DeviceArray<std::uint16_t> device_query(query), device_keys(keys), device_values(values), out(rows_size);
  DeviceArray<std::int32_t> device_tables(tables), device_lengths(lengths), device_row_starts(row_starts);
  DeviceArray<float> device_slopes(slopes), device_sinks(sinks);
  DeviceArray<std::uint32_t> device_tree_masks(tree_masks);
  hpa::DecodeArgs args = host;
  args.query = device_query.data(), args.cache.keys = device_keys.data(), args.cache.values = device_values.data();
  args.batch.block_tables = device_tables.data(), args.batch.seq_lens = device_lengths.data(), args.out = out.data();
  if (shape.alibi) args.alibi_slopes = device_slopes.data();
  if (shape.sinks) args.sinks = device_sinks.data();
  if (shape.max_query_len > 1) args.batch.query_start_loc = device_row_starts.data();
  if (shape.tree_mask) args.tree_masks = device_tree_masks.data();
  if (way.filled)
    decode_once<FullChip>(shape, args, way);
  else
    decode_once<hpa::arch::DefaultMachine>(shape, args, way);

  const double error = worst_error(shape, host, out.download());
  std::printf("%s, KV %s, %d/%dx%d, %d sequences of %d tokens: %.0f bytes of KV, worst relative L2 error %.2e\n",
              hpa::name(shape.query), hpa::name(shape.kv), shape.num_heads, shape.num_kv_heads, shape.head_size, seqs, context,
              2.0 * hpa::size_of(shape.kv) * seqs * context * shape.num_kv_heads * shape.head_size, error);
  return error < (shape.query == hpa::DType::f16 ? 1e-3 : 5e-3) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("One plan and one decode, for profilers and counters of instructions");
  hpa::DecodeShape shape;
  hpa::DecodeArgs options;
  Way way;
  int context = 4096, gqa_ratio = 8;
  options.batch.num_seqs = 1;
  std::string dtype = "bf16", kv;
  shape.num_kv_heads = 1;
  app.add_option("--context", context, "tokens of each sequence")->capture_default_str();
  app.add_option("--gqa", gqa_ratio, "query heads a KV head")->capture_default_str();
  app.add_option("--kv-heads", shape.num_kv_heads)->capture_default_str();
  app.add_option("--head-size", shape.head_size)->capture_default_str();
  app.add_option("--block-size", shape.block_size)->capture_default_str();
  app.add_option("--seqs", options.batch.num_seqs, "sequences")->capture_default_str();
  app.add_option("--max-seqs", shape.max_seqs, "that the shape allows; decides how rows are cut; default: --seqs");
  app.add_option("--dtype", dtype)->check(CLI::IsMember({"bf16", "f16"}))->capture_default_str();
  app.add_option("--kv", kv, "type of the cache; default: that of the query")
      ->check(CLI::IsMember({"e4m3_fnuz", "e4m3_ocp", "i8"}));
  app.add_option("--partition", way.partition, "tokens of a partition, for head size 128; default: the library's rule")
      ->check(CLI::IsMember({512, 1024, 2048}));
  app.add_flag("--alibi", shape.alibi);
  app.add_flag("--sinks", shape.sinks);
  app.add_flag("--tree", shape.tree_mask, "a tree mask among the query rows");
  app.add_option("--soft-cap", options.soft_cap);
  app.add_option("--window", options.batch.window, "keys visible to a query");
  app.add_option("--query-len", shape.max_query_len, "query rows of each sequence")->capture_default_str();
  app.add_option("--features", way.features, "that the kernel has, needed or not; default: none or all, as they are needed")
      ->check(CLI::IsMember({"none", "window+sinks", "all"}));
  app.add_flag("--filled", way.filled, "with the waves a workgroup of a batch that fills the chip");
  CLI11_PARSE(app, argc, argv);
  shape.query = shape.kv = shape.out = dtype == "f16" ? hpa::DType::f16 : hpa::DType::bf16;
  for (const hpa::DType type : {hpa::DType::e4m3_fnuz, hpa::DType::e4m3_ocp, hpa::DType::i8})
    if (kv == hpa::name(type)) shape.kv = type;
  shape.num_heads = shape.num_kv_heads * gqa_ratio;
  shape.max_seqs = std::max(shape.max_seqs, options.batch.num_seqs);
  shape.soft_cap = options.soft_cap != 0.f, shape.sliding_window = options.batch.window != 0;
  shape.max_seq_len = context;
  return run(shape, options, context, way);
} catch (const std::exception& error) {
  std::fprintf(stderr, "profile_decode: %s\n", error.what());
  return 1;
}
