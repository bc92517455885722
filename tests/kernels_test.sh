#!/usr/bin/env bash
# tests/kernels_test.sh CUOBJDUMP BUILD NVCC [FLAG...] -- kernels do not spill: fails if a kernel of BUILD's CUDA libraries, for any GPU that
# it was compiled for, has more than 128 bytes of stack to a thread (spills are there too). A harmless change of the source can spill
# hundreds, which makes a kernel several times slower without changing a bit of its results: only a GPU would show it.
#
# The check is checked: a planted kernel with more live values than registers must fail it, and no kernel of the sources may be missing.
set -u
cuobjdump=$1 build=$2 nvcc=$3
shift 3
flags=("$@")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
most=128
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Into $work/list: "BYTES KERNEL" of each kernel and GPU.
list() { # BINARY...
  local binary
  for binary in "$@"; do
    "$cuobjdump" --dump-resource-usage "$binary" 2>&1 || {
      echo "FAILED: cuobjdump could not read $binary:"
      cat "$work/said"
      return 1
    } >&2
  done >"$work/said"
  awk '/^ *Function / { kernel = $2; sub(/:$/, "", kernel) }
       kernel && match($0, /STACK:[0-9]+/) { print substr($0, RSTART + 6, RLENGTH - 6), kernel; kernel = "" }' "$work/said" >"$work/list"
  if [[ ! -s $work/list || $(grep -c '^ *Function ' "$work/said") -ne $(wc -l <"$work/list") ]]; then
    echo "FAILED: cuobjdump's output for $* has another form than expected:"
    cat "$work/said"
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
"$nvcc" -gencode arch=compute_90a,code=sm_90a "${flags[@]}" -cubin -o "$work/planted.cubin" "$work/planted.cu" || exit 1
list "$work/planted.cubin" || exit 1
if [[ $(spilling | wc -l) -ne 1 ]]; then
  echo "FAILED: the planted kernel was not seen to spill more than $most bytes:"
  cat "$work/said"
  exit 1
fi

mapfile -t libraries < <(find "$build" -name 'libtandem_*_cuda.a' | sort)
list "${libraries[@]}" || exit 1
failed=0
while read -r bytes kernel; do
  echo "FAILED: $kernel spills $bytes bytes (at most $most)"
  failed=1
done < <(spilling)
while read -r kernel; do
  grep -q "$kernel" "$work/list" || {
    echo "FAILED: $kernel is in the sources, not in ${libraries[*]}"
    failed=1
  }
done < <(find "$here/src" -name '*.cu' -print0 | xargs -0 perl -0777 -ne \
  'print "$1\n" while /__global__\s+(?:void\s+)?(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*)?(?:void\s+)?(\w+)\s*\(/g' | sort -u)
echo "$(wc -l <"$work/list") kernels, each for one GPU"
[[ $failed -eq 0 ]]
