#!/usr/bin/env bash
# scripts/bench.sh [ARGUMENTS] -- runs every program of BUILD_DIR/bench, one after the other; its figures go to stdout.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/messages.sh
BUILD_DIR=${BUILD_DIR:-build}
mapfile -t programs < <(find "$BUILD_DIR/bench" -maxdepth 1 -type f -perm -u+x 2>/dev/null | sort)
((${#programs[@]})) || fail 2 "no benchmarks in $BUILD_DIR/bench" "nothing has been built there" "run \`make bench\`"
status=0
for program in "${programs[@]}"; do
  say "== ${program##*/}"
  OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 "$program" "$@" || { say "${program##*/} failed with code $?"; status=1; }
done
exit $status
