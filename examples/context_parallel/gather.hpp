// All-gather of the ranks' parts: through NCCL or RCCL between devices, by copies where all ranks share one.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "rank.hpp"

#if defined(HPA_EXAMPLES_NCCL)
#if defined(HPA_PLATFORM_HIP)
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif
#endif

namespace context_parallel {

/// Ranks that simulate a group on one device.
inline void gather_by_copies(std::vector<Rank>& ranks) {
  std::vector<std::byte> bytes;
  const auto copy = [&](void* to, const void* from, std::size_t size, hpa::Stream to_stream, hpa::Stream from_stream) {
    bytes.resize(size);
    examples::copy_to_host(bytes.data(), from, size, from_stream);
    examples::copy_to_device(to, bytes.data(), size, to_stream);
    examples::synchronize(to_stream);
  };
  for (int from = 0; from < int(ranks.size()); ++from)
    for (int to = 0; to < int(ranks.size()); ++to) {
      if (to == from) continue;
      Rank &source = ranks[std::size_t(from)], &target = ranks[std::size_t(to)];
      copy(target.out(from), source.out(from), source.out_bytes(), target.stream(), source.stream());
      copy(target.lse(from), source.lse(from), source.lse_bytes(), target.stream(), source.stream());
    }
}

#if defined(HPA_EXAMPLES_NCCL)

inline constexpr bool has_nccl = true;

/// A communicator a device, all of this process.
class Communicators {
 public:
  explicit Communicators(int devices) : communicators_(std::size_t(devices)) {
    std::vector<int> ordinals;
    for (int i = 0; i < devices; ++i) ordinals.push_back(i);
    require(ncclCommInitAll(communicators_.data(), devices, ordinals.data()), "ncclCommInitAll");
  }
  ~Communicators() {
    for (ncclComm_t communicator : communicators_) static_cast<void>(ncclCommDestroy(communicator));
  }
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  /// Complete when it returns. Each rank's part is in its place already.
  void gather(std::vector<Rank>& ranks) {
    require(ncclGroupStart(), "ncclGroupStart");
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      Rank& rank = ranks[i];
      const auto all_gather = [&](void* own, void* all, std::size_t bytes) {
        require(ncclAllGather(own, all, bytes, ncclUint8, communicators_[i], rank.stream()), "ncclAllGather");
      };
      all_gather(rank.out(int(i)), rank.out(0), rank.out_bytes());
      all_gather(rank.lse(int(i)), rank.lse(0), rank.lse_bytes());
    }
    require(ncclGroupEnd(), "ncclGroupEnd");
    for (const Rank& rank : ranks) examples::synchronize(rank.stream());
  }

 private:
  static void require(ncclResult_t result, const char* call) {
    if (result != ncclSuccess) throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(result));
  }
  std::vector<ncclComm_t> communicators_;
};

inline void gather_by_nccl(std::vector<Rank>& ranks) { Communicators(int(ranks.size())).gather(ranks); }

#else

inline constexpr bool has_nccl = false;
inline void gather_by_nccl(std::vector<Rank>&) { throw std::logic_error("this program was built without NCCL or RCCL"); }

#endif

}  // namespace context_parallel
