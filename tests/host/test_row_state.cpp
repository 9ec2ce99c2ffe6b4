// RowState: what softmaxes computed apart become together, against double precision.
#include "hpa/kernel/row_state.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "catch.hpp"
#include "hpa/arch/host/machine.hpp"

using hpa::kernel::RowState;
using M = hpa::arch::HostMachine<hpa::arch::Cdna>;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// A row of one value a token: its state and its output, not divided.
struct Part {
  RowState state = RowState::none();
  float output = 0.f;
};

/// log2 of the sum of 2^score, and the softmax' mean of the values.
struct Expected {
  double log2_sum, mean;
};

struct Tokens {
  std::vector<float> scores, values;

  Expected expected() const {
    const double largest = *std::max_element(scores.begin(), scores.end());
    double total = 0, sum = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      total += std::exp2(double(scores[i]) - largest);
      sum += std::exp2(double(scores[i]) - largest) * double(values[i]);
    }
    return {largest + std::log2(total), sum / total};
  }
  /// Of tokens [begin, end).
  Part part(std::size_t begin, std::size_t end) const {
    Part part;
    for (std::size_t i = begin; i < end; ++i) {
      const auto [keep, weight] = part.state.absorb<M>({scores[i], 1.f});
      part.output = part.output * keep + values[i] * weight;
    }
    return part;
  }
};

Tokens random_tokens(int count, float spread, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.scores.push_back(spread * normal(random)), tokens.values.push_back(normal(random));
  return tokens;
}

}  // namespace

TEST_CASE("states of parts become the state of all, whatever the parts", "[row_state]") {
  std::mt19937 random(1);
  for (const float spread : {1.f, 30.f, 1000.f})
    for (int turn = 0; turn < 50; ++turn) {
      const Tokens tokens = random_tokens(40, spread, random);
      const std::size_t cut[] = {0, random() % 41, random() % 41, 40};
      const std::size_t low = std::min(cut[1], cut[2]), high = std::max(cut[1], cut[2]);
      const Part parts[] = {tokens.part(0, low), tokens.part(low, high), tokens.part(high, 40)};
      RowState states[3];
      for (int i = 0; i < 3; ++i) states[i] = parts[i].state;
      float weight[3];
      const RowState all = RowState::merged<M>(states, weight);
      const float output = parts[0].output * weight[0] + parts[1].output * weight[1] + parts[2].output * weight[2];
      const Expected expected = tokens.expected();
      CHECK(std::abs(double(output / all.total) - expected.mean) < 1e-5);
      CHECK(std::abs(double(all.lse<M>()) - expected.log2_sum * std::log(2.0)) < 1e-6 * std::max(1.0, std::abs(expected.log2_sum)));
    }
}

TEST_CASE("states that have seen nothing change nothing", "[row_state]") {
  const RowState one{-300.f, 2.5f}, states[] = {RowState::none(), one, RowState::none()};
  float weight[3];
  const RowState all = RowState::merged<M>(states, weight);
  CHECK(all.maximum == one.maximum);
  CHECK(all.total == one.total);
  CHECK((weight[0] == 0.f && weight[1] == 1.f && weight[2] == 0.f));
  RowState absorbing = one;
  absorbing.absorb<M>(RowState::none());
  CHECK((absorbing.maximum == one.maximum && absorbing.total == one.total));
  const RowState nothing[] = {RowState::none(), RowState::none()};
  float ignored[2];
  CHECK(RowState::merged<M>(nothing, ignored).empty());
  CHECK(!RowState::merged<M>(nothing, ignored).failed());
}

TEST_CASE("copies past the count have no weight", "[row_state]") {
  const RowState states[] = {{3.f, 2.f}, {5.f, 1.f}, {5.f, 1.f}, {5.f, 1.f}};
  float weight[4];
  const RowState all = RowState::merged<M>(states, weight, 2);
  CHECK((all.maximum == 5.f && all.total == 1.5f));
  CHECK((weight[0] == 0.25f && weight[1] == 1.f && weight[2] == 0.f && weight[3] == 0.f));
}

TEST_CASE("one that failed makes all fail, however small its weight, and beside NaN", "[row_state]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float maximum : {RowState::unset, -1e30f, 0.f, 1e30f})
    for (const RowState other : {RowState{0.f, 1.f}, RowState{0.f, nan}, RowState{0.f, infinity}, RowState::none()})
      for (const bool first : {false, true}) {
        const RowState failed{maximum, RowState::failed_total};
        const RowState states[] = {first ? failed : other, first ? other : failed, other};
        float weight[3];
        const RowState all = RowState::merged<M>(states, weight);
        CHECK(all.failed());
        CHECK(all.empty());
        const RowState again[] = {{7.f, 3.f}, all};  // and stays so
        float weight_again[2];
        CHECK(RowState::merged<M>(again, weight_again).failed());
      }
}

TEST_CASE("NaN is neither empty nor failed, and is kept", "[row_state]") {
  const RowState nan{0.f, std::numeric_limits<float>::quiet_NaN()};
  CHECK(!nan.empty());
  CHECK(!nan.failed());
  const RowState states[] = {{1.f, 1.f}, nan, {2.f, 1.f}};
  float weight[3];
  const RowState all = RowState::merged<M>(states, weight);
  CHECK(std::isnan(all.total));
  CHECK(!all.empty());
}

TEST_CASE("a raised maximum keeps what was summed", "[row_state]") {
  RowState state{4.f, 8.f};
  CHECK(state.raise<M>(3.f) == 1.f);
  CHECK((state.maximum == 4.f && state.total == 8.f));
  CHECK(state.raise<M>(6.f) == 0.25f);
  CHECK((state.maximum == 6.f && state.total == 2.f));
  RowState nothing = RowState::none();
  CHECK(nothing.raise<M>(-5.f) == 0.f);
  CHECK((nothing.maximum == -5.f && nothing.total == 0.f));
}
