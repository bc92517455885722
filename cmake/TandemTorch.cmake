# tandem::torch: libtorch's CPU libraries and headers, from TORCH_DIR (a libtorch or a torch package folder).
#
# find_package(Torch) of the CUDA wheel fails where no toolkit is installed, and it links every CUDA library, which
# costs a second at each start. We name the two libraries we need; the CUDA ones are loaded only where a GPU is used.
# Installed beside tandemConfig.cmake too, so that a user's program links what tandem was built with.
if(NOT TORCH_DIR AND NOT "$ENV{TORCH_DIR}" STREQUAL "")
  set(TORCH_DIR $ENV{TORCH_DIR})
endif()
if(NOT TORCH_DIR)
  file(GLOB _found ${CMAKE_CURRENT_LIST_DIR}/../.venv/lib/python3*/site-packages/torch)
  if(_found)
    list(GET _found 0 TORCH_DIR)
  endif()
endif()
if(TORCH_DIR)
  cmake_path(NORMAL_PATH TORCH_DIR)
endif()
set(TORCH_DIR "${TORCH_DIR}" CACHE PATH "folder with include/ and lib/ of libtorch")
if(NOT EXISTS "${TORCH_DIR}/include/ATen/ATen.h" OR NOT EXISTS "${TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "libtorch not found in TORCH_DIR='${TORCH_DIR}'\n"
    "  why    it needs include/ATen/ATen.h and lib/libtorch_cpu.so\n"
    "  do     run `make setup` (installs torch 2.11.0 into .venv), or pass TORCH_DIR=/path/to/libtorch")
endif()
set(TANDEM_TORCH_VERSION "unknown")
set(_lines "")
foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)   # the second: before 2.9
  if(EXISTS ${TORCH_DIR}/include/${_header} AND NOT _lines)
    file(STRINGS ${TORCH_DIR}/include/${_header} _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]")
  endif()
endforeach()
if("${_lines}" MATCHES "MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+)")
  set(TANDEM_TORCH_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3})
endif()
if(NOT TANDEM_TORCH_VERSION MATCHES "^2\\.11\\.")
  message(FATAL_ERROR "the libtorch in ${TORCH_DIR} is version ${TANDEM_TORCH_VERSION}\n"
    "  why    tandem is made for 2.11.x: headers differ from one version to the next, and so do the bits\n"
    "  do     give a libtorch 2.11.x, or leave TORCH_DIR out and run `make setup`")
endif()
if(NOT TARGET tandem::torch)
  message(STATUS "tandem: libtorch ${TANDEM_TORCH_VERSION} from ${TORCH_DIR}")
  add_library(tandem::torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(tandem::torch SYSTEM INTERFACE
    ${TORCH_DIR}/include ${TORCH_DIR}/include/torch/csrc/api/include)
  target_link_libraries(tandem::torch INTERFACE ${TORCH_DIR}/lib/libtorch_cpu.so ${TORCH_DIR}/lib/libc10.so)
  # libtorch brings the headers of a newer fmt than the system's library; inline namespaces keep the two apart.
  target_compile_definitions(tandem::torch INTERFACE FMT_HEADER_ONLY)
  # libtorch_cpu needs the CUDA runtime and CUPTI by name; the wheels keep them in sibling folders.
  cmake_path(GET TORCH_DIR PARENT_PATH _site)
  file(GLOB _nvidia ${_site}/nvidia/*/lib ${_site}/nvidia/*/*/lib)
  set(TANDEM_TORCH_RPATH ${TORCH_DIR}/lib ${_nvidia})
  foreach(dir ${TANDEM_TORCH_RPATH})
    target_link_options(tandem::torch INTERFACE "LINKER:-rpath-link,${dir}")
  endforeach()
  # The program's own symbols come first: see nn/portable_vector.h.
  target_link_options(tandem::torch INTERFACE -rdynamic)
  # Old-style rpath on purpose: it also serves libtorch_cpu's own look-ups, RUNPATH would not.
  target_link_options(tandem::torch INTERFACE "LINKER:--disable-new-dtags")
  list(APPEND CMAKE_BUILD_RPATH ${TANDEM_TORCH_RPATH})
  list(APPEND CMAKE_INSTALL_RPATH ${TANDEM_TORCH_RPATH})
endif()
