// Features: what decode kernels can do beyond the plain case, as a set of bits.
#pragma once

#include <cstdint>

#include "hpa/arch/platform.hpp"
#include "hpa/shape.hpp"

namespace hpa {

/// What a decode kernel can do beyond the plain case, which is one query row a sequence that sees all its keys, in and out of one type.
/// A kernel with a feature has it on or off at run time, the same way for a whole launch; what it lacks costs it nothing.
/// A set of them is their union: Features::window | Features::sinks.
enum class Features : std::uint8_t {
  none = 0,
  query_rows = 1 << 0,  // several of a sequence, causal or not
  window = 1 << 1,
  alibi = 1 << 2,
  soft_cap = 1 << 3,
  sinks = 1 << 4,
  tree = 1 << 5 | query_rows,
  fp8_out = 1 << 6,
  token_scales = 1 << 7,  // nothing in kernels for other KV than i8
  all = 0xff
};

HPA_HOST_DEVICE constexpr Features operator|(Features a, Features b) { return Features(std::uint8_t(a) | std::uint8_t(b)); }
HPA_HOST_DEVICE constexpr Features operator&(Features a, Features b) { return Features(std::uint8_t(a) & std::uint8_t(b)); }

/// Whether the set has all of `needed`.
HPA_HOST_DEVICE constexpr bool covers(Features set, Features needed) { return (set & needed) == needed; }
/// Whether the set has any of `some`.
HPA_HOST_DEVICE constexpr bool has_any(Features set, Features some) { return (set & some) != Features::none; }

/// Each of them, in the order in which check() asks for them.
inline constexpr Features each_feature[] = {Features::fp8_out,  Features::query_rows, Features::alibi, Features::window,
                                            Features::soft_cap, Features::sinks,      Features::tree,  Features::token_scales};

/// Whether the shape asks for one feature.
constexpr bool asks_for(const DecodeShape& shape, Features one) {
  switch (one) {
    case Features::fp8_out: return shape.out != shape.query;
    case Features::query_rows: return shape.max_query_len > 1;  // one row sees all keys, in causal order or not
    case Features::alibi: return shape.alibi;
    case Features::window: return shape.sliding_window;
    case Features::soft_cap: return shape.soft_cap;
    case Features::sinks: return shape.sinks;
    case Features::tree: return shape.tree_mask;
    case Features::token_scales: return shape.token_scales;
    default: return false;
  }
}

/// The features that a kernel must have to compute the shape; those up to `last` of each_feature alone, where it is given.
constexpr Features needed(const DecodeShape& shape, Features last = Features::none) {
  Features set = Features::none;
  for (const Features one : each_feature) {
    if (asks_for(shape, one)) set = set | one;
    if (one == last) break;
  }
  return set;
}

/// How many bits a set has: the fewer, the less its kernel does.
constexpr int count(Features set) {
  int bits = 0;
  for (unsigned rest = unsigned(set); rest != 0; rest &= rest - 1) ++bits;
  return bits;
}

/// A set in words.
struct FeaturesName {
  char data[80] = {};
  constexpr operator const char*() const { return data; }
};

constexpr const char* name_of_feature(Features one) {
  switch (one) {
    case Features::none: return "none";
    case Features::query_rows: return "query_rows";
    case Features::window: return "window";
    case Features::alibi: return "alibi";
    case Features::soft_cap: return "soft_cap";
    case Features::sinks: return "sinks";
    case Features::tree: return "tree";
    case Features::fp8_out: return "fp8_out";
    case Features::token_scales: return "token_scales";
    case Features::all: return "all";
  }
  return "?";
}

/// "none", "all", or the features of the set as "window + sinks".
constexpr FeaturesName name(Features set) {
  FeaturesName text;
  int size = 0;
  const auto add = [&](const char* words) {
    while (*words != '\0') text.data[size++] = *words++;
  };
  if (set == Features::none || set == Features::all) {
    add(name_of_feature(set));
    return text;
  }
  for (const Features one : each_feature) {
    if (!covers(set, one) || (one == Features::query_rows && covers(set, Features::tree))) continue;
    if (size > 0) add(" + ");
    add(name_of_feature(one));
  }
  return text;
}

}  // namespace hpa
