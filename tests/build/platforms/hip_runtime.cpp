// As much of the HIP runtime as the program of this folder calls, for one MI300X.
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
}
