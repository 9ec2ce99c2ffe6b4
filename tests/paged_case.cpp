// What paged_case.hpp declares, compiled once a build: all programs fill and compare with it.
#include "paged_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace hpa::test {

PagedCase::PagedCase(CaseSpec description) : spec(std::move(description)) {
  DecodeShape& shape = spec.shape;
  require(spec.query_lens.empty() || spec.query_lens.size() == spec.seq_lens.size(), "query_lens: as seq_lens");
  require(spec.sinks.empty() || spec.sinks.size() == std::size_t(shape.num_heads), "sinks: one a head");
  require(spec.sequence_seeds.empty() || spec.sequence_seeds.size() == spec.seq_lens.size(), "sequence_seeds: as seq_lens");
  const int longest = spec.seq_lens.empty() ? 0 : *std::max_element(spec.seq_lens.begin(), spec.seq_lens.end());
  if (shape.max_seqs == 0) shape.max_seqs = std::max(num_seqs(), 1);
  if (shape.max_seq_len == 0) shape.max_seq_len = std::max(longest, 1);
  table_width_ = std::max(blocks_of(longest), 1) + spec.spare_columns;
  for (const int length : spec.seq_lens) num_blocks_ += blocks_of(length);
  num_blocks_ += spec.spare_blocks;
  num_rows_ = num_seqs();
  if (!spec.query_lens.empty()) {
    num_rows_ = 0;
    for (const int length : spec.query_lens) num_rows_ += length;
  }
  require(spec.tree_masks.empty() || spec.tree_masks.size() == std::size_t(num_rows_), "tree_masks: one a row");
  set_strides();
  lay_table();
  allocate();
  populate();
}

DecodeArgs PagedCase::args() const {
  return args_at([](const Buffer& buffer) { return buffer.device(); });
}

DecodeArgs PagedCase::host_args() const {
  return args_at([](const Buffer& buffer) { return const_cast<std::uint8_t*>(buffer.data()); });
}

reference::KeyRange PagedCase::visible_to_any(int sequence) const {
  const DecodeArgs host = host_args();
  const int rows = reference::rows_of(host, sequence).count;
  reference::KeyRange all = reference::visible_keys(shape(), host, sequence, rows - 1);
  for (int i = 0; i < rows; ++i) {
    const reference::KeyRange keys = reference::visible_keys(shape(), host, sequence, i);
    if (!keys.empty()) all.begin = std::min(all.begin, keys.begin);
  }
  return all;
}

std::int32_t& PagedCase::block_table(int sequence, int column) {
  return block_tables.as<std::int32_t>()[table_starts_[std::size_t(sequence)] + column];
}

std::int32_t PagedCase::block_table(int sequence, int column) const {
  return block_tables.as<std::int32_t>()[table_starts_[std::size_t(sequence)] + column];
}

void PagedCase::set_seq_lens(const std::vector<int>& lengths) {
  require(lengths.size() == spec.seq_lens.size(), "set_seq_lens: as many sequences as before");
  spec.seq_lens = lengths;
  populate();
}

void PagedCase::set_query(int row, int head, int element, float value) {
  store_element(shape().query, query.data(), row * strides_.query_row + head * strides_.query_head + element, value);
}

void PagedCase::set_key(int sequence, int token, int kv_head, int element, float value) {
  const auto [block, slot] = place_of(sequence, token);
  const std::int64_t index = reference::key_index(shape(), strides_, block, slot, kv_head, element);
  store_element(shape().kv, key_cache.data(), index, value);
}

void PagedCase::set_value(int sequence, int token, int kv_head, int element, float value) {
  const auto [block, slot] = place_of(sequence, token);
  const std::int64_t index = reference::value_index(shape(), strides_, block, slot, kv_head, element);
  store_element(shape().kv, value_cache.data(), index, value);
}

