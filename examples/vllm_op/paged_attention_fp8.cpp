// The kernels for FP8 caches, in a source of their own so that they are compiled beside the others.
#include "menus.hpp"

HPA_INSTANTIATE(vllm_op::Fp8Menu);
