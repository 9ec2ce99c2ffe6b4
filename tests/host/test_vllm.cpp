// The mirrored predicate against a table of its own, over the whole input domain.
#include "hpa/vllm.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"

using hpa::vllm::Revision;

namespace {

struct Input {
  std::string arch, dtype;
  int head_size, block_size, gqa_ratio, max_seq_len, sliding_window;
  std::string kv_cache_dtype;
  bool alibi, sinks;
};

/// A column of the table: what an architecture must contain and must not, and what is accepted there.
struct Column {
  Revision revision;
  std::vector<std::string> archs, not_archs;
  std::vector<int> windows, head_sizes, block_sizes;
  int min_gqa, max_gqa, longest;
  std::vector<bool> alibi, sinks;
  std::vector<std::string> kv_cache_dtypes;  // empty = not looked at
};

const std::vector<std::string> dtypes = {"half", "float16", "bfloat16"};

const std::vector<Column> table = {
    {Revision::pr15720, {"gfx90a", "gfx942"}, {"gfx1"}, {0}, {64, 128}, {16, 32}, 1, 16, 32768, {false, true}, {false, true}, {}},
    {Revision::latest, {"gfx90a", "gfx942", "gfx950"}, {}, {0, -1}, {64, 128}, {16, 32}, 1, 16, 131072, {false, true}, {false}, {}},
    {Revision::latest, {"gfx11", "gfx12"}, {}, {0, -1}, {128}, {16}, 3, 16, 131072, {false}, {false}, {"auto"}},
};

template <class T>
bool has(const std::vector<T>& list, const T& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool contains_one(const std::string& arch, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) { return arch.find(part) != std::string::npos; });
}

const Column* column_of(const std::string& arch, Revision revision) {
  for (const Column& column : table)
    if (column.revision == revision && contains_one(arch, column.archs) && !contains_one(arch, column.not_archs)) return &column;
  return nullptr;
}

/// The argument whose condition fails first, in the table's order of rows; empty when eligible.
std::string first_failure(const Input& in, Revision revision) {
  const Column* column = column_of(in.arch, revision);
  if (column == nullptr) return "gcn_arch";
  if (!has(column->windows, in.sliding_window)) return "sliding_window";
  if (!has(dtypes, in.dtype)) return "query_dtype";
  if (!has(column->head_sizes, in.head_size)) return "head_size";
  if (!has(column->block_sizes, in.block_size)) return "block_size";
  if (in.gqa_ratio < column->min_gqa || in.gqa_ratio > column->max_gqa) return "gqa_ratio";
  if (in.max_seq_len > column->longest) return "max_seq_len";
  if (!has(column->alibi, in.alibi)) return "has_alibi_slopes";
  if (!column->kv_cache_dtypes.empty() && !has(column->kv_cache_dtypes, in.kv_cache_dtype)) return "kv_cache_dtype";
  if (!has(column->sinks, in.sinks)) return "has_sinks";
  return "";
}

/// Compares without a test macro for each of millions of inputs; says which input disagreed.
struct Comparison {
  long inputs = 0, eligible = 0, disagreements = 0;
  std::string example;

  void operator()(const Input& in, Revision revision) {
    const hpa::Verdict verdict = hpa::vllm::why_not_rocm_custom_paged_attention(
        in.arch, in.dtype, in.head_size, in.block_size, in.gqa_ratio, in.max_seq_len, in.sliding_window, in.kv_cache_dtype,
        in.alibi, in.sinks, revision);
    const bool answer = hpa::vllm::use_rocm_custom_paged_attention(in.arch, in.dtype, in.head_size, in.block_size, in.gqa_ratio,
                                                                   in.max_seq_len, in.sliding_window, in.kv_cache_dtype, in.alibi,
                                                                   in.sinks, revision);
    const std::string expected = first_failure(in, revision);
    ++inputs;
    eligible += answer;
    const bool reason_given = *verdict.why != '\0';
    if (answer == expected.empty() && bool(verdict) == answer && verdict.field == expected && reason_given != answer) return;
    if (disagreements++ == 0)
      example = in.arch + " " + in.dtype + " head " + std::to_string(in.head_size) + " block " + std::to_string(in.block_size) +
                " ratio " + std::to_string(in.gqa_ratio) + " length " + std::to_string(in.max_seq_len) + " window " +
                std::to_string(in.sliding_window) + " kv " + in.kv_cache_dtype + ": field '" + verdict.field + "', expected '" +
                expected + "'";
  }
};

