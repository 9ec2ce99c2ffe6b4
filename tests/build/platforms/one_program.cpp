// Sources of several platforms in one program: each is told of its own device, by its own menu.
#include <cstdio>
#include <cstring>

#include "says.hpp"

namespace {

bool is(const char* platform, const Says& says, hpa::Arch arch, int compute_units, const char* kernels_for) {
  const bool good = says.arch == arch && says.compute_units == compute_units && says.accepts && says.workspace_bytes > 0 &&
                    std::strstr(says.why_not, kernels_for) != nullptr;
  std::printf("%s: %s, %d compute units, %s, \"%s\", %zu bytes\n", platform, name(says.arch), says.compute_units,
              says.accepts ? "accepted" : "refused", says.why_not, says.workspace_bytes);
  return good;
}

}  // namespace

int main() {
  bool good = is("host", host_says(), hpa::Arch::host, 8, "kernels for host");
#if defined(WITH_CUDA)
  good &= is("CUDA", cuda_says(), hpa::Arch::sm90, 132, "kernels for sm_80");
#endif
#if defined(WITH_HIP)
  good &= is("HIP", hip_says(), hpa::Arch::gfx942, 304, "kernels for gfx90a");
#endif
  return good ? 0 : 1;
}
