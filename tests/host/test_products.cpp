// Lane maps: the hardware's own, against their makers' tables, and the products made of them, against plain matrix products.
#include "hpa/arch/products.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "hpa/arch/host/machine.hpp"

using hpa::DType;
using hpa::arch::Cdna;
using hpa::arch::Coord;
using hpa::arch::HostLane;
using hpa::arch::HostMachine;
using hpa::arch::Mfma16x16x16;
using hpa::arch::MmaM16N8K16;
using hpa::arch::Nvidia;
using hpa::arch::Words;

namespace {

using Pairs = std::vector<std::pair<int, int>>;

/// True when the pairs are those of [0, rows) x [0, cols), each once.
bool cover_once(const Pairs& pairs, int rows, int cols) {
  const std::set<std::pair<int, int>> distinct(pairs.begin(), pairs.end());
  bool inside = true;
  for (const auto& [row, col] : pairs) inside = inside && row >= 0 && row < rows && col >= 0 && col < cols;
  return inside && distinct.size() == pairs.size() && int(pairs.size()) == rows * cols;
}

/// What all lanes hold of a matrix: pairs from `at(lane, i)`, i < elements.
template <class At>
Pairs held(int width, int elements, At&& at) {
  Pairs pairs;
  for (int lane = 0; lane < width; ++lane)
    for (int i = 0; i < elements; ++i) {
      const Coord coord = at(lane, i);
      pairs.emplace_back(coord.row, coord.col);
    }
  return pairs;
}

template <class Map>
void check_bijective() {
  CHECK(cover_once(held(Map::width, 2 * Map::a_words, Map::a_coord), Map::m, Map::k));
  CHECK(cover_once(held(Map::width, 2 * Map::b_words, Map::b_coord), Map::k, Map::n));
  CHECK(cover_once(held(Map::width, 4, Map::d_coord), Map::m, Map::n));
}

/// Rows of a table of AMD's matrix instruction calculator: per lane, the coordinates of what it holds, in order of registers.
std::vector<std::vector<Coord>> read_table(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::vector<Coord>> lanes;
  std::string line, cell;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] < '0' || line[0] > '9') continue;  // architecture, instruction, column names
    std::istringstream cells(line);
    std::getline(cells, cell, ',');
    std::vector<Coord> coords;
    while (std::getline(cells, cell, ',')) {
      Coord coord{-1, -1};
      char matrix = 0;
      if (std::sscanf(cell.c_str(), "%c[%d][%d]", &matrix, &coord.row, &coord.col) == 3) coords.push_back(coord);
    }
    lanes.push_back(coords);
  }
  return lanes;
}

/// Places where `at(lane, i)` and the table differ; a table that is not there, or has another size, differs as well.
template <class At>
int differences(const std::string& path, int elements, At&& at) {
  const auto lanes = read_table(path);
  if (lanes.size() != 64) return 64;
  int wrong = 0;
  for (int lane = 0; lane < 64; ++lane) {
    const auto& coords = lanes[std::size_t(lane)];
    wrong += int(coords.size()) != elements;
    for (int i = 0; i < elements && i < int(coords.size()); ++i)
      wrong += coords[std::size_t(i)].row != at(lane, i).row || coords[std::size_t(i)].col != at(lane, i).col;
  }
  return wrong;
}

const char* test_data() {
  const char* folder = std::getenv("HPA_TEST_DATA");
  if (folder == nullptr) WARN("skipped: HPA_TEST_DATA, the folder of the instruction tables, is not set");
  return folder;
}

/// A machine, the query rows of a pass, and the type of the cache where that has 8 bits.
template <class MachineType, int Rows, DType Bytes = DType::f16>
struct Pass {
  using Machine = MachineType;
  static constexpr DType kv_for(DType query) { return size_of(Bytes) == 1 ? Bytes : query; }
  template <DType Query>
  using Products = typename Machine::template Products<Query, kv_for(Query), Rows>;
};
template <class Of>
using ProductsOf = typename Of::template Products<DType::f16>;

/// The row of float i of set `set` among those that a lane holds scores of.
template <class P>
constexpr int lane_row(int set, int i) {
  return set * P::set_rows + i % P::set_rows;
}

/// Elements of keys and of values in a lane's operand, and of the query: that one always has 16 bits.
template <class P>
constexpr int kv_bytes = 2 / P::key_steps;
template <class P>
constexpr int key_elements = 4 * P::key_words / kv_bytes<P>;
template <class P>
constexpr int value_elements = 4 * P::value_words / kv_bytes<P>;
template <class P>
constexpr int query_elements = 2 * P::query_words;

