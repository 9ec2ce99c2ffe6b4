// One configuration as AMD machine code, for a look at other options of the compiler than the menus' -O3.
#include "hpa/hpa.hpp"

using OneMenu = hpa::default_menu::with<hpa::query_types<hpa::DType::bf16>, hpa::head_sizes<64>, hpa::block_sizes<16>,
                                        hpa::feature_sets<hpa::Features::none>>;

hpa::Verdict instantiate(const hpa::DecodeShape& shape, const hpa::DecodeArgs& args, hpa::Workspace workspace, hpa::Stream stream) {
  return hpa::decode<OneMenu>(shape, args, workspace, stream);
}
