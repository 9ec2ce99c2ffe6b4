// A shared library with a kernel of more than 48 KiB of LDS, as each extension module of an engine may be one.
#include "hpa/arch/launch.hpp"

struct LargeKernel {
  using Machine = hpa::arch::DefaultMachine;
  struct Params {
    int* out;
  };
  static constexpr int waves = 1, lds_bytes = 64 * 1024;
  static HPA_DEVICE void run(Machine::Wave& wave, const Params& params) { *params.out = wave.index(); }
};

/// Why the launch failed; nothing when it did not.
extern "C" const char* launch_large() {
  const hpa::Verdict verdict = hpa::arch::launch<LargeKernel>({1}, {nullptr}, nullptr);
  return verdict ? "" : verdict.why;
}
