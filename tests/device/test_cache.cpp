// The cache's writers against plain loops, bit by bit: what they write, and that they write nothing else.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "calls.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

using Bytes = std::vector<std::uint8_t>;

/// All types of cache. No decode kernel is instantiated by a cache writer.
template <class Machine>
using cache_menu =
    hpa::default_menu::with<hpa::kv_types<DType::f16, DType::bf16, DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8>,
                            hpa::head_sizes<64, 80, 96, 128, 256, 576>, hpa::block_sizes<16, 32, 48>, hpa::machine<Machine>>;

DecodeShape shape_of(DType type, int head_size, int block_size, int num_kv_heads) {
  DecodeShape shape;
  shape.query = shape.kv = shape.out = type;
  shape.head_size = head_size;
  shape.block_size = block_size;
  shape.num_heads = 2 * num_kv_heads;
  shape.num_kv_heads = num_kv_heads;
  shape.max_seqs = 4;
  shape.max_seq_len = 1000;
  return shape;
}

template <class T>
Buffer buffer_of(const std::vector<T>& values, Guard guard) {
  Buffer buffer(values.size() * sizeof(T), alignof(T), guard);
  if (!values.empty()) std::memcpy(buffer.data(), values.data(), buffer.size());
  buffer.upload();
  return buffer;
}

/// Where pointers start so that `bytes` of them before the memory are never touched.
void* lowered(const Buffer& buffer, std::int64_t bytes) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(buffer.device()) - std::uintptr_t(bytes));
}

/// Strides of one cache in elements, and the cache itself, filled with bytes that are nobody's.
struct Cache {
  std::int64_t slab, head_stride, block_stride, first_id, element_bytes;
  Buffer memory;

  Cache(const DecodeShape& shape, int num_blocks, std::int64_t head_padding, std::int64_t block_padding,
        std::int64_t first_block_id, Guard guard, std::mt19937& random)
      : slab(std::int64_t{shape.head_size} * shape.block_size),
        head_stride(slab + head_padding),
        block_stride(shape.num_kv_heads * head_stride + block_padding),
        first_id(first_block_id),
        element_bytes(size_of(shape.kv)),
        memory(std::size_t(((num_blocks - 1) * block_stride + (shape.num_kv_heads - 1) * head_stride + slab) * element_bytes), 16,
               guard) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory.data()[i] = std::uint8_t(random());
    memory.upload();
  }
  void* pointer() const { return lowered(memory, element_bytes * first_id * block_stride); }
  /// Index of an element in an image of the cache.
  std::int64_t start_of(std::int64_t block, int head) const { return (block - first_id) * block_stride + head * head_stride; }
};

/// Token scales of one cache, dense, filled with bytes that are nobody's.
struct Scales {
  std::int64_t first_id, heads, block_size;
  Buffer memory;

  Scales(const DecodeShape& shape, int num_blocks, std::int64_t first_block_id, Guard guard, std::mt19937& random)
      : first_id(first_block_id),
        heads(shape.num_kv_heads),
        block_size(shape.block_size),
        memory(std::size_t(num_blocks * heads * block_size) * 4, 4, guard) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory.data()[i] = std::uint8_t(random());
    memory.upload();
  }
  float* pointer() const { return static_cast<float*>(lowered(memory, 4 * first_id * heads * block_size)); }
  std::int64_t index(std::int64_t block, int head, int slot) const {
    return ((block - first_id) * heads + head) * block_size + slot;
  }
};

std::int64_t key_element(const DecodeShape& s, int slot, int element) {
  const int x = per_16_bytes(s.kv);
  return std::int64_t{element / x * s.block_size + slot} * x + element % x;
}
std::int64_t value_element(const DecodeShape& s, int slot, int element) { return element * s.block_size + slot; }

void copy_element(Bytes& to, std::int64_t to_index, const std::uint8_t* from, std::int64_t from_index) {
  std::memcpy(to.data() + 2 * to_index, from + 2 * from_index, 2);
}

