// One line of progress: redrawn in place on a terminal, now and then a new line elsewhere.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace examples {

class Progress {
 public:
  /// True when it is time for the next show().
  bool due() {
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_ < (terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(5000))) return false;
    shown_ = now;
    return true;
  }
  void show(const std::string& text) {
    std::printf(terminal_ ? "\r\033[K%s" : "%s\n", text.c_str());
    std::fflush(stdout);
    on_line_ = terminal_;
  }
  /// Ends the line, so that what follows begins a new one.
  void finish() {
    if (on_line_) std::puts("");
    on_line_ = false;
  }

 private:
  bool terminal_ = isatty(fileno(stdout)) != 0;
  bool on_line_ = false;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

}  // namespace examples
