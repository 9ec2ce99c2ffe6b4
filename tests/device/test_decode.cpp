// decode against the reference: every kernel of the menu, with shapes, lengths, strides and poison chosen at random.
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "calls.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int between(int low, int high) { return low + int(engine_() % unsigned(high - low + 1)); }
  bool one_in(int n) { return between(1, n) == 1; }
  template <class T>
  T of(const std::vector<T>& values) {
    return values[std::size_t(between(0, int(values.size()) - 1))];
  }

 private:
  std::mt19937 engine_;
};

const std::vector<int> gqa_ratios = {1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 24, 32, 71};

/// Lengths on and beside the edges of a tile, a block and a partition; most of them short.
int any_length(Random& random) {
  static const std::vector<int> tile_edges = {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 96, 97};
  static const std::vector<int> partition_edges = {127, 128, 129, 160, 255, 256, 257, 383, 384, 385};
  if (random.one_in(12)) return 0;
  if (random.one_in(8)) return random.between(1, 600);
  return random.of(random.one_in(4) ? partition_edges : tile_edges);
}

/// Multiples of 16 bytes, as check() asks for; out has 8.
hpa::test::Padding any_padding(Random& random) {
  const auto some = [&](int multiple) { return random.one_in(3) ? 0 : multiple * random.between(1, 5); };
  hpa::test::Padding padding;
  padding.query_row = some(8), padding.query_head = some(8);
  padding.out_row = some(4), padding.out_head = some(4);
  padding.table_row = some(1);
  padding.key_block = some(8), padding.key_head = some(8);
  padding.value_block = some(8), padding.value_head = some(8);
  return padding;
}

CaseSpec any_case(const DecodeShape& shape, int gqa_ratio, unsigned seed) {
  Random random(seed);
  CaseSpec spec;
  spec.shape = shape;
  spec.seed = spec.block_seed = seed;
  spec.shape.num_kv_heads = gqa_ratio > 16 ? 1 : random.between(1, 3);
  spec.shape.num_heads = gqa_ratio * spec.shape.num_kv_heads;
  const int num_seqs = random.between(1, gqa_ratio > 16 ? 2 : 4);
  for (int i = 0; i < num_seqs; ++i) spec.seq_lens.push_back(any_length(random));
  if (random.one_in(2)) spec.shape.max_seqs = num_seqs + random.between(0, 20);  // many rows are not cut, few are
  if (random.one_in(2)) spec.shape.max_seq_len = 600 + random.between(0, 4000);
  if (random.one_in(3)) {
    for (const int length : spec.seq_lens) spec.query_lens.push_back(random.one_in(3) ? random.between(0, std::min(length, 3)) : 1);
  }
  if (random.one_in(2)) spec.padding = any_padding(random);
  if (random.one_in(4)) spec.scale = 0.05f * float(random.between(1, 8));
  spec.guard = random.one_in(2) ? Guard::start : Guard::end;
  spec.key_growth = random.one_in(4) ? 3.f : 0.f;
  spec.spare_columns = random.between(0, 2);
  spec.spare_blocks = random.between(0, 3);
  spec.first_block_id = random.one_in(4) ? random.between(1, 1 << 30) : 0;
  return spec;
}

/// Worst errors of a test, printed at its end.
struct Worst {
  const char* what;
  double out[2] = {}, lse[2] = {};
  int cases = 0;
  ~Worst() {
    std::printf("%s: %d cases, worst error of out f16 %.2g, bf16 %.2g, of lse f16 %.2g, bf16 %.2g\n", what, cases, out[0], out[1],
                lse[0], lse[1]);
  }
  void add(DType type, const Findings& findings) {
    double &worst_out = out[type == DType::bf16], &worst_lse = lse[type == DType::bf16];
    worst_out = std::max(worst_out, findings.worst_out);
    worst_lse = std::max(worst_lse, findings.worst_lse);
    ++cases;
  }
};

/// Compares about `rows` rows with the reference, other ones from case to case.
template <class Menu>
void run_and_compare(const CaseSpec& spec, int rows, Worst& worst) {
  PagedCase paged(spec);
  INFO(describe(paged.spec));
  const hpa::Verdict verdict = hpa::test::run_paged_attention<Menu>(paged);
  INFO(verdict.field << ": " << verdict.why);
  REQUIRE(verdict);
  const int every = std::max(1, paged.num_rows() * paged.shape().num_heads / rows + int(spec.seed % 3));
  const Findings findings =
      paged.check_against_reference(hpa::test::tolerance_of(spec.shape.query), every * hpa::test::compare_every);
  CHECK(findings.problem == "");
  worst.add(spec.shape.query, findings);
}

template <class F>
void each_kernel(F&& f) {
  DecodeShape shape;
  for (const DType type : {DType::f16, DType::bf16}) {
    shape.query = shape.kv = shape.out = type;
    for (const int head_size : {64, 128}) {
      shape.head_size = head_size;
      for (const int block_size : {16, 32}) {
        shape.block_size = block_size;
        for (const bool alibi : {false, true}) {
          shape.alibi = alibi;
          for (const bool lse : {false, true}) {
            shape.lse = lse;
            f(shape);
          }
        }
      }
    }
  }
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("every kernel at every GQA ratio, on random batches", "[decode]", Machines) {
  Worst worst{"random batches"};
  unsigned seed = 1000;
  each_kernel([&](const DecodeShape& shape) {
    for (const int gqa_ratio : gqa_ratios) run_and_compare<full_menu<TestType>>(any_case(shape, gqa_ratio, ++seed), 20, worst);
  });
}

TEMPLATE_LIST_TEST_CASE("every kernel at lengths around tile, block and partition edges", "[decode]", Machines) {
  Worst worst{"edges"};
  unsigned seed = 2000;
  each_kernel([&](const DecodeShape& shape) {
    CaseSpec spec;
    spec.shape = shape;
    spec.shape.num_heads = 3;
    spec.shape.num_kv_heads = 1;
    spec.seed = ++seed;
    spec.guard = seed % 2 == 0 ? Guard::end : Guard::start;
    for (const int edge : {16, 32, 48, 64, 128, 160, 256})
      for (const int offset : {-1, 0, 1}) spec.seq_lens.push_back(edge + offset);
    spec.shape.max_seqs = seed % 4 < 2 ? 0 : 64;
    run_and_compare<full_menu<TestType>>(spec, 24, worst);
    spec.seq_lens = {511 + int(seed % 3)};  // a single row is cut into as many partitions as the device has units
    spec.shape.max_seqs = 1;
    run_and_compare<full_menu<TestType>>(spec, 3, worst);
  });
}

TEMPLATE_LIST_TEST_CASE("rows longer than one partition in a batch that fills the chip", "[decode]", Machines) {
  Worst worst{"long rows"};
  unsigned seed = 3000;
  for (const DType type : {DType::f16, DType::bf16}) {
    CaseSpec spec;
    spec.shape.query = spec.shape.kv = spec.shape.out = type;
    spec.shape.head_size = 64;
    spec.shape.num_heads = 2;
    spec.shape.num_kv_heads = 1;
    spec.shape.lse = true;
    spec.shape.max_seqs = 1024;
    spec.shape.max_seq_len = 10000;
    for (const std::vector<int>& lengths : {std::vector<int>{4095, 1, 4096}, {4097, 0, 6144}, {6145}, {8193}}) {
      spec.seed = ++seed;
      spec.seq_lens = lengths;
      run_and_compare<full_menu<TestType>>(spec, 2, worst);
    }
  }
}
