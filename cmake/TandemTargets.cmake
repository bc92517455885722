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
    tandem_precompile(${name})
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
    tandem_precompile(${name})
  endif()
  include(GoogleTest)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
endfunction()

# One precompiled <torch/torch.h> for every target above libtorch (750 MB and half a minute once, 11 s less a file).
function(tandem_precompile name)
  if(NOT TARGET tandem_pch)
    if(NOT EXISTS ${CMAKE_BINARY_DIR}/pch.cc)   # written once: a new time would compile it again
      file(WRITE ${CMAKE_BINARY_DIR}/pch.cc "")
    endif()
    add_library(tandem_pch OBJECT ${CMAKE_BINARY_DIR}/pch.cc)
    target_compile_options(tandem_pch PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${TANDEM_CXX_FLAGS}>")
    target_link_libraries(tandem_pch PUBLIC tandem::torch)
    target_precompile_headers(tandem_pch PRIVATE <torch/torch.h>)
    tandem_precompile_flags(tandem_pch)
  endif()
  # An executable would be compiled with -fPIE, which the compiler counts as another setting than the header's -fPIC.
  get_target_property(_type ${name} TYPE)
  if(_type STREQUAL "EXECUTABLE")
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${name} REUSE_FROM tandem_pch)
  tandem_precompile_flags(${name})
endfunction()

function(tandem_precompile_flags name)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)   # see TandemCcache.cmake
  endif()
endfunction()
