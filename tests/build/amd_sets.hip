// The menu of a model with windows and sinks and nothing else (gpt-oss) as AMD machine code, beside amd_menu.hip's none and all.
#include "hpa/hpa.hpp"

using hpa::DType;
using hpa::Features;
using SetsMenu = hpa::default_menu::with<hpa::query_types<DType::bf16>, hpa::head_sizes<64>, hpa::block_sizes<16>,
                                         hpa::feature_sets<Features::window | Features::sinks>>;

hpa::Verdict instantiate(const hpa::DecodeShape& shape, const hpa::DecodeArgs& args, hpa::Workspace workspace, hpa::Stream stream) {
  return hpa::decode<SetsMenu>(shape, args, workspace, stream);
}
