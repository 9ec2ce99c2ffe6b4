// Asynchronous copies emulated: nothing arrives before it is waited for, and until then the place in LDS holds NaN.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstring>

#include "hpa/arch/async_copy.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

template <int Stages, class... Strips>
class HostCopies {
 public:
  static constexpr int bookkeeping_bytes = 0;

  template <class Wave>
  HostCopies(const Wave&, std::byte*) {}

  template <int I, class Wave, class Sources>
  void request(const Wave& wave, int stage, std::byte* to, const Sources& from, int lane) {
    constexpr std::size_t bytes[] = {std::size_t(Strips::bytes)...};
    assert(pending_[stage].to[I] == nullptr && "the stage was requested twice without a wait");
    pending_[stage].to[I] = to;
    pending_[stage].from[I] = wave.broadcast(from, lane);
    std::memset(to, 0xff, bytes[I]);
  }
  void pass(int) {}

  template <class Wave>
  void wait(const Wave&, int stage) {
    std::size_t strip = 0;
    ((arrive<Strips>(pending_[stage].to[strip], pending_[stage].from[strip]), ++strip), ...);
    pending_[stage] = {};
  }

 private:
  struct Request {
    std::array<std::byte*, sizeof...(Strips)> to{};
    std::array<const char*, sizeof...(Strips)> from{};
  };

  template <class Strip>
  static void arrive(std::byte* to, const char* from) {
    assert(to != nullptr && "waiting for what was not requested");
    for (int vector = 0; vector < Strip::vectors; ++vector) std::memcpy(to + 16 * vector, from + Strip::source_of(vector), 16);
  }

  std::array<Request, Stages> pending_{};
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
