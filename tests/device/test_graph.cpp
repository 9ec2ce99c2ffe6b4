// Graphs: a step captured once stays right for all lengths within the shape's caps.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "paged_case.hpp"

using namespace hpa;
using namespace hpa::test;

#if defined(HPA_PLATFORM_HOST)

TEST_CASE("graphs are for GPUs") { SUCCEED("the host has no graphs"); }

#else

#if defined(HPA_PLATFORM_HIP)
#define GPU(name) hip##name
#else
#define GPU(name) cuda##name
#endif

namespace {

using Lengths = std::vector<int>;
using Menu = hpa::default_menu::with<hpa::block_sizes<16>>;

class OwnStream {
 public:
  OwnStream() { REQUIRE(GPU(StreamCreateWithFlags)(&stream_, GPU(StreamNonBlocking)) == GPU(Success)); }
  ~OwnStream() { (void)GPU(StreamDestroy)(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator hpa::Stream() const { return stream_; }

 private:
  hpa::Stream stream_{};
};

/// What a function launches into a stream, captured. The global mode also forbids what only blocks other streams.
class Graph {
 public:
  Graph() = default;
  ~Graph() {
    if (executable_ != nullptr) (void)GPU(GraphExecDestroy)(executable_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  template <class Launches>
  Verdict capture(hpa::Stream stream, Launches&& launches) {
    GPU(Graph_t) graph{};
    REQUIRE(GPU(StreamBeginCapture)(stream, GPU(StreamCaptureModeGlobal)) == GPU(Success));
    const Verdict verdict = launches();
    REQUIRE(GPU(StreamEndCapture)(stream, &graph) == GPU(Success));
    REQUIRE(GPU(GraphInstantiateWithFlags)(&executable_, graph, 0) == GPU(Success));
    REQUIRE(GPU(GraphDestroy)(graph) == GPU(Success));
    return verdict;
  }
  void replay(hpa::Stream stream) const { REQUIRE(GPU(GraphLaunch)(executable_, stream) == GPU(Success)); }

 private:
  GPU(GraphExec_t) executable_{};
};

/// A paged case, and its plan and decode as a graph.
class CapturedCase {
 public:
  explicit CapturedCase(CaseSpec spec) : paged_(std::move(spec)) {
    Device device;
    REQUIRE(hpa::current_device(&device));
    workspace_bytes_ = hpa::workspace_bytes<Menu>(paged_.shape(), device);
    REQUIRE(workspace_bytes_ > 0);
  }
  PagedCase& paged() { return paged_; }

  /// Captures with `lengths` on the device, after a run without a graph if asked for, and replays on the same lengths.
  void capture(const Lengths& lengths, bool warm_up) {
    CAPTURE(lengths, warm_up);
    paged_.set_seq_lens(lengths);
    const Verdict verdict = paged_.run(workspace_bytes_, stream_, [&](auto& shape, auto args, Workspace workspace, hpa::Stream stream) {
      if (warm_up)
        if (const Verdict v = hpa::paged_attention<Menu>(shape, args, workspace, stream); !v) return v;
      const Verdict captured = graph_.capture(stream, [&] {
        if (const Verdict v = hpa::plan<Menu>(shape, args.batch, workspace, stream); !v) return v;
        return hpa::decode<Menu>(shape, args, workspace, stream);
      });
      graph_.replay(stream_);
      return captured;
    });
    REQUIRE(verdict);
    require_right();
  }

  /// Replays with other lengths; workspace and outputs hold nothing of the runs before.
  void replay(const Lengths& lengths) {
    CAPTURE(lengths);
    paged_.set_seq_lens(lengths);
    REQUIRE(paged_.run(workspace_bytes_, stream_, [&](auto&&...) {
      graph_.replay(stream_);
      return Verdict{};
    }));
    require_right();
  }

  /// As when no length changed: the workspace keeps what the last replay left, and the bits are the same.
  void replay_again() {
    const std::vector<std::uint8_t> before = paged_.out.bytes();
    graph_.replay(stream_);
    paged_.out.download();
    CHECK(before == paged_.out.bytes());
  }

 private:
  void require_right() {
    const Workspace workspace{paged_.workspace.device(), paged_.workspace.size()};
    REQUIRE(hpa::workspace_error(workspace, stream_));
    const Findings findings = paged_.check_against_reference(hpa::test::tolerance_of(paged_.shape().query));
    INFO(findings.problem);
    REQUIRE(findings);
  }

  PagedCase paged_;
  OwnStream stream_;
  Graph graph_;
  std::size_t workspace_bytes_ = 0;
};

/// Rows long enough to be cut into partitions; `seq_lens` are the longest that a replay may have.
CaseSpec spec_of(DType type, int head_size) {
  CaseSpec spec;
  spec.shape.query = spec.shape.kv = spec.shape.out = type;
  spec.shape.head_size = head_size;
  spec.shape.num_heads = 4;
  spec.shape.num_kv_heads = 2;
  spec.shape.lse = true;
  spec.seq_lens = {1400, 300, 64};
  return spec;
}

}  // namespace

TEST_CASE("a step captured once is right for growing, shrinking and zero lengths") {
  CaseSpec spec = spec_of(DType::f16, 128);
  SECTION("f16, head 128") {}
  SECTION("bf16, head 64, ALiBi") {
    spec = spec_of(DType::bf16, 64);
    spec.shape.alibi = true;
  }
  CapturedCase captured(spec);
  captured.capture({17, 300, 1}, false);
  for (const Lengths& lengths : std::vector<Lengths>{
           {18, 300, 2}, {1400, 300, 64}, {1399, 1, 64}, {1, 1, 1}, {0, 0, 0}, {0, 257, 0}, {600, 0, 33}, {16, 16, 16}})
    captured.replay(lengths);
  captured.replay_again();
}

TEST_CASE("a step captured on empty rows is right on real ones, and the reverse") {
  const Lengths empty = {0, 0, 0}, real = {1400, 37, 64};
  const bool warm_up = GENERATE(false, true), empty_first = GENERATE(true, false);
  CapturedCase captured(spec_of(DType::f16, 64));
  captured.capture(empty_first ? empty : real, warm_up);
  captured.replay(empty_first ? real : empty);
  captured.replay(empty_first ? empty : real);
}

TEST_CASE("a captured step skips prefills, whichever rows they are") {
  CaseSpec spec = spec_of(DType::bf16, 128);
  spec.query_lens = {1, 3, 1};
  CapturedCase captured(spec);
  captured.capture({1400, 300, 1}, false);
  captured.replay({5, 10, 64});
  captured.paged().spec.query_lens = {3, 1, 1};
  captured.replay({700, 256, 0});
}

TEST_CASE("a captured step with windows and several rows is right at all lengths") {
  CaseSpec spec = spec_of(DType::f16, 64);
  spec.query_lens = {4, 1, 16};
  spec.shape.max_query_len = 16;
  spec.shape.sliding_window = true;
  spec.window = 100;
  spec.unmapped_expired = true;
  SECTION("causal") {}
  SECTION("not causal, with sinks, a soft cap and FP8 output") {
    spec.shape.causal = false;
    spec.shape.sinks = spec.shape.soft_cap = true;
    spec.soft_cap = 5.f;
    spec.shape.out = DType::e4m3_ocp;
    spec.out_scale = 0.1f;
  }
  CapturedCase captured(spec);
  captured.capture({17, 300, 1}, false);
  for (const Lengths& lengths :
       std::vector<Lengths>{{18, 300, 2}, {1100, 300, 64}, {103, 100, 16}, {104, 101, 17}, {0, 0, 0}, {3, 257, 15}, {1100, 0, 64}})
    captured.replay(lengths);
  captured.replay_again();
  captured.paged().spec.query_lens = {16, 4, 1};  // other rows of the same query and out
  captured.replay({700, 256, 64});
  captured.paged().spec.query_lens = {20, 0, 1};  // a prefill and a sequence without a row
  captured.replay({700, 256, 64});
}

TEST_CASE("a captured step follows the tree masks of each replay") {
  CaseSpec spec = spec_of(DType::bf16, 128);
  spec.query_lens = {7, 1, 16};
  spec.shape.max_query_len = 16;
  spec.shape.tree_mask = true;
  CapturedCase captured(spec);
  captured.capture({40, 300, 16}, true);
  for (const unsigned seed : {2u, 3u, 4u}) {
    captured.paged().spec.seed = seed;  // other trees
    captured.replay({1100 - int(seed), 20, 64});
    captured.replay({7, 1, 16});
  }
}

TEST_CASE("append and copy_blocks are captured and follow their slots and pairs") {
  DecodeShape shape;
  shape.head_size = 64;
  shape.num_heads = shape.num_kv_heads = 2;
  shape.max_seqs = 1;
  shape.max_seq_len = 64;
  constexpr int tokens = 3, blocks = 6, pairs = 2;
  const hpa::reference::Strides strides = hpa::reference::strides(shape, {});
  const std::size_t row_bytes = 2 * 64 * 2, cache_bytes = blocks * 16 * row_bytes;
  Buffer key(tokens * row_bytes, 16, Guard::end), value(tokens * row_bytes, 16, Guard::end);
  Buffer key_cache(cache_bytes, 16, Guard::end), value_cache(cache_bytes, 16, Guard::end);
  Buffer slots(tokens * 8, 8, Guard::end), block_pairs(pairs * 2 * 8, 8, Guard::end);
  const std::vector<Buffer*> buffers = {&key, &value, &key_cache, &value_cache, &slots, &block_pairs};

  hpa::AppendArgs append;
  append.new_keys = key.device();
  append.new_values = value.device();
  append.cache.keys = key_cache.device();
  append.cache.values = value_cache.device();
  append.slot_mapping = slots.device_as<std::int64_t>();
  append.num_tokens = tokens;
  hpa::CopyBlocksArgs copy;
  copy.cache.keys = key_cache.device();
  copy.cache.values = value_cache.device();
  copy.block_pairs = block_pairs.device_as<std::int64_t>();
  copy.num_pairs = pairs;

  OwnStream stream;
  Graph graph;
  REQUIRE(graph.capture(stream, [&]() -> Verdict {
    if (Verdict v = hpa::append(shape, append, stream); !v) return v;
    return hpa::copy_blocks(shape, copy, stream);
  }));

  using Ids = std::vector<std::int64_t>;
  struct Step {
    Ids slots, pairs;
  };
  std::uint16_t next = 1;
  for (const Step& step : std::vector<Step>{{{0, 17, 95}, {0, 2, 5, 4}}, {{-1, 3, -1}, {-1, 1, 0, 5}}, {{40, 41, 42}, {2, 0, -1, -1}}, {{-1, -1, -1}, {-1, 3, 4, -1}}}) {
    CAPTURE(step.slots, step.pairs);
    for (Buffer* buffer : {&key, &value, &key_cache, &value_cache})
      for (std::size_t i = 0; i < buffer->size() / 2; ++i) buffer->as<std::uint16_t>()[i] = next++;
    std::copy(step.slots.begin(), step.slots.end(), slots.as<std::int64_t>());
    std::copy(step.pairs.begin(), step.pairs.end(), block_pairs.as<std::int64_t>());
    for (Buffer* buffer : buffers) buffer->upload();
    // The host's own copies become what the device must make of its.
    for (int token = 0; token < tokens; ++token)
      for (int head = 0; step.slots[std::size_t(token)] >= 0 && head < 2; ++head)
        for (int d = 0; d < 64; ++d) {
          const std::int64_t block = step.slots[std::size_t(token)] / 16;
          const int slot = int(step.slots[std::size_t(token)] % 16), from = (token * 2 + head) * 64 + d;
          key_cache.as<std::uint16_t>()[hpa::reference::key_index(shape, strides, block, slot, head, d)] = key.as<std::uint16_t>()[from];
          value_cache.as<std::uint16_t>()[hpa::reference::value_index(shape, strides, block, slot, head, d)] = value.as<std::uint16_t>()[from];
        }
    for (int pair = 0; pair < pairs; ++pair) {
      const std::int64_t from = step.pairs[std::size_t(2 * pair)], to = step.pairs[std::size_t(2 * pair + 1)];
      if (from < 0 || to < 0) continue;
      for (Buffer* cache : {&key_cache, &value_cache})
        std::copy_n(cache->data() + from * 16 * std::int64_t(row_bytes), 16 * row_bytes, cache->data() + to * 16 * std::int64_t(row_bytes));
    }
    std::vector<std::vector<std::uint8_t>> expected;
    for (const Buffer* buffer : buffers) expected.push_back(buffer->bytes());
    graph.replay(stream);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      CAPTURE(i);
      buffers[i]->download();
      CHECK(buffers[i]->canary_intact());
      CHECK(buffers[i]->bytes() == expected[i]);
    }
  }
}

#endif
