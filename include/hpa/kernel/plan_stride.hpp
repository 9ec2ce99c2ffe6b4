// PlanStride: what both plan kernels do. A workgroup reads a stride of sequences, one a lane, and checks them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "hpa/kernel/block_scan.hpp"
#include "hpa/kernel/plan_records.hpp"
#include "hpa/tuning/kernel_shape.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace kernel {

struct PlanParams {
  const std::int32_t* seq_lens;         // [num_seqs]
  const std::int32_t* query_start_loc;  // [num_seqs + 1] or nullptr
  const std::int64_t* table_starts;     // [num_seqs] or nullptr
  std::int32_t num_seqs, max_query_len;
  std::int32_t window;  // keys that a row sees at most; the largest integer = no window
  std::int32_t block_size;
  bool ordered;     // rows are in causal order: each sees one key more than the row before it
  bool looks_back;  // a sequence's validity depends on those before it: on their query rows, or on the sum of lengths
  std::int32_t max_seq_len;
  std::int32_t table_tokens;     // block_table_width * block_size, at most the largest integer
  std::int64_t total_kv_tokens;  // that the workspace has items for
  PartitionRule rule;
  std::uint32_t stamp;
  PlanHeader* header;
  Item* items;
  SplitRow* split_rows;
  std::int32_t* shares;  // [rule.shares + 1]; Split::balanced only
};

/// One sequence as plan sees it.
struct Request {
  std::int32_t query_row = 0;  // the sequence's rows are [query_row, row_end)
  std::int32_t row_end = 0;
  std::int32_t seq_len = 0;  // 0 also when in error: its rows are written as empty ones
  std::int32_t begin = 0;    // tokens [begin, seq_len) are cut: all that some row sees, from the start of a block on
  bool active = false;       // has a query row that decode must write
  PlanError error = PlanError::none;

  HPA_HOST_DEVICE std::int32_t rows() const { return row_end - query_row; }
  HPA_HOST_DEVICE std::int32_t tokens() const { return seq_len - begin; }
};

/// A sequence's length and query rows as they stand in memory. Loaded whether needed or not, so that all loads of a lane are in
/// flight at once.
struct RawRequest {
  std::int32_t seq_len, row_begin, row_end;
  std::int64_t table_start;
};

HPA_DEVICE RawRequest load_request(const PlanParams& p, std::int32_t sequence) {
  const std::int64_t table_start = p.table_starts == nullptr ? 0 : p.table_starts[sequence];
  if (p.query_start_loc == nullptr) return {p.seq_lens[sequence], sequence, sequence + 1, table_start};
  return {p.seq_lens[sequence], p.query_start_loc[sequence], p.query_start_loc[sequence + 1], table_start};
}

/// The last entry of query_start_loc that is no padding. Behind it stand zeros, where a graph was captured for more sequences.
struct LastStart {
  std::int32_t at;   // sequences from here on are padding
  std::int32_t row;  // the end of all rows
};

HPA_DEVICE Request read_request(const PlanParams& p, const RawRequest& raw, const LastStart& last) {
  Request request;
  if (raw.row_begin < 0 || raw.row_end < raw.row_begin || raw.row_end > last.row) {
    request.error = PlanError::query_start_loc;  // nothing says where its rows are: none is written
    return request;
  }
  request.query_row = raw.row_begin;
  request.row_end = raw.row_end;
  request.active = request.rows() > 0 && request.rows() <= p.max_query_len;
  if (!request.active) return request;
  if (raw.seq_len < 0)
    request.error = PlanError::seq_len_negative;
  else if (raw.seq_len > p.max_seq_len)
    request.error = PlanError::seq_len_above_max;
  else if (raw.seq_len > p.table_tokens)
    request.error = PlanError::seq_len_above_table;
  else if (raw.table_start < 0)
    request.error = PlanError::table_start;
  else
    request.seq_len = raw.seq_len;
  const std::int32_t first_end = request.seq_len - (p.ordered ? request.rows() - 1 : 0);  // where the first row's keys end
  if (first_end > p.window) {
    const std::int32_t first_key = first_end - p.window;
    request.begin = first_key - std::int32_t(unsigned(first_key) % unsigned(p.block_size));
  }
  return request;
}

/// Totals over the sequences before one.
struct Earlier {
  std::int64_t tokens;
  std::int32_t row_end, unused;  // largest end of their query rows: a maximum, no sum
  HPA_HOST_DEVICE constexpr Earlier operator+(const Earlier& o) const {
    return {tokens + o.tokens, row_end > o.row_end ? row_end : o.row_end, 0};
  }
};

/// The checks of a sequence that depend on the sequences before it.
HPA_DEVICE void check_against_earlier(const PlanParams& p, Request& request, const Earlier& earlier) {
  if (request.active && request.query_row < earlier.row_end) {
    request.error = PlanError::query_start_loc;
    request.active = false;
  } else if (request.seq_len > 0 && earlier.tokens + request.seq_len > p.total_kv_tokens) {
    request.error = PlanError::total_kv_tokens;
    request.seq_len = request.begin = 0;
  }
}

