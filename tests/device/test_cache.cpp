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

using hpa::AppendArgs;
using hpa::CopyBlocksArgs;
using hpa::DecodeShape;
using hpa::DType;
using hpa::Status;
using hpa::Verdict;
using hpa::test::Buffer;
using hpa::test::CaseSpec;
using hpa::test::expect_right;
using hpa::test::full_menu;
using hpa::test::Guard;
using hpa::test::Machines;
using hpa::test::PagedCase;
using hpa::test::small_case;

namespace {

using Bytes = std::vector<std::uint8_t>;

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

/// Strides of one cache in elements, and the cache itself, filled with bytes that are nobody's.
struct Cache {
  std::int64_t slab, head_stride, block_stride, first_id;
  Buffer memory;

  Cache(const DecodeShape& shape, int num_blocks, std::int64_t head_padding, std::int64_t block_padding,
        std::int64_t first_block_id, Guard guard, std::mt19937& random)
      : slab(std::int64_t{shape.head_size} * shape.block_size),
        head_stride(slab + head_padding),
        block_stride(shape.num_kv_heads * head_stride + block_padding),
        first_id(first_block_id),
        memory(std::size_t((num_blocks - 1) * block_stride + (shape.num_kv_heads - 1) * head_stride + slab) * 2, 16, guard) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory.data()[i] = std::uint8_t(random());
    memory.upload();
  }
  void* pointer() const {
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(memory.device()) - std::uintptr_t(2 * first_id * block_stride));
  }
  /// Index of an element in an image of the cache.
  std::int64_t start_of(std::int64_t block, int head) const { return (block - first_id) * block_stride + head * head_stride; }
};

