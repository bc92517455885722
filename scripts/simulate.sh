#!/usr/bin/env bash
# scripts/simulate.sh -- builds tandem_simulate without libtorch and runs seeded schedules of the fleet's coordinator.
#
# SEED=n replays that one schedule, event by event; without it SCHEDULES (default 10,000) run from seed 1 on.
# WORKERS=n fixes their number (else drawn from the seed); MUTANT=name breaks the protocol on purpose. Exit 1 at the
# first broken promise, with the last events before it and the command that replays it.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/messages.sh

SCHEDULES=${SCHEDULES:-10000}
BUILD=${SIMULATE_BUILD_DIR:-build-simulate}
for name in SEED SCHEDULES WORKERS; do
  [[ ${!name:-} =~ ^[0-9]*$ ]] || fail 2 "$name=${!name} is not a count" "a seed, a count of schedules and a count of workers are whole numbers" "run again with $name=123, say"
done
PATH=$PWD/.venv/bin:$PATH

start=$(now_ms)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ cmake -S . -B "$BUILD" -G Ninja -DTANDEM_TORCH=OFF -DTANDEM_CUDA=off -DTANDEM_BENCH=OFF &&
  ninja -C "$BUILD" -j "${JOBS:-$(nproc)}" tandem_simulate; } >"$log" 2>&1 ||
  { cat "$log" >&2; fail 1 "building tandem_simulate failed" "see above" "mend the source and run the same command again"; }
say "built tandem_simulate in $(seconds_since "$start") s"

arguments=(--seed "${SEED:-1}")
if [[ -n ${SEED:-} ]]; then arguments+=(--verbose); else arguments+=(--schedules "$SCHEDULES"); fi
[[ -n ${WORKERS:-} ]] && arguments+=(--workers "$WORKERS")
[[ -n ${MUTANT:-} ]] && arguments+=(--mutant "$MUTANT")
exec "$BUILD/bin/tandem_simulate" "${arguments[@]}"