std::vector<std::uint8_t> PagedCase::result_of(int sequence) const {
  std::vector<std::uint8_t> bytes;
  const reference::RowRange rows = reference::rows_of(host_args(), sequence);
  for (std::int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    for (int head = 0; head < shape().num_heads; ++head) {
      const std::uint8_t* start = out.data() + out_index(row, head) * size_of(shape().out);
      bytes.insert(bytes.end(), start, start + shape().head_size_of_v() * size_of(shape().out));
      const std::uint8_t* row_lse = lse.data() + (row * shape().num_heads + head) * std::int64_t(sizeof(float));
      if (shape().lse) bytes.insert(bytes.end(), row_lse, row_lse + sizeof(float));
    }
  }
  return bytes;
}

Findings PagedCase::check_against_reference(Tolerance tolerance, int every) const {
  return check_against_reference(tolerance.out, tolerance.lse, every);
}

Findings PagedCase::check_against_reference(double tolerance, double lse_tolerance, int every) const {
  Findings findings;
  if (!inputs_intact_) findings.problem = "an input was written";  // and the reference reads it
  const DecodeArgs host = host_args();
  int count = 0;
  for (int sequence = 0; sequence < num_seqs(); ++sequence) {
    if (!reference::is_computed(shape(), host, sequence) || is_unchecked(sequence)) continue;
    const reference::RowRange rows = reference::rows_of(host, sequence);
    for (int i = 0; i < rows.count; ++i) {
      for (int head = 0; head < shape().num_heads; ++head) {
        if (count++ % every == 0)
          compare_row(host, sequence, i, head, tolerance, lse_tolerance, findings);
        else if (!looks_written(rows.first + i, head) && findings.problem.empty())
          findings.problem =
              "sequence " + std::to_string(sequence) + ", head " + std::to_string(head) + ": not written, or not finite";
      }
    }
  }
  const std::string misdeed = write_where_none_is_due();
  if (findings.problem.empty()) findings.problem = misdeed;
  return findings;
}

bool PagedCase::outputs_untouched() const {
  const auto is_sentinel = [](std::uint8_t byte) { return byte == sentinel; };
  return std::all_of(out.data(), out.data() + out.size(), is_sentinel) &&
         std::all_of(lse.data(), lse.data() + lse.size(), is_sentinel);
}