template <class Machine>
void append_and_compare(const DecodeShape& shape, bool padded, std::int64_t first_id, Guard guard, unsigned seed) {
  INFO(name(shape.kv) << ", head size " << shape.head_size << ", block size " << shape.block_size << ", KV heads "
                      << shape.num_kv_heads << ", padded " << padded << ", first id " << first_id << ", seed " << seed);
  std::mt19937 random(seed);
  const int num_blocks = 5, heads = shape.num_kv_heads, size = shape.head_size;
  const auto padding = [&](int most) { return padded ? 8 * std::int64_t(random() % unsigned(most)) : 0; };
  const std::int64_t key_head = padding(3), key_block = padding(5), value_head = padding(3), value_block = padding(5);
  Cache keys(shape, num_blocks, key_head, key_block, first_id, guard, random);
  Cache values(shape, num_blocks, value_head, value_block, first_id, guard, random);
  std::vector<std::int64_t> slots;
  for (int i = 0; i < num_blocks * shape.block_size; ++i) slots.push_back(first_id * shape.block_size + i);
  std::shuffle(slots.begin(), slots.end(), random);
  slots.resize(1 + random() % slots.size());
  const std::int64_t end = (first_id + num_blocks) * shape.block_size;
  for (const std::int64_t past : {std::int64_t{0}, std::int64_t{7}, std::int64_t{1} << 40}) slots.push_back(end + past);
  for (std::int64_t& slot : slots)
    if (random() % 4 == 0) slot = random() % 2 == 0 ? -1 : std::numeric_limits<std::int64_t>::min();
  Buffer slot_mapping = buffer_of(slots, guard);

  AppendArgs args;
  const std::int64_t key_head_stride = size + padding(4), value_head_stride = size + padding(4);
  const std::int64_t key_token_stride = heads * key_head_stride + padding(4),
                     value_token_stride = heads * value_head_stride + padding(4);
  const auto rows = [&](std::int64_t token_stride, std::int64_t head_stride) {
    Buffer buffer(std::size_t((std::int64_t(slots.size()) - 1) * token_stride + (heads - 1) * head_stride + size) * 2, 16, guard);
    for (std::size_t i = 0; i < buffer.size(); ++i) buffer.data()[i] = std::uint8_t(random());
    buffer.upload();
    return buffer;
  };
  Buffer key = rows(key_token_stride, key_head_stride), value = rows(value_token_stride, value_head_stride);
  args.new_keys = key.device(), args.new_values = value.device();
  args.cache.keys = keys.pointer(), args.cache.values = values.pointer();
  args.cache.num_blocks = first_id + num_blocks;
  args.slot_mapping = slot_mapping.device_as<std::int64_t>();
  args.num_tokens = int(slots.size());
  if (padded) {
    args.new_key_token_stride = key_token_stride, args.new_key_head_stride = key_head_stride;
    args.new_value_token_stride = value_token_stride, args.new_value_head_stride = value_head_stride;
    args.cache.key_block_stride = keys.block_stride, args.cache.key_head_stride = keys.head_stride;
    args.cache.value_block_stride = values.block_stride, args.cache.value_head_stride = values.head_stride;
  }

  Bytes expected_keys = keys.memory.bytes(), expected_values = values.memory.bytes();
  for (std::size_t token = 0; token < slots.size(); ++token) {
    if (slots[token] < 0 || slots[token] >= end) continue;
    const std::int64_t block = slots[token] / shape.block_size;
    const int slot = int(slots[token] % shape.block_size);
    for (int head = 0; head < heads; ++head)
      for (int d = 0; d < size; ++d) {
        copy_element(expected_keys, keys.start_of(block, head) + key_element(shape, slot, d), key.data(),
                     std::int64_t(token) * key_token_stride + head * key_head_stride + d);
        copy_element(expected_values, values.start_of(block, head) + value_element(shape, slot, d), value.data(),
                     std::int64_t(token) * value_token_stride + head * value_head_stride + d);
      }
  }
  const Bytes key_before = key.bytes(), value_before = value.bytes();
  const Verdict verdict = hpa::append<cache_menu<Machine>>(shape, args, {});
  INFO(verdict.field << ": " << verdict.why);
  REQUIRE(verdict);
  for (Buffer* buffer : {&keys.memory, &values.memory, &key, &value, &slot_mapping}) buffer->download();
  CHECK((keys.memory.bytes() == expected_keys));
  CHECK((values.memory.bytes() == expected_values));
  CHECK((key.bytes() == key_before));
  CHECK((value.bytes() == value_before));
  for (const Buffer* buffer : {&keys.memory, &values.memory, &key, &value, &slot_mapping}) CHECK(buffer->canary_intact());
}

