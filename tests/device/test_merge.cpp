// merge_states() against double precision, against attention that was not cut, and everything that it refuses.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "calls.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

template <class Machine>
using merge_menu = hpa::default_menu::with<hpa::head_sizes<64>, hpa::block_sizes<16>, hpa::feature_sets<hpa::Features::none>,
                                           hpa::machine<Machine>>;
const float infinity = std::numeric_limits<float>::infinity();
constexpr std::uint8_t sentinel = 0xfd;

/// One merge in memory that shows what it should not have done: NaN in the outs of empty states and between rows and heads.
struct Merge {
  int num_states = 2, num_rows = 1, num_heads = 1, head_size = 64;
  DType state_type = DType::f16, out_type = DType::f16;
  int row_padding = 0, head_padding = 0, out_row_padding = 0, out_head_padding = 0;  // elements beyond dense
  int misplaced = 0;                                                                 // bytes by which the states' outs are off 16
  bool gathered = false;                                                             // all outs lie in one buffer, and all lses
  bool wants_lse = true;
  int in_place = -1;       // the state whose out receives the result
  double empty_share = 0;  // of (state, row, head)
  float lse_range = 3.f;
  unsigned seed = 1;
  Guard guard = Guard::end;

  std::vector<Buffer> outs, lses;
  Buffer out, lse;
  std::vector<std::vector<std::uint8_t>> given;  // the states' outs before the call

  std::int64_t head_stride() const { return head_size + head_padding; }
  std::int64_t row_stride() const { return num_heads * head_stride() + row_padding; }
  std::int64_t out_head_stride() const { return in_place >= 0 ? head_stride() : head_size + out_head_padding; }
  std::int64_t out_row_stride() const { return in_place >= 0 ? row_stride() : num_heads * out_head_stride() + out_row_padding; }
  std::int64_t extent(std::int64_t row, std::int64_t head) const {
    return (num_rows - 1) * row + (num_heads - 1) * head + head_size;
  }
  std::int64_t part_size() const { return gathered ? num_rows * row_stride() : extent(row_stride(), head_stride()); }
  std::int64_t lse_count() const { return std::int64_t{num_rows} * num_heads; }

  std::string describe() const {
    const auto text = [](const char* what, std::int64_t value) { return std::string(", ") + what + " " + std::to_string(value); };
    return std::string(name(state_type)) + " to " + name(out_type) + text("states", num_states) + text("rows", num_rows) +
           text("heads", num_heads) + text("head size", head_size) + text("row stride", row_stride()) +
           text("head stride", head_stride()) + text("out row stride", out_row_stride()) +
           text("out head stride", out_head_stride()) + text("misplaced", misplaced) + text("gathered", gathered) +
           text("in place", in_place) + text("seed", seed);
  }

  const std::uint8_t* out_of(int state) const {
    return gathered ? outs[0].data() + misplaced + 2 * state * part_size() : outs[std::size_t(state)].data() + misplaced;
  }
  const float* lse_of(int state) const {
    return gathered ? lses[0].as<float>() + state * lse_count() : lses[std::size_t(state)].as<float>();
  }
  float value(int state, int row, int head, int element) const {
    const std::uint8_t* first =
        given[std::size_t(gathered ? 0 : state)].data() + misplaced + (gathered ? 2 * state * part_size() : 0);
    return hpa::load_element(state_type, first, row * row_stride() + head * head_stride() + element);
  }

  void fill() {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform(-lse_range, lse_range);
    const int buffers = gathered ? 1 : num_states, parts = gathered ? num_states : 1;
    outs.clear(), lses.clear(), given.clear();
    for (int i = 0; i < buffers; ++i) {
      outs.emplace_back(std::size_t(parts * part_size() * 2 + misplaced), misplaced == 0 ? 16 : 8, guard);
      lses.emplace_back(std::size_t(parts * lse_count()) * 4, 4, guard);
      outs.back().fill(0xff);
      for (int part = 0; part < parts; ++part)
        for (int row = 0; row < num_rows; ++row)
          for (int head = 0; head < num_heads; ++head) {
            const bool empty = std::generate_canonical<double, 32>(random) < empty_share;
            lses.back().as<float>()[part * lse_count() + row * num_heads + head] = empty ? -infinity : uniform(random);
            for (int d = 0; d < head_size && !empty; ++d)
              hpa::store_element(state_type, outs.back().data() + misplaced + 2 * part * part_size(),
                                 row * row_stride() + head * head_stride() + d, normal(random));
          }
    }
    for (Buffer& buffer : outs) buffer.upload();
    for (Buffer& buffer : lses) buffer.upload();
    for (const Buffer& buffer : outs) given.push_back(buffer.bytes());
    out = Buffer(std::size_t(extent(out_row_stride(), out_head_stride())) * 2, 16, guard);
    lse = Buffer(std::size_t(lse_count()) * 4, 4, guard);
    out.fill(sentinel), lse.fill(sentinel);
    out.upload(), lse.upload();
  }

