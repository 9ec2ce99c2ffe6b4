// Reasons put together at compile time from what is compiled in, so that text and kernels cannot disagree.
#pragma once

#include <cstddef>

#include "hpa/menu.hpp"

namespace hpa {
inline namespace HPA_PLATFORM {
namespace detail {

/// A reason while it is written.
struct RuleText {
  char data[160] = {};
  std::size_t size = 0;

  constexpr void add(const char* text) {
    while (*text != '\0' && size + 1 < sizeof data) data[size++] = *text++;
  }
  constexpr void add(int value) {
    if (value >= 10) add(value / 10);
    const char digit[] = {char('0' + value % 10), '\0'};
    add(digit);
  }
  constexpr void add(DType type) { add(name(type)); }
  constexpr void add(Arch arch) { add(name(arch)); }
  constexpr void add(Features set) { add(name(set).data); }
  constexpr void add(bool value) { add(value ? "on" : "off"); }
};

/// "not compiled in; this menu has 64, 128".
template <class Axis>
struct AxisText {
  static constexpr RuleText make() {
    RuleText built;
    built.add("not compiled in; this menu has ");
    for (std::size_t i = 0; i < Axis::size; ++i) {
      if (i > 0) built.add(", ");
      built.add(Axis::values[i]);
    }
    return built;
  }
  static constexpr RuleText text = make();
};

/// "not compiled in; this menu's sets of features: none, window + sinks".
template <class Axis>
struct SetsText {
  static constexpr RuleText make() {
    RuleText built;
    built.add("not compiled in; this menu's sets of features: ");
    for (std::size_t i = 0; i < Axis::size; ++i) {
      if (i > 0) built.add(", ");
      built.add(Axis::values[i]);
    }
    return built;
  }
  static constexpr RuleText text = make();
};

using AllArchs = axis<Arch::gfx90a, Arch::gfx942, Arch::gfx950, Arch::gfx11, Arch::gfx12, Arch::sm80, Arch::sm86, Arch::sm89,
                      Arch::sm90, Arch::sm100, Arch::sm120, Arch::host>;

/// "the device is gfx11; this build has kernels for gfx90a, gfx942, gfx950".
template <class Machine, Arch DeviceArch>
struct ArchText {
  static constexpr RuleText make() {
    RuleText built;
    built.add("the device is ");
    built.add(DeviceArch);
    built.add("; this build has kernels for ");
    bool first = true;
    for (const Arch arch : AllArchs::values)
      if (arch::runs_on<Machine>(arch)) {
        if (!first) built.add(", ");
        built.add(arch);
        first = false;
      }
    return built;
  }
  static constexpr RuleText text = make();
};

/// "no kernel shape for head size 96 on gfx942": of `What`, which is a struct with a text, the value on a device.
template <class What, int Value, Arch DeviceArch>
struct NoShapeText {
  static constexpr RuleText make() {
    RuleText built;
    built.add("no kernel shape for ");
    built.add(What::text);
    built.add(Value);
    built.add(" on ");
    built.add(DeviceArch);
    return built;
  }
  static constexpr RuleText text = make();
};
struct HeadSize {
  static constexpr const char* text = "head size ";
};
struct BlockSize {
  static constexpr const char* text = "blocks of ";
};

/// Axis: the menu's values of What.
template <class What, class Axis>
const char* no_shape_for(int value, Arch device) {
  const char* text = "no kernel shape on this device";
  Axis::visit(value, [&](auto constant) {
    AllArchs::visit(device,
                    [&](auto arch) { text = NoShapeText<What, decltype(constant)::value, decltype(arch)::value>::text.data; });
  });
  return text;
}

template <class Machine>
const char* no_kernel_for(Arch device) {
  const char* text = "the device is of no known architecture";
  AllArchs::visit(device, [&](auto arch) { text = ArchText<Machine, decltype(arch)::value>::text.data; });
  return text;
}

}  // namespace detail
}  // namespace HPA_PLATFORM
}  // namespace hpa
