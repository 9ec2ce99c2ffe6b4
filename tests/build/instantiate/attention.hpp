// What the engine of this test computes with, and that its kernels are compiled elsewhere.
#pragma once

#include "hpa/instantiate.hpp"

using engine_menu =
    hpa::default_menu::with<hpa::query_types<hpa::DType::bf16>, hpa::block_sizes<16>, hpa::feature_sets<hpa::Features::none>>;
HPA_EXTERN(engine_menu);
