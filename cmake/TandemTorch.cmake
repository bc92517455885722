# tandem::torch: libtorch's CPU libraries and headers, from TORCH_DIR (a libtorch or a torch package folder).
#
# find_package(Torch) of the CUDA wheel fails where no toolkit is installed, and it links every CUDA library, which
# costs a second at each start. We name the two libraries we need; the CUDA ones are loaded only where a GPU is used.
if(NOT TORCH_DIR AND DEFINED ENV{TORCH_DIR})
  set(TORCH_DIR $ENV{TORCH_DIR})
endif()
if(NOT TORCH_DIR)
  file(GLOB _found ${CMAKE_CURRENT_LIST_DIR}/../.venv/lib/python3*/site-packages/torch)
  if(_found)
    list(GET _found 0 TORCH_DIR)
  endif()
endif()
set(TORCH_DIR "${TORCH_DIR}" CACHE PATH "folder with include/ and lib/ of libtorch")
if(NOT EXISTS "${TORCH_DIR}/include/ATen/ATen.h" OR NOT EXISTS "${TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "libtorch not found in TORCH_DIR='${TORCH_DIR}'\n"
    "  why    it needs include/ATen/ATen.h and lib/libtorch_cpu.so\n"
    "  do     run `make setup` (installs torch 2.11.0 into .venv), or pass TORCH_DIR=/path/to/libtorch")
endif()
if(NOT TARGET tandem::torch)
  add_library(tandem::torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(tandem::torch SYSTEM INTERFACE
    ${TORCH_DIR}/include ${TORCH_DIR}/include/torch/csrc/api/include)
  target_link_libraries(tandem::torch INTERFACE ${TORCH_DIR}/lib/libtorch_cpu.so ${TORCH_DIR}/lib/libc10.so)
  # libtorch_cpu needs the CUDA runtime and CUPTI by name; the wheels keep them in sibling folders.
  file(GLOB _nvidia ${TORCH_DIR}/../nvidia/*/lib ${TORCH_DIR}/../nvidia/*/*/lib)
  set(TANDEM_TORCH_RPATH ${TORCH_DIR}/lib ${_nvidia})
  foreach(dir ${TANDEM_TORCH_RPATH})
    target_link_options(tandem::torch INTERFACE "LINKER:-rpath-link,${dir}")
  endforeach()
  # Old-style rpath on purpose: it also serves libtorch_cpu's own look-ups, RUNPATH would not.
  target_link_options(tandem::torch INTERFACE "LINKER:--disable-new-dtags")
  list(APPEND CMAKE_BUILD_RPATH ${TANDEM_TORCH_RPATH})
  list(APPEND CMAKE_INSTALL_RPATH ${TANDEM_TORCH_RPATH})
endif()
