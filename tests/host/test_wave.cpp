// The emulated machine: what a wave, a workgroup and a grid do on the host, at both widths and from one wave to several.
#include "hpa/arch/host/machine.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "catch.hpp"
#include "hpa/kernel/block_scan.hpp"

// Sanitizers need more address space than one test leaves.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HPA_TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HPA_TEST_SANITIZED
#endif
#endif

using hpa::DType;
using hpa::Status;
using hpa::arch::Cdna;
using hpa::arch::Grid;
using hpa::arch::HostMachine;
using hpa::arch::Nvidia;
using hpa::arch::run_on_host;

namespace {

/// Something to add up: sums, and a maximum.
struct Counts {
  std::int64_t tokens;
  std::int32_t items, partials, split_rows, row_end;
  constexpr Counts operator+(const Counts& o) const {
    return {tokens + o.tokens, items + o.items, partials + o.partials, split_rows + o.split_rows,
            row_end > o.row_end ? row_end : o.row_end};
  }
};

template <class Of, int Waves>
struct Workgroup {
  using Machine = HostMachine<Of>;
  static constexpr int waves = Waves;
};

using Workgroups = std::tuple<Workgroup<Cdna, 1>, Workgroup<Cdna, 2>, Workgroup<Cdna, 5>, Workgroup<Nvidia, 1>,
                              Workgroup<Nvidia, 3>, Workgroup<Nvidia, 8>>;

/// What kernels of one workgroup shape have in common.
template <class W, int LdsBytes>
struct KernelOf {
  using Machine = typename W::Machine;
  using Wave = typename Machine::Wave;
  template <class T>
  using Lane = typename Machine::template Lane<T>;
  static constexpr int waves = W::waves, lds_bytes = LdsBytes, width = Machine::width;
  static int thread_of(const Wave& wave, int lane) { return wave.index() * width + lane; }
};

/// Scans as many values as `used`, the rest of the workgroup holding zeros; workgroup x scans values x * used and on.
template <class W, class T>
struct ScanKernel : KernelOf<W, int(sizeof(T)) * W::waves> {
  struct Params {
    const T* in;
    T* out;
    T* totals;  // [workgroup, wave]
    int used;
  };
  static void run(typename W::Machine::Wave& wave, const Params& p) {
    typename ScanKernel::template Lane<T> value;
    const auto at = [&](int lane) { return wave.workgroup_x() * p.used + ScanKernel::thread_of(wave, lane); };
    const auto is_used = [&](int lane) { return ScanKernel::thread_of(wave, lane) < p.used; };
    wave.each([&](int lane) { value[lane] = is_used(lane) ? p.in[at(lane)] : T{}; });
    const T total =
        hpa::kernel::exclusive_scan_by_waves<typename W::Machine, T, W::waves>(wave, value, reinterpret_cast<T*>(wave.lds()));
    wave.each([&](int lane) {
      if (is_used(lane)) p.out[at(lane)] = value[lane];
    });
    p.totals[wave.workgroup_x() * W::waves + wave.index()] = total;
  }
};

bool same(const Counts& a, const Counts& b) {
  return a.tokens == b.tokens && a.items == b.items && a.partials == b.partials && a.split_rows == b.split_rows &&
         a.row_end == b.row_end;
}

/// Finds LDS as another kernel may have left it, and leaves zeros.
template <class W>
struct LdsKernel : KernelOf<W, 4096> {
  struct Params {
    int* not_nan;  // [workgroup]
  };
  static void run(typename W::Machine::Wave& wave, const Params& p) {
    if (wave.index() == 0)
      for (int i = 0; i < LdsKernel::lds_bytes / 4; ++i) {
        const float found = wave.template load<float>(wave.lds() + 4 * i);
        p.not_nan[wave.workgroup_x()] += found == found;
        wave.store(wave.lds() + 4 * i, 0.f);
      }
  }
};

/// Passes numbers round the waves through LDS: each round ends with every wave holding what its neighbour held.
template <class W>
struct RingKernel : KernelOf<W, W::waves * 4> {
  struct Params {
    int rounds;
    int* held;  // [wave]
  };
  static void run(typename W::Machine::Wave& wave, const Params& p) {
    int* const lds = reinterpret_cast<int*>(wave.lds());
    int held = wave.index();
    for (int round = 0; round < p.rounds; ++round) {
      lds[wave.index()] = held;
      wave.barrier();
      held = lds[(wave.index() + 1) % wave.waves()];
      wave.barrier();
    }
    p.held[wave.index()] = held;
  }
};

/// Counts visits of each place of the grid; an atomic keeps the smallest of a number that falls with every thread.
template <class W>
struct GridKernel : KernelOf<W, 0> {
  struct Params {
    Grid grid;
    int* visits;  // [z, y, x, wave]
    int* smallest;
  };
  static void run(typename W::Machine::Wave& wave, const Params& p) {
    const int workgroup = (wave.workgroup_z() * p.grid.y + wave.workgroup_y()) * p.grid.x + wave.workgroup_x();
    p.visits[workgroup * W::waves + wave.index()] += wave.workgroups_x() == p.grid.x && wave.waves() == W::waves;
    wave.each(
        [&](int lane) { wave.atomic_min(p.smallest, 1000000 - workgroup * W::waves * 64 - GridKernel::thread_of(wave, lane)); });
  }
};

template <class W>
struct LaneKernel : KernelOf<W, 0> {
  struct Params {
    int* wrong;  // [wave]
  };
  static void run(typename W::Machine::Wave& wave, const Params& p) {
    constexpr int width = LaneKernel::width;
    int wrong = 0, visited = 0;
    typename LaneKernel::template Lane<std::int64_t> value;
    wave.each([&](int lane) {
      wrong += lane != visited++;
      value[lane] = 1000 * wave.index() + lane;
    });
    wrong += visited != width;
    for (int distance = 0; distance < width; ++distance) {
      const auto exchanged = wave.shuffle(value, [&](int lane) { return lane ^ distance; });
      const auto rotated = wave.shuffle(value, [&](int lane) { return (lane + distance) % width; });
      const auto broadcast = wave.shuffle(value, [&](int) { return distance; });
      typename LaneKernel::template Lane<bool> one;
      wave.each([&](int lane) {
        wrong += exchanged[lane] != 1000 * wave.index() + (lane ^ distance);
        wrong += rotated[lane] != 1000 * wave.index() + (lane + distance) % width;
        wrong += broadcast[lane] != 1000 * wave.index() + distance;
        one[lane] = lane == distance;
      });
      wrong += !wave.any(one);
      one[distance] = false;
      wrong += wave.any(one);
    }
    p.wrong[wave.index()] = wrong;
  }
};

}  // namespace

