#!/usr/bin/env bash
# tests/kernels_test.sh NVCC INCLUDE [FLAG...] -- kernels do not spill: fails if ptxas, for sm_90a, reports a stack frame or spills of more
# than 128 bytes to a thread. A harmless change of the source can spill hundreds, which makes a kernel several times slower without changing
# a bit of its results: only a GPU would show it.
#
# The check is checked: a planted kernel with more live values than registers must fail it.
set -u
nvcc=$1 include=$2
shift 2
flags=("$@")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
most=128
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Into $work/list: "BYTES KERNEL" of each kernel of a source, the larger of its stack frame and its spill stores.
list() { # SOURCE
  local said=$work/said
  "$nvcc" -std=c++20 -I"$here/src" -I"$include" --fmad=false -gencode arch=compute_90a,code=sm_90a -Xptxas -v "${flags[@]}" \
    -cubin -o "$work/cubin" "$1" >"$said" 2>&1 || {
    echo "FAILED: $1 was not compiled:"
    cat "$said"
    return 1
  }
  awk '/Compiling entry function/ { kernel = $(NF - 2) }
       kernel && /bytes stack frame/ { print ($1 + 0 > $5 + 0 ? $1 : $5), kernel; kernel = "" }' "$said" >"$work/list"
  local kernels
  kernels=$(grep -c 'Compiling entry function' "$said")
  if [[ $kernels -ne $(wc -l <"$work/list") ]] || { [[ $kernels -eq 0 ]] && grep -q '^__global__' "$1"; }; then
    echo "FAILED: ptxas's output for $1 has another form than expected:"
    cat "$said"
    return 1
  fi
}
spilling() { awk -v most=$most '$1 + 0 > most' "$work/list"; }

cat >"$work/planted.cu" <<'PLANTED'
__global__ void __launch_bounds__(1024, 2) planted(const float* from, float* to) {
  float x[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) x[i] = from[i * blockDim.x + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) to[i * blockDim.x + threadIdx.x] = x[i] * x[95 - i];
}
PLANTED
list "$work/planted.cu" || exit 1
if [[ $(spilling | wc -l) -ne 1 ]]; then
  echo "FAILED: the planted kernel was not seen to spill more than $most bytes:"
  cat "$work/said"
  exit 1
fi
kernels=0 failed=0
while read -r source; do
  list "$source" </dev/null || {
    failed=1
    continue
  }
  kernels=$((kernels + $(wc -l <"$work/list")))
  while read -r bytes kernel; do
    echo "FAILED: ${source#"$here"/}: $kernel spills $bytes bytes (at most $most)"
    failed=1
  done < <(spilling)
done < <(find "$here/src" -name '*.cu' | sort)
echo "$kernels kernels"
[[ $kernels -gt 0 && $failed -eq 0 ]]
