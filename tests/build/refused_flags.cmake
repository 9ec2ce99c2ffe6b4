# Flags under which results would be wrong, or no code could be made, stop the compiler with a sentence; others do not. Preprocessing
# alone shows it, so neither HIP's headers nor a compiler for AMD are needed. In: COMPILER, SOURCE_DIR, WORK_DIR.
file(MAKE_DIRECTORY ${WORK_DIR})
file(WRITE ${WORK_DIR}/source.cpp "#include \"hpa/hpa.hpp\"\n")

# expect(YES_OR_NO SENTENCE FLAG...): whether the compiler says the sentence.
function(expect expected sentence)
  execute_process(COMMAND ${COMPILER} -std=c++17 -E ${ARGN} -I${SOURCE_DIR}/include ${WORK_DIR}/source.cpp -o ${WORK_DIR}/output
    RESULT_VARIABLE result ERROR_VARIABLE errors)
  set(found NO)
  if(NOT result EQUAL 0 AND errors MATCHES "${sentence}")
    set(found YES)
  endif()
  if(NOT found STREQUAL expected)
    message(FATAL_ERROR "with ${ARGN}: '${sentence}' ${found}, expected ${expected}\n${errors}")
  endif()
endfunction()

foreach(flags -ffast-math -ffinite-math-only)
  expect(YES "needs Inf and NaN" -O2 ${flags})
  expect(NO "needs Inf and NaN" -O2 ${flags} -fno-finite-math-only)
endforeach()
expect(NO "needs Inf and NaN" -O2)

execute_process(COMMAND ${COMPILER} --version OUTPUT_VARIABLE version)
if(NOT version MATCHES "clang version ([0-9]+)")
  return()
endif()
set(device -x hip -nogpuinc -nogpulib --cuda-device-only --offload-arch=gfx90a)
expect(YES "cannot be compiled at -O0" ${device})
expect(YES "cannot be compiled at -O0" ${device} -O0)
expect(NO "cannot be compiled at -O0" ${device} -O0 -Xarch_device -O1)
foreach(level 1 g 2 s 3)
  expect(NO "cannot be compiled at -O0" ${device} -O${level})
endforeach()
expect(YES "needs Inf and NaN" ${device} -O2 -ffast-math)
# Older compilers do not know the target, and those that ROCm has made of them may.
if(CMAKE_MATCH_1 LESS 20)
  expect(YES "gfx950 needs LLVM 20" ${device} -O2 -D__gfx950__)
else()
  expect(NO "gfx950 needs LLVM 20" ${device} -O2 -D__gfx950__)
endif()
