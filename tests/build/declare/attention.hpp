// What the engine of this test computes with. Included by its own sources, which no GPU compiler sees, and by the one that has the kernels.
#pragma once

#include "hpa/declare.hpp"

using engine_menu = hpa::default_menu::with<hpa::query_types<hpa::DType::bf16>, hpa::head_sizes<64>, hpa::block_sizes<16>,
                                              hpa::feature_sets<hpa::Features::none>>;
