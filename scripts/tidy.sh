#!/usr/bin/env bash
# scripts/tidy.sh [FILE...] -- clang-tidy (.clang-tidy) on the sources below libtorch, or on the files named.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/messages.sh
command -v clang-tidy >/dev/null || fail 2 "no clang-tidy here" "it is large and optional, so set-up does not install it" "apt-get install clang-tidy, then run the same command again"
# clang-tidy looks at one file at a time, so it is told how each is compiled alone; nothing is built there.
build=build-tidy
PATH=$PWD/.venv/bin:$PATH cmake --preset "${PRESET:-release}" -B $build "-DCMAKE_MAKE_PROGRAM=$PWD/.venv/bin/ninja" -DTANDEM_UNITY=OFF -DTANDEM_CUDA=off \
  ${TORCH_DIR:+"-DTORCH_DIR=$TORCH_DIR"} >$build.log 2>&1 || { cat $build.log >&2; fail 1 "configuring $build failed" "see above" "mend it and run the same command again"; }
rm -f $build.log
files=("$@")
# Above libtorch a file takes clang-tidy minutes, and gcc's precompiled header is not clang's.
((${#files[@]})) || mapfile -t files < <(find src/{base,config,checkpoint,telemetry,world,runs,launch,kernels} -name '*.cc' ! -name '*_test.cc' 2>/dev/null | sort)
printf '%s\n' "${files[@]}" | xargs -P "${JOBS:-$(nproc)}" -n 1 clang-tidy -p $build --quiet
