// What the engine of this test computes with, and that its kernels are compiled elsewhere.
#pragma once

#include "hpa/instantiate.hpp"

using engine_menu = hpa::menu_for<hpa::axis<hpa::DType::bf16>, hpa::axis<64, 128>, hpa::axis<16>, hpa::axis<hpa::Features::plain>>;
HPA_EXTERN(engine_menu);
