// What drives decode_trace on the host: trace readers, block allocator, prefix cache, scheduler.
#include <algorithm>
#include <cstdint>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "../../examples/decode_trace/scheduler.hpp"
#include "../../examples/decode_trace/trace.hpp"
#include "../../examples/tiny_llama/shared_blocks.hpp"
#include "catch.hpp"

using namespace examples;

namespace {

std::vector<Request> read(const std::string& text) {
  std::istringstream in(text);
  return read_trace(in, "trace");
}

/// The message with which a text is refused; empty when it is not.
std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool begins_with(const std::string& text, const std::string& beginning) {
  return text.compare(0, beginning.size(), beginning) == 0;
}

const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

}  // namespace

TEST_CASE("CSV traces: header, line ends, blank lines") {
  const std::string row = "2023-11-16 18:15:46.6805900,374,44", other = "2023-11-16 18:15:50.9951690,396,109";
  const std::vector<std::string> texts = {
      header + row + "\n" + other + "\n",
      header + row + "\n" + other,
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + row + "\r\n" + other + "\r\n",
      row + "\n" + other + "\n",
      "\n\n" + header + "\n" + row + "\n \t\n\r\n" + other + "\n\n",
      "GeneratedTokens , TIMESTAMP, ContextTokens\n44,then, 374\n109 ,later,396\n",
  };
  for (const std::string& text : texts) {
    CAPTURE(text);
    const std::vector<Request> requests = read(text);
    REQUIRE(requests.size() == 2);
    CHECK(requests[0].prompt_tokens == 374);
    CHECK(requests[0].output_tokens == 44);
    CHECK(requests[1].prompt_tokens == 396);
    CHECK(requests[1].output_tokens == 109);
    CHECK(requests[0].prefix_ids.empty());
  }
}

TEST_CASE("CSV traces: what is wrong is named with line and column") {
  CHECK(refusal("") == "trace: no request in it");
  CHECK(refusal("\n \r\n") == "trace: no request in it");
  CHECK(refusal(header) == "trace: no request in it");
  CHECK(begins_with(refusal(header + "t,374,44\nt,37"), "trace:3:3: 2 fields, expected 3"));
  CHECK(begins_with(refusal(header + "t,374,44,5\n"), "trace:2:10: 4 fields"));
  CHECK(begins_with(refusal(header + "t,abc,44\n"), "trace:2:3: ContextTokens is 'abc', expected a whole number"));
  CHECK(begins_with(refusal(header + "t,374,\n"), "trace:2:7: GeneratedTokens is '', expected"));
  CHECK(begins_with(refusal(header + "t,374,4.5\n"), "trace:2:7: GeneratedTokens is '4.5', expected"));
  CHECK(begins_with(refusal(header + "t,0x10,4\n"), "trace:2:3: ContextTokens is '0x10', expected"));
  CHECK(begins_with(refusal(header + "t,374,-44\n"), "trace:2:7: GeneratedTokens is '-44', a number of tokens cannot be negative"));
  CHECK(begins_with(refusal(header + "\nt,2147483648,1\n"), "trace:3:3: ContextTokens is '2147483648', which is out of range"));
  CHECK(begins_with(refusal(header + "t,99999999999999999999,1\n"),
                    "trace:2:3: ContextTokens is '99999999999999999999', which is out of range"));
  CHECK(begins_with(refusal("TIMESTAMP,Context,GeneratedTokens\n"), "trace:1:1: the header has no column ContextTokens"));
  CHECK(begins_with(refusal(",1,2\n"), "trace:1:1: the header has no column"));
}

TEST_CASE("JSON lines traces") {
  const std::vector<Request> requests = read(
      "{\"timestamp\": 0, \"input_length\": 1030, \"output_length\": 5, \"hash_ids\": [0, 7, 9]}\r\n\n"
      "{\"input_length\": 1, \"output_length\": 0}");
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].prompt_tokens == 1030);
  CHECK(requests[0].output_tokens == 5);
  CHECK(requests[0].prefix_ids == std::vector<std::int64_t>{0, 7, 9});
  CHECK(requests[1].prompt_tokens == 1);
  CHECK(requests[1].output_tokens == 0);
  CHECK(requests[1].prefix_ids.empty());
}

