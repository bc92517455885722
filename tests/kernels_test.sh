#!/usr/bin/env bash
# tests/kernels_test.sh NVCC INCLUDE [FLAG...] -- kernels keep their numbers in registers: the compiler says of each one, for Hopper's, how many
# bytes it parks in memory instead. A change that costs nothing in its source can park hundreds, and makes a kernel four times slower without
# changing a bit of what it computes: only a GPU would show it.
#
# The judge itself is judged: a planted kernel that has more numbers than registers must be found wanting.
set -u
nvcc=$1 include=$2
shift 2
flags=("$@")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
most=128
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Into $work/list: "BYTES KERNEL" of each kernel of a source, the larger of its frame and of what it spills.
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
    echo "FAILED: of $1 the compiler's words are not understood any more:"
    cat "$said"
    return 1
  fi
}
wanting() { awk -v most=$most '$1 + 0 > most' "$work/list"; }

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
if [[ $(wanting | wc -l) -ne 1 ]]; then
  echo "FAILED: the planted kernel was not seen to park more than $most bytes:"
  cat "$work/said"
  exit 1
fi
kernels=0 failed=0
for source in "$here"/src/*/cuda_*.cu; do
  list "$source" || {
    failed=1
    continue
  }
  kernels=$((kernels + $(wc -l <"$work/list")))
  while read -r bytes kernel; do
    echo "FAILED: ${source#"$here"/}: $kernel parks $bytes bytes in memory (at most $most)"
    failed=1
  done < <(wanting)
done
echo "$kernels kernels"
[[ $kernels -gt 0 && $failed -eq 0 ]]
