// What another project does with the library, at its least: the attention of one token over itself, which is its own V.
#include <hpa/hpa.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

// Only the kernel needed here is compiled.
using Menu = hpa::default_menu::with<hpa::query_types<hpa::DType::f16>, hpa::head_sizes<64>, hpa::block_sizes<16>,
                                     hpa::feature_sets<hpa::Features::none>>;

constexpr int head_size = 64, block_size = 16;
alignas(16) std::uint16_t query[head_size], key_cache[head_size * block_size], value_cache[head_size * block_size], out[head_size];

int complain(const hpa::Verdict& verdict) {
  std::printf("%s: %s %s\n", hpa::name(verdict.status), verdict.field, verdict.why);
  return 1;
}

}  // namespace

int main() {
  hpa::Device device;
  if (const hpa::Verdict verdict = hpa::current_device(&device); !verdict) return complain(verdict);

  hpa::DecodeShape shape;
  shape.head_size = head_size;
  shape.block_size = block_size;
  shape.num_heads = shape.num_kv_heads = shape.max_seqs = 1;
  shape.max_seq_len = block_size;
  if (const hpa::Verdict verdict = hpa::check<Menu>(shape, device); !verdict) return complain(verdict);

  for (int i = 0; i < head_size; ++i) value_cache[i * block_size] = std::uint16_t(0x3c00 + i);
  const std::int32_t block_table = 0, length = 1;
  hpa::DecodeArgs args;
  args.query = query;
  args.cache.keys = key_cache;
  args.cache.values = value_cache;
  args.out = out;
  args.batch.block_tables = &block_table;
  args.batch.seq_lens = &length;
  args.batch.num_seqs = args.batch.block_table_width = 1;
  std::vector<std::uint64_t> memory(hpa::workspace_bytes(shape, device) / 8 + 2);
  const hpa::Workspace workspace{memory.data(), memory.size() * 8};
  if (const hpa::Verdict verdict = hpa::paged_attention<Menu>(shape, args, workspace, {}); !verdict) return complain(verdict);

  for (int i = 0; i < head_size; ++i)
    if (out[i] != value_cache[i * block_size]) {
      std::printf("element %d: %04x instead of %04x\n", i, out[i], value_cache[i * block_size]);
      return 1;
    }
  std::printf("%s: right\n", hpa::name(device.arch));
}