  MergeArgs args() const {
    MergeArgs args;
    args.num_states = num_states;
    args.state_type = state_type, args.out_type = out_type;
    args.num_rows = num_rows, args.num_heads = num_heads, args.head_size = head_size;
    for (int i = 0; i < num_states; ++i) {
      const std::size_t buffer = gathered ? 0 : std::size_t(i);
      args.states[i].out = outs[buffer].device() + (out_of(i) - outs[buffer].data());
      args.states[i].lse = lses[buffer].device_as<float>() + (lse_of(i) - lses[buffer].as<float>());
    }
    if (row_padding + head_padding > 0) args.state_row_stride = row_stride(), args.state_head_stride = head_stride();
    if (out_row_stride() != num_heads * head_size) args.out_row_stride = out_row_stride(), args.out_head_stride = out_head_stride();
    args.out = in_place >= 0 ? const_cast<void*>(args.states[in_place].out) : out.device();
    args.lse = wants_lse ? lse.device_as<float>() : nullptr;
    return args;
  }

  void download() {
    for (Buffer& buffer : outs) buffer.download();
    for (Buffer& buffer : lses) buffer.download();
    out.download(), lse.download();
  }
  const std::uint8_t* result() const { return in_place >= 0 ? out_of(in_place) : out.data(); }
  float result_at(int row, int head, int element) const {
    return hpa::load_element(out_type, result(), row * out_row_stride() + head * out_head_stride() + element);
  }
  /// Out's elements and lse, without what lies between them.
  std::vector<std::uint8_t> result_bytes() const {
    std::vector<std::uint8_t> bytes;
    for (int row = 0; row < num_rows; ++row)
      for (int head = 0; head < num_heads; ++head) {
        const std::uint8_t* first = result() + 2 * (row * out_row_stride() + head * out_head_stride());
        bytes.insert(bytes.end(), first, first + 2 * head_size);
      }
    const std::vector<std::uint8_t> last = lse.bytes();
    bytes.insert(bytes.end(), last.begin(), last.end());
    return bytes;
  }
};

