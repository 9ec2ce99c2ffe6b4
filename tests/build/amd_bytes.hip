// A menu of 8-bit caches as AMD machine code: every format, beside the default menu of amd_menu.hip.
#include "hpa/hpa.hpp"

using hpa::DType;
using BytesMenu =
    hpa::default_menu::with<hpa::query_types<DType::bf16>,
                            hpa::kv_types<DType::e4m3_fnuz, DType::e4m3_ocp, DType::e5m2_ocp, DType::i8>, hpa::block_sizes<16>>;

hpa::Verdict instantiate(const hpa::DecodeShape& shape, const hpa::DecodeArgs& args, hpa::Workspace workspace, hpa::Stream stream) {
  return hpa::decode<BytesMenu>(shape, args, workspace, stream);
}
