#!/usr/bin/env bash
# scripts/fuzz.sh [TARGET...] -- builds these fuzz targets, or all, with clang (ASan, UBSan, libFuzzer) and runs each.
#
# EXECUTIONS (default 1,000,000) inputs each, at most MEMORY_MB (default 2048) of memory and SECONDS_EACH (default: no
# limit) of time; an input hangs after HANG_SECONDS (default 10: more where the machine is busy). FUZZ_SEED repeats a
# run. Inputs that found something new are kept in .cache/fuzz/TARGET and used again; seeds come from fuzz/corpus/TARGET.
# The table goes to stdout. Exit 1 if a target crashed, hung or outgrew its memory.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/messages.sh

EXECUTIONS=${EXECUTIONS:-1000000}
MEMORY_MB=${MEMORY_MB:-2048}
SECONDS_EACH=${SECONDS_EACH:-0}
BUILD=build-fuzz
[[ $EXECUTIONS =~ ^[1-9][0-9]*$ ]] || fail 2 "EXECUTIONS=$EXECUTIONS is not a count" "it is how many inputs each target gets" "run again with EXECUTIONS=1000000, say"
PATH=$PWD/.venv/bin:$PATH
command -v clang++ >/dev/null || fail 2 "no clang++ here" "libFuzzer comes with clang" "run \`make fuzz\`, which installs it"
[[ -f fuzz/CMakeLists.txt ]] || fail 2 "no fuzz targets" "there is no fuzz/CMakeLists.txt" "add one with tandem_fuzz()"

start=$(now_ms)
cmake --preset fuzz -B "$BUILD" >"/tmp/tandem-fuzz-$$.log" 2>&1 || { cat "/tmp/tandem-fuzz-$$.log" >&2; rm -f "/tmp/tandem-fuzz-$$.log"; fail 1 "configuring $BUILD failed" "see above" "mend it and run again"; }
rm -f "/tmp/tandem-fuzz-$$.log"
mapfile -t known < <(ninja -C "$BUILD" -t targets all | sed -nE 's/^(fuzz_[A-Za-z0-9_]+): phony$/\1/p')
for target in "$@"; do
  [[ " ${known[*]} " == *" $target "* ]] || fail 2 "no fuzz target '$target'" "there are: ${known[*]}" "choose one of these"
done
(($#)) || set -- "${known[@]}"
ninja -C "$BUILD" -j "${JOBS:-$(nproc)}" "$@" >&2 ||
  fail 1 "building the fuzz targets failed" "the compiler's words are above" "mend the source and run again"
say "built the fuzz targets in $(seconds_since "$start") s"

status=0
printf '%-28s %12s %10s %9s %9s %8s  %s\n' target executions per_second corpus peak_MB seconds result
for target in "$@"; do
  program=$BUILD/fuzz/$target
  corpus=.cache/fuzz/$target
  mkdir -p "$corpus" ".cache/fuzz/found"
  seeds=()
  [[ -d fuzz/corpus/$target ]] && seeds+=("fuzz/corpus/$target")
  words=()
  [[ -f fuzz/corpus/$target.dict ]] && words+=("-dict=fuzz/corpus/$target.dict")
  log=.cache/fuzz/$target.log
  began=$(now_ms)
  "$program" -runs="$EXECUTIONS" -rss_limit_mb="$MEMORY_MB" -malloc_limit_mb="$MEMORY_MB" -timeout="${HANG_SECONDS:-10}" -max_total_time="$SECONDS_EACH" \
    ${FUZZ_SEED:+-seed="$FUZZ_SEED"} -print_final_stats=1 -artifact_prefix=".cache/fuzz/found/$target-" "${words[@]}" "$corpus" "${seeds[@]}" >"$log" 2>&1
  code=$?
  executions=$(sed -nE 's/^stat::number_of_executed_units: *//p' "$log")
  rate=$(sed -nE 's/^stat::average_exec_per_sec: *//p' "$log")
  peak=$(sed -nE 's/^stat::peak_rss_mb: *//p' "$log")
  result=ok
  if ((code != 0)); then
    result="FAILED ($(grep -m 1 -E 'SUMMARY|ERROR|runtime error' "$log" | cut -c 1-80))"
    status=1
  fi
  printf '%-28s %12s %10s %9s %9s %8s  %s\n' "$target" "${executions:-?}" "${rate:-?}" "$(find "$corpus" -type f | wc -l)" "${peak:-?}" "$(seconds_since "$began")" "$result"
  ((code == 0)) || say "  the input is in .cache/fuzz/found/$target-*, the words in $log; again: $program <input>"
done
exit $status
