// Prints README's table of what is supported: every answer in it is check()'s, every reason the rule's own text.
//
// Each row changes one field of a shape that is accepted, value by value, and asks for every machine. A value that the default menu
// does not have and a menu that names it would is said to be so.
#include "support_table.hpp"

#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace {

using hpa::Arch;
using hpa::DecodeShape;
using hpa::Device;
using hpa::DType;
using hpa::KvLayout;
using hpa::Split;
using hpa::Verdict;
using Text = std::string;

using Machines = hpa::support_table::Machines;
/// The default menu's axes, for all machines; and with every type of KV.
using DefaultMenu = hpa::default_menu::with<hpa::machine<Machines>>;
using EveryKvMenu =
    DefaultMenu::with<hpa::kv_types<DType::f16, DType::bf16, DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8>>;

const DType types[] = {DType::f16, DType::bf16, DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8};

using Change = std::function<void(DecodeShape&)>;

/// One value of a field, and what sets it.
struct Candidate {
  Text name;
  Change set;
};

DecodeShape plain_shape() {
  DecodeShape shape;
  shape.num_heads = 32;
  shape.num_kv_heads = 8;
  shape.max_seqs = 4;
  shape.max_seq_len = 4096;
  return shape;
}

/// Whether the names are numbers, or powers of two, that follow each other.
bool follows(const Text& name, const Text& next) {
  const auto digits = [](const Text& text) { return text.find_last_not_of("0123456789") + 1; };  // where they begin
  const std::size_t one = digits(name), other = digits(next);
  if (one == name.size() || other == next.size() || name.substr(0, one) != next.substr(0, other)) return false;
  return std::stoi(next.substr(other)) == std::stoi(name.substr(one)) + 1;
}

/// "64, 128", and "1 to 16" where values follow each other.
Text list(const std::vector<Text>& names) {
  Text text;
  for (std::size_t first = 0, last = 0; first < names.size(); first = ++last) {
    while (last + 1 < names.size() && follows(names[last], names[last + 1])) ++last;
    text += (text.empty() ? "" : ", ") + names[first];
    if (last > first) text += (last > first + 1 ? " to " : ", ") + names[last];
  }
  return text;
}

/// Names by what is said of them, in the order in which it was first said.
class Groups {
 public:
  void add(const Text& said, const Text& name) {
    for (auto& [key, names] : groups_)
      if (key == said) return names.push_back(name);
    groups_.push_back({said, {name}});
  }
  bool empty() const { return groups_.empty(); }
  /// "A, B: said; C: said otherwise".
  Text text() const {
    Text text;
    for (const auto& [said, names] : groups_) text += (text.empty() ? "" : "<br>") + list(names) + (said.empty() ? "" : ": " + said);
    return text;
  }

 private:
  std::vector<std::pair<Text, std::vector<Text>>> groups_;
};

Text reason(const Verdict& verdict, const Text& row) {
  return (row == verdict.field ? Text() : "`" + Text(verdict.field) + "` ") + verdict.why;
}

/// check() of all machines; the machines that do not say yes, by what they say.
template <class Menu>
Groups refusals(const DecodeShape& shape, const Text& row) {
  Groups refusals;
  for (const Arch arch : hpa::detail::AllArchs::values) {
    if (!hpa::arch::runs_on<Machines>(arch)) continue;
    if (const Verdict verdict = hpa::check<Menu>(shape, {arch, 100}); !verdict) refusals.add(reason(verdict, row), name(arch));
  }
  return refusals;
}

/// The same as one text; without the machines when all say the same.
template <class Menu>
Text refusal(const DecodeShape& shape, const Text& row) {
  const Groups all = refusals<Menu>(shape, row);
  if (all.empty()) return "";
  const Verdict one = hpa::check<Menu>(shape, {Arch::host, 100});
  Groups unanimous;
  for (const Arch arch : hpa::detail::AllArchs::values)
    if (hpa::arch::runs_on<Machines>(arch)) unanimous.add(reason(one, row), name(arch));
  return !one && all.text() == unanimous.text() ? reason(one, row) : "on " + all.text();
}

struct Row {
  Text title;
  Text field;  // whose reasons need no name
  std::vector<Candidate> candidates;
};

void print(const Row& row) {
  std::vector<Text> yes;
  Groups named, no;
  for (const Candidate& candidate : row.candidates) {
    DecodeShape shape = plain_shape();
    candidate.set(shape);
    const Text why = refusal<DefaultMenu>(shape, row.field);
    if (why.empty()) yes.push_back(candidate.name);
    else if (refusal<EveryKvMenu>(shape, row.field).empty()) named.add("", candidate.name);
    else no.add(refusal<EveryKvMenu>(shape, row.field), candidate.name);
  }
  Text supported = list(yes);
  if (!named.empty()) supported += (supported.empty() ? "" : "<br>") + Text("in a menu that names the KV type: ") + named.text();
  std::printf("| %s | %s | %s |\n", row.title.c_str(), supported.c_str(), no.text().c_str());
}

template <class Value>
std::vector<Candidate> values_of(Value DecodeShape::*field, const std::vector<std::pair<Value, Text>>& values) {
  std::vector<Candidate> candidates;
  for (const auto& [value, name] : values) candidates.push_back({name, [=, v = value](DecodeShape& shape) { shape.*field = v; }});
  return candidates;
}
std::vector<Candidate> numbers(int DecodeShape::*field, const std::vector<int>& values) {
  std::vector<std::pair<int, Text>> named;
  for (const int value : values) named.push_back({value, std::to_string(value)});
  return values_of(field, named);
}
std::vector<int> range(int first, int last) {
  std::vector<int> values;
  for (int value = first; value <= last; ++value) values.push_back(value);
  return values;
}
/// Powers of two from 2^first.
std::vector<Candidate> powers(int DecodeShape::*field, int first) {
  std::vector<Candidate> candidates;
  for (int power = first; power <= 30; ++power)
    candidates.push_back({"2^" + std::to_string(power), [=](DecodeShape& shape) { shape.*field = 1 << power; }});
  candidates.push_back({"2^31 - 1", [=](DecodeShape& shape) { shape.*field = 0x7fffffff; }});
  return candidates;
}

