// A buffer's copy in device memory. On the host platform there is none.
#pragma once

#include "hpa/arch/arch.hpp"

#if !defined(HPA_PLATFORM_HOST)

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#if defined(HPA_PLATFORM_HIP)
#define HPA_TEST_GPU(name) hip##name
#else
#define HPA_TEST_GPU(name) cuda##name
#endif

namespace hpa::test {

/// Exactly as many bytes as the buffer has, so that a memory checker sees every access beyond them.
class DeviceCopy {
 public:
  DeviceCopy() = default;
  DeviceCopy(const DeviceCopy&) = delete;
  ~DeviceCopy() {
    if (data_ != nullptr) static_cast<void>(HPA_TEST_GPU(Free)(data_));
  }
  void swap(DeviceCopy& other) { std::swap(data_, other.data_); }

  std::uint8_t* of_size(std::size_t size) {
    if (data_ == nullptr && size != 0) require(HPA_TEST_GPU(Malloc)(reinterpret_cast<void**>(&data_), size));
    return data_;
  }
  void upload(const void* from, std::size_t size) {
    if (size != 0) require(HPA_TEST_GPU(Memcpy)(of_size(size), from, size, HPA_TEST_GPU(MemcpyHostToDevice)));
  }
  void download(void* to, std::size_t size) {
    if (size != 0) require(HPA_TEST_GPU(Memcpy)(to, of_size(size), size, HPA_TEST_GPU(MemcpyDeviceToHost)));
  }

 private:
  static void require(HPA_TEST_GPU(Error_t) error) {
    if (error != HPA_TEST_GPU(Success)) throw std::runtime_error(std::string("device memory: ") + HPA_TEST_GPU(GetErrorString)(error));
  }
  std::uint8_t* data_ = nullptr;
};

}  // namespace hpa::test

#undef HPA_TEST_GPU

#endif
