// Real input: the text that stories260K, a trained model, gives when all its attention goes through the library.
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "../../examples/tiny_llama/checkpoint.hpp"
#include "../../examples/tiny_llama/generate.hpp"
#include "../../examples/tiny_llama/llama.hpp"
#include "../../examples/tiny_llama/tokenizer.hpp"
#include "catch.hpp"

using namespace examples;

namespace {

/// Published with llama2.c: 256 tokens from BOS at temperature 0.
const std::string published =
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red "
    "ball. "
    "She wanted to play with it, but it was too high.\n"
    "Lily's mom said, \"Lily, let's go to the park.\" Lily was sad and didn't know what to do. She said, \"I want to play with "
    "your "
    "ball, but I can't find it.\"\n"
    "Lily was sad and didn't know what to do. She said, \"I'm sorry, Lily. I didn't know what to do.\"\n"
    "Lily didn't want to help her mom, so she said, \"I'm sorry, mom. I didn't know what to do.\" Her mom said, \"Don't worry, "
    "Lily. "
    "We can help you.";

struct Model {
  Checkpoint checkpoint;
  Tokenizer tokenizer;
};

/// Nothing, with a message, when HPA_TEST_DATA does not have the model.
std::optional<Model> load() {
  const char* const folder = std::getenv("HPA_TEST_DATA");
  const std::string path = folder == nullptr ? "" : folder;
  if (path.empty() || !std::filesystem::exists(path + "/stories260K.bin") || !std::filesystem::exists(path + "/tok512.bin")) {
    WARN("skipped: stories260K.bin and tok512.bin are not in HPA_TEST_DATA");
    return std::nullopt;
  }
  Checkpoint checkpoint = load_checkpoint(path + "/stories260K.bin");
  const int vocab_size = checkpoint.config.vocab_size;
  return Model{std::move(checkpoint), Tokenizer(path + "/tok512.bin", vocab_size)};
}

Generation generate(const Model& model, const std::vector<std::string>& texts, int steps, hpa::DType type, int block_size) {
  std::vector<std::vector<int>> prompts;
  for (const std::string& text : texts) prompts.push_back(model.tokenizer.encode(text));
  const int count = int(prompts.size()), blocks = Generator::blocks_for(count, model.checkpoint.config.max_seq_len, block_size);
  Llama llama(model.checkpoint, count, blocks, block_size, type);
  return Generator(llama, std::move(prompts), steps, block_size).run();
}

}  // namespace

TEST_CASE("stories260K gives the published text") {
  const auto model = load();
  if (!model) return;
  const Generation generation = generate(*model, {""}, 256, hpa::DType::f16, 16);
  CHECK(model->tokenizer.decode(generation.tokens[0]) == published);
  CHECK(generation.tokens[0].size() == 257);
}

TEST_CASE("prompts that begin alike share blocks, part in copies, and give the text that each gives alone") {
  const auto model = load();
  if (!model) return;
  const int steps = 48;
  const std::vector<std::string> texts = {"Once upon a time, there was a dog", "Once upon a time, there was a cat named Tim",
                                          "Lily", "Once upon a time, there was a dog", ""};
  const Generation together = generate(*model, texts, steps, hpa::DType::f16, 16);
  CHECK(together.shared_tokens >= 16);
  CHECK(together.copied_blocks > 0);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CAPTURE(texts[i]);
    CHECK(together.tokens[i] == generate(*model, {texts[i]}, steps, hpa::DType::f16, 16).tokens[0]);
  }
  CHECK(published.compare(0, 60, model->tokenizer.decode(together.tokens[4]), 0, 60) == 0);
}

TEST_CASE("text survives encoding, bytes without a token of their own included") {
  const auto model = load();
  if (!model) return;
  for (const char* const text :
       {"", "a", " two  spaces ", "Once upon a time", "line\nline", "\xe6\x97\xa5\xe6\x9c\xac", "\xff\x80 broken"}) {
    CAPTURE(text);
    CHECK(model->tokenizer.decode(model->tokenizer.encode(text)) == text);
  }
}

TEST_CASE("a file that is no checkpoint or tokenizer is refused by name") {
  const auto model = load();
  if (!model) return;
  const std::string folder = std::getenv("HPA_TEST_DATA");
  CHECK_THROWS_WITH(load_checkpoint(folder + "/none"), Catch::Matchers::EndsWith("cannot be opened"));
  CHECK_THROWS_WITH(load_checkpoint(folder + "/azure_llm_code_2023.csv"),
                    Catch::Matchers::StartsWith(folder + "/azure_llm_code_2023.csv: not a llama2.c checkpoint"));
  CHECK_THROWS_WITH(Tokenizer(folder + "/tok512.bin", 513), Catch::Matchers::EndsWith("ends in token 512 of 513"));
}
