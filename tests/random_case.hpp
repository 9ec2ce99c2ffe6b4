// Problems drawn at random from everything that the shape and the arguments can say, and a run over many of them. Environment:
//   HPA_RANDOM_CASES  cases of each program and machine (default 200, with sanitizers 100)
//   HPA_RANDOM_SEED   another series (default 1)
//   HPA_RANDOM_ONLY   one case, by its number: a failed test prints seed and number
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "calls.hpp"

namespace hpa::test {

/// Types of queries beside KV of 8 bits. Sanitizers see one of them: the other differs in numbers alone.
#if defined(HPA_TEST_FEWER_TYPES)
using QueriesOfBytes = query_types<DType::f16>;
#else
using QueriesOfBytes = query_types<DType::f16, DType::bf16>;
#endif

/// Draws one problem. The same seed and number give the same one.
class RandomCase {
 public:
  RandomCase(unsigned seed, int number, std::vector<DType> kv_types)
      : seed_(seed), number_(number), kv_types_(std::move(kv_types)) {}

  CaseSpec draw() {
    random_.seed(std::uint64_t{seed_} << 32 | std::uint32_t(number_));
    CaseSpec spec;
    spec.seed = unsigned(below(1 << 30));
    spec.block_seed = unsigned(below(1 << 30));
    draw_types(spec);
    draw_heads(spec.shape);
    draw_features(spec);
    draw_lengths(spec);
    draw_memory(spec);
    spec.table_starts = one_in(4);
    return spec;
  }

 private:
  int below(int end) { return int(random_() % std::uint64_t(end)); }
  int between(int first, int last) { return first + below(last - first + 1); }
  bool one_in(int n) { return below(n) == 0; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(int(values.size()))];
  }

  void draw_types(CaseSpec& spec) {
    DecodeShape& shape = spec.shape;
    shape.query = pick({DType::f16, DType::bf16});
    if (!kv_types_.empty() && !QueriesOfBytes::has(shape.query)) shape.query = DType::f16;
    shape.kv = kv_types_.empty() ? shape.query : kv_types_[std::size_t(below(int(kv_types_.size())))];
    shape.out = one_in(4) ? pick({DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp}) : shape.query;
    if (shape.out != shape.query && !one_in(3)) spec.out_scale = pick({0.01f, 0.05f, 0.5f, 1.f});
    shape.lse = one_in(2);
    if (size_of(shape.kv) == 2) return;
    const bool integers = shape.kv == DType::i8;  // codes of some tens
    shape.token_scales = integers && one_in(2);
    if (integers) spec.key_amplitude = spec.value_amplitude = 30.f;
    if (shape.token_scales)
      spec.token_scale = 1.f / 30.f;
    else if (integers || one_in(2))
      spec.k_scale = spec.v_scale = integers ? 1.f / 30.f : pick({0.25f, 0.7f, 1.3f});
    if (!integers && one_in(4)) spec.v_scale = 0.f;
  }

  void draw_heads(DecodeShape& shape) {
    shape.head_size = pick({64, 128});
    shape.block_size = pick({16, 32});
    shape.num_kv_heads = pick({1, 1, 2, 3});
    const int ratio = one_in(5) ? pick({17, 20, 24, 32}) : one_in(3) ? pick({3, 5, 7, 12}) : between(1, 16);
    shape.num_heads = ratio * shape.num_kv_heads;
  }

  void draw_features(CaseSpec& spec) {
    DecodeShape& shape = spec.shape;
    if (one_in(3)) return;  // plain, or with several rows
    shape.tree_mask = one_in(5);
    const bool ordered = !shape.tree_mask || one_in(10);  // now and then what check() refuses
    shape.causal = !one_in(shape.tree_mask ? 20 : 5);
    shape.alibi = ordered && one_in(3);
    shape.sliding_window = ordered && one_in(2);
    shape.soft_cap = one_in(3);
    shape.sinks = one_in(3);
    if (shape.soft_cap) spec.soft_cap = pick({1.f, 5.f, 30.f});
    if (shape.sliding_window)
      spec.window = pick({1, 2, shape.block_size - 1, shape.block_size, shape.block_size + 1, 40, 64, 100, 300, 5000});
    if (one_in(3)) spec.scale = pick({0.02f, 0.1f, 0.25f});
    if (shape.sinks && !one_in(3))
      for (int head = 0; head < shape.num_heads; ++head)
        spec.sinks.push_back(pick({-std::numeric_limits<float>::infinity(), -100.f, -1.f, 0.f, 3.f, 200.f}));
  }