std::string PagedCase::write_where_none_is_due() const {
  std::vector<bool> due_out(out.size(), false), due_lse(lse.size(), false);
  const DecodeArgs host = host_args();
  for (int sequence = 0; sequence < num_seqs(); ++sequence) {
    if (!reference::is_computed(shape(), host, sequence)) continue;
    const reference::RowRange rows = reference::rows_of(host, sequence);
    const std::int64_t end = std::min<std::int64_t>(rows.first + rows.count, num_rows_);  // where query_start_loc is wrong
    for (std::int64_t row = std::max<std::int64_t>(rows.first, 0); row < end; ++row) {
      for (int head = 0; head < shape().num_heads; ++head) {
        const auto begin = due_out.begin() + out_index(row, head) * size_of(shape().out);
        std::fill(begin, begin + shape().head_size_of_v() * size_of(shape().out), true);
      }
      if (!shape().lse) continue;
      const auto begin = due_lse.begin() + row * shape().num_heads * std::int64_t(sizeof(float));
      std::fill(begin, begin + shape().num_heads * std::int64_t(sizeof(float)), true);
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i)
    if (!due_out[i] && out.data()[i] != sentinel) return "out: byte " + std::to_string(i) + " is no row's and was written";
  for (std::size_t i = 0; i < lse.size(); ++i)
    if (!due_lse[i] && lse.data()[i] != sentinel) return "lse: byte " + std::to_string(i) + " is no row's and was written";
  for (const auto& [name, buffer] : named_buffers())
    if (!buffer->canary_intact()) return std::string(name) + ": written outside its bounds";
  return inputs_intact_ ? "" : "an input was written";
}

void PagedCase::require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

int PagedCase::blocks_of(std::int64_t tokens) const {
  return int((std::max<std::int64_t>(tokens, 0) + shape().block_size - 1) / shape().block_size);
}

bool PagedCase::is_unchecked(int sequence) const {
  return std::find(spec.unchecked.begin(), spec.unchecked.end(), sequence) != spec.unchecked.end();
}

std::pair<std::int64_t, int> PagedCase::place_of(int sequence, int token) {
  return {block_table(sequence, token / shape().block_size) - spec.first_block_id, token % shape().block_size};
}

std::uint64_t PagedCase::bits(std::uint64_t seed, std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  std::uint64_t hash = seed;
  for (const std::uint64_t part : {a, b, c, d}) {
    hash = (hash ^ part) + 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
    hash ^= hash >> 31;
  }
  return hash;
}

float PagedCase::normal(std::uint64_t bits) {
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += float(bits >> (16 * i) & 0xffffu) / 65536.f;
  return (sum - 2.f) * 1.7320508f;
}

void PagedCase::set_strides() {
  const Padding& pad = spec.padding;
  DecodeArgs args;
  args.batch.block_table_width = table_width_;
  // Inner strides first: each outer dense stride builds on the padded inner one.
  strides_ = reference::strides(shape(), args);
  args.query_head_stride = strides_.query_head + pad.query_head;
  args.out_head_stride = strides_.out_head + pad.out_head;
  if (shape().layout == KvLayout::nhd) {
    args.cache.key_head_stride = strides_.key_head + pad.key_head;
    args.cache.value_head_stride = strides_.value_head + pad.value_head;
    strides_ = reference::strides(shape(), args);
    args.cache.key_token_stride = strides_.key_token + pad.key_token;
    args.cache.value_token_stride = strides_.value_token + pad.value_token;
  } else {
    args.cache.key_token_stride = strides_.key_token + pad.key_token;
    args.cache.value_token_stride = strides_.value_token + pad.value_token;
    strides_ = reference::strides(shape(), args);
    args.cache.key_head_stride = strides_.key_head + pad.key_head;
    args.cache.value_head_stride = strides_.value_head + pad.value_head;
  }
  strides_ = reference::strides(shape(), args);
  strides_.query_row += pad.query_row;
  strides_.out_row += pad.out_row;
  strides_.table_row += pad.table_row;
  strides_.key_block += pad.key_block;
  strides_.value_block += pad.value_block;
}

template <class Locate>
DecodeArgs PagedCase::args_at(Locate&& locate) const {
  const auto null_if = [&](bool absent, const Buffer& buffer) { return absent ? nullptr : locate(buffer); };
  const auto lowered = [&](const Buffer& cache, std::int64_t block_stride) {
    const auto address = reinterpret_cast<std::uintptr_t>(locate(cache));
    return reinterpret_cast<void*>(address - std::uintptr_t(spec.first_block_id * block_stride * size_of(shape().kv)));
  };
  const auto token_scales = [&](const Buffer& buffer) {
    if (!shape().token_scales) return static_cast<float*>(nullptr);
    const auto before = std::uintptr_t(spec.first_block_id * shape().num_kv_heads * shape().block_size * 4);
    return reinterpret_cast<float*>(reinterpret_cast<std::uintptr_t>(locate(buffer)) - before);
  };
  const auto ints = [](std::uint8_t* bytes) { return reinterpret_cast<const std::int32_t*>(bytes); };
  const auto floats = [](std::uint8_t* bytes) { return reinterpret_cast<float*>(bytes); };
  DecodeArgs args;
  args.query = locate(query);
  args.cache.keys = lowered(key_cache, strides_.key_block);
  args.cache.values = lowered(value_cache, strides_.value_block);
  args.out = locate(out);
  args.lse = floats(null_if(!shape().lse, lse));
  args.batch.block_tables = ints(locate(block_tables));
  if (spec.table_starts) args.batch.table_starts = reinterpret_cast<const std::int64_t*>(locate(table_starts));
  args.batch.seq_lens = ints(locate(seq_lens));
  args.batch.query_start_loc = ints(null_if(spec.query_lens.empty(), query_start_loc));
  args.batch.num_seqs = num_seqs();
  args.batch.block_table_width = table_width_;
  if (spec.padding.any()) {
    args.query_row_stride = strides_.query_row, args.query_head_stride = strides_.query_head;
    args.cache.key_block_stride = strides_.key_block, args.cache.key_head_stride = strides_.key_head;
    args.cache.value_block_stride = strides_.value_block, args.cache.value_head_stride = strides_.value_head;
    if (shape().layout != KvLayout::vllm)
      args.cache.key_token_stride = strides_.key_token, args.cache.value_token_stride = strides_.value_token;
    args.out_row_stride = strides_.out_row, args.out_head_stride = strides_.out_head;
    args.batch.block_table_row_stride = strides_.table_row;
  }
  if (spec.num_blocks_given) args.cache.num_blocks = spec.first_block_id + num_blocks_;
  args.scale = spec.scale;
  args.soft_cap = spec.soft_cap;
  args.batch.window = spec.window;
  args.alibi_slopes = floats(null_if(!shape().alibi, alibi_slopes));
  args.sinks = floats(null_if(!shape().sinks, sinks));
  args.cache.k_scale = floats(null_if(spec.k_scale == 0.f, k_scale));
  args.cache.v_scale = floats(null_if(spec.v_scale == 0.f, v_scale));
  args.cache.scale_stride = spec.head_scales ? 1 : 0;
  args.out_scale = floats(null_if(spec.out_scale == 0.f, out_scale));
  args.cache.key_token_scales = token_scales(key_token_scales);
  args.cache.value_token_scales = token_scales(value_token_scales);
  args.tree_masks = reinterpret_cast<const std::uint32_t*>(null_if(!shape().tree_mask, tree_masks));
  return args;
}

void PagedCase::lay_table() {
  const std::size_t count = spec.seq_lens.size();
  table_starts_.assign(count, 0);
  table_rooms_.assign(count, table_width_);
  table_entries_ = count == 0 ? 0 : std::int64_t(count - 1) * strides_.table_row + table_width_;
  for (std::size_t i = 0; i < count; ++i) table_starts_[i] = std::int64_t(i) * strides_.table_row;
  if (!spec.table_starts) return;
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[std::size_t(bits(spec.block_seed, table_content, i) % i)]);
  table_entries_ = 0;
  for (const std::size_t i : order) {
    table_starts_[i] = table_entries_ + std::int64_t(bits(spec.block_seed, table_content, count + i) % 3);
    table_rooms_[i] = blocks_of(spec.seq_lens[i]);
    table_entries_ = table_starts_[i] + table_rooms_[i];
  }
}