using Passes = std::tuple<Pass<HostMachine<Cdna>, 16>, Pass<HostMachine<Nvidia>, 16>, Pass<HostMachine<Nvidia>, 8>,
                          Pass<HostMachine<Cdna>, 16, DType::i8>, Pass<HostMachine<Nvidia>, 16, DType::i8>,
                          Pass<HostMachine<Nvidia>, 8, DType::i8>>;

}  // namespace

TEST_CASE("each instruction map gives every element of A, B and D to one lane", "[products]") {
  check_bijective<Mfma16x16x16>();
  check_bijective<MmaM16N8K16>();
}

TEST_CASE("the CDNA map is the matrix instruction calculator's", "[products]") {
  const char* folder = test_data();
  if (folder == nullptr) return;
  for (const std::string type : {"f16", "bf16"}) {
    const std::string table = std::string(folder) + "/mfma_layouts/v_mfma_f32_16x16x16_" + type;
    INFO(table);
    CHECK(differences(table + ".A.csv", 4, Mfma16x16x16::a_coord) == 0);
    CHECK(differences(table + ".B.csv", 4, Mfma16x16x16::b_coord) == 0);
    CHECK(differences(table + ".D.csv", 4, Mfma16x16x16::d_coord) == 0);
  }
}

TEST_CASE("the NVIDIA map is the PTX documentation's", "[products]") {
  // PTX ISA, matrix fragments for mma.m16n8k16 with 16-bit operands, in the documentation's words.
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2, thread_in_group = lane % 4;
    for (int i = 0; i < 8; ++i) {
      const int row = (i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8;
      const int col = i < 4 ? thread_in_group * 2 + (i & 1) : thread_in_group * 2 + (i & 1) + 8;
      CHECK(MmaM16N8K16::a_coord(lane, i).row == row);
      CHECK(MmaM16N8K16::a_coord(lane, i).col == col);
    }
    for (int i = 0; i < 4; ++i) {
      CHECK(MmaM16N8K16::b_coord(lane, i).row == (i < 2 ? thread_in_group * 2 + (i & 1) : thread_in_group * 2 + (i & 1) + 8));
      CHECK(MmaM16N8K16::b_coord(lane, i).col == group);
      CHECK(MmaM16N8K16::d_coord(lane, i).row == (i < 2 ? group : group + 8));
      CHECK(MmaM16N8K16::d_coord(lane, i).col == thread_in_group * 2 + (i & 1));
    }
  }
}

TEST_CASE("two CDNA products of 16x16x16 hold what one of 16x16x32 does", "[products]") {
  // gfx950's 16-bit 16x16x32 gives a lane eight k in a row, as the 8-bit 16x16x32 of gfx942 does, whose tables are at hand.
  using P = ProductsOf<Pass<HostMachine<Cdna>, 16>>;
  const auto a = [](int lane, int i) { return Coord{lane % 16, 8 * (lane / 16) + i}; };
  const auto b = [](int lane, int i) { return Coord{8 * (lane / 16) + i, lane % 16}; };
  for (int lane = 0; lane < 64; ++lane)
    for (int i = 0; i < 8; ++i) {
      for (int product = 0; product < P::score_products; ++product) CHECK(P::key_at(lane, product, i).element == a(lane, i).col);
      CHECK(P::query_at(lane, 0, i).element == b(lane, i).row);
      CHECK(P::query_at(lane, 0, i).token == b(lane, i).col);
      CHECK(P::value_at(lane, 0, i).token == a(lane, i).col);
      CHECK(P::value_at(lane, 0, i).element == a(lane, i).row);
      CHECK(P::score_token(lane, i / 4, i % 4) == b(lane, i).row);
    }
  if (const char* folder = test_data()) {
    const std::string table = std::string(folder) + "/mfma_layouts/v_mfma_f32_16x16x32_fp8_fp8";
    CHECK(differences(table + ".A.csv", 8, a) == 0);
    CHECK(differences(table + ".B.csv", 8, b) == 0);
    CHECK(differences(table + ".D.csv", 4, Mfma16x16x16::d_coord) == 0);
  }
}

