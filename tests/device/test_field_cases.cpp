// Faults reported in public against paged attention, as inputs. The ids are those of the list of field cases; what only a cache
// writer, a sparse address space or a graph can show has its id in test_cache, test_sparse_memory and test_graph; what belongs to
// masks, windows and several rows, and to 8-bit caches, has it in test_field_features and test_field_bytes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "probes.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

const float infinity = std::numeric_limits<float>::infinity();

template <class Machine>
using alibi_menu = hpa::default_menu::with<hpa::query_types<DType::bf16>, hpa::head_sizes<128>, hpa::machine<Machine>>;

/// A batch of one type with head size 128 and the given block size.
CaseSpec large_case(DType type, int block_size, int num_heads, int num_kv_heads, std::vector<int> seq_lens) {
  CaseSpec spec = small_case(type, num_heads, num_kv_heads, std::move(seq_lens));
  spec.shape.head_size = 128;
  spec.shape.block_size = block_size;
  return spec;
}

/// All queries `first` in element 0 and zero elsewhere.
void set_first(PagedCase& paged, float first) {
  for (int row = 0; row < paged.num_rows(); ++row)
    for (int head = 0; head < paged.shape().num_heads; ++head)
      for (int d = 0; d < paged.shape().head_size; ++d) paged.set_query(row, head, d, d == 0 ? first : 0.f);
}

/// Some keys and values for the tokens of a sequence whose table was changed by hand.
void fill_tokens(PagedCase& paged, int sequence, int first, int last) {
  for (int token = first; token < last; ++token)
    for (int head = 0; head < paged.shape().num_kv_heads; ++head)
      for (int d = 0; d < paged.shape().head_size; ++d) {
        paged.set_key(sequence, token, head, d, float((token * 7 + d * 3 + head) % 11) / 8.f - 0.6f);
        paged.set_value(sequence, token, head, d, float((token * 5 + d + sequence) % 13) / 4.f - 1.5f);
      }
}

/// Runs with the library's error report, which must name `field`.
template <class Menu>
void expect_report(PagedCase& paged, const char* field) {
  Verdict error;
  REQUIRE(paged.run(hpa::workspace_bytes<Menu>(paged.shape(), this_device()), {},
                    [&](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, hpa::Stream stream) {
                      const Verdict verdict = hpa::paged_attention<Menu>(shape, args, workspace, stream);
                      error = hpa::workspace_error(workspace, stream);
                      return verdict;
                    }));
  CHECK(error.field == std::string(field));
  CHECK(paged.check_against_reference(tolerance_of(paged.shape().query)).problem == "");
}

DecodeShape valid_shape() {
  DecodeShape shape;
  shape.num_heads = 8;
  shape.num_kv_heads = 2;
  shape.max_seqs = 4;
  shape.max_seq_len = 1000;
  return shape;
}

void expect_refused(const DecodeShape& shape, const char* field) {
  const Verdict verdict = hpa::check(shape, this_device());
  INFO("head size " << shape.head_size << ", block size " << shape.block_size);
  CHECK(!verdict);
  CHECK(verdict.field == std::string(field));
  CHECK(std::string(verdict.why) != "");
  CHECK(hpa::workspace_bytes(shape, this_device()) == 0);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("F01: NaN in slots past the length, in keys, in values, in both", "[field]", Machines) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  expect_right<plain_menu<TestType>>(large_case(DType::bf16, 16, 4, 1, {4096}), 2);  // no such slots
  const int length = 4090;
  CaseSpec spec = large_case(DType::bf16, 16, 4, 1, {length});
  spec.tail = Tail::zero;
  PagedCase paged(spec);
  expect_right<plain_menu<TestType>>(paged, 2);
  const auto clean = results_of(paged);
  for (const float poison : {nan, infinity, -infinity, 65504.f, 1e38f}) {
    if (hpa::test::fewer_values && !std::isnan(poison)) continue;
    for (const int where : {1, 2, 3}) {
      for (int token = length; token < 4096; ++token)
        for (int d = 0; d < 128; ++d) {
          paged.set_key(0, token, 0, d, (where & 1) != 0 ? poison : 0.f);
          paged.set_value(0, token, 0, d, (where & 2) != 0 ? poison : 0.f);
        }
      REQUIRE(run_paged_attention<plain_menu<TestType>>(paged));
      CHECK((results_of(paged) == clean));
    }
  }
}