void PagedCase::allocate() {
  const std::int64_t last_row = num_rows_ - 1, last_head = shape().num_heads - 1;
  const auto buffer = [&](std::int64_t elements, int element_size, std::size_t alignment) {
    return Buffer(std::size_t(std::max<std::int64_t>(elements, 0) * element_size), alignment, spec.guard);
  };
  const auto rows = [&](std::int64_t row_stride, std::int64_t head_stride, int size) {
    return num_rows_ == 0 ? 0 : last_row * row_stride + last_head * head_stride + size;
  };
  const int last_slot = shape().block_size - 1, last_kv_head = shape().num_kv_heads - 1;
  const std::int64_t keys =
      reference::key_index(shape(), strides_, num_blocks_ - 1, last_slot, last_kv_head, shape().head_size - 1) + 1;
  const std::int64_t values =
      reference::value_index(shape(), strides_, num_blocks_ - 1, last_slot, last_kv_head, shape().head_size_of_v() - 1) + 1;
  query = buffer(rows(strides_.query_row, strides_.query_head, shape().head_size), size_of(shape().query), 16);
  key_cache = buffer(num_blocks_ == 0 ? 0 : keys, size_of(shape().kv), 16);
  value_cache = buffer(num_blocks_ == 0 ? 0 : values, size_of(shape().kv), 16);
  const std::size_t out_alignment = std::size_t(4 * size_of(shape().out));
  out = buffer(rows(strides_.out_row, strides_.out_head, shape().head_size_of_v()), size_of(shape().out), out_alignment);
  lse = buffer(shape().lse ? std::int64_t{num_rows_} * shape().num_heads : 0, 4, 4);
  block_tables = buffer(table_entries_, 4, 4);
  table_starts = buffer(spec.table_starts ? num_seqs() : 0, 8, 8);
  seq_lens = buffer(num_seqs(), 4, 4);
  query_start_loc = buffer(spec.query_lens.empty() ? 0 : num_seqs() + 1, 4, 4);
  workspace = buffer(0, 1, 16);
  alibi_slopes = buffer(shape().alibi ? shape().num_heads : 0, 4, 4);
  sinks = buffer(shape().sinks ? shape().num_heads : 0, 4, 4);
  for (Buffer* scales : {&k_scale, &v_scale}) *scales = buffer(spec.head_scales ? shape().num_kv_heads : 1, 4, 4);
  out_scale = buffer(1, 4, 4);
  const std::int64_t scales = shape().token_scales ? num_blocks_ * shape().num_kv_heads * shape().block_size : 0;
  for (Buffer* all : {&key_token_scales, &value_token_scales}) *all = buffer(scales, 4, 4);
  tree_masks = buffer(shape().tree_mask ? num_rows_ : 0, 4, 4);
}

