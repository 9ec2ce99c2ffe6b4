// Decode of one layer, by named workload, beside the time that reading the same blocks takes. Caches are cold by rotation, times come
// from graph replay. For outputs that do not match the reference no time is printed, and the exit status is 1.
//
//   bench_decode [--shape=HEADS/KV_HEADSxHEAD_SIZE,SEQUENCES,TOKENS ..] [--sweep] [--benchmark_filter=W3] [--benchmark_out=FILE.json ..]
//
// --features=window+sinks or --features=all: bf16 by the kernels that have these features, all of them off.
// --sweep: by tokens from 128 to 131072 with 16 sequences, and by sequences from 1 to 256 with 2048 tokens. bench/plot draws the JSON.
// --only-check: everything runs and is checked, the times say nothing.
#include <benchmark/benchmark.h>

#include <cstring>
#include <exception>

#include "problem.hpp"

namespace bench {

/// The largest error that rounding explains: inputs are exact, products are summed in fp32, probabilities and outputs are rounded.
constexpr double tolerance(hpa::DType type) { return type == hpa::DType::bf16 ? 6e-3 : 1e-3; }

/// The FP8 type of the workloads that have it: what the chip converts by itself.
#if defined(HPA_PLATFORM_HIP)
constexpr hpa::DType fp8 = hpa::DType::e4m3_fnuz;
#else
constexpr hpa::DType fp8 = hpa::DType::e4m3_ocp;
#endif

constexpr Variant variants[] = {{"", hpa::Split::by_length, false},
                                {"/balanced", hpa::Split::balanced, false},
                                {"/cache_is_ready", hpa::Split::by_length, true},
                                {"/balanced/cache_is_ready", hpa::Split::balanced, true}};

template <hpa::DType Type, hpa::DType Kv, hpa::Features Can>
void measure(benchmark::State& state, const Workload& workload, const Variant& variant, const Effort& effort) {
  Problem<Type, Kv, Can> problem(workload, variant, effort);
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
  if constexpr (Problem<Type, Kv, Can>::Menu::Machine::copies_to_lds) {
    problem.plan();
    state.counters["idle_workgroups"] = problem.idle_workgroups();
  }
  state.counters["error"] = error;
}

template <hpa::DType Type, hpa::DType Kv = Type, hpa::Features Can = hpa::Features::none>
void add(const Workload& workload, const Variant& variant, const Effort& effort, bool& failed) {
  const std::string types = Kv == Type ? hpa::name(Type) : std::string(hpa::name(Type)) + "_kv_" + hpa::name(Kv);
  const std::string features = Can == hpa::Features::none ? "" : Can == hpa::Features::all ? "/all" : "/window+sinks";
  benchmark::RegisterBenchmark((workload.name + "/" + types + features + variant.suffix).c_str(),
                               [workload, variant, effort, &failed](benchmark::State& state) {
                                 try {
                                   measure<Type, Kv, Can>(state, workload, variant, effort);
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
  std::string features = "none";
  constexpr const char *shape_flag = "--shape=", *features_flag = "--features=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], shape_flag, std::strlen(shape_flag)) == 0)
      workloads.push_back(bench::parse_workload(argv[i] + std::strlen(shape_flag)));
    else if (std::strncmp(argv[i], features_flag, std::strlen(features_flag)) == 0) features = argv[i] + std::strlen(features_flag);
    else if (std::strcmp(argv[i], "--only-check") == 0) effort = bench::only_check;
    else if (std::strcmp(argv[i], "--sweep") == 0)
      for (const bench::Workload& workload : bench::sweeps()) workloads.push_back(workload);
    else others.push_back(argv[i]);
  }
  if (features != "none" && features != "window+sinks" && features != "all") {
    std::fprintf(stderr, "bench_decode: no set of features is called %s\n", features.c_str());
    return 1;
  }
  if (workloads.empty()) workloads = bench::named_workloads();
  for (const bench::Workload& workload : workloads)
    for (const bench::Variant& variant : bench::variants) {
      if (features != "none") {
        using hpa::DType, hpa::Features;
        if (workload.fp8) continue;
        if (features == "all") bench::add<DType::bf16, DType::bf16, Features::all>(workload, variant, effort, failed);
        else bench::add<DType::bf16, DType::bf16, Features::window | Features::sinks>(workload, variant, effort, failed);
      } else if (workload.fp8) {
        bench::add<hpa::DType::bf16, bench::fp8>(workload, variant, effort, failed);
        bench::add<hpa::DType::f16, bench::fp8>(workload, variant, effort, failed);
      } else {
        bench::add<hpa::DType::bf16>(workload, variant, effort, failed);
        bench::add<hpa::DType::f16>(workload, variant, effort, failed);
      }
    }
  int count = int(others.size());
  benchmark::Initialize(&count, others.data());
  if (benchmark::ReportUnrecognizedArguments(count, others.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return failed ? 1 : 0;
}
