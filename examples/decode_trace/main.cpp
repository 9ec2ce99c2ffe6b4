// decode_trace: the attention of a serving engine at full load, with the lengths of real requests.
//
// Requests of a trace are admitted as cache blocks allow. Each step appends one token's K and V for every running sequence, plans
// once, decodes all layers and compares some rows with the double-precision reference. K, V and queries are random: there is no
// model, only its shape.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "decode_loop.hpp"
#include "progress.hpp"
#include "trace.hpp"

namespace {

using namespace examples;

struct Model {
  int heads, kv_heads, head_size, layers;
};

/// What one GPU holds of a model.
const std::map<std::string, Model> models = {
    {"llama-3.1-8b", {32, 8, 128, 32}},
    {"llama-3.1-70b-tp8", {8, 1, 128, 80}},
};

/// What a run is reduced to where a CPU emulates the device.
constexpr int host_layers = 2, host_batch = 8, host_divisor = 4, host_steps = 400, host_cache_mib = 512;
constexpr int gpu_batch = 64, gpu_steps = 1000, gpu_cache_mib = 16384;

struct Options {
  std::string trace, model = "llama-3.1-8b", dtype = "bf16";
  std::optional<int> heads, kv_heads, head_size, layers, batch, divisor, steps, cache_mib, max_seq_len;
  int block_size = 16, requests = 0, check_every = 1, check_rows = 2;
  bool no_prefix_sharing = false;
  double seconds = 0;
  std::uint64_t seed = 1;
};

void declare(CLI::App& app, Options& options) {
  const auto count = CLI::Range(1, 1 << 30);
  std::vector<std::string> names;
  for (const auto& [name, model] : models) names.push_back(name);
  app.add_option("--trace", options.trace,
                 "requests: Azure LLM inference CSV or Mooncake JSON lines; synthetic lengths without it");
  app.add_option("--requests", options.requests, "use only the first N requests")->check(count);
  app.add_option("--length-divisor", options.divisor, fmt::format("divide all lengths (on a CPU: {})", host_divisor))->check(count);
  app.add_option("--model", options.model, "shape of the model, as one GPU sees it")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  app.add_option("--heads", options.heads, "query heads, instead of the model's")->check(count);
  app.add_option("--kv-heads", options.kv_heads, "KV heads, instead of the model's")->check(count);
  app.add_option("--head-size", options.head_size, "elements of a head, instead of the model's")->check(count);
  app.add_option("--layers", options.layers, fmt::format("layers, instead of the model's (on a CPU: {})", host_layers))
      ->check(count);
  app.add_option("--dtype", options.dtype, "type of query, cache and output")
      ->check(CLI::IsMember({"f16", "bf16"}))
      ->capture_default_str();
  app.add_option("--block-size", options.block_size, "tokens of a cache block")->check(count)->capture_default_str();
  app.add_option("--max-batch", options.batch, fmt::format("sequences of a step ({}; on a CPU: {})", gpu_batch, host_batch))
      ->check(count);
  app.add_option("--max-seq-len", options.max_seq_len, "tokens of a sequence; the trace's longest request without it")
      ->check(count);
  app.add_option("--cache-mib", options.cache_mib,
                 fmt::format("memory of the KV cache, all layers ({}; on a CPU: {})", gpu_cache_mib, host_cache_mib))
      ->check(count);
  app.add_flag("--no-prefix-sharing", options.no_prefix_sharing, "do not share the blocks of equal prompt beginnings");
  app.add_option("--steps", options.steps, fmt::format("decode steps, at most ({}; on a CPU: {})", gpu_steps, host_steps))
      ->check(count);
  app.add_option("--seconds", options.seconds, "stop after about so long")->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "of all random data")->capture_default_str();
  app.add_option("--check-every", options.check_every, "steps between checks against the reference; 0 = never")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--check-rows", options.check_rows, "rows in a check")->check(count)->capture_default_str();
}

/// All that a run needs, after defaults.
struct Run {
  LoopConfig loop;
  std::vector<Request> requests;
  int steps = 0;
  int divisor = 1;
};

