// Device memory, copies and streams for the examples: the only place where they know the platform.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "hpa/device.hpp"

#if defined(HPA_PLATFORM_HOST)
#include <cstring>
#include <new>
#endif

namespace examples {

#if defined(HPA_PLATFORM_HOST)

inline constexpr std::align_val_t device_alignment{256};  // what GPU allocators give

inline void* allocate(std::size_t bytes) { return ::operator new(bytes, device_alignment); }
inline void release(void* memory) noexcept { ::operator delete(memory, device_alignment); }
inline void copy_to_device(void* to, const void* from, std::size_t bytes, hpa::Stream) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
inline void copy_to_host(void* to, const void* from, std::size_t bytes, hpa::Stream) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
inline void fill_bytes(void* memory, int byte, std::size_t bytes, hpa::Stream) {
  if (bytes != 0) std::memset(memory, byte, bytes);
}
inline hpa::Stream create_stream() { return {}; }
inline void destroy_stream(hpa::Stream) noexcept {}
inline void synchronize(hpa::Stream) {}
inline int device_count() { return 1; }
inline void use_device(int) {}

#else  // HIP and CUDA: one runtime under two prefixes

#if defined(HPA_PLATFORM_HIP)
#define EXAMPLES_RUNTIME(name) hip##name
#else
#define EXAMPLES_RUNTIME(name) cuda##name
#endif

inline void require_success(EXAMPLES_RUNTIME(Error_t) error, const char* call) {
  if (error != EXAMPLES_RUNTIME(Success))
    throw std::runtime_error(std::string(call) + ": " + EXAMPLES_RUNTIME(GetErrorString)(error));
}

inline void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  require_success(EXAMPLES_RUNTIME(Malloc)(&memory, bytes), "allocating device memory");
  return memory;
}
inline void release(void* memory) noexcept { static_cast<void>(EXAMPLES_RUNTIME(Free)(memory)); }
/// Ordered on the stream; `from` is pageable and may be reused when the call returns.
inline void copy_to_device(void* to, const void* from, std::size_t bytes, hpa::Stream stream) {
  require_success(EXAMPLES_RUNTIME(MemcpyAsync)(to, from, bytes, EXAMPLES_RUNTIME(MemcpyHostToDevice), stream),
                  "copying to the device");
}
/// Complete when the call returns.
inline void copy_to_host(void* to, const void* from, std::size_t bytes, hpa::Stream stream) {
  require_success(EXAMPLES_RUNTIME(MemcpyAsync)(to, from, bytes, EXAMPLES_RUNTIME(MemcpyDeviceToHost), stream),
                  "copying to the host");
  require_success(EXAMPLES_RUNTIME(StreamSynchronize)(stream), "copying to the host");
}
inline void fill_bytes(void* memory, int byte, std::size_t bytes, hpa::Stream stream) {
  require_success(EXAMPLES_RUNTIME(MemsetAsync)(memory, byte, bytes, stream), "filling device memory");
}
inline hpa::Stream create_stream() {
  hpa::Stream stream{};
  require_success(EXAMPLES_RUNTIME(StreamCreate)(&stream), "creating a stream");
  return stream;
}
inline void destroy_stream(hpa::Stream stream) noexcept { static_cast<void>(EXAMPLES_RUNTIME(StreamDestroy)(stream)); }
inline void synchronize(hpa::Stream stream) {
  require_success(EXAMPLES_RUNTIME(StreamSynchronize)(stream), "waiting for the stream");
}
inline int device_count() {
  int count = 0;
  require_success(EXAMPLES_RUNTIME(GetDeviceCount)(&count), "counting devices");
  return count;
}
/// Allocations, streams and calls of this thread are that device's from here on.
inline void use_device(int ordinal) { require_success(EXAMPLES_RUNTIME(SetDevice)(ordinal), "choosing a device"); }

#undef EXAMPLES_RUNTIME

#endif

/// A stream of its own, destroyed with the object. Converts to the handle that the library takes.
class DeviceStream {
 public:
  DeviceStream() : stream_(create_stream()) {}
  ~DeviceStream() { destroy_stream(stream_); }
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  operator hpa::Stream() const { return stream_; }
  void synchronize() const { examples::synchronize(stream_); }

 private:
  hpa::Stream stream_;
};

/// An array on the device, freed with the object. Copies are ordered on the stream given, the default stream if none is.
template <class T>
class DeviceArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t size) : data_(static_cast<T*>(allocate(size * sizeof(T)))), size_(size) {}
  explicit DeviceArray(const std::vector<T>& values, hpa::Stream stream = {}) : DeviceArray(values.size()) {
    upload(values, stream);
  }
  ~DeviceArray() {
    if (data_ != nullptr) release(data_);
  }
  DeviceArray(DeviceArray&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }

  /// Writes `values` to the array's beginning.
  void upload(const std::vector<T>& values, hpa::Stream stream = {}) {
    if (values.size() > size_) throw std::out_of_range("DeviceArray::upload: more values than the array holds");
    copy_to_device(data_, values.data(), values.size() * sizeof(T), stream);
  }
  std::vector<T> download(hpa::Stream stream = {}) const { return download(0, size_, stream); }
  std::vector<T> download(std::size_t first, std::size_t count, hpa::Stream stream = {}) const {
    if (first > size_ || count > size_ - first) throw std::out_of_range("DeviceArray::download: beyond the array's end");
    std::vector<T> values(count);
    copy_to_host(values.data(), data_ + first, count * sizeof(T), stream);
    return values;
  }
  void fill(int byte, hpa::Stream stream = {}) { fill_bytes(data_, byte, bytes(), stream); }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace examples