void PagedCase::populate() {
  if (spec.table_starts) std::copy(table_starts_.begin(), table_starts_.end(), table_starts.as<std::int64_t>());
  std::copy(spec.seq_lens.begin(), spec.seq_lens.end(), seq_lens.as<std::int32_t>());
  if (!spec.query_lens.empty()) {
    std::int32_t* start = query_start_loc.as<std::int32_t>();
    start[0] = 0;
    for (int i = 0; i < num_seqs(); ++i) start[i + 1] = start[i] + spec.query_lens[std::size_t(i)];
  }
  for (int head = 0; head < int(k_scale.size() / 4); ++head) {
    k_scale.as<float>()[head] = spec.k_scale * float(1 + head);
    v_scale.as<float>()[head] = spec.v_scale * float(1 + 3 * head);
  }
  *out_scale.as<float>() = spec.out_scale;
  for (int head = 0; head < shape().num_heads; ++head) {
    if (shape().alibi) alibi_slopes.as<float>()[head] = std::exp2(-8.f * float(head + 1) / float(shape().num_heads));
    if (shape().sinks)
      sinks.as<float>()[head] =
          spec.sinks.empty() ? normal(bits(spec.seed, sink_content, std::uint64_t(head))) : spec.sinks[std::size_t(head)];
  }
  if (shape().tree_mask) draw_trees();
  assign_blocks();
  key_token_scales.fill(0xff);
  value_token_scales.fill(0xff);
  poison(shape().query, query);
  poison(shape().kv, key_cache);
  poison(shape().kv, value_cache);
  for (int sequence = 0; sequence < num_seqs(); ++sequence)
    if (reference::is_computed(shape(), host_args(), sequence)) write_tails(sequence);
  // The first sequence last: where a prefix is shared, its data counts.
  for (int sequence = num_seqs() - 1; sequence >= 0; --sequence)
    if (reference::is_computed(shape(), host_args(), sequence)) write_visible(sequence);
}

void PagedCase::draw_trees() {
  std::uint32_t* const masks = tree_masks.as<std::uint32_t>();
  std::copy(spec.tree_masks.begin(), spec.tree_masks.end(), masks);
  if (!spec.tree_masks.empty()) return;
  for (int sequence = 0; sequence < num_seqs(); ++sequence) {
    const reference::RowRange rows = reference::rows_of(host_args(), sequence);
    for (int i = 0; i < rows.count; ++i) {
      const std::uint64_t drawn = bits(spec.seed, tree_content, std::uint64_t(rows.first + i));
      const auto parent = std::int64_t(drawn % std::uint64_t(i + 1)) - 1;
      const std::uint32_t beyond = rows.count < 32 ? std::uint32_t(drawn >> 32) << rows.count : 0u;
      const std::uint32_t ancestors = parent < 0 || rows.count > 32 ? 0u : masks[rows.first + parent] & ((1u << i) - 1);
      masks[rows.first + i] = ancestors | (i < 32 ? 1u << i : 0u) | beyond;
    }
  }
}

