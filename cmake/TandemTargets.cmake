# tandem_library(NAME folder [SOURCES ...] [LIBS ...] [TORCH]): one static library per folder of src/.
# tandem_test(NAME [SOURCES ...] [LIBS ...] [TORCH]): one gtest binary, each TEST a ctest of its own.
# -ffp-contract=off everywhere: a fused multiply-add rounds once where two operations round twice, so
# letting the compiler choose would make bits depend on its version and on the CPU it compiles for.
set(TANDEM_CXX_FLAGS -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -ffp-contract=off)
if(TANDEM_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TANDEM_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
endif()

function(tandem_library name)
  cmake_parse_arguments(A "TORCH" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  add_library(tandem::${name} ALIAS ${name})
  target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${TANDEM_CXX_FLAGS}>")
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                            "$<INSTALL_INTERFACE:include;include/tandem>")   # <tandem/tandem.h>, "engine/recipe.h"
  target_link_libraries(${name} PUBLIC ${A_LIBS})
  if(A_TORCH)
    target_link_libraries(${name} PUBLIC tandem::torch)
    tandem_precompile(${name} torch)
    tandem_unity(${name} 5)
  else()
    tandem_precompile(${name} plain)
    tandem_unity(${name} 8)
  endif()
  set_property(GLOBAL APPEND PROPERTY TANDEM_LIBRARIES ${name})
endfunction()

function(tandem_test name)
  if(NOT TANDEM_TESTS)
    return()
  endif()
  cmake_parse_arguments(A "TORCH" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${TANDEM_CXX_FLAGS}>")
  target_link_libraries(${name} PRIVATE ${A_LIBS} GTest::gtest GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(A_TORCH)
    target_link_libraries(${name} PRIVATE tandem::torch)
    tandem_precompile(${name} torch)
    tandem_unity(${name} 5)
  else()
    target_link_libraries(${name} PRIVATE fmt::fmt)   # the precompiled header knows it as a shared library
    tandem_precompile(${name} tests)
    tandem_unity(${name} 8)
  endif()
  include(GoogleTest)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 600 PROPERTIES TIMEOUT 1800)
endfunction()

# tandem_unrun(target): no test runs it. A check takes a third of the compiler's time (libtorch: 9 s of 26).
function(tandem_unrun name)
  if(TANDEM_CHECK_UNRUN)
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/scripts/check_only.sh
                                             CXX_LINKER_LAUNCHER ${PROJECT_SOURCE_DIR}/scripts/check_only.sh)
  endif()
endfunction()

# ---- unity builds ----
# Files of a folder share what they parse and instantiate (libtorch, JSON, fmt): five files together took 10.2 s of CPU instead of
# 21.9 below libtorch, four took 25 s instead of 72 above it. A change to one file compiles its batch, so batches stay under half a minute.
# Local names of a folder must differ, which scripts/names.py checks. -DTANDEM_UNITY=OFF compiles each file alone (`make tidy` does).
#
# tandem_unity(target most): batches of at most `most` files, nearly equal in length so that two cores end together.
function(tandem_unity name most)
  get_target_property(_sources ${name} SOURCES)
  list(LENGTH _sources _count)
  if(NOT TANDEM_UNITY OR _count EQUAL 1)
    return()
  endif()
  if(NOT TANDEM_UNITY_FACTOR MATCHES "^[1-9][0-9]*$")
    message(FATAL_ERROR "TANDEM_UNITY_FACTOR='${TANDEM_UNITY_FACTOR}' is not known\n  why    it is a whole number from 1 on\n"
      "  do     pass -DTANDEM_UNITY_FACTOR=2, or leave it out")
  endif()
  math(EXPR most "${most} * ${TANDEM_UNITY_FACTOR}")
  math(EXPR _batches "(${_count} + ${most} - 1) / ${most}")
  math(EXPR _size "(${_count} + ${_batches} - 1) / ${_batches}")
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${_size})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")   # it takes the batch's files for headers
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()

# ---- precompiled headers ----
# What nearly every file reads is parsed once: the standard library, fmt and JSON (2 s a file), gtest for the tests, libtorch above it
# (750 MB and half a minute once, 11 s less a file). Our own headers are not among it: a change to one must not compile everything.
# A target with other code generation (-O3 and the like, kernels/ and world/) can't read them: DISABLE_PRECOMPILE_HEADERS.
set(TANDEM_PLAIN_HEADERS <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <deque> <filesystem> <fstream> <functional> <map>
    <memory> <optional> <random> <regex> <set> <span> <sstream> <string> <string_view> <thread> <utility> <vector>
    <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp>)

# tandem_precompile(target plain|tests|torch)
function(tandem_precompile name kind)
  if(TANDEM_FUZZ)   # its libraries are compiled with instrumentation of their own, which clang's header must share
    return()
  endif()
  set(_pch tandem_pch_${kind})
  if(NOT TARGET ${_pch})
    if(NOT EXISTS ${CMAKE_BINARY_DIR}/pch.cc)   # written once: a new time would compile it again
      file(WRITE ${CMAKE_BINARY_DIR}/pch.cc "")
    endif()
    add_library(${_pch} OBJECT ${CMAKE_BINARY_DIR}/pch.cc)
    target_compile_options(${_pch} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${TANDEM_CXX_FLAGS}>")
    if(kind STREQUAL "torch")
      target_link_libraries(${_pch} PUBLIC tandem::torch nlohmann_json::nlohmann_json)
      target_precompile_headers(${_pch} PRIVATE <torch/torch.h> <nlohmann/json.hpp>)
    elseif(kind STREQUAL "tests")
      target_link_libraries(${_pch} PUBLIC fmt::fmt nlohmann_json::nlohmann_json GTest::gtest)
      target_precompile_headers(${_pch} PRIVATE ${TANDEM_PLAIN_HEADERS} <gtest/gtest.h>)
    else()
      target_link_libraries(${_pch} PUBLIC fmt::fmt nlohmann_json::nlohmann_json)
      target_precompile_headers(${_pch} PRIVATE ${TANDEM_PLAIN_HEADERS})
    endif()
    tandem_precompile_flags(${_pch})
  endif()
  # An executable would be compiled with -fPIE, which the compiler counts as another setting than the header's -fPIC.
  get_target_property(_type ${name} TYPE)
  if(_type STREQUAL "EXECUTABLE")
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${name} REUSE_FROM ${_pch})
  tandem_precompile_flags(${name})
endfunction()

function(tandem_precompile_flags name)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)   # see TandemCcache.cmake
  endif()
endfunction()
