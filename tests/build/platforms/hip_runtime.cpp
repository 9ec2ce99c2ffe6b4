// As much of the HIP runtime as the tests call, for one MI300X. It runs nothing.
#include <hip/hip_runtime_api.h>

#include <cstring>

extern "C" {
hipError_t hipGetDevice(int* ordinal) { return *ordinal = 0, hipSuccess; }
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->gcnArchName, "gfx942:sramecc+:xnack-");
  properties->multiProcessorCount = 304;
  return hipSuccess;
}
const char* hipGetErrorString(hipError_t) { return "an error"; }
hipError_t hipGetLastError() { return hipSuccess; }
hipError_t hipMemcpyAsync(void*, const void*, size_t, hipMemcpyKind, hipStream_t) { return hipSuccess; }
hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
hipError_t hipLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t) { return hipSuccess; }

// What the compiler makes of a launch.
hipError_t __hipPushCallConfiguration(dim3, dim3, size_t, hipStream_t) { return hipSuccess; }
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* lds, hipStream_t* stream) {
  return *grid = *block = dim3(1), *lds = 0, *stream = nullptr, hipSuccess;
}
void** __hipRegisterFatBinary(const void*) {
  static void* handle;
  return &handle;
}
void __hipRegisterFunction(void**, const void*, char*, const char*, unsigned, void*, void*, void*, void*, int*) {}
void __hipUnregisterFatBinary(void**) {}
}