/// Names the first thing that is wrong after a merge; empty when nothing is.
std::string problem_of(const Merge& m) {
  const double unit = m.out_type == DType::f16 ? 0x1p-11 : 0x1p-8, smallest = m.out_type == DType::f16 ? 0x1p-25 : 0;
  std::vector<bool> due(std::size_t(m.extent(m.out_row_stride(), m.out_head_stride())) * 2, false);
  for (int row = 0; row < m.num_rows; ++row)
    for (int head = 0; head < m.num_heads; ++head) {
      const std::string where = "row " + std::to_string(row) + ", head " + std::to_string(head);
      const std::int64_t lse_at = std::int64_t{row} * m.num_heads + head;
      double maximum = -infinity, total = 0;
      for (int i = 0; i < m.num_states; ++i) maximum = std::max(maximum, double(m.lse_of(i)[lse_at]));
      const auto weight = [&](int i) { return maximum == -infinity ? 0 : std::exp(double(m.lse_of(i)[lse_at]) - maximum); };
      for (int i = 0; i < m.num_states; ++i) total += weight(i);
      for (int d = 0; d < m.head_size; ++d) {
        double sum = 0, size = 0;
        for (int i = 0; i < m.num_states; ++i) {
          if (weight(i) == 0) continue;
          sum += weight(i) * double(m.value(i, row, head, d)) / total;
          size += weight(i) * std::abs(double(m.value(i, row, head, d))) / total;
        }
        const double error = std::abs(double(m.result_at(row, head, d)) - sum);
        if (!(error <= unit * std::abs(sum) + smallest + 4e-6 * size))
          return where + ", element " + std::to_string(d) + ": " + std::to_string(m.result_at(row, head, d)) + " for " +
                 std::to_string(sum);
        const std::int64_t at = 2 * (row * m.out_row_stride() + head * m.out_head_stride() + d);
        due[std::size_t(at)] = due[std::size_t(at + 1)] = true;
      }
      if (!m.wants_lse) continue;
      const double expected = total == 0 ? -infinity : maximum + std::log(total), got = m.lse.as<float>()[lse_at];
      if (got != expected && !(std::abs(got - expected) <= 2e-6 + 2e-7 * std::abs(expected)))
        return where + ": lse " + std::to_string(got) + " for " + std::to_string(expected);
    }
  for (std::size_t i = 0; i < due.size(); ++i)
    if (!due[i] && m.result()[i] != (m.in_place >= 0 ? 0xff : sentinel))
      return "out: byte " + std::to_string(i) + " is no row's and was written";
  for (std::size_t i = 0; !m.wants_lse && i < m.lse.size(); ++i)
    if (m.lse.data()[i] != sentinel) return "lse was written";
  for (std::size_t i = 0; i < m.outs.size(); ++i)
    if (m.in_place < 0 && m.outs[i].bytes() != m.given[i]) return "a state was written";
  if (m.in_place >= 0 && !m.gathered)
    for (std::size_t i = 0; i < m.outs.size(); ++i)
      if (int(i) != m.in_place && m.outs[i].bytes() != m.given[i]) return "another state was written";
  for (const std::vector<Buffer>* all : {&m.outs, &m.lses})
    for (const Buffer& buffer : *all)
      if (!buffer.canary_intact()) return "written outside a state";
  return m.out.canary_intact() && m.lse.canary_intact() ? "" : "written outside out or lse";
}

template <class Machine>
void merge(Merge& m) {
  const Verdict verdict = hpa::merge_states<merge_menu<Machine>>(m.args(), {});
  INFO(m.describe());
  INFO(verdict.field << ": " << verdict.why);
  REQUIRE(verdict);
  m.download();
}

template <class Machine>
void expect_right(Merge m) {
  m.fill();
  merge<Machine>(m);
  INFO(m.describe());
  CHECK(problem_of(m) == "");
}

Merge random_merge(unsigned seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<int> values) { return *(values.begin() + random() % values.size()); };
  Merge m;
  m.seed = seed;
  m.num_states = random() % 4 == 0 ? one_of({1, max_merge_states}) : 1 + int(random() % max_merge_states);
  m.num_rows = one_of({1, 2, 3, 7, 40});
  m.num_heads = one_of({1, 2, 5, 8, 12});
  m.head_size = one_of({4, 8, 20, 64, 80, 96, 128, 256});
  m.state_type = random() % 2 == 0 ? DType::f16 : DType::bf16;
  m.out_type = random() % 2 == 0 ? DType::f16 : DType::bf16;
  m.row_padding = 4 * one_of({0, 0, 1, 2, 6}), m.head_padding = 4 * one_of({0, 0, 1, 2});
  m.out_row_padding = 4 * one_of({0, 0, 1, 2, 6}), m.out_head_padding = 4 * one_of({0, 0, 1, 2});
  m.misplaced = one_of({0, 0, 8});
  m.gathered = random() % 2 == 0;
  m.wants_lse = random() % 4 != 0;
  m.in_place = random() % 3 == 0 ? int(random() % unsigned(m.num_states)) : -1;
  m.empty_share = 0.25 * one_of({0, 1, 2, 3});
  m.lse_range = float(one_of({1, 10, 200, 10000}));
  m.guard = random() % 2 == 0 ? Guard::end : Guard::start;
  return m;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("merges of random shapes are those of double precision", "[merge]", Machines) {
  for (unsigned seed = 1; seed <= 120; ++seed) expect_right<TestType>(random_merge(seed));
}