TEMPLATE_LIST_TEST_CASE("every key, query, score, value and output element has one place", "[products]", Passes) {
  using P = ProductsOf<TestType>;
  constexpr int dims = 3;  // steps of output()
  Pairs keys, query, scores, values, output;
  for (int lane = 0; lane < P::width; ++lane) {
    for (int product = 0; product < P::score_products; ++product) {
      for (int i = 0; i < key_elements<P>; ++i) {
        const auto place = P::key_at(lane, product, i);
        keys.emplace_back(place.token, place.element);
      }
      for (int set = 0; set < P::row_sets; ++set)
        for (int i = 0; i < 4; ++i) scores.emplace_back(P::score_row(lane, lane_row<P>(set, i)), P::score_token(lane, product, i));
    }
    for (int set = 0; set < P::row_sets; ++set)
      for (int step = 0; step < P::key_steps; ++step)
        for (int i = 0; i < query_elements<P>; ++i) {
          const auto place = P::query_at(lane, step, i);
          query.emplace_back(set * (P::rows / P::row_sets) + place.token, place.element);
        }
    for (int dim = 0; dim < dims; ++dim) {
      for (int i = 0; i < value_elements<P>; ++i)
        values.emplace_back(P::value_at(lane, dim, i).token, P::value_at(lane, dim, i).element);
      for (int set = 0; set < P::row_sets; ++set)
        for (int i = 0; i < 4; ++i) output.emplace_back(P::output_row(lane, set, i), P::output_element(lane, dim, i));
    }
  }
  CHECK(cover_once(keys, P::tile_tokens, P::key_steps * P::element_step));
  CHECK(cover_once(query, P::rows, P::key_steps * P::element_step));
  CHECK(cover_once(scores, P::rows, P::tile_tokens));
  CHECK(cover_once(values, P::tile_tokens, dims * P::dim_step));
  CHECK(cover_once(output, P::rows, dims * P::dim_step));
}

TEMPLATE_LIST_TEST_CASE("what is loaded or stored in one piece lies in one piece", "[products]", Passes) {
  using P = ProductsOf<TestType>;
  const auto next_element = [](auto first, auto second) {
    return first.token == second.token && first.element + 1 == second.element;
  };
  const auto next_token = [](auto first, auto second) {
    return first.token + 1 == second.token && first.element == second.element;
  };
  int broken = 0, misaligned = 0;
  for (int lane = 0; lane < P::width; ++lane) {
    for (int product = 0; product < P::score_products; ++product)
      for (int i = 0; i < key_elements<P>; ++i) {
        const auto first = P::key_at(lane, 0, i), at = P::key_at(lane, product, i);
        if (i % P::key_run == 0)
          misaligned += at.element % P::key_run != 0;
        else
          broken += !next_element(P::key_at(lane, product, i - 1), at);
        // Products are at one distance from each other, within a block whatever its size.
        if constexpr (P::score_products > 1) {
          static_assert(P::key_run == key_elements<P>, "a lane's keys of a product are loaded from one address");
          broken += at.token != first.token + product * P::product_tokens;
        }
        broken += at.element != first.element || at.token / 16 != first.token / 16;
      }
    for (int step = 0; step < 2 * P::key_steps; ++step)
      for (int i = 0; i < query_elements<P>; ++i) {
        const auto at = P::query_at(lane, step, i), first = P::query_at(lane, step % P::key_steps, i);
        if (i % P::query_run == 0)
          misaligned += at.element % P::query_run != 0;
        else
          broken += !next_element(P::query_at(lane, step, i - 1), at);
        broken += at.element != first.element + (step - step % P::key_steps) * P::element_step;
      }
    for (int i = 0; i < value_elements<P>; ++i) {
      if (i % P::value_run == 0)
        misaligned += P::value_at(lane, 1, i).token % P::value_run != 0;
      else
        broken += !next_token(P::value_at(lane, 1, i - 1), P::value_at(lane, 1, i));
    }
    for (int set = 0; set < P::row_sets; ++set)
      for (int i = 0; i < 4; ++i) {
        if (i % P::output_run == 0)
          misaligned += P::output_element(lane, 1, i) % P::output_run != 0;
        else
          broken += P::output_row(lane, set, i - 1) != P::output_row(lane, set, i) ||
                    P::output_element(lane, 1, i - 1) + 1 != P::output_element(lane, 1, i);
      }
  }
  CHECK(broken == 0);
  CHECK(misaligned == 0);
}

using RingPasses = std::tuple<Pass<HostMachine<Nvidia>, 8>, Pass<HostMachine<Nvidia>, 8, DType::i8>>;