TEMPLATE_LIST_TEST_CASE("F02: two runs that differ only in bytes past the length", "[field]", Machines) {
  for (int ratio = 3; ratio <= 16; ++ratio) {
    CaseSpec spec = large_case(ratio % 2 == 0 ? DType::f16 : DType::bf16, 16, ratio, 1, {9 + ratio, 201 + ratio});
    spec.tail = Tail::zero;
    PagedCase zero(spec);
    REQUIRE(run_paged_attention<plain_menu<TestType>>(zero));
    spec.tail = Tail::random;
    PagedCase random(spec);
    REQUIRE(run_paged_attention<plain_menu<TestType>>(random));
    CHECK((results_of(random) == results_of(zero)));
  }
}

TEMPLATE_LIST_TEST_CASE("F03: short requests in the pages of long ones", "[field]", Machines) {
  CaseSpec spec = small_case(DType::bf16, 2, 1, {8192, 8192, 300});
  PagedCase reused(spec);
  REQUIRE(run_paged_attention<plain_menu<TestType>>(reused));
  const std::vector<int> lengths = {2048, 2041, 17};
  std::copy(lengths.begin(), lengths.end(), reused.seq_lens.as<std::int32_t>());
  REQUIRE(run_paged_attention<plain_menu<TestType>>(reused));
  spec.shape.max_seqs = reused.shape().max_seqs;
  spec.shape.max_seq_len = reused.shape().max_seq_len;
  spec.seq_lens = lengths;
  PagedCase fresh(spec);
  expect_right<plain_menu<TestType>>(fresh, 3);
  CHECK((results_of(reused) == results_of(fresh)));
  for (int token = 2048; token < 8192; ++token)
    for (int d = 0; d < 64; ++d) reused.set_value(0, token, 0, d, -infinity);
  REQUIRE(run_paged_attention<plain_menu<TestType>>(reused));
  CHECK((results_of(reused) == results_of(fresh)));
}

TEMPLATE_LIST_TEST_CASE("F04: a call without keys, then real lengths in the same pages", "[field]", Machines) {
  PagedCase paged(large_case(DType::f16, 32, 4, 2, {100, 64, 31}));
  const auto with = [&](const std::vector<int>& lengths) {
    paged.set_seq_lens(lengths);
    expect_right<plain_menu<TestType>>(paged);
  };
  with({0, 0, 0});
  with({100, 64, 31});
  with({0, 33, 0});
  with({90, 1, 96});
}

TEMPLATE_LIST_TEST_CASE("F07: padding rows of length 0, page 0 full of NaN and in a live row's table", "[field]", Machines) {
  CaseSpec spec = small_case(DType::f16, 4, 1, {0, 17, 0, 33});
  spec.spare_blocks = 251;
  PagedCase paged(spec);
  for (int column = 0; column < 3; ++column) {
    for (const int padding : {0, 2}) paged.block_table(padding, column) = 0;
    paged.block_table(1, column) = std::vector<int>{255, 254, 0}[std::size_t(column)];
    paged.block_table(3, column) = 10 + column;
  }
  fill_tokens(paged, 1, 0, 17);
  fill_tokens(paged, 3, 0, 33);
  for (int d = 0; d < 64; ++d)
    for (int token = 0; token < 16; ++token) {
      paged.set_key(0, token, 0, d, std::numeric_limits<float>::quiet_NaN());
      paged.set_value(0, token, 0, d, std::numeric_limits<float>::quiet_NaN());
    }
  expect_right<plain_menu<TestType>>(paged);
}