TEMPLATE_LIST_TEST_CASE("one state comes out as it went in, every finite value of it", "[merge]", Machines) {
  for (const DType type : {DType::f16, DType::bf16}) {
    Merge m;
    m.num_states = 1, m.num_rows = 512, m.head_size = 128;
    m.state_type = m.out_type = type;
    m.fill();
    const auto finite = [&](int code) { return (code & 0x7fff) < (type == DType::f16 ? 0x7c00 : 0x7f80) ? code : 0; };
    for (int code = 0; code < 65536; ++code) m.outs[0].as<std::uint16_t>()[code] = std::uint16_t(finite(code));
    m.outs[0].upload();
    m.given[0] = m.outs[0].bytes();
    merge<TestType>(m);
    int different = 0;
    for (int code = 0; code < 65536; ++code)
      different += hpa::load_element(type, m.out.data(), code) != hpa::load_element(type, m.outs[0].data(), code);
    CHECK(different == 0);
    CHECK((m.lse.bytes() == m.lses[0].bytes()));
  }
}

TEMPLATE_LIST_TEST_CASE("empty states change no bit, wherever they stand; all empty is empty", "[merge]", Machines) {
  Merge full;
  full.num_states = 3, full.num_rows = 5, full.num_heads = 3, full.wants_lse = true;
  full.fill();
  merge<TestType>(full);
  for (const std::vector<int>& order : {std::vector<int>{-1, 0, 1, 2}, {0, -1, -1, -1, -1, 1, 2}, {0, 1, 2, -1, -1}}) {
    Merge m = [&] {
      Merge with;
      with.num_states = int(order.size()), with.num_rows = full.num_rows, with.num_heads = full.num_heads;
      with.fill();
      return with;
    }();
    for (std::size_t i = 0; i < order.size(); ++i) {
      m.outs[i].fill(0xff);
      for (std::int64_t at = 0; at < m.lse_count(); ++at) m.lses[i].as<float>()[at] = -infinity;
      if (order[i] >= 0) {
        std::memcpy(m.outs[i].data(), full.outs[std::size_t(order[i])].data(), m.outs[i].size());
        std::memcpy(m.lses[i].data(), full.lses[std::size_t(order[i])].data(), m.lses[i].size());
      }
      m.outs[i].upload(), m.lses[i].upload();
    }
    merge<TestType>(m);
    CHECK((m.result_bytes() == full.result_bytes()));
  }
  Merge none;
  none.num_states = 5, none.num_rows = 3, none.num_heads = 2, none.empty_share = 1.1;
  none.fill();
  merge<TestType>(none);
  for (std::size_t i = 0; i < none.out.size(); ++i) CHECK(none.out.data()[i] == 0);
  for (std::int64_t at = 0; at < none.lse_count(); ++at) CHECK(none.lse.as<float>()[at] == -infinity);
}

TEMPLATE_LIST_TEST_CASE("a row's bits depend on nothing but its states", "[merge]", Machines) {
  Merge m;
  m.num_states = 7, m.num_rows = 9, m.num_heads = 3, m.empty_share = 0.2;
  m.fill();
  merge<TestType>(m);
  const std::vector<std::uint8_t> first = m.result_bytes();
  merge<TestType>(m);
  CHECK((m.result_bytes() == first));
  for (const int state : {0, 3, 6}) {  // in place
    Merge own;
    own.num_states = 7, own.num_rows = 9, own.num_heads = 3, own.empty_share = 0.2, own.in_place = state;
    own.fill();
    merge<TestType>(own);
    CHECK((own.result_bytes() == first));
  }
  MergeArgs args = m.args();  // 8-byte loads
  args.num_rows = 1;
  Buffer elsewhere(std::size_t(2 * 3 * 64 + 8), 16, Guard::start);
  args.out = elsewhere.device() + 8, args.lse = nullptr;
  REQUIRE(hpa::merge_states<merge_menu<TestType>>(args, {}));
  elsewhere.download();
  CHECK(std::memcmp(elsewhere.data() + 8, first.data(), 2 * 3 * 64) == 0);
}

