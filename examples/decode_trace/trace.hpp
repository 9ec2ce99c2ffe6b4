// Request traces: how long the prompts and the answers of real requests are.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace examples {

/// One request. Traces are in order of arrival; the arrival times themselves are not kept, because the loop is driven at full load.
struct Request {
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  /// One id for every `tokens_per_prefix_id` prompt tokens. Requests whose first n ids agree have those tokens in common.
  std::vector<std::int64_t> prefix_ids;
};

inline constexpr int tokens_per_prefix_id = 512;

/// What is wrong with a trace and where: "name:line:column: what", counted from one.
class TraceError : public std::runtime_error {
 public:
  TraceError(const std::string& name, int line, std::size_t column, const std::string& what)
      : std::runtime_error(name + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + what) {}
};

/// Lines of a text, without their ends (LF or CRLF), blank ones left out.
class TraceLines {
 public:
  TraceLines(std::istream& in, std::string name) : in_(in), name_(std::move(name)) {}

  bool next() {
    while (std::getline(in_, text_)) {
      ++line_;
      if (!text_.empty() && text_.back() == '\r') text_.pop_back();
      if (text_.find_first_not_of(" \t") != std::string::npos) return true;
    }
    if (in_.bad()) throw std::runtime_error(name_ + ": cannot be read");
    return false;
  }
  const std::string& text() const { return text_; }
  char first_character() const { return text_[text_.find_first_not_of(" \t")]; }
  [[noreturn]] void fail(std::size_t column, const std::string& what) const { throw TraceError(name_, line_, column, what); }

 private:
  std::istream& in_;
  std::string name_, text_;
  int line_ = 0;
};

/// A CSV field and the column it begins in.
struct TraceField {
  std::string_view text;
  std::size_t column;
};

inline std::vector<TraceField> split_fields(std::string_view line) {
  std::vector<TraceField> fields;
  for (std::size_t begin = 0;;) {
    const std::size_t end = std::min(line.find(',', begin), line.size());
    std::string_view text = line.substr(begin, end - begin);
    const std::size_t blanks = std::min(text.find_first_not_of(" \t"), text.size());
    text.remove_prefix(blanks);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    fields.push_back({text, begin + blanks + 1});
    if (end == line.size()) return fields;
    begin = end + 1;
  }
}

inline constexpr std::int64_t longest_request =
    std::numeric_limits<std::int32_t>::max();  // sequence lengths are int32 on the device

inline std::int64_t parse_tokens(const TraceLines& lines, const TraceField& field, const std::string& name) {
  std::int64_t value = 0;
  const char* const end = field.text.data() + field.text.size();
  const auto [parsed_to, error] = std::from_chars(field.text.data(), end, value);
  const std::string shown = name + " is '" + std::string(field.text.substr(0, 40)) + "'";
  if (error == std::errc::invalid_argument || parsed_to != end) lines.fail(field.column, shown + ", expected a whole number");
  if (error == std::errc() && value < 0) lines.fail(field.column, shown + ", a number of tokens cannot be negative");
  if (error != std::errc() || value > longest_request) lines.fail(field.column, shown + ", which is out of range");
  return value;
}

/// The columns that the loop needs, of TIMESTAMP,ContextTokens,GeneratedTokens unless the header has another order.
struct CsvColumns {
  std::size_t prompt = 1, output = 2, count = 3;
};

inline CsvColumns read_header(const TraceLines& lines, const std::vector<TraceField>& fields) {
  const auto column_of = [&](const char* name) {
    const auto found = std::find_if(fields.begin(), fields.end(), [&](const TraceField& field) { return field.text == name; });
    if (found == fields.end()) lines.fail(1, std::string("the header has no column ") + name);
    return std::size_t(found - fields.begin());
  };
  return {column_of("ContextTokens"), column_of("GeneratedTokens"), fields.size()};
}

