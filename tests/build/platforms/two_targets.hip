// One kernel, compiled for a chip that its machine runs on and for one that it does not run on, by one command.
#include "hpa/decode.hpp"

using Config = hpa::Config<64, 16, hpa::DType::bf16>;

hpa::Verdict decode_64(const hpa::DecodeShape& shape, const hpa::DecodeArgs& args, hpa::Workspace workspace, hpa::Stream stream) {
  return hpa::decode_with<Config>(shape, args, workspace, stream);
}