/// As some write it where a row saw nothing.
TEMPLATE_LIST_TEST_CASE("an lse of +inf says that the row saw nothing, as -inf does", "[merge]", Machines) {
  Merge m;
  m.num_states = 3, m.num_rows = 2, m.num_heads = 3;
  m.fill();
  for (std::int64_t at = 0; at < m.lse_count(); ++at) m.lses[1].as<float>()[at] = -infinity;
  m.lses[0].as<float>()[2] = m.lses[2].as<float>()[2] = -infinity;  // and one row saw nothing anywhere
  m.outs[1].fill(0xff);
  for (Buffer* buffer : {&m.lses[0], &m.lses[1], &m.lses[2], &m.outs[1]}) buffer->upload();
  merge<TestType>(m);
  const std::vector<std::uint8_t> out = m.out.bytes(), lse = m.lse.bytes();
  CHECK(m.lse.as<float>()[2] == -infinity);
  for (std::int64_t at = 0; at < m.lse_count(); ++at) m.lses[1].as<float>()[at] = infinity;
  m.lses[0].as<float>()[2] = m.lses[2].as<float>()[2] = infinity;
  for (Buffer& buffer : m.lses) buffer.upload();
  merge<TestType>(m);
  CHECK((m.out.bytes() == out));
  CHECK((m.lse.bytes() == lse));
}

TEMPLATE_LIST_TEST_CASE("lse may lie in any order, of each state and of the result", "[merge]", Machines) {
  Merge m;
  m.num_states = 2, m.num_rows = 5, m.num_heads = 3;
  m.fill();
  merge<TestType>(m);
  const std::vector<std::uint8_t> out = m.out.bytes();
  const int rows = m.num_rows, heads = m.num_heads;
  Buffer turned(std::size_t(m.lse_count()) * 4, 4, Guard::end), result(std::size_t(m.lse_count()) * 4, 4, Guard::end);
  for (int row = 0; row < rows; ++row)
    for (int head = 0; head < heads; ++head) turned.as<float>()[head * rows + row] = m.lses[1].as<float>()[row * heads + head];
  turned.upload(), result.upload();
  MergeArgs args = m.args();
  args.states[1].lse = turned.device_as<float>();
  args.states[1].lse_row_stride = args.lse_row_stride = 1, args.states[1].lse_head_stride = args.lse_head_stride = rows;
  args.lse = result.device_as<float>();
  m.out.fill(0xff), m.out.upload();
  REQUIRE(hpa::merge_states<merge_menu<TestType>>(args, {}));
  m.out.download(), result.download();
  CHECK((m.out.bytes() == out));
  for (int row = 0; row < rows; ++row)
    for (int head = 0; head < heads; ++head)
      CHECK(result.as<float>()[head * rows + row] == m.lse.as<float>()[row * heads + head]);
}

TEMPLATE_LIST_TEST_CASE("an lse that is no number makes its row none, and no other", "[merge]", Machines) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN()}) {
    Merge m;
    m.num_states = 3, m.num_rows = 3;
    m.fill();
    m.lses[1].as<float>()[1] = bad;
    m.lses[1].upload();
    merge<TestType>(m);
    for (int row = 0; row < 3; ++row)
      for (int d = 0; d < m.head_size; ++d) CHECK(std::isnan(m.result_at(row, 0, d)) == (row == 1));
    CHECK(std::isnan(m.lse.as<float>()[1]));
  }
}

namespace {

/// The case's arguments for the tokens from block `first` up to block `end` of every sequence alone.
struct Part {
  Buffer out, lse, seq_lens;
  DecodeArgs args;

