// Plain C++ that makes every call of the menu. Of a GPU, the runtime is a stand-in that runs nothing: the calls are made, and accepted.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "attention.hpp"

namespace {

bool accepted(const char* call, const hpa::Verdict& verdict) {
  if (!verdict) std::printf("%s: %s %s\n", call, verdict.field, verdict.why);
  return bool(verdict);
}

struct alignas(16) Vector {
  std::uint8_t byte[16] = {};
};

}  // namespace

int main() {
  hpa::Device device;
  if (!accepted("current_device", hpa::current_device(&device))) return 1;
  hpa::DecodeShape shape;
  shape.query = shape.kv = shape.out = hpa::DType::bf16;
  shape.head_size = 64, shape.num_heads = shape.num_kv_heads = 1, shape.max_seqs = 1, shape.max_seq_len = 16;
  std::vector<Vector> keys(128), values(128), row(8), out(8), memory(hpa::workspace_bytes<engine_menu>(shape, device) / 16 + 1);
  const hpa::Workspace workspace{memory.data(), memory.size() * 16};
  const std::int32_t table = 0, length = 1;
  const std::int64_t slot = 0, pair[] = {0, 0};

  hpa::DecodeArgs args;
  args.query = row.data(), args.cache.keys = keys.data(), args.cache.values = values.data(), args.out = out.data();
  args.batch.block_tables = &table, args.batch.seq_lens = &length, args.batch.num_seqs = 1, args.batch.block_table_width = 1;
  hpa::AppendArgs append;
  append.new_keys = append.new_values = row.data(), append.cache.keys = keys.data(), append.cache.values = values.data();
  append.slot_mapping = &slot, append.num_tokens = 1;
  hpa::CopyBlocksArgs copy;
  copy.cache.keys = keys.data(), copy.cache.values = values.data(), copy.block_pairs = pair, copy.num_pairs = 1;
  const float lse = 0.f;
  hpa::MergeArgs merge;
  merge.states[0] = {row.data(), &lse}, merge.num_states = 1, merge.state_type = merge.out_type = hpa::DType::bf16;
  merge.num_rows = merge.num_heads = 1, merge.head_size = 64, merge.out = out.data();

  const hpa::Stream stream{};
  bool good = accepted("check", hpa::check<engine_menu>(shape, args, device));
  good &= accepted("check of append", hpa::check<engine_menu>(shape, append, device));
  good &= accepted("check of copy_blocks", hpa::check<engine_menu>(shape, copy, device));
  good &= accepted("check of merge_states", hpa::check<engine_menu>(merge, device));
  good &= accepted("append", hpa::append<engine_menu>(shape, append, stream));
  good &= accepted("plan", hpa::plan<engine_menu>(shape, args.batch, workspace, stream));
  good &= accepted("decode", hpa::decode<engine_menu>(shape, args, workspace, stream));
  good &= accepted("paged_attention", hpa::paged_attention<engine_menu>(shape, args, workspace, stream));
  const auto step = hpa::prepare<engine_menu>(shape, args.batch, workspace);
  good &= accepted("prepare", step.verdict());
  good &= accepted("plan of a prepared step", hpa::plan(step, stream));
  good &= accepted("decode of a prepared step", hpa::decode(step, args, stream));
  good &= accepted("copy_blocks", hpa::copy_blocks<engine_menu>(shape, copy, stream));
  good &= accepted("merge_states", hpa::merge_states<engine_menu>(merge, stream));
  hpa::PlanReport report;
  const hpa::Verdict reported = hpa::plan_report(workspace, stream, &report);
  good &= device.arch != hpa::Arch::host || (accepted("plan_report", reported) && report.decoded == 1);
  int sequence = 0;
  const hpa::Verdict error = hpa::workspace_error(workspace, stream, &sequence);
  good &= device.arch != hpa::Arch::host || accepted("workspace_error", error);
  std::printf("%s: %s\n", name(device.arch), good ? "every call was accepted" : "not every call was accepted");
  return good ? 0 : 1;
}
