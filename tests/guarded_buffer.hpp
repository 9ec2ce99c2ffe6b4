// Memory that shows what a call does outside its bounds: on the host between two unmapped pages, on a device between two canaries.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "hpa/device.hpp"

namespace hpa::test {

/// Which end of a buffer touches an unmapped page.
enum class Guard : std::uint8_t { end, start };

inline constexpr std::uint8_t canary = 0xc5;

inline bool is_canary(const std::uint8_t* begin, const std::uint8_t* end) {
  return std::all_of(begin, end, [](std::uint8_t byte) { return byte == canary; });
}

#if defined(HPA_PLATFORM_HOST)

/// The device is the host: its memory is the host's own, copies are not needed.
class DeviceCopy {
 public:
  DeviceCopy() = default;
  DeviceCopy(std::uint8_t* host, std::size_t) : data_(host) {}
  std::uint8_t* data() const { return data_; }
  void upload() {}
  void download() {}
  bool canary_intact() const { return true; }

 private:
  std::uint8_t* data_ = nullptr;
};

#else

/// The platform's runtime, as far as the copies need it.
struct Runtime {
#if defined(HPA_PLATFORM_HIP)
  static void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    require(hipMalloc(&memory, bytes) == hipSuccess);
    return memory;
  }
  static void release(void* memory) { (void)hipFree(memory); }
  static void to_device(void* to, const void* from, std::size_t bytes) {
    require(hipMemcpy(to, from, bytes, hipMemcpyHostToDevice) == hipSuccess);
  }
  static void to_host(void* to, const void* from, std::size_t bytes) {
    require(hipDeviceSynchronize() == hipSuccess && hipMemcpy(to, from, bytes, hipMemcpyDeviceToHost) == hipSuccess);
  }
#else
  static void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    require(cudaMalloc(&memory, bytes) == cudaSuccess);
    return memory;
  }
  static void release(void* memory) { (void)cudaFree(memory); }
  static void to_device(void* to, const void* from, std::size_t bytes) {
    require(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess);
  }
  static void to_host(void* to, const void* from, std::size_t bytes) {
    require(cudaDeviceSynchronize() == cudaSuccess && cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
  }
#endif

 private:
  static void require(bool done) {
    if (!done) throw std::runtime_error("the runtime refused an allocation or a copy, or a kernel before it failed");
  }
};

/// A buffer's other half in device memory, of the same size, with canaries before and after it.
class DeviceCopy {
 public:
  static constexpr std::size_t margin = 256;

  DeviceCopy() = default;
  DeviceCopy(std::uint8_t* host, std::size_t bytes) : host_(host), image_(bytes + 2 * margin, canary) {
    memory_ = static_cast<std::uint8_t*>(Runtime::allocate(image_.size()));
  }
  DeviceCopy(DeviceCopy&& other) noexcept { swap(other); }
  DeviceCopy& operator=(DeviceCopy&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceCopy() {
    if (memory_ != nullptr) Runtime::release(memory_);
  }

  std::uint8_t* data() const { return memory_ == nullptr ? nullptr : memory_ + margin; }
  void upload() {
    if (memory_ == nullptr) return;
    std::fill(image_.begin(), image_.end(), canary);
    if (size() != 0) std::memcpy(image_.data() + margin, host_, size());
    Runtime::to_device(memory_, image_.data(), image_.size());
  }
  void download() {
    if (memory_ == nullptr) return;
    Runtime::to_host(image_.data(), memory_, image_.size());
    if (size() != 0) std::memcpy(host_, image_.data() + margin, size());
  }
  /// As of the last upload or download.
  bool canary_intact() const {
    const std::uint8_t *const begin = image_.data(), *const end = begin + image_.size();
    return memory_ == nullptr || (is_canary(begin, begin + margin) && is_canary(end - margin, end));
  }

 private:
  std::size_t size() const { return image_.size() - 2 * margin; }
  void swap(DeviceCopy& other) {
    std::swap(host_, other.host_);
    std::swap(memory_, other.memory_);
    image_.swap(other.image_);
  }

  std::uint8_t *host_ = nullptr, *memory_ = nullptr;
  std::vector<std::uint8_t> image_;  // what lies on the device, canaries included
};

#endif

/// Host memory between two unmapped pages, and its copy on the device. What the rounding to whole pages leaves over is filled with
/// a canary.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::size_t bytes, std::size_t alignment, Guard guard) : size_(bytes) {
    const std::size_t page = std::size_t(sysconf(_SC_PAGESIZE));
    pages_size_ = (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
    mapping_size_ = pages_size_ + 2 * page;
    void* mapping = mmap(nullptr, mapping_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<std::uint8_t*>(mapping);
    pages_ = mapping_ + page;
    if (mprotect(pages_, pages_size_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    data_ = guard == Guard::end ? pages_ + (pages_size_ - bytes) / alignment * alignment : pages_;
    std::memset(pages_, canary, pages_size_);
    device_ = DeviceCopy(data_, size_);
  }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() {
    if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
  }

  std::uint8_t* data() { return data_; }
  const std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }
  std::vector<std::uint8_t> bytes() const { return {data_, data_ + size_}; }
  void fill(std::uint8_t byte) {
    if (size_ != 0) std::memset(data_, byte, size_);
  }

  bool canary_intact() const {
    return is_canary(pages_, data_) && is_canary(data_ + size_, pages_ + pages_size_) && device_.canary_intact();
  }

  /// Where kernels find the buffer, and the copies to and from there. On the host that is the buffer itself.
  std::uint8_t* device() const { return device_.data(); }
  template <class T>
  T* device_as() const {
    return reinterpret_cast<T*>(device());
  }
  void upload() { device_.upload(); }
  void download() { device_.download(); }

 private:
  void swap(Buffer& other) {
    std::swap(mapping_, other.mapping_);
    std::swap(mapping_size_, other.mapping_size_);
    std::swap(pages_, other.pages_);
    std::swap(pages_size_, other.pages_size_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(device_, other.device_);
  }

  std::uint8_t *mapping_ = nullptr, *pages_ = nullptr, *data_ = nullptr;
  std::size_t mapping_size_ = 0, pages_size_ = 0, size_ = 0;
  DeviceCopy device_;
};

}  // namespace hpa::test
