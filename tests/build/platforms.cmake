# Sources compiled by g++ or clang for the host, by nvcc and as HIP, in one program: each sees its own platform, in whatever order they
# are linked. Two shared libraries with the same kernel in one process: each can launch its own. One HIP command for two kinds of chips:
# kernels are empty where their machine does not run. The GPU compilers that are there take part; their runtimes are stand-ins, so no GPU
# is needed. In: COMPILER, SOURCE_DIR, WORK_DIR.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
file(MAKE_DIRECTORY ${WORK_DIR})
set(sources ${SOURCE_DIR}/tests/build/platforms)
set(flags -std=c++17 -O1 -I${SOURCE_DIR}/include -I${sources})

include(${CMAKE_CURRENT_LIST_DIR}/gpu_compilers.cmake)
if(NOT nvcc AND NOT (hip_compiler AND hip_include))
  message("SKIPPED: no compiler of a GPU platform")
  return()
endif()

run(${COMPILER} ${flags} -c ${sources}/on_host.cpp -o ${WORK_DIR}/on_host.o)
set(objects ${WORK_DIR}/on_host.o)
set(others "")
set(with "")
if(nvcc)
  run(${nvcc} ${flags} -arch=sm_90 -c ${sources}/on_cuda.cu -o ${WORK_DIR}/on_cuda.o)
  run(${COMPILER} -std=c++17 -O1 -fPIC -shared ${sources}/cuda_runtime.cpp -o ${WORK_DIR}/libcuda_stand_in.so)
  list(APPEND objects ${WORK_DIR}/on_cuda.o)
  list(APPEND others ${WORK_DIR}/libcuda_stand_in.so)
  list(APPEND with -DWITH_CUDA)
endif()
if(hip_compiler AND hip_include)
  run(${hip_compiler} ${flags} ${hip_flags} --cuda-host-only -c ${sources}/on_hip.hip -o ${WORK_DIR}/on_hip.o)
  run(${COMPILER} -std=c++17 -O1 -D__HIP_PLATFORM_AMD__ -isystem ${hip_include} -c ${sources}/hip_runtime.cpp
    -o ${WORK_DIR}/hip_runtime.o)
  list(APPEND objects ${WORK_DIR}/on_hip.o)
  list(APPEND others ${WORK_DIR}/hip_runtime.o)
  list(APPEND with -DWITH_HIP)
endif()
set(reversed ${objects})
list(REVERSE reversed)
foreach(order objects reversed)
  run(${COMPILER} ${flags} ${with} ${sources}/one_program.cpp ${${order}} ${others} -pthread -Wl,-rpath,${WORK_DIR}
    -o ${WORK_DIR}/one_program_${order})
  run(${WORK_DIR}/one_program_${order})
endforeach()

if(nvcc)
  foreach(library one two)
    run(${nvcc} ${flags} -arch=sm_90 -Xcompiler=-fPIC -cudart none -shared ${sources}/library.cu ${WORK_DIR}/libcuda_stand_in.so
      -o ${WORK_DIR}/${library}.so)
  endforeach()
  run(${COMPILER} ${flags} ${sources}/two_libraries.cpp ${WORK_DIR}/libcuda_stand_in.so -ldl -Wl,-rpath,${WORK_DIR}
    -o ${WORK_DIR}/two_libraries)
  run(${WORK_DIR}/two_libraries ${WORK_DIR}/one.so ${WORK_DIR}/two.so)
endif()

if(hip_compiler AND hip_include)
  execute_process(COMMAND ${hip_compiler} ${flags} -x hip --offload-arch=gfx942 --offload-arch=gfx1100 --rocm-path=${hip_prefix} -nogpulib
    -Xarch_gfx942 -D__AMDGCN_WAVEFRONT_SIZE=64 -Xarch_gfx1100 -D__AMDGCN_WAVEFRONT_SIZE=32
    --cuda-device-only --no-gpu-bundle-output -S ${sources}/two_targets.hip WORKING_DIRECTORY ${WORK_DIR} COMMAND_ERROR_IS_FATAL ANY)
  foreach(target gfx942 gfx1100)
    file(GLOB assembly ${WORK_DIR}/two_targets-hip-*${target}.s)
    file(STRINGS ${assembly} kernels REGEX "^_ZN3hpa.*DecodeKernel.*:")
    file(STRINGS ${assembly} products REGEX "v_mfma_f32_16x16x16")
    list(LENGTH kernels num_kernels)
    list(LENGTH products num_products)
    message("${target}: ${num_kernels} decode kernels, ${num_products} matrix instructions")
    if(num_kernels EQUAL 0 OR (target STREQUAL "gfx942" AND num_products EQUAL 0) OR (target STREQUAL "gfx1100" AND num_products GREATER 0))
      message(FATAL_ERROR "code for ${target} is not as expected")
    endif()
  endforeach()
endif()
