// tiny_llama: greedy text from a llama2.c checkpoint, all attention through the library.
//
// Prompts run as one batch. Those that begin alike share cache blocks; the last, partly filled one is copied when they part.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "checkpoint.hpp"
#include "generate.hpp"
#include "llama.hpp"
#include "tokenizer.hpp"

namespace {

using namespace examples;

struct Options {
  std::string checkpoint, tokenizer, dtype = "f16";
  std::vector<std::string> prompts, expected_files;
  int steps = 256, block_size = 16;
};

void declare(CLI::App& app, Options& options) {
  app.add_option("--checkpoint", options.checkpoint, "model in llama2.c's legacy format")->required()->check(CLI::ExistingFile);
  app.add_option("--tokenizer", options.tokenizer, "its tokenizer")->required()->check(CLI::ExistingFile);
  app.add_option("--prompt", options.prompts, "text to continue; give it again for more (without: begin with nothing)")
      ->allow_extra_args(false);
  app.add_option("--steps", options.steps, "tokens of a text, at most")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--dtype", options.dtype, "type of query, cache and output")
      ->check(CLI::IsMember({"f16", "bf16"}))
      ->capture_default_str();
  app.add_option("--block-size", options.block_size, "tokens of a cache block")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--expect", options.expected_files,
                 "file with the text that the first prompt must give; again for the next prompt")
      ->allow_extra_args(false)
      ->check(CLI::ExistingFile);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// True when the text is what the file says; else shows where they part.
bool is_expected(const std::string& text, const std::string& path) {
  const std::string expected = read_text(path);
  if (text == expected) return true;
  const auto part = std::mismatch(text.begin(), text.end(), expected.begin(), expected.end());
  const auto at = std::size_t(part.first - text.begin());
  fmt::print(stderr, "tiny_llama: the text differs from {} at byte {}:\n  expected  {}\n  got       {}\n", path, at,
             expected.substr(at, 60), text.substr(at, 60));
  return false;
}

int run(const Options& options) {
  const Checkpoint checkpoint = load_checkpoint(options.checkpoint);
  const Tokenizer tokenizer(options.tokenizer, checkpoint.config.vocab_size);
  std::vector<std::vector<int>> prompts;
  for (const std::string& prompt : options.prompts) prompts.push_back(tokenizer.encode(prompt));
  if (prompts.empty()) prompts.push_back(tokenizer.encode(""));
  if (options.expected_files.size() > prompts.size()) throw std::runtime_error("more --expect than --prompt");

  const int count = int(prompts.size());
  Llama model(checkpoint, count, Generator::blocks_for(count, checkpoint.config.max_seq_len, options.block_size),
              options.block_size, options.dtype == "f16" ? hpa::DType::f16 : hpa::DType::bf16);
  const auto start = std::chrono::steady_clock::now();
  const Generation generation = Generator(model, std::move(prompts), options.steps, options.block_size).run();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  bool expected = true;
  for (std::size_t i = 0; i < generation.tokens.size(); ++i) {
    const std::string text = tokenizer.decode(generation.tokens[i]);
    if (count > 1) fmt::print("--- {}\n", i + 1);
    fmt::print("{}\n", text);
    if (i < options.expected_files.size()) expected = is_expected(text, options.expected_files[i]) && expected;
  }
  std::fflush(stdout);
  fmt::print(stderr, "{} steps, {} tokens in {:.2f} s ({:.0f} tokens/s); {} tokens shared, {} blocks copied\n", generation.steps,
             generation.computed_tokens, seconds, double(generation.computed_tokens) / seconds, generation.shared_tokens,
             generation.copied_blocks);
  return expected ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Text from a llama2.c checkpoint, with attention over a paged KV cache");
  Options options;
  declare(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    return run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tiny_llama: {}\n", error.what());
    return 1;
  }
}
