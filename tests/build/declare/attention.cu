// The menu's calls and kernels; as HIP, as CUDA, and as plain C++ on the host.
#include "attention.hpp"
#include "hpa/instantiate.hpp"

HPA_INSTANTIATE(engine_menu);