TEMPLATE_LIST_TEST_CASE("shuffle and any act on whole waves", "[wave]", Workgroups) {
  std::vector<int> wrong(std::size_t(TestType::waves), -1);
  REQUIRE(run_on_host<LaneKernel<TestType>>({1}, {wrong.data()}, 0));
  CHECK(wrong == std::vector<int>(wrong.size(), 0));
}

TEMPLATE_LIST_TEST_CASE("a workgroup's scan is the serial sum", "[wave]", Workgroups) {
  constexpr int threads = TestType::waves * TestType::Machine::width, workgroups = 3;
  std::mt19937 random(5);
  int wrong = 0, wrong_total = 0;
  for (int used = 1; used <= threads; used += used < 70 ? 1 : 13) {
    std::vector<Counts> in(std::size_t(workgroups * used)), out(in.size()), totals(std::size_t(workgroups * TestType::waves));
    for (Counts& value : in)
      value = {std::int64_t(random()) << 20, int(random() % 1000), int(random() % 1000), int(random() % 2), int(random() % 5000)};
    REQUIRE(run_on_host<ScanKernel<TestType, Counts>>({workgroups}, {in.data(), out.data(), totals.data(), used}, 2));
    for (int workgroup = 0; workgroup < workgroups; ++workgroup) {
      Counts sum{};
      for (int i = 0; i < used; ++i) {
        wrong += !same(out[std::size_t(workgroup * used + i)], sum);
        const Counts& value = in[std::size_t(workgroup * used + i)];
        sum.tokens += value.tokens, sum.items += value.items, sum.partials += value.partials, sum.split_rows += value.split_rows;
        sum.row_end = std::max(sum.row_end, value.row_end);
      }
      for (int wave = 0; wave < TestType::waves; ++wave)
        wrong_total += !same(totals[std::size_t(workgroup * TestType::waves + wave)], sum);
    }
  }
  CHECK(wrong == 0);
  CHECK(wrong_total == 0);
}

