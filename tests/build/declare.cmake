# An engine's plain C++ source makes every call by hpa/declare.hpp alone; the kernels are in one source of the platform's compiler: the
# host's, nvcc's and HIP's, of which the GPU's take part where they are there, with a stand-in for the runtime.
# In: COMPILER, SOURCE_DIR, WORK_DIR.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/gpu_compilers.cmake)
file(MAKE_DIRECTORY ${WORK_DIR})
set(sources ${SOURCE_DIR}/tests/build/declare)
set(stand_ins ${SOURCE_DIR}/tests/build/platforms)
set(flags -std=c++17 -O1 -I${SOURCE_DIR}/include)
set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)

# link(PLATFORM OBJECT..): the engine for a platform, with these objects; and it runs.
function(link platform)
  run(${COMPILER} ${flags} ${warnings} -DHPA_PLATFORM_${platform} ${sources}/engine.cpp ${ARGN} -pthread -Wl,-rpath,${WORK_DIR}
    -o ${WORK_DIR}/engine_${platform})
  run(${WORK_DIR}/engine_${platform})
endfunction()

run(${COMPILER} ${flags} -pthread -x c++ -c ${sources}/attention.cu -o ${WORK_DIR}/attention_host.o)
link(HOST ${WORK_DIR}/attention_host.o)
if(nvcc)
  run(${nvcc} ${flags} -gencode arch=compute_90,code=compute_90 -c ${sources}/attention.cu -o ${WORK_DIR}/attention_cuda.o)
  run(${COMPILER} -std=c++17 -O1 -fPIC -shared ${stand_ins}/cuda_runtime.cpp -o ${WORK_DIR}/libcuda_stand_in.so)
  link(CUDA ${WORK_DIR}/attention_cuda.o ${WORK_DIR}/libcuda_stand_in.so)
endif()
if(hip_compiler AND hip_include)
  run(${hip_compiler} ${flags} ${hip_flags} --cuda-host-only -c ${sources}/attention.cu -o ${WORK_DIR}/attention_hip.o)
  run(${COMPILER} -std=c++17 -O1 -D__HIP_PLATFORM_AMD__ -isystem ${hip_include} -c ${stand_ins}/hip_runtime.cpp
    -o ${WORK_DIR}/hip_runtime.o)
  # The object refers to device code that is not compiled here.
  find_program(nm NAMES nm llvm-nm REQUIRED)
  execute_process(COMMAND ${nm} -u ${WORK_DIR}/attention_hip.o OUTPUT_VARIABLE undefined COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "__hip_fatbin[_0-9a-f]*" device_code "${undefined}")
  link(HIP ${WORK_DIR}/attention_hip.o ${WORK_DIR}/hip_runtime.o -Wl,--defsym=${device_code}=0)
endif()