TEMPLATE_LIST_TEST_CASE("F15: block strides whose products leave 31 bits of elements", "[field]", Machines) {
  CaseSpec spec = small_case(DType::f16, 2, 1, {40, 3});
  spec.padding.key_block = spec.padding.value_block = 276480 - 16 * 64;
  spec.spare_blocks = 0;
  spec.first_block_id = 7765;  // 7765 to 7768
  expect_right<plain_menu<TestType>>(spec);
}

TEMPLATE_LIST_TEST_CASE("F17: a block id and a stride of 32 bits whose product has more", "[field]", Machines) {
  CaseSpec spec = small_case(DType::bf16, 2, 1, {40, 3});
  spec.padding.key_block = 16384 - 16 * 64;
  for (const std::int64_t id : {std::int64_t{1} << 17, std::int64_t{1} << 18, std::int64_t{1} << 20}) {
    spec.first_block_id = id - 3;
    expect_right<plain_menu<TestType>>(spec);
  }
}

TEMPLATE_LIST_TEST_CASE("F19: blocks of 32 and 80 layers side by side", "[field]", Machines) {
  for (const int layers : {32, 80}) {
    CaseSpec spec = large_case(DType::f16, 16, 4, 2, {100, 33});
    spec.padding.key_block = spec.padding.value_block = (layers - 1) * 2 * 16 * 128;
    spec.first_block_id = 40000;
    expect_right<plain_menu<TestType>>(spec);
  }
}

TEMPLATE_LIST_TEST_CASE("F21: from 63 to 513 partitions, with all the mass in the last one", "[field]", Machines) {
  for (const int partitions : {1, 2, 63, 64, 65, 127, 128, 129, 511, 512, 513}) {
    CaseSpec spec = small_case(DType::f16, 2, 1, {partitions * 16 - partitions % 5});
    spec.scale = 1.f;
    PagedCase paged(spec);
    const int last = spec.seq_lens[0] - 1;
    INFO("partitions " << partitions);
    using Finest = Config<64, 16, DType::f16, DType::f16, 16>;
    REQUIRE(run_decode_with<Finest, TestType>(paged));
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
    set_first(paged, 32.f);
    paged.set_key(0, last, 0, 0, 60.f);
    for (int d = 0; d < 64; ++d) paged.set_value(0, last, 0, d, float(d + 1));
    REQUIRE(run_decode_with<Finest, TestType>(paged));
    int wrong = 0;
    for (const int head : {0, 1})
      for (int d = 0; d < 64; ++d) wrong += out_of(paged, 0, head, d) != float(d + 1);
    CHECK(wrong == 0);
  }
}

TEMPLATE_LIST_TEST_CASE("F22: lengths across every product of tile, waves and partition", "[field]", Machines) {
  CaseSpec spec = large_case(DType::f16, 32, 1, 1, {});
  for (const int edge : {128, 512, 1024, 2048, 4096})
    for (const int offset : {-33, -1, 0, 1, 32}) spec.seq_lens.push_back(edge + offset);
  spec.shape.max_seqs = 1000;
  expect_right<plain_menu<TestType>>(spec);
}

TEMPLATE_LIST_TEST_CASE("F24: a query of zero gives the plain mean", "[field]", Machines) {
  const std::vector<int> lengths = {1, 100, 255, 257, 300};
  PagedCase paged(large_case(DType::f16, 32, 8, 1, lengths));
  set_first(paged, 0.f);
  REQUIRE(run_paged_attention<plain_menu<TestType>>(paged));
  CHECK(paged.check_against_reference(6e-4, 1e-5).problem == "");  // nothing is rounded but the result
}

TEMPLATE_LIST_TEST_CASE("F25: empty rows write zero and minus infinity over whatever was there", "[field]", Machines) {
  expect_right<plain_menu<TestType>>(large_case(DType::f16, 16, 4, 2, {0, 5, 0, 300}));
}

