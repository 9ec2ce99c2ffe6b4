// As much of the CUDA runtime as the tests call, for one device of compute capability 9.0. It runs nothing; it refuses a
// launch of more than 48 KiB of LDS that the kernel was not given before, as a device does.
#include <cstddef>
#include <cstring>
#include <map>

namespace {

constexpr int success = 0, invalid_value = 1, default_lds_bytes = 48 * 1024;
std::map<const void*, std::size_t> lds_bytes;  // what each kernel was given
int error = success;

struct Dim3 {
  unsigned x, y, z;
};
struct Configuration {
  Dim3 grid, block;
  std::size_t lds;
  void* stream;
} configuration;

struct FuncAttributes {
  std::size_t shared, constant, local;
  int max_threads, registers, ptx_version;  // more follow, which nobody asks for
};

int launch(const void* kernel, std::size_t lds) {
  const auto given = lds_bytes.find(kernel);
  return error = lds > (given == lds_bytes.end() ? default_lds_bytes : given->second) ? invalid_value : success;
}

}  // namespace

extern "C" {
int cudaGetDevice(int* ordinal) { return *ordinal = 0, success; }
int cudaDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : 233472;  // 75, 76: capability; 16: multiprocessors
  return success;
}
int cudaDeviceReset() { return lds_bytes.clear(), success; }
int cudaFuncSetAttribute(const void* kernel, int attribute, int value) {
  if (attribute == 8) lds_bytes[kernel] = std::size_t(value);  // cudaFuncAttributeMaxDynamicSharedMemorySize
  return success;
}
int cudaFuncGetAttributes(FuncAttributes* attributes, const void*) { return attributes->ptx_version = 90, success; }
int cudaGetLastError() {
  const int last = error;
  error = success;
  return last;
}
const char* cudaGetErrorString(int) { return "invalid argument"; }
int cudaMemcpyAsync(void*, const void*, std::size_t, int, void*) { return success; }
int cudaStreamSynchronize(void*) { return success; }

// What nvcc makes of a launch. Kernels are known by the address of their stub.
int __cudaGetKernel(const void** handle, const void* kernel) { return *handle = kernel, success; }
int __cudaLaunchKernel(const void* kernel, Dim3, Dim3, void**, std::size_t lds, void*) { return launch(kernel, lds); }
int cudaLaunchKernel(const void* kernel, Dim3, Dim3, void**, std::size_t lds, void*) { return launch(kernel, lds); }
int cudaLaunchKernelExC(const Configuration* c, const void* kernel, void**) { return launch(kernel, c->lds); }
unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, std::size_t lds, void* stream) {
  configuration = {grid, block, lds, stream};
  return 0;
}
int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, std::size_t* lds, void* stream) {
  *grid = configuration.grid, *block = configuration.block, *lds = configuration.lds;
  std::memcpy(stream, &configuration.stream, sizeof(void*));
  return success;
}
void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
}
