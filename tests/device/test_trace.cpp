// The decode loop of examples/decode_trace at reduced width: 200 steps of each trace, rows of every step against the reference.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/decode_trace/decode_loop.hpp"
#include "../../examples/decode_trace/trace.hpp"
#include "catch.hpp"

using namespace examples;

namespace {

LoopConfig reduced(hpa::DType type) {
  LoopConfig config;
  hpa::DecodeShape& shape = config.shape;
  shape.query = shape.kv = shape.out = type;
  shape.num_heads = 8;
  shape.num_kv_heads = 2;
  shape.head_size = 64;
  shape.max_seqs = 4;
  shape.max_seq_len = 2048;
  config.layers = 2;
  config.num_blocks = 400;
  return config;
}

/// Runs `steps` steps at most and checks the results, and that every request is accounted for.
void run(DecodeLoop& loop, const LoopConfig& config, int steps) {
  while (loop.totals().steps < steps && loop.step()) {
  }
  const LoopTotals& totals = loop.totals();
  const RequestCounts& counts = loop.scheduler().counts();
  INFO("worst error " << totals.worst_error << " at length " << totals.worst_length << ", longest " << totals.longest);
  CHECK(totals.worst_error <= largest_error(config.shape.out));
  CHECK(totals.worst_error > 0);
  CHECK(totals.rows_checked == totals.steps * config.check_rows);
  CHECK(counts.finished + counts.truncated + counts.rejected.size() + loop.scheduler().running().size() +
            loop.scheduler().num_waiting() ==
        loop.scheduler().num_requests());
}

/// The requests of a trace in HPA_TEST_DATA, lengths divided; none, with a message, when it is not there.
std::vector<Request> shared_trace(const std::string& name, int divisor) {
  const char* const folder = std::getenv("HPA_TEST_DATA");
  const std::string path = folder == nullptr ? "" : std::string(folder) + "/" + name;
  if (path.empty() || !std::filesystem::exists(path)) {
    WARN("skipped: " << name << " is not in HPA_TEST_DATA");
    return {};
  }
  std::vector<Request> requests = read_trace_file(path);
  shorten(requests, divisor);
  return requests;
}

void run_shared_trace(const std::string& name, int divisor, LoopConfig config) {
  const std::vector<Request> requests = shared_trace(name, divisor);
  if (requests.empty()) return;
  DecodeLoop loop(config, requests);
  run(loop, config, 200);
  CHECK(loop.totals().steps == 200);
  CHECK(loop.totals().largest_batch == config.shape.max_seqs);
  CHECK((config.blocks_per_prefix_id > 0) == (loop.scheduler().counts().shared_prompt_tokens > 0));
}

}  // namespace

TEST_CASE("200 steps of the Azure conversation trace") { run_shared_trace("azure_llm_conv_2023.csv", 8, reduced(hpa::DType::f16)); }

TEST_CASE("200 steps of the Azure code trace, a batch so small that sequences are split") {
  LoopConfig config = reduced(hpa::DType::bf16);
  config.shape.max_seqs = 2;
  run_shared_trace("azure_llm_code_2023.csv", 8, config);
}

TEST_CASE("200 steps of the Mooncake trace, equal prompt beginnings in shared blocks") {
  LoopConfig config = reduced(hpa::DType::bf16);
  config.blocks_per_prefix_id = 1;  // 512 tokens, divided by 32, are one block
  config.layers = 1;
  run_shared_trace("mooncake_conversation_3000.jsonl", 32, config);
}

TEST_CASE("a cache too small for the batch: sequences give way, begin anew and stay right") {
  LoopConfig config = reduced(hpa::DType::f16);
  config.num_blocks = 9;
  config.shape.max_seq_len = 200;
  config.shape.block_size = 32;
  std::vector<Request> requests = synthetic_trace(40, 3);
  shorten(requests, 8);
  DecodeLoop loop(config, requests);
  run(loop, config, 400);
  CHECK(loop.totals().steps > 100);
  CHECK(loop.scheduler().counts().preemptions > 0);
}

TEST_CASE("the loop refuses what the library refuses, by name") {
  LoopConfig config = reduced(hpa::DType::f16);
  config.shape.num_kv_heads = 3;
  CHECK_THROWS_WITH(DecodeLoop(config, synthetic_trace(1, 1)), "check: invalid_argument: num_kv_heads: must divide num_heads");
}