const std::vector<std::string> archs = {
    "gfx90a:sramecc+:xnack-", "gfx942:sramecc+:xnack-", "gfx950:sramecc+:xnack-", "gfx1100", "gfx1151", "gfx1201", "gfx1250",
    "gfx1030", "gfx908:sramecc+:xnack-", "gfx940", "gfx90c", "gfx942 gfx1100", "GFX942", ""};

}  // namespace

TEST_CASE("vllm predicate: every combination of values on both sides of every condition", "[vllm]") {
  Comparison compare;
  for (const Revision revision : {Revision::pr15720, Revision::latest})
    for (const std::string& arch : archs)
      for (const char* dtype : {"half", "float16", "bfloat16", "float32"})
        for (const int head_size : {64, 96, 128, 256})
          for (const int block_size : {8, 16, 32, 64})
            for (const int gqa_ratio : {0, 1, 2, 3, 16, 17})
              for (const int max_seq_len : {0, 32768, 32769, 131072, 131073})
                for (const int window : {-2, -1, 0, 1})
                  for (const char* kv : {"auto", "fp8"})
                    for (const bool alibi : {false, true})
                      for (const bool sinks : {false, true})
                        compare({arch, dtype, head_size, block_size, gqa_ratio, max_seq_len, window, kv, alibi, sinks}, revision);
  INFO(compare.example);
  CHECK(compare.disagreements == 0);
  CHECK(compare.inputs == 2L * 14 * 4 * 4 * 4 * 6 * 5 * 4 * 2 * 2 * 2);
  CHECK(compare.eligible > 0);
}

TEST_CASE("vllm predicate: each argument over its range, the others eligible", "[vllm]") {
  Comparison compare;
  for (const Revision revision : {Revision::pr15720, Revision::latest}) {
    for (const std::string& arch : archs) {
      const Input base{arch, "half", 128, 16, 8, 4096, 0, "auto", false, false};
      Input in = base;
      for (in.head_size = -1; in.head_size <= 1024; ++in.head_size) compare(in, revision);
      in = base;
      for (in.block_size = -1; in.block_size <= 4096; ++in.block_size) compare(in, revision);
      in = base;
      for (in.gqa_ratio = -20; in.gqa_ratio <= 128; ++in.gqa_ratio) compare(in, revision);
      in = base;
      for (in.max_seq_len = -10; in.max_seq_len <= 140000; in.max_seq_len += 3) compare(in, revision);
      for (const int length : {32767, 32768, 32769, 131071, 131072, 131073, std::numeric_limits<int>::max(),
                               std::numeric_limits<int>::min()}) {
        in.max_seq_len = length;
        compare(in, revision);
      }
      in = base;
      for (in.sliding_window = -300; in.sliding_window <= 300; ++in.sliding_window) compare(in, revision);
      in = base;
      for (const char* dtype : {"half", "float16", "bfloat16", "float32", "float", "fp16", "Half", "torch.float16", "bfloat", ""}) {
        in.dtype = dtype;
        compare(in, revision);
      }
      in = base;
      for (const char* kv : {"auto", "fp8", "fp8_e4m3", "fp8_e5m2", "int8", "AUTO", ""}) {
        in.kv_cache_dtype = kv;
        compare(in, revision);
      }
    }
  }
  INFO(compare.example);
  CHECK(compare.disagreements == 0);
}

TEST_CASE("vllm predicate: defaults, and use at compile time", "[vllm]") {
  static_assert(hpa::vllm::use_rocm_custom_paged_attention("gfx942:sramecc+:xnack-", "half", 128, 16, 8, 131072, 0), "");
  static_assert(!hpa::vllm::use_rocm_custom_paged_attention("gfx942", "half", 128, 16, 8, 131072, 0, "auto", false, false,
                                                            Revision::pr15720),
                "");
  const hpa::Verdict verdict = hpa::vllm::why_not_rocm_custom_paged_attention("gfx1100", "bfloat16", 128, 16, 2, 4096, 0);
  CHECK(verdict.status == hpa::Status::unsupported);
  CHECK(std::string(verdict.field) == "gqa_ratio");
  CHECK(std::string(verdict.why) == "must be 3 to 16 on gfx11 and gfx12");
}