TEMPLATE_LIST_TEST_CASE("F32: a table exactly as wide as needed, and a length one larger", "[field]", Machines) {
  for (const int block_size : {16, 32}) {
    CaseSpec spec = large_case(DType::f16, block_size, 2, 1, {3 * block_size, 2 * block_size + 1});
    spec.shape.max_seq_len = 1000;
    PagedCase paged(spec);
    expect_right<plain_menu<TestType>>(paged);
    paged.spec.unchecked = {1};
    paged.seq_lens.as<std::int32_t>()[1] = 3 * block_size + 1;
    expect_report<plain_menu<TestType>>(paged, "seq_lens");
  }
}

TEMPLATE_LIST_TEST_CASE("F33: a page too many in the table at lengths that fill theirs", "[field]", Machines) {
  CaseSpec spec = small_case(DType::f16, 2, 1, {16, 32, 48, 160, 512});
  spec.spare_columns = 1;
  PagedCase paged(spec);
  for (int token = 496; token < 512; ++token)
    for (int d = 0; d < 64; ++d) paged.set_key(4, token, 0, d, 40.f);
  REQUIRE(run_paged_attention<plain_menu<TestType>>(paged));
  const auto results = results_of(paged);
  const std::int32_t large = paged.block_table(4, 31);  // a live page, the keys of which are large
  for (int sequence = 0; sequence < 5; ++sequence) paged.block_table(sequence, spec.seq_lens[std::size_t(sequence)] / 16) = large;
  expect_right<plain_menu<TestType>>(paged);
  CHECK((results_of(paged) == results));
}

TEMPLATE_LIST_TEST_CASE("F39: twenty calls with the same input", "[field]", Machines) {
  PagedCase paged(large_case(DType::bf16, 16, 4, 2, {1500, 33}));
  expect_right<plain_menu<TestType>>(paged, 3);
  const auto results = results_of(paged);
  for (int i = 0; i < 20; ++i) {
    REQUIRE(run_paged_attention<plain_menu<TestType>>(paged));
    CHECK((results_of(paged) == results));
  }
}

TEMPLATE_LIST_TEST_CASE("F40: every group size", "[field]", Machines) {
  for (const int ratio : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32, 64, 71}) {
    CaseSpec spec = large_case(ratio % 2 == 0 ? DType::f16 : DType::bf16, 16, 2 * ratio, 2, {35, 1});
    expect_right<plain_menu<TestType>>(spec);
  }
}

TEMPLATE_LIST_TEST_CASE("F41: 32 heads on one and two KV heads, one page, the last one holding one token", "[field]", Machines) {
  for (const int num_kv_heads : {1, 2})
    for (const int length : {1, 16, 17}) expect_right<plain_menu<TestType>>(large_case(DType::f16, 16, 32, num_kv_heads, {length}));
}

TEMPLATE_LIST_TEST_CASE("F42: 71 query heads on one KV head", "[field]", Machines) {
  CaseSpec spec = small_case(DType::bf16, 71, 1, {1, 150, 0, 33});
  spec.shape.alibi = true;
  expect_right<one_menu<TestType, DType::bf16>>(spec);
}

