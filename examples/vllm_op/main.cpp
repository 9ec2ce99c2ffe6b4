// Calls the op as vLLM does, on small batches, and compares with the library's double-precision reference.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <vector>

#include "../device_memory.hpp"
#include "../require.hpp"
#include "hpa/arch/launch.hpp"
#include "hpa/args.hpp"
#include "hpa/reference.hpp"
#include "paged_attention.hpp"

using examples::DeviceArray;
using Bytes = std::vector<std::uint8_t>;

namespace {

constexpr hpa::DType dtype = hpa::DType::bf16;
constexpr int num_heads = 8, num_kv_heads = 2, head_size = 128, block_size = 16, max_seq_len = 640, table_width = 40, num_blocks = 64;

/// What a call has beside the batch.
struct Options {
  std::vector<int> query_lens;  // empty: one row a sequence
  bool alibi = false;
  std::string kv_cache_dtype = "auto";
  float k_scale = 1.f, v_scale = 1.f;
  float fp8_out_scale = 0.f;  // 0: the output has the query's type
};

Bytes random_elements(hpa::DType type, std::size_t count, float deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0.f, deviation);
  Bytes elements(count * std::size_t(hpa::size_of(type)));
  for (std::size_t i = 0; i < count; ++i) hpa::store_element(type, elements.data(), std::int64_t(i), normal(random));
  return elements;
}

/// A batch as an engine has it: tensors on the host, to be uploaded.
struct Batch {
  Options options;
  hpa::DType kv, out;
  std::vector<std::int32_t> seq_lens, block_tables, query_start_loc;
  std::vector<float> alibi_slopes, scales;
  Bytes query, key_cache, value_cache;