void PagedCase::assign_blocks() {
  for (std::size_t i = 0; i < block_tables.size() / 4; ++i) block_tables.as<std::uint32_t>()[i] = unused_entries[i % 2];
  std::vector<std::int32_t> order(static_cast<std::size_t>(num_blocks_));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = std::int32_t(std::int64_t(i) + spec.first_block_id);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[std::size_t(bits(spec.block_seed, order_content, i) % i)]);
  std::vector<std::int32_t> prefix;
  std::size_t used = 0;
  for (int sequence = 0; sequence < num_seqs(); ++sequence) {
    if (!reference::is_computed(shape(), host_args(), sequence)) continue;
    const int blocks = blocks_of(spec.seq_lens[std::size_t(sequence)]);
    require(blocks <= table_rooms_[std::size_t(sequence)], "seq_lens: longer than the table is wide");
    const int expired = spec.unmapped_expired ? int(visible_to_any(sequence).begin / shape().block_size) : 0;
    for (int column = 0; column < blocks; ++column) {
      if (column < expired) {
        block_table(sequence, column) = unmapped_id;
        continue;
      }
      const bool shared = column < spec.shared_prefix_blocks;
      if (shared && column < int(prefix.size())) {
        block_table(sequence, column) = prefix[std::size_t(column)];
        continue;
      }
      require(used < order.size(), "seq_lens: more blocks than the cache has");
      block_table(sequence, column) = order[used++];
      if (shared) prefix.push_back(block_table(sequence, column));
    }
  }
}

std::uint32_t PagedCase::nan_code(DType type) {
  switch (type) {
    case DType::f16: return 0x7fff;
    case DType::bf16: return 0x7fff;
    case DType::e4m3_fnuz: return 0x80;
    case DType::e4m3_ocp: return 0x7f;
    case DType::e5m2_ocp: return 0x7f;
    case DType::i8: return 0x80;  // has no NaN; the largest magnitude
  }
  return 0;
}

void PagedCase::store_code(DType type, std::uint8_t* data, std::int64_t index, std::uint32_t code) {
  data[index * size_of(type)] = std::uint8_t(code);
  if (size_of(type) == 2) data[index * 2 + 1] = std::uint8_t(code >> 8);
}

void PagedCase::poison(DType type, Buffer& buffer) {
  for (std::size_t i = 0; i < buffer.size() / std::size_t(size_of(type)); ++i)
    store_code(type, buffer.data(), std::int64_t(i), nan_code(type));
}

std::uint32_t PagedCase::tail_code(std::uint64_t index) const {
  const DType type = shape().kv;
  const float infinity = std::numeric_limits<float>::infinity();
  const auto encoded = [&](float value, bool saturate) -> std::uint32_t {
    switch (type) {
      case DType::f16: return Format<DType::f16>::encode(value, saturate);
      case DType::bf16: return Format<DType::bf16>::encode(value, saturate);
      case DType::e4m3_fnuz: return Format<DType::e4m3_fnuz>::encode(value, saturate);
      case DType::e4m3_ocp: return Format<DType::e4m3_ocp>::encode(value, saturate);
      case DType::e5m2_ocp: return Format<DType::e5m2_ocp>::encode(value, saturate);
      case DType::i8: return Format<DType::i8>::encode(value);
    }
    return 0;
  };
  switch (spec.tail) {
    case Tail::nan: return nan_code(type);
    case Tail::zero: return 0;
    case Tail::plus_inf: return encoded(infinity, false);
    case Tail::minus_inf: return encoded(-infinity, false);
    case Tail::largest: return encoded(infinity, true);
    case Tail::random: return encoded(50.f * normal(bits(spec.seed, tail_content, index)), true);
  }
  return 0;
}