TEST_CASE("JSON lines traces: what is wrong is named with line and column") {
  const std::string good = "{\"input_length\": 1, \"output_length\": 2}\n";
  CHECK(begins_with(refusal(good + "{\"input_length\": 10, \"outp"), "trace:2:27: not JSON, or cut off"));
  CHECK(begins_with(refusal("{\"input_length\": 10"), "trace:1:20: not JSON, or cut off"));
  CHECK(begins_with(refusal(good + "[1, 2]\n"), "trace:2:1: expected a JSON object"));
  CHECK(begins_with(refusal(good + "{\"input_length\": 1}\n"), "trace:2:1: output_length is missing"));
  CHECK(begins_with(refusal("{\"input_length\": -1, \"output_length\": 2}"), "trace:1:2: input_length is -1, which is negative"));
  CHECK(begins_with(refusal("{\"input_length\": 1, \"output_length\": \"2\"}"),
                    "trace:1:21: output_length is \"2\", expected a whole number"));
  CHECK(begins_with(refusal("{\"input_length\": 1.5, \"output_length\": 2}"), "trace:1:2: input_length is 1.5, expected"));
  CHECK(begins_with(refusal("{\"input_length\": 2147483648, \"output_length\": 2}"),
                    "trace:1:2: input_length is 2147483648, which is out of range"));
  CHECK(begins_with(refusal("{\"input_length\": 99999999999999999999, \"output_length\": 2}"), "trace:1:2: input_length is"));
  CHECK(
      begins_with(refusal("{\"input_length\": 1, \"output_length\": 2, \"hash_ids\": 3}"), "trace:1:41: hash_ids is not an array"));
  CHECK(begins_with(refusal("{\"input_length\": 1, \"output_length\": 2, \"hash_ids\": [0, -3]}"),
                    "trace:1:41: hash_ids is -3, which is negative"));
  CHECK(begins_with(refusal("{\"input_length\": \"\xff\", \"output_length\": 2}"), "trace:1:"));
}

TEST_CASE("a trace file that is not there, or a folder") {
  CHECK_THROWS_WITH(read_trace_file("/no/such/file"), "/no/such/file: cannot be opened");
  CHECK_THROWS_WITH(read_trace_file("/"), "/: cannot be read");
}

TEST_CASE("synthetic traces repeat and keep their bounds") {
  const std::vector<Request> a = synthetic_trace(1000, 7), b = synthetic_trace(1000, 7);
  REQUIRE(a.size() == 1000);
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].prompt_tokens == b[i].prompt_tokens);
    REQUIRE((a[i].prompt_tokens >= 1 && a[i].prompt_tokens <= 16384));
    REQUIRE((a[i].output_tokens >= 1 && a[i].output_tokens <= 1024));
  }
  std::vector<Request> shortened = {{1, 17, {}}, {32, 0, {}}};
  shorten(shortened, 16);
  CHECK(shortened[0].prompt_tokens == 1);
  CHECK(shortened[0].output_tokens == 2);
  CHECK(shortened[1].prompt_tokens == 2);
  CHECK(shortened[1].output_tokens == 0);
}

TEST_CASE("block allocator: each block once, references counted") {
  BlockAllocator blocks(4, 3);
  std::set<int> taken;
  for (int i = 0; i < 4; ++i) taken.insert(blocks.allocate().value());
  CHECK(taken == std::set<int>{0, 1, 2, 3});
  CHECK_FALSE(blocks.allocate());
  blocks.share(2);
  CHECK(blocks.references(2) == 2);
  blocks.release(2);
  CHECK(blocks.num_free() == 0);
  blocks.release(2);
  CHECK(blocks.num_free() == 1);
  CHECK(blocks.allocate() == 2);
}

TEST_CASE("block allocator: a block without owner is nobody's to share or release") {
  BlockAllocator blocks(2);
  CHECK_THROWS_AS(blocks.release(0), std::logic_error);
  CHECK_THROWS_AS(blocks.share(1), std::logic_error);
  CHECK_THROWS_AS(blocks.release(-1), std::out_of_range);
  CHECK_THROWS_AS(blocks.release(2), std::out_of_range);
  CHECK_THROWS_AS(BlockAllocator(-1), std::invalid_argument);
  CHECK_FALSE(BlockAllocator(0).allocate());
}

TEST_CASE("prefix cache: the least recently used entry that nobody uses goes first, of equals the deepest") {
  BlockAllocator blocks(4);
  PrefixCache prefixes(blocks);
  std::vector<int> taken;
  for (int i = 0; i < 4; ++i) taken.push_back(blocks.allocate().value());
  prefixes.insert(10, 0, {taken[0]});
  prefixes.insert(11, 1, {taken[1]});
  prefixes.tick();
  prefixes.insert(20, 0, {taken[2]});
  CHECK(prefixes.evictable() == 0);
  CHECK_FALSE(prefixes.evict());
  for (int i = 0; i < 3; ++i) blocks.release(taken[std::size_t(i)]);
  CHECK(prefixes.evictable() == 3);
  REQUIRE(prefixes.evict());
  CHECK(prefixes.find(11) == nullptr);
  CHECK(prefixes.find(10) != nullptr);
  prefixes.tick();
  CHECK(prefixes.find(20) != nullptr);
  REQUIRE(prefixes.evict());
  CHECK(prefixes.find(10) == nullptr);
  CHECK(blocks.num_free() == 2);
}

