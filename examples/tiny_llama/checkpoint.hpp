// Reads llama2.c's legacy checkpoint: seven int32 of configuration, then float32 weights, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace examples {

struct LlamaConfig {
  int dim = 0, hidden_dim = 0, layers = 0, heads = 0, kv_heads = 0, vocab_size = 0, max_seq_len = 0;

  int head_size() const { return dim / heads; }
  int kv_dim() const { return kv_heads * head_size(); }
};

/// Weights of a layer; matrices are [outputs, inputs].
struct LayerWeights {
  const float* attention_norm;  // [dim]
  const float* wq;              // [dim, dim]
  const float *wk, *wv;         // [kv_dim, dim]
  const float* wo;              // [dim, dim]
  const float* ffn_norm;        // [dim]
  const float* w1;              // [hidden_dim, dim]
  const float* w2;              // [dim, hidden_dim]
  const float* w3;              // [hidden_dim, dim]
};

/// A checkpoint in memory. Not copied: the pointers are into `data`.
struct Checkpoint {
  Checkpoint() = default;
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;

  LlamaConfig config;
  const float* token_embedding = nullptr;  // [vocab_size, dim]
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;  // [dim]
  const float* classifier = nullptr;  // [vocab_size, dim]
  std::vector<float> data;
};

namespace checkpoint_detail {

constexpr int header_ints = 7;
constexpr int largest = 1 << 18;  // of any header entry: the size in bytes then fits 64 bits

inline void require_valid(const LlamaConfig& c, const std::string& path) {
  const auto require = [&](bool holds, const char* what) {
    if (!holds) throw std::runtime_error(path + ": not a llama2.c checkpoint: " + what);
  };
  for (const int value : {c.dim, c.hidden_dim, c.layers, c.heads, c.kv_heads, c.vocab_size, c.max_seq_len}) {
    require(value > 0 && value <= largest, "a count in the header is out of range");
  }
  require(c.dim % c.heads == 0, "the number of heads does not divide the dimension");
  require(c.heads % c.kv_heads == 0, "the number of KV heads does not divide the number of heads");
  require(c.head_size() % 2 == 0, "the head size is odd");
}

/// Floats in the file's order: all layers of one tensor lie together.
inline std::int64_t count_floats(const LlamaConfig& c, bool own_classifier) {
  const std::int64_t dim = c.dim, hidden = c.hidden_dim, kv = c.kv_dim();
  const std::int64_t layer = dim + 2 * dim * dim + 2 * dim * kv + dim + 3 * dim * hidden;
  const std::int64_t rope_tables = std::int64_t{c.max_seq_len} * c.head_size();
  return c.vocab_size * dim * (own_classifier ? 2 : 1) + c.layers * layer + dim + rope_tables;
}

inline void set_pointers(Checkpoint& checkpoint, bool own_classifier) {
  const LlamaConfig& c = checkpoint.config;
  const std::size_t dim = std::size_t(c.dim), hidden = std::size_t(c.hidden_dim), kv = std::size_t(c.kv_dim());
  const float* next = checkpoint.data.data();
  checkpoint.layers.resize(std::size_t(c.layers));
  const auto take = [&](std::size_t count) { return std::exchange(next, next + count); };
  const auto take_layers = [&](const float* LayerWeights::*tensor, std::size_t count) {
    for (LayerWeights& layer : checkpoint.layers) layer.*tensor = take(count);
  };
  checkpoint.token_embedding = take(std::size_t(c.vocab_size) * dim);
  take_layers(&LayerWeights::attention_norm, dim);
  take_layers(&LayerWeights::wq, dim * dim);
  take_layers(&LayerWeights::wk, kv * dim);
  take_layers(&LayerWeights::wv, kv * dim);
  take_layers(&LayerWeights::wo, dim * dim);
  take_layers(&LayerWeights::ffn_norm, dim);
  take_layers(&LayerWeights::w1, hidden * dim);
  take_layers(&LayerWeights::w2, dim * hidden);
  take_layers(&LayerWeights::w3, hidden * dim);
  checkpoint.final_norm = take(dim);
  take(std::size_t(c.max_seq_len) * std::size_t(c.head_size()));  // RoPE tables, which are computed anew
  checkpoint.classifier = own_classifier ? take(std::size_t(c.vocab_size) * dim) : checkpoint.token_embedding;
}

}  // namespace checkpoint_detail

inline Checkpoint load_checkpoint(const std::string& path) {
  namespace detail = checkpoint_detail;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be opened");
  std::int32_t header[detail::header_ints];
  if (!file.read(reinterpret_cast<char*>(header), sizeof header))
    throw std::runtime_error(path + ": too short for a checkpoint's header");

  Checkpoint checkpoint;
  const bool own_classifier = header[5] < 0;  // a negative vocabulary size says so
  const std::int64_t vocab_size = own_classifier ? -std::int64_t{header[5]} : header[5];
  if (vocab_size > detail::largest) throw std::runtime_error(path + ": not a llama2.c checkpoint: vocabulary size out of range");
  checkpoint.config = {header[0], header[1], header[2], header[3], header[4], int(vocab_size), header[6]};
  detail::require_valid(checkpoint.config, path);

  const std::int64_t floats = detail::count_floats(checkpoint.config, own_classifier);
  const auto expected = std::uintmax_t(floats) * sizeof(float) + sizeof header, actual = std::filesystem::file_size(path);
  if (actual != expected) {
    throw std::runtime_error(path + ": " + std::to_string(actual) + " bytes, but its header asks for " + std::to_string(expected));
  }
  checkpoint.data.resize(std::size_t(floats));
  if (!file.read(reinterpret_cast<char*>(checkpoint.data.data()), std::streamsize(checkpoint.data.size() * sizeof(float)))) {
    throw std::runtime_error(path + ": cannot be read");
  }
  detail::set_pointers(checkpoint, own_classifier);
  return checkpoint;
}

}  // namespace examples
