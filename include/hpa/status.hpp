// The answer of every call: yes, or no with the field and the reason.
#pragma once

#include <cstdint>

namespace hpa {

enum class Status : std::uint8_t {
  ok,
  invalid_argument,     // the input contradicts itself or the API's contract
  unsupported,          // well formed, but no kernel for it is compiled in
  workspace_too_small,  // Workspace::bytes is below workspace_bytes()
  device_error          // the runtime refused; `why` is its own text
};

constexpr const char* name(Status status) {
  switch (status) {
    case Status::ok: return "ok";
    case Status::invalid_argument: return "invalid_argument";
    case Status::unsupported: return "unsupported";
    case Status::workspace_too_small: return "workspace_too_small";
    case Status::device_error: return "device_error";
  }
  return "unknown";
}

/// True when the call did, or can do, what was asked. Otherwise `field` is the member of DecodeShape, DecodeArgs or
/// Workspace at fault and `why` says what it must be. Both are static text: nothing to free, nothing allocated.
struct [[nodiscard]] Verdict {
  Status status = Status::ok;
  const char* field = "";
  const char* why = "";

  constexpr explicit operator bool() const { return status == Status::ok; }
};

}  // namespace hpa
