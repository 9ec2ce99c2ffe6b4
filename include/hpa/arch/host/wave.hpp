// A wave emulated on the CPU: what it does is done for each of its lanes in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hpa/arch/host/products.hpp"
#include "hpa/arch/host/workgroup.hpp"
#include "hpa/arch/machine.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace arch {

template <int Width>
class HostWave : public WaveDefaults<HostWave<Width>> {
  template <class T>
  using Lane = HostLane<T, Width>;

 public:
  HostWave(HostWorkgroup& workgroup, int index) : workgroup_(workgroup), index_(index) {}

  // ids
  int index() const { return index_; }
  int waves() const { return workgroup_.waves(); }
  int workgroup_x() const { return x_; }
  int workgroup_y() const { return y_; }
  int workgroup_z() const { return z_; }
  int workgroups_x() const { return workgroups_x_; }
  void place(int x, int y, int z, int workgroups_x) { x_ = x, y_ = y, z_ = z, workgroups_x_ = workgroups_x; }
  /// Runs the body for every lane; the lane's values are element `lane` of Lane objects.
  template <class Body>
  void each(Body&& body) const {
    for (int lane = 0; lane < Width; ++lane) body(lane);
  }

  // shuffle, ballot
  bool any(const Lane<bool>& condition) const {
    bool found = false;
    for (int lane = 0; lane < Width; ++lane) found |= condition[lane];
    return found;
  }
  int count(const Lane<bool>& condition) const {
    int found = 0;
    for (int lane = 0; lane < Width; ++lane) found += condition[lane];
    return found;
  }
  template <class T, class Source>
  Lane<T> shuffle(const Lane<T>& value, Source&& source) const {
    Lane<T> result;
    for (int lane = 0; lane < Width; ++lane) result[lane] = value[source(lane)];
    return result;
  }
  template <class T>
  T broadcast(const Lane<T>& value, int lane) const {
    return value[lane];
  }

  // memory, LDS, barrier
  template <class T>
  static T load(const void* address) {
    T value;
    std::memcpy(&value, address, sizeof value);
    return value;
  }
  template <class T>
  static void store(void* address, const T& value) {
    std::memcpy(address, &value, sizeof value);
  }
  template <class T>
  static T uniform(const T* address) {
    return load<T>(address);
  }
  static void atomic_min(int* address, int value) {
    int seen = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (value < seen && !__atomic_compare_exchange_n(address, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  }
  static void atomic_add(int* address, int value) { __atomic_fetch_add(address, value, __ATOMIC_RELAXED); }
  std::byte* lds() const { return workgroup_.lds(); }
  /// Four 8x8 matrices of 16-bit elements from LDS; lane l gives the address of row l % 8 of matrix l / 8.
  template <class Address>
  Lane<Words<4>> load_matrices(Address&& address) const {
    static_assert(Width == 32, "of warps");
    Lane<Words<4>> result;
    for (int lane = 0; lane < Width; ++lane)
      for (int matrix = 0; matrix < 4; ++matrix)
        result[lane].word[matrix] = load<std::uint32_t>(address(8 * matrix + lane / 4) + 4 * (lane % 4));
    return result;
  }
  /// Transposes N 8x8 matrices of 16-bit elements. Word i of a lane is two elements of matrix i, in row lane / 4.
  template <int N>
  Lane<Words<N>> transpose_matrices(const Lane<Words<N>>& in) const {
    static_assert(Width == 32, "of warps");
    Lane<Words<N>> result;
    const auto element = [&](int word, int row, int col) { return in[4 * row + col / 2].word[word] >> (16 * (col % 2)) & 0xffffu; };
    for (int lane = 0; lane < Width; ++lane)
      for (int word = 0; word < N; ++word)
        result[lane].word[word] = element(word, 2 * (lane % 4), lane / 4) | element(word, 2 * (lane % 4) + 1, lane / 4) << 16;
    return result;
  }
  void barrier() const { workgroup_.barrier(); }

 private:
  HostWorkgroup& workgroup_;
  int index_, x_ = 0, y_ = 0, z_ = 0, workgroups_x_ = 1;
};

}  // namespace arch
}  // namespace HPA_PLATFORM
}  // namespace hpa
