# nvcc, the GPUs to compile for, and TANDEM_HAVE_CUDA.
#
# TANDEM_CUDA        auto: CUDA if nvcc is found, and a GPU or architectures are named; on: required; off: never looked for
# TANDEM_CUDA_ARCHS  native: the GPUs of this machine (if there is none: with auto no CUDA, with on the packaging list);
#                    all: the packaging list; or a list such as 80;90
# nvcc is looked for in CMAKE_CUDA_COMPILER, CUDACXX, PATH, /usr/local/cuda, and the PyPI wheels in .venv (nvidia-cuda-nvcc,
# nvidia-nvvm, nvidia-cuda-crt, nvidia-cuda-runtime at 13.0; they unpack into one toolkit, nvidia/cu13, on both CPUs).
# Gives: tandem::cudart (the runtime, static: nothing to find at run time) and tandem_cuda_options(target).
set(TANDEM_HAVE_CUDA OFF)
set(TANDEM_CUDA_ARCHS "native" CACHE STRING "GPU architectures of the .cu files: native, all, or a list such as 80;90")
set(TANDEM_CUDA_PACKAGING_ARCHS 75 80 86 89 90 100 120)   # desktop and server GPUs, Turing to Blackwell

string(TOLOWER "${TANDEM_CUDA}" _wanted)
if(NOT _wanted MATCHES "^(auto|on|off|true|false|1|0|yes|no)$")
  message(FATAL_ERROR "TANDEM_CUDA='${TANDEM_CUDA}' is not known\n  why    it is auto, on or off\n"
    "  do     pass -DTANDEM_CUDA=auto")
endif()
if(_wanted MATCHES "^(off|false|0|no)$")
  message(STATUS "CUDA: off (TANDEM_CUDA=${TANDEM_CUDA}); the .cu files are not compiled")
  return()
endif()

# ---- a GPU to compile for ----
# The same signs as gpu_here of scripts/nvcc.sh. Seven architectures for GPUs that are elsewhere take minutes: they are asked for.
if(_wanted STREQUAL "auto" AND TANDEM_CUDA_ARCHS STREQUAL "native")
  find_program(_smi NAMES nvidia-smi NO_CACHE)
  file(GLOB _gpu_files /dev/nvidia[0-9]* /dev/nvidiactl /dev/dxg)
  if(NOT _smi AND NOT _gpu_files)
    message(STATUS "CUDA: not used; no GPU here, so the build is for the CPU alone (TANDEM_CUDA=on compiles the kernels too)")
    return()
  endif()
endif()

# ---- nvcc ----
# A compiler that the user names is taken or refused, never passed over in silence.
if(CMAKE_CUDA_COMPILER)
  find_program(_nvcc NAMES ${CMAKE_CUDA_COMPILER} NO_CACHE)
  set(_nvcc_asked "CMAKE_CUDA_COMPILER=${CMAKE_CUDA_COMPILER}")
elseif(DEFINED ENV{CUDACXX})
  find_program(_nvcc NAMES $ENV{CUDACXX} NO_CACHE)
  set(_nvcc_asked "CUDACXX=$ENV{CUDACXX}")
else()
  file(GLOB _wheel_bins ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13/bin)
  find_program(_nvcc NAMES nvcc PATHS /usr/local/cuda/bin ${_wheel_bins} NO_CACHE)
endif()
set(_refusal "")
if(NOT _nvcc)
  if(_nvcc_asked)
    message(FATAL_ERROR "no CUDA compiler at ${_nvcc_asked}\n  why    the name was given, so no other is tried\n"
      "  do     correct it, or leave it out")
  endif()
  set(_refusal "no nvcc in PATH, /usr/local/cuda/bin or .venv")
