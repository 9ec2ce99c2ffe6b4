# Every public header in two translation units of one program: a function that is not inline would be defined twice.
# In: COMPILER, SOURCE_DIR, WORK_DIR.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
file(GLOB headers RELATIVE ${SOURCE_DIR}/include ${SOURCE_DIR}/include/hpa/*.hpp)
list(TRANSFORM headers REPLACE "(.+)" "#include \"\\1\"")
list(JOIN headers "\n" includes)
file(WRITE ${WORK_DIR}/one.cpp "${includes}\nint other();\nint main() { return other(); }\n")
file(WRITE ${WORK_DIR}/two.cpp "${includes}\nint other();\nint other() { return 0; }\n")
run(${COMPILER} -std=c++17 -O0 -pthread -I${SOURCE_DIR}/include ${WORK_DIR}/one.cpp ${WORK_DIR}/two.cpp -o ${WORK_DIR}/program)
run(${WORK_DIR}/program)
