#!/usr/bin/env bash
# scripts/tidy.sh [FILE...] -- clang-tidy (.clang-tidy) on the sources below libtorch, or on the files named.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/messages.sh
BUILD_DIR=${BUILD_DIR:-build}
command -v clang-tidy >/dev/null || fail 2 "no clang-tidy here" "it is large and optional, so set-up does not install it" "apt-get install clang-tidy, then run the same command again"
[[ -f $BUILD_DIR/compile_commands.json ]] || fail 2 "no $BUILD_DIR/compile_commands.json" "clang-tidy needs to know how each file is compiled" "run \`make build\`"
files=("$@")
# Above libtorch a file takes clang-tidy minutes, and gcc's precompiled header is not clang's.
((${#files[@]})) || mapfile -t files < <(find src/{base,config,checkpoint,telemetry,world,runs,launch,kernels} -name '*.cc' ! -name '*_test.cc' 2>/dev/null | sort)
printf '%s\n' "${files[@]}" | xargs -P "${JOBS:-$(nproc)}" -n 1 clang-tidy -p "$BUILD_DIR" --quiet