template <class Machine>
void copy_and_compare(const DecodeShape& shape, bool padded, std::int64_t first_id, Guard guard, unsigned seed) {
  INFO(name(shape.kv) << ", head size " << shape.head_size << ", block size " << shape.block_size << ", KV heads "
                      << shape.num_kv_heads << ", padded " << padded << ", first id " << first_id << ", seed " << seed);
  std::mt19937 random(seed);
  const int num_blocks = 9;
  const auto padding = [&](int most) { return padded ? per_16_bytes(shape.kv) * std::int64_t(random() % unsigned(most)) : 0; };
  const std::int64_t key_head = padding(3), key_block = padding(5), value_head = padding(3), value_block = padding(5);
  Cache keys(shape, num_blocks, key_head, key_block, first_id, guard, random);
  Cache values(shape, num_blocks, value_head, value_block, first_id, guard, random);
  std::vector<std::int64_t> ids;
  for (int i = 0; i < num_blocks; ++i) ids.push_back(first_id + i);
  std::shuffle(ids.begin(), ids.end(), random);
  // Four sources, one of them twice, to five destinations; pairs to skip, some for blocks that there are not.
  std::vector<std::int64_t> pairs = {ids[0], ids[4], -1, ids[0], ids[1], ids[5], ids[0],
                                     ids[6], ids[2], -5, ids[2], ids[7], ids[3], ids[8]};
  const std::int64_t end = first_id + num_blocks, far = std::int64_t{1} << 32;
  for (const std::int64_t id : {end, ids[0], ids[0], end, ids[1], far + ids[8], far + ids[0], ids[8]}) pairs.push_back(id);
  Buffer block_pairs = buffer_of(pairs, guard);
  Scales key_scales(shape, num_blocks, first_id, guard, random), value_scales(shape, num_blocks, first_id, guard, random);
  Bytes expected_keys = keys.memory.bytes(), expected_values = values.memory.bytes();
  Bytes expected_key_scales = key_scales.memory.bytes(), expected_value_scales = value_scales.memory.bytes();
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (pairs[i] < 0 || pairs[i + 1] < 0 || pairs[i] >= end || pairs[i + 1] >= end) continue;
    for (int head = 0; head < shape.num_kv_heads; ++head) {
      const auto copy = [&](Bytes& to, const Cache& cache) {
        std::memcpy(to.data() + cache.start_of(pairs[i + 1], head) * cache.element_bytes,
                    cache.memory.data() + cache.start_of(pairs[i], head) * cache.element_bytes,
                    std::size_t(cache.slab * cache.element_bytes));
      };
      copy(expected_keys, keys);
      copy(expected_values, values);
      const auto copy_scales = [&](Bytes& to, const Scales& scales) {
        if (shape.token_scales)
          std::memcpy(to.data() + 4 * scales.index(pairs[i + 1], head, 0),
                      scales.memory.data() + 4 * scales.index(pairs[i], head, 0), std::size_t(4 * shape.block_size));
      };
      copy_scales(expected_key_scales, key_scales);
      copy_scales(expected_value_scales, value_scales);
    }
  }
  CopyBlocksArgs args;
  args.cache.keys = keys.pointer(), args.cache.values = values.pointer();
  args.cache.num_blocks = end;
  args.block_pairs = block_pairs.device_as<std::int64_t>();
  args.num_pairs = int(pairs.size() / 2);
  if (shape.token_scales)
    args.cache.key_token_scales = key_scales.pointer(), args.cache.value_token_scales = value_scales.pointer();
  if (padded) {
    args.cache.key_block_stride = keys.block_stride, args.cache.key_head_stride = keys.head_stride;
    args.cache.value_block_stride = values.block_stride, args.cache.value_head_stride = values.head_stride;
  }
  const Verdict verdict = hpa::copy_blocks<cache_menu<Machine>>(shape, args, {});
  INFO(verdict.field << ": " << verdict.why);
  REQUIRE(verdict);
  for (Buffer* buffer : {&keys.memory, &values.memory, &key_scales.memory, &value_scales.memory, &block_pairs}) buffer->download();
  CHECK((keys.memory.bytes() == expected_keys));
  CHECK((values.memory.bytes() == expected_values));
  CHECK((key_scales.memory.bytes() == expected_key_scales));
  CHECK((value_scales.memory.bytes() == expected_value_scales));
  for (const Buffer* buffer : {&keys.memory, &values.memory, &key_scales.memory, &value_scales.memory, &block_pairs})
    CHECK(buffer->canary_intact());
}

/// A token's row of one head, to be quantised: ordinary numbers, or in some rows zeros, NaN, Inf, or bits of any kind.
void draw_row(DType type, std::uint8_t* data, std::int64_t start, int size, std::mt19937& random) {
  const unsigned kind = random() % 8;
  const float amplitude = std::ldexp(1.f, int(random() % 20) - 12);
  for (int d = 0; d < size; ++d) {
    float value = amplitude * (float(random() % 20001) / 10000.f - 1.f);
    if (kind == 0) value = random() % 2 == 0 ? 0.f : -0.f;
    if (kind == 1 && random() % 16 == 0) value = std::numeric_limits<float>::quiet_NaN();
    if (kind == 2 && random() % 16 == 0) value = std::numeric_limits<float>::infinity() * (random() % 2 == 0 ? 1.f : -1.f);
    hpa::store_element(type, data, start + d, value);
    if (kind == 3) data[2 * (start + d)] = std::uint8_t(random()), data[2 * (start + d) + 1] = std::uint8_t(random());
  }
}

bool is_nan_code(DType type, std::uint8_t code) {
  const float value = hpa::load_element(type, &code, 0);
  return value != value;
}

/// What a code must be, by the formats of types.hpp. Whatever NaN was written there becomes this one's.
void expect_code(DType type, Bytes& expected, Buffer& memory, std::int64_t index, float value) {
  hpa::store_element(type, expected.data(), index, value);
  const std::uint8_t due = expected[std::size_t(index)];
  if (is_nan_code(type, due) && is_nan_code(type, memory.data()[index])) memory.data()[index] = due;
}

/// One kind of quantising append. scale 0: no pointer.
struct Quantised {
  DType query, kv;
  int head_size, block_size, num_kv_heads;
  bool token_scales, padded;
  float k_scale, v_scale;
  std::int64_t first_id;
};

