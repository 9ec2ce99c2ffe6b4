// What each source of the program says of itself; plain types, so that sources of all platforms can pass them.
#pragma once

#include <cstddef>

#include "hpa/device.hpp"
#include "hpa/shape.hpp"
#include "hpa/status.hpp"

/// What one platform's functions answer.
struct Says {
  hpa::Arch arch;
  int compute_units;
  bool accepts;                 // a shape that every default menu has
  const char* why_not;          // of a device that only the host has kernels for, or of gfx942 on the host
  std::size_t workspace_bytes;  // of the shape
};

/// A shape that every platform's default menu has a kernel for.
inline hpa::DecodeShape plain_shape() {
  hpa::DecodeShape shape;
  shape.num_heads = 32, shape.num_kv_heads = 8;
  shape.max_seqs = 4, shape.max_seq_len = 4096;
  return shape;
}

Says host_says();
Says cuda_says();
Says hip_says();
