// The blocks of every sequence are spread over ranks. Each rank decodes the tokens that it has, with log-sum-exps; an all-gather
// brings every rank all parts, and merging them gives every rank the attention over all tokens. It is compared with attention on one
// device. With two or more GPUs and NCCL or RCCL a rank is a GPU; otherwise all ranks are on one device.
//
//   context_parallel [RANKS]      2 to 16; with GPUs for ranks no more than there are
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "../block_allocator.hpp"
#include "gather.hpp"

namespace {

using namespace context_parallel;

Batch random_batch(const std::vector<std::int32_t>& seq_lens) {
  Batch batch;
  batch.shape.query = batch.shape.kv = batch.shape.out = hpa::DType::bf16;
  batch.shape.num_heads = 8;
  batch.shape.num_kv_heads = 2;
  batch.sequences.seq_lens = seq_lens;
  const int block_size = batch.shape.block_size;
  const auto blocks_of = [&](int length) { return (length + block_size - 1) / block_size; };
  int num_blocks = 0, width = 0;
  for (const int length : seq_lens) num_blocks += blocks_of(length), width = std::max(width, blocks_of(length));
  examples::BlockAllocator blocks(num_blocks, 1);
  for (const int length : seq_lens)
    for (int i = 0; i < width; ++i) batch.sequences.block_tables.push_back(i < blocks_of(length) ? blocks.allocate().value() : -1);
  std::mt19937 random(2);
  const std::size_t rows = seq_lens.size() * std::size_t(batch.shape.num_heads * batch.shape.head_size);
  const std::size_t cache = std::size_t(num_blocks) * examples::block_elements(batch.shape);
  batch.query = examples::random_elements(batch.shape.query, rows, random);
  batch.key_cache = examples::random_elements(batch.shape.kv, cache, random);
  batch.value_cache = examples::random_elements(batch.shape.kv, cache, random);
  return batch;
}

Elements on_one_device(const Batch& batch) {
  const examples::DeviceStream stream;
  const DeviceArray<std::uint16_t> query(batch.query, stream);
  DeviceArray<std::uint16_t> keys(batch.key_cache, stream), values(batch.value_cache, stream);
  DeviceArray<std::uint16_t> out(batch.query.size());
  hpa::DecodeArgs args;
  args.query = query.data();
  args.cache.keys = keys.data();
  args.cache.values = values.data();
  args.out = out.data();
  examples::attend(batch.shape, args, batch.sequences, stream);
  return out.download(stream);
}

int run(int requested) {
  const int devices = examples::device_count();
  const bool through_nccl = has_nccl && devices > 1;
  const int most = through_nccl ? std::min(devices, hpa::max_merge_states) : hpa::max_merge_states;
  const int num_ranks = requested != 0 ? requested : through_nccl ? most : 4;
  if (num_ranks < 2 || num_ranks > most) throw std::invalid_argument("RANKS must be 2 to " + std::to_string(most));

  const Batch batch = random_batch({1, 20, 333, 2100});  // the first two are too short for some ranks
  const Elements expected = on_one_device(batch);
  std::vector<Rank> ranks;
  for (int i = 0; i < num_ranks; ++i) ranks.emplace_back(batch, i, num_ranks, through_nccl ? i : 0);
  for (Rank& rank : ranks) rank.attend();
  if (through_nccl) gather_by_nccl(ranks);
  else gather_by_copies(ranks);

  std::printf("%d ranks, %s\n", num_ranks, through_nccl ? "a GPU each, gathered by NCCL or RCCL" : "all on one device");
  double worst = 0;
  for (int i = 0; i < num_ranks; ++i) {
    const double error = examples::worst_row(batch.shape.out, ranks[std::size_t(i)].merged(), expected, std::size_t(batch.shape.head_size));
    std::printf("rank %d: worst row differs by %.4f\n", i, error);
    worst = std::max(worst, error);
  }
  if (worst < 0.01) return 0;  // bf16 rounds to 0.004, once in each part and once in the result
  std::printf("which is too much\n");
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? std::atoi(argv[1]) : 0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "context_parallel: %s\n", error.what());
    return 2;
  }
}
