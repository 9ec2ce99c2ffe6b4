// Matrix instructions: which lane holds what, and how attention's two products are made of them.
//
// Two layers. An instruction map (Mfma16x16x16, MmaM16N8K16) states the hardware's own ownership of A, B and D. A products type
// (CdnaProducts, WarpProducts) says which operand holds keys, queries, values and probabilities, and names the places by token,
// row (of the query tile) and element. Kernels see only the second layer and hold no lane arithmetic.
//
// Both machines use one trick: D of the scores already lies as the B operand of the output product wants it. The order of k in a
// product is free as long as both operands agree, so tokens and elements are numbered such that a lane's runs of memory are as
// long as possible.
#pragma once

#include <cstdint>

#include <type_traits>

#include "hpa/arch/arch.hpp"
#include "hpa/arch/words.hpp"
#include "hpa/layout/codec.hpp"
#include "hpa/types.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

/// Row and column of a matrix element: A is [m, k], B is [k, n], D is [m, n].
struct Coord {
  int row, col;
};

/// CDNA v_mfma_f32_16x16x16_{f16,bf16}: a lane holds 4 elements of each operand (AMD matrix instruction calculator).
struct Mfma16x16x16 {
  static constexpr int width = 64, m = 16, n = 16, k = 16;
  static constexpr int a_words = 2, b_words = 2;
  static HPA_HOST_DEVICE constexpr Coord a_coord(int lane, int i) { return {lane % 16, 4 * (lane / 16) + i}; }
  static HPA_HOST_DEVICE constexpr Coord b_coord(int lane, int i) { return {4 * (lane / 16) + i, lane % 16}; }
  static HPA_HOST_DEVICE constexpr Coord d_coord(int lane, int i) { return {4 * (lane / 16) + i, lane % 16}; }
};

/// CDNA v_mfma_f32_16x16x32_fp8_fp8 and its kin: a lane holds 8 elements of 8 bits of each operand; D as above.
struct Mfma16x16x32Bytes {
  static constexpr int width = 64, m = 16, n = 16, k = 32;
  static constexpr int a_words = 2, b_words = 2;
  static HPA_HOST_DEVICE constexpr Coord a_coord(int lane, int i) { return {lane % 16, 8 * (lane / 16) + i}; }
  static HPA_HOST_DEVICE constexpr Coord b_coord(int lane, int i) { return {8 * (lane / 16) + i, lane % 16}; }
  static HPA_HOST_DEVICE constexpr Coord d_coord(int lane, int i) { return Mfma16x16x16::d_coord(lane, i); }
};

/// NVIDIA mma.sync.aligned.m16n8k16.row.col.f32.{f16,bf16} (PTX ISA, "Matrix Fragments for mma.m16n8k16").
struct MmaM16N8K16 {
  static constexpr int width = 32, m = 16, n = 8, k = 16;
  static constexpr int a_words = 4, b_words = 2;
  static HPA_HOST_DEVICE constexpr Coord a_coord(int lane, int i) {
    return {lane / 4 + 8 * (i / 2 % 2), 2 * (lane % 4) + i % 2 + 8 * (i / 4)};
  }
  static HPA_HOST_DEVICE constexpr Coord b_coord(int lane, int i) { return {2 * (lane % 4) + i % 2 + 8 * (i / 2), lane / 4}; }
  static HPA_HOST_DEVICE constexpr Coord d_coord(int lane, int i) { return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2}; }
};

/// The block scan of a machine whose platform has none: the library's own is used.
struct NoBlockScan {
  static constexpr bool available = false;
  static constexpr int lds_bytes = 0;
};

/// A key, value or query element held by a lane: token (or query row) and element (of the head).
struct Place {
  int token, element;
};

