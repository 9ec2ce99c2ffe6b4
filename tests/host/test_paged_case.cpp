// The bench itself: it must notice what a faulty kernel would do.
#include "paged_case.hpp"

#include <csignal>
#include <functional>
#include <set>

#include <sys/wait.h>

#include "catch.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

CaseSpec mixed_batch() {
  CaseSpec spec;
  spec.shape.head_size = 64;
  spec.shape.num_heads = 4;
  spec.shape.num_kv_heads = 2;
  spec.shape.lse = true;
  spec.seq_lens = {17, 40, 0, 33};
  spec.query_lens = {1, 6, 1, 1};
  spec.padding.out_row = 8;
  return spec;
}

/// A run of the reference with something done after it.
Findings after(PagedCase& paged, const std::function<void(PagedCase&)>& misdeed) {
  const Verdict verdict = paged.run(1000, {}, [&](const DecodeShape& shape, const DecodeArgs& args, Workspace, hpa::Stream) {
    hpa::reference::decode(shape, args);
    misdeed(paged);
    return Verdict{};
  });
  if (!verdict) return {0, 0, verdict.why};
  return paged.check_against_reference(1e-3, 1e-5);
}

Findings after(const std::function<void(PagedCase&)>& misdeed) {
  PagedCase paged(mixed_batch());
  return after(paged, misdeed);
}

/// True when `access` does not survive. In a child process, which dies of it silently.
bool dies(const std::function<void()>& access) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGBUS, SIG_DFL);
    access();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

TEST_CASE("a right run has no findings", "[paged_case]") {
  const Findings findings = after([](PagedCase&) {});
  CHECK(findings.problem == "");
  CHECK(findings.worst_out > 0);
  CHECK(findings.worst_out < 1e-3);
  CHECK(findings.worst_lse < 1e-5);
}

TEST_CASE("wrong results are found", "[paged_case]") {
  const auto problem = [](const std::function<void(PagedCase&)>& misdeed) { return after(misdeed).problem; };
  CHECK(problem([](PagedCase& p) { p.out.as<std::uint16_t>()[5] ^= 0x0040; }).find("sequence 0") == 0);
  CHECK(problem([](PagedCase& p) { p.lse.as<float>()[8 * 4 + 3] += 1e-3f; }).find("sequence 3") == 0);
  CHECK(problem([](PagedCase& p) { p.out.as<std::uint16_t>()[5] = 0x7fff; }) != "");  // NaN
  CHECK(problem([](PagedCase& p) { p.lse.as<float>()[7 * 4] = -1e30f; }) != "");      // an empty row that is not -inf
  CHECK(problem([](PagedCase& p) { p.out.as<std::uint16_t>()[7 * (4 * 64 + 8)] = 1; }) != "");
  CHECK(problem([](PagedCase& p) { p.out.fill(PagedCase::sentinel); }) != "");  // nothing written at all
  PagedCase paged(mixed_batch());
  paged.spec.unchecked = {0};
  CHECK(after(paged, [](PagedCase& p) { p.out.as<std::uint16_t>()[5] ^= 0x0040; }).problem == "");
}

TEST_CASE("writes where none are due are found", "[paged_case]") {
  const auto problem = [](const std::function<void(PagedCase&)>& misdeed) { return after(misdeed).problem; };
  const int row = 4 * 64 + 8;
  CHECK(problem([&](PagedCase& p) { p.out.as<std::uint16_t>()[2 * row] = 0; }).find("out: byte") == 0);    // a skipped row
  CHECK(problem([&](PagedCase& p) { p.out.as<std::uint16_t>()[4 * 64] = 0; }).find("out: byte") == 0);     // between rows
  CHECK(problem([&](PagedCase& p) { p.lse.as<float>()[2 * 4] = 0; }).find("lse: byte") == 0);
  CHECK(problem([&](PagedCase& p) { *p.seq_lens.as<int>() = 3; }) == "an input was written");
  CHECK(problem([&](PagedCase& p) { p.query.data()[0] ^= 1; }) == "an input was written");
  CHECK(problem([&](PagedCase& p) { p.out.data()[-1] = 0; }) == "out: written outside its bounds");
  CHECK(problem([&](PagedCase& p) { p.workspace.data()[1000] = 0; }) == "workspace: written outside its bounds");
  CaseSpec spec = mixed_batch();
  spec.guard = Guard::start;
  PagedCase paged(spec);
  CHECK(after(paged, [](PagedCase& p) { p.lse.as<float>()[p.num_rows() * 4] = 0; }).problem ==
        "lse: written outside its bounds");
}