TEMPLATE_LIST_TEST_CASE("F48: block sizes 16 and 32 with ALiBi on equal data", "[field]", Machines) {
  for (const bool alibi : {false, true}) {
    for (const int block_size : {16, 32}) {
      CaseSpec spec = large_case(DType::bf16, block_size, 32, 8, {});
      spec.shape.alibi = alibi;
      for (int length = 1; length <= 64; ++length) spec.seq_lens.push_back(length);
      expect_right<alibi_menu<TestType>>(spec, 13);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("F51: the same sequences paged in several ways", "[field]", Machines) {
  std::vector<std::vector<float>> all;
  for (const int block_size : {16, 32})
    for (const unsigned block_seed : {1u, 2u}) {
      CaseSpec spec = large_case(DType::f16, block_size, 8, 2, {31, 32, 33, 257});
      spec.block_seed = block_seed;
      PagedCase paged(spec);
      expect_right<plain_menu<TestType>>(paged, 3);
      std::vector<float> out;
      for (std::size_t i = 0; i < paged.out.size() / 2; ++i)
        out.push_back(hpa::load_element(DType::f16, paged.out.data(), std::int64_t(i)));
      all.push_back(out);
    }
  for (const auto& out : all) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < out.size(); ++i) difference += std::pow(out[i] - all[0][i], 2), norm += std::pow(out[i], 2);
    CHECK(std::sqrt(difference / norm) < tolerance_of(DType::f16).out);
  }
}

TEMPLATE_LIST_TEST_CASE("F53: a batch that shrinks, with the ids of live pages left in padding rows", "[field]", Machines) {
  CaseSpec spec = large_case(DType::f16, 16, 4, 2, {100, 17, 32, 40, 50, 60, 70, 80});
  PagedCase paged(spec);
  expect_right<plain_menu<TestType>>(paged);
  const auto results = results_of(paged);
  for (int sequence = 3; sequence < 8; ++sequence) {
    paged.seq_lens.as<std::int32_t>()[sequence] = sequence % 2;
    for (int column = 0; column < 5; ++column) paged.block_table(sequence, column) = paged.block_table(sequence % 3, 0);
  }
  expect_right<plain_menu<TestType>>(paged);
  for (int sequence = 0; sequence < 3; ++sequence) CHECK((paged.result_of(sequence) == results[std::size_t(sequence)]));
  REQUIRE(paged.run(hpa::workspace_bytes<plain_menu<TestType>>(paged.shape(), this_device()), {},
                    [](const DecodeShape& shape, DecodeArgs args, Workspace workspace, hpa::Stream stream) {
                      args.batch.num_seqs = 3;
                      return hpa::paged_attention<plain_menu<TestType>>(shape, args, workspace, stream);
                    }));
  for (int sequence = 0; sequence < 3; ++sequence) CHECK((paged.result_of(sequence) == results[std::size_t(sequence)]));
  for (int sequence = 3; sequence < 8; ++sequence) {
    const auto bytes = paged.result_of(sequence);
    CHECK(std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == PagedCase::sentinel; }));
  }
}

TEMPLATE_LIST_TEST_CASE("F54: entries past the length are no ids", "[field]", Machines) {
  CaseSpec spec = large_case(DType::bf16, 32, 4, 2, {1, 32, 33, 300});
  spec.spare_columns = 3;
  PagedCase paged(spec);
  for (const std::int32_t entry : {-1, 0x7fffffff, 0x7f7f7f7f}) {
    for (int sequence = 0; sequence < 4; ++sequence)
      for (int column = (spec.seq_lens[std::size_t(sequence)] + 31) / 32; column < paged.table_width(); ++column)
        paged.block_table(sequence, column) = entry;
    expect_right<plain_menu<TestType>>(paged);
  }
}

TEMPLATE_LIST_TEST_CASE("F55: padding rows of zeros, with length 0 and with length 1", "[field]", Machines) {
  CaseSpec spec = large_case(DType::f16, 16, 4, 2, {100, 17, 0, 0});
  PagedCase paged(spec);
  paged.block_table(0, 0) = 0;  // page 0 is live
  fill_tokens(paged, 0, 0, 16);
  for (int column = 1; column < 7; ++column) paged.block_table(0, column) = column;
  for (int column = 0; column < 2; ++column) paged.block_table(1, column) = 7 + column;
  fill_tokens(paged, 0, 16, 100);
  fill_tokens(paged, 1, 0, 17);
  for (int column = 0; column < 7; ++column) paged.block_table(2, column) = paged.block_table(3, column) = 0;
  expect_right<plain_menu<TestType>>(paged);
  const auto results = results_of(paged);
  paged.seq_lens.as<std::int32_t>()[2] = paged.seq_lens.as<std::int32_t>()[3] = 1;
  expect_right<plain_menu<TestType>>(paged);
  CHECK((paged.result_of(0) == results[0]));
  CHECK((paged.result_of(1) == results[1]));
}

