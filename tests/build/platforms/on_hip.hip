#include "ask.hpp"

Says hip_says() { return ask(); }
