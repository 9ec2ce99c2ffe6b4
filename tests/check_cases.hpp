// What tests of check() begin with: a shape and arguments that every rule accepts, and tables of what makes them bad. Pointers lead
// nowhere: whatever touches memory before the arguments have been found good is killed.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "hpa/cache.hpp"
#include "hpa/check.hpp"

namespace hpa::test {

inline const Device host_device{Arch::host, 8};

inline DecodeShape good_shape() {
  DecodeShape shape;
  shape.num_heads = 8;
  shape.num_kv_heads = 2;
  shape.max_seqs = 4;
  shape.max_seq_len = 1000;
  return shape;
}

/// Well aligned, and nobody's.
template <class T>
T* nowhere(int offset = 0) {
  return reinterpret_cast<T*>(std::uintptr_t(0x1000 + offset));
}

inline DecodeArgs good_args() {
  DecodeArgs args;
  args.query = nowhere<void>();
  args.cache.keys = nowhere<void>();
  args.cache.values = nowhere<void>();
  args.out = nowhere<void>(0x100);
  args.batch.block_tables = nowhere<std::int32_t>();
  args.batch.seq_lens = nowhere<std::int32_t>();
  args.batch.num_seqs = 3;
  args.batch.block_table_width = 63;
  return args;
}

inline AppendArgs good_append() {
  AppendArgs args;
  args.new_keys = nowhere<void>();
  args.new_values = nowhere<void>();
  args.cache.keys = nowhere<void>();
  args.cache.values = nowhere<void>();
  args.slot_mapping = nowhere<std::int64_t>();
  args.num_tokens = 5;
  return args;
}

inline CopyBlocksArgs good_copy() {
  CopyBlocksArgs args;
  args.cache.keys = nowhere<void>();
  args.cache.values = nowhere<void>();
  args.block_pairs = nowhere<std::int64_t>();
  args.num_pairs = 5;
  return args;
}

template <class Args>
struct BadArgs {
  const char* field;
  std::function<void(DecodeShape&, Args&)> spoil;
};

/// Every change makes bad arguments of the good ones, while the shape stays one that is accepted.
template <class Menu = default_menu, class Args>
void check_refused(const DecodeShape& good_shape, const Args& good, const std::vector<BadArgs<Args>>& table) {
  REQUIRE(check<Menu>(good_shape, good, host_device));
  int number = 0;
  for (const BadArgs<Args>& bad : table) {
    INFO("case " << number++ << ", " << bad.field);
    DecodeShape shape = good_shape;
    Args args = good;
    bad.spoil(shape, args);
    REQUIRE(check<Menu>(shape, host_device));
    const Verdict verdict = check<Menu>(shape, args, host_device);
    CHECK(verdict.status == Status::invalid_argument);
    CHECK(std::string(verdict.field) == bad.field);
    CHECK(std::string(verdict.why) != "");
  }
}

/// A pair of strides and what they step over.
template <class Args>
struct Strides {
  std::function<std::int64_t&(Args&)> outer;
  std::function<std::int64_t&(Args&)> inner;
  const char* outer_field;
  const char* inner_field;
  std::int64_t run;  // elements that lie together
  int count;         // of inner steps in an outer one
  int multiple;      // elements of one vector load or store
  DType type;        // of the elements
  bool is_cache;     // whose outer stride, like every inner one, must be below 4 GiB
};

/// A stride of the cache that the arguments hold.
template <class Args>
std::function<std::int64_t&(Args&)> in_cache(std::int64_t KvCache::*stride) {
  return [=](Args& args) -> std::int64_t& { return args.cache.*stride; };
}

template <class Menu = default_menu, class Args>
void check_strides(const DecodeShape& shape, const Args& good, const std::vector<Strides<Args>>& table) {
  const auto verdict_of = [&](const Strides<Args>& s, std::int64_t outer, std::int64_t inner) {
    Args args = good;
    s.outer(args) = outer;
    s.inner(args) = inner;
    return check<Menu>(shape, args, host_device);
  };
  for (const Strides<Args>& s : table) {
    INFO(s.outer_field << ", " << s.inner_field);
    const std::int64_t dense = s.run * s.count, wide = s.run + s.multiple;
    struct Case {
      std::int64_t outer, inner;
      const char* field;  // nullptr = good
    };
    const Case cases[] = {
        {0, 0, nullptr},
        {dense, s.run, nullptr},
        {dense, 0, nullptr},
        {0, s.run, nullptr},
        {0, wide, nullptr},
        {wide * s.count, wide, nullptr},
        {dense + s.multiple, 0, nullptr},
        {wide * (s.count - 1) + s.run, wide, nullptr},  // the last run needs no gap after it
        {s.run, 100 * s.run, nullptr},                  // heads outside, rows inside
        {0, s.run - s.multiple, s.inner_field},
        {0, -s.run, s.inner_field},
        {0, std::numeric_limits<std::int64_t>::min(), s.inner_field},
        {s.run - s.multiple, 0, s.outer_field},
        {dense - s.multiple, 0, s.outer_field},
        {dense, wide, s.outer_field},
        {-dense, 0, s.outer_field},
        {std::numeric_limits<std::int64_t>::min(), 0, s.outer_field},
        {s.run, s.run, s.inner_field},  // every row on top of the one before
        {0, s.run + 1, s.inner_field},
        {0, s.run + s.multiple / 2, s.inner_field},
        {dense + 1, 0, s.outer_field},
        {dense + s.multiple / 2, 0, s.outer_field},
    };
    for (const Case& c : cases) {
      INFO("outer " << c.outer << ", inner " << c.inner);
      const Verdict verdict = verdict_of(s, c.outer, c.inner);
      CHECK(verdict.status == (c.field == nullptr ? Status::ok : Status::invalid_argument));
      CHECK(std::string(verdict.field) == (c.field == nullptr ? "" : c.field));
    }
    // Kernels hold inner strides and those of blocks in 32 bits; no memory has strides near 2^63, and products with them are
    // not numbers.
    const std::int64_t gib_4 = (std::int64_t{1} << 32) / size_of(s.type), huge = std::int64_t{1} << 62;
    CHECK(verdict_of(s, gib_4 - s.multiple, 0).status == Status::ok);
    CHECK(verdict_of(s, s.run, gib_4 - s.multiple).status == Status::ok);
    CHECK(bool(verdict_of(s, gib_4, 0)) == !s.is_cache);
    CHECK(bool(verdict_of(s, 0, gib_4 / s.count)) == !s.is_cache);  // the dense outer stride is 4 GiB
    for (const std::int64_t large : {gib_4, huge, huge / 4 * 7, std::numeric_limits<std::int64_t>::max() / 16 * 16}) {
      INFO("stride " << large);
      CHECK(std::string(verdict_of(s, 0, large).field) == s.inner_field);
      CHECK(std::string(verdict_of(s, s.run, large).field) == s.inner_field);
      if (large == gib_4 && !s.is_cache) continue;
      CHECK(std::string(verdict_of(s, large, 0).field) == s.outer_field);
    }
  }
}

}  // namespace hpa::test
