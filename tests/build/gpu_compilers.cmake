# Compilers of GPU platforms that are there: nvcc; hip_compiler with hip_include and hip_flags. In: SOURCE_DIR.
find_program(nvcc nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda/bin)
find_program(hip_compiler NAMES hipcc clang++-22 HINTS ENV ROCM_PATH PATHS /opt/rocm/bin)
find_path(hip_include hip/hip_runtime.h HINTS ${SOURCE_DIR}/build/rocm/usr/include ENV HPA_ROCM_PREFIX ENV ROCM_PATH
  PATHS /opt/rocm/include PATH_SUFFIXES usr/include include)
get_filename_component(hip_prefix "${hip_include}" DIRECTORY)
set(hip_flags -x hip --offload-arch=gfx942 --rocm-path=${hip_prefix} -nogpulib -D__AMDGCN_WAVEFRONT_SIZE=64)
