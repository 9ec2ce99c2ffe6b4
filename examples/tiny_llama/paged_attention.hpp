// Attention of a model whose arithmetic is float32 on the host: rounds query, K and V to the cache's type, pads heads to a size
// that has a kernel, and calls the library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "../device_memory.hpp"
#include "../require.hpp"
#include "hpa/hpa.hpp"

namespace examples {

struct AttentionConfig {
  int layers = 0, heads = 0, kv_heads = 0, head_size = 0;
  int max_seqs = 0, max_seq_len = 0;
  int num_blocks = 0;  // of each layer's cache
  int block_size = 16;
  hpa::DType type = hpa::DType::f16;
};

/// The sequences of a step, one query row each.
struct AttentionStep {
  std::vector<std::int32_t> lengths;            // tokens, this step's included
  std::vector<const std::vector<int>*> tables;  // block ids
  std::vector<std::int64_t> slots;              // where this step's tokens go
  std::vector<std::int64_t> copies;             // (source, destination) pairs, carried out first
};

class PagedAttention {
 public:
  explicit PagedAttention(const AttentionConfig& config)
      : config_(config),
        shape_(make_shape(config)),
        table_width_((config.max_seq_len + config.block_size - 1) / config.block_size),
        keys_(layer_bytes() * std::size_t(config.layers)),
        values_(layer_bytes() * std::size_t(config.layers)),
        query_(row_bytes(config.heads)),
        new_key_(row_bytes(config.kv_heads)),
        new_value_(row_bytes(config.kv_heads)),
        out_(row_bytes(config.heads)),
        tables_(std::size_t(config.max_seqs) * std::size_t(table_width_)),
        lengths_(std::size_t(config.max_seqs)),
        slots_(std::size_t(config.max_seqs)),
        copies_(2 * std::size_t(config.max_seqs)),
        workspace_(hpa::workspace_bytes(shape_, device())) {}

  /// What all layers of a step have in common: block copies, tables, lengths, and the plan.
  void begin_step(const AttentionStep& step) {
    num_seqs_ = int(step.lengths.size());
    copy_blocks(step.copies);
    std::vector<std::int32_t> tables(step.tables.size() * std::size_t(table_width_), -1);
    for (std::size_t i = 0; i < step.tables.size(); ++i) {
      std::copy(step.tables[i]->begin(), step.tables[i]->end(), tables.begin() + std::ptrdiff_t(i) * table_width_);
    }
    tables_.upload(tables, stream_);
    lengths_.upload(step.lengths, stream_);
    slots_.upload(step.slots, stream_);
    require(hpa::plan(shape_, decode_args(0).batch, workspace(), stream_), "plan");
  }

  /// Rows of all sequences, [num_seqs, heads, head_size]: appends key and value, then attends.
  std::vector<float> attend(int layer, const std::vector<float>& query, const std::vector<float>& key,
                            const std::vector<float>& value) {
    query_.upload(padded(query), stream_);
    new_key_.upload(padded(key), stream_);
    new_value_.upload(padded(value), stream_);
    hpa::AppendArgs append;
    append.new_keys = new_key_.data();
    append.new_values = new_value_.data();
    append.cache.keys = layer_cache(keys_, layer);
    append.cache.values = layer_cache(values_, layer);
    append.slot_mapping = slots_.data();
    append.num_tokens = num_seqs_;
    require(hpa::append(shape_, append, stream_), "append");
    require(hpa::decode(shape_, decode_args(layer), workspace(), stream_), "decode");
    return unpadded(out_.download(0, std::size_t(num_seqs_ * config_.heads) * head_bytes(), stream_));
  }

  void end_step() { require(hpa::workspace_error(workspace(), stream_), "workspace_error"); }

 private:
  static hpa::Device device() {
    hpa::Device device;
    require(hpa::current_device(&device), "current_device");
    return device;
  }