/// The format of the Azure LLM inference traces (2023): TIMESTAMP,ContextTokens,GeneratedTokens. The header may be missing.
/// `lines` is at the first line.
inline std::vector<Request> read_csv(TraceLines& lines) {
  std::vector<Request> requests;
  CsvColumns columns;
  bool more = true;
  if (const char first = lines.first_character(); first < '0' || first > '9') {
    columns = read_header(lines, split_fields(lines.text()));
    more = lines.next();
  }
  for (; more; more = lines.next()) {
    const std::vector<TraceField> fields = split_fields(lines.text());
    if (fields.size() != columns.count) {
      lines.fail(fields.back().column, std::to_string(fields.size()) + " fields, expected " + std::to_string(columns.count));
    }
    requests.push_back({parse_tokens(lines, fields[columns.prompt], "ContextTokens"),
                        parse_tokens(lines, fields[columns.output], "GeneratedTokens"),
                        {}});
  }
  return requests;
}

/// The column that a JSON member's name begins in.
inline std::size_t column_of_member(const TraceLines& lines, const std::string& name) {
  const std::size_t found = lines.text().find('"' + name + '"');
  return found == std::string::npos ? 1 : found + 1;
}

inline std::int64_t json_count(const TraceLines& lines, const nlohmann::json& value, const std::string& name) {
  const std::size_t column = column_of_member(lines, name);
  if (!value.is_number_integer()) lines.fail(column, name + " is " + value.dump().substr(0, 40) + ", expected a whole number");
  if (!value.is_number_unsigned()) lines.fail(column, name + " is " + value.dump() + ", which is negative");
  if (value.get<std::uint64_t>() > std::uint64_t(longest_request))
    lines.fail(column, name + " is " + value.dump() + ", which is out of range");
  return value.get<std::int64_t>();
}

inline const nlohmann::json& json_member(const TraceLines& lines, const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) lines.fail(1, std::string(name) + " is missing");
  return *found;
}

inline Request parse_json_request(const TraceLines& lines) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(lines.text());
  } catch (const nlohmann::json::parse_error& error) {
    lines.fail(error.byte, "not JSON, or cut off");
  }
  if (!object.is_object()) lines.fail(1, "expected a JSON object");
  Request request;
  request.prompt_tokens = json_count(lines, json_member(lines, object, "input_length"), "input_length");
  request.output_tokens = json_count(lines, json_member(lines, object, "output_length"), "output_length");
  if (const auto ids = object.find("hash_ids"); ids != object.end()) {
    if (!ids->is_array()) lines.fail(column_of_member(lines, "hash_ids"), "hash_ids is not an array");
    for (const nlohmann::json& id : *ids) request.prefix_ids.push_back(json_count(lines, id, "hash_ids"));
  }
  return request;
}

/// The format of the Mooncake traces: one JSON object a line with input_length, output_length and hash_ids (may be missing).
/// `lines` is at the first line.
inline std::vector<Request> read_json_lines(TraceLines& lines) {
  std::vector<Request> requests;
  do requests.push_back(parse_json_request(lines));
  while (lines.next());
  return requests;
}

/// Either format; the first character tells. `name` stands for the text in messages.
inline std::vector<Request> read_trace(std::istream& in, const std::string& name) {
  TraceLines lines(in, name);
  if (!lines.next()) throw std::runtime_error(name + ": no request in it");
  std::vector<Request> requests = lines.first_character() == '{' ? read_json_lines(lines) : read_csv(lines);
  if (requests.empty()) throw std::runtime_error(name + ": no request in it");
  return requests;
}

inline std::vector<Request> read_trace_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + ": cannot be opened");
  return read_trace(in, path);
}

/// Requests as a chat service sees them: log-normal lengths, median 500 tokens in (up to 16384) and 150 out (up to 1024).
inline std::vector<Request> synthetic_trace(int count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto tokens = [&](double median, double spread, double most) {
    return std::int64_t(std::clamp(median * std::exp(spread * normal(random)), 1.0, most));
  };
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    const std::int64_t prompt = tokens(500, 1.2, 16384);
    requests.push_back({prompt, tokens(150, 0.8, 1024), {}});
  }
  return requests;
}

/// Divides all lengths, rounding up.
inline void shorten(std::vector<Request>& requests, int divisor) {
  for (Request& request : requests) {
    request.prompt_tokens = (request.prompt_tokens + divisor - 1) / divisor;
    request.output_tokens = (request.output_tokens + divisor - 1) / divisor;
  }
}

}  // namespace examples
