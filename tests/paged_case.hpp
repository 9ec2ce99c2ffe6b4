// One complete paged decode problem in hostile memory: every buffer lies against an unmapped page, whatever no row may see is
// poisoned, and what the library must not write is watched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "case_spec.hpp"
#include "hpa/hpa.hpp"

namespace hpa::test {

class PagedCase {
 public:
  static constexpr std::uint8_t sentinel = 0xfd;  // of out and lse

  CaseSpec spec;  // as given, max_seqs and max_seq_len filled in
  Buffer query, key_cache, value_cache, out, lse, block_tables, table_starts, seq_lens, query_start_loc, workspace;
  Buffer alibi_slopes, sinks, k_scale, v_scale, out_scale, key_token_scales, value_token_scales, tree_masks;

  explicit PagedCase(CaseSpec description);

  const DecodeShape& shape() const { return spec.shape; }
  int num_seqs() const { return int(spec.seq_lens.size()); }
  int num_rows() const { return num_rows_; }
  int table_width() const { return table_width_; }
  const reference::Strides& strides() const { return strides_; }

  DecodeArgs args() const;
  DecodeArgs host_args() const;

  /// Tokens that some row of the sequence sees.
  reference::KeyRange visible_to_any(int sequence) const;

  std::int32_t& block_table(int sequence, int column);
  std::int32_t block_table(int sequence, int column) const;

  /// Other lengths in the same memory, as from one step to the next. They must fit the table and the blocks.
  void set_seq_lens(const std::vector<int>& lengths);

  void set_query(int row, int head, int element, float value);
  void set_key(int sequence, int token, int kv_head, int element, float value);
  void set_value(int sequence, int token, int kv_head, int element, float value);

  /// Calls `call(shape, args, workspace, stream)` on fresh outputs and a workspace of NaN.
  template <class Call>
  Verdict run(std::size_t workspace_bytes, Stream stream, Call&& call) {
    if (workspace.size() != workspace_bytes || workspace.data() == nullptr) workspace = Buffer(workspace_bytes, 16, spec.guard);
    workspace.fill(0xff);
    out.fill(sentinel);
    lse.fill(sentinel);
    for (Buffer* buffer : buffers()) buffer->upload();
    const std::vector<std::uint64_t> before = input_hashes();
    const Verdict verdict = call(shape(), args(), Workspace{workspace.device(), workspace.size()}, stream);
    for (Buffer* buffer : buffers()) buffer->download();
    inputs_intact_ = before == input_hashes();
    return verdict;
  }

  /// The bytes of a sequence's out rows and lse, for comparison bit by bit.
  std::vector<std::uint8_t> result_of(int sequence) const;

  /// Compares every `every`-th row of every computed sequence with the reference, and looks for rows that were not written and for
  /// writes where none are due.
  Findings check_against_reference(Tolerance tolerance, int every = 1) const;
  Findings check_against_reference(double tolerance, double lse_tolerance, int every = 1) const;

  /// True when out and lse hold what run() put there before the call: a refused call leaves them so.
  bool outputs_untouched() const;

  /// Names the first byte that a run wrote and should not have; empty when there is none.
  std::string write_where_none_is_due() const;

 private:
  static constexpr std::uint32_t unused_entries[2] = {0x7f7f7f7fu, 0xffffffffu};
  static constexpr std::int32_t unmapped_id = 0x7f7f7f7f;
  enum Content : std::uint64_t {
    query_content,
    key_content,
    value_content,
    sink_content,
    tail_content,
    order_content,
    token_scale_content,
    tree_content,
    table_content
  };

  static void require(bool condition, const char* what);

  int blocks_of(std::int64_t tokens) const;
  std::int64_t out_index(std::int64_t row, int head) const { return row * strides_.out_row + head * strides_.out_head; }
  bool is_unchecked(int sequence) const;

  /// Physical block (counted from the start of the memory) and slot of a token.
  std::pair<std::int64_t, int> place_of(int sequence, int token);

  /// Random bits that depend on what they are for and not on what was drawn before: data survives a change of lengths, of
  /// neighbours and of physical order.
  static std::uint64_t bits(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0, std::uint64_t d = 0);

  /// Close enough to a normal distribution with deviation 1, and the same on every machine: four uniform numbers, summed.
  static float normal(std::uint64_t bits);

  void set_strides();

  template <class Locate>
  DecodeArgs args_at(Locate&& locate) const;

  /// Where the rows of the block table begin, and where it ends.
  void lay_table();

  /// Each buffer ends with the last element that a stride reaches, not with the last stride.
  void allocate();

  void populate();

  /// Each row's parent is an earlier row or the old tokens; it sees its ancestors and itself. Bits past the rows say nothing.
  void draw_trees();

  /// Block ids of what computed sequences hold, in random physical order; all other entries are no block's id.
  void assign_blocks();

  static std::uint32_t nan_code(DType type);

  static void store_code(DType type, std::uint8_t* data, std::int64_t index, std::uint32_t code);

  static void poison(DType type, Buffer& buffer);

  std::uint32_t tail_code(std::uint64_t index) const;

  void write_tails(int sequence);

  void write_visible(int sequence);

  /// How far a written element is from the expected value, less what the smallest numbers of its type (bf16: of fp32, in which
  /// sums are kept) cannot show. 8 bits: the least distance that a value can have had before it was rounded to this code.
  double distance(float got, double expected) const;

  /// The finite values of an 8-bit type in order.
  static std::vector<double> values_of(DType type);

  void compare_row(const DecodeArgs& host, int sequence, int query_row, int head, double tolerance, double lse_tolerance,
                   Findings& findings) const;

  /// Cheap: true when every element is a finite number and the row's lse is not what run() put there.
  bool looks_written(std::int64_t row, int head) const;

  std::vector<std::pair<const char*, const Buffer*>> named_buffers() const;
  std::vector<Buffer*> buffers();

  std::vector<std::uint64_t> input_hashes() const;

  int table_width_ = 0, num_rows_ = 0;
  std::vector<std::int64_t> table_starts_;  // in entries, of each sequence
  std::vector<int> table_rooms_;            // entries that it has
  std::int64_t table_entries_ = 0;
  std::int64_t num_blocks_ = 0;
  reference::Strides strides_{};
  bool inputs_intact_ = true;
};

}  // namespace hpa::test