void PagedCase::write_tails(int sequence) {
  const reference::KeyRange keys = visible_to_any(sequence);
  if (keys.empty()) return;
  const int block_size = shape().block_size;
  const auto first = keys.begin / block_size * block_size, last = std::int64_t{blocks_of(keys.end)} * block_size;
  for (std::int64_t token = first; token < last; ++token) {
    const auto [block, slot] = place_of(sequence, int(token));
    for (int head = 0; head < shape().num_kv_heads; ++head) {
      for (int d = 0; d < shape().head_size; ++d) {
        const std::int64_t index = reference::key_index(shape(), strides_, block, slot, head, d);
        store_code(shape().kv, key_cache.data(), index, tail_code(std::uint64_t(index)));
      }
      for (int d = 0; d < shape().head_size_of_v(); ++d) {
        const std::int64_t index = reference::value_index(shape(), strides_, block, slot, head, d);
        store_code(shape().kv, value_cache.data(), index, tail_code(~std::uint64_t(index)));
      }
    }
  }
}

void PagedCase::write_visible(int sequence) {
  const std::uint64_t seed =
      bits(spec.seed, spec.sequence_seeds.empty() ? std::uint64_t(sequence) : spec.sequence_seeds[std::size_t(sequence)]);
  const auto draw = [&](Content content, std::int64_t token, int head, int element) {
    return normal(bits(seed, content, std::uint64_t(token), std::uint64_t(head), std::uint64_t(element)));
  };
  const reference::RowRange rows = reference::rows_of(host_args(), sequence);
  for (int i = 0; i < rows.count; ++i)
    for (int head = 0; head < shape().num_heads; ++head)
      for (int d = 0; d < shape().head_size; ++d)
        set_query(int(rows.first) + i, head, d, spec.query_amplitude * draw(query_content, i, head, d));
  const reference::KeyRange keys = visible_to_any(sequence);
  const float last = float(std::max(spec.seq_lens[std::size_t(sequence)] - 1, 1));
  for (std::int64_t token = keys.begin; token < keys.end; ++token) {
    const float amplitude = spec.key_amplitude * (1.f + spec.key_growth * float(token) / last);
    for (int head = 0; head < shape().num_kv_heads; ++head) {
      if (shape().token_scales) {
        const auto [block, slot] = place_of(sequence, int(token));
        const std::int64_t index = (block * shape().num_kv_heads + head) * shape().block_size + slot;
        const std::uint64_t drawn = bits(seed, token_scale_content, std::uint64_t(token), std::uint64_t(head));
        key_token_scales.as<float>()[index] = spec.token_scale * (0.5f + float(drawn & 0xffff) / 65536.f);
        value_token_scales.as<float>()[index] = spec.token_scale * (0.5f + float(drawn >> 16 & 0xffff) / 65536.f);
      }
      for (int d = 0; d < shape().head_size; ++d)
        set_key(sequence, int(token), head, d, amplitude * draw(key_content, token, head, d));
      for (int d = 0; d < shape().head_size_of_v(); ++d)
        set_value(sequence, int(token), head, d, spec.value_amplitude * draw(value_content, token, head, d));
    }
  }
}

double PagedCase::distance(float got, double expected) const {
  const double infinity = std::numeric_limits<double>::infinity();
  if (!std::isfinite(got)) return infinity;
  if (shape().out == DType::f16) return std::max(0.0, std::abs(got - expected) - 0x1p-25);
  if (shape().out == DType::bf16) return std::max(0.0, std::abs(got - expected) - 0x1p-120);
  static const std::vector<double> all[] = {values_of(DType::e4m3_fnuz), values_of(DType::e4m3_ocp), values_of(DType::e5m2_ocp),
                                            values_of(DType::i8)};
  const std::vector<double>& values = all[int(shape().out) - int(DType::e4m3_fnuz)];
  const auto at = std::lower_bound(values.begin(), values.end(), double(got));
  const double low = at == values.begin() ? -infinity : (at[-1] + got) / 2;
  const double high = at + 1 == values.end() ? infinity : (at[1] + got) / 2;
  return expected < low ? low - expected : expected > high ? expected - high : 0.0;
}