TEMPLATE_LIST_TEST_CASE("LDS starts as NaN for every workgroup", "[wave]", Workgroups) {
  // One team of threads serves all workgroups, so that each but the first finds another's LDS.
  std::vector<int> not_nan(7, 0);
  REQUIRE(run_on_host<LdsKernel<TestType>>({int(not_nan.size())}, {not_nan.data()}, 1));
  CHECK(not_nan == std::vector<int>(not_nan.size(), 0));
}

TEMPLATE_LIST_TEST_CASE("nobody passes a barrier before all have come", "[wave]", Workgroups) {
  for (const int rounds : {1, 2, 1001}) {
    std::vector<int> held(std::size_t(TestType::waves), -1);
    REQUIRE(run_on_host<RingKernel<TestType>>({1}, {rounds, held.data()}, 0));
    for (int wave = 0; wave < TestType::waves; ++wave) CHECK(held[std::size_t(wave)] == (wave + rounds) % TestType::waves);
  }
}

TEMPLATE_LIST_TEST_CASE("every workgroup of the grid runs once, whatever runs beside it", "[wave]", Workgroups) {
  for (const int threads : {0, 1, 3, 100})
    for (const Grid grid : {Grid{1, 1, 1}, Grid{5, 1, 1}, Grid{1, 4, 1}, Grid{1, 1, 3}, Grid{4, 3, 2}}) {
      const int workgroups = grid.x * grid.y * grid.z;
      std::vector<int> visits(std::size_t(workgroups * TestType::waves), 0);
      int smallest = std::numeric_limits<int>::max();
      REQUIRE(run_on_host<GridKernel<TestType>>(grid, {grid, visits.data(), &smallest}, threads));
      CHECK(visits == std::vector<int>(visits.size(), 1));
      const int last_thread = TestType::waves * TestType::Machine::width - 1;
      CHECK(smallest == 1000000 - (workgroups - 1) * TestType::waves * 64 - last_thread);
    }
}

#if !defined(HPA_TEST_SANITIZED)
TEST_CASE("threads that cannot be started are a verdict", "[wave]") {
  // In a process of its own, which has memory for a few stacks only.
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit limit{rlim_t{100} << 20, rlim_t{100} << 20};
    setrlimit(RLIMIT_AS, &limit);
    const hpa::Verdict verdict = run_on_host<RingKernel<Workgroup<Cdna, 8>>>({64}, {1, std::vector<int>(8).data()}, 512);
    _exit(verdict.status == Status::device_error && std::string(verdict.field) == "stream" ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
#endif

TEMPLATE_TEST_CASE("two numbers are packed into a register, the first below", "[wave]", HostMachine<Cdna>, HostMachine<Nvidia>) {
  for (const float low : {0.f, 1.f, -2.5f, 65504.f, 1e-7f, 0.1f})
    for (const float high : {0.f, -1.f, 0.3333333f, 1e30f}) {
      CHECK(TestType::template pack<DType::f16>(low, high) ==
            (hpa::Format<DType::f16>::encode(low) | hpa::Format<DType::f16>::encode(high) << 16));
      CHECK(TestType::template pack<DType::bf16>(low, high) ==
            (hpa::Format<DType::bf16>::encode(low) | hpa::Format<DType::bf16>::encode(high) << 16));
    }
}
