#!/usr/bin/env bash
# scripts/test_faults.sh [campaign arguments] -- TRIALS (default 500) random plans and faults of each test recipe against
# the real programs in BUILD_DIR; see tests/faults/campaign.py. Exit 1 if a digest differs, a run hangs, a process is left.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/messages.sh
BUILD_DIR=${BUILD_DIR:-build}
[[ -x $BUILD_DIR/bin/tandem ]] || fail 2 "no $BUILD_DIR/bin/tandem" "nothing has been built there" "run \`make test-faults\`"
status=0
for recipe in tiny tiny-rl; do
  .venv/bin/python3 tests/faults/campaign.py "$BUILD_DIR/bin" --recipe "$recipe" --trials "${TRIALS:-500}" "$@" || status=1
done
exit $status
