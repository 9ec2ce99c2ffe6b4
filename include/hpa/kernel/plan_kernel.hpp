// plan: lengths -> items, on the device. One workgroup reads every sequence once, scans how many items each needs and writes them.
#pragma once

#include <cstdint>

#include "hpa/kernel/block_scan.hpp"
#include "hpa/kernel/work_list.hpp"

namespace hpa::kernel {

struct PlanParams {
  const std::int32_t* seq_lens;         // [num_seqs]
  const std::int32_t* query_start_loc;  // [num_seqs + 1] or nullptr
  std::int32_t num_seqs, max_query_len;
  std::int32_t window;      // keys that a row sees at most; 0 = no window
  std::int32_t block_size;
  bool ordered;             // rows are in causal order: the window of the first ends before the last one's
  std::int64_t max_seq_len;
  std::int64_t table_tokens;     // block_table_width * block_size
  std::int64_t total_kv_tokens;  // the workspace holds items for so many
  PartitionRule rule;
  std::uint32_t stamp;
  PlanHeader* header;
  Item* items;
  SplitRow* split_rows;
};

/// One sequence as plan sees it.
struct Request {
  std::int32_t query_row = 0;  // first row; the sequence's rows are [query_row, row_end)
  std::int32_t row_end = 0;
  std::int32_t seq_len = 0;  // 0 also when in error: the row is written as an empty one
  bool active = false;       // has a query row that decode must write
  PlanError error = PlanError::none;
};

/// The tokens that plan cuts: all that some row of the sequence sees, from the start of a block on.
struct Span {
  std::int32_t begin = 0, tokens = 0;
};

HPA_DEVICE Span span_of(const PlanParams& p, const Request& request) {
  const std::int32_t rows = request.row_end - request.query_row;
  const std::int64_t first_end = std::int64_t{request.seq_len} - (p.ordered ? rows - 1 : 0);  // where the first row's keys end
  if (p.window == 0 || first_end <= p.window) return {0, request.seq_len};
  const auto first_key = std::int32_t(first_end - p.window);
  const std::int32_t begin = first_key - first_key % p.block_size;
  return {begin, request.seq_len - begin};
}

HPA_DEVICE Request read_request(const PlanParams& p, std::int32_t sequence) {
  Request request;
  request.query_row = sequence;
  request.row_end = sequence + 1;
  if (p.query_start_loc != nullptr) {
    const std::int32_t begin = p.query_start_loc[sequence], end = p.query_start_loc[sequence + 1];
    if (begin < 0 || end < begin || end > p.query_start_loc[p.num_seqs]) {
      request.error = PlanError::query_start_loc;  // no row to write: nothing says where it is
      request.row_end = 0;
      return request;
    }
    request.query_row = begin;
    request.row_end = end;
  }
  const std::int32_t rows = request.row_end - request.query_row;
  request.active = rows > 0 && rows <= p.max_query_len;
  if (!request.active) return request;
  const std::int32_t length = p.seq_lens[sequence];
  if (length < 0) request.error = PlanError::seq_len_negative;
  else if (length > p.max_seq_len) request.error = PlanError::seq_len_above_max;
  else if (length > p.table_tokens) request.error = PlanError::seq_len_above_table;
  else request.seq_len = length;
  return request;
}

/// What can only be seen with the sequences before it in view: rows that an earlier one has, and the sum of the lengths.
HPA_DEVICE void check_against_earlier(const PlanParams& p, Request& request, const Counts& earlier) {
  if (request.active && request.query_row < earlier.row_end) {
    request.error = PlanError::query_start_loc;
    request.active = false;
  } else if (request.seq_len > 0 && earlier.tokens + request.seq_len > p.total_kv_tokens) {
    request.error = PlanError::total_kv_tokens;
    request.seq_len = 0;
  }
}

HPA_DEVICE Counts count_work(const PlanParams& p, const Request& request) {
  if (!request.active) return {};
  const auto partitions = std::int32_t(p.rule.partitions(span_of(p, request).tokens));
  const std::int32_t rows = request.row_end - request.query_row;
  const bool split = partitions > 1;
  return {0, partitions, split ? partitions * rows : 0, split ? rows : 0, 0};
}

HPA_DEVICE void write_work(const PlanParams& p, const Request& request, std::int32_t sequence, const Counts& before) {
  const Span span = span_of(p, request);
  const auto partitions = std::int32_t(p.rule.partitions(span.tokens));
  const std::int64_t tokens = p.rule.tokens(span.tokens);
  const std::int32_t rows = request.row_end - request.query_row;
  for (std::int32_t i = 0; i < partitions; ++i) {
    const std::int64_t begin = span.begin + i * tokens, end = begin + tokens;
    p.items[before.items + i] = {sequence,
                                 request.query_row,
                                 std::int32_t(begin),
                                 std::int32_t(end < request.seq_len ? end : request.seq_len),
                                 partitions > 1 ? before.slots + i * rows : -1,
                                 request.seq_len,
                                 rows,
                                 0};
  }
  if (partitions > 1)
    for (std::int32_t row = 0; row < rows; ++row)
      p.split_rows[before.split_rows + row] = {request.query_row + row, before.slots + row, partitions, rows};
}

template <class M>
struct PlanKernel {
  using Machine = M;
  using Params = PlanParams;
  using Wave = typename M::Wave;
  template <class T>
  using Lane = typename M::template Lane<T>;
  static constexpr int waves = M::plan_waves;
  using Scan = BlockScan<M, Counts, waves>;
  static constexpr int lds_bytes = Scan::lds_bytes;

  static HPA_DEVICE void run(Wave& wave, const Params& p) {
    if (wave.index() == 0) wave.each([&](int lane) {
      if (lane == 0) p.header->first_error = no_error;
    });
    wave.barrier();
    Counts before{};
    for (std::int32_t first = 0; first < p.num_seqs; first += waves * M::width) {
      Lane<Request> request;
      Lane<Counts> counts;
      const auto sequence = [&](int lane) { return first + wave.index() * M::width + lane; };
      wave.each([&](int lane) {
        request[lane] = sequence(lane) < p.num_seqs ? read_request(p, sequence(lane)) : Request{};
        counts[lane] = {request[lane].seq_len, 0, 0, 0, request[lane].row_end};
      });
      const Counts tokens = Scan::exclusive(wave, counts, wave.lds());
      wave.each([&](int lane) {
        check_against_earlier(p, request[lane], before + counts[lane]);
        counts[lane] = count_work(p, request[lane]);
      });
      const Counts work = Scan::exclusive(wave, counts, wave.lds());
      wave.each([&](int lane) {
        if (request[lane].active) write_work(p, request[lane], sequence(lane), before + counts[lane]);
        if (request[lane].error != PlanError::none)
          wave.atomic_min(&p.header->first_error, encode_error(request[lane].error, sequence(lane)));
      });
      before = before + tokens + work;
    }
    if (wave.index() == 0) wave.each([&](int lane) {
      if (lane != 0) return;
      p.header->stamp = p.stamp;
      p.header->num_items = before.items;
      p.header->num_split_rows = before.split_rows;
    });
  }
};

}  // namespace hpa::kernel