TEMPLATE_LIST_TEST_CASE("keys come as matrices whose rows lie in different banks", "[products]", RingPasses) {
  using P = ProductsOf<TestType>;
  constexpr int in_word = 4 / kv_bytes<P>;
  int wrong = 0;
  for (int lane = 0; lane < P::width; ++lane)
    for (int i = 0; i < key_elements<P>; ++i) {
      const auto row = P::key_matrix_row(8 * (i / in_word) + lane / 4), at = P::key_at(lane, 0, i);
      wrong += at.token != row.token || at.element != row.element + in_word * (lane % 4) + i % in_word;
    }
  CHECK(wrong == 0);
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::set<int> banks;  // groups of 16 bytes, eight of them, from a token to the next one
    for (int row = 0; row < 8; ++row) banks.insert(P::key_matrix_row(8 * matrix + row).token % 8);
    CHECK(banks.size() == 8);
  }
}

TEMPLATE_LIST_TEST_CASE("the lanes of a row are found by their bits", "[products]", Passes) {
  using P = ProductsOf<TestType>;
  for (int row = 0; row < P::row_sets * P::set_rows; ++row)
    for (int lane = 0; lane < P::width; ++lane) {
      std::set<int> by_row, by_bits;
      for (int other = 0; other < P::width; ++other)
        if (P::score_row(other, row) == P::score_row(lane, row)) by_row.insert(other);
      for (int bits = 0; bits < 1 << P::token_lane_bits; ++bits) {
        int other = lane;
        for (int i = 0; i < P::token_lane_bits; ++i) other ^= bits >> i & 1 ? P::token_lane_bit(i) : 0;
        by_bits.insert(other);
      }
      CHECK(by_row == by_bits);
      CHECK(P::score_row(P::score_lane_of(P::score_row(lane, row)), row) == P::score_row(lane, row));
    }
  for (int set = 0; set < P::row_sets; ++set)
    for (int lane = 0; lane < P::width; ++lane)
      for (int i = 0; i < 4; ++i) CHECK(P::output_row(lane, set, i) == P::score_row(lane, lane_row<P>(set, i)));
}