/// S^T = K Q^T and O^T = V^T P^T by 16x16x16 products, taken two at a time so that a lane has 16 bytes of every operand:
/// the lower half feeds the first product, the upper half the second. Lane = (i = lane % 16, g = lane / 16).
///
///   keys     A: token 8 (i / 4) + 4 product + i % 4, elements 8 g .. 8 g + 8 of a step of 32; of 8-bit elements 16 g .. 16 g + 16 of
///               two steps, the first half of them for the first step
///   query    B: row i, the same elements
///   scores   D: row i, tokens 8 g + 4 product .. + 4, which packed is the B operand of the output product
///   values   A: element 16 dim + i in step `dim` of output(), tokens 8 g .. 8 g + 8
///   output   D: row i, elements 16 dim + 4 g .. + 4
template <class Instruction, class Codec>
struct CdnaProducts {
  static constexpr int width = 64;
  static constexpr DType prob_type = Instruction::type;  // of probabilities, and of values when they are multiplied
  static constexpr int rows = 16;                        // query rows of a tile
  static constexpr int row_sets = 1;                     // sets of products that share no row: CDNA has one
  static constexpr int set_rows = 1;        // rows of a set that a lane holds: float i of a product belongs to row i % set_rows
  static constexpr int tile_tokens = 32;    // tokens of a tile
  static constexpr int score_products = 2;  // products that cover a tile's tokens
  static constexpr int product_tokens = 4;  // from a lane's token in one product to its token in the next
  static constexpr int element_step = 32;   // head elements that one call of scores() sums over
  static constexpr int dim_step = 16;       // head elements that one call of output() yields
  static constexpr int key_steps = 16 / Codec::bits;                // calls of scores() that one operand of keys serves
  static constexpr int key_words = 4, key_run = 128 / Codec::bits;  // registers a lane; elements of one head next to each other
  static constexpr int query_words = 4, query_run = 8;
  static constexpr int value_words = 8 * Codec::bits / 32, value_run = 8;  // tokens of one head element next to each other
  static constexpr int prob_words = 4, output_run = 4;

  static HPA_HOST_DEVICE constexpr Place key_at(int lane, int product, int i) {
    return {8 * (lane % 16 / 4) + 4 * product + lane % 4, key_run * (lane / 16) + i};
  }
  static HPA_HOST_DEVICE constexpr Place query_at(int lane, int step, int i) {
    return {lane % 16, element_step * (step - step % key_steps) + key_run * (lane / 16) + 8 * (step % key_steps) + i};
  }
  static HPA_HOST_DEVICE constexpr int score_row(int lane, int) { return lane % 16; }
  static HPA_HOST_DEVICE constexpr int score_token(int lane, int product, int i) { return 8 * (lane / 16) + (4 * product + i); }
  static HPA_HOST_DEVICE constexpr Place value_at(int lane, int dim, int i) {
    return {8 * (lane / 16) + i, dim_step * dim + lane % 16};
  }
  static HPA_HOST_DEVICE constexpr int output_row(int lane, int, int) { return lane % 16; }
  static HPA_HOST_DEVICE constexpr int output_element(int lane, int dim, int i) { return dim_step * dim + (4 * (lane / 16) + i); }
  /// The lanes that hold scores of one row differ in these bits.
  static constexpr int token_lane_bits = 2;
  static HPA_HOST_DEVICE constexpr int token_lane_bit(int i) { return i == 0 ? 16 : 32; }
  static HPA_HOST_DEVICE constexpr int score_lane_of(int row) { return row; }

  /// Turns packed scores into the output product's operand. Here they are the same.
  template <class Wave, class Packed>
  static HPA_DEVICE void to_operand(const Wave&, Packed&) {}

  template <class Wave, class D, class A, class B>
  static HPA_DEVICE void scores([[maybe_unused]] const Wave& wave, D& scores, const A& keys, const B& query,
                                [[maybe_unused]] int step) {
    if constexpr (Codec::is_operand)
      Instruction::fma2(scores, keys, query);
    else
      Instruction::fma2(scores, Codec::template widen<2>(wave, keys, 2 * (step % key_steps)), query);
  }
  /// output() for values of i8, each times `scale(lane, element)`: a scale for each token.
  template <class Wave, class D, class A, class B, class Scale>
  static HPA_DEVICE void output_scaled(const Wave& wave, D& output, const A& values, const B& probabilities, Scale&& scale) {
    Instruction::fma2(output, Codec::template widen_scaled<value_words, prob_type>(wave, values, scale), probabilities);
  }
  /// output += values probabilities. Values are of 16 bits or codes of the cache.
  template <class Wave, class D, class A, class B>
  static HPA_DEVICE void output([[maybe_unused]] const Wave& wave, D& output, const A& values, const B& probabilities) {
    if constexpr (sizeof(values[0]) == 16)
      Instruction::fma2(output, values, probabilities);
    else
      Instruction::fma2(output, Codec::template widen<2>(wave, values, 0), probabilities);
  }
};