std::vector<double> PagedCase::values_of(DType type) {
  std::vector<double> values;
  for (int code = 0; code < 256; ++code) {
    const std::uint8_t bytes[2] = {std::uint8_t(code), 0};
    const double value = load_element(type, bytes, 0);
    if (std::isfinite(value)) values.push_back(value);
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

void PagedCase::compare_row(const DecodeArgs& host, int sequence, int query_row, int head, double tolerance, double lse_tolerance,
                            Findings& findings) const {
  const double infinity = std::numeric_limits<double>::infinity();
  const reference::Row exact = reference::row(shape(), host, sequence, query_row, head);
  const std::int64_t row = reference::rows_of(host, sequence).first + query_row;
  const double factor = host.out_scale != nullptr && size_of(shape().out) == 1 ? double(*host.out_scale) : 1;
  double difference = 0, norm = 0;
  for (int d = 0; d < shape().head_size_of_v(); ++d) {
    const double expected = exact.out[std::size_t(d)] / factor;
    const double off = distance(load_element(shape().out, out.data(), out_index(row, head) + d), expected);
    difference += off * off;
    norm += expected * expected;
  }
  double error = difference == 0 ? 0 : std::sqrt(difference / norm);
  if (!(error <= infinity)) error = infinity;
  double lse_error = 0;
  if (shape().lse) {
    const double got = lse.as<float>()[row * shape().num_heads + head];
    lse_error = got == exact.lse ? 0 : std::abs(got - exact.lse);
    if (!(lse_error <= infinity)) lse_error = infinity;
  }
  findings.worst_out = std::max(findings.worst_out, error);
  findings.worst_lse = std::max(findings.worst_lse, lse_error);
  if ((error <= tolerance && lse_error <= lse_tolerance) || !findings.problem.empty()) return;
  findings.problem = "sequence " + std::to_string(sequence) + " (" + std::to_string(spec.seq_lens[std::size_t(sequence)]) +
                     " tokens), row " + std::to_string(query_row) + ", head " + std::to_string(head) + ": out is off by " +
                     std::to_string(error) + ", lse by " + std::to_string(lse_error);
}

bool PagedCase::looks_written(std::int64_t row, int head) const {
  for (int d = 0; d < shape().head_size_of_v(); ++d)
    if (!(std::abs(load_element(shape().out, out.data(), out_index(row, head) + d)) < 1e30f)) return false;
  return !shape().lse || lse.as<std::uint32_t>()[row * shape().num_heads + head] != sentinel * 0x01010101u;
}

std::vector<std::pair<const char*, const Buffer*>> PagedCase::named_buffers() const {
  return {{"query", &query},
          {"key_cache", &key_cache},
          {"value_cache", &value_cache},
          {"block_tables", &block_tables},
          {"table_starts", &table_starts},
          {"seq_lens", &seq_lens},
          {"query_start_loc", &query_start_loc},
          {"alibi_slopes", &alibi_slopes},
          {"sinks", &sinks},
          {"k_scale", &k_scale},
          {"v_scale", &v_scale},
          {"out_scale", &out_scale},
          {"out", &out},
          {"lse", &lse},
          {"workspace", &workspace},
          {"key_token_scales", &key_token_scales},
          {"value_token_scales", &value_token_scales},
          {"tree_masks", &tree_masks}};
}

std::vector<Buffer*> PagedCase::buffers() {
  std::vector<Buffer*> all;
  for (const auto& [name, buffer] : named_buffers()) all.push_back(const_cast<Buffer*>(buffer));
  return all;
}

std::vector<std::uint64_t> PagedCase::input_hashes() const {
  std::vector<std::uint64_t> hashes;
  for (const auto& [name, buffer] : named_buffers()) {
    if (buffer == &out || buffer == &lse || buffer == &workspace) continue;
    const std::size_t words = buffer->size() / 8;
    std::uint64_t hash = buffer->size();
    const auto add = [&](std::uint64_t part) { hash = (hash ^ part) * 0x9e3779b97f4a7c15u, hash ^= hash >> 32; };
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t word;
      std::memcpy(&word, buffer->data() + 8 * i, 8);
      add(word);
    }
    for (std::size_t i = 8 * words; i < buffer->size(); ++i) add(buffer->data()[i]);
    hashes.push_back(hash);
  }
  return hashes;
}

}  // namespace hpa::test
