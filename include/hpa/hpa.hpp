// hip-paged-attention: attention over a paged KV cache, for the decode step of LLM inference engines.
#pragma once

#include "hpa/args.hpp"
#include "hpa/cache.hpp"
#include "hpa/check.hpp"
#include "hpa/config.hpp"
#include "hpa/decode.hpp"
#include "hpa/device.hpp"
#include "hpa/menu.hpp"
#include "hpa/merge.hpp"
#include "hpa/plan.hpp"
#include "hpa/reference.hpp"
#include "hpa/shape.hpp"
#include "hpa/status.hpp"
#include "hpa/types.hpp"
#include "hpa/vllm.hpp"
#include "hpa/workspace.hpp"
