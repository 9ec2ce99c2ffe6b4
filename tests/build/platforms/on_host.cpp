#include "ask.hpp"

Says host_says() { return ask(); }
