// 8-bit conversions of the emulated machines: every code, and every point where rounding turns.
#include "byte_cases.hpp"
#include "catch.hpp"
#include "hpa/arch/host/machine.hpp"

using hpa::DType;
using hpa::Format;
using hpa::arch::Words;

namespace {

template <class Machine, DType From, DType To>
void widen_all() {
  INFO(hpa::name(From) << " to " << hpa::name(To));
  const auto codes = hpa::test::all_codes();
  std::vector<Words<2>> elements;
  for (const std::uint32_t word : codes) elements.push_back(Machine::template widen<From, To>(word));
  CHECK(hpa::test::wrong_element<From, To>(codes, elements) == "");
}

template <class Machine, DType To>
void narrow_all() {
  INFO(hpa::name(To));
  const auto floats = hpa::test::floats_to_round<To>(1009);
  std::vector<std::uint32_t> codes;
  for (std::size_t i = 0; i < floats.size(); i += 4)
    codes.push_back(Machine::template narrow<To>(floats[i], floats[i + 1], floats[i + 2], floats[i + 3]));
  CHECK(hpa::test::wrong_code<To>(floats, codes) == "");
}

}  // namespace

TEMPLATE_TEST_CASE("emulated machines widen every 8-bit code exactly", "[bytes]", hpa::arch::HostMachine<hpa::arch::Cdna>, hpa::arch::HostMachine<hpa::arch::Nvidia>) {
  hpa::test::each_byte_type([](auto from) {
    widen_all<TestType, decltype(from)::value, DType::f16>();
    widen_all<TestType, decltype(from)::value, DType::bf16>();
  });
}

TEMPLATE_TEST_CASE("emulated machines round floats to 8-bit codes", "[bytes]", hpa::arch::HostMachine<hpa::arch::Cdna>, hpa::arch::HostMachine<hpa::arch::Nvidia>) {
  hpa::test::each_byte_type([](auto to) { narrow_all<TestType, decltype(to)::value>(); });
}

TEST_CASE("the comparison finds a wrong code, a wrong element and a NaN that is lost", "[bytes]") {
  const std::vector<std::uint32_t> codes = {0x7f003830};
  std::vector<Words<2>> elements = {hpa::arch::widen_by_table<DType::e4m3_ocp, DType::f16>(codes[0])};
  CHECK(hpa::test::wrong_element<DType::e4m3_ocp, DType::f16>(codes, elements) == "");
  elements[0].word[1] = 0x5f800000;  // 480 instead of NaN
  CHECK(hpa::test::wrong_element<DType::e4m3_ocp, DType::f16>(codes, elements) != "");
  CHECK(hpa::test::wrong_code<DType::i8>({1.f, 2.f, -1.f, 300.f}, {0x7fff0201}) == "");
  CHECK(hpa::test::wrong_code<DType::i8>({1.f, 2.f, -1.f, 300.f}, {0x80ff0201}) != "");
}

TEST_CASE("integer rounding to bf16 is exact, and keeps every NaN whose payload was dropped", "[bytes]") {
  int wrong = 0;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float value = hpa::float_of(upper << 16 | lower);
      const std::uint32_t rounded = hpa::arch::round_to_bf16(hpa::bits_of(hpa::arch::drop_payload(value))) >> 16;
      const float result = Format<DType::bf16>::decode(rounded);
      wrong += value == value ? rounded != Format<DType::bf16>::encode(value) : result == result;
    }
  CHECK(wrong == 0);
  CHECK(hpa::arch::round_to_bf16(0xffffffffu) >> 16 == 0);  // why the payload must go
}
