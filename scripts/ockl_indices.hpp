// What the HIP headers call of ROCm's device library, for a compiler that cannot read the device library at hand: -nogpulib -include.
#pragma once

#if defined(__HIP_DEVICE_COMPILE__)
extern "C" {

__attribute__((device, const, always_inline)) inline __SIZE_TYPE__ __ockl_get_local_id(unsigned dimension) {
  return dimension == 0   ? __builtin_amdgcn_workitem_id_x()
         : dimension == 1 ? __builtin_amdgcn_workitem_id_y()
                          : __builtin_amdgcn_workitem_id_z();
}

__attribute__((device, const, always_inline)) inline __SIZE_TYPE__ __ockl_get_group_id(unsigned dimension) {
  return dimension == 0   ? __builtin_amdgcn_workgroup_id_x()
         : dimension == 1 ? __builtin_amdgcn_workgroup_id_y()
                          : __builtin_amdgcn_workgroup_id_z();
}

__attribute__((device, const, always_inline)) inline __SIZE_TYPE__ __ockl_get_local_size(unsigned dimension) {
  return dimension == 0   ? __builtin_amdgcn_workgroup_size_x()
         : dimension == 1 ? __builtin_amdgcn_workgroup_size_y()
                          : __builtin_amdgcn_workgroup_size_z();
}

/// Code object version 5, which is LLVM 18's and every later one's, passes these behind the kernel's arguments.
__attribute__((device, const, always_inline)) inline __SIZE_TYPE__ __ockl_get_num_groups(unsigned dimension) {
  return ((const __attribute__((address_space(4))) unsigned*)__builtin_amdgcn_implicitarg_ptr())[dimension];
}
}
#endif