/// An item of a request: tokens [begin, begin + tokens). `partial`: the index of its partial, in units of max_query_len; negative:
/// it has none.
HPA_DEVICE Item item_of(const PlanParams& p, const Request& request, std::int32_t sequence, std::int32_t begin, std::int32_t tokens,
                        std::int32_t partial) {
  return {sequence,        request.query_row, begin, begin + tokens, partial < 0 ? -1 : partial * p.max_query_len,
          request.seq_len, request.rows(),    0};
}

/// Lists a request's query rows for the reduce kernel. The request was cut into `partitions` items, with partials of index
/// `partial` and on.
HPA_DEVICE void write_split_rows(const PlanParams& p, const Request& request, std::int32_t index, std::int32_t partial,
                                 std::int32_t partitions) {
  HPA_DO_NOT_UNROLL
  for (std::int32_t row = 0; row < request.rows(); ++row)
    p.split_rows[index + row] = {request.query_row + row, partial * p.max_query_len + row, partitions, p.max_query_len};
}

/// A stride of sequences: those that a workgroup reads at a time, one a lane.
template <class M>
struct PlanStride {
  using Wave = typename M::Wave;
  template <class T>
  using Lane = typename M::template Lane<T>;
  static constexpr tuning::PlanShape numbers = M::Tuning::plan_kernel_shape();
  static constexpr int waves = numbers.kernel.waves, sequences = waves * M::width;
  static constexpr int writers = numbers.writers;  // workgroups that read the same stride; each writes for other waves of it
  template <class T>
  using Scan = BlockScan<M, T, waves>;
  /// Sums over the sequences before the workgroup's stride and over those after it.
  template <class T>
  struct Others {
    T before, after;
    HPA_HOST_DEVICE constexpr Others operator+(const Others& o) const { return {before + o.before, after + o.after}; }
  };
  /// LDS of read_sequences() and of a sum of T.
  template <bool OneStride, class T>
  static constexpr int lds_bytes() {
    constexpr int earlier = Scan<Earlier>::lds_bytes, sums = Scan<std::conditional_t<OneStride, T, Others<T>>>::lds_bytes;
    return earlier > sums ? earlier : sums;
  }

  static constexpr int workgroups(int num_seqs) { return num_seqs == 0 ? 1 : (num_seqs - 1) / (sequences / writers) + 1; }
  /// The first sequence of the workgroup's stride.
  static HPA_DEVICE std::int32_t first_sequence(const Wave& wave) { return wave.workgroup_x() / writers * sequences; }
  static HPA_DEVICE bool writes(const Wave& wave) { return wave.index() / (waves / writers) == wave.workgroup_x() % writers; }

  /// Reads the workgroup's stride into `requests`. Returns the sums of value(request) over all other sequences. With `OneStride`
  /// there are none, and errors are not reported.
  template <bool OneStride, class T, class Value>
  static HPA_DEVICE Others<T> read_sequences(Wave& wave, const PlanParams& p, Lane<Request>& requests,
                                             [[maybe_unused]] Value&& value) {
    const std::int32_t first = first_sequence(wave);
    Earlier earlier{};
    if constexpr (OneStride) {
      read(wave, p, first, requests, earlier);
      return {};
    } else {
      Lane<Others<T>> others;
      wave.each([&](int lane) { others[lane] = {}; });
      each(wave, p, 0, p.num_seqs, earlier, [&](std::int32_t at, const Lane<Request>& read) {
        wave.each([&](int lane) {
          if (at < first)
            others[lane].before = others[lane].before + value(read[lane]);
          else if (at > first)
            others[lane].after = others[lane].after + value(read[lane]);
          else
            requests[lane] = read[lane];
        });
      });
      return sum(wave, others);
    }
  }

  /// Reads the strides from sequence `first` up to `end` and calls body(first sequence of the stride, requests) for each.
  /// `earlier`: totals over the sequences before; updated.
  template <class Body>
  static HPA_DEVICE void each(Wave& wave, const PlanParams& p, std::int32_t first, std::int32_t end, Earlier& earlier,
                              Body&& body) {
    HPA_DO_NOT_UNROLL
    for (; first < end; first += sequences) {
      wave.refresh();
      wave.barrier();  // between clear_report() and report_errors()
      Lane<Request> requests;
      read(wave, wave.template reread<PlanParams>(p), first, requests, earlier);  // else they are kept over the loop
      report_errors(wave, p, first, requests);
      body(first, requests);
    }
  }
  /// The sum of all lanes' values. Each value becomes the sum of those before it.
  template <class T>
  static HPA_DEVICE T sum(Wave& wave, Lane<T>& values) {
    return Scan<T>::exclusive(wave, values, wave.lds());
  }