  Part(const PagedCase& paged, DecodeArgs whole, int first, int end, bool on_device)
      : out(paged.out.size(), 16, Guard::end),
        lse(paged.lse.size(), 4, Guard::end),
        seq_lens(paged.seq_lens.size(), 4, Guard::end),
        args(whole) {
    const int block_size = paged.shape().block_size;
    for (int i = 0; i < paged.num_seqs(); ++i)
      seq_lens.as<std::int32_t>()[i] =
          std::clamp(paged.spec.seq_lens[std::size_t(i)] - first * block_size, 0, (end - first) * block_size);
    out.fill(0xff), lse.fill(0xff);
    for (Buffer* buffer : {&out, &lse, &seq_lens}) buffer->upload();
    args.batch.block_table_row_stride = paged.strides().table_row;
    args.batch.block_tables += first;
    args.batch.block_table_width = std::min(end, whole.batch.block_table_width) - first;
    args.batch.seq_lens = on_device ? seq_lens.device_as<std::int32_t>() : seq_lens.as<std::int32_t>();
    args.out = on_device ? out.device() : out.data();
    args.lse = on_device ? lse.device_as<float>() : lse.as<float>();
  }
};

/// Attention over parts of the cache, by `attend(shape, args)`, merged into the case's out and lse and compared with the whole.
template <class Machine, class Attend>
void merge_parts(DType type, int num_parts, bool on_device, unsigned seed, Attend&& attend) {
  CaseSpec spec = small_case(type, 6, 2, {1, 16, 17, 100, 333, 0, 700});
  spec.seed = seed;
  PagedCase paged(spec);
  INFO(describe(paged.spec) << ", parts " << num_parts);
  const int width = paged.table_width();
  std::vector<int> cuts = {0, width};
  std::mt19937 random(seed);
  while (int(cuts.size()) <= num_parts) cuts.push_back(1 + int(random() % unsigned(width - 1)));
  std::sort(cuts.begin(), cuts.end());

  const auto call = [&](const DecodeShape& shape, const DecodeArgs& args, hpa::Workspace, hpa::Stream stream) {
    std::vector<Part> parts;
    MergeArgs merge;
    merge.num_states = num_parts;
    merge.state_type = merge.out_type = type;
    merge.num_rows = paged.num_rows(), merge.num_heads = shape.num_heads, merge.head_size = shape.head_size;
    merge.out = args.out, merge.lse = args.lse;
    for (int i = 0; i < num_parts; ++i) {
      // Where the cuts coincide the part is empty: no block table, no call, as an engine would do it.
      parts.emplace_back(paged, on_device ? args : paged.host_args(), cuts[i], std::max(cuts[i + 1], cuts[i] + 1), on_device);
      Part& part = parts.back();
      if (cuts[i + 1] > cuts[i]) {
        attend(shape, part.args);
      } else {
        for (std::size_t at = 0; at < part.lse.size() / 4; ++at) part.lse.template as<float>()[at] = -infinity;
        part.lse.upload();
      }
      if (!on_device) part.out.upload(), part.lse.upload();
      merge.states[i] = {part.out.device(), part.lse.template device_as<float>()};
    }
    const Verdict verdict = hpa::merge_states<merge_menu<Machine>>(merge, stream);
    for (Part& part : parts) part.out.download();  // waits: the parts live no longer than this
    return verdict;
  };
  const Verdict verdict = paged.run(16, {}, call);
  INFO(verdict.field << ": " << verdict.why);
  REQUIRE(verdict);
  // A part's out was rounded to 16 bits and so was the result: one more rounding than attention in one piece.
  hpa::test::Tolerance tolerance = hpa::test::tolerance_of(type);
  tolerance.out *= 1.5;
  CHECK(paged.check_against_reference(tolerance).problem == "");
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("merged parts of the reference are the whole attention", "[merge]", Machines) {
  for (const DType type : {DType::f16, DType::bf16})
    for (const int num_parts : {1, 2, 3, 7, max_merge_states})
      for (const unsigned seed : {1u, 2u})
        merge_parts<TestType>(type, num_parts, false, seed,
                              [](const DecodeShape& shape, const DecodeArgs& args) { hpa::reference::decode(shape, args); });
}

TEMPLATE_LIST_TEST_CASE("merged parts of decode are the whole attention", "[merge]", Machines) {
  for (const DType type : {DType::f16, DType::bf16})
    for (const int num_parts : {2, 5})
      merge_parts<TestType>(type, num_parts, true, 3, [](const DecodeShape& shape, const DecodeArgs& args) {
        using Menu = merge_menu<TestType>;
        Buffer memory(hpa::workspace_bytes<Menu>(shape, this_device()), 16, Guard::end);
        memory.upload();
        const hpa::Workspace workspace{memory.device(), memory.size()};
        const Verdict verdict = hpa::paged_attention<Menu>(shape, args, workspace, {});
        INFO(verdict.field << ": " << verdict.why);
        REQUIRE(verdict);
        CHECK(hpa::workspace_error(workspace, {}));
      });
}

namespace {

struct BadMerge {
  const char* field;
  Status status;
  std::function<void(MergeArgs&)> spoil;
};

/// Well aligned, and nobody's.
template <class T>
T* nowhere(int offset) {
  return reinterpret_cast<T*>(std::uintptr_t(0x100000 + offset));
}

MergeArgs good_args() {
  MergeArgs args;
  args.num_states = 3;
  args.num_rows = 4, args.num_heads = 8, args.head_size = 64;
  for (int i = 0; i < args.num_states; ++i) args.states[i] = {nowhere<void>(0x4000 * i), nowhere<float>(0x4000 * i + 0x2000)};
  args.out = nowhere<void>(0x20000), args.lse = nowhere<float>(0x22000);
  return args;
}

}  // namespace

TEST_CASE("merge_states refuses what it cannot do, by name, and touches nothing", "[merge]") {
  constexpr Status invalid = Status::invalid_argument, unsupported = Status::unsupported;
  const BadMerge table[] = {
      {"num_states", invalid, [](MergeArgs& a) { a.num_states = 0; }},
      {"num_states", invalid, [](MergeArgs& a) { a.num_states = -1; }},
      {"num_states", unsupported, [](MergeArgs& a) { a.num_states = max_merge_states + 1; }},
      {"num_rows", invalid, [](MergeArgs& a) { a.num_rows = -7; }},
      {"num_heads", invalid, [](MergeArgs& a) { a.num_heads = -8; }},
      {"num_heads", unsupported, [](MergeArgs& a) { a.num_heads = 1 << 20; }},
      {"head_size", invalid, [](MergeArgs& a) { a.head_size = 0; }},
      {"head_size", unsupported, [](MergeArgs& a) { a.head_size = 66; }},
      {"state_type", unsupported, [](MergeArgs& a) { a.state_type = DType::e4m3_ocp; }},
      {"state_type", unsupported, [](MergeArgs& a) { a.state_type = DType(99); }},
      {"out_type", unsupported, [](MergeArgs& a) { a.out_type = DType::i8; }},
      {"states.out", invalid, [](MergeArgs& a) { a.states[2].out = nullptr; }},
      {"states.out", invalid, [](MergeArgs& a) { a.states[1].out = nowhere<void>(4); }},
      {"states.lse", invalid, [](MergeArgs& a) { a.states[0].lse = nullptr; }},
      {"states.lse", invalid, [](MergeArgs& a) { a.states[2].lse = nowhere<float>(2); }},
      {"out", invalid, [](MergeArgs& a) { a.out = nullptr; }},
      {"out", invalid, [](MergeArgs& a) { a.out = nowhere<void>(0x20004); }},
      {"lse", invalid, [](MergeArgs& a) { a.lse = nowhere<float>(0x22002); }},
      {"state_head_stride", invalid, [](MergeArgs& a) { a.state_head_stride = 60; }},
      {"state_head_stride", invalid, [](MergeArgs& a) { a.state_head_stride = 66; }},
      {"state_head_stride", invalid, [](MergeArgs& a) { a.state_head_stride = -64; }},
      {"state_head_stride", unsupported, [](MergeArgs& a) { a.state_head_stride = std::int64_t{1} << 31; }},
      {"state_row_stride", invalid, [](MergeArgs& a) { a.state_row_stride = 8 * 64 - 4; }},
      {"state_row_stride", invalid, [](MergeArgs& a) { a.state_row_stride = 8 * 64 + 2; }},
      {"state_row_stride", unsupported, [](MergeArgs& a) { a.state_row_stride = std::int64_t{1} << 44; }},
      {"states.lse_head_stride", invalid, [](MergeArgs& a) { a.states[1].lse_head_stride = -1; }},
      {"states.lse_row_stride", invalid, [](MergeArgs& a) { a.states[2].lse_row_stride = 7; }},
      {"states.lse_head_stride", invalid, [](MergeArgs& a) { a.states[0].lse_row_stride = 1, a.states[0].lse_head_stride = 3; }},
      {"lse_row_stride", invalid, [](MergeArgs& a) { a.lse_row_stride = 7; }},
      {"lse_row_stride", unsupported, [](MergeArgs& a) { a.lse_row_stride = std::int64_t{1} << 44; }},
      {"out_head_stride", invalid, [](MergeArgs& a) { a.out_head_stride = 66; }},
      {"out_row_stride", invalid, [](MergeArgs& a) { a.out_row_stride = 4; }},
      {"out", invalid, [](MergeArgs& a) { a.out = const_cast<void*>(a.states[1].out), a.out_row_stride = 1024; }},
      {"lse", invalid, [](MergeArgs& a) { a.lse = const_cast<float*>(a.states[1].lse); }},
  };
  REQUIRE(hpa::check(good_args(), this_device()));
  int number = 0;
  for (const BadMerge& bad : table) {
    INFO("case " << number++ << ", " << bad.field);
    MergeArgs args = good_args();
    bad.spoil(args);
    for (const Verdict& verdict : {hpa::check(args, this_device()), hpa::merge_states(args, {})}) {
      CHECK(verdict.status == bad.status);
      CHECK(std::string(verdict.field) == bad.field);
      CHECK(std::string(verdict.why) != "");
    }
  }
  MergeArgs nothing;
  nothing.num_states = 2, nothing.num_heads = 8, nothing.head_size = 64;
  CHECK(hpa::merge_states(nothing, {}));  // no rows, and no tensors
  using OneType = hpa::default_menu::with<hpa::query_types<DType::bf16>>;
  CHECK(std::string(hpa::check<OneType>(good_args(), this_device()).field) == "state_type");
  CHECK(std::string(hpa::check(good_args(), {hpa::Arch::gfx12, 8}).field) == "device");
  CHECK(std::string(hpa::check(good_args(), {this_device().arch, 0}).field) == "device");
  // What is not among the first num_states does not count; in place and without lse are fine.
  MergeArgs good = good_args();
  good.states[3] = {nowhere<void>(1), nullptr};
  good.out = const_cast<void*>(good.states[1].out);
  good.lse = nullptr;
  CHECK(hpa::check(good, this_device()));
}

TEST_CASE("16 bytes at a time only where every address allows it", "[merge]") {
  const auto after = [](auto&& change) {
    MergeArgs args = good_args();
    change(args);
    REQUIRE(hpa::check(args, this_device()));
    return hpa::detail::merges_16_bytes(args);
  };
  CHECK(after([](MergeArgs&) {}));
  CHECK(after([](MergeArgs& a) { a.head_size = 72, a.state_head_stride = 80, a.out_row_stride = 1024; }));
  CHECK_FALSE(after([](MergeArgs& a) { a.head_size = 68; }));
  CHECK_FALSE(after([](MergeArgs& a) { a.out = nowhere<void>(0x20008); }));
  CHECK_FALSE(after([](MergeArgs& a) { a.states[2].out = nowhere<void>(0x8008); }));
  CHECK_FALSE(after([](MergeArgs& a) { a.state_head_stride = 68; }));
  CHECK_FALSE(after([](MergeArgs& a) { a.state_row_stride = 516; }));
  CHECK_FALSE(after([](MergeArgs& a) { a.out_head_stride = 68; }));
  CHECK_FALSE(after([](MergeArgs& a) { a.out_row_stride = 516; }));
}

#if !defined(HPA_PLATFORM_HOST)

#if defined(HPA_PLATFORM_HIP)
#define GPU(name) hip##name
#else
#define GPU(name) cuda##name
#endif

TEST_CASE("a captured merge merges what its states hold at each replay", "[merge]") {
  Merge m;
  m.num_states = 5, m.num_rows = 4, m.num_heads = 2;
  m.fill();
  hpa::Stream stream{};
  REQUIRE(GPU(StreamCreateWithFlags)(&stream, GPU(StreamNonBlocking)) == GPU(Success));
  GPU(Graph_t) graph{};
  GPU(GraphExec_t) executable{};
  REQUIRE(GPU(StreamBeginCapture)(stream, GPU(StreamCaptureModeGlobal)) == GPU(Success));
  const Verdict verdict = hpa::merge_states(m.args(), stream);
  REQUIRE(GPU(StreamEndCapture)(stream, &graph) == GPU(Success));
  REQUIRE(verdict);
  REQUIRE(GPU(GraphInstantiateWithFlags)(&executable, graph, 0) == GPU(Success));
  for (const float shift : {0.f, 2.f, -3.f}) {
    for (std::int64_t at = 0; at < m.lse_count(); ++at) m.lses[1].as<float>()[at] += shift;
    m.lses[1].upload();
    REQUIRE(GPU(GraphLaunch)(executable, stream) == GPU(Success));
    REQUIRE(GPU(StreamSynchronize)(stream) == GPU(Success));
    m.download();
    CHECK(problem_of(m) == "");
  }
  CHECK(GPU(GraphExecDestroy)(executable) == GPU(Success));
  CHECK(GPU(GraphDestroy)(graph) == GPU(Success));
  CHECK(GPU(StreamDestroy)(stream) == GPU(Success));
}

#endif
