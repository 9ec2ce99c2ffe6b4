// What the engine of this test computes with. Included by its own sources, which no GPU compiler sees, and by the one that has the kernels.
#pragma once

#include "hpa/declare.hpp"

using engine_menu = hpa::menu_for<hpa::axis<hpa::DType::bf16>, hpa::axis<64>, hpa::axis<16>, hpa::axis<hpa::Features::plain>>;
