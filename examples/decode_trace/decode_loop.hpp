// A continuous-batching decode loop with everything but the model: the scheduler's blocks, random K, V and queries of the model's
// shape, the library's append, plan and decode, and a check of some rows in each step against the reference.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "../device_memory.hpp"
#include "../require.hpp"
#include "hpa/hpa.hpp"
#include "reference_check.hpp"
#include "scheduler.hpp"

namespace examples {

struct LoopConfig {
  hpa::DecodeShape shape;  // max_seqs = the largest batch
  int layers = 1;
  int num_blocks = 0;            // of each layer's cache
  int blocks_per_prefix_id = 0;  // 0 = prompts share nothing
  int check_every = 1;           // steps; 0 = never
  int check_rows = 2;            // rows of a checked step
  std::uint64_t seed = 1;
};

struct LoopTotals {
  std::int64_t steps = 0, tokens = 0;
  double kv_bytes_read = 0;      // K and V of all tokens that a query saw
  double attention_seconds = 0;  // upload, plan, and append and decode of all layers
  std::int64_t rows_checked = 0;
  double worst_error = 0;         // relative L2
  std::int32_t worst_length = 0;  // of the sequence it was in
  int largest_batch = 0;
  std::int32_t longest = 0;  // sequence

  double per_second(double amount) const { return attention_seconds > 0 ? amount / attention_seconds : 0; }
};

class DecodeLoop {
 public:
  DecodeLoop(const LoopConfig& config, std::vector<Request> requests)
      : config_(config),
        shape_(supported(config.shape)),
        scheduler_(std::move(requests),
                   {shape_.max_seqs, shape_.block_size, config.num_blocks, shape_.max_seq_len, config.blocks_per_prefix_id},
                   unsigned(config.seed)),
        random_(config.seed),
        table_width_((shape_.max_seq_len + shape_.block_size - 1) / shape_.block_size),
        pool_tokens_(std::max(2 * shape_.max_seqs, 1024)),
        keys_(cache_bytes()),
        values_(cache_bytes()),
        new_keys_(random_elements(std::size_t(pool_tokens_) * token_elements(), 1.f), stream_),
        new_values_(random_elements(std::size_t(pool_tokens_) * token_elements(), 1.f), stream_),
        // Larger than normal, so that a few tokens stand out and each of them matters.
        queries_(random_elements(std::size_t(2 * shape_.max_seqs) * row_elements(), 2.f), stream_),
        out_(row_bytes() * std::size_t(shape_.max_seqs)),
        checked_out_(row_bytes() * std::size_t(shape_.max_seqs)),
        tables_(std::size_t(shape_.max_seqs) * std::size_t(table_width_)),
        lengths_(std::size_t(shape_.max_seqs)),
        token_slots_(std::size_t(shape_.max_seqs)),
        prompt_slots_(std::size_t(pool_tokens_)),
        workspace_(hpa::workspace_bytes(shape_, this_device())) {
    keys_.fill(0xff, stream_);  // NaN in every type: a slot that is read before it is written shows
    values_.fill(0xff, stream_);
  }

  /// One token for every running sequence. False when no request is left.
  bool step() {
    if (!scheduler_.begin_step()) return false;
    fill_prompts();
    const bool check = config_.check_every > 0 && totals_.steps % config_.check_every == 0 && config_.check_rows > 0;
    const StepChoice choice = choose(check);
    const auto start = std::chrono::steady_clock::now();
    upload_step();
    run_layers(choice);
    stream_.synchronize();
    totals_.attention_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    require(hpa::workspace_error(workspace(), stream_), "workspace_error");
    if (check) check_rows(choice);
    count_step();
    scheduler_.end_step();
    return true;
  }

  const LoopTotals& totals() const { return totals_; }
  const Scheduler& scheduler() const { return scheduler_; }
  std::size_t workspace_bytes() const { return workspace_.bytes(); }
  std::size_t cache_bytes_total() const { return keys_.bytes() + values_.bytes(); }

 private:
  /// The random part of a step: which rows of the pools the layers use, and which layer is checked.
  struct StepChoice {
    std::vector<int> first_token, first_query;  // of each layer, in the pools
    int checked_layer = -1;                     // -1 = none
  };

