#!/usr/bin/env bash
# tests/setup_test.sh -- what set-up and the build say to a wrong request: what, why, what to do, and exit code 2.
#
# Only requests that are refused before anything is installed or built, so it needs no network and changes nothing. And what
# CUDA=auto means on a machine with and without a GPU.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$here/scripts" "$work/scripts"
cp "$here/Makefile" "$here/CMakePresets.json" "$work/"
failed=0

refused() { # WORDS COMMAND...
  local words=$1 out code
  shift
  out=$(cd "$work" && env -u TORCH_DIR -u CUDA -u CUDA_ARCHS -u PRESET -u BUILD_DIR -u JOBS -u MAKEFLAGS -u MAKELEVEL "$@" 2>&1 </dev/null)
  code=$?
  if [[ $code -ne 2 || $out != *"$words"* || $out != *"  why    "* || $out != *"  do     "* ]]; then
    echo "FAILED: $* (exit $code), expected '$words', why, do and exit 2; it said:"
    echo "$out"
    failed=1
  fi
}

refused "CUDA=maybe is not known" env CUDA=maybe scripts/setup.sh
refused "CUDA=maybe is not known" env CUDA=maybe scripts/build.sh all
refused "unknown word 'everything'" scripts/setup.sh everything
refused "JOBS=many is not a count" env JOBS=many scripts/build.sh all
refused "CUDA_ARCHS=some is not known" env CUDA_ARCHS=some scripts/build.sh all
refused "PRESET=fast is not known" env PRESET=fast scripts/build.sh all
refused "no tests in" scripts/test.sh
refused "KILLS=many is not a count" env KILLS=many scripts/test_long.sh
refused "no tandem or no tests in" scripts/test_long.sh

# A machine with nothing missing, by way of a dpkg-query that says so and a venv that is there: the libtorch is looked at.
mkdir -p "$work/bin" "$work/.venv/.stamps" "$work/.venv/bin"
printf '#!/bin/bash\nshift 2\nfor p; do printf "installed:%%s " "$p"; done\n' >"$work/bin/dpkg-query"
printf '#!/bin/bash\n' | tee "$work/bin/apt-get" >"$work/.venv/bin/python3"
chmod +x "$work/bin/"* "$work/.venv/bin/python3"
(cd "$work" && . scripts/versions.sh && echo "venv 1" >.venv/.stamps/venv && echo "$BUILD_WHEELS" >.venv/.stamps/build)
given() { env PATH="$work/bin:$PATH" TORCH_DIR="$1" CUDA=off scripts/setup.sh; }
libtorch() { # FOLDER MINOR
  mkdir -p "$1/include/ATen" "$1/include/torch/headeronly" "$1/lib"
  touch "$1/include/ATen/ATen.h" "$1/lib/libtorch_cpu.so"
  printf '#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR %s\n#define TORCH_VERSION_PATCH 1\n' "$2" >"$1/include/torch/headeronly/version.h"
}
libtorch "$work/old" 6
libtorch "$work/above/libtorch" 11
refused "is not a folder" env PATH="$work/bin:$PATH" TORCH_DIR=/nowhere CUDA=off scripts/setup.sh
refused "no libtorch in" env PATH="$work/bin:$PATH" TORCH_DIR="$work/scripts" CUDA=off scripts/setup.sh
refused "is version 2.6.1" env PATH="$work/bin:$PATH" TORCH_DIR="$work/old" CUDA=off scripts/setup.sh
refused "run again with TORCH_DIR=$work/above/libtorch" env PATH="$work/bin:$PATH" TORCH_DIR="$work/above" CUDA=off scripts/setup.sh
if ! out=$(cd "$work" && given "$work/above/libtorch" 2>&1); then
  echo "FAILED: a good libtorch was refused: $out"
  failed=1
fi

# What CUDA=auto asks CMake for: nothing of CUDA where nvcc would compile for GPUs that are not here. CMake is played by a script.
printf '#!/bin/bash\nprintf "%%s\\n" "$@" >"%s"\nexit 1\n' "$work/asked" >"$work/.venv/bin/cmake"
printf '#!/bin/bash\necho release 13.0\n' | tee "$work/bin/nvcc" >"$work/smi"
chmod +x "$work/.venv/bin/cmake" "$work/bin/nvcc" "$work/smi"
asks() { # EXPECTED NAME=VALUE...
  local expected=$1
  shift
  rm -f "$work/asked"
  (cd "$work" && env -u TORCH_DIR -u CUDA -u CUDA_ARCHS -u PRESET -u BUILD_DIR -u JOBS PATH="$work/bin:$PATH" "$@" scripts/build.sh all) >/dev/null 2>&1
  if ! grep -qx -- "-DTANDEM_CUDA=$expected" "$work/asked"; then
    echo "FAILED: the build with '$*' was expected to ask for TANDEM_CUDA=$expected; it asked for:"
    cat "$work/asked"
    failed=1
  fi
}
. "$here/scripts/nvcc.sh"
gpu_here || asks off CUDA=auto
asks auto CUDA=auto CUDA_ARCHS=90
asks on CUDA=on
asks off CUDA=off
# CMake by itself decides the same: with nvcc, without a GPU, nothing is compiled for GPUs.
cmake=$(command -v "$here/.venv/bin/cmake" cmake | head -n 1)
if [[ -n $cmake ]] && ! gpu_here; then
  mkdir -p "$work/project" "$work/toolkit/"{lib64,include/crt,nvvm/bin}
  touch "$work/toolkit/"{lib64/libcudart_static.a,include/cuda_runtime.h,include/crt/host_config.h}
  printf '#!/bin/bash\necho "TOP=%s/toolkit"\necho release 13.0\n' "$work" | tee "$work/bin/nvcc" >"$work/toolkit/nvvm/bin/cicc"
  chmod +x "$work/toolkit/nvvm/bin/cicc"
  printf 'cmake_minimum_required(VERSION 3.28)\nproject(auto LANGUAGES CXX)\nset(TANDEM_CUDA auto)\ninclude(%s)\n' \
    "$here/cmake/TandemCuda.cmake" >"$work/project/CMakeLists.txt"
  if ! out=$(PATH="$work/bin:$PATH" "$cmake" -S "$work/project" -B "$work/project/build" 2>&1) ||
    [[ $out != *"CUDA: not used; no GPU here, so the build is for the CPU alone"* ]]; then
    echo "FAILED: nvcc without a GPU was expected to leave a build for the CPU; CMake said:"
    echo "$out"
    failed=1
  fi
fi

mv "$work/smi" "$work/bin/nvidia-smi" # and a GPU
asks auto CUDA=auto

((failed)) || echo "every wrong request is answered"
exit $failed
