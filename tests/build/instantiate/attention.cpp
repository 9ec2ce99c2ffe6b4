// The menu but for one kernel.
#include "attention.hpp"

HPA_EXTERN_KERNEL(hpa::Config<64, 16, hpa::DType::bf16>);
HPA_INSTANTIATE(engine_menu);