TEMPLATE_LIST_TEST_CASE("F57: shared prefixes, and one page several times in a row of the table", "[field]", Machines) {
  CaseSpec spec = large_case(DType::f16, 16, 4, 1, {200, 49, 48, 100});
  spec.shared_prefix_blocks = 3;
  PagedCase shared(spec);
  expect_right<plain_menu<TestType>>(shared);
  PagedCase twice(large_case(DType::f16, 16, 4, 1, {70, 600}));
  for (const int column : {1, 3}) twice.block_table(0, column) = twice.block_table(0, 0);
  for (int column = 1; column < 37; ++column) twice.block_table(1, column) = twice.block_table(1, column % 3);
  expect_right<plain_menu<TestType>>(twice);
}

TEMPLATE_LIST_TEST_CASE("F59: more and fewer query rows than sequences", "[field]", Machines) {
  CaseSpec spec = large_case(DType::f16, 16, 4, 2, {50, 300, 17, 40, 90});
  spec.query_lens = {1, 60, 1, 0, 1};
  expect_right<plain_menu<TestType>>(spec);
  spec.query_lens = {0, 0, 1, 0, 1};
  expect_right<plain_menu<TestType>>(spec);
}

TEMPLATE_LIST_TEST_CASE("F60: a workspace one partial result short is refused", "[field]", Machines) {
  using Menu = plain_menu<TestType>;
  PagedCase paged(small_case(DType::f16, 4, 1, {1400}));  // long enough to be cut on every machine
  const std::size_t needed = hpa::workspace_bytes<Menu>(paged.shape(), this_device());
  REQUIRE(needed > 2 * 4 * 64 * 4);
  const Verdict verdict = paged.run(needed - 4 * 64 * 4, {},
                                    [](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, hpa::Stream stream) {
                                      return hpa::paged_attention<Menu>(shape, args, workspace, stream);
                                    });
  CHECK(verdict.status == Status::workspace_too_small);
  CHECK(verdict.field == std::string("workspace"));
  CHECK(paged.outputs_untouched());
}

TEMPLATE_LIST_TEST_CASE("F61: lengths that add up to the cap, and to one more", "[field]", Machines) {
  CaseSpec spec = large_case(DType::f16, 32, 2, 1, {100, 600, 57});
  spec.shape.max_total_kv_tokens = 757;
  expect_right<plain_menu<TestType>>(spec);
  spec.shape.max_total_kv_tokens = 756;
  PagedCase paged(spec);
  paged.spec.unchecked = {2};
  expect_report<plain_menu<TestType>>(paged, "seq_lens");
}

TEST_CASE("F62: the workspace is bounded by the cuts that can be planned", "[field]") {
  DecodeShape shape;
  shape.num_heads = 64;
  shape.num_kv_heads = 8;
  shape.max_seqs = 128;
  shape.max_seq_len = 131072;
  const std::size_t mib = std::size_t{1} << 20;
  const std::size_t bytes = hpa::workspace_bytes(shape, this_device());
  CHECK(bytes > 0);
  CHECK(bytes <= 300 * mib);
  shape.max_total_kv_tokens = 1 << 20;
  CHECK(hpa::workspace_bytes(shape, this_device()) <= 24 * mib);
  shape.max_seq_len = 4096;
  CHECK(hpa::workspace_bytes(shape, this_device()) <= 4 * mib);  // of fewer sequences, which are cut
}

