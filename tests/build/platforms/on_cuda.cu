#include "ask.hpp"

Says cuda_says() { return ask(); }