template <class Machine>
void quantise_and_compare(const Quantised& q, Guard guard, unsigned seed) {
  INFO(name(q.query) << " to " << name(q.kv) << ", head size " << q.head_size << ", block size " << q.block_size << ", KV heads "
                     << q.num_kv_heads << ", token scales " << q.token_scales << ", padded " << q.padded << ", scales " << q.k_scale
                     << " " << q.v_scale << ", first id " << q.first_id << ", seed " << seed);
  DecodeShape shape = shape_of(q.query, q.head_size, q.block_size, q.num_kv_heads);
  shape.kv = q.kv;
  shape.token_scales = q.token_scales;
  std::mt19937 random(seed);
  const int num_blocks = 3, heads = shape.num_kv_heads, size = shape.head_size;
  const auto padding = [&](int most, int multiple) { return q.padded ? multiple * std::int64_t(random() % unsigned(most)) : 0; };
  const std::int64_t key_head = padding(3, 16), key_block = padding(5, 16), value_head = padding(3, 16),
                     value_block = padding(5, 16);
  Cache keys(shape, num_blocks, key_head, key_block, q.first_id, guard, random);
  Cache values(shape, num_blocks, value_head, value_block, q.first_id, guard, random);
  Scales key_scales(shape, num_blocks, q.first_id, guard, random), value_scales(shape, num_blocks, q.first_id, guard, random);
  std::vector<std::int64_t> slots;
  for (int i = 0; i < num_blocks * shape.block_size; ++i) slots.push_back(q.first_id * shape.block_size + i);
  std::shuffle(slots.begin(), slots.end(), random);
  slots.resize(1 + random() % 20);
  const std::int64_t end = (q.first_id + num_blocks) * shape.block_size;
  for (const std::int64_t past : {std::int64_t{0}, std::int64_t{7}, std::int64_t{1} << 40}) slots.push_back(end + past);
  for (std::int64_t& slot : slots)
    if (random() % 4 == 0) slot = random() % 2 == 0 ? -1 : std::numeric_limits<std::int64_t>::min();
  Buffer slot_mapping = buffer_of(slots, guard);

  const auto tokens = std::int64_t(slots.size());
  struct Rows {
    std::int64_t head_stride, token_stride;
    Buffer memory;
  };
  const auto draw_rows = [&] {
    Rows rows{size + padding(4, 8), 0, {}};
    rows.token_stride = heads * rows.head_stride + padding(4, 8);
    rows.memory = Buffer(std::size_t((tokens - 1) * rows.token_stride + (heads - 1) * rows.head_stride + size) * 2, 16, guard);
    for (std::int64_t token = 0; token < tokens; ++token)
      for (int head = 0; head < heads; ++head)
        draw_row(shape.query, rows.memory.data(), token * rows.token_stride + head * rows.head_stride, size, random);
    rows.memory.upload();
    return rows;
  };
  Rows key = draw_rows(), value = draw_rows();
  std::vector<float> scale_values = {q.k_scale, q.v_scale};
  Buffer scales = buffer_of(scale_values, guard);

  AppendArgs args;
  args.new_keys = key.memory.device(), args.new_values = value.memory.device();
  args.cache.keys = keys.pointer(), args.cache.values = values.pointer();
  args.cache.num_blocks = q.first_id + num_blocks;
  args.slot_mapping = slot_mapping.device_as<std::int64_t>();
  args.num_tokens = int(slots.size());
  if (q.k_scale != 0.f) args.cache.k_scale = scales.device_as<float>();
  if (q.v_scale != 0.f) args.cache.v_scale = scales.device_as<float>() + 1;
  if (q.token_scales) args.cache.key_token_scales = key_scales.pointer(), args.cache.value_token_scales = value_scales.pointer();
  if (q.padded) {
    args.new_key_token_stride = key.token_stride, args.new_key_head_stride = key.head_stride;
    args.new_value_token_stride = value.token_stride, args.new_value_head_stride = value.head_stride;
    args.cache.key_block_stride = keys.block_stride, args.cache.key_head_stride = keys.head_stride;
    args.cache.value_block_stride = values.block_stride, args.cache.value_head_stride = values.head_stride;
  }
  std::vector<Buffer*> buffers = {&keys.memory, &values.memory, &key_scales.memory, &value_scales.memory,
                                  &key.memory,  &value.memory,  &slot_mapping,      &scales};
  std::vector<Bytes> expected;
  for (const Buffer* buffer : buffers) expected.push_back(buffer->bytes());
  const Verdict verdict = hpa::append<cache_menu<Machine>>(shape, args, {});
  INFO(verdict.field << ": " << verdict.why);
  REQUIRE(verdict);
  for (Buffer* buffer : buffers) buffer->download();

  for (std::int64_t token = 0; token < tokens; ++token) {
    if (slots[std::size_t(token)] < 0 || slots[std::size_t(token)] >= end) continue;
    const std::int64_t block = slots[std::size_t(token)] / shape.block_size;
    const int slot = int(slots[std::size_t(token)] % shape.block_size);
    for (int head = 0; head < heads; ++head) {
      const auto expect_row = [&](const Rows& rows, Cache& cache, const Scales& token_scales, float given, std::size_t which,
                                  auto&& place) {
        const auto element = [&](int d) {
          return hpa::load_element(shape.query, rows.memory.data(), token * rows.token_stride + head * rows.head_stride + d);
        };
        float scale = given != 0.f ? given : 1.f;
        if (q.token_scales) {
          float most = 0.f;
          for (int d = 0; d < size; ++d)
            if (std::fabs(element(d)) > most) most = std::fabs(element(d));
          scale = most / 127.f;
          std::memcpy(expected[which + 2].data() + 4 * token_scales.index(block, head, slot), &scale, 4);
        }
        for (int d = 0; d < size; ++d)
          expect_code(shape.kv, expected[which], cache.memory, cache.start_of(block, head) + place(shape, slot, d),
                      element(d) / scale);
      };
      expect_row(key, keys, key_scales, q.k_scale, 0, key_element);
      expect_row(value, values, value_scales, q.v_scale, 1, value_element);
    }
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    INFO("buffer " << i);
    CHECK((buffers[i]->bytes() == expected[i]));
    CHECK(buffers[i]->canary_intact());
  }
}