  Batch(std::vector<std::int32_t> lengths, Options how, hpa::DType fp8) : options(std::move(how)), seq_lens(std::move(lengths)) {
    kv = options.kv_cache_dtype == "auto" ? dtype : fp8;
    out = options.fp8_out_scale == 0.f ? dtype : fp8;
    scales = {options.k_scale, options.v_scale, options.fp8_out_scale};
    std::mt19937 random(1);
    std::vector<std::int32_t> blocks(num_blocks);
    for (int i = 0; i < num_blocks; ++i) blocks[i] = i;
    std::shuffle(blocks.begin(), blocks.end(), random);
    block_tables.assign(seq_lens.size() * table_width, -1);
    std::size_t used = 0;
    for (std::size_t i = 0; i < seq_lens.size(); ++i)
      for (int column = 0; column * block_size < seq_lens[i]; ++column) block_tables[i * table_width + column] = blocks.at(used++);
    if (!options.query_lens.empty()) query_start_loc.push_back(0);
    for (const int length : options.query_lens) query_start_loc.push_back(query_start_loc.back() + length);
    for (int head = 0; options.alibi && head < num_heads; ++head) alibi_slopes.push_back(std::exp2(-8.f * float(head + 1) / num_heads));
    const std::size_t cache_size = std::size_t(num_blocks) * num_kv_heads * head_size * block_size;
    query = random_elements(dtype, elements(), 1.f, random);
    key_cache = random_elements(kv, cache_size, 1.f / options.k_scale, random);
    value_cache = random_elements(kv, cache_size, 1.f / options.v_scale, random);
  }
  std::size_t rows() const { return query_start_loc.empty() ? seq_lens.size() : std::size_t(query_start_loc.back()); }
  std::size_t elements() const { return rows() * num_heads * head_size; }  // of query, and of out
  Bytes zeros() const { return Bytes(elements() * std::size_t(hpa::size_of(out)), 0); }

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
Bytes call(const Batch& batch, hpa::Verdict* verdict) {
  DeviceArray<std::uint8_t> query(batch.query), key_cache(batch.key_cache), value_cache(batch.value_cache), out(batch.zeros());
  DeviceArray<std::int32_t> seq_lens(batch.seq_lens), block_tables(batch.block_tables), query_start_loc;
  DeviceArray<float> alibi_slopes, scales(batch.scales);
  if (!batch.query_start_loc.empty()) query_start_loc = DeviceArray<std::int32_t>(batch.query_start_loc);
  if (!batch.alibi_slopes.empty()) alibi_slopes = DeviceArray<float>(batch.alibi_slopes);
  const std::string& kv_cache_dtype = batch.options.kv_cache_dtype;
  vllm_op::Tensors tensors = batch.tensors();
  DeviceArray<std::byte> tmp_out(
      vllm_op::workspace_bytes(tensors, tensors.num_seqs, num_kv_heads, block_size, max_seq_len, kv_cache_dtype));
  tensors.tmp_out_bytes = tmp_out.bytes();
  examples::synchronize({});  // uploads were ordered on the default stream, the call is not
  const examples::DeviceStream stream;
  *verdict = vllm_op::paged_attention(out.data(), nullptr, nullptr, tmp_out.data(), query.data(), key_cache.data(), value_cache.data(),
                                      num_kv_heads, 1 / std::sqrt(double(head_size)), block_tables.data(), seq_lens.data(),
                                      query_start_loc.data(), block_size, max_seq_len, alibi_slopes.data(), kv_cache_dtype, scales.data(),
                                      scales.data() + 1, batch.out == dtype ? nullptr : scales.data() + 2, tensors, stream);
  return out.download(stream);
}

Bytes reference_of(Batch batch) {
  hpa::DecodeShape shape;
  shape.query = dtype;
  shape.kv = batch.kv;
  shape.out = batch.out;
  shape.head_size = head_size;
  shape.block_size = block_size;
  shape.num_heads = num_heads;
  shape.num_kv_heads = num_kv_heads;
  shape.alibi = batch.options.alibi;
  Bytes out = batch.zeros();
  hpa::DecodeArgs args;
  args.query = batch.query.data();
  args.cache.keys = batch.key_cache.data();
  args.cache.values = batch.value_cache.data();
  args.out = out.data();
  args.batch.block_tables = batch.block_tables.data();
  args.batch.seq_lens = batch.seq_lens.data();
  args.batch.query_start_loc = batch.query_start_loc.empty() ? nullptr : batch.query_start_loc.data();
  args.alibi_slopes = shape.alibi ? batch.alibi_slopes.data() : nullptr;
  args.cache.k_scale = &batch.scales[0], args.cache.v_scale = &batch.scales[1], args.out_scale = &batch.scales[2];
  args.batch.num_seqs = int(batch.seq_lens.size());
  args.batch.block_table_width = table_width;
  hpa::reference::decode(shape, args);
  return out;
}

/// Of the worst row of one head: ||out - reference|| / ||reference||. NaN counts as infinite.
double worst_error(hpa::DType type, std::size_t elements, const Bytes& out, const Bytes& reference) {
  double worst = 0;
  for (std::size_t row = 0; row < elements; row += head_size) {
    double difference = 0, norm = 0;
    for (std::size_t i = row; i < row + head_size; ++i) {
      const double expected = hpa::load_element(type, reference.data(), std::int64_t(i));
      difference += std::pow(hpa::load_element(type, out.data(), std::int64_t(i)) - expected, 2);
      norm += expected * expected;
    }
    const double error = difference == 0 ? 0 : std::sqrt(difference / norm);
    worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
  }
  return worst;
}

bool compare(const char* what, const Batch& batch) {
  hpa::Verdict verdict;
  const Bytes out = call(batch, &verdict);
  examples::require(verdict, what);
  const double error = worst_error(batch.out, batch.elements(), out, reference_of(batch));
  const bool good = error < (batch.out == dtype ? 0.01 : 0.04);  // bf16 rounds to 0.004; where e4m3 rounds the other way, it is off by 0.12
  std::printf("%-34s worst row is off by %.4f%s\n", what, error, good ? "" : ", which is too much");
  return good;
}

int run() {
  hpa::Device device;
  examples::require(hpa::current_device(&device), "current_device");
  const hpa::DType fp8 = vllm_op::fp8_of(device.arch);
  bool good = compare("decode batch", Batch({1, 37, 600, 0}, {}, fp8));
  good &= compare("with ALiBi", Batch({1, 37, 600, 0}, {{}, true}, fp8));
  good &= compare("with a prefill in the batch", Batch({1, 37, 600}, {{1, 5, 1}}, fp8));
  good &= compare("fp8 cache", Batch({1, 37, 600, 0}, {{}, false, "fp8", 0.05f, 0.02f}, fp8));
  good &= compare("fp8_e4m3 cache, ALiBi, prefill", Batch({1, 37, 600}, {{1, 5, 1}, true, "fp8_e4m3", 0.5f, 2.f}, fp8));
  good &= compare("fp8 output", Batch({1, 37, 600, 0}, {{}, false, "auto", 1.f, 1.f, 0.01f}, fp8));
  good &= compare("fp8 cache and output", Batch({1, 37, 600, 0}, {{}, false, "fp8", 0.05f, 0.02f, 0.01f}, fp8));
  hpa::Verdict verdict;
  Batch unknown({1, 37}, {}, fp8);
  unknown.options.kv_cache_dtype = "fp8_e5m2";
  (void)call(unknown, &verdict);
  good &= !verdict && verdict.field == std::string("kv_cache_dtype");
  std::printf("%-34s %s\n", "fp8_e5m2 cache", examples::describe(verdict).c_str());
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
