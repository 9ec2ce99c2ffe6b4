// The shortest program that shows the API: two sequences in a paged cache, one decode step.
//
// Every value of token t is t and the query is zero, so that a row is the mean of its tokens: 1 for 3 tokens, 9.5 for 20.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "device_memory.hpp"
#include "hpa/hpa.hpp"

using examples::DeviceArray;

void require(const hpa::Verdict& verdict) {
  if (verdict) return;
  std::fprintf(stderr, "%s: %s\n", verdict.field, verdict.why);
  std::exit(1);
}

int main() {
  hpa::Device device;
  require(hpa::current_device(&device));

  hpa::DecodeShape shape;  // all that is known before any length is
  shape.num_heads = 32;
  shape.num_kv_heads = 8;
  shape.max_seqs = 2;
  shape.max_seq_len = 64;
  require(hpa::check(shape, device));  // says which field it is when the answer is no

  // The cache: 8 blocks of 16 tokens. Sequence 0 is in block 5, sequence 1 in blocks 2 and 7.
  const std::vector<std::int32_t> lengths = {3, 20}, tables = {5, -1, 2, 7};
  const std::size_t token_size = 8 * 128, tokens = 23;
  std::vector<std::uint16_t> values(tokens * token_size);
  std::vector<std::int64_t> slots;
  for (int sequence = 0; sequence < 2; ++sequence) {
    for (int t = 0; t < lengths[sequence]; ++t) {
      for (std::size_t i = 0; i < token_size; ++i) hpa::store_element(shape.kv, &values[slots.size() * token_size], i, float(t));
      slots.push_back(tables[2 * sequence + t / 16] * 16 + t % 16);
    }
  }
  DeviceArray<std::uint16_t> key_cache(8 * 16 * token_size), value_cache(8 * 16 * token_size), new_values(values);
  DeviceArray<std::int64_t> slot_mapping(slots);
  const hpa::Stream stream{};

  hpa::AppendArgs append;  // new K and V go where the slot mapping says
  append.new_keys = append.new_values = new_values.data();
  append.cache.keys = key_cache.data();
  append.cache.values = value_cache.data();
  append.slot_mapping = slot_mapping.data();
  append.num_tokens = int(tokens);
  require(hpa::append(shape, append, stream));

  DeviceArray<std::uint16_t> query(std::vector<std::uint16_t>(2 * 32 * 128, 0)), out(2 * 32 * 128);
  DeviceArray<std::int32_t> seq_lens(lengths), block_tables(tables);
  DeviceArray<std::byte> memory(hpa::workspace_bytes(shape, device));
  const hpa::Workspace workspace{memory.data(), memory.size()};

  hpa::DecodeArgs args;
  args.query = query.data();
  args.cache.keys = key_cache.data();
  args.cache.values = value_cache.data();
  args.out = out.data();
  args.batch.block_tables = block_tables.data();
  args.batch.seq_lens = seq_lens.data();
  args.batch.num_seqs = 2;
  args.batch.block_table_width = 2;
  require(hpa::plan(shape, args.batch, workspace, stream));  // once a step
  require(hpa::decode(shape, args, workspace, stream));  // once a layer
  require(hpa::workspace_error(workspace, stream));      // what was wrong with the lengths and tables, if anything

  const std::vector<std::uint16_t> rows = out.download();
  for (int row = 0; row < 2; ++row)
    std::printf("sequence %d: %g\n", row, hpa::load_element(shape.out, rows.data(), row * 32 * 128));
}
