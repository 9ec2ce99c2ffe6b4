// The one kernel that attention.cpp leaves out.
#include "hpa/instantiate.hpp"

HPA_INSTANTIATE_KERNEL(hpa::Config<64, 16, hpa::DType::bf16>);
