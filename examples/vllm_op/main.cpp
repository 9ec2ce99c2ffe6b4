// Calls the op as vLLM does, on small batches, and compares with the library's double-precision reference.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

#include "../device_memory.hpp"
#include "../require.hpp"
#include "hpa/args.hpp"
#include "hpa/reference.hpp"
#include "paged_attention.hpp"

using examples::DeviceArray;
using Elements = std::vector<std::uint16_t>;

namespace {

constexpr hpa::DType dtype = hpa::DType::bf16;
constexpr int num_heads = 8, num_kv_heads = 2, head_size = 128, block_size = 16, max_seq_len = 640, table_width = 40, num_blocks = 64;

Elements random_elements(std::size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Elements elements(count);
  for (std::size_t i = 0; i < count; ++i) hpa::store_element(dtype, elements.data(), std::int64_t(i), normal(random));
  return elements;
}

/// A batch as an engine has it: tensors on the host, to be uploaded.
struct Batch {
  std::vector<std::int32_t> seq_lens, block_tables, query_start_loc;
  std::vector<float> alibi_slopes;
  Elements query, key_cache, value_cache;

  Batch(std::vector<std::int32_t> lengths, const std::vector<int>& query_lens, bool alibi) : seq_lens(std::move(lengths)) {
    std::mt19937 random(1);
    std::vector<std::int32_t> blocks(num_blocks);
    for (int i = 0; i < num_blocks; ++i) blocks[i] = i;
    std::shuffle(blocks.begin(), blocks.end(), random);
    block_tables.assign(seq_lens.size() * table_width, -1);
    std::size_t used = 0;
    for (std::size_t i = 0; i < seq_lens.size(); ++i)
      for (int column = 0; column * block_size < seq_lens[i]; ++column) block_tables[i * table_width + column] = blocks.at(used++);
    if (!query_lens.empty()) query_start_loc.push_back(0);
    for (const int length : query_lens) query_start_loc.push_back(query_start_loc.back() + length);
    for (int head = 0; alibi && head < num_heads; ++head) alibi_slopes.push_back(std::exp2(-8.f * float(head + 1) / num_heads));
    const std::size_t cache_size = std::size_t(num_blocks) * num_kv_heads * head_size * block_size;
    query = random_elements(rows() * num_heads * head_size, random);
    key_cache = random_elements(cache_size, random);
    value_cache = random_elements(cache_size, random);
  }
  std::size_t rows() const { return query_start_loc.empty() ? seq_lens.size() : std::size_t(query_start_loc.back()); }

  vllm_op::Tensors tensors() const {
    vllm_op::Tensors tensors;
    tensors.dtype = dtype;
    tensors.num_seqs = int(seq_lens.size());
    tensors.num_heads = num_heads;
    tensors.head_size = head_size;
    tensors.block_table_width = table_width;
    return tensors;
  }
};

/// The op's out. Rows that it does not write keep zeros.
Elements call(const Batch& batch, const char* kv_cache_dtype, hpa::Verdict* verdict) {
  DeviceArray<std::uint16_t> query(batch.query), key_cache(batch.key_cache), value_cache(batch.value_cache);
  DeviceArray<std::uint16_t> out(Elements(batch.query.size(), 0));
  DeviceArray<std::int32_t> seq_lens(batch.seq_lens), block_tables(batch.block_tables), query_start_loc;
  DeviceArray<float> alibi_slopes, scales(std::vector<float>{1.f, 1.f});
  if (!batch.query_start_loc.empty()) query_start_loc = DeviceArray<std::int32_t>(batch.query_start_loc);
  if (!batch.alibi_slopes.empty()) alibi_slopes = DeviceArray<float>(batch.alibi_slopes);
  vllm_op::Tensors tensors = batch.tensors();
  DeviceArray<std::byte> tmp_out(
      vllm_op::workspace_bytes(tensors, tensors.num_seqs, num_kv_heads, block_size, max_seq_len, !batch.alibi_slopes.empty()));
  tensors.tmp_out_bytes = tmp_out.bytes();
  examples::synchronize({});  // uploads were ordered on the default stream, the call is not
  const examples::DeviceStream stream;
  *verdict = vllm_op::paged_attention(out.data(), nullptr, nullptr, tmp_out.data(), query.data(), key_cache.data(), value_cache.data(),
                                      num_kv_heads, 1 / std::sqrt(double(head_size)), block_tables.data(), seq_lens.data(),
                                      query_start_loc.data(), block_size, max_seq_len, alibi_slopes.data(), kv_cache_dtype, scales.data(),
                                      scales.data() + 1, nullptr, tensors, stream);
  return out.download(stream);
}

Elements reference_of(const Batch& batch) {
  hpa::DecodeShape shape;
  shape.query = shape.kv = shape.out = dtype;
  shape.head_size = head_size;
  shape.block_size = block_size;
  shape.num_heads = num_heads;
  shape.num_kv_heads = num_kv_heads;
  shape.alibi = !batch.alibi_slopes.empty();
  Elements out(batch.query.size(), 0);
  hpa::DecodeArgs args;
  args.query = batch.query.data();
  args.key_cache = batch.key_cache.data();
  args.value_cache = batch.value_cache.data();
  args.out = out.data();
  args.block_tables = batch.block_tables.data();
  args.seq_lens = batch.seq_lens.data();
  args.query_start_loc = batch.query_start_loc.empty() ? nullptr : batch.query_start_loc.data();
  args.alibi_slopes = shape.alibi ? batch.alibi_slopes.data() : nullptr;
  args.num_seqs = int(batch.seq_lens.size());
  args.block_table_width = table_width;
  hpa::reference::decode(shape, args);
  return out;
}

/// Of the worst row of one head: ||out - reference|| / ||reference||. NaN counts as infinite.
double worst_error(const Elements& out, const Elements& reference) {
  double worst = 0;
  for (std::size_t row = 0; row < out.size(); row += head_size) {
    double difference = 0, norm = 0;
    for (std::size_t i = row; i < row + head_size; ++i) {
      const double expected = hpa::load_element(dtype, reference.data(), std::int64_t(i));
      difference += std::pow(hpa::load_element(dtype, out.data(), std::int64_t(i)) - expected, 2);
      norm += expected * expected;
    }
    const double error = difference == 0 ? 0 : std::sqrt(difference / norm);
    worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
  }
  return worst;
}

bool compare(const char* what, const Batch& batch) {
  hpa::Verdict verdict;
  const Elements out = call(batch, "auto", &verdict);
  examples::require(verdict, what);
  const double error = worst_error(out, reference_of(batch));
  const bool good = error < 0.01;  // bf16 rounds to 0.004
  std::printf("%-28s worst row is off by %.4f%s\n", what, error, good ? "" : ", which is too much");
  return good;
}

int run() {
  bool good = compare("decode batch", Batch({1, 37, 600, 0}, {}, false));
  good &= compare("with ALiBi", Batch({1, 37, 600, 0}, {}, true));
  good &= compare("with a prefill in the batch", Batch({1, 37, 600}, {1, 5, 1}, false));
  hpa::Verdict verdict;
  (void)call(Batch({1, 37}, {}, false), "fp8", &verdict);
  std::printf("%-28s %s\n", "fp8 cache", verdict ? "computed" : examples::describe(verdict).c_str());
  return good ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "vllm_op: %s\n", error.what());
    return 1;
  }
}
