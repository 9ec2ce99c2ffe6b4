// why_not: whether the library, and vLLM's ROCm rule beside it, would take a shape given on the command line; if not, why not.
// Exit status 0 when the library takes it, 1 when it does not.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "hpa/hpa.hpp"

namespace {

const std::map<std::string, hpa::DType> types = {
    {"f16", hpa::DType::f16},           {"bf16", hpa::DType::bf16},         {"e4m3_fnuz", hpa::DType::e4m3_fnuz},
    {"e4m3_ocp", hpa::DType::e4m3_ocp}, {"e5m2_ocp", hpa::DType::e5m2_ocp}, {"i8", hpa::DType::i8}};
const std::map<std::string, hpa::KvLayout> layouts = {
    {"vllm", hpa::KvLayout::vllm}, {"hnd", hpa::KvLayout::hnd}, {"nhd", hpa::KvLayout::nhd}};
const std::map<std::string, hpa::Split> splits = {{"by_length", hpa::Split::by_length}, {"balanced", hpa::Split::balanced}};

/// An option whose values are the names in `values`.
template <class T>
void add_choice(CLI::App& app, const std::string& flag, T& target, const std::map<std::string, T>& values,
                const std::string& text) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back(name);
  app.add_option_function<std::string>(
         flag, [&](const std::string& name) { target = values.at(name); }, text)
      ->check(CLI::IsMember(names));
}

struct Options {
  hpa::DecodeShape shape;
  std::string gcn_arch = "gfx942:sramecc+:xnack-";
};

Options defaults() {
  Options options;
  options.shape.num_heads = 32;
  options.shape.num_kv_heads = 8;
  options.shape.max_seqs = 64;
  options.shape.max_seq_len = 8192;
  return options;
}

/// Values are not checked here: saying what is wrong with them is the library's part.
void declare(CLI::App& app, Options& options) {
  hpa::DecodeShape& shape = options.shape;
  const auto number = [&](const char* flag, auto& target, const char* text) {
    app.add_option(flag, target, text)->capture_default_str();
  };
  number("--heads", shape.num_heads, "query heads");
  number("--kv-heads", shape.num_kv_heads, "KV heads");
  number("--head-size", shape.head_size, "elements of a head");
  number("--head-size-v", shape.head_size_v, "elements of a head of V; 0 = as K");
  number("--block-size", shape.block_size, "tokens of a cache block");
  number("--max-seqs", shape.max_seqs, "sequences of a batch");
  number("--max-seq-len", shape.max_seq_len, "tokens of a sequence");
  number("--max-query-len", shape.max_query_len, "query rows of a sequence");
  number("--max-total-kv-tokens", shape.max_total_kv_tokens, "tokens of all sequences; 0 = no bound of its own");
  add_choice(app, "--query", shape.query, types, "type of the query (f16)");
  add_choice(app, "--kv", shape.kv, types, "type of the cache (f16)");
  add_choice(app, "--out", shape.out, types, "type of the output (f16)");
  add_choice(app, "--layout", shape.layout, layouts, "layout of the cache (vllm)");
  add_choice(app, "--split", shape.split, splits, "how sequences are cut (by_length)");
  app.add_flag("--alibi", shape.alibi, "ALiBi");
  app.add_flag("--sliding-window", shape.sliding_window, "a sliding window");
  app.add_flag("--soft-cap", shape.soft_cap, "a soft cap on logits");
  app.add_flag("--sinks", shape.sinks, "attention sinks");
  app.add_flag("--lse", shape.lse, "log-sum-exp output");
  app.add_flag("!--not-causal", shape.causal, "every row sees all keys");
  app.add_flag("--tree-mask", shape.tree_mask, "a tree mask among the new tokens");
  app.add_flag("--token-scales", shape.token_scales, "i8 cache with a scale for each token and head");
  app.add_option("--gcn-arch", options.gcn_arch, "architecture that vLLM's rule is asked for")->capture_default_str();
}

void print_answer(const char* who, const hpa::Verdict& verdict) {
  if (verdict)
    fmt::print("{:<16}yes\n", who);
  else
    fmt::print("{:<16}no: {}: {} ({})\n", who, verdict.field, verdict.why, hpa::name(verdict.status));
}

void print_kernel(const hpa::DecodeShape& shape, const hpa::Device& device) {
  hpa::default_menu::dispatch(shape, [&](auto config) {
    using Config = decltype(config);
    fmt::print("{:<16}head size {}, block size {}, query {}, cache {}, {}\n", "  kernel", Config::head_size, Config::block_size,
               hpa::name(Config::query), hpa::name(Config::kv), hpa::name(Config::features));
  });
  const hpa::tuning::KernelShape chosen = hpa::decode_kernel_shape(shape, device);
  fmt::print("{:<16}{} waves a workgroup, {} workgroups a compute unit, {} query rows a pass\n", "  shape", chosen.waves,
             chosen.workgroups_per_unit, chosen.rows_per_pass);
  fmt::print("{:<16}tiles of {} tokens, {} under way a wave: {} bytes in flight a compute unit\n", "", chosen.tile_tokens,
             chosen.stages, chosen.bytes_in_flight());
  fmt::print("{:<16}{} query heads a KV head\n", "  GQA ratio", shape.gqa_ratio());
  fmt::print("{:<16}{} bytes\n", "  workspace", hpa::workspace_bytes(shape, device));
}

std::string vllm_query_type(hpa::DType type) {
  return type == hpa::DType::f16 ? "half" : type == hpa::DType::bf16 ? "bfloat16" : hpa::name(type);
}
std::string vllm_kv_type(const hpa::DecodeShape& shape) {
  if (shape.kv == shape.query) return "auto";
  return shape.kv == hpa::DType::e4m3_fnuz || shape.kv == hpa::DType::e4m3_ocp ? "fp8" : hpa::name(shape.kv);
}

void print_vllm(const char* who, const Options& options, hpa::vllm::Revision revision) {
  const hpa::DecodeShape& shape = options.shape;
  const int gqa_ratio = shape.num_kv_heads > 0 ? shape.gqa_ratio() : 0,
            window = shape.sliding_window ? 1 : 0;  // any size counts alike
  print_answer(who, hpa::vllm::why_not_rocm_custom_paged_attention(options.gcn_arch, vllm_query_type(shape.query), shape.head_size,
                                                                   shape.block_size, gqa_ratio, shape.max_seq_len, window,
                                                                   vllm_kv_type(shape), shape.alibi, shape.sinks, revision));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Can this shape be decoded, and if not, why not?");
  Options options = defaults();
  declare(app, options);
  CLI11_PARSE(app, argc, argv);

  hpa::Device device;
  if (const hpa::Verdict verdict = hpa::current_device(&device); !verdict) {
    fmt::print(stderr, "why_not: {}: {}\n", verdict.field, verdict.why);
    return 2;
  }
  const hpa::Verdict verdict = hpa::check(options.shape, device);
  fmt::print("{:<16}{}, {} compute units, {} bytes of LDS a workgroup\n", "device", hpa::name(device.arch),
             device.compute_units, device.lds());
  print_answer("this library", verdict);
  if (verdict) print_kernel(options.shape, device);
  fmt::print("{:<16}use_rocm_custom_paged_attention on {}\n", "vLLM's rule", options.gcn_arch);
  print_vllm("  PR 15720", options, hpa::vllm::Revision::pr15720);
  print_vllm("  latest", options, hpa::vllm::Revision::latest);
  return verdict ? 0 : 1;
}
