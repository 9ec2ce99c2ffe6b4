// One configuration as AMD machine code, for a look at other options of the compiler than the menus' -O3.
#include "hpa/hpa.hpp"

using hpa::axis;
using OneMenu = hpa::menu_for<axis<hpa::DType::bf16>, axis<64>, axis<16>, axis<hpa::Features::plain>, axis<hpa::DType::bf16>>;

hpa::Verdict instantiate(const hpa::DecodeShape& shape, const hpa::DecodeArgs& args, hpa::Workspace workspace, hpa::Stream stream) {
  return hpa::decode<OneMenu>(shape, args, workspace, stream);
}
