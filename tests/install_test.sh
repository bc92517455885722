#!/usr/bin/env bash
# tests/install_test.sh BUILD_DIR CMAKE NINJA -- installs into a fresh prefix, builds examples/own_model against it with
# find_package(tandem), trains with it for 20 steps, and expects the digest in its JSON.
set -eu
build=$1 cmake=$2 ninja=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --prefix "$work/prefix" >"$work/log" || { cat "$work/log"; exit 1; }
# A copy, so that nothing can be found by its place in the checkout.
cp -r "$here/examples/own_model" "$work/own_model"
"$cmake" -G Ninja -DCMAKE_MAKE_PROGRAM="$ninja" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -S "$work/own_model" -B "$work/build"
"$cmake" --build "$work/build"
cd "$work"
program=$(find build -type f -name own_model -perm -u+x | head -n 1)
"./$program" train --steps 20 --json | tee out.json
grep -q '"digest"' out.json
test -x prefix/bin/tandem
prefix/bin/tandem version