else()
  execute_process(COMMAND ${_nvcc} --version OUTPUT_VARIABLE _version ERROR_QUIET RESULT_VARIABLE _failed)
  if(_version MATCHES "release ([0-9]+)\\.([0-9]+)")
    set(_nvcc_version ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
  endif()
  # nvcc is asked where its toolkit is, since the file found may be a wrapper that stands elsewhere.
  execute_process(COMMAND ${_nvcc} --dryrun -c none.cu OUTPUT_VARIABLE _dryrun ERROR_VARIABLE _dryrun)
  if(_dryrun MATCHES "TOP=([^\n]+)")
    get_filename_component(_cuda_root ${CMAKE_MATCH_1} REALPATH)
  else()
    get_filename_component(_nvcc_real ${_nvcc} REALPATH)
    get_filename_component(_cuda_root ${_nvcc_real}/../.. ABSOLUTE)
  endif()
  if(_failed OR NOT _nvcc_version)
    set(_refusal "${_nvcc} --version failed")
  elseif(_nvcc_version VERSION_LESS 13.0)
    set(_refusal "${_nvcc} is ${_nvcc_version}; libtorch's CUDA is 13.0, and an older nvcc does not know its GPUs")
  else()
    # The static runtime and its headers: lib64 in NVIDIA's own package, targets/<cpu>/lib there too, lib in the wheels.
    find_library(_cudart NAMES libcudart_static.a PATHS ${_cuda_root}/lib64 ${_cuda_root}/lib
      ${_cuda_root}/targets/x86_64-linux/lib ${_cuda_root}/targets/sbsa-linux/lib NO_DEFAULT_PATH NO_CACHE)
    find_path(_cuda_include NAMES cuda_runtime.h PATHS ${_cuda_root}/include
      ${_cuda_root}/targets/x86_64-linux/include ${_cuda_root}/targets/sbsa-linux/include NO_DEFAULT_PATH NO_CACHE)
    find_program(_cicc NAMES cicc PATHS ${_cuda_root}/nvvm/bin NO_DEFAULT_PATH NO_CACHE)
    if(NOT _cudart OR NOT _cuda_include OR NOT _cicc OR NOT EXISTS ${_cuda_include}/crt/host_config.h)
      set(_refusal "${_nvcc} is there, but not the rest of its toolkit (cicc, cuda_runtime.h, crt/, libcudart_static.a)")
    endif()
  endif()
endif()
if(_refusal)
  if(_wanted STREQUAL "auto")
    message(STATUS "CUDA: not used; ${_refusal}. The build is for CPU alone")
    return()
  endif()
  message(FATAL_ERROR "TANDEM_CUDA=${TANDEM_CUDA} needs nvcc 13.0 or later\n  why    ${_refusal}\n"
    "  do     install the CUDA 13 toolkit, or .venv/bin/pip install 'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' "
    "'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-runtime==13.0.*'; or build for CPU with -DTANDEM_CUDA=off")
endif()

# ---- the GPUs ----
if(TANDEM_CUDA_ARCHS STREQUAL "all")
  set(_archs ${TANDEM_CUDA_PACKAGING_ARCHS})
  set(_archs_from "all")
elseif(TANDEM_CUDA_ARCHS STREQUAL "native")
  find_program(_smi NAMES nvidia-smi NO_CACHE)
  set(_archs "")
  if(_smi)
    execute_process(COMMAND ${_smi} --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE _caps ERROR_QUIET
      RESULT_VARIABLE _failed TIMEOUT 20)
    if(NOT _failed)
      string(REGEX MATCHALL "[0-9]+\\.[0-9]+" _archs "${_caps}")
      list(TRANSFORM _archs REPLACE "\\." "")
      list(REMOVE_DUPLICATES _archs)
    endif()
  endif()
  if(_archs)
    set(_archs_from "the GPUs of this machine")
  else()
    set(_archs ${TANDEM_CUDA_PACKAGING_ARCHS})
    set(_archs_from "no GPU was found here: the packaging list")
  endif()
else()
  set(_archs ${TANDEM_CUDA_ARCHS})
  set(_archs_from "as asked")
endif()
foreach(arch IN LISTS _archs)
  if(NOT arch MATCHES "^[0-9]+[af]?(-real|-virtual)?$")
    message(FATAL_ERROR "TANDEM_CUDA_ARCHS='${TANDEM_CUDA_ARCHS}' is not known\n  why    '${arch}' is no architecture\n"
      "  do     pass native, all, or numbers such as 80;90")
  endif()
  if(arch MATCHES "^([0-9]+)" AND CMAKE_MATCH_1 LESS 75)
    message(FATAL_ERROR "CUDA 13 can't compile for compute capability ${arch}\n  why    it begins at 75 (Turing)\n"
      "  do     leave ${arch} out of TANDEM_CUDA_ARCHS, or build for CPU with -DTANDEM_CUDA=off")
  endif()
endforeach()
# wgmma (kernels/gpu/mma.h) is for Hopper alone: code for sm_90a runs nowhere else. Later GPUs, where none
# is listed, take what 90 has for all of them.
string(REGEX MATCH "(^|;)(9[1-9]|1[0-9][0-9])" _later "${_archs}")
if("90" IN_LIST _archs AND NOT _later)
  list(APPEND _archs 90-virtual)
endif()
list(TRANSFORM _archs REPLACE "^90a?(-real)?$" "90a-real")
list(REMOVE_DUPLICATES _archs)

set(CMAKE_CUDA_COMPILER ${_nvcc} CACHE FILEPATH "nvcc")
set(CMAKE_CUDA_ARCHITECTURES ${_archs})
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
# CMake tries the compiler by linking a program; the wheels keep the runtime in lib, where nvcc does not look.
get_filename_component(_cudart_dir ${_cudart} DIRECTORY)
set(CMAKE_CUDA_FLAGS_INIT "-L${_cudart_dir}")
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
set(TANDEM_HAVE_CUDA ON)
string(REPLACE ";" " " _archs_text "${_archs}")
message(STATUS "CUDA: ${_nvcc} ${_nvcc_version}, architectures ${_archs_text} (${_archs_from})")

if(NOT TARGET tandem::cudart)
  add_library(tandem::cudart INTERFACE IMPORTED GLOBAL)
  target_include_directories(tandem::cudart SYSTEM INTERFACE ${_cuda_include})
  target_link_libraries(tandem::cudart INTERFACE ${_cudart} rt dl pthread)
endif()

# libtorch's CUDA side, for what is loaded only where a GPU is used. Its own needs (cuDNN, NCCL, ...) are found at run time.
if(TANDEM_TORCH AND NOT TARGET tandem::torch_cuda)
  add_library(tandem::torch_cuda INTERFACE IMPORTED GLOBAL)
  target_link_libraries(tandem::torch_cuda INTERFACE tandem::torch -Wl,--no-as-needed ${TORCH_DIR}/lib/libtorch_cuda.so
    ${TORCH_DIR}/lib/libc10_cuda.so)
  target_link_options(tandem::torch_cuda INTERFACE "LINKER:--unresolved-symbols=ignore-in-shared-libs")
  target_include_directories(tandem::torch_cuda SYSTEM INTERFACE ${_cuda_include})
endif()

# --fmad=false: a fused multiply-add rounds once, the CPU twin twice (kernels/portable.h).
function(tandem_cuda_options target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false -Xcompiler=-Wall,-ffp-contract=off --threads=2>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
endfunction()
