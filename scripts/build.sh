#!/usr/bin/env bash
# scripts/build.sh TARGET... -- configures BUILD_DIR if what is asked has changed, then builds the targets with ninja.
#
# Read from the environment, all optional: BUILD_DIR, PRESET, CUDA, CUDA_ARCHS, TORCH_DIR, JOBS, CMAKE_ARGS.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/messages.sh
. scripts/nvcc.sh

PRESET=${PRESET:-release}
BUILD_DIR=${BUILD_DIR:-build}
CUDA=${CUDA:-auto}
CUDA_ARCHS=${CUDA_ARCHS:-native}
TORCH_DIR=${TORCH_DIR:-}
JOBS=${JOBS:-$(nproc)}
[[ $JOBS =~ ^[1-9][0-9]*$ ]] || fail 2 "JOBS=$JOBS is not a count" "it is how many compilers run at once" "run again with JOBS=2, say, or without it"
[[ $CUDA_ARCHS =~ ^(native|all|[0-9]+[af]?(;[0-9]+[af]?)*)$ ]] ||
  fail 2 "CUDA_ARCHS=$CUDA_ARCHS is not known" "it says for which GPUs the .cu files are compiled: native (those found here), all, or a list such as '80;90'" \
    "run again with one of these"
case $PRESET in
  release | debug | asan | tsan) ;;
  *) fail 2 "PRESET=$PRESET is not known" "CMakePresets.json has: release, debug, asan, tsan" "run again with one of these" ;;
esac

PATH=$PWD/.venv/bin:$PATH
arguments=(--preset "$PRESET" -B "$BUILD_DIR" "-DCMAKE_MAKE_PROGRAM=$PWD/.venv/bin/ninja" "-DTANDEM_CUDA_ARCHS=$CUDA_ARCHS")
case $CUDA in
  pypi)
    nvcc=$(wheel_nvcc)
    [[ -n $nvcc ]] || fail 2 "CUDA=pypi, but there is no nvcc in .venv" "set-up installs it" "run \`make setup CUDA=pypi\`"
    arguments+=(-DTANDEM_CUDA=on "-DCMAKE_CUDA_COMPILER=$nvcc")
    ;;
  auto)
    # nvcc without a GPU: this machine could not run what it compiles, and `native` would mean every architecture. A list asks for it.
    if [[ $CUDA_ARCHS == native ]] && ! gpu_here; then
      arguments+=(-DTANDEM_CUDA=off)
      without_gpu="no GPU here, so the build is for the CPU alone; CUDA=on compiles the kernels too"
    else
      arguments+=(-DTANDEM_CUDA=auto)
      nvcc=$(wheel_nvcc)
      [[ -n $nvcc ]] && ! machine_nvcc >/dev/null && arguments+=("-DCMAKE_CUDA_COMPILER=$nvcc")
    fi
    ;;
  on | off) arguments+=("-DTANDEM_CUDA=$CUDA") ;;
  *) fail 2 "CUDA=$CUDA is not known" "it says where nvcc comes from: auto, on, off, pypi" "run again with one of these, or without CUDA=" ;;
esac
[[ -n $TORCH_DIR ]] && arguments+=("-DTORCH_DIR=$(cd "$TORCH_DIR" && pwd)")
read -ra more <<<"${CMAKE_ARGS:-}"
asked="${arguments[*]} ${more[*]:-}"

# ninja runs CMake again when a CMake file changes; we need to only when somebody asks for something else.
if [[ ! -f $BUILD_DIR/build.ninja || ! -f $BUILD_DIR/.asked || $(<"$BUILD_DIR/.asked") != "$asked" ]]; then
  start=$(now_ms)
  [[ -z ${without_gpu:-} ]] || say "CUDA=auto: $without_gpu"
  mkdir -p "$BUILD_DIR" || fail 1 "cannot make the folder $BUILD_DIR" "no permission, or the disk is full" "name another one: BUILD_DIR=..."
  rm -f "$BUILD_DIR/.asked"
  if ! cmake --fresh "${arguments[@]}" ${more[@]+"${more[@]}"} >"$BUILD_DIR/configure.log" 2>&1; then
    cat "$BUILD_DIR/configure.log" >&2
    fail 1 "configuring failed" "see above" "mend it and run the same command again; if the folder is confused, \`make clean\` first"
  fi
  grep -E '^-- (tandem|CUDA):' "$BUILD_DIR/configure.log" >&2
  printf '%s\n' "$asked" >"$BUILD_DIR/.asked"
  say "configured $BUILD_DIR in $(seconds_since "$start") s"
fi

start=$(now_ms)
ninja -C "$BUILD_DIR" -j "$JOBS" "$@" || fail 1 "the build of '$*' failed" "the compiler's words are above" "mend the source and run the same command again; if memory ran out, with JOBS=1"
say "built $* in $(seconds_since "$start") s"
