// Decode of one layer, by named workload, beside the time that reading the same blocks takes. Caches are cold by rotation, times come
// from graph replay. For outputs that do not match the reference no time is printed, and the exit status is 1.
//
//   bench_decode [--shape=HEADS/KV_HEADSxHEAD_SIZE,SEQUENCES,TOKENS ..] [--benchmark_filter=W3] [--benchmark_out=FILE.json ..]
//   --only-check: everything runs and is checked, the times say nothing
#include <benchmark/benchmark.h>

#include <cstring>
#include <exception>

#include "problem.hpp"

namespace bench {

/// The largest error that rounding explains: inputs are exact, products are summed in fp32, probabilities and outputs are rounded.
constexpr double tolerance(hpa::DType type) { return type == hpa::DType::bf16 ? 6e-3 : 1e-3; }

template <hpa::DType Type>
void measure(benchmark::State& state, const Workload& workload, const Effort& effort) {
  Problem<Type> problem(workload, effort);
  hpa::Device device;
  if (hpa::Verdict v = hpa::current_device(&device); !v) throw std::runtime_error(v.why);
  problem.plan();
  double error = problem.error();
  if (!(error < tolerance(Type))) throw std::runtime_error("the output is off by " + std::to_string(error));
  const double floor_us = problem.floor_us(device.compute_units);
  const double decode_us = problem.decode_us(std::max(5.0, 1.05 * floor_us));
  error = std::max(error, problem.error_after_timing());
  if (!(error < tolerance(Type))) throw std::runtime_error("the output is off by " + std::to_string(error) + " after timing");
  for (auto _ : state) state.SetIterationTime(decode_us * 1e-6);
  state.counters["floor_us"] = floor_us;
  state.counters["of_floor"] = floor_us / decode_us;
  state.counters["GB_per_s"] = problem.kv_bytes() / decode_us / 1e3;
  state.counters["plan_us"] = problem.plan_us();
  state.counters["workspace_MiB"] = double(problem.workspace_bytes()) / (1 << 20);
  state.counters["error"] = error;
}

template <hpa::DType Type>
void add(const Workload& workload, const Effort& effort, bool& failed) {
  benchmark::RegisterBenchmark((workload.name + "/" + hpa::name(Type)).c_str(),
                               [workload, effort, &failed](benchmark::State& state) {
                                 try {
                                   measure<Type>(state, workload, effort);
                                 } catch (const std::exception& failure) {
                                   failed = true;
                                   state.SkipWithError(failure.what());
                                 }
                               })
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace bench

int main(int argc, char** argv) {
  std::vector<bench::Workload> workloads;
  std::vector<char*> others{argv[0]};
  bench::Effort effort;
  bool failed = false;
  constexpr const char* shape_flag = "--shape=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], shape_flag, std::strlen(shape_flag)) == 0)
      workloads.push_back(bench::parse_workload(argv[i] + std::strlen(shape_flag)));
    else if (std::strcmp(argv[i], "--only-check") == 0) effort = bench::only_check;
    else others.push_back(argv[i]);
  }
  if (workloads.empty()) workloads = bench::named_workloads();
  for (const bench::Workload& workload : workloads) {
    bench::add<hpa::DType::bf16>(workload, effort, failed);
    bench::add<hpa::DType::f16>(workload, effort, failed);
  }
  int count = int(others.size());
  benchmark::Initialize(&count, others.data());
  if (benchmark::ReportUnrecognizedArguments(count, others.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return failed ? 1 : 0;
}
