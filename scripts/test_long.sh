#!/usr/bin/env bash
# scripts/test_long.sh -- the campaigns of which `make test` runs a small part, each with many more repetitions. Hours; one summary line for each.
#
# KILLS (1,000) kills around checkpoint writes, a tenth of them of whole runs; each end of a launcher ENDS (20) times; a minute of what the
# monitor costs; CHESS_GAMES (10,000) random games beside python-chess, and 200 that it plays over UCI; 10,000 simulated schedules
# (scripts/simulate.sh); TRIALS (500) random plans and faults of each recipe on every plane. Exit 1 if one of them failed; the others
# run all the same.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/messages.sh
BUILD_DIR=${BUILD_DIR:-build}
KILLS=${KILLS:-1000} ENDS=${ENDS:-20} TRIALS=${TRIALS:-500} CHESS_GAMES=${CHESS_GAMES:-10000}
for name in KILLS ENDS TRIALS CHESS_GAMES; do
  [[ ${!name} =~ ^[1-9][0-9]*$ ]] || fail 2 "$name=${!name} is not a count" "it says how often a fault is tried" "run again with $name=100, say, or without it"
done
[[ -x $BUILD_DIR/bin/tandem && -x $BUILD_DIR/tests/checkpoint_kill_test ]] ||
  fail 2 "no tandem or no tests in $BUILD_DIR" "nothing has been built there" "run \`make test-long\`"
export PATH=$PWD/.venv/bin:$PATH BUILD_DIR TRIALS
status=0

campaign() { # NAME COMMAND...
  local start name=$1
  shift
  start=$(now_ms)
  if "$@"; then
    say "$name: passed in $(seconds_since "$start") s"
  else
    say "$name: FAILED after $(seconds_since "$start") s"
    status=1
  fi
}

campaign "$KILLS kills of a process that saves" env TANDEM_KILLS="$KILLS" "$BUILD_DIR/tests/checkpoint_kill_test"
campaign "$(((KILLS + 9) / 10)) kills of runs" env TANDEM_KILLS=$(((KILLS + 9) / 10)) python3 tests/python/run_test.py "$BUILD_DIR/bin" Kills
campaign "$ENDS times each end of a launcher" env TANDEM_ENDS="$ENDS" python3 tests/python/fleet_test.py "$BUILD_DIR/bin" Processes
campaign "a minute of the monitor" env MONITOR_COST_SECONDS=60 python3 tests/python/monitor_terminal_test.py "$BUILD_DIR/bin" Cost
campaign "$CHESS_GAMES games of chess beside python-chess" env TANDEM_CHESS_GAMES="$CHESS_GAMES" python3 tests/python/chess_rules_test.py "$BUILD_DIR/tests/chess_rules_tool"
campaign "200 chess games over UCI" env TANDEM_UCI_GAMES=200 python3 tests/python/chess_uci_test.py "$BUILD_DIR/bin" Games
campaign "simulated schedules" scripts/simulate.sh
campaign "faults on one machine and over the network" scripts/test_faults.sh
for recipe in tiny tiny-rl; do
  campaign "faults under NCCL, $recipe" python3 tests/faults/campaign.py "$BUILD_DIR/bin" --plane nccl --recipe "$recipe" --trials "$TRIALS"
  campaign "faults under sums by kernels, $recipe" python3 tests/faults/campaign.py "$BUILD_DIR/bin" --plane peer --recipe "$recipe" --trials "$TRIALS"
done
exit $status