TEST_CASE("a refused call leaves outputs untouched", "[paged_case]") {
  PagedCase paged(mixed_batch());
  const auto refuse = [](const DecodeShape&, const DecodeArgs&, Workspace, hpa::Stream) {
    return Verdict{hpa::Status::unsupported, "field", "why"};
  };
  CHECK(!bool(paged.run(16, {}, refuse)));
  CHECK(paged.outputs_untouched());
  CHECK(after(paged, [](PagedCase&) {}).problem == "");
  CHECK(!paged.outputs_untouched());
}

TEST_CASE("buffers lie against an unmapped page", "[paged_case]") {
  for (const std::size_t bytes : {4, 60, 4096, 4100}) {
    Buffer end(bytes, 4, Guard::end), start(bytes, 4, Guard::start);
    CHECK(end.canary_intact());
    CHECK(start.canary_intact());
    end.fill(1);
    start.fill(1);
    CHECK(end.canary_intact());
    CHECK(start.canary_intact());
    volatile std::uint8_t* past = end.data() + bytes;
    volatile std::uint8_t* before = start.data() - 1;
    CHECK(dies([=] { (void)*past; }));
    CHECK(dies([=] { *before = 0; }));
    CHECK(!dies([=] { (void)*(past - 1); }));
  }
  Buffer odd(20, 16, Guard::end);
  CHECK(std::uintptr_t(odd.data()) % 16 == 0);
  odd.data()[20] = 0;
  CHECK(!odd.canary_intact());
}

TEST_CASE("what no row sees is poisoned", "[paged_case]") {
  CaseSpec spec = mixed_batch();
  spec.tail = Tail::plus_inf;
  spec.spare_columns = 2;
  PagedCase paged(spec);
  CHECK(paged.table_width() == 3 + 2);
  const auto is_unused = [&](int sequence, int column) {
    const auto entry = std::uint32_t(paged.block_table(sequence, column));
    return entry == 0x7f7f7f7fu || entry == 0xffffffffu;
  };
  for (int column = 0; column < 5; ++column) {
    CHECK(is_unused(0, column) == (column >= 2));
    CHECK(is_unused(1, column));  // skipped: six query rows
    CHECK(is_unused(2, column));
    CHECK(is_unused(3, column) == (column >= 3));
  }
  int nan = 0, infinite = 0, finite = 0;
  const auto elements = std::int64_t(paged.value_cache.size() / 2);
  for (std::int64_t i = 0; i < elements; ++i) {
    const float value = hpa::load_element(DType::f16, paged.value_cache.data(), i);
    (value != value ? nan : std::isinf(value) ? infinite : finite) += 1;
  }
  const int token = 2 * 64;
  CHECK(finite == (17 + 33) * token);
  CHECK(infinite == (15 + 15) * token);
  CHECK(nan == (3 + 3) * 16 * token);  // three spare blocks and those of the skipped sequence
}

TEST_CASE("data depends on the sequence's seed alone", "[paged_case]") {
  CaseSpec spec = mixed_batch();
  spec.query_lens.clear();
  PagedCase batch(spec);
  CHECK(after(batch, [](PagedCase&) {}).problem == "");
  spec.seq_lens = {33};
  spec.sequence_seeds = {3};
  spec.block_seed = 9;
  spec.guard = Guard::start;
  PagedCase alone(spec);
  CHECK(after(alone, [](PagedCase&) {}).problem == "");
  CHECK(alone.result_of(0) == batch.result_of(3));
  alone.set_seq_lens({5});
  CHECK(after(alone, [](PagedCase&) {}).problem == "");
  CHECK(alone.result_of(0) != batch.result_of(3));
  alone.set_seq_lens({33});
  CHECK(after(alone, [](PagedCase&) {}).problem == "");
  CHECK(alone.result_of(0) == batch.result_of(3));
  CHECK_THROWS(alone.set_seq_lens({50}));
}

TEST_CASE("a shared prefix is the same physical blocks with the first sequence's data", "[paged_case]") {
  CaseSpec spec = mixed_batch();
  spec.query_lens.clear();
  spec.seq_lens = {40, 40, 12, 64};
  spec.shared_prefix_blocks = 2;
  PagedCase shared(spec);
  for (int sequence = 0; sequence < 4; ++sequence) CHECK(shared.block_table(sequence, 0) == shared.block_table(0, 0));
  CHECK(shared.block_table(3, 1) == shared.block_table(0, 1));
  std::set<std::int32_t> own;
  for (const int sequence : {0, 1, 3}) own.insert(shared.block_table(sequence, 2));
  CHECK(own.size() == 3);
  CHECK(after(shared, [](PagedCase&) {}).problem == "");
  CHECK(shared.result_of(0) != shared.result_of(1));
  spec.shared_prefix_blocks = 0;
  PagedCase apart(spec);
  CHECK(after(apart, [](PagedCase&) {}).problem == "");
  CHECK(shared.result_of(0) == apart.result_of(0));
}