  static hpa::DecodeShape make_shape(const AttentionConfig& config) {
    if (config.head_size > 128) throw std::runtime_error("the model's head size is above 128, the largest there is a kernel for");
    hpa::DecodeShape shape;
    shape.query = shape.kv = shape.out = config.type;
    shape.head_size = config.head_size <= 64 ? 64 : 128;
    shape.block_size = config.block_size;
    shape.num_heads = config.heads;
    shape.num_kv_heads = config.kv_heads;
    shape.max_seqs = config.max_seqs;
    shape.max_seq_len = config.max_seq_len;
    require(hpa::check(shape, device()), "check");
    return shape;
  }

  hpa::DecodeArgs decode_args(int layer) {
    hpa::DecodeArgs args;
    args.query = query_.data();
    args.cache.keys = layer_cache(keys_, layer);
    args.cache.values = layer_cache(values_, layer);
    args.out = out_.data();
    args.batch.block_tables = tables_.data();
    args.batch.seq_lens = lengths_.data();
    args.batch.num_seqs = num_seqs_;
    args.batch.block_table_width = table_width_;
    args.scale = 1.f / std::sqrt(float(config_.head_size));  // of the model's heads; padding adds nothing to a product
    return args;
  }

  void copy_blocks(const std::vector<std::int64_t>& pairs) {
    if (pairs.empty()) return;
    copies_.upload(pairs, stream_);
    for (int layer = 0; layer < config_.layers; ++layer) {
      hpa::CopyBlocksArgs args;
      args.cache.keys = layer_cache(keys_, layer);
      args.cache.values = layer_cache(values_, layer);
      args.block_pairs = copies_.data();
      args.num_pairs = int(pairs.size() / 2);
      require(hpa::copy_blocks(shape_, args, stream_), "copy_blocks");
    }
  }

  /// Heads of head_size floats -> heads of shape_.head_size elements, the rest 0.
  std::vector<std::byte> padded(const std::vector<float>& heads) const {
    const std::size_t size = std::size_t(config_.head_size), count = heads.size() / size;
    std::vector<std::byte> elements(count * head_bytes());
    for (std::size_t i = 0; i < heads.size(); ++i) {
      hpa::store_element(config_.type, elements.data(), std::int64_t(i / size) * shape_.head_size + std::int64_t(i % size),
                         heads[i]);
    }
    return elements;
  }
  std::vector<float> unpadded(const std::vector<std::byte>& elements) const {
    const std::size_t size = std::size_t(config_.head_size), count = elements.size() / head_bytes();
    std::vector<float> heads(count * size);
    for (std::size_t i = 0; i < heads.size(); ++i) {
      heads[i] =
          hpa::load_element(config_.type, elements.data(), std::int64_t(i / size) * shape_.head_size + std::int64_t(i % size));
    }
    return heads;
  }

  std::size_t head_bytes() const { return std::size_t(shape_.head_size) * std::size_t(hpa::size_of(shape_.kv)); }
  std::size_t row_bytes(int heads) const { return std::size_t(config_.max_seqs) * std::size_t(heads) * head_bytes(); }
  std::size_t layer_bytes() const {
    return std::size_t(config_.num_blocks) * std::size_t(config_.kv_heads) * std::size_t(config_.block_size) * head_bytes();
  }
  std::byte* layer_cache(DeviceArray<std::byte>& caches, int layer) { return caches.data() + std::size_t(layer) * layer_bytes(); }
  hpa::Workspace workspace() { return {workspace_.data(), workspace_.bytes()}; }

  AttentionConfig config_;
  hpa::DecodeShape shape_;
  int table_width_;
  int num_seqs_ = 0;
  DeviceStream stream_;
  DeviceArray<std::byte> keys_, values_;        // [layers, num_blocks, ...]
  DeviceArray<std::byte> query_;                // [max_seqs, heads, padded head size]
  DeviceArray<std::byte> new_key_, new_value_;  // [max_seqs, kv_heads, padded head size]
  DeviceArray<std::byte> out_;                  // as query_
  DeviceArray<std::int32_t> tables_, lengths_;  // [max_seqs, table_width], [max_seqs]
  DeviceArray<std::int64_t> slots_, copies_;    // [max_seqs], [max_seqs, 2]
  DeviceArray<std::byte> workspace_;
};

}  // namespace examples
