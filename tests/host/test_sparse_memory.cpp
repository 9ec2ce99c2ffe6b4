// Caches, queries and outputs in reserved ranges of many GiB of which only what the batch uses is mapped: real block ids at real
// offsets beyond 2^31 and 2^32 bytes, and no access to a block that is nobody's.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <set>
#include <vector>

#include "calls.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

template <class Machine>
using Menu = hpa::default_menu::with<hpa::query_types<DType::f16>, hpa::head_sizes<128>, hpa::block_sizes<16>,
                                     hpa::feature_sets<hpa::Features::none>, hpa::machine<Machine>>;

/// A reserved range; pages appear where something is put. What else lies on such a page is NaN.
class Reserved {
 public:
  explicit Reserved(std::size_t bytes) : bytes_(bytes), page_(std::size_t(sysconf(_SC_PAGESIZE))) {
    void* mapping = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::uint8_t*>(mapping);
  }
  Reserved(const Reserved&) = delete;
  ~Reserved() { munmap(data_, bytes_); }

  std::uint8_t* at(std::int64_t offset) { return data_ + offset; }

  std::uint8_t* map(std::int64_t offset, std::size_t bytes) {
    for (std::size_t page = std::size_t(offset) / page_; page <= (std::size_t(offset) + bytes - 1) / page_; ++page) {
      if (!mapped_.insert(page).second) continue;
      if (mprotect(data_ + page * page_, page_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
      std::memset(data_ + page * page_, 0xff, page_);
    }
    return at(offset);
  }
  bool is_mapped(std::int64_t offset) const { return mapped_.count(std::size_t(offset) / page_) != 0; }
  void put(std::int64_t offset, const void* data, std::size_t bytes) { std::memcpy(map(offset, bytes), data, bytes); }

 private:
  std::size_t bytes_, page_;
  std::uint8_t* data_ = nullptr;
  std::set<std::size_t> mapped_;
};

constexpr std::int64_t slab_bytes = 16 * 128 * 2;  // of one block and head: a page of most machines

/// Head size 128, block size 16, one KV head: a block is `slab_bytes` long in each cache.
CaseSpec page_sized_blocks(std::vector<int> lengths) {
  CaseSpec spec = small_case(DType::f16, 5, 1, std::move(lengths));
  spec.shape.head_size = 128;
  return spec;
}

/// Ids of `count` blocks, the first of them at and on both sides of 2^31, 2^32 and 2^33 bytes.
std::vector<std::int32_t> ids_around_edges(std::size_t count, std::int64_t block_bytes) {
  std::vector<std::int32_t> ids;
  for (const int exponent : {31, 32, 33})
    for (const int offset : {-1, 0, 1}) ids.push_back(std::int32_t((std::int64_t{1} << exponent) / block_bytes + offset));
  for (std::int32_t id = 3; ids.size() < count; id += 17) ids.push_back(id);
  ids.resize(count);
  return ids;
}

/// Runs the case as it is and then with `args` changed: the physical place of things does not change a bit.
template <class Machine, class Change>
void expect_same_bits(PagedCase& paged, Change&& change) {
  REQUIRE(run_paged_attention<Menu<Machine>>(paged));
  REQUIRE(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  const auto results = results_of(paged);
  const std::size_t bytes = hpa::workspace_bytes<Menu<Machine>>(paged.shape(), hpa::test::this_device());
  REQUIRE(paged.run(bytes, {}, [&](const DecodeShape& shape, DecodeArgs args, Workspace workspace, hpa::Stream stream) {
    change(args);
    return hpa::paged_attention<Menu<Machine>>(shape, args, workspace, stream);
  }));
  CHECK((results_of(paged) == results));
}

/// The table of a case with every id replaced by `ids` of it, and -1 where no block is due.
std::vector<std::int32_t> renamed_table(PagedCase& paged, const std::vector<std::int32_t>& ids) {
  std::vector<std::int32_t> table(paged.block_tables.size() / 4, -1);
  for (int sequence = 0; sequence < paged.num_seqs(); ++sequence)
    for (int column = 0; column < (paged.spec.seq_lens[std::size_t(sequence)] + 15) / 16; ++column)
      table[std::size_t(sequence * paged.table_width() + column)] = ids[std::size_t(paged.block_table(sequence, column))];
  return table;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("blocks that are nobody's may be unmapped, and offsets pass 2^31 and 2^32", "[sparse]", Machines) {
  PagedCase paged(page_sized_blocks({1, 40, 16, 200, 300}));
  const std::size_t blocks = paged.key_cache.size() / std::size_t(slab_bytes);
  const std::vector<std::int32_t> ids = ids_around_edges(blocks, slab_bytes);
  std::vector<std::int32_t> table = renamed_table(paged, ids);
  Reserved keys(std::size_t{1} << 34), values(std::size_t{1} << 34);
  const std::set<std::int32_t> used(table.begin(), table.end());
  for (std::size_t block = 0; block < blocks; ++block) {
    if (used.count(ids[block]) == 0) continue;
    keys.put(ids[block] * slab_bytes, paged.key_cache.data() + std::int64_t(block) * slab_bytes, std::size_t(slab_bytes));
    values.put(ids[block] * slab_bytes, paged.value_cache.data() + std::int64_t(block) * slab_bytes, std::size_t(slab_bytes));
  }
  expect_same_bits<TestType>(paged, [&](DecodeArgs& args) {
    args.cache.keys = keys.at(0);
    args.cache.values = values.at(0);
    args.batch.block_tables = table.data();
  });
}

TEMPLATE_LIST_TEST_CASE("rows of the block table begin wherever table_starts says, past 2^31 entries too", "[sparse]", Machines) {
  PagedCase paged(page_sized_blocks({1, 40, 16, 200, 300}));
  const std::int64_t edges[] = {(std::int64_t{1} << 31) - 1, 5, (std::int64_t{1} << 32) + 3, std::int64_t{1} << 31, 1000};
  Reserved table(std::size_t{1} << 35);
  for (int sequence = 0; sequence < paged.num_seqs(); ++sequence)
    table.put(4 * edges[sequence], &paged.block_table(sequence, 0),
              std::size_t(paged.spec.seq_lens[std::size_t(sequence)] + 15) / 16 * 4);
  expect_same_bits<TestType>(paged, [&](DecodeArgs& args) {
    args.batch.block_tables = reinterpret_cast<const std::int32_t*>(table.at(0));
    args.batch.table_starts = edges;
  });
}

TEMPLATE_LIST_TEST_CASE("F14: K and V interleaved in one buffer, with decoys where a wrapped offset would land", "[sparse]",
                        Machines) {
  PagedCase paged(page_sized_blocks({1, 40, 16, 200, 300}));
  const std::size_t blocks = paged.key_cache.size() / std::size_t(slab_bytes);
  const std::int64_t block_bytes = 2 * slab_bytes, base = std::int64_t{1} << 33;  // negative offsets have a place as well
  const std::vector<std::int32_t> ids = ids_around_edges(blocks, block_bytes);
  std::vector<std::int32_t> table = renamed_table(paged, ids);
  Reserved cache(std::size_t{1} << 35);
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::int64_t offset = base + ids[block] * block_bytes;
    cache.put(offset, paged.key_cache.data() + std::int64_t(block) * slab_bytes, std::size_t(slab_bytes));
    cache.put(offset + slab_bytes, paged.value_cache.data() + std::int64_t(block) * slab_bytes, std::size_t(slab_bytes));
  }
  std::vector<std::uint8_t> decoy(static_cast<std::size_t>(block_bytes));
  for (std::size_t i = 0; i < decoy.size() / 2; ++i) hpa::store_element(DType::f16, decoy.data(), std::int64_t(i), 3.f);
  int decoys = 0;
  for (const std::int32_t id : ids) {
    const std::int64_t bytes = id * block_bytes, elements = bytes / 2;
    for (const std::int64_t wrapped : {std::int64_t(std::int32_t(bytes)), std::int64_t(std::uint32_t(bytes)),
                                       2 * std::int64_t(std::int32_t(elements)), 2 * std::int64_t(std::uint32_t(elements))}) {
      if (wrapped == bytes || cache.is_mapped(base + wrapped)) continue;
      cache.put(base + wrapped, decoy.data(), decoy.size());
      ++decoys;
    }
  }
  CHECK(decoys > 5);
  expect_same_bits<TestType>(paged, [&](DecodeArgs& args) {
    args.cache.keys = cache.at(base);
    args.cache.values = cache.at(base + slab_bytes);
    args.cache.key_block_stride = args.cache.value_block_stride = block_bytes / 2;
    args.batch.block_tables = table.data();
  });
}

TEMPLATE_LIST_TEST_CASE("rows and heads of query and out more than 2^32 bytes apart", "[sparse]", Machines) {
  PagedCase paged(page_sized_blocks({40, 300, 0, 17}));
  const std::int64_t row_bytes = (std::int64_t{1} << 32) + 4096, head_bytes = (std::int64_t{1} << 30) + 256, run = 128 * 2;
  const int rows = paged.num_rows(), heads = paged.shape().num_heads;
  Reserved query(std::size_t{1} << 36), out(std::size_t{1} << 36);
  for (int row = 0; row < rows; ++row)
    for (int head = 0; head < heads; ++head) {
      query.put(row * row_bytes * 2 + head * head_bytes, paged.query.data() + (row * heads + head) * run, std::size_t(run));
      out.map(row * row_bytes * 2 + head * head_bytes, std::size_t(run));
    }
  REQUIRE(run_paged_attention<Menu<TestType>>(paged));
  const std::vector<std::uint8_t> dense = paged.out.bytes();
  const std::size_t bytes = hpa::workspace_bytes<Menu<TestType>>(paged.shape(), hpa::test::this_device());
  REQUIRE(paged.run(bytes, {}, [&](const DecodeShape& shape, DecodeArgs args, Workspace workspace, hpa::Stream stream) {
    args.query = query.at(0);
    args.out = out.at(0);
    args.query_row_stride = args.out_row_stride = row_bytes;  // elements: 8 GiB
    args.query_head_stride = args.out_head_stride = head_bytes / 2;
    return hpa::paged_attention<Menu<TestType>>(shape, args, workspace, stream);
  }));
  for (int row = 0; row < rows; ++row)
    for (int head = 0; head < heads; ++head)
      CHECK(std::memcmp(out.at(row * row_bytes * 2 + head * head_bytes), dense.data() + (row * heads + head) * run,
                        std::size_t(run)) == 0);
}