std::vector<Request> load_requests(const Options& options, int divisor) {
  std::vector<Request> requests = options.trace.empty()
                                      ? synthetic_trace(options.requests > 0 ? options.requests : 10000, options.seed)
                                      : read_trace_file(options.trace);
  if (options.requests > 0 && std::size_t(options.requests) < requests.size()) requests.resize(std::size_t(options.requests));
  shorten(requests, divisor);
  return requests;
}

hpa::DecodeShape make_shape(const Options& options, const Model& model, int batch, std::int64_t max_seq_len) {
  hpa::DecodeShape shape;
  shape.query = shape.kv = shape.out = options.dtype == "f16" ? hpa::DType::f16 : hpa::DType::bf16;
  shape.num_heads = options.heads.value_or(model.heads);
  shape.num_kv_heads = options.kv_heads.value_or(model.kv_heads);
  shape.head_size = options.head_size.value_or(model.head_size);
  shape.block_size = options.block_size;
  shape.max_seqs = batch;
  shape.max_seq_len = int(max_seq_len);
  return shape;
}

/// Blocks that fit into the memory; no more than the largest batch of the longest sequences can use.
int cache_blocks(const hpa::DecodeShape& shape, int layers, int cache_mib) {
  const std::int64_t block_bytes =
      std::int64_t{2} * layers * shape.num_kv_heads * shape.head_size * shape.block_size * hpa::size_of(shape.kv);
  const std::int64_t useful = std::int64_t{shape.max_seqs} * ((shape.max_seq_len + shape.block_size - 1) / shape.block_size);
  return int(std::min<std::int64_t>({(std::int64_t{cache_mib} << 20) / block_bytes, useful, 1 << 30}));
}

int blocks_per_prefix_id(const Options& options, int divisor) {
  const std::int64_t block_tokens = std::int64_t{options.block_size} * divisor;
  return options.no_prefix_sharing || tokens_per_prefix_id % block_tokens != 0 ? 0 : int(tokens_per_prefix_id / block_tokens);
}

std::int64_t longest(const std::vector<Request>& requests) {
  std::int64_t tokens = 1;
  for (const Request& request : requests) tokens = std::max(tokens, request.prompt_tokens + request.output_tokens);
  return std::min(tokens, longest_request);
}

Run prepare(const Options& options, const hpa::Device& device) {
  const bool on_host = device.arch == hpa::Arch::host;
  const Model& model = models.at(options.model);
  Run run;
  run.divisor = options.divisor.value_or(on_host ? host_divisor : 1);
  run.requests = load_requests(options, run.divisor);
  run.steps = options.steps.value_or(on_host ? host_steps : gpu_steps);
  LoopConfig& loop = run.loop;
  loop.layers = options.layers.value_or(on_host ? std::min(host_layers, model.layers) : model.layers);
  loop.shape = make_shape(options, model, options.batch.value_or(on_host ? host_batch : gpu_batch),
                          options.max_seq_len ? *options.max_seq_len : longest(run.requests));
  require(hpa::check(loop.shape, device), "check");
  loop.num_blocks = cache_blocks(loop.shape, loop.layers, options.cache_mib.value_or(on_host ? host_cache_mib : gpu_cache_mib));
  loop.blocks_per_prefix_id = blocks_per_prefix_id(options, run.divisor);
  loop.check_every = options.check_every;
  loop.check_rows = options.check_rows;
  loop.seed = options.seed;
  return run;
}

void print_setup(const Options& options, const Run& run, const DecodeLoop& loop, const hpa::Device& device) {
  const hpa::DecodeShape& shape = run.loop.shape;
  const Model& model = models.at(options.model);
  fmt::print("device     {}, {} compute units\n", hpa::name(device.arch), device.compute_units);
  fmt::print("model      {}: {} query and {} KV heads of {}, {} layers, {}\n", options.model, shape.num_heads, shape.num_kv_heads,
             shape.head_size, run.loop.layers, hpa::name(shape.kv));
  fmt::print("cache      {} blocks of {} tokens, {:.1f} MiB; workspace {:.1f} KiB\n", run.loop.num_blocks, shape.block_size,
             double(loop.cache_bytes_total()) / (1 << 20), double(loop.workspace_bytes()) / 1024);
  fmt::print("requests   {} from {}, up to {} tokens; batch of {}, {} steps at most\n", run.requests.size(),
             options.trace.empty() ? "synthetic lengths" : options.trace, shape.max_seq_len, shape.max_seqs, run.steps);
  if (run.loop.layers < model.layers) fmt::print("reduced    {} of {} layers\n", run.loop.layers, model.layers);
  if (run.divisor > 1) fmt::print("reduced    all lengths divided by {}\n", run.divisor);
  const bool shares = std::any_of(run.requests.begin(), run.requests.end(), [](const Request& r) { return !r.prefix_ids.empty(); });
  if (shares && run.loop.blocks_per_prefix_id == 0) fmt::print("reduced    prompts share no blocks\n");
}

