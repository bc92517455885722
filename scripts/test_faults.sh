#!/usr/bin/env bash
# scripts/test_faults.sh [campaign arguments] -- TRIALS (default 500) random plans and faults of each test recipe against
# the real programs in BUILD_DIR, and a fifth of that many with plain ranks over the network; see tests/faults/campaign.py.
# One summary line for each plane and recipe. Exit 1 if a digest differs, a run hangs, a process or a file is left.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/messages.sh
BUILD_DIR=${BUILD_DIR:-build}
[[ -x $BUILD_DIR/bin/tandem ]] || fail 2 "no $BUILD_DIR/bin/tandem" "nothing has been built there" "run \`make test-faults\`"
trials=${TRIALS:-500}
status=0
campaign() {  # PLANE TRIALS
  for recipe in tiny tiny-rl; do
    .venv/bin/python3 tests/faults/campaign.py "$BUILD_DIR/bin" --plane "$1" --recipe "$recipe" --trials "$2" "${@:3}" || status=1
  done
}
campaign local "$trials" "$@"
if RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 TANDEM_SECRET=nobody-else-comes-here "$BUILD_DIR/bin/tandem-worker" train tiny --dry-run 2>&1 |
  grep -q "this build can't train with"; then
  say "skipped: the network; this build has no Gloo"
else
  campaign net "$(((trials + 4) / 5))" "$@"
fi
exit $status
