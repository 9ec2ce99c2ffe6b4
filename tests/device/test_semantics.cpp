// The semantics of the API, line by line. What the bench itself watches in every case (guards, poison, rows that must keep their
// bytes) is not repeated here.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "probes.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

const float infinity = std::numeric_limits<float>::infinity();

/// The value as the type holds it.
float rounded(DType type, float value) {
  std::uint16_t code = 0;
  hpa::store_element(type, &code, 0, value);
  return hpa::load_element(type, &code, 0);
}

}  // namespace

// 1. Positions and the current token.

TEMPLATE_LIST_TEST_CASE("a query at position L - 1 sees keys 0 to L - 1, its own among them", "[semantics]", Machines) {
  for (const DType type : {DType::f16, DType::bf16}) {
    // Token t alone has a value in element t, so that out is the row of probabilities; a query of zero leaves the bias.
    std::vector<int> lengths;
    for (int length = 1; length <= 64; ++length) lengths.push_back(length);
    CaseSpec spec = small_case(type, 5, 1, lengths);
    spec.shape.alibi = true;
    PagedCase paged(spec);
    set_queries(paged, 0.f);
    for (int sequence = 0; sequence < paged.num_seqs(); ++sequence)
      for (int token = 0; token < lengths[std::size_t(sequence)]; ++token)
        for (int d = 0; d < 64; ++d) paged.set_value(sequence, token, 0, d, d == token ? 1.f : 0.f);
    const float slopes[] = {0.f, 0.02f, 0.3f, 1.f, -0.05f};
    for (int head = 0; head < 5; ++head) paged.alibi_slopes.as<float>()[head] = slopes[head];
    REQUIRE(run_paged_attention<small_menu<TestType>>(paged));
    for (int sequence = 0; sequence < paged.num_seqs(); ++sequence) {
      const int length = lengths[std::size_t(sequence)];
      for (int head = 0; head < 5; ++head) {
        double sum = 0, worst = 0, beyond = 0;
        for (int token = 0; token < length; ++token) sum += std::exp(double(slopes[head]) * (token - (length - 1)));
        for (int token = 0; token < 64; ++token) {
          const double expected = std::exp(double(slopes[head]) * (token - (length - 1))) / sum,
                       got = out_of(paged, sequence, head, token);
          if (token < length)
            worst = std::max(worst, std::abs(got - expected));
          else
            beyond += std::abs(got);
        }
        INFO("length " << length << ", slope " << slopes[head]);
        CHECK(worst < 1.5 * rounding_of(type));
        CHECK(beyond == 0);
        CHECK(std::abs(lse_of(paged, sequence, head) - std::log(sum)) < tolerance_of(type).lse);
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("the bias counts from the query over tiles and partitions", "[semantics]", Machines) {
  CaseSpec spec = small_case(DType::f16, 8, 1, {31, 32, 33, 127, 129, 500, 1000});
  spec.shape.alibi = true;
  expect_right<small_menu<TestType>>(spec);
}

// 2. What no row sees.

TEMPLATE_LIST_TEST_CASE("bytes that no row sees never change a bit of the result", "[semantics]", Machines) {
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const bool alibi : {false, true}) {
      CaseSpec spec = small_case(type, 6, 2, {1, 15, 17, 31, 33, 100, 130, 257, 300});
      spec.shape.alibi = alibi;
      spec.spare_columns = 2;
      spec.tail = Tail::zero;
      PagedCase clean(spec);
      expect_right<small_menu<TestType>>(clean);
      for (const Tail tail : {Tail::nan, Tail::plus_inf, Tail::minus_inf, Tail::largest, Tail::random}) {
        spec.tail = tail;
        PagedCase poisoned(spec);
        REQUIRE(run_paged_attention<small_menu<TestType>>(poisoned));
        CHECK((results_of(poisoned) == results_of(clean)));
        CHECK(poisoned.write_where_none_is_due() == "");
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("table entries past the length and columns past the width may hold anything", "[semantics]", Machines) {
  CaseSpec spec = small_case(DType::f16, 2, 1, {0, 16, 17, 48, 200});
  spec.padding.table_row = 3;
  spec.spare_columns = 2;
  PagedCase paged(spec);
  expect_right<small_menu<TestType>>(paged);
  const auto results = results_of(paged);
  const int width = paged.table_width() + 3;
  for (const std::int32_t entry : {-1, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min(), 0, 3}) {
    for (int sequence = 0; sequence < 5; ++sequence) {
      const int last = sequence == 4 ? paged.table_width() : width;  // the last row ends with the table
      for (int column = (spec.seq_lens[std::size_t(sequence)] + 15) / 16; column < last; ++column)
        paged.block_table(sequence, column) = entry;
    }
    expect_right<small_menu<TestType>>(paged);
    CHECK((results_of(paged) == results));
  }
}

TEMPLATE_LIST_TEST_CASE("NaN that a row does see is not hidden, and stays in its sequence and KV head", "[semantics]", Machines) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  PagedCase paged(small_case(DType::f16, 4, 2, {40, 40, 600}));
  paged.spec.unchecked = {1};
  paged.set_key(1, 7, 0, 5, nan);
  paged.set_value(1, 39, 1, 9, nan);
  REQUIRE(run_paged_attention<small_menu<TestType>>(paged));
  CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  for (const int head : {0, 1}) CHECK(std::isnan(out_of(paged, 1, head, 0)));
  for (const int head : {2, 3}) {
    CHECK(std::isnan(out_of(paged, 1, head, 9)));
    CHECK(!std::isnan(out_of(paged, 1, head, 8)));
  }
}

// 3. Empty rows, skipped prefills, sequences without a row.

TEMPLATE_LIST_TEST_CASE("an empty row gives zero and minus infinity; skipped sequences keep their bytes", "[semantics]", Machines) {
  for (const DType type : {DType::f16, DType::bf16}) {
    CaseSpec spec = small_case(type, 3, 1, {0, 5, 0, 300, 77, 0, 1000});
    spec.query_lens = {1, 1, 0, 1, 7, 3, 1};  // a sequence without a row, two prefills
    PagedCase paged(spec);
    expect_right<small_menu<TestType>>(paged);  // looks at the rows of skipped sequences as well
    const auto empty = paged.result_of(0);
    for (std::size_t head = 0; head < 3; ++head) {
      const std::uint8_t* bytes = empty.data() + head * (64 * 2 + 4);
      CHECK(std::all_of(bytes, bytes + 64 * 2, [](std::uint8_t byte) { return byte == 0; }));
      float lse = 0;
      std::memcpy(&lse, bytes + 64 * 2, sizeof lse);
      CHECK(lse == -infinity);
    }
    const auto prefill = paged.result_of(4);
    CHECK(std::all_of(prefill.begin(), prefill.end(), [](std::uint8_t byte) { return byte == PagedCase::sentinel; }));
  }
}

TEMPLATE_LIST_TEST_CASE("a batch of nothing but empty rows, or of nothing to compute", "[semantics]", Machines) {
  CaseSpec spec = small_case(DType::f16, 3, 1, {0, 0, 0});
  expect_right<small_menu<TestType>>(spec);
  spec.query_lens = {0, 0, 0};
  expect_right<small_menu<TestType>>(spec);
  spec.seq_lens = {9, 30, 20};
  spec.query_lens = {9, 0, 20};
  PagedCase paged(spec);
  expect_right<small_menu<TestType>>(paged);
  CHECK(paged.outputs_untouched());
}

// 4. One key; a query of zero.

TEMPLATE_LIST_TEST_CASE("a single key returns its value exactly", "[semantics]", Machines) {
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const int head_size : {64, 128}) {
      CaseSpec spec = small_case(type, 34, 2, {1, 1, 1});
      spec.shape.head_size = head_size;
      spec.shape.alibi = type == DType::bf16 && head_size == 64;
      spec.query_amplitude = 30.f;
      PagedCase paged(spec);
      const float largest = type == DType::f16 ? 65504.f : 3e38f, smallest = type == DType::f16 ? 0x1p-24f : 0x1p-120f;
      for (const int kv_head : {0, 1}) {
        paged.set_value(0, 0, kv_head, 0, largest);
        paged.set_value(0, 0, kv_head, 1, -largest);
        paged.set_value(0, 0, kv_head, 2, smallest);
        paged.set_value(0, 0, kv_head, 3, 0.f);
      }
      REQUIRE(
          (head_size == 64 ? run_paged_attention<small_menu<TestType>>(paged) : run_paged_attention<plain_menu<TestType>>(paged)));
      int wrong = 0;
      for (int sequence = 0; sequence < 3; ++sequence)
        for (int head = 0; head < 34; ++head)
          for (int d = 0; d < head_size; ++d)
            wrong += out_of(paged, sequence, head, d) != value_of(paged, sequence, 0, head / 17, d);
      CHECK(wrong == 0);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("a query of zero returns the mean of the visible values", "[semantics]", Machines) {
  for (const DType type : {DType::f16, DType::bf16}) {
    const std::vector<int> lengths = {2, 3, 31, 33, 100, 255, 257, 600, 1001};
    PagedCase paged(small_case(type, 2, 1, lengths));
    set_queries(paged, 0.f);
    REQUIRE(run_paged_attention<small_menu<TestType>>(paged));
    for (int sequence = 0; sequence < paged.num_seqs(); ++sequence) {
      const int length = lengths[std::size_t(sequence)];
      INFO("length " << length);
      double worst = 0;
      for (int d = 0; d < 64; ++d) {
        double mean = 0;
        for (int token = 0; token < length; ++token) mean += value_of(paged, sequence, token, 0, d) / double(length);
        for (const int head : {0, 1})
          worst = std::max(worst, std::abs(out_of(paged, sequence, head, d) - mean) / (std::abs(mean) * rounding_of(type) + 1e-6));
      }
      CHECK(worst < 1.01);
      CHECK(std::abs(lse_of(paged, sequence, 1) - std::log(double(length))) < 1e-5);
    }
  }
}

// 5. The same bits.

TEMPLATE_LIST_TEST_CASE("the same input gives the same bits on every run", "[semantics]", Machines) {
  CaseSpec spec = small_case(DType::bf16, 20, 1, {0, 33, 900, 128, 1});
  spec.shape.max_seqs = 6;
  PagedCase paged(spec);
  REQUIRE(run_paged_attention<small_menu<TestType>>(paged));
  const auto first = results_of(paged);
  for (int i = 0; i < 8; ++i) {
    REQUIRE(run_paged_attention<small_menu<TestType>>(paged));
    CHECK((results_of(paged) == first));
  }
}

TEMPLATE_LIST_TEST_CASE("a sequence has the same bits alone and in any batch", "[semantics]", Machines) {
  for (const int max_seqs : {5, 64}) {  // rows that do not fill the chip, and rows that do
    CaseSpec batch = small_case(DType::f16, 3, 1, {700, 1, 0, 31, 260});
    batch.shape.max_seqs = max_seqs;
    batch.shape.max_seq_len = 1000;
    batch.sequence_seeds = {50, 51, 52, 53, 54};
    PagedCase together(batch);
    expect_right<small_menu<TestType>>(together);
    for (std::size_t sequence = 0; sequence < 5; ++sequence) {
      CaseSpec spec = batch;
      spec.seq_lens = {batch.seq_lens[sequence]};
      spec.sequence_seeds = {batch.sequence_seeds[sequence]};
      PagedCase alone(spec);
      REQUIRE(run_paged_attention<small_menu<TestType>>(alone));
      CHECK((alone.result_of(0) == together.result_of(int(sequence))));
    }
    batch.seq_lens = {31, 700, 260};  // other neighbours, another order, another row of query and out
    batch.sequence_seeds = {53, 50, 54};
    batch.query_lens = {1, 1, 1};
    PagedCase others(batch);
    REQUIRE(run_paged_attention<small_menu<TestType>>(others));
    CHECK((others.result_of(0) == together.result_of(3)));
    CHECK((others.result_of(1) == together.result_of(0)));
    CHECK((others.result_of(2) == together.result_of(4)));
  }
}

TEMPLATE_LIST_TEST_CASE("the physical order of blocks does not change a bit", "[semantics]", Machines) {
  for (const int block_size : {16, 32}) {
    CaseSpec spec = small_case(DType::f16, 8, 2, {700, 95, 33});
    spec.shape.block_size = block_size;
    PagedCase paged(spec);
    expect_right<plain_menu<TestType>>(paged, 5);
    for (const unsigned block_seed : {2u, 3u, 4u}) {
      spec.block_seed = block_seed;
      PagedCase permuted(spec);
      REQUIRE(run_paged_attention<plain_menu<TestType>>(permuted));
      CHECK((results_of(permuted) == results_of(paged)));
    }
  }
}

TEMPLATE_LIST_TEST_CASE("a row that is cut is close to the same row in one piece", "[semantics]", Machines) {
  CaseSpec spec = small_case(DType::f16, 4, 1, {1000});
  PagedCase paged(spec);
  REQUIRE(run_decode_with<hpa::Config<64, 16, DType::f16, DType::f16, 1024>, TestType>(paged));
  CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  std::vector<float> whole;
  for (int head = 0; head < 4; ++head)
    for (int d = 0; d < 64; ++d) whole.push_back(out_of(paged, 0, head, d));
  REQUIRE(run_decode_with<hpa::Config<64, 16, DType::f16, DType::f16, 64>, TestType>(paged));
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const double cut = out_of(paged, 0, int(i / 64), int(i % 64));
    difference += (cut - whole[i]) * (cut - whole[i]);
    norm += cut * cut;
  }
  CHECK(std::sqrt(difference / norm) < tolerance_of(DType::f16).out);
}

// 6. Offsets of 64 bits.

TEMPLATE_LIST_TEST_CASE("block ids whose offsets leave 31 and 32 bits", "[semantics]", Machines) {
  for (const int block_size : {16, 32}) {
    CaseSpec spec = small_case(DType::f16, 2, 1, {1, 40, 200});
    spec.shape.block_size = block_size;
    const std::int64_t block_bytes = std::int64_t{block_size} * 64 * 2;
    // The cache pointers are lowered: ids at and beyond 2^31 and 2^32 bytes and elements, and the largest ids there are.
    for (const std::int64_t edge : {std::int64_t{1} << 31, std::int64_t{1} << 32, std::int64_t{1} << 33}) {
      spec.first_block_id = edge / block_bytes - 6;
      expect_right<plain_menu<TestType>>(spec);
    }
    spec.first_block_id = std::numeric_limits<std::int32_t>::max() - 24;
    expect_right<plain_menu<TestType>>(spec);
    spec.padding.key_block = 40960;
    spec.padding.value_block = 8;
    spec.first_block_id = (std::int64_t{1} << 32) / (2 * 40960) - 6;
    expect_right<plain_menu<TestType>>(spec);
    spec.padding = {};
  }
}

// 7. One plan and one workspace for all lengths within the caps.

TEMPLATE_LIST_TEST_CASE("lengths that grow, shrink and vanish in the same workspace", "[semantics]", Machines) {
  using Menu = small_menu<TestType>;
  CaseSpec spec = small_case(DType::f16, 4, 1, {1200, 1200, 1200, 1200});
  PagedCase paged(spec);
  const hpa::Device device = hpa::test::this_device();
  Buffer workspace(hpa::workspace_bytes<Menu>(paged.shape(), device), 16, Guard::end);
  workspace.fill(0xff);
  workspace.upload();
  const auto step = [&](const DecodeShape& shape, const DecodeArgs& args, Workspace, hpa::Stream stream) {
    const Workspace kept{workspace.device(), workspace.size()};
    if (const Verdict verdict = hpa::plan<Menu>(shape, args.batch, kept, stream); !verdict) return verdict;
    if (const Verdict verdict = hpa::decode<Menu>(shape, args, kept, stream); !verdict) return verdict;
    return hpa::workspace_error(kept, stream);
  };
  const std::vector<std::vector<int>> steps = {{1, 1, 1, 1},      {2, 300, 0, 17},  {1200, 1199, 1024, 1025}, {0, 0, 0, 0},
                                               {0, 0, 1200, 0},   {33, 32, 31, 30}, {1200, 1200, 1200, 1200}, {1, 0, 0, 0},
                                               {129, 128, 127, 0}};
  for (const auto& lengths : steps) {
    paged.set_seq_lens(lengths);
    INFO(describe(paged.spec));
    REQUIRE(paged.run(16, {}, step));
    CHECK(paged.check_against_reference(tolerance_of(DType::f16), 3).problem == "");
    workspace.download();
    CHECK(workspace.canary_intact());
  }
}

TEMPLATE_LIST_TEST_CASE("one plan serves several layers", "[semantics]", Machines) {
  using Menu = small_menu<TestType>;
  CaseSpec spec = small_case(DType::f16, 4, 2, {40, 0, 700});
  spec.shape.max_seqs = 3;
  PagedCase first(spec);
  spec.seed = 9;
  spec.block_seed = 9;
  spec.padding.key_block = 64;
  PagedCase second(spec);
  Buffer workspace(hpa::workspace_bytes<Menu>(first.shape(), hpa::test::this_device()), 16, Guard::end);
  const auto planned = [&](const DecodeShape& shape, const DecodeArgs& args, Workspace, hpa::Stream stream) {
    return hpa::plan<Menu>(shape, args.batch, {workspace.device(), workspace.size()}, stream);
  };
  const auto decoded = [&](const DecodeShape& shape, const DecodeArgs& args, Workspace, hpa::Stream stream) {
    return hpa::decode<Menu>(shape, args, {workspace.device(), workspace.size()}, stream);
  };
  REQUIRE(first.run(16, {}, planned));
  CHECK(first.outputs_untouched());
  for (PagedCase* layer : {&second, &first, &second}) {
    REQUIRE(layer->run(16, {}, decoded));
    CHECK(layer->check_against_reference(tolerance_of(DType::f16)).problem == "");
  }
}

// 9. Large logits; masks that are minus infinity.

TEMPLATE_LIST_TEST_CASE("logits far below any finite mask, and far apart", "[semantics]", Machines) {
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const float logit : {-12000.f, -60000.f, 12000.f, 60000.f}) {
      PagedCase paged(small_case(type, 2, 1, {1, 17, 33, 250, 700}));
      paged.spec.scale = 1.f;
      // Element 0 gives the logit, element 1 a difference of one token's position, 0 to 3.
      for (int row = 0; row < paged.num_rows(); ++row)
        for (int head = 0; head < 2; ++head)
          for (int d = 0; d < 64; ++d) paged.set_query(row, head, d, d == 0 ? 128.f : d == 1 ? 1.f : 0.f);
      for (int sequence = 0; sequence < paged.num_seqs(); ++sequence)
        for (int token = 0; token < paged.spec.seq_lens[std::size_t(sequence)]; ++token) {
          paged.set_key(sequence, token, 0, 0, logit / 128.f);
          paged.set_key(sequence, token, 0, 1, float(token % 4));
        }
      INFO("logit " << rounded(type, logit / 128.f) * 128.f);
      REQUIRE(run_paged_attention<small_menu<TestType>>(paged));
      // Base 2 logits near 1e5 have a spacing of 2^-7, so probabilities are good to about 0.5 %.
      const auto findings = paged.check_against_reference(5e-3, 0.02);
      CHECK(findings.problem == "");
    }
  }
}

TEMPLATE_LIST_TEST_CASE("logits that jump upwards tile by tile rescale what was summed", "[semantics]", Machines) {
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const float direction : {1.f, -1.f}) {
      CaseSpec spec = small_case(type, 2, 1, {64, 300, 900});
      spec.scale = 1.f;
      PagedCase paged(spec);
      for (int row = 0; row < paged.num_rows(); ++row)
        for (int head = 0; head < 2; ++head)
          for (int d = 0; d < 64; ++d) paged.set_query(row, head, d, d == 0 ? 1.f : 0.f);
      for (int sequence = 0; sequence < paged.num_seqs(); ++sequence)
        for (int token = 0; token < paged.spec.seq_lens[std::size_t(sequence)]; ++token)
          paged.set_key(sequence, token, 0, 0, direction * float(token / 8));
      expect_right<small_menu<TestType>>(paged);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("out may be the query", "[semantics]", Machines) {
  using Menu = small_menu<TestType>;
  for (const int max_seqs : {3, 400}) {                           // rows are cut, or whole
    CaseSpec spec = small_case(DType::f16, 64, 2, {40, 900, 1});  // two passes over a KV head
    spec.query_lens = {1, 3, 1};
    spec.shape.max_query_len = 3;
    spec.shape.max_seqs = max_seqs;
    PagedCase paged(spec);
    expect_right<Menu>(paged);
    const std::vector<std::uint8_t> expected = paged.out.bytes();
    REQUIRE(paged.run(hpa::workspace_bytes<Menu>(paged.shape(), this_device()), {},
                      [](const hpa::DecodeShape& shape, hpa::DecodeArgs args, hpa::Workspace workspace, hpa::Stream stream) {
                        args.out = const_cast<void*>(args.query);
                        return hpa::paged_attention<Menu>(shape, args, workspace, stream);
                      }));
    CHECK(paged.query.bytes() == expected);
  }
}

TEMPLATE_LIST_TEST_CASE("strides of a single head or row may be anything", "[semantics]", Machines) {
  using Menu = small_menu<TestType>;
  for (const std::int64_t stride : {std::int64_t{1}, std::int64_t{-3}, std::int64_t{1} << 62}) {
    PagedCase paged(small_case(DType::f16, 1, 1, {700}));
    REQUIRE(paged.run(hpa::workspace_bytes<Menu>(paged.shape(), this_device()), {},
                      [&](const hpa::DecodeShape& shape, hpa::DecodeArgs args, hpa::Workspace workspace, hpa::Stream stream) {
                        args.query_row_stride = args.query_head_stride = args.out_row_stride = args.out_head_stride = stride;
                        args.cache.key_head_stride = args.cache.value_head_stride = args.batch.block_table_row_stride = stride;
                        return hpa::paged_attention<Menu>(shape, args, workspace, stream);
                      }));
    CHECK(paged.check_against_reference(tolerance_of(DType::f16)).problem == "");
  }
}