  static HPA_DEVICE std::int32_t sequence(const Wave& wave, std::int32_t first, int lane) {
    return first + wave.index() * M::width + lane;
  }

  static HPA_DEVICE LastStart last_start(const Wave& wave, const PlanParams& p) {
    if (p.query_start_loc == nullptr || p.num_seqs == 0) return {p.num_seqs, p.num_seqs};
    const std::int32_t last = wave.uniform(p.query_start_loc + p.num_seqs);
    return last != 0 ? LastStart{p.num_seqs, last} : last_before_padding(wave, p);
  }
  /// The last entry that is not 0, found from the end on, as many entries at a time as a wave has lanes.
  static HPA_DEVICE LastStart last_before_padding(const Wave& wave, const PlanParams& p) {
    HPA_DO_NOT_UNROLL
    for (std::int32_t end = p.num_seqs; end > 0; end -= M::width) {
      Lane<std::uint32_t> not_zero;  // the entry's place, if it is not 0
      wave.each([&](int lane) {
        const std::int32_t at = end - 1 - lane;
        not_zero[lane] = at > 0 && p.query_start_loc[at] != 0 ? std::uint32_t(at) : 0u;
      });
      wave.template spread_max<M::width>(not_zero);
      if (const auto at = std::int32_t(wave.broadcast(not_zero, 0)); at > 0) return {at, wave.uniform(p.query_start_loc + at)};
    }
    return {0, 0};
  }

  /// Reads a stride of sequences from `first` on. `earlier`: totals over the sequences before it; becomes those over the sequences
  /// up to its end.
  static HPA_DEVICE void read(Wave& wave, const PlanParams& p, std::int32_t first, Lane<Request>& requests, Earlier& earlier) {
    Lane<RawRequest> raw;
    wave.each([&](int lane) {
      const std::int32_t at = sequence(wave, first, lane);
      raw[lane] = at < p.num_seqs ? load_request(p, at) : RawRequest{};
    });
    const LastStart last = last_start(wave, p);
    wave.each(
        [&](int lane) { requests[lane] = sequence(wave, first, lane) < last.at ? read_request(p, raw[lane], last) : Request{}; });
    if (!p.looks_back) return;
    Lane<Earlier> before;
    wave.each([&](int lane) { before[lane] = {requests[lane].seq_len, requests[lane].row_end, 0}; });
    const Earlier sum = Scan<Earlier>::exclusive(wave, before, wave.lds());
    wave.each([&](int lane) { check_against_earlier(p, requests[lane], earlier + before[lane]); });
    earlier = earlier + sum;
  }

  /// Clears the recorded error. The first workgroup, which reads all sequences, does so and reports for all. A barrier lies
  /// between this and report_errors().
  static HPA_DEVICE void clear_report(const Wave& wave, const PlanParams& p) {
    if (wave.workgroup_x() == 0 && wave.index() == 0)
      wave.each([&](int lane) {
        if (lane != 0) return;
        p.header->first_error = no_error;
        p.header->skipped = p.header->empty = p.header->in_error = 0;
      });
  }
  /// To be called once for each stride. Sequences that decode computes are those that are left: a batch of nothing else costs one ballot.
  static HPA_DEVICE void report_errors(const Wave& wave, const PlanParams& p, std::int32_t first, const Lane<Request>& requests) {
    if (wave.workgroup_x() != 0) return;
    Lane<bool> other, skipped, in_error;
    wave.each([&](int lane) {
      const Request& request = requests[lane];
      other[lane] = sequence(wave, first, lane) < p.num_seqs && !(request.active && request.seq_len > 0);
    });
    if (!wave.any(other)) return;
    wave.each([&](int lane) {
      const Request& request = requests[lane];
      in_error[lane] = request.error != PlanError::none;
      skipped[lane] = !in_error[lane] && request.rows() > p.max_query_len;
      if (in_error[lane]) wave.atomic_min(&p.header->first_error, encode_error(request.error, sequence(wave, first, lane)));
    });
    const int others = wave.count(other), errors = wave.count(in_error), skips = wave.count(skipped);
    wave.each([&](int lane) {
      if (lane != 0) return;
      if (errors > 0) wave.atomic_add(&p.header->in_error, errors);
      if (skips > 0) wave.atomic_add(&p.header->skipped, skips);
      if (others > errors + skips) wave.atomic_add(&p.header->empty, others - errors - skips);
    });
  }
  static HPA_DEVICE void write_counts(const Wave& wave, const PlanParams& p, std::int32_t items, std::int32_t split_rows,
                                      std::int32_t partials) {
    if (wave.index() == 0)
      wave.each([&](int lane) {
        if (lane != 0) return;
        static_cast<PlanCounts&>(*p.header) = {p.stamp, items, split_rows};
        p.header->num_seqs = p.num_seqs, p.header->partials = partials;
      });
  }
};

}  // namespace kernel
}  // namespace HPA_PLATFORM
}  // namespace hpa