  static hpa::Device this_device() {
    hpa::Device device;
    require(hpa::current_device(&device), "current_device");
    return device;
  }
  static const hpa::DecodeShape& supported(const hpa::DecodeShape& shape) {
    require(hpa::check(shape, this_device()), "check");
    return shape;
  }

  std::size_t element_bytes() const { return std::size_t(hpa::size_of(shape_.query)); }
  std::size_t token_elements() const { return std::size_t(shape_.num_kv_heads) * std::size_t(shape_.head_size); }
  std::size_t row_elements() const { return std::size_t(shape_.num_heads) * std::size_t(shape_.head_size); }
  std::size_t row_bytes() const { return row_elements() * element_bytes(); }
  std::size_t block_bytes() const {
    return token_elements() * std::size_t(shape_.block_size) * std::size_t(hpa::size_of(shape_.kv));
  }
  std::size_t layer_bytes() const { return block_bytes() * std::size_t(config_.num_blocks); }
  std::size_t cache_bytes() const { return layer_bytes() * std::size_t(config_.layers); }
  hpa::Workspace workspace() { return {workspace_.data(), workspace_.bytes()}; }
  int random_below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }

  std::vector<std::byte> random_elements(std::size_t count, float deviation) {
    std::normal_distribution<float> normal(0.f, deviation);
    std::vector<std::byte> elements(count * element_bytes());
    for (std::size_t i = 0; i < count; ++i) hpa::store_element(shape_.query, elements.data(), std::int64_t(i), normal(random_));
    return elements;
  }

  /// K and V of `count` tokens, from the pools, to the slots.
  void append(int layer, int first_token, const std::int64_t* slots, int count) {
    const std::size_t first_byte = std::size_t(first_token) * token_elements() * element_bytes();
    hpa::AppendArgs args;
    args.new_keys = new_keys_.data() + first_byte;
    args.new_values = new_values_.data() + first_byte;
    args.cache.keys = keys_.data() + std::size_t(layer) * layer_bytes();
    args.cache.values = values_.data() + std::size_t(layer) * layer_bytes();
    args.slot_mapping = slots;
    args.num_tokens = count;
    require(hpa::append(shape_, args, stream_), "append");
  }

  /// What a prefill would do: K and V of the prompts that begin in this step.
  void fill_prompts() {
    const std::vector<std::int64_t>& slots = scheduler_.prompt_slots();
    for (std::size_t done = 0; done < slots.size();) {
      const int count = int(std::min(slots.size() - done, std::size_t(pool_tokens_) / 2));
      const auto first = slots.begin() + std::ptrdiff_t(done);
      prompt_slots_.upload(std::vector<std::int64_t>(first, first + count), stream_);
      for (int layer = 0; layer < config_.layers; ++layer) {
        append(layer, random_below(pool_tokens_ - count), prompt_slots_.data(), count);
      }
      done += std::size_t(count);
    }
    stream_.synchronize();  // prompts are not part of the step's time
  }

  /// Block tables, lengths and the slots of the new tokens. Table entries without a block are -1.
  void upload_step() {
    const std::vector<Sequence>& running = scheduler_.running();
    std::vector<std::int32_t> tables(running.size() * std::size_t(table_width_), -1), lengths;
    std::vector<std::int64_t> slots;
    for (std::size_t i = 0; i < running.size(); ++i) {
      std::copy(running[i].blocks.begin(), running[i].blocks.end(), tables.begin() + std::ptrdiff_t(i) * table_width_);
      lengths.push_back(std::int32_t(running[i].length));
      slots.push_back(scheduler_.slot(running[i], running[i].length - 1));
    }
    tables_.upload(tables, stream_);
    lengths_.upload(lengths, stream_);
    token_slots_.upload(slots, stream_);
  }

  StepChoice choose(bool check) {
    StepChoice choice;
    const int batch = int(scheduler_.running().size());
    for (int layer = 0; layer < config_.layers; ++layer) {
      choice.first_token.push_back(random_below(pool_tokens_ - batch));
      choice.first_query.push_back(random_below(2 * shape_.max_seqs - batch + 1));
    }
    if (check) choice.checked_layer = random_below(config_.layers);
    return choice;
  }