namespace {

/// Integers, small enough that their products and sums are exact in every type.
struct Matrix {
  int rows, cols;
  std::vector<int> data = std::vector<int>(std::size_t(rows * cols));
  int& at(int row, int col) { return data[std::size_t(row * cols + col)]; }
  int at(int row, int col) const { return data[std::size_t(row * cols + col)]; }
};

Matrix random_matrix(int rows, int cols, int limit, std::mt19937& random) {
  Matrix matrix{rows, cols};
  for (int& value : matrix.data) value = int(random() % unsigned(2 * limit + 1)) - limit;
  return matrix;
}

/// Fills an operand: element i of a lane is `value(lane, i)`.
template <DType Type, int Width, int N, class Value>
void fill(HostLane<Words<N>, Width>& operand, Value&& value) {
  constexpr int in_word = 4 / size_of(Type);
  for (int lane = 0; lane < Width; ++lane)
    for (int word = 0; word < N; ++word) {
      operand[lane].word[word] = 0;
      for (int i = 0; i < in_word; ++i)
        operand[lane].word[word] |= hpa::Format<Type>::encode(float(value(lane, in_word * word + i))) << (32 / in_word * i);
    }
}

/// Scores = Q K^T over two steps of head elements, then output = scores V, as a decode tile does without the softmax between.
template <class Of, DType Type>
void check_products() {
  using M = typename Of::Machine;
  using P = typename Of::template Products<Type>;
  constexpr DType kv = Of::kv_for(Type);
  constexpr int steps = 2 * P::key_steps, rows_per_set = P::rows / P::row_sets;
  constexpr int largest = kv == DType::e4m3_fnuz || kv == DType::e4m3_ocp || kv == DType::e5m2_ocp ? 8 : 99;  // that is exact
  hpa::arch::HostWorkgroup workgroup(1, 0);
  const typename M::Wave wave(workgroup, 0);
  std::mt19937 random(3);
  const Matrix query = random_matrix(P::rows, steps * P::element_step, 1, random);
  const Matrix keys = random_matrix(P::tile_tokens, steps * P::element_step, 1, random);
  const Matrix values = random_matrix(P::tile_tokens, P::dim_step, largest, random);

  typename M::template Lane<typename M::Floats4> scores[P::row_sets][P::score_products] = {}, output[P::row_sets] = {};
  for (int step = 0; step < steps; ++step)
    for (int product = 0; product < P::score_products; ++product) {
      HostLane<Words<P::key_words>, M::width> key_operand;
      fill<kv>(key_operand, [&](int lane, int i) {
        const auto at = P::key_at(lane, product, i);
        return keys.at(at.token, (step - step % P::key_steps) * P::element_step + at.element);
      });
      for (int set = 0; set < P::row_sets; ++set) {
        HostLane<Words<P::query_words>, M::width> rows;
        const auto element = [&](int lane, int i) {
          const auto at = P::query_at(lane, step, i);
          return query.at(set * rows_per_set + at.token, at.element);
        };
        if constexpr (M::width == 64 && M::multiplies(Type, kv))  // in two terms, 4 q and -3 q
          fill<kv>(rows, [&](int lane, int i) { return element(lane, i % 8) * (i < 8 ? 4 : -3); });
        else
          fill<Type>(rows, element);
        P::scores(wave, scores[set][product], key_operand, rows, step);
      }
    }

  Matrix expected_scores{P::rows, P::tile_tokens};
  for (int row = 0; row < P::rows; ++row)
    for (int token = 0; token < P::tile_tokens; ++token)
      for (int e = 0; e < steps * P::element_step; ++e) expected_scores.at(row, token) += query.at(row, e) * keys.at(token, e);
  int wrong_scores = 0;
  for (int lane = 0; lane < M::width; ++lane)
    for (int set = 0; set < P::row_sets; ++set)
      for (int product = 0; product < P::score_products; ++product)
        for (int i = 0; i < 4; ++i) {
          const int row = P::score_row(lane, lane_row<P>(set, i)), token = P::score_token(lane, product, i);
          wrong_scores += scores[set][product][lane][i] != float(expected_scores.at(row, token));
        }
  CHECK(wrong_scores == 0);

  HostLane<Words<P::value_words>, M::width> value_operand;
  fill<kv>(value_operand, [&](int lane, int i) {
    const auto at = P::value_at(lane, 0, i);
    return values.at(at.token, at.element);
  });
  for (int set = 0; set < P::row_sets; ++set) {
    HostLane<Words<P::prob_words>, M::width> packed;
    for (int lane = 0; lane < M::width; ++lane)
      for (int word = 0; word < P::prob_words; ++word) {
        const auto& product = scores[set][word / 2][lane];
        packed[lane].word[word] = M::template pack<P::prob_type>(product[2 * word % 4], product[2 * word % 4 + 1]);
      }
    P::to_operand(wave, packed);
    P::output(wave, output[set], value_operand, packed);
  }
  int wrong_output = 0;
  for (int lane = 0; lane < M::width; ++lane)
    for (int set = 0; set < P::row_sets; ++set)
      for (int i = 0; i < 4; ++i) {
        int expected = 0;
        for (int token = 0; token < P::tile_tokens; ++token)
          expected += expected_scores.at(P::output_row(lane, set, i), token) * values.at(token, P::output_element(lane, 0, i));
        wrong_output += output[set][lane][i] != float(expected);
      }
  CHECK(wrong_output == 0);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("the two products are matrix products, exactly", "[products]", Passes) {
  check_products<TestType, DType::f16>();
  check_products<TestType, DType::bf16>();
}

using EightBitFloats = std::tuple<Pass<HostMachine<Cdna>, 16, DType::e4m3_fnuz>, Pass<HostMachine<Cdna>, 16, DType::e4m3_ocp>,
                                  Pass<HostMachine<Nvidia>, 16, DType::e5m2_ocp>, Pass<HostMachine<Nvidia>, 8, DType::e4m3_fnuz>>;

TEMPLATE_LIST_TEST_CASE("and of 8-bit floats as well", "[products]", EightBitFloats) {
  check_products<TestType, DType::f16>();
  check_products<TestType, DType::bf16>();
}

TEST_CASE("emulated operands decode as their type says", "[products]") {
  int wrong_f16 = 0, wrong_bf16 = 0;
  const auto same = [](float a, float b) { return hpa::bits_of(a) == hpa::bits_of(b) || (a != a && b != b); };
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const std::uint32_t word = code << 16 | 0x3c01;  // the other half is another number
    wrong_f16 += !same(hpa::arch::EmulatedMfma<DType::f16>::element_of(&word, 1), hpa::Format<DType::f16>::decode(code));
    wrong_bf16 += !same(hpa::arch::EmulatedMma<DType::bf16>::element_of(&word, 1), hpa::Format<DType::bf16>::decode(code));
  }
  CHECK(wrong_f16 == 0);
  CHECK(wrong_bf16 == 0);
}