std::int64_t key_element(const DecodeShape& s, int slot, int element) {
  return (element / 8 * s.block_size + slot) * 8 + element % 8;
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
  args.key = key.device(), args.value = value.device();
  args.key_cache = keys.pointer(), args.value_cache = values.pointer();
  args.slot_mapping = slot_mapping.device_as<std::int64_t>();
  args.num_tokens = int(slots.size());
  if (padded) {
    args.key_token_stride = key_token_stride, args.key_head_stride = key_head_stride;
    args.value_token_stride = value_token_stride, args.value_head_stride = value_head_stride;
    args.cache_key_block_stride = keys.block_stride, args.cache_key_head_stride = keys.head_stride;
    args.cache_value_block_stride = values.block_stride, args.cache_value_head_stride = values.head_stride;
  }

  Bytes expected_keys = keys.memory.bytes(), expected_values = values.memory.bytes();
  for (std::size_t token = 0; token < slots.size(); ++token) {
    if (slots[token] < 0) continue;
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
  const Verdict verdict = hpa::append<full_menu<Machine>>(shape, args, {});
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
  const auto padding = [&](int most) { return padded ? 8 * std::int64_t(random() % unsigned(most)) : 0; };
  const std::int64_t key_head = padding(3), key_block = padding(5), value_head = padding(3), value_block = padding(5);
  Cache keys(shape, num_blocks, key_head, key_block, first_id, guard, random);
  Cache values(shape, num_blocks, value_head, value_block, first_id, guard, random);
  std::vector<std::int64_t> ids;
  for (int i = 0; i < num_blocks; ++i) ids.push_back(first_id + i);
  std::shuffle(ids.begin(), ids.end(), random);
  // Four sources, one of them twice, to five destinations; two pairs to skip.
  std::vector<std::int64_t> pairs = {ids[0], ids[4], -1, ids[0], ids[1], ids[5], ids[0],
                                     ids[6], ids[2], -5, ids[2], ids[7], ids[3], ids[8]};
  Buffer block_pairs = buffer_of(pairs, guard);
  Bytes expected_keys = keys.memory.bytes(), expected_values = values.memory.bytes();
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (pairs[i] < 0 || pairs[i + 1] < 0) continue;
    for (int head = 0; head < shape.num_kv_heads; ++head)
      for (std::int64_t element = 0; element < keys.slab; ++element) {
        copy_element(expected_keys, keys.start_of(pairs[i + 1], head) + element, keys.memory.data(),
                     keys.start_of(pairs[i], head) + element);
        copy_element(expected_values, values.start_of(pairs[i + 1], head) + element, values.memory.data(),
                     values.start_of(pairs[i], head) + element);
      }
  }
  CopyBlocksArgs args;
  args.key_cache = keys.pointer(), args.value_cache = values.pointer();
  args.block_pairs = block_pairs.device_as<std::int64_t>();
  args.num_pairs = int(pairs.size() / 2);
  if (padded) {
    args.key_block_stride = keys.block_stride, args.key_head_stride = keys.head_stride;
    args.value_block_stride = values.block_stride, args.value_head_stride = values.head_stride;
  }
  const Verdict verdict = hpa::copy_blocks<full_menu<Machine>>(shape, args, {});
  INFO(verdict.field << ": " << verdict.why);
  REQUIRE(verdict);
  for (Buffer* buffer : {&keys.memory, &values.memory, &block_pairs}) buffer->download();
  CHECK((keys.memory.bytes() == expected_keys));
  CHECK((values.memory.bytes() == expected_values));
  for (const Buffer* buffer : {&keys.memory, &values.memory, &block_pairs}) CHECK(buffer->canary_intact());
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

TEMPLATE_LIST_TEST_CASE("copy_blocks copies whole blocks and nothing else", "[cache]", Machines) {
  each_cache([](const DecodeShape& shape, bool padded, std::int64_t first_id, Guard guard, unsigned seed) {
    copy_and_compare<TestType>(shape, padded, first_id, guard, seed);
  });
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
      const std::size_t piece = std::size_t(2 * head_size) * 2;  // bytes of a token: two heads
      Buffer key(tokens.size() * piece, 16, Guard::end), value(tokens.size() * piece, 16, Guard::end);
      std::vector<std::int64_t> slots;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::int64_t block = paged.block_table(tokens[i].sequence, tokens[i].position / block_size);
        const int slot = tokens[i].position % block_size;
        slots.push_back(block * block_size + slot);
        for (int head = 0; head < 2; ++head)
          for (int d = 0; d < head_size; ++d) {
            const std::size_t to = i * piece + std::size_t(head * head_size + d) * 2;
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
      const hpa::DecodeArgs layer = paged.args();
      AppendArgs args;
      args.key = key.device(), args.value = value.device();
      args.key_cache = paged.key_cache.device(), args.value_cache = paged.value_cache.device();
      args.slot_mapping = slot_mapping.device_as<std::int64_t>();
      args.num_tokens = int(tokens.size());
      args.cache_key_block_stride = layer.key_block_stride, args.cache_key_head_stride = layer.key_head_stride;
      args.cache_value_block_stride = layer.value_block_stride, args.cache_value_head_stride = layer.value_head_stride;
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
  append.key = append.value = append.key_cache = append.value_cache = cache.memory.device();
  append.slot_mapping = slots.device_as<std::int64_t>();
  append.num_tokens = 4;
  const auto refused_append = [&](const char* field, Status status, const std::function<void(DecodeShape&, AppendArgs&)>& spoil) {
    DecodeShape s = shape;
    AppendArgs a = append;
    spoil(s, a);
    const Verdict verdict = hpa::append(s, a, {});
    INFO("expected: " << field << "; " << verdict.field << ": " << verdict.why);
    CHECK(verdict.field == std::string(field));
    CHECK(verdict.status == status);
  };
  const Status bad = Status::invalid_argument, none = Status::unsupported;
  const auto off = [](const void* pointer, int bytes) {
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(pointer) + std::uintptr_t(bytes));
  };
  refused_append("num_tokens", bad, [](DecodeShape&, AppendArgs& a) { a.num_tokens = 0; });
  refused_append("num_tokens", bad, [](DecodeShape&, AppendArgs& a) { a.num_tokens = -3; });
  refused_append("key", bad, [](DecodeShape&, AppendArgs& a) { a.key = nullptr; });
  refused_append("key", bad, [&](DecodeShape&, AppendArgs& a) { a.key = off(a.key, 8); });
  refused_append("value", bad, [](DecodeShape&, AppendArgs& a) { a.value = nullptr; });
  refused_append("key_cache", bad, [](DecodeShape&, AppendArgs& a) { a.key_cache = nullptr; });
  refused_append("value_cache", bad, [&](DecodeShape&, AppendArgs& a) { a.value_cache = off(a.value_cache, 4); });
  refused_append("slot_mapping", bad, [](DecodeShape&, AppendArgs& a) { a.slot_mapping = nullptr; });
  refused_append("key_head_stride", bad, [](DecodeShape&, AppendArgs& a) { a.key_head_stride = 60; });
  refused_append("key_token_stride", bad, [](DecodeShape&, AppendArgs& a) { a.key_token_stride = 100; });
  refused_append("value_token_stride", bad, [](DecodeShape&, AppendArgs& a) { a.value_token_stride = 132; });
  refused_append("cache_key_block_stride", bad, [](DecodeShape&, AppendArgs& a) { a.cache_key_block_stride = 2040; });
  refused_append("cache_value_head_stride", bad, [](DecodeShape&, AppendArgs& a) { a.cache_value_head_stride = 1016; });
  refused_append("head_size", none, [](DecodeShape& s, AppendArgs&) { s.head_size = 80; });
  refused_append("kv", none, [](DecodeShape& s, AppendArgs&) { s.kv = DType::e4m3_ocp; });

  CopyBlocksArgs copy;
  copy.key_cache = copy.value_cache = cache.memory.device();
  copy.block_pairs = slots.device_as<std::int64_t>();
  copy.num_pairs = 2;
  const auto refused_copy = [&](const char* field, Status status, const std::function<void(DecodeShape&, CopyBlocksArgs&)>& spoil) {
    DecodeShape s = shape;
    CopyBlocksArgs a = copy;
    spoil(s, a);
    const Verdict verdict = hpa::copy_blocks(s, a, {});
    INFO("expected: " << field << "; " << verdict.field << ": " << verdict.why);
    CHECK(verdict.field == std::string(field));
    CHECK(verdict.status == status);
  };
  refused_copy("num_pairs", bad, [](DecodeShape&, CopyBlocksArgs& a) { a.num_pairs = 0; });
  refused_copy("block_pairs", bad, [](DecodeShape&, CopyBlocksArgs& a) { a.block_pairs = nullptr; });
  refused_copy("key_cache", bad, [&](DecodeShape&, CopyBlocksArgs& a) { a.key_cache = off(a.key_cache, 2); });
  refused_copy("value_cache", bad, [](DecodeShape&, CopyBlocksArgs& a) { a.value_cache = nullptr; });
  refused_copy("value_block_stride", bad, [](DecodeShape&, CopyBlocksArgs& a) { a.value_block_stride = 8; });
  refused_copy("key_head_stride", bad,
               [](DecodeShape&, CopyBlocksArgs& a) { a.key_head_stride = 1028, a.key_block_stride = 4096; });
  refused_copy("block_size", none, [](DecodeShape& s, CopyBlocksArgs&) { s.block_size = 64; });
  cache.memory.download();
  CHECK((cache.memory.bytes() == before));
}