  /// Around the edges of blocks, tiles and partitions, mostly short.
  int draw_length() {
    if (one_in(6)) return below(3);
    if (one_in(30)) return pick({4095, 4096, 4097, 6200});
    if (one_in(12)) return pick({1023, 1024, 1025, 2047, 2048, 2049}) + below(2);
    if (one_in(3)) return pick({16, 32, 48, 64, 128, 256, 512}) + between(-1, 1);
    return between(1, one_in(3) ? 900 : 200);
  }

  void draw_lengths(CaseSpec& spec) {
    DecodeShape& shape = spec.shape;
    shape.max_query_len = one_in(3) ? 1 : one_in(3) ? pick({2, 4, 8, 16}) : between(1, 16);
    const bool rows_given = shape.max_query_len > 1 ? !one_in(8) : one_in(2);  // else one row each, without query_start_loc
    const int sequences = between(1, 5);
    std::int64_t work = 0;  // keys times rows and heads
    for (int i = 0; i < sequences; ++i) {
      int rows = one_in(6) ? 0 : one_in(3) ? shape.max_query_len : between(1, shape.max_query_len);
      if (rows_given && one_in(6)) rows = shape.max_query_len + between(1, 20);  // a prefill
      if (!rows_given) rows = 1;
      int length = draw_length();
      while (work + std::int64_t{length} * rows * shape.num_heads > most_work && length > 40) length /= 2;
      work += std::int64_t{length} * rows * shape.num_heads;
      spec.seq_lens.push_back(length);
      if (rows_given) spec.query_lens.push_back(rows);
    }
    shape.max_seqs = one_in(2) ? 0 : sequences + below(40);  // more sequences, other partitions
    if (one_in(3)) shape.max_seq_len = 8192 << below(3);
  }

  void draw_memory(CaseSpec& spec) {
    spec.guard = pick({Guard::end, Guard::start});
    spec.tail = pick({Tail::nan, Tail::nan, Tail::plus_inf, Tail::largest, Tail::random});
    spec.unmapped_expired = one_in(2);
    spec.spare_columns = one_in(3) ? between(1, 5) : 0;
    if (one_in(6)) spec.first_block_id = 70000;  // not 16 bits
    if (one_in(2)) return;
    const int in_16_bytes = per_16_bytes(spec.shape.kv);
    const auto vectors = [&](int elements) { return elements * below(4); };
    spec.padding = {vectors(8),           vectors(8), vectors(4),           vectors(4),           below(3), vectors(in_16_bytes),
                    vectors(in_16_bytes), 0,          vectors(in_16_bytes), vectors(in_16_bytes), 0};
  }

  static constexpr std::int64_t most_work = 60000;
  unsigned seed_;
  int number_;
  std::vector<DType> kv_types_;
  std::mt19937_64 random_;
};

inline long number_from_environment(const char* name, long otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtol(text, nullptr, 10);
}

/// Runs cases one after the other against the reference. Refusals of check() are counted by reason; at least `share` of the cases
/// must run.
template <class Menu>
void run_random_cases(const char* what, const std::vector<DType>& kv_types, double share) {
  const auto seed = unsigned(number_from_environment("HPA_RANDOM_SEED", 1));
  const int count = int(number_from_environment("HPA_RANDOM_CASES", fewer_values ? 100 : 200));
  const int only = int(number_from_environment("HPA_RANDOM_ONLY", -1));
  std::map<std::string, int> refused;
  int ran = 0;
  for (int number = 0; number < count; ++number) {
    if (only >= 0 && number != only) continue;
    PagedCase paged(RandomCase(seed, number, kv_types).draw());
    INFO("HPA_RANDOM_SEED=" << seed << " HPA_RANDOM_ONLY=" << number << ": " << describe(paged.spec));
    if (const Verdict v = check<Menu>(paged.shape(), paged.args(), this_device()); !v) {
      CHECK((v.status == Status::unsupported ||
             v.field == std::string("tree_mask")));  // what is drawn contradicts itself there alone
      ++refused[std::string(v.field) + ": " + v.why];
      continue;
    }
    ++ran;
    const Verdict verdict = run_paged_attention<Menu>(paged);
    INFO(verdict.field << ": " << verdict.why);
    CHECK(verdict);
    if (verdict) CHECK(paged.check_against_reference(tolerance_of(paged.shape().query), compare_every).problem == "");
    const Verdict found = workspace_error({paged.workspace.device(), paged.workspace.size()}, Stream{});
    INFO(found.field << ": " << found.why);
    CHECK(found);
  }
  std::printf("%s: seed %u, %d of %d random cases ran\n", what, seed, ran, count);
  for (const auto& [reason, times] : refused) std::printf("  %d refused: %s\n", times, reason.c_str());
  std::fflush(stdout);
  if (only < 0) CHECK(ran >= share * count);
}

}  // namespace hpa::test
