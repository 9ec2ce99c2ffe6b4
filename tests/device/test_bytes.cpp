// 8-bit conversions of the machine, in a kernel: the chip's own where it has the format, and those by bits on every chip.
#include <cstring>

#include "byte_cases.hpp"
#include "calls.hpp"

using namespace hpa;
using namespace hpa::test;
using hpa::arch::Words;

namespace {

template <class M>
struct AsItIs : M {
  using Machine = M;
};

#if defined(HPA_PLATFORM_HIP)
namespace chip = hpa::arch::cdna;
#elif defined(HPA_PLATFORM_CUDA)
namespace chip = hpa::arch::nvidia;
#endif

#if !defined(HPA_PLATFORM_HOST)
/// The machine without the chip's own conversions.
template <class M>
struct ByBits : M {
  using Machine = M;
  template <DType From, DType To>
  static HPA_DEVICE Words<2> widen(std::uint32_t codes) {
    return chip::widen_by_bits<From, To>(codes);
  }
  template <DType To>
  static HPA_DEVICE std::uint32_t narrow(float a, float b, float c, float d) {
    return hpa::arch::narrow_exactly<To>(a, b, c, d);
  }
};
using Conversions = std::tuple<AsItIs<hpa::arch::DefaultMachine>, ByBits<hpa::arch::DefaultMachine>>;
#else
using Conversions = std::tuple<AsItIs<hpa::arch::HostMachine<hpa::arch::Cdna>>, AsItIs<hpa::arch::HostMachine<hpa::arch::Nvidia>>>;
#endif

struct ConvertParams {
  const char* from;
  char* to;
  int count;
};

/// `One` converts the four elements of one lane; the grid's waves cover them all.
template <class M, class In, class Out, class One>
struct ConvertKernel {
  using Machine = M;
  using Params = ConvertParams;
  static constexpr int waves = 1, lds_bytes = 0;

  static HPA_DEVICE void run(typename M::Wave& wave, const Params& p) {
    using Wave = typename M::Wave;
    wave.each([&](int lane) {
      for (int i = wave.workgroup_x() * M::width + lane; i < p.count; i += wave.workgroups_x() * M::width)
        Wave::store(p.to + i * int(sizeof(Out)), One::convert(Wave::template load<In>(p.from + i * int(sizeof(In)))));
    });
  }
};

template <class C, DType From, DType To>
struct Widen {
  static HPA_DEVICE Words<2> convert(const Words<1>& codes) { return C::template widen<From, To>(codes.word[0]); }
};

template <class C, DType To>
struct Narrow {
  static HPA_DEVICE Words<1> convert(const Words<4>& floats) {
    return {{C::template narrow<To>(hpa::float_of(floats.word[0]), hpa::float_of(floats.word[1]), hpa::float_of(floats.word[2]),
                                    hpa::float_of(floats.word[3]))}};
  }
};

template <class M, class In, class Out, class One, class Value>
std::vector<Out> converted(const std::vector<Value>& values) {
  const int count = int(values.size() * sizeof(Value) / sizeof(In));
  Buffer from(values.size() * sizeof(Value), 16, Guard::end), to(std::size_t(count) * sizeof(Out), 16, Guard::end);
  std::memcpy(from.data(), values.data(), from.size());
  from.upload();
  to.upload();
  const hpa::Verdict verdict = hpa::arch::launch<ConvertKernel<M, In, Out, One>>(
      {8, 1}, {reinterpret_cast<const char*>(from.device()), reinterpret_cast<char*>(to.device()), count}, {});
  INFO(verdict.why);
  REQUIRE(verdict);
  to.download();
  CHECK(to.canary_intact());
  return {to.as<Out>(), to.as<Out>() + count};
}

template <class C, DType From, DType To>
void widen_all() {
  INFO(hpa::name(From) << " to " << hpa::name(To));
  const auto codes = hpa::test::all_codes();
  const auto elements = converted<typename C::Machine, Words<1>, Words<2>, Widen<C, From, To>>(codes);
  CHECK(hpa::test::wrong_element<From, To>(codes, elements) == "");
}

template <class C, DType To>
void narrow_all() {
  INFO(hpa::name(To));
  const auto floats = hpa::test::floats_to_round<To>(100003);
  const auto words = converted<typename C::Machine, Words<4>, Words<1>, Narrow<C, To>>(floats);
  std::vector<std::uint32_t> codes;
  for (const Words<1>& word : words) codes.push_back(word.word[0]);
  CHECK(hpa::test::wrong_code<To>(floats, codes) == "");
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("the machine widens every 8-bit code exactly", "[bytes]", Conversions) {
  hpa::test::each_byte_type([](auto from) {
    widen_all<TestType, decltype(from)::value, DType::f16>();
    widen_all<TestType, decltype(from)::value, DType::bf16>();
  });
}

TEMPLATE_LIST_TEST_CASE("the machine rounds floats to 8-bit codes, saturating", "[bytes]", Conversions) {
  hpa::test::each_byte_type([](auto to) { narrow_all<TestType, decltype(to)::value>(); });
}
