#include "paged_attention.hpp"

#include <algorithm>
#include <limits>

#include "hpa/hpa.hpp"
#include "menus.hpp"

namespace vllm_op {

namespace {

/// The op's integers have 64 bits, a shape's 32. A value that does not fit becomes one that check() refuses.
int narrow(std::int64_t value) { return int(std::clamp<std::int64_t>(value, -1, std::numeric_limits<int>::max())); }

bool is_fp8(std::string_view kv_cache_dtype) { return kv_cache_dtype == "fp8" || kv_cache_dtype == "fp8_e4m3"; }

/// The shape of a call. Made anew in every call: it is a dozen integers.
hpa::DecodeShape shape_of(const Tensors& tensors, std::int64_t num_kv_heads, std::int64_t block_size, std::int64_t max_seq_len,
                          hpa::DType kv) {
  hpa::DecodeShape shape;
  shape.query = shape.out = tensors.dtype;
  shape.kv = kv;
  shape.head_size = tensors.head_size;
  shape.block_size = narrow(block_size);
  shape.num_heads = tensors.num_heads;
  shape.num_kv_heads = narrow(num_kv_heads);
  shape.max_seqs = tensors.num_seqs;
  shape.max_seq_len = narrow(max_seq_len);
  shape.max_query_len = 1;  // sequences with other numbers of query rows are skipped, as by the op
  return shape;
}

}  // namespace

hpa::Verdict paged_attention(void* out, float* /*exp_sums*/, float* /*max_logits*/, void* tmp_out, const void* query,
                             const void* key_cache, const void* value_cache, std::int64_t num_kv_heads, double scale,
                             const std::int32_t* block_tables, const std::int32_t* seq_lens, const std::int32_t* query_start_loc,
                             std::int64_t block_size, std::int64_t max_seq_len, const float* alibi_slopes,
                             std::string_view kv_cache_dtype, const float* k_scale, const float* v_scale, const float* fp8_out_scale,
                             const Tensors& tensors, hpa::Stream stream) {
  if (tensors.num_seqs == 0) return {};  // nothing to compute
  hpa::Device device;
  if (hpa::Verdict v = hpa::current_device(&device); !v) return v;

  const bool fp8_cache = is_fp8(kv_cache_dtype);
  if (!fp8_cache && kv_cache_dtype != "auto") return {hpa::Status::invalid_argument, "kv_cache_dtype", "must be auto, fp8 or fp8_e4m3"};
  hpa::DecodeShape shape =
      shape_of(tensors, num_kv_heads, block_size, max_seq_len, fp8_cache ? fp8_of(device.arch) : tensors.dtype);  // told by name
  shape.alibi = alibi_slopes != nullptr;
  if (fp8_out_scale != nullptr) shape.out = fp8_of(device.arch);
  if (scale == 0) return {hpa::Status::invalid_argument, "scale", "must not be 0"};  // which asks the library for its default

  hpa::DecodeArgs args;
  args.query = query;
  args.cache.keys = const_cast<void*>(key_cache);  // one struct for those who write the cache and those who read it
  args.cache.values = const_cast<void*>(value_cache);
  args.out = out;
  args.batch.block_tables = block_tables;
  args.batch.seq_lens = seq_lens;
  args.batch.query_start_loc = query_start_loc;
  args.batch.num_seqs = tensors.num_seqs;
  args.batch.block_table_width = tensors.block_table_width;
  args.query_row_stride = tensors.query_row_stride;
  args.cache.key_block_stride = args.cache.value_block_stride = tensors.kv_block_stride;
  args.cache.key_head_stride = args.cache.value_head_stride = tensors.kv_head_stride;
  args.scale = float(scale);
  args.alibi_slopes = alibi_slopes;
  args.cache.k_scale = fp8_cache ? k_scale : nullptr;  // vLLM passes both always; a 16-bit cache has none
  args.cache.v_scale = fp8_cache ? v_scale : nullptr;
  args.out_scale = fp8_out_scale;

  // Both in one call, as the op must: it is all that a layer sees. README.md says how to plan once a step.
  const hpa::Workspace workspace{tmp_out, tensors.tmp_out_bytes};
  return fp8_cache ? hpa::paged_attention<Fp8Menu>(shape, args, workspace, stream) : hpa::paged_attention(shape, args, workspace, stream);
}

std::size_t workspace_bytes(const Tensors& tensors, int max_num_seqs, std::int64_t num_kv_heads, std::int64_t block_size,
                            std::int64_t max_seq_len, std::string_view kv_cache_dtype) {
  hpa::Device device;
  if (!hpa::current_device(&device)) return 0;
  const bool fp8_cache = is_fp8(kv_cache_dtype);
  hpa::DecodeShape shape =
      shape_of(tensors, num_kv_heads, block_size, max_seq_len, fp8_cache ? fp8_of(device.arch) : tensors.dtype);
  shape.max_seqs = max_num_seqs;  // enough for smaller batches too
  return fp8_cache ? hpa::workspace_bytes<Fp8Menu>(shape, device) : hpa::workspace_bytes(shape, device);
}

}  // namespace vllm_op