template <class F>
void each_cache(F&& f) {
  unsigned seed = 0;
  for (const DType type : {DType::f16, DType::bf16})
    for (const int head_size : {64, 128})
      for (const int block_size : {16, 32})
        for (const int num_kv_heads : {1, 3, 8})
          for (const bool padded : {false, true}) {
            const DecodeShape shape = shape_of(type, head_size, block_size, num_kv_heads);
            ++seed;
            f(shape, padded, 0, seed % 2 == 0 ? Guard::end : Guard::start, seed);
            if (num_kv_heads == 3) f(shape, padded, std::numeric_limits<std::int32_t>::max() - 8, Guard::end, seed);
          }
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("append writes the tokens' slots and nothing else", "[cache]", Machines) {
  each_cache([](const DecodeShape& shape, bool padded, std::int64_t first_id, Guard guard, unsigned seed) {
    append_and_compare<TestType>(shape, padded, first_id, guard, seed);
  });
}

TEMPLATE_LIST_TEST_CASE("append quantises into 8-bit caches and writes nothing else", "[cache]", Machines) {
  const float scales[] = {0.f, 1.f, 0.037f, 0.125f, 3.f, 700.f, 1e-3f};
  unsigned seed = 0;
  for (const DType query : {DType::f16, DType::bf16})
    for (const DType kv : {DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8})
      for (const int head_size : {64, 128})
        for (const int num_kv_heads : {1, 3, 8})
          for (const bool token_scales : {false, true}) {
            if (token_scales && kv != DType::i8) continue;
            ++seed;
            const float k_scale = token_scales ? 0.f : scales[seed % 7], v_scale = token_scales ? 0.f : scales[seed / 2 % 7];
            const std::int64_t first_id = num_kv_heads == 3 ? std::numeric_limits<std::int32_t>::max() - 2 : 0;
            const Quantised q{query,   kv,      head_size, seed / 2 % 2 == 0 ? 16 : 32, num_kv_heads, token_scales, seed % 3 == 0,
                              k_scale, v_scale, first_id};
            quantise_and_compare<TestType>(q, seed % 2 == 0 ? Guard::end : Guard::start, seed);
          }
}

TEMPLATE_LIST_TEST_CASE("append takes head and block sizes that are no power of two, and rows longer than a wave", "[cache]",
                        Machines) {
  unsigned seed = 0;
  for (const int head_size : {80, 96, 256, 576})
    for (const int block_size : {16, 48})
      for (const int num_kv_heads : {1, 3, 8}) {
        ++seed;
        append_and_compare<TestType>(shape_of(DType::bf16, head_size, block_size, num_kv_heads), seed % 2 == 0, 0, Guard::end,
                                     seed);
        copy_and_compare<TestType>(shape_of(DType::bf16, head_size, block_size, num_kv_heads), seed % 2 == 0, 0, Guard::end, seed);
        for (const bool token_scales : {false, true}) {
          const float scale = token_scales ? 0.f : 0.037f;
          const Quantised q{DType::bf16,  DType::i8,     head_size, block_size, num_kv_heads,
                            token_scales, seed % 3 == 0, scale,     scale,      0};
          quantise_and_compare<TestType>(q, Guard::start, seed);
        }
      }
}

TEMPLATE_LIST_TEST_CASE("append divides by the scale: a product with the reciprocal would give other codes", "[cache]", Machines) {
  const float scale = 0.0375f;
  for (const DType kv : {DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8}) {
    INFO(name(kv));
    DecodeShape shape = shape_of(DType::f16, 64, 16, 1);
    shape.kv = kv;
    const int tokens = 1024, size = shape.head_size;  // all codes of f16
    Buffer rows(std::size_t(tokens * size) * 2, 16, Guard::end);
    Buffer keys(rows.size() / 2, 16, Guard::end), values(rows.size() / 2, 16, Guard::end);
    std::vector<std::int64_t> slots;
    for (int token = 0; token < tokens; ++token) slots.push_back(token);
    for (std::uint32_t code = 0; code < 0x10000; ++code)
      rows.data()[2 * code] = std::uint8_t(code), rows.data()[2 * code + 1] = std::uint8_t(code >> 8);
    const Buffer slot_mapping = buffer_of(slots, Guard::end), scales = buffer_of(std::vector<float>{scale}, Guard::end);
    for (Buffer* buffer : {&rows, &keys, &values}) buffer->upload();
    AppendArgs args;
    args.new_keys = args.new_values = rows.device();
    args.cache.keys = keys.device(), args.cache.values = values.device();
    args.slot_mapping = slot_mapping.device_as<std::int64_t>();
    args.num_tokens = tokens;
    args.cache.k_scale = args.cache.v_scale = scales.device_as<float>();
    REQUIRE(hpa::append<cache_menu<TestType>>(shape, args, {}));
    for (Buffer* buffer : {&keys, &values}) buffer->download();
    Bytes keys_due = keys.bytes(), values_due = values.bytes();
    int other_codes = 0;
    for (std::uint32_t code = 0; code < 0x10000; ++code) {
      const float x = hpa::Format<DType::f16>::decode(code);
      const std::int64_t slab = std::int64_t{code} / (size * 16) * size * 16;
      const int slot = int(code) / size % 16, d = int(code) % size;
      expect_code(kv, keys_due, keys, slab + key_element(shape, slot, d), x / scale);
      expect_code(kv, values_due, values, slab + value_element(shape, slot, d), x / scale);
      std::uint8_t by_reciprocal = 0;
      hpa::store_element(kv, &by_reciprocal, 0, x * (1.f / scale));
      if (x == x) other_codes += by_reciprocal != keys_due[std::size_t(slab + key_element(shape, slot, d))];
    }
    CHECK((keys.bytes() == keys_due));
    CHECK((values.bytes() == values_due));
    CHECK(other_codes > 0);
  }
}

TEMPLATE_LIST_TEST_CASE("copy_blocks copies whole blocks and nothing else", "[cache]", Machines) {
  each_cache([](const DecodeShape& shape, bool padded, std::int64_t first_id, Guard guard, unsigned seed) {
    copy_and_compare<TestType>(shape, padded, first_id, guard, seed);
  });
}

TEMPLATE_LIST_TEST_CASE("copy_blocks copies 8-bit blocks and their token scales", "[cache]", Machines) {
  unsigned seed = 0;
  for (const DType kv : {DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8})
    for (const int head_size : {64, 128})
      for (const int block_size : {16, 32})
        for (const bool token_scales : {false, true}) {
          if (token_scales && kv != DType::i8) continue;
          DecodeShape shape = shape_of(DType::bf16, head_size, block_size, 3);
          shape.kv = kv;
          shape.token_scales = token_scales;
          ++seed;
          copy_and_compare<TestType>(shape, seed % 2 == 0, seed % 3 == 0 ? std::numeric_limits<std::int32_t>::max() - 8 : 0,
                                     seed % 2 == 0 ? Guard::end : Guard::start, seed);
        }
}

TEMPLATE_LIST_TEST_CASE("F77: what append writes is what decode reads", "[cache]", Machines) {
  for (const int head_size : {64, 128}) {
    for (const int block_size : {16, 32}) {
      CaseSpec spec = small_case(DType::f16, 4, 2, {1, 33, 100, 0, 300});
      spec.shape.head_size = head_size;
      spec.shape.block_size = block_size;
      if (block_size == 32) spec.padding.key_head = 8, spec.padding.value_block = 64;
      PagedCase paged(spec);
      const Bytes keys_due = paged.key_cache.bytes(), values_due = paged.value_cache.bytes();
      // The case's own tokens, taken out of the cache in random order.
      struct Token {
        int sequence, position;
      };
      std::vector<Token> tokens;
      for (int sequence = 0; sequence < paged.num_seqs(); ++sequence)
        for (int position = 0; position < spec.seq_lens[std::size_t(sequence)]; ++position) tokens.push_back({sequence, position});
      std::mt19937 random(5);
      std::shuffle(tokens.begin(), tokens.end(), random);
      const std::size_t token_bytes = std::size_t(2 * head_size) * 2;  // bytes of a token: two heads
      Buffer key(tokens.size() * token_bytes, 16, Guard::end), value(tokens.size() * token_bytes, 16, Guard::end);
      std::vector<std::int64_t> slots;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::int64_t block = paged.block_table(tokens[i].sequence, tokens[i].position / block_size);
        const int slot = tokens[i].position % block_size;
        slots.push_back(block * block_size + slot);
        for (int head = 0; head < 2; ++head)
          for (int d = 0; d < head_size; ++d) {
            const std::size_t to = i * token_bytes + std::size_t(head * head_size + d) * 2;
            std::memcpy(key.data() + to,
                        keys_due.data() + 2 * hpa::reference::key_index(paged.shape(), paged.strides(), block, slot, head, d), 2);
            std::memcpy(value.data() + to,
                        values_due.data() + 2 * hpa::reference::value_index(paged.shape(), paged.strides(), block, slot, head, d),
                        2);
          }
      }
      for (Buffer* cache : {&paged.key_cache, &paged.value_cache})  // NaN, as the case leaves what no row sees
        for (std::size_t i = 0; i < cache->size() / 2; ++i) std::memcpy(cache->data() + 2 * i, "\xff\x7f", 2);
      const Buffer slot_mapping = buffer_of(slots, Guard::end);
      for (Buffer* buffer : {&paged.key_cache, &paged.value_cache, &key, &value}) buffer->upload();
      AppendArgs args;
      args.new_keys = key.device(), args.new_values = value.device();
      args.cache = paged.args().cache;
      args.slot_mapping = slot_mapping.device_as<std::int64_t>();
      args.num_tokens = int(tokens.size());
      REQUIRE(hpa::append<full_menu<TestType>>(paged.shape(), args, {}));
      for (Buffer* cache : {&paged.key_cache, &paged.value_cache}) cache->download();
      CHECK((paged.key_cache.bytes() == keys_due));
      CHECK((paged.value_cache.bytes() == values_due));
      expect_right<full_menu<TestType>>(paged);
    }
  }
}

