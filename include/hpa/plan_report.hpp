// PlanReport: what plan() made of a step's sequences, as plan_report() reads it back.
#pragma once

#include <cstdint>

#include "hpa/status.hpp"

namespace hpa {

/// Every sequence is one of decoded, skipped, empty and in_error: the four add up to num_seqs.
struct PlanReport {
  int decoded = 0;      // have query rows and tokens: decode() computes them
  int skipped = 0;      // have more query rows than shape.max_query_len: their rows of out and lse keep their bytes
  int empty = 0;        // have no query row, as padding has none, or no token: the rows that there are become empty ones
  int in_error = 0;     // plan() found something wrong with them; block ids it does not see
  Verdict first_error;  // of the first sequence that plan() or a decode() since found at fault, by number; ok when there is none
  int first_error_sequence = -1;  // that sequence
  std::int64_t items = 0;         // pieces of work: a sequence that was not cut is one
  std::int64_t partials = 0;      // those of sequences that were cut, whose results a second kernel merges
};

}  // namespace hpa
