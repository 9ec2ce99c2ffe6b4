# No build system: the consumer's source with an include path, and pedantic warnings as errors; as C++20 it passes too, and without
# exceptions and type information. In: COMPILER, SOURCE_DIR, WORK_DIR.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
file(MAKE_DIRECTORY ${WORK_DIR})
run(${COMPILER} -std=c++17 -O1 -pthread -Wall -Wextra -Wpedantic -Werror -I${SOURCE_DIR}/include
  ${SOURCE_DIR}/tests/build/consumer/consumer.cpp -o ${WORK_DIR}/consumer)
run(${WORK_DIR}/consumer)
run(${COMPILER} -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I${SOURCE_DIR}/include
  ${SOURCE_DIR}/tests/build/consumer/consumer.cpp)
run(${COMPILER} -std=c++17 -fsyntax-only -fno-exceptions -fno-rtti -Wall -Wextra -Wpedantic -Werror -I${SOURCE_DIR}/include
  ${SOURCE_DIR}/tests/build/consumer/consumer.cpp)
