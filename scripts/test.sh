#!/usr/bin/env bash
# scripts/test.sh [ctest arguments] -- runs the tests of BUILD_DIR; the last lines are ctest's own summary.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/messages.sh
BUILD_DIR=${BUILD_DIR:-build}
[[ -f $BUILD_DIR/CTestTestfile.cmake ]] || fail 2 "no tests in $BUILD_DIR" "nothing has been built there" "run \`make test\`"
# The tests that read our files with PyPI's packages find them here.
export PATH=$PWD/.venv/bin:$PATH
# Half as many again as there are cores: tests of whole runs wait about half of their time, for a frozen worker or a timer. Those that keep
# several cores busy say so (PROCESSORS in tests/CMakeLists.txt).
jobs=${JOBS:-$(nproc)}
exec ctest --test-dir "$BUILD_DIR" --output-on-failure -j "$((jobs + jobs / 2))" "$@"
