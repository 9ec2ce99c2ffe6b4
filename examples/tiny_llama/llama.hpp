// The Llama architecture in float32: everything but attention on the host, in the plainest code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "checkpoint.hpp"
#include "paged_attention.hpp"

namespace examples {

namespace llama_detail {

/// out[o] = sum over i of weights[o, i] * in[i], for each of the rows of `in`.
inline std::vector<float> matmul(const float* weights, const std::vector<float>& in, int inputs, int outputs) {
  const std::size_t rows = in.size() / std::size_t(inputs);
  std::vector<float> out(rows * std::size_t(outputs));
  for (std::size_t row = 0; row < rows; ++row) {
    for (int o = 0; o < outputs; ++o) {
      const float* const x = &in[row * std::size_t(inputs)];
      const float* const w = weights + std::ptrdiff_t(o) * inputs;
      float sum = 0;
      for (int i = 0; i < inputs; ++i) sum += w[i] * x[i];
      out[row * std::size_t(outputs) + std::size_t(o)] = sum;
    }
  }
  return out;
}

inline std::vector<float> rms_norm(const float* weights, std::vector<float> rows, int dim) {
  for (std::size_t begin = 0; begin < rows.size(); begin += std::size_t(dim)) {
    float squares = 0;
    for (int i = 0; i < dim; ++i) squares += rows[begin + std::size_t(i)] * rows[begin + std::size_t(i)];
    const float scale = 1.f / std::sqrt(squares / float(dim) + 1e-5f);
    for (int i = 0; i < dim; ++i) rows[begin + std::size_t(i)] *= scale * weights[i];
  }
  return rows;
}

/// Rotates the pairs (2i, 2i + 1) of every head by position * 10000^(-2i / head_size).
inline void rotate(std::vector<float>& rows, const std::vector<int>& positions, int head_size) {
  const std::size_t row_size = rows.size() / positions.size();
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    const int element = int(i % row_size) % head_size;
    const float angle = float(positions[i / row_size]) * std::pow(10000.f, -float(element) / float(head_size));
    const float cosine = std::cos(angle), sine = std::sin(angle), a = rows[i], b = rows[i + 1];
    rows[i] = a * cosine - b * sine;
    rows[i + 1] = a * sine + b * cosine;
  }
}

inline void add(std::vector<float>& to, const std::vector<float>& values) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += values[i];
}

/// SwiGLU: silu(gate) * up.
inline void gate(std::vector<float>& gates, const std::vector<float>& up) {
  for (std::size_t i = 0; i < gates.size(); ++i) gates[i] = gates[i] / (1.f + std::exp(-gates[i])) * up[i];
}

}  // namespace llama_detail

class Llama {
 public:
  /// The checkpoint must outlive the model.
  Llama(const Checkpoint& checkpoint, int max_seqs, int num_blocks, int block_size, hpa::DType type)
      : checkpoint_(checkpoint),
        attention_({checkpoint.config.layers, checkpoint.config.heads, checkpoint.config.kv_heads, checkpoint.config.head_size(),
                    max_seqs, checkpoint.config.max_seq_len, num_blocks, block_size, type}) {}

  /// One token for each sequence of the step; logits [sequences, vocab_size].
  std::vector<float> forward(const std::vector<int>& tokens, const AttentionStep& step) {
    namespace detail = llama_detail;
    const LlamaConfig& c = checkpoint_.config;
    std::vector<float> x;
    std::vector<int> positions;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const float* const embedding = checkpoint_.token_embedding + std::ptrdiff_t(tokens[i]) * c.dim;
      x.insert(x.end(), embedding, embedding + c.dim);
      positions.push_back(step.lengths[i] - 1);
    }
    attention_.begin_step(step);
    for (int layer = 0; layer < c.layers; ++layer) {
      detail::add(x, attention_block(layer, x, positions));
      detail::add(x, feed_forward_block(checkpoint_.layers[std::size_t(layer)], x));
    }
    attention_.end_step();
    return detail::matmul(checkpoint_.classifier, detail::rms_norm(checkpoint_.final_norm, std::move(x), c.dim), c.dim,
                          c.vocab_size);
  }

  const LlamaConfig& config() const { return checkpoint_.config; }

 private:
  std::vector<float> attention_block(int layer, const std::vector<float>& x, const std::vector<int>& positions) {
    namespace detail = llama_detail;
    const LlamaConfig& c = checkpoint_.config;
    const LayerWeights& w = checkpoint_.layers[std::size_t(layer)];
    const std::vector<float> normed = detail::rms_norm(w.attention_norm, x, c.dim);
    std::vector<float> query = detail::matmul(w.wq, normed, c.dim, c.dim), key = detail::matmul(w.wk, normed, c.dim, c.kv_dim());
    const std::vector<float> value = detail::matmul(w.wv, normed, c.dim, c.kv_dim());
    detail::rotate(query, positions, c.head_size());
    detail::rotate(key, positions, c.head_size());
    return detail::matmul(w.wo, attention_.attend(layer, query, key, value), c.dim, c.dim);
  }

  std::vector<float> feed_forward_block(const LayerWeights& w, const std::vector<float>& x) const {
    namespace detail = llama_detail;
    const LlamaConfig& c = checkpoint_.config;
    const std::vector<float> normed = detail::rms_norm(w.ffn_norm, x, c.dim);
    std::vector<float> gates = detail::matmul(w.w1, normed, c.dim, c.hidden_dim);
    detail::gate(gates, detail::matmul(w.w3, normed, c.dim, c.hidden_dim));
    return detail::matmul(w.w2, gates, c.hidden_dim, c.dim);
  }

  const Checkpoint& checkpoint_;
  PagedAttention attention_;
};

}  // namespace examples
