// The GPU runtime for the benchmarks, HIP and CUDA under one name: memory, streams, and the time of a captured graph.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hpa/device.hpp"

#if defined(HPA_PLATFORM_HIP)
#define BENCH_GPU(name) hip##name
#else
#define BENCH_GPU(name) cuda##name
#endif

namespace bench {

/// 16 bytes that are read once.
__device__ inline uint4 load_once(const uint4* from) {
#if defined(HPA_PLATFORM_CUDA)
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
#else
  return *from;
#endif
}

inline void require(BENCH_GPU(Error_t) error, const char* call) {
  if (error != BENCH_GPU(Success)) throw std::runtime_error(std::string(call) + ": " + BENCH_GPU(GetErrorString)(error));
}

class GpuStream {
 public:
  GpuStream() { require(BENCH_GPU(StreamCreate)(&stream_), "creating a stream"); }
  ~GpuStream() { static_cast<void>(BENCH_GPU(StreamDestroy)(stream_)); }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  operator hpa::Stream() const { return stream_; }
  void synchronize() const { require(BENCH_GPU(StreamSynchronize)(stream_), "waiting for the stream"); }

 private:
  hpa::Stream stream_ = nullptr;
};

template <class T>
class GpuArray {
 public:
  explicit GpuArray(std::size_t size) : size_(size) {
    require(BENCH_GPU(Malloc)(reinterpret_cast<void**>(&data_), std::max<std::size_t>(size, 1) * sizeof(T)),
            "allocating device memory");
  }
  explicit GpuArray(const std::vector<T>& values) : GpuArray(values.size()) {
    require(BENCH_GPU(Memcpy)(data_, values.data(), size_ * sizeof(T), BENCH_GPU(MemcpyHostToDevice)), "copying to the device");
  }
  GpuArray(GpuArray&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  ~GpuArray() { static_cast<void>(BENCH_GPU(Free)(data_)); }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::vector<T> download(std::size_t first, std::size_t count) const {
    std::vector<T> values(count);
    require(BENCH_GPU(Memcpy)(values.data(), data_ + first, count * sizeof(T), BENCH_GPU(MemcpyDeviceToHost)),
            "copying to the host");
    return values;
  }
  void fill(int byte) { require(BENCH_GPU(Memset)(data_, byte, size_ * sizeof(T)), "filling device memory"); }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

/// How much is done for a time to be trusted.
struct Effort {
  double rotated_bytes = 1.25 * (1 << 30);  // that buffers take turns in, so that caches are cold
  double replay_us = 4000;                  // of calls in one graph
  int warm_ups = 2, replays = 9;
};
/// Everything runs and is checked, little of it more than once; the times say nothing.
constexpr Effort only_check{0, 0, 0, 1};

/// Microseconds of one call(i): the median over replays of a graph of many, i going round `sets` sets of buffers so that nothing that
/// is read was read shortly before.
template <class Call>
double microseconds_per_call(const Effort& effort, hpa::Stream stream, int sets, double estimate_us, Call&& call) {
  const int calls = sets * std::max(1, int(effort.replay_us / estimate_us / sets) + 1);
  BENCH_GPU(Graph_t) graph;
  BENCH_GPU(GraphExec_t) executable;
  require(BENCH_GPU(StreamBeginCapture)(stream, BENCH_GPU(StreamCaptureModeThreadLocal)), "starting a capture");
  for (int i = 0; i < calls; ++i) call(i % sets);
  require(BENCH_GPU(StreamEndCapture)(stream, &graph), "ending a capture");
  require(BENCH_GPU(GraphInstantiate)(&executable, graph, nullptr, nullptr, 0), "instantiating a graph");
  BENCH_GPU(Event_t) start, stop;
  require(BENCH_GPU(EventCreate)(&start), "creating an event");
  require(BENCH_GPU(EventCreate)(&stop), "creating an event");
  std::vector<double> times;
  for (int i = 0; i < effort.warm_ups + effort.replays; ++i) {
    require(BENCH_GPU(EventRecord)(start, stream), "recording an event");
    require(BENCH_GPU(GraphLaunch)(executable, stream), "launching a graph");
    require(BENCH_GPU(EventRecord)(stop, stream), "recording an event");
    require(BENCH_GPU(EventSynchronize)(stop), "waiting for an event");
    float milliseconds = 0;
    require(BENCH_GPU(EventElapsedTime)(&milliseconds, start, stop), "reading a time");
    if (i >= effort.warm_ups) times.push_back(1e3 * milliseconds / calls);
  }
  static_cast<void>(BENCH_GPU(EventDestroy)(start));
  static_cast<void>(BENCH_GPU(EventDestroy)(stop));
  static_cast<void>(BENCH_GPU(GraphExecDestroy)(executable));
  static_cast<void>(BENCH_GPU(GraphDestroy)(graph));
  std::nth_element(times.begin(), times.begin() + effort.replays / 2, times.end());
  return times[std::size_t(effort.replays) / 2];
}

}  // namespace bench
