// plan, reduce, append, copy_blocks and merge_states.
#include "kernels.hpp"

HPA_TEST_OTHERS(INSTANTIATE, HPA_TEST_MACHINE);