TEST_CASE("scheduler: no two running sequences write to one slot, and no request is lost") {
  const int num_blocks = GENERATE(12, 40, 400);
  const int blocks_per_prefix_id = GENERATE(0, 1);
  CAPTURE(num_blocks, blocks_per_prefix_id);
  std::vector<Request> requests = synthetic_trace(300, 5);
  shorten(requests, 16);
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].prefix_ids = {0, std::int64_t(1 + i % 3), std::int64_t(100 + i)};
  requests[20] = {0, 3, {}};   // nothing to begin with
  requests[30] = {17, 0, {}};  // nothing to generate
  Scheduler scheduler(requests, {6, 16, num_blocks, 512, blocks_per_prefix_id}, 9);

  const auto accounted = [&] {
    const RequestCounts& counts = scheduler.counts();
    return counts.finished + counts.truncated + counts.rejected.size() + scheduler.running().size() + scheduler.num_waiting();
  };
  std::int64_t steps = 0;
  while (scheduler.begin_step()) {
    std::set<std::int64_t> written(scheduler.prompt_slots().begin(), scheduler.prompt_slots().end());
    REQUIRE(written.size() == scheduler.prompt_slots().size());
    REQUIRE(scheduler.running().size() <= 6);
    for (const Sequence& sequence : scheduler.running()) {
      REQUIRE(std::int64_t(sequence.blocks.size()) == (sequence.length + 15) / 16);
      REQUIRE(sequence.length <= 512);
      REQUIRE(written.insert(scheduler.slot(sequence, sequence.length - 1)).second);
    }
    REQUIRE(accounted() == requests.size());
    scheduler.end_step();
    REQUIRE(++steps < 100000);
  }
  const RequestCounts& counts = scheduler.counts();
  CHECK(counts.finished + counts.truncated + counts.rejected.size() == requests.size());
  CHECK((num_blocks != 12 || !counts.rejected.empty()));
  CHECK((num_blocks != 40 || counts.preemptions > 0));
  CHECK((blocks_per_prefix_id == 0) == (counts.shared_prompt_tokens == 0));
}

TEST_CASE("scheduler: what cannot be is rejected with a reason, what is too long is truncated") {
  const std::vector<Request> requests = {{100, 5, {}}, {60, 50, {}}, {10, 3, {}}, {64, 1, {}}};
  SECTION("the sequence is longer than allowed") {
    Scheduler scheduler(requests, {4, 16, 100, 64, 0});
    while (scheduler.begin_step()) scheduler.end_step();
    CHECK(scheduler.counts().finished == 1);
    CHECK(scheduler.counts().truncated == 1);
    REQUIRE(scheduler.counts().rejected.size() == 2);
    CHECK(scheduler.counts().rejected[0].request == 0);
    CHECK(scheduler.counts().rejected[0].why == "a prompt of 100 tokens leaves no room for an answer, max_seq_len is 64");
  }
  SECTION("the cache is too small") {
    Scheduler scheduler(requests, {4, 16, 5, 1000, 0});
    while (scheduler.begin_step()) scheduler.end_step();
    CHECK(scheduler.counts().finished == 2);
    REQUIRE(scheduler.counts().rejected.size() == 2);
    CHECK(scheduler.counts().rejected[0].why == "105 tokens need 7 blocks, the cache has 5");
  }
}

TEST_CASE("shared blocks: a fork writes to a copy, its parent's block stays") {
  SharedBlocks blocks(8, 4, 3);
  std::vector<std::int64_t> copies;
  for (int i = 0; i < 6; ++i) blocks.append(0, copies);
  blocks.fork(0, 1, 6);
  blocks.fork(0, 2, 4);
  CHECK(blocks.used_blocks() == 2);
  CHECK(blocks.table(1) == blocks.table(0));
  CHECK(copies.empty());

  const int shared = blocks.table(0)[1];
  const std::int64_t slot = blocks.append(1, copies);
  CHECK(copies == std::vector<std::int64_t>{shared, blocks.table(1)[1]});
  CHECK(slot == blocks.table(1)[1] * 4 + 2);
  CHECK(blocks.table(1)[1] != shared);
  CHECK(blocks.append(0, copies) == shared * 4 + 2);  // the only owner now
  const std::int64_t own = blocks.append(2, copies);  // the shared block is full, this is the next
  CHECK(own == blocks.table(2)[1] * 4);
  CHECK(copies.size() == 2);

  blocks.release(0);
  blocks.release(1);
  CHECK(blocks.used_blocks() == 2);
  blocks.release(2);
  CHECK(blocks.used_blocks() == 0);
  CHECK_THROWS_AS(blocks.fork(0, 1, 1), std::logic_error);
}