/// CdnaProducts for 8-bit keys that the machine multiplies as they are, with a query in two terms of their type (QueryInTwoTerms).
template <class Instruction, class ByteInstruction, class Codec>
struct CdnaByteProducts : CdnaProducts<Instruction, Codec> {
  using Base = CdnaProducts<Instruction, Codec>;
  template <class Wave, class D, class A, class B>
  static HPA_DEVICE void scores(const Wave&, D& scores, const A& keys, const B& query, int step) {
    const int first = 2 * (step % Base::key_steps);
    ByteInstruction::fma(scores, keys, first, query, 0);
    ByteInstruction::fma(scores, keys, first, query, 2);
  }
};

/// The products of a CDNA machine for types of query and keys.
template <class Machine, class Instruction, class ByteInstruction, DType Query, DType Kv>
using CdnaProductsOf = std::conditional_t<Machine::multiplies(Query, Kv),
                                          CdnaByteProducts<Instruction, ByteInstruction, layout::Codec<Machine, Query, Kv>>,
                                          CdnaProducts<Instruction, layout::Codec<Machine, Query, Kv>>>;

/// FP8 values are multiplied as f16, whatever the query is: it holds every one of them, and probabilities better than bf16 does, and
/// NVIDIA's chips widen to it at once. i8 may have scales that f16 does not hold.
constexpr DType output_type(DType query, DType kv) { return size_of(kv) == 1 && kv != DType::i8 ? DType::f16 : query; }

/// S^T = K Q^T and O^T = V^T P^T by m16n8k16 products, eight query rows a set. Lane = (r = lane / 4, c = lane % 4).
///
///   keys     A: tokens token_of(r, 0) and token_of(r, 1), elements 2 c, 2 c + 1, 2 c + 8, 2 c + 9 of a step of 16; of 8-bit elements
///               4 c .. 4 c + 4, two steps an operand
///   query    B: row r of the set, the same elements
///   scores   D: the same tokens, rows 2 c and 2 c + 1 of the set
///   values   A: elements 16 dim + r and + 8 in step `dim` of output(), tokens 4 c .. 4 c + 4
///   output   D: the same elements, rows 2 c and 2 c + 1 of the set
///
/// So numbered, the eight keys of a matrix lie in eight different bank groups of LDS, a lane's values are 8 bytes of a row, and a
/// lane's output rows are its score rows. Packed scores become the output product's operand by a transpose of 8x8 matrices.
///
/// `OutputInstruction` multiplies values and probabilities: of output_type().
template <class Instruction, int Rows, class Codec, class OutputInstruction>
struct WarpProducts {
  static_assert(Rows == 8 || Rows == 16);
  static constexpr int width = 32;
  static constexpr int rows = Rows;
  static constexpr DType prob_type = OutputInstruction::type;
  static constexpr int rows_per_set = 8;
  static constexpr int row_sets = Rows / rows_per_set;
  static constexpr int set_rows = 2;
  static constexpr int tile_tokens = 16;
  static constexpr int score_products = 1;
  static constexpr int element_step = 16;
  static constexpr int dim_step = 16;
  static constexpr int key_steps = 16 / Codec::bits;
  static constexpr int key_words = 4, key_run = 32 / Codec::bits;
  static constexpr int query_words = 2, query_run = 32 / Codec::bits;  // of one row set
  static constexpr int value_words = 8 * Codec::bits / 32, value_run = 4;
  static constexpr int prob_words = 2, output_run = 1;