  hpa::DecodeArgs decode_args(int layer, const StepChoice& choice) {
    hpa::DecodeArgs args;
    args.query = queries_.data() + std::size_t(choice.first_query[std::size_t(layer)]) * row_bytes();
    args.cache.keys = keys_.data() + std::size_t(layer) * layer_bytes();
    args.cache.values = values_.data() + std::size_t(layer) * layer_bytes();
    args.out = layer == choice.checked_layer ? checked_out_.data() : out_.data();
    args.batch.block_tables = tables_.data();
    args.batch.seq_lens = lengths_.data();
    args.batch.num_seqs = int(scheduler_.running().size());
    args.batch.block_table_width = table_width_;
    return args;
  }

  void run_layers(const StepChoice& choice) {
    require(hpa::plan(shape_, decode_args(0, choice).batch, workspace(), stream_), "plan");
    for (int layer = 0; layer < config_.layers; ++layer) {
      append(layer, choice.first_token[std::size_t(layer)], token_slots_.data(), int(scheduler_.running().size()));
      require(hpa::decode(shape_, decode_args(layer, choice), workspace(), stream_), "decode");
    }
  }

  void check_rows(const StepChoice& choice) {
    for (int i = 0; i < config_.check_rows; ++i) {
      const int row = random_below(int(scheduler_.running().size())), head = random_below(shape_.num_heads);
      SequenceCopy copy = download(row, choice);
      const std::size_t head_bytes = std::size_t(shape_.head_size) * element_bytes();
      const auto out = checked_out_.download(std::size_t(row) * row_bytes() + std::size_t(head) * head_bytes, head_bytes, stream_);
      const double error = row_error(shape_, copy, head, out.data());
      ++totals_.rows_checked;
      if (error > totals_.worst_error) {
        totals_.worst_error = error;
        totals_.worst_length = copy.length;
      }
    }
  }

  SequenceCopy download(int row, const StepChoice& choice) const {
    const Sequence& sequence = scheduler_.running()[std::size_t(row)];
    SequenceCopy copy;
    copy.length = std::int32_t(sequence.length);
    const int first_query = choice.first_query[std::size_t(choice.checked_layer)];
    copy.query = queries_.download(std::size_t(first_query + row) * row_bytes(), row_bytes(), stream_);
    for (const int block : sequence.blocks) {
      const std::size_t first = std::size_t(choice.checked_layer) * layer_bytes() + std::size_t(block) * block_bytes();
      const auto keys = keys_.download(first, block_bytes(), stream_), values = values_.download(first, block_bytes(), stream_);
      copy.keys.insert(copy.keys.end(), keys.begin(), keys.end());
      copy.values.insert(copy.values.end(), values.begin(), values.end());
    }
    return copy;
  }

  void count_step() {
    const std::vector<Sequence>& running = scheduler_.running();
    ++totals_.steps;
    totals_.tokens += std::int64_t(running.size());
    totals_.largest_batch = std::max(totals_.largest_batch, int(running.size()));
    const double token_bytes = 2. * double(token_elements()) * hpa::size_of(shape_.kv) * config_.layers;
    for (const Sequence& sequence : running) {
      totals_.kv_bytes_read += double(sequence.length) * token_bytes;
      totals_.longest = std::max(totals_.longest, std::int32_t(sequence.length));
    }
  }

  LoopConfig config_;
  hpa::DecodeShape shape_;
  Scheduler scheduler_;
  std::mt19937_64 random_;
  int table_width_;
  int pool_tokens_;
  DeviceStream stream_;
  DeviceArray<std::byte> keys_, values_;                  // [layers, num_blocks, ...]
  DeviceArray<std::byte> new_keys_, new_values_;          // [pool_tokens, num_kv_heads, head_size]
  DeviceArray<std::byte> queries_;                        // [2 * max_seqs, num_heads, head_size]
  DeviceArray<std::byte> out_, checked_out_;              // [max_seqs, num_heads, head_size]
  DeviceArray<std::int32_t> tables_, lengths_;            // [max_seqs, table_width], [max_seqs]
  DeviceArray<std::int64_t> token_slots_, prompt_slots_;  // [max_seqs], [pool_tokens]
  DeviceArray<std::byte> workspace_;
  LoopTotals totals_;
};

}  // namespace examples
