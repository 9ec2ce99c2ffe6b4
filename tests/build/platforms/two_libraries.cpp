// Loads two libraries of the same headers, each for itself, and launches each one's kernel; then again after a reset of the device.
//   two_libraries LIBRARY LIBRARY
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

extern "C" int cudaDeviceReset();

namespace {

bool launches(void* library, const char* when) {
  const auto launch = library == nullptr ? nullptr : reinterpret_cast<const char* (*)()>(dlsym(library, "launch_large"));
  const char* const why = launch == nullptr ? dlerror() : launch();
  std::printf("%s: %s\n", when, *why == '\0' ? "launched" : why);
  return *why == '\0';
}

}  // namespace

int main(int, char** argv) {
  void* const first = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  void* const second = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  bool good = launches(first, "the first library") && launches(second, "the second library");
  good = good && launches(first, "the first again") && cudaDeviceReset() == 0 && launches(second, "after a reset of the device");
  return good ? 0 : 1;
}
