// Greedy generation for a batch of prompts that share the blocks of what they have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "llama.hpp"
#include "shared_blocks.hpp"
#include "tokenizer.hpp"

namespace examples {

struct Generation {
  std::vector<std::vector<int>> tokens;  // of each prompt: the prompt, then what follows, without the BOS that ends it
  std::int64_t steps = 0;
  std::int64_t computed_tokens = 0;  // went through the model
  std::int64_t shared_tokens = 0;    // were there already, from another prompt
  std::int64_t copied_blocks = 0;    // copied before a write, in each layer
};

/// Where a prompt begins: with the first `tokens` tokens of an earlier prompt.
struct PromptFork {
  int parent = -1;  // -1 = with nothing
  int tokens = 0;
};

/// The earlier prompt with most in common. At least one token stays to be computed: its logits are needed.
inline PromptFork best_fork(const std::vector<std::vector<int>>& prompts, int child) {
  const std::vector<int>& own = prompts[std::size_t(child)];
  PromptFork best;
  for (int parent = 0; parent < child; ++parent) {
    const std::vector<int>& other = prompts[std::size_t(parent)];
    const auto differs = std::mismatch(own.begin(), own.end() - 1, other.begin(), other.end()).first;
    if (differs - own.begin() > best.tokens) best = {parent, int(differs - own.begin())};
  }
  return best;
}

/// Each prompt is BOS and the tokens of its text. Each sequence stops at BOS or after `steps` tokens. `model` must be made for
/// prompts.size() sequences and blocks_for() blocks.
class Generator {
 public:
  static int blocks_for(int prompts, int max_seq_len, int block_size) {
    return prompts * ((max_seq_len + block_size - 1) / block_size);
  }

  Generator(Llama& model, std::vector<std::vector<int>> prompts, int steps, int block_size)
      : model_(model),
        steps_(std::min(steps, model.config().max_seq_len)),
        blocks_(blocks_for(int(prompts.size()), model.config().max_seq_len, block_size), block_size, int(prompts.size())),
        state_(prompts.size(), State::waiting) {
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (int(prompts[i].size()) > steps_) {
        throw std::runtime_error("prompt " + std::to_string(i + 1) + " has " + std::to_string(prompts[i].size()) +
                                 " tokens, more than the " + std::to_string(steps_) + " steps");
      }
      forks_.push_back(best_fork(prompts, int(i)));
    }
    result_.tokens = std::move(prompts);
  }

  Generation run() {
    start_waiting();
    while (std::count(state_.begin(), state_.end(), State::running) > 0) step();
    return std::move(result_);
  }

 private:
  enum class State { waiting, running, done };

  std::vector<int> running() const {
    std::vector<int> sequences;
    for (std::size_t i = 0; i < state_.size(); ++i) {
      if (state_[i] == State::running) sequences.push_back(int(i));
    }
    return sequences;
  }

  /// One more token in the cache of every running sequence.
  void step() {
    const std::vector<int> sequences = running();
    std::vector<int> tokens;
    AttentionStep step;
    for (const int sequence : sequences) {
      tokens.push_back(result_.tokens[std::size_t(sequence)][std::size_t(blocks_.length(sequence))]);
      step.slots.push_back(blocks_.append(sequence, step.copies));
      step.lengths.push_back(blocks_.length(sequence));
      step.tables.push_back(&blocks_.table(sequence));
    }
    const std::vector<float> logits = model_.forward(tokens, step);
    for (std::size_t row = 0; row < sequences.size(); ++row) {
      const auto first = logits.begin() + std::ptrdiff_t(row) * model_.config().vocab_size;
      advance(sequences[row], int(std::max_element(first, first + model_.config().vocab_size) - first));
    }
    start_waiting();  // before the blocks of those that are done are gone
    for (const int sequence : sequences) {
      if (state_[std::size_t(sequence)] == State::done) blocks_.release(sequence);
    }
    ++result_.steps;
    result_.computed_tokens += std::int64_t(sequences.size());
    result_.copied_blocks += std::int64_t(step.copies.size() / 2);
  }

  /// `likeliest` follows when the prompt is at its end.
  void advance(int sequence, int likeliest) {
    std::vector<int>& tokens = result_.tokens[std::size_t(sequence)];
    const bool past_prompt = blocks_.length(sequence) == int(tokens.size()), ended = past_prompt && likeliest == Tokenizer::bos;
    if (past_prompt && !ended) tokens.push_back(likeliest);
    if (ended || blocks_.length(sequence) >= steps_) state_[std::size_t(sequence)] = State::done;
  }

  /// Starts the sequences whose parent has come far enough.
  void start_waiting() {
    for (std::size_t i = 0; i < state_.size(); ++i) {
      const PromptFork& fork = forks_[i];
      if (state_[i] != State::waiting) continue;
      if (fork.parent >= 0 && blocks_.length(fork.parent) < fork.tokens) continue;
      if (fork.parent >= 0) blocks_.fork(fork.parent, int(i), fork.tokens);
      result_.shared_tokens += fork.tokens;
      state_[i] = State::running;
    }
  }

  Llama& model_;
  int steps_;
  SharedBlocks blocks_;
  std::vector<PromptFork> forks_;
  std::vector<State> state_;
  Generation result_;
};

}  // namespace examples
