// Turns the library's "no" into an exception, for programs that cannot go on without a "yes".
#pragma once

#include <stdexcept>
#include <string>

#include "hpa/status.hpp"

namespace examples {

inline std::string describe(const hpa::Verdict& verdict) {
  return std::string(hpa::name(verdict.status)) + ": " + verdict.field + ": " + verdict.why;
}

inline void require(const hpa::Verdict& verdict, const char* call) {
  if (!verdict) throw std::runtime_error(std::string(call) + ": " + describe(verdict));
}

}  // namespace examples
