// Sets of features between none and all: their kernels compute what they have, on or off, to the bit as the kernel of all features does;
// the smallest that will do is taken, and what no set has is refused by name.
#include <bitset>
#include <string>
#include <utility>
#include <vector>

#include "calls.hpp"

using namespace hpa;
using namespace hpa::test;

namespace {

/// One set alone, for caches of the query's type or, with token scales, of i8.
template <class Machine, Features Can>
using menu_with = hpa::default_menu::with<hpa::query_types<DType::f16>,
                                          hpa::kv_types<hpa::covers(Can, Features::token_scales) ? DType::i8 : DType::f16>,
                                          hpa::head_sizes<64>, hpa::block_sizes<16>, hpa::feature_sets<Can>, hpa::machine<Machine>>;
template <class Machine, Features Can>
using all_menu = typename menu_with<Machine, Can>::template with<hpa::feature_sets<Features::all>>;

/// What a shape says to each feature. Written down a second time, without the library's own words for it.
void ask_for(DecodeShape& shape, Features set) {
  const auto has = [&](Features one) { return (unsigned(set) & unsigned(one)) == unsigned(one); };
  shape.max_query_len = has(Features::query_rows) ? 4 : 1;
  shape.sliding_window = has(Features::window);
  shape.alibi = has(Features::alibi);
  shape.soft_cap = has(Features::soft_cap);
  shape.sinks = has(Features::sinks);
  shape.tree_mask = has(Features::tree);
  shape.out = has(Features::fp8_out) ? DType::e4m3_fnuz : shape.query;
  shape.kv = has(Features::token_scales) ? DType::i8 : shape.query;
  shape.token_scales = has(Features::token_scales);
}

/// A batch that turns on every feature of the set. Rows of 5 and of 20 heads a KV head are one pass and two.
CaseSpec case_with(Features set, int max_seqs, int num_heads, int num_kv_heads) {
  CaseSpec spec = small_case(DType::f16, num_heads, num_kv_heads, {1, 16, 33, 129, 300, 700, 0, 57});
  ask_for(spec.shape, set);
  spec.shape.max_seqs = max_seqs;
  if (spec.shape.max_query_len > 1) spec.query_lens = {1, 4, 3, 2, 4, 4, 1, 1};
  if (spec.shape.sliding_window) spec.window = 50, spec.unmapped_expired = true;
  if (spec.shape.soft_cap) spec.soft_cap = 3.f;
  if (spec.shape.out != spec.shape.query) spec.out_scale = 0.25f;
  spec.guard = num_kv_heads == 1 ? Guard::end : Guard::start;
  return spec;
}

constexpr int few_seqs = 8, many_seqs = 600;  // rows are cut to fill the chip, or left whole

template <Features Can>
using Set = std::integral_constant<Features, Can>;
/// Calls f(Set{}) for each feature alone and for some unions.
template <class F>
void each_set(F&& f) {
  const auto all_of = [&](auto... sets) { (f(sets), ...); };
  all_of(Set<Features::query_rows>{}, Set<Features::window>{}, Set<Features::alibi>{}, Set<Features::soft_cap>{},
         Set<Features::sinks>{}, Set<Features::tree>{}, Set<Features::fp8_out>{}, Set<Features::token_scales>{},
         Set<Features::window | Features::sinks>{}, Set<Features::window | Features::alibi | Features::soft_cap>{},
         Set<Features::tree | Features::sinks | Features::fp8_out>{}, Set<Features::query_rows | Features::window>{},
         Set<Features::window | Features::token_scales>{});
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a set of features computes what it has", "[feature_sets]", Machines) {
  each_set([](auto set) {
    constexpr Features can = decltype(set)::value;
    for (const int max_seqs : {few_seqs, many_seqs})
      for (const int num_heads : {10, 20})
        expect_right<menu_with<TestType, can>>(case_with(can, max_seqs, num_heads, 20 / num_heads), 3);
  });
}

TEMPLATE_LIST_TEST_CASE("a set gives the bits of all features, whatever is on of it", "[feature_sets]", Machines) {
  each_set([](auto set) {
    constexpr Features can = decltype(set)::value;
    for (const Features on : {can, can & Features::window, Features::none}) {
      if (on == Features::none && can == Features::token_scales) continue;  // the menu's KV has other types
      for (const int max_seqs : {few_seqs, many_seqs}) {
        CaseSpec spec = case_with(on, max_seqs, 10, 2);
        if (can == (can | Features::token_scales)) spec.shape.kv = DType::i8;
        PagedCase one(spec), all(spec);
        INFO(name(can) << " with " << name(on) << " on: " << describe(one.spec));
        REQUIRE(run_paged_attention<menu_with<TestType, can>>(one));
        REQUIRE(run_paged_attention<all_menu<TestType, can>>(all));
        CHECK((results_of(one) == results_of(all)));
      }
    }
  });
}

TEMPLATE_LIST_TEST_CASE("windows of every length are right where all rows share them", "[feature_sets]", Machines) {
  constexpr Features can = Features::window | Features::sinks;
  for (const int window : {1, 2, 15, 16, 17, 31, 32, 33, 100, 699, 700, 5000}) {
    for (const int max_seqs : {few_seqs, many_seqs}) {
      CaseSpec spec = case_with(can, max_seqs, 10, 2);
      spec.window = window;
      expect_right<menu_with<TestType, can>>(spec, 2);
    }
  }
}

TEMPLATE_LIST_TEST_CASE("a feature that no set has is refused by name, and nothing is written", "[feature_sets]", Machines) {
  const std::pair<Features, std::string> features[] = {
      {Features::query_rows, "max_query_len"}, {Features::window, "sliding_window"}, {Features::alibi, "alibi"},
      {Features::soft_cap, "soft_cap"},        {Features::sinks, "sinks"},           {Features::fp8_out, "out"},
  };
  const auto refuses = [](auto menu, Features asked, const std::string& field, const std::string& sets) {
    PagedCase paged(case_with(asked, few_seqs, 10, 2));
    const Verdict verdict =
        paged.run(1 << 20, {}, [](const DecodeShape& shape, const DecodeArgs& args, Workspace workspace, Stream stream) {
          return hpa::paged_attention<decltype(menu)>(shape, args, workspace, stream);
        });
    INFO(name(asked));
    CHECK(verdict.status == hpa::Status::unsupported);
    CHECK(verdict.field == field);
    CHECK(verdict.why == "not compiled in; this menu's sets of features: " + sets);
    CHECK(paged.outputs_untouched());
  };
  for (const auto& [feature, field] : features) {
    if (feature != Features::window && feature != Features::sinks)
      refuses(menu_with<TestType, Features::window | Features::sinks>{}, feature, field, "window + sinks");
    if (feature != Features::query_rows) refuses(menu_with<TestType, Features::tree>{}, feature, field, "tree");
  }
  refuses(menu_with<TestType, Features::query_rows>{}, Features::tree, "tree_mask", "query_rows");
  // Each is there, and not together: the later one is named.
  using Apart = typename menu_with<TestType, Features::none>::template with<hpa::feature_sets<Features::window, Features::sinks>>;
  refuses(Apart{}, Features::window | Features::sinks, "sinks", "window, sinks");
}

TEST_CASE("of several sets the smallest that has all that a shape needs is taken", "[feature_sets]") {
  using Sets =
      hpa::feature_sets<Features::all, Features::window | Features::sinks | Features::alibi, Features::sinks, Features::none,
                        Features::window | Features::sinks, Features::window | Features::soft_cap, Features::tree>;
  using Menu = hpa::default_menu::with<hpa::query_types<DType::f16>, hpa::kv_types<DType::f16, DType::i8>, hpa::head_sizes<64>,
                                       hpa::block_sizes<16>, Sets>;
  int taken[256] = {};
  for (unsigned bits = 0; bits < 256; ++bits) {
    DecodeShape shape = case_with(Features(bits), few_seqs, 10, 2).shape;
    shape.max_seq_len = 1000;
    const bool tree = shape.tree_mask;
    const unsigned wanted = tree ? bits : bits & ~32u;  // a bit of tree alone is no feature
    unsigned smallest = 255;
    for (const Features set : Sets::values)
      if ((unsigned(set) & wanted) == wanted && std::bitset<8>(unsigned(set)).count() < std::bitset<8>(smallest).count())
        smallest = unsigned(set);
    int found = 0;
    CHECK(Menu::dispatch(shape, [&](auto config) {
      found += 1, ++taken[unsigned(decltype(config)::features)];
      CHECK(unsigned(decltype(config)::features) == smallest);
    }));
    CHECK(found == 1);
  }
  for (const Features set : Sets::values) CHECK(taken[unsigned(set)] > 0);
  using Equals = Menu::with<hpa::feature_sets<Features::window | Features::sinks, Features::window | Features::alibi>>;
  DecodeShape shape = small_case(DType::f16, 8, 1, {}).shape;
  shape.sliding_window = true;
  Features first = Features::none;
  CHECK(Equals::dispatch(shape, [&](auto config) { first = decltype(config)::features; }));
  CHECK(first == (Features::window | Features::sinks));
}

TEST_CASE("a set of features has a name", "[feature_sets]") {
  const auto text = [](Features set) { return std::string(name(set)); };
  CHECK(text(Features::none) == "none");
  CHECK(text(Features::all) == "all");
  CHECK(text(Features::window | Features::sinks) == "window + sinks");
  CHECK(text(Features::tree) == "tree");
  CHECK(text(Features::query_rows | Features::fp8_out) == "fp8_out + query_rows");
}
