// vLLM's own rule for its ROCm paged attention kernel, per named revision: for engines that must choose as vLLM chooses.
// It says nothing about this library: check() does.
#pragma once

#include <string_view>

#include "hpa/status.hpp"

namespace hpa::vllm {

/// Environment switches of either revision are taken at their defaults.
enum class Revision {
  pr15720,  // pull request #15720 as merged, 2025-04-02
  latest    // upstream as of August 2026
};

/// The first condition that fails, named after its argument; ok when upstream would use its kernel.
///
/// gcn_arch is the device's full name, such as "gfx942:sramecc+:xnack-": upstream looks for substrings. sliding_window
/// is 0 when off; -1 stands for upstream's (-1, -1). max_seq_len has an upper bound only. pr15720 knows no kv_cache_dtype, ALiBi
/// or sinks and does not look at them.
constexpr Verdict why_not_rocm_custom_paged_attention(std::string_view gcn_arch, std::string_view query_dtype, int head_size,
                                                      int block_size, int gqa_ratio, int max_seq_len, int sliding_window,
                                                      std::string_view kv_cache_dtype = "auto", bool has_alibi_slopes = false,
                                                      bool has_sinks = false, Revision revision = Revision::latest) {
  const auto no = [](const char* field, const char* why) { return Verdict{Status::unsupported, field, why}; };
  const auto arch_has = [&](std::string_view part) { return gcn_arch.find(part) != std::string_view::npos; };
  const bool latest = revision == Revision::latest;
  const bool cdna = latest ? arch_has("gfx90a") || arch_has("gfx942") || arch_has("gfx950")
                           : (arch_has("gfx90a") || arch_has("gfx942")) && !arch_has("gfx1");
  const bool rdna = latest && !cdna && (arch_has("gfx11") || arch_has("gfx12"));

  if (!cdna && !rdna)
    return latest ? no("gcn_arch", "must be gfx90a, gfx942, gfx950, gfx11* or gfx12*") : no("gcn_arch", "must be gfx90a or gfx942");
  if (sliding_window != 0 && !(latest && sliding_window == -1)) return no("sliding_window", "must be off");
  if (query_dtype != "half" && query_dtype != "float16" && query_dtype != "bfloat16")
    return no("query_dtype", "must be half, float16 or bfloat16");
  if (head_size != 128 && (rdna || head_size != 64))
    return no("head_size", rdna ? "must be 128 on gfx11 and gfx12" : "must be 64 or 128");
  if (block_size != 16 && (rdna || block_size != 32))
    return no("block_size", rdna ? "must be 16 on gfx11 and gfx12" : "must be 16 or 32");
  if (gqa_ratio < (rdna ? 3 : 1) || gqa_ratio > 16)
    return no("gqa_ratio", rdna ? "must be 3 to 16 on gfx11 and gfx12" : "must be 1 to 16");
  if (max_seq_len > (latest ? 131072 : 32768))
    return no("max_seq_len", latest ? "must be at most 131072" : "must be at most 32768");
  if (rdna && has_alibi_slopes) return no("has_alibi_slopes", "must be false on gfx11 and gfx12");
  if (rdna && kv_cache_dtype != "auto") return no("kv_cache_dtype", "must be auto on gfx11 and gfx12");
  if (latest && has_sinks) return no("has_sinks", "must be false");
  return {};
}

/// True when vLLM's `use_rocm_custom_paged_attention` of that revision is.
constexpr bool use_rocm_custom_paged_attention(std::string_view gcn_arch, std::string_view query_dtype, int head_size,
                                               int block_size, int gqa_ratio, int max_seq_len, int sliding_window,
                                               std::string_view kv_cache_dtype = "auto", bool has_alibi_slopes = false,
                                               bool has_sinks = false, Revision revision = Revision::latest) {
  return bool(why_not_rocm_custom_paged_attention(gcn_arch, query_dtype, head_size, block_size, gqa_ratio, max_seq_len,
                                                  sliding_window, kv_cache_dtype, has_alibi_slopes, has_sinks, revision));
}

}  // namespace hpa::vllm
