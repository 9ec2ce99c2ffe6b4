// A prefix that all sequences of a batch begin with is attended once for up to 16 of them together, each sequence's own suffix
// alone, and both are merged. The result is compared with plain attention, in which every sequence reads the prefix itself.
//
//   shared_prefix [BATCH PREFIX SUFFIX]      tokens; PREFIX is a multiple of 16, the length of a block
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <stdexcept>
#include <vector>

#include "../attend.hpp"
#include "../block_allocator.hpp"
#include "hpa/merge.hpp"

namespace {

using examples::DeviceArray;
using examples::Elements;
using examples::Sequences;

constexpr int rows_together = 16;  // query rows that share one pass over the prefix

struct Workload {
  int batch, prefix, suffix;  // sequences; tokens in common; tokens of a sequence's own, at most
};

hpa::DecodeShape shape_of_model() {
  hpa::DecodeShape shape;
  shape.query = shape.kv = shape.out = hpa::DType::bf16;
  shape.num_heads = 8;
  shape.num_kv_heads = 2;
  return shape;
}

/// The same batch in three ways: whole sequences, the prefix alone, the suffixes alone.
struct Batch {
  int num_blocks = 0;
  Sequences whole, prefix, suffix;

  Batch(const Workload& workload, int block_size) {
    const int shared = workload.prefix / block_size, own = (workload.suffix + block_size - 1) / block_size;
    num_blocks = shared + workload.batch * own;
    examples::BlockAllocator blocks(num_blocks, 1);
    std::mt19937 random(1);
    std::vector<std::int32_t> beginning;
    for (int i = 0; i < shared; ++i) beginning.push_back(blocks.allocate().value());
    for (int sequence = 0; sequence < workload.batch; ++sequence) {
      const int length = 1 + int(random() % unsigned(workload.suffix));
      std::vector<std::int32_t> end(std::size_t(own), -1);
      for (int i = 0; i * block_size < length; ++i) end[std::size_t(i)] = blocks.allocate().value();
      suffix.seq_lens.push_back(length);
      suffix.block_tables.insert(suffix.block_tables.end(), end.begin(), end.end());
      whole.seq_lens.push_back(workload.prefix + length);
      whole.block_tables.insert(whole.block_tables.end(), beginning.begin(), beginning.end());
      whole.block_tables.insert(whole.block_tables.end(), end.begin(), end.end());
    }
    // To the prefix, 16 sequences with a query row each are one sequence with 16 query rows.
    prefix.query_start_loc.push_back(0);
    while (prefix.query_start_loc.back() < workload.batch) {
      prefix.query_start_loc.push_back(std::min(prefix.query_start_loc.back() + rows_together, workload.batch));
      prefix.seq_lens.push_back(workload.prefix);
      prefix.block_tables.insert(prefix.block_tables.end(), beginning.begin(), beginning.end());
    }
  }
};

/// Bytes of keys and values that decode asks for: a sequence's once for every 16 rows of query heads over a KV head.
double kv_bytes(const hpa::DecodeShape& shape, const Sequences& sequences) {
  const double token_bytes = 2. * shape.num_kv_heads * shape.head_size * hpa::size_of(shape.kv);
  double bytes = 0;
  for (int i = 0; i < sequences.count(); ++i) {
    const int passes = (sequences.query_rows(i) * shape.gqa_ratio() + 15) / 16;
    bytes += passes * token_bytes * sequences.seq_lens[std::size_t(i)];
  }
  return bytes;
}

bool run(const Workload& workload) {
  const hpa::DecodeShape model = shape_of_model();
  const Batch batch(workload, model.block_size);
  const std::size_t rows = std::size_t(workload.batch), row_heads = rows * std::size_t(model.num_heads);
  std::mt19937 random(2);
  const examples::DeviceStream stream;
  const auto array = [&](std::size_t count) {
    return DeviceArray<std::uint16_t>(examples::random_elements(model.kv, count, random), stream);
  };
  const DeviceArray<std::uint16_t> query = array(row_heads * std::size_t(model.head_size));
  DeviceArray<std::uint16_t> keys = array(std::size_t(batch.num_blocks) * examples::block_elements(model));
  DeviceArray<std::uint16_t> values = array(std::size_t(batch.num_blocks) * examples::block_elements(model));
  DeviceArray<std::uint16_t> plain(query.size()), prefix(query.size()), suffix(query.size()), shared(query.size());
  DeviceArray<float> prefix_lse(row_heads), suffix_lse(row_heads);

  hpa::DecodeArgs args;
  args.query = query.data();
  args.cache.keys = keys.data();
  args.cache.values = values.data();
  args.out = plain.data();
  examples::attend(model, args, batch.whole, stream);

  hpa::DecodeShape part = model;
  part.lse = true;
  args.out = suffix.data();
  args.lse = suffix_lse.data();
  examples::attend(part, args, batch.suffix, stream);

  part.max_query_len = rows_together;
  part.causal = false;  // every row comes after the whole prefix
  args.out = prefix.data();
  args.lse = prefix_lse.data();
  examples::attend(part, args, batch.prefix, stream);

  hpa::MergeArgs merge;
  merge.states[0] = {prefix.data(), prefix_lse.data()};
  merge.states[1] = {suffix.data(), suffix_lse.data()};
  merge.num_states = 2;
  merge.state_type = merge.out_type = model.out;
  merge.num_rows = workload.batch;
  merge.num_heads = model.num_heads;
  merge.head_size = model.head_size;
  merge.out = shared.data();
  examples::require(hpa::merge_states(merge, stream), "merge_states");

  const double error = examples::worst_row(model.out, shared.download(stream), plain.download(stream), std::size_t(model.head_size));
  const double plain_bytes = kv_bytes(model, batch.whole), shared_bytes = kv_bytes(part, batch.prefix) + kv_bytes(model, batch.suffix);
  const bool good = error < 0.01;  // bf16 rounds to 0.004, once in each part and once in the result
  std::printf("%6d %7d %7d %13.2f %13.2f %6.1f %11.4f%s\n", workload.batch, workload.prefix, workload.suffix, plain_bytes / 0x1p20,
              shared_bytes / 0x1p20, plain_bytes / shared_bytes, error, good ? "" : "  too much");
  return good;
}

int positive(const char* text) {
  const int value = std::atoi(text);
  if (value <= 0) throw std::invalid_argument("BATCH, PREFIX and SUFFIX must be positive");
  return value;
}

int run_all(int count, char** arguments) {
  std::vector<Workload> workloads = {{3, 64, 40}, {16, 256, 64}, {37, 1024, 50}};
  if (count == 4) workloads = {{positive(arguments[1]), positive(arguments[2]), positive(arguments[3])}};
  if (count != 1 && count != 4) throw std::invalid_argument("needs no arguments, or BATCH PREFIX SUFFIX");
  if (workloads[0].prefix % shape_of_model().block_size != 0) throw std::invalid_argument("PREFIX must be whole blocks of 16 tokens");
  std::printf("                         KV MiB read\n");
  std::printf("%6s %7s %7s %13s %13s %6s %11s\n", "batch", "prefix", "suffix", "each its own", "prefix shared", "ratio", "difference");
  bool good = true;
  for (const Workload& workload : workloads) good &= run(workload);
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_all(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shared_prefix: %s\n", error.what());
    return 2;
  }
}
