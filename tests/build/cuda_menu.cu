// The default menu as NVIDIA machine code: instantiates all that the public calls launch.
#include "hpa/hpa.hpp"
#include "support_table.hpp"

static_assert(hpa::support_table::agrees<hpa::arch::DefaultMachine>({hpa::Arch::sm80, hpa::Arch::sm86, hpa::Arch::sm89, hpa::Arch::sm90,
                                                                              hpa::Arch::sm100, hpa::Arch::sm120}));

hpa::Verdict instantiate(const hpa::DecodeShape& shape, const hpa::DecodeArgs& args, const hpa::AppendArgs& append,
                         const hpa::CopyBlocksArgs& copy, const hpa::MergeArgs& merge, hpa::Workspace workspace,
                         hpa::Stream stream) {
  if (hpa::Verdict v = hpa::append(shape, append, stream); !v) return v;
  if (hpa::Verdict v = hpa::copy_blocks(shape, copy, stream); !v) return v;
  if (hpa::Verdict v = hpa::merge_states(merge, stream); !v) return v;
  return hpa::paged_attention(shape, args, workspace, stream);
}