TEST_CASE("what append and copy_blocks cannot do is refused by name", "[cache]") {
  const DecodeShape shape = shape_of(DType::f16, 64, 16, 2);
  std::mt19937 random(1);
  Cache cache(shape, 3, 0, 0, 0, Guard::end, random);
  const Bytes before = cache.memory.bytes();
  Buffer slots(64, 8, Guard::end);
  AppendArgs append;
  append.new_keys = append.new_values = append.cache.keys = append.cache.values = cache.memory.device();
  append.slot_mapping = slots.device_as<std::int64_t>();
  append.num_tokens = 4;
  const auto refused_append = [&](const char* field, Status status, const std::function<void(DecodeShape&, AppendArgs&)>& spoil) {
    DecodeShape s = shape;
    AppendArgs a = append;
    spoil(s, a);
    const Verdict verdict = hpa::append<cache_menu<hpa::arch::DefaultMachine>>(s, a, {});
    INFO("expected: " << field << "; " << verdict.field << ": " << verdict.why);
    CHECK(verdict.field == std::string(field));
    CHECK(verdict.status == status);
  };
  const Status bad = Status::invalid_argument, none = Status::unsupported;
  const auto off = [](const void* pointer, int bytes) {
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(pointer) + std::uintptr_t(bytes));
  };
  refused_append("num_tokens", bad, [](DecodeShape&, AppendArgs& a) { a.num_tokens = -1; });
  refused_append("num_tokens", bad, [](DecodeShape&, AppendArgs& a) { a.num_tokens = -3; });
  refused_append("new_keys", bad, [](DecodeShape&, AppendArgs& a) { a.new_keys = nullptr; });
  refused_append("new_keys", bad, [&](DecodeShape&, AppendArgs& a) { a.new_keys = off(a.new_keys, 8); });
  refused_append("new_values", bad, [](DecodeShape&, AppendArgs& a) { a.new_values = nullptr; });
  refused_append("keys", bad, [](DecodeShape&, AppendArgs& a) { a.cache.keys = nullptr; });
  refused_append("values", bad, [&](DecodeShape&, AppendArgs& a) { a.cache.values = off(a.cache.values, 4); });
  refused_append("slot_mapping", bad, [](DecodeShape&, AppendArgs& a) { a.slot_mapping = nullptr; });
  refused_append("new_key_head_stride", bad, [](DecodeShape&, AppendArgs& a) { a.new_key_head_stride = 60; });
  refused_append("new_key_token_stride", bad, [](DecodeShape&, AppendArgs& a) { a.new_key_token_stride = 100; });
  refused_append("new_value_token_stride", bad, [](DecodeShape&, AppendArgs& a) { a.new_value_token_stride = 132; });
  refused_append("key_block_stride", bad, [](DecodeShape&, AppendArgs& a) { a.cache.key_block_stride = 2040; });
  refused_append("value_head_stride", bad, [](DecodeShape&, AppendArgs& a) { a.cache.value_head_stride = 1016; });
  refused_append("head_size", none, [](DecodeShape& s, AppendArgs&) { s.head_size = 88; });
  refused_append("kv", none, [](DecodeShape& s, AppendArgs&) { s.kv = DType::bf16; });
  float* const scales = slots.device_as<float>();
  refused_append("k_scale", bad, [&](DecodeShape&, AppendArgs& a) { a.cache.k_scale = scales; });
  refused_append("v_scale", bad, [&](DecodeShape&, AppendArgs& a) { a.cache.v_scale = scales; });
  refused_append("k_scale", bad, [&](DecodeShape& s, AppendArgs& a) {
    s.kv = DType::e4m3_ocp, a.cache.k_scale = static_cast<float*>(off(scales, 2));
  });
  refused_append("v_scale", bad,
                 [&](DecodeShape& s, AppendArgs& a) { s.kv = DType::i8, a.cache.v_scale = static_cast<float*>(off(scales, 1)); });
  refused_append("key_token_scales", bad,
                 [&](DecodeShape& s, AppendArgs& a) { s.kv = DType::i8, a.cache.key_token_scales = scales; });
  refused_append("value_token_scales", bad,
                 [&](DecodeShape& s, AppendArgs& a) { s.kv = DType::i8, a.cache.value_token_scales = scales; });
  refused_append("key_token_scales", bad, [&](DecodeShape&, AppendArgs& a) { a.cache.key_token_scales = scales; });
  const auto with_token_scales = [&](DecodeShape& s, AppendArgs& a) {
    s.kv = DType::i8, s.token_scales = true;
    a.cache.key_token_scales = a.cache.value_token_scales = scales;
  };
  refused_append("key_token_scales", bad,
                 [&](DecodeShape& s, AppendArgs& a) { with_token_scales(s, a), a.cache.key_token_scales = nullptr; });
  refused_append("value_token_scales", bad,
                 [&](DecodeShape& s, AppendArgs& a) { with_token_scales(s, a), a.cache.value_token_scales = nullptr; });
  refused_append("value_token_scales", bad, [&](DecodeShape& s, AppendArgs& a) {
    with_token_scales(s, a), a.cache.value_token_scales = static_cast<float*>(off(scales, 2));
  });
  refused_append("k_scale", bad, [&](DecodeShape& s, AppendArgs& a) { with_token_scales(s, a), a.cache.k_scale = scales; });
  refused_append("v_scale", bad, [&](DecodeShape& s, AppendArgs& a) { with_token_scales(s, a), a.cache.v_scale = scales; });
  refused_append("token_scales", none, [&](DecodeShape& s, AppendArgs&) { s.kv = DType::e5m2_ocp, s.token_scales = true; });
  refused_append("key_head_stride", bad, [](DecodeShape& s, AppendArgs& a) { s.kv = DType::i8, a.cache.key_head_stride = 1032; });

  DecodeShape eight_bits = shape;
  eight_bits.kv = DType::e4m3_ocp;
  CHECK(hpa::append(eight_bits, append, {}).field == std::string("kv"));  // this menu has no 8-bit KV

  CopyBlocksArgs copy;
  copy.cache.keys = copy.cache.values = cache.memory.device();
  copy.block_pairs = slots.device_as<std::int64_t>();
  copy.num_pairs = 2;
  const auto refused_copy = [&](const char* field, Status status, const std::function<void(DecodeShape&, CopyBlocksArgs&)>& spoil) {
    DecodeShape s = shape;
    CopyBlocksArgs a = copy;
    spoil(s, a);
    const Verdict verdict = hpa::copy_blocks<cache_menu<hpa::arch::DefaultMachine>>(s, a, {});
    INFO("expected: " << field << "; " << verdict.field << ": " << verdict.why);
    CHECK(verdict.field == std::string(field));
    CHECK(verdict.status == status);
  };
  refused_copy("num_pairs", bad, [](DecodeShape&, CopyBlocksArgs& a) { a.num_pairs = -1; });
  refused_copy("block_pairs", bad, [](DecodeShape&, CopyBlocksArgs& a) { a.block_pairs = nullptr; });
  refused_copy("keys", bad, [&](DecodeShape&, CopyBlocksArgs& a) { a.cache.keys = off(a.cache.keys, 2); });
  refused_copy("values", bad, [](DecodeShape&, CopyBlocksArgs& a) { a.cache.values = nullptr; });
  refused_copy("value_block_stride", bad, [](DecodeShape&, CopyBlocksArgs& a) { a.cache.value_block_stride = 8; });
  refused_copy("key_head_stride", bad,
               [](DecodeShape&, CopyBlocksArgs& a) { a.cache.key_head_stride = 1028, a.cache.key_block_stride = 4096; });
  refused_copy("key_token_scales", bad, [](DecodeShape& s, CopyBlocksArgs&) { s.kv = DType::i8, s.token_scales = true; });
  refused_copy("value_token_scales", bad, [&](DecodeShape& s, CopyBlocksArgs& a) {
    s.kv = DType::i8, s.token_scales = true, a.cache.key_token_scales = scales;
  });
  refused_copy("value_token_scales", bad,
               [&](DecodeShape& s, CopyBlocksArgs& a) { s.kv = DType::i8, a.cache.value_token_scales = scales; });
  refused_copy("key_token_scales", bad, [&](DecodeShape& s, CopyBlocksArgs& a) {
    s.kv = DType::i8, s.token_scales = true, a.cache.value_token_scales = scales;
    a.cache.key_token_scales = static_cast<float*>(off(scales, 3));
  });
  refused_copy("block_size", none, [](DecodeShape& s, CopyBlocksArgs&) { s.block_size = 64; });
  cache.memory.download();
  CHECK((cache.memory.bytes() == before));
}