TEMPLATE_LIST_TEST_CASE("F65: every length of a decode loop", "[field]", Machines) {
  for (const int max_seqs : {1, 100}) {
    CaseSpec spec = small_case(DType::f16, 2, 1, {400});
    spec.shape.max_seqs = max_seqs;
    PagedCase paged(spec);
    const int step = max_seqs != 1 ? 7 : hpa::test::fewer_values ? 3 : 1;  // past each slot of a block
    for (int length = 1; length <= 400; length += step) {
      paged.set_seq_lens({length});
      expect_right<plain_menu<TestType>>(paged, 2);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("F71: the length counts the current token, whose key is in the cache", "[field]", Machines) {
  for (const int length : {1, 17, 33, 300}) {
    CaseSpec spec = large_case(DType::f16, 16, 4, 2, {length});
    spec.scale = 1.f;
    PagedCase paged(spec);
    set_first(paged, 32.f);
    for (const int head : {0, 1}) {
      paged.set_key(0, length - 1, head, 0, 60.f);
      for (int d = 0; d < 128; ++d) paged.set_value(0, length - 1, head, d, float(d));
    }
    REQUIRE(run_paged_attention<plain_menu<TestType>>(paged));
    CHECK(out_of(paged, 0, 3, 127) == 127.f);
    CHECK(out_of(paged, 0, 0, 1) == 1.f);
  }
}

TEMPLATE_LIST_TEST_CASE("F74: K and V with padded and different strides, and gaps between the ids", "[field]", Machines) {
  CaseSpec spec = large_case(DType::bf16, 16, 8, 4, {100, 33, 1});
  spec.padding.key_block = 512, spec.padding.key_head = 64;
  spec.padding.value_block = 2048, spec.padding.value_head = 8;
  spec.spare_blocks = 40;
  expect_right<plain_menu<TestType>>(spec);
  const int slab = 16 * 128, blocks = 7 + 3 + 1 + 40;  // keys with blocks inside heads: [num_kv_heads, num_blocks, ..]
  spec.padding.key_head = (blocks - 1) * slab, spec.padding.key_block = slab - 4 * blocks * slab;
  spec.padding.value_block = 9 * slab, spec.padding.value_head = slab;
  expect_right<plain_menu<TestType>>(spec);
}

TEMPLATE_LIST_TEST_CASE("F76: results of cut rows into rows that are not next to each other", "[field]", Machines) {
  CaseSpec spec = large_case(DType::f16, 16, 4, 1, {900, 1, 700});
  for (const int padding : {0, 4, 128}) {
    spec.padding.out_row = padding;
    expect_right<plain_menu<TestType>>(spec);
  }
}

TEMPLATE_LIST_TEST_CASE("F93: partial results of large magnitude that cancel", "[field]", Machines) {
  for (const DType type : {DType::f16, DType::bf16}) {
    const int length = 64 * 16 + 5;
    PagedCase paged(small_case(type, 1, 1, {length}));
    set_first(paged, 0.f);
    std::vector<double> mean(64, 0.0);
    for (int token = 0; token < length; ++token)
      for (int d = 0; d < 64; ++d) {
        const float value = token < 64 * 16 ? (token / 16 % 2 == 0 ? 1.f : -1.f) * float(960 + 8 * (d % 4)) : 4.f;
        paged.set_value(0, token, 0, d, value);
        mean[std::size_t(d)] += value / double(length);
      }
    if (type == DType::f16)
      REQUIRE(run_decode_with<Config<64, 16, DType::f16, DType::f16, 16>, TestType>(paged));
    else
      REQUIRE(run_decode_with<Config<64, 16, DType::bf16, DType::bf16, 16>, TestType>(paged));
    double worst = 0;
    for (int d = 0; d < 64; ++d) worst = std::max(worst, std::abs(out_of(paged, 0, 0, d) / mean[std::size_t(d)] - 1));
    CHECK(worst < 4e-3);  // the mean is 0.019; a partial rounded to 16 bits is off by up to 2
  }
}

TEMPLATE_LIST_TEST_CASE("F94: one key returns its value exactly", "[field]", Machines) {
  PagedCase paged(large_case(DType::f16, 32, 8, 1, {1}));
  for (int d = 0; d < 128; ++d) paged.set_value(0, 0, 0, d, 0.37f * float(d));
  REQUIRE(run_paged_attention<plain_menu<TestType>>(paged));
  for (int head = 0; head < 8; ++head) CHECK(std::memcmp(paged.out.data() + head * 256, paged.out.data(), 256) == 0);
  CHECK(paged.check_against_reference(1e-12, 1e-3).problem == "");
}

TEMPLATE_LIST_TEST_CASE("F95: all scores below -1e4, and around 1e4 a unit apart", "[field]", Machines) {
  for (const float level : {-20000.f, 10000.f, -10000.f}) {
    PagedCase paged(large_case(DType::f16, 32, 2, 1, {17, 300}));
    paged.spec.scale = 1.f;
    set_first(paged, 100.f);
    for (int row = 0; row < 2; ++row)
      for (int head = 0; head < 2; ++head) paged.set_query(row, head, 1, 1.f);
    for (int sequence = 0; sequence < 2; ++sequence)
      for (int token = 0; token < paged.spec.seq_lens[std::size_t(sequence)]; ++token) {
        paged.set_key(sequence, token, 0, 0, level / 100.f);
        paged.set_key(sequence, token, 0, 1, float(token % 3));
      }
    REQUIRE(run_paged_attention<plain_menu<TestType>>(paged));
    CHECK(paged.check_against_reference(2e-3, 5e-3).problem == "");  // a logit of 1e4 has a spacing of 1e-3
  }
}

TEMPLATE_LIST_TEST_CASE("G01: an empty row first, the workspace against an unmapped page", "[field]", Machines) {
  CaseSpec spec = large_case(DType::f16, 16, 4, 1, {0, 700});
  spec.guard = Guard::start;
  expect_right<plain_menu<TestType>>(spec);
}

TEMPLATE_LIST_TEST_CASE("G02: more sequences than a grid has rows", "[field]", Machines) {
  CaseSpec spec = small_case(DType::f16, 1, 1, std::vector<int>(66000, 0));
  spec.seq_lens.front() = 33;
  spec.seq_lens[65535] = 50;
  spec.seq_lens.back() = 100;
  PagedCase paged(spec);
  using Fine = Config<64, 16, DType::f16, DType::f16, 32>;
  REQUIRE(run_decode_with<Fine, TestType>(paged));
  CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
}

TEMPLATE_LIST_TEST_CASE("G04: a length above the cap touches nobody's partial results", "[field]", Machines) {
  CaseSpec spec = large_case(DType::f16, 16, 8, 1, {700, 600, 700});
  spec.shape.max_seq_len = 700;
  PagedCase paged(spec);
  paged.spec.unchecked = {1};
  paged.seq_lens.as<std::int32_t>()[1] = 701;
  expect_report<plain_menu<TestType>>(paged, "seq_lens");
}

TEMPLATE_LIST_TEST_CASE("G07: strides of query and out, rows and heads", "[field]", Machines) {
  CaseSpec spec = large_case(DType::bf16, 16, 6, 2, {40, 700, 3});
  spec.padding.query_head = 24, spec.padding.query_row = 40;
  spec.padding.out_head = 12, spec.padding.out_row = 4;
  expect_right<plain_menu<TestType>>(spec);
}

TEST_CASE("F35, F44: head sizes that no kernel has are refused", "[field]") {
  for (const int head_size : {16, 32, 48, 72, 80, 96, 100, 112, 120, 160, 192, 256, 1}) {
    DecodeShape shape = valid_shape();
    shape.head_size = head_size;
    expect_refused(shape, "head_size");
  }
}

TEST_CASE("F45: K and V of different head sizes are refused", "[field]") {
  DecodeShape shape = valid_shape();
  shape.head_size_v = 64;
  expect_refused(shape, "head_size_v");
  shape.head_size = 192;
  shape.head_size_v = 128;
  expect_refused(shape, "head_size");
}

TEST_CASE("F49: block sizes that no kernel has are refused", "[field]") {
  for (const int block_size : {1, 8, 48, 64, 128, 256, 528, 544, 1056, 2048}) {
    DecodeShape shape = valid_shape();
    shape.block_size = block_size;
    expect_refused(shape, "block_size");
  }
}
