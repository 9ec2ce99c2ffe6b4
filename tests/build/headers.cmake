# Each header compiles alone, in whatever folder it lies, without a warning; and no macro is left defined that is not on the list
# below. In: COMPILER, SOURCE_DIR, WORK_DIR.
file(GLOB_RECURSE headers RELATIVE ${SOURCE_DIR}/include ${SOURCE_DIR}/include/hpa/*.hpp)
if(NOT headers)
  message(FATAL_ERROR "no headers below ${SOURCE_DIR}/include/hpa")
endif()

# Macros that sources may use, or that headers need of each other.
set(macros
  HPA_PLATFORM HPA_PLATFORM_HIP HPA_PLATFORM_CUDA HPA_PLATFORM_HOST HPA_HIP_KERNELS HPA_CUDA_KERNELS
  HPA_HOST_DEVICE HPA_DEVICE HPA_UNROLL HPA_DO_NOT_UNROLL
  HPA_EXTERN HPA_EXTERN_KERNEL HPA_EXTERN_KERNEL_ON HPA_EXTERN_PLAN HPA_EXTERN_REDUCE HPA_EXTERN_APPEND HPA_EXTERN_COPY HPA_EXTERN_MERGE
  HPA_INSTANTIATE HPA_INSTANTIATE_KERNEL HPA_INSTANTIATE_KERNEL_ON HPA_INSTANTIATE_PLAN HPA_INSTANTIATE_REDUCE HPA_INSTANTIATE_APPEND
  HPA_INSTANTIATE_COPY HPA_INSTANTIATE_MERGE
  HPA_DETAIL_MENU HPA_DETAIL_DECODE HPA_DETAIL_LAUNCH HPA_DETAIL_REDUCE HPA_DETAIL_PLAN HPA_DETAIL_APPEND HPA_DETAIL_COPY
  HPA_DETAIL_MERGE)

set(failed "")
set(left "")
foreach(header IN LISTS headers)
  string(MAKE_C_IDENTIFIER ${header} name)
  file(WRITE ${WORK_DIR}/${name}.cpp "#include \"${header}\"\n#include \"${header}\"\n")
  execute_process(COMMAND ${COMPILER} -std=c++17 -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
    -I${SOURCE_DIR}/include ${WORK_DIR}/${name}.cpp RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(APPEND failed ${header})
  endif()

  # Of all branches, also those of platforms that this compiler does not compile.
  file(READ ${SOURCE_DIR}/include/${header} text)
  string(REGEX MATCHALL "#define +[A-Za-z0-9_]+" defines "${text}")
  foreach(define IN LISTS defines)
    string(REGEX REPLACE "#define +" "" macro "${define}")
    list(FIND macros ${macro} known)
    if(known EQUAL -1 AND NOT text MATCHES "#undef +${macro}\n")
      list(APPEND left "${macro} (${header})")
    endif()
  endforeach()
endforeach()
if(failed)
  message(FATAL_ERROR "do not compile alone: ${failed}")
endif()
if(left)
  message(FATAL_ERROR "macros that are left defined: ${left}")
endif()
