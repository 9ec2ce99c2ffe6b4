// The workloads by name: what one layer's decode step looks like.
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ragged_lengths.hpp"

namespace bench {

struct Workload {
  std::string name;
  int num_heads = 0, num_kv_heads = 0, head_size = 128;
  std::vector<int> seq_lens;
  bool fp8 = false;  // KV
};

inline std::vector<int> same(int sequences, int tokens) { return std::vector<int>(std::size_t(sequences), tokens); }

inline std::vector<Workload> named_workloads() {
  return {
      {"W1a", 32, 8, 128, same(64, 2048)},
      {"W1b", 32, 8, 128, same(64, 4096)},
      {"W2a", 8, 1, 128, same(32, 8192)},
      {"W2b", 32, 4, 128, same(32, 8192)},
      {"W3a", 32, 8, 128, same(1, 32768)},
      {"W3b", 32, 8, 128, same(1, 131072)},
      {"W4", 32, 8, 128, {ragged_lengths.begin(), ragged_lengths.end()}},
      {"W5", 32, 32, 128, same(32, 2048)},
      {"W6a", 128, 8, 128, same(64, 4096)},
      {"W6b", 64, 8, 64, same(64, 4096)},
      {"W7a", 32, 8, 128, same(64, 2048), true},
      {"W7b", 32, 8, 128, same(64, 4096), true},
      {"W8a", 32, 8, 128, same(1, 512)},
      {"W8b", 32, 8, 128, same(8, 512)},
  };
}

/// 32/8x128 by tokens and by sequences, in powers of two.
inline std::vector<Workload> sweeps() {
  std::vector<Workload> all;
  for (int tokens = 128; tokens <= 131072; tokens *= 2) all.push_back({"tokens:" + std::to_string(tokens), 32, 8, 128, same(16, tokens), false});
  for (int sequences = 1; sequences <= 256; sequences *= 2)
    all.push_back({"sequences:" + std::to_string(sequences), 32, 8, 128, same(sequences, 2048), false});
  return all;
}

/// "HEADS/KV_HEADSxHEAD_SIZE,SEQUENCES,TOKENS", as in 32/8x128,64,2048.
inline Workload parse_workload(const std::string& text) {
  Workload workload;
  int sequences = 0, tokens = 0;
  if (std::sscanf(text.c_str(), "%d/%dx%d,%d,%d", &workload.num_heads, &workload.num_kv_heads, &workload.head_size, &sequences,
                  &tokens) != 5 ||
      sequences <= 0 || tokens <= 0)
    throw std::invalid_argument("a shape is HEADS/KV_HEADSxHEAD_SIZE,SEQUENCES,TOKENS: " + text);
  workload.name = text;
  workload.seq_lens = same(sequences, tokens);
  return workload;
}

}  // namespace bench