  static HPA_HOST_DEVICE constexpr int token_of(int row, int half) { return 4 * (row / 2) + 2 * (half ^ row / 4) + row % 2; }
  static HPA_HOST_DEVICE constexpr Place key_at(int lane, int, int i) {
    if constexpr (Codec::bits == 8) return {token_of(lane / 4, i / 4 % 2), 4 * (lane % 4) + i % 4 + 16 * (i / 8)};
    return {token_of(lane / 4, i / 2 % 2), 2 * (lane % 4) + i % 2 + 8 * (i / 4)};
  }
  /// The 16 bytes whose address the lane gives when the operand's four 8x8 matrices (of 16 bits) are loaded from LDS.
  static HPA_HOST_DEVICE constexpr Place key_matrix_row(int lane) {
    return {token_of(lane % 8, lane / 8 % 2), 128 / Codec::bits * (lane / 16)};
  }
  /// The query element that a lane holds of set 0. Rows of the other sets follow.
  static HPA_HOST_DEVICE constexpr Place query_at(int lane, int step, int i) {
    if constexpr (Codec::bits == 8) return {lane / 4, step * element_step + 4 * (lane % 4) + i};
    return {lane / 4, step * element_step + 2 * (lane % 4) + i % 2 + 8 * (i / 2)};
  }
  static HPA_HOST_DEVICE constexpr int score_row(int lane, int row) { return 8 * (row / 2) + 2 * (lane % 4) + row % 2; }
  static HPA_HOST_DEVICE constexpr int score_token(int lane, int, int i) { return token_of(lane / 4, i / 2); }
  static HPA_HOST_DEVICE constexpr Place value_at(int lane, int dim, int i) {
    return {4 * (lane % 4) + i % 4, dim_step * dim + (lane / 4 + 8 * (i / 4))};
  }
  static HPA_HOST_DEVICE constexpr int output_row(int lane, int set, int i) { return 8 * set + 2 * (lane % 4) + i % 2; }
  static HPA_HOST_DEVICE constexpr int output_element(int lane, int dim, int i) {
    return dim_step * dim + (lane / 4 + 8 * (i / 2));
  }
  static constexpr int token_lane_bits = 3;
  static HPA_HOST_DEVICE constexpr int token_lane_bit(int i) { return 4 << i; }
  static HPA_HOST_DEVICE constexpr int score_lane_of(int row) { return row % 8 / 2; }

  /// Turns packed scores into the output product's operand. The upper lanes of four have the earlier tokens in the other half.
  template <class Wave, class Packed>
  static HPA_DEVICE void to_operand(const Wave& wave, Packed& packed) {
    const Packed in = wave.transpose_matrices(packed);
    wave.each([&](int lane) {
      const bool swapped = lane % 4 >= 2;
      packed[lane] = {{swapped ? in[lane].word[1] : in[lane].word[0], swapped ? in[lane].word[0] : in[lane].word[1]}};
    });
  }

  template <class Wave, class D, class A, class B>
  static HPA_DEVICE void scores([[maybe_unused]] const Wave& wave, D& scores, const A& keys, const B& query,
                                [[maybe_unused]] int step) {
    if constexpr (Codec::is_operand)
      Instruction::fma(scores, keys, query);
    else
      Instruction::fma_rows(scores, Codec::template widen<2>(wave, keys, 2 * (step % key_steps)), query);
  }
  /// output() for values of i8, each times `scale(lane, element)`: a scale for each token.
  template <class Wave, class D, class A, class B, class Scale>
  static HPA_DEVICE void output_scaled(const Wave& wave, D& output, const A& values, const B& probabilities, Scale&& scale) {
    OutputInstruction::fma_rows(output, Codec::template widen_scaled<value_words, prob_type>(wave, values, scale), probabilities);
  }
  /// output += values probabilities. Values are of 16 bits or codes of the cache.
  template <class Wave, class D, class A, class B>
  static HPA_DEVICE void output([[maybe_unused]] const Wave& wave, D& output, const A& values, const B& probabilities) {
    if constexpr (sizeof(values[0]) == 16)
      OutputInstruction::fma_rows(output, values, probabilities);
    else
      OutputInstruction::fma_rows(output, Codec::template widen<2, prob_type>(wave, values, 0), probabilities);
  }
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
