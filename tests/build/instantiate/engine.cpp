// Calls everything that the menu has and compiles none of it. Two sequences, both kernels: every value of token t is t, so with a
// query of zeros a row is the mean of its tokens.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "attention.hpp"

namespace {

constexpr int tokens = 20, blocks = 4, num_heads = 4, num_kv_heads = 2;

/// 16-byte aligned memory of 16-bit elements, zeroed.
struct alignas(16) Elements8 {
  std::uint16_t element[8] = {};
};
using Memory = std::vector<Elements8>;

bool is_mean(int head_size) {
  hpa::DecodeShape shape;
  shape.query = shape.kv = shape.out = hpa::DType::bf16;
  shape.head_size = head_size;
  shape.num_heads = num_heads;
  shape.num_kv_heads = num_kv_heads;
  shape.max_seqs = 1;
  shape.max_seq_len = 32;

  const std::size_t token_size = std::size_t(num_kv_heads) * head_size;
  Memory values(tokens * token_size / 8), keys(blocks * 16 * token_size / 8), cache(blocks * 16 * token_size / 8);
  Memory query(std::size_t(num_heads) * head_size / 8), out(query.size());
  std::vector<std::int64_t> slots;
  for (int t = 0; t < tokens; ++t) {
    for (std::size_t i = 0; i < token_size; ++i)
      hpa::store_element(shape.kv, values.data(), std::int64_t(t * token_size + i), float(t));
    slots.push_back(t);  // blocks 0 and 1
  }
  hpa::AppendArgs append;
  append.new_keys = append.new_values = values.data();
  append.cache.keys = keys.data();
  append.cache.values = cache.data();
  append.slot_mapping = slots.data();
  append.num_tokens = tokens;
  const std::int64_t pairs[] = {1, 3};  // and from 1 to 3
  hpa::CopyBlocksArgs copy;
  copy.cache.keys = keys.data();
  copy.cache.values = cache.data();
  copy.block_pairs = pairs;
  copy.num_pairs = 1;

  const std::int32_t table[] = {0, 3}, length = tokens;
  hpa::DecodeArgs args;
  args.query = query.data();
  args.cache.keys = keys.data();
  args.cache.values = cache.data();
  args.out = out.data();
  args.batch.block_tables = table;
  args.batch.seq_lens = &length;
  args.batch.num_seqs = 1;
  args.batch.block_table_width = 2;

  hpa::Device device;
  if (!hpa::current_device(&device)) return false;
  Memory memory(hpa::workspace_bytes<engine_menu>(shape, device) / sizeof(Elements8) + 1);
  const hpa::Workspace workspace{memory.data(), memory.size() * sizeof(Elements8)};
  if (!hpa::append<engine_menu>(shape, append, {}) || !hpa::copy_blocks<engine_menu>(shape, copy, {})) return false;
  if (!hpa::plan<engine_menu>(shape, args.batch, workspace, {}) || !hpa::decode<engine_menu>(shape, args, workspace, {}))
    return false;
  if (!hpa::paged_attention<engine_menu>(shape, args, workspace, {})) return false;
  const std::vector<float> lse(num_heads, 0.f);
  hpa::MergeArgs merge;  // the result with itself
  merge.states[0] = merge.states[1] = {out.data(), lse.data()};
  merge.num_states = 2;
  merge.state_type = merge.out_type = shape.out;
  merge.num_rows = 1, merge.num_heads = num_heads, merge.head_size = head_size;
  merge.out = out.data();
  if (!hpa::merge_states<engine_menu>(merge, {})) return false;
  for (int i = 0; i < num_heads * head_size; ++i)
    if (hpa::load_element(shape.out, out.data(), i) != 9.5f) return false;
  return true;
}

}  // namespace

int main() {
  const bool right = is_mean(64) && is_mean(128);
  std::puts(right ? "right" : "wrong");
  return right ? 0 : 1;
}