std::string progress_line(const DecodeLoop& loop, int steps) {
  const LoopTotals& totals = loop.totals();
  const RequestCounts& counts = loop.scheduler().counts();
  return fmt::format("step {}/{}  running {}  waiting {}  finished {}  rejected {}  {:.0f} tokens/s  worst error {:.1e}",
                     totals.steps, steps, loop.scheduler().running().size(), loop.scheduler().num_waiting(), counts.finished,
                     counts.rejected.size(), totals.per_second(double(totals.tokens)), totals.worst_error);
}

void print_rejections(const std::vector<Rejection>& rejected) {
  constexpr std::size_t shown = 5;
  for (std::size_t i = 0; i < std::min(shown, rejected.size()); ++i) {
    fmt::print("rejected   request {}: {}\n", rejected[i].request + 1, rejected[i].why);
  }
  if (rejected.size() > shown) fmt::print("rejected   and {} more\n", rejected.size() - shown);
}

void print_summary(const DecodeLoop& loop, double seconds, double bound) {
  const LoopTotals& totals = loop.totals();
  const RequestCounts& counts = loop.scheduler().counts();
  print_rejections(counts.rejected);
  fmt::print("steps      {}, largest batch {}, longest sequence {} tokens, {:.1f} s in all\n", totals.steps, totals.largest_batch,
             totals.longest, seconds);
  fmt::print("tokens     {} decoded in {:.2f} s of append, plan and decode: {:.1f} tokens/s\n", totals.tokens,
             totals.attention_seconds, totals.per_second(double(totals.tokens)));
  fmt::print("KV read    {:.3f} GiB, {:.3f} GB/s\n", totals.kv_bytes_read / (1 << 30),
             totals.per_second(totals.kv_bytes_read) / 1e9);
  fmt::print("prompts    {} tokens filled, {} shared\n", counts.filled_prompt_tokens, counts.shared_prompt_tokens);
  fmt::print("requests   {} finished, {} truncated, {} rejected, {} running, {} waiting; {} preemptions\n", counts.finished,
             counts.truncated, counts.rejected.size(), loop.scheduler().running().size(), loop.scheduler().num_waiting(),
             counts.preemptions);
  fmt::print("error      {:.2e} at worst (relative L2, {} rows checked; bound {:.0e}; at length {})\n", totals.worst_error,
             totals.rows_checked, bound, totals.worst_length);
}

int run_trace(const Options& options) {
  hpa::Device device;
  require(hpa::current_device(&device), "current_device");
  const Run run = prepare(options, device);
  DecodeLoop loop(run.loop, run.requests);
  print_setup(options, run, loop, device);

  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const double bound = largest_error(run.loop.shape.out);
  Progress progress;
  while (loop.totals().steps < run.steps && loop.step()) {
    if (progress.due()) progress.show(progress_line(loop, run.steps));
    if (!(loop.totals().worst_error <= bound) || (options.seconds > 0 && seconds() > options.seconds)) break;
  }
  progress.finish();
  print_summary(loop, seconds(), bound);
  if (!(loop.totals().worst_error <= bound)) {
    fmt::print(stderr, "decode_trace: a result differs from the reference by more than rounding\n");
    return 1;
  }
  if (loop.totals().steps == 0 && !loop.scheduler().counts().rejected.empty()) {
    fmt::print(stderr, "decode_trace: no request could run\n");
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Continuous-batching decode attention over a paged KV cache, driven by a request trace");
  Options options;
  declare(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    return run_trace(options);
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "decode_trace: {}\n", error.what());
    return 1;
  }
}