TEST_CASE("random data is centred, of the asked width, and grows with the token when asked", "[paged_case]") {
  CaseSpec spec;
  spec.shape.head_size = 64;
  spec.shape.num_heads = spec.shape.num_kv_heads = 1;
  spec.seq_lens = {512};
  spec.value_amplitude = 3.f;
  spec.key_growth = 9.f;
  PagedCase paged(spec);
  const auto deviation = [&](bool key, int begin, int end) {
    double sum = 0, squares = 0;
    for (int token = begin; token < end; ++token) {
      for (int d = 0; d < 64; ++d) {
        const std::int64_t block = paged.block_table(0, token / 16);
        const std::int64_t index = key ? hpa::reference::key_index(paged.shape(), paged.strides(), block, token % 16, 0, d)
                                       : hpa::reference::value_index(paged.shape(), paged.strides(), block, token % 16, 0, d);
        const double value = hpa::load_element(DType::f16, key ? paged.key_cache.data() : paged.value_cache.data(), index);
        sum += value;
        squares += value * value;
      }
    }
    const double count = 64.0 * (end - begin);
    CHECK(std::abs(sum / count) < 0.1 * std::sqrt(squares / count));
    return std::sqrt(squares / count);
  };
  CHECK(deviation(false, 0, 512) == Approx(3).epsilon(0.05));
  CHECK(deviation(true, 0, 16) == Approx(1).epsilon(0.3));
  CHECK(deviation(true, 496, 512) == Approx(10).epsilon(0.1));
}

namespace {

CaseSpec eight_bit_case() {
  CaseSpec spec = mixed_batch();
  spec.shape.kv = DType::i8;
  spec.shape.out = DType::e4m3_ocp;
  spec.shape.token_scales = spec.shape.sinks = spec.shape.sliding_window = true;
  spec.shape.max_query_len = 6;
  spec.key_amplitude = spec.value_amplitude = 30.f;
  spec.token_scale = 1.f / 30.f;
  spec.out_scale = 0.01f;
  spec.window = 9;
  spec.unmapped_expired = true;
  return spec;
}

}  // namespace

TEST_CASE("8-bit output: the reference's own rounding is right, one code further is not") {
  PagedCase right(eight_bit_case()), wrong(eight_bit_case());
  CHECK(after(right, [](PagedCase&) {}).problem == "");
  CHECK(after(right, [](PagedCase&) {}).worst_out < 1e-6);
  CHECK(after(wrong, [](PagedCase& paged) {
          for (std::size_t i = 0; i < 64; ++i) paged.out.data()[i] = std::uint8_t(paged.out.data()[i] ^ 1);
        }).problem.find("out is off") != std::string::npos);
  CHECK(after(wrong, [](PagedCase& paged) { paged.out.data()[5] = 0x7f; }).problem.find("out is off") != std::string::npos);
}

TEST_CASE("blocks before every window are unmapped, NaN or both, and so are their token scales") {
  CaseSpec spec = eight_bit_case();
  PagedCase paged(spec);
  CHECK(paged.block_table(1, 0) == 0x7f7f7f7f);  // 40 tokens and six rows: the first sees keys 26 .. 34
  CHECK(paged.block_table(1, 1) < 0x7f7f7f7f);
  CHECK(dies([&] {
    const auto* keys = static_cast<const volatile std::uint8_t*>(paged.host_args().cache.keys);
    static_cast<void>(keys[paged.block_table(1, 0) * paged.strides().key_block]);
  }));
  const auto scale_of = [&](PagedCase& from, int sequence, int token) {
    const std::int64_t block = from.block_table(sequence, token / 16);
    return from.host_args().cache.key_token_scales[block * 2 * 16 + token % 16];
  };
  CHECK(scale_of(paged, 1, 26) > 0.f);
  CHECK(scale_of(paged, 1, 39) > 0.f);
  CHECK(std::isnan(scale_of(paged, 1, 25)));
  CHECK(std::isnan(scale_of(paged, 1, 40)));
  spec.unmapped_expired = false;
  PagedCase mapped(spec);
  CHECK(std::isnan(scale_of(mapped, 1, 3)));
}

TEST_CASE("random trees: a row sees itself, and what its parent sees") {
  CaseSpec spec = mixed_batch();
  spec.shape.tree_mask = true;
  spec.shape.max_query_len = 6;
  PagedCase paged(spec);
  std::set<std::uint32_t> masks;
  for (int row = 0; row < 6; ++row) {  // the second sequence's
    const std::uint32_t mask = paged.host_args().tree_masks[1 + row] & 0x3f;
    CHECK((mask >> row) == 1);
    const std::uint32_t ancestors = mask & ~(1u << row);
    CHECK((ancestors == 0 || masks.count(ancestors) == 1));
    masks.insert(mask);
  }
  CHECK(after(paged, [](PagedCase&) {}).problem == "");
}
