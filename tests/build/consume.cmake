# Configures, builds and runs the project in consumer/, which gets the library by WAY: find_package, add_subdirectory or
# fetch_content. In: WAY, SOURCE_DIR, BINARY_DIR (a configured tree of the library), VERSION, WORK_DIR, COMPILER, GENERATOR.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})

set(options -DHPA_CONSUME=${WAY} -DHPA_VERSION=${VERSION})
if(WAY STREQUAL "find_package")
  # Installed in one place, used from another: the package must not remember where it was.
  run(${CMAKE_COMMAND} --install ${BINARY_DIR} --prefix ${WORK_DIR}/installed)
  file(RENAME ${WORK_DIR}/installed ${WORK_DIR}/prefix)
  list(APPEND options -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix)
elseif(WAY STREQUAL "add_subdirectory")
  list(APPEND options -DHPA_SOURCE_DIR=${SOURCE_DIR})
elseif(WAY STREQUAL "fetch_content")
  # The archive that a release would be, without a network.
  run(${CMAKE_COMMAND} -E chdir ${SOURCE_DIR} ${CMAKE_COMMAND} -E tar czf ${WORK_DIR}/hpa.tar.gz
    CMakeLists.txt LICENSE cmake include)
  list(APPEND options -DHPA_ARCHIVE=file://${WORK_DIR}/hpa.tar.gz)
endif()

run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/build/consumer -B ${WORK_DIR}/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${COMPILER} ${options})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${CMAKE_CTEST_COMMAND} --test-dir ${WORK_DIR}/build --output-on-failure)