/// What a type beside that of the query can be.
std::vector<Candidate> types_beside_query(DType DecodeShape::*field) {
  std::vector<Candidate> candidates;
  candidates.push_back({"the query's", [](DecodeShape&) {}});
  candidates.push_back({"the other 16-bit type", [=](DecodeShape& shape) { shape.*field = DType::bf16; }});
  for (const DType type : types)
    if (size_of(type) == 1) candidates.push_back({name(type), [=](DecodeShape& shape) { shape.*field = type; }});
  return candidates;
}

/// Features with all that they need to make sense.
const std::vector<Candidate>& features() {
  static const std::vector<Candidate> all = {
      {"`alibi`", [](DecodeShape& s) { s.alibi = true; }},
      {"`sliding_window`", [](DecodeShape& s) { s.sliding_window = true; }},
      {"`soft_cap`", [](DecodeShape& s) { s.soft_cap = true; }},
      {"`sinks`", [](DecodeShape& s) { s.sinks = true; }},
      {"`lse`", [](DecodeShape& s) { s.lse = true; }},
      {"`causal` off", [](DecodeShape& s) { s.causal = false; }},
      {"`tree_mask`", [](DecodeShape& s) { s.tree_mask = true; }},
      {"`token_scales` with i8 KV", [](DecodeShape& s) { s.token_scales = true, s.kv = DType::i8; }},
      {"several query rows", [](DecodeShape& s) { s.max_query_len = 8; }},
      {"FP8 output", [](DecodeShape& s) { s.out = DType::e4m3_fnuz; }},
      {"8-bit KV", [](DecodeShape& s) { s.kv = DType::i8; }},
  };
  return all;
}

/// Pairs of features of which each is accepted alone.
void print_pairs() {
  Groups no;
  const auto accepted = [](const DecodeShape& shape) { return refusals<EveryKvMenu>(shape, "").empty(); };
  for (std::size_t a = 0; a < features().size(); ++a)
    for (std::size_t b = a + 1; b < features().size(); ++b) {
      DecodeShape first = plain_shape(), second = plain_shape(), both = plain_shape();
      features()[a].set(first), features()[b].set(second), features()[a].set(both), features()[b].set(both);
      if (accepted(first) && accepted(second) && !accepted(both))
        no.add(refusal<EveryKvMenu>(both, ""), features()[a].name + " and " + features()[b].name);
    }
  std::printf("| two features together | %s | %s |\n", no.empty() ? "all pairs" : "all other pairs", no.text().c_str());
}

std::vector<Candidate> gqa_ratios() {
  std::vector<Candidate> candidates;
  for (const int ratio : range(1, 128))
    candidates.push_back({std::to_string(ratio), [=](DecodeShape& shape) { shape.num_heads = ratio * shape.num_kv_heads; }});
  return candidates;
}

}  // namespace

int main() {
  std::vector<Text> machines;
  for (const Arch arch : hpa::detail::AllArchs::values)
    if (hpa::arch::runs_on<Machines>(arch)) machines.push_back(name(arch));
  std::printf("What `check` answers for the default menu on %s. Where no machine is named all give the same answer.\n\n",
              list(machines).c_str());
  std::printf("| | yes | no, and why |\n|---|---|---|\n");
  std::vector<std::pair<DType, Text>> query_types;
  for (const DType type : types) query_types.push_back({type, name(type)});
  std::vector<Candidate> queries = values_of(&DecodeShape::query, query_types);
  for (Candidate& query : queries)
    query.set = [set = query.set](DecodeShape& shape) { set(shape), shape.kv = shape.out = shape.query; };
  print({"`query`", "query", queries});
  print({"`kv`", "kv", types_beside_query(&DecodeShape::kv)});
  print({"`out`", "out", types_beside_query(&DecodeShape::out)});
  print({"`layout`", "layout",
         values_of<KvLayout>(&DecodeShape::layout, {{KvLayout::vllm, "vllm"}, {KvLayout::hnd, "hnd"}, {KvLayout::nhd, "nhd"}})});
  print({"`split`", "split", values_of<Split>(&DecodeShape::split, {{Split::by_length, "by_length"}, {Split::balanced, "balanced"}})});
  print({"`head_size`", "head_size", numbers(&DecodeShape::head_size, {32, 64, 80, 96, 112, 128, 192, 256, 512, 576})});
  print({"`head_size_v`, with `head_size` 128", "head_size_v", numbers(&DecodeShape::head_size_v, {0, 64, 128, 256})});
  print({"`block_size`", "block_size", numbers(&DecodeShape::block_size, {1, 8, 16, 32, 64, 128, 256})});
  print({"query heads a KV head", "num_heads", gqa_ratios()});
  print({"`max_query_len`", "max_query_len", numbers(&DecodeShape::max_query_len, range(1, 32))});
  print({"features", "", {features().begin(), features().begin() + 8}});
  print_pairs();
  print({"`max_seq_len`", "max_seq_len", powers(&DecodeShape::max_seq_len, 20)});
  print({"`max_seqs`", "max_seqs", powers(&DecodeShape::max_seqs, 20)});
}
