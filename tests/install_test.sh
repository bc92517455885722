#!/usr/bin/env bash
# tests/install_test.sh BUILD_DIR CMAKE NINJA -- installs into a fresh prefix, builds the programs of examples/ against it
# with find_package(tandem), trains with them, and expects one digest on one and two workers, an environment that is
# learned to near its optimum, and a recipe whose own command is in help and completion and answers from its run.
set -eu
build=$1 cmake=$2 ninja=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --prefix "$work/prefix" >"$work/log" || { cat "$work/log"; exit 1; }
cd "$work"
# Copies, so that nothing can be found by its place in the checkout.
# Not optimized: that is two thirds of the compiler's time, and what takes time in a run is in the library.
build_example() {
  cp -r "$here/examples/$1" "$work/$1"
  "$cmake" -G Ninja -DCMAKE_MAKE_PROGRAM="$ninja" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
    -S "$work/$1" -B "$work/build-$1"
  "$cmake" --build "$work/build-$1" -j 1
}
# Side by side: each is one or two files, so one of them alone keeps one core busy.
build_example own_model >own_model.log 2>&1 & model=$!
build_example own_verb >own_verb.log 2>&1 & verb=$!
build_example own_env || exit 1
for one in "$model own_model" "$verb own_verb"; do
  wait "${one% *}" || { cat "${one#* }.log"; exit 1; }
done
program_of() { find "build-$1" -type f -name "$1" -perm -u+x | head -n 1; }
"./$(program_of own_model)" train --steps 20 --json | tee out.json
grep -q '"digest"' out.json
shop=./$(program_of own_env)
for devices in cpu:1 cpu:2; do
  "$shop" train --steps 60 --devices $devices --json | tee "$devices.json"
  grep -o '"digest": *"[0-9a-f]*"' "$devices.json" >"$devices.digest"
done
test -s cpu:1.digest
cmp cpu:1.digest cpu:2.digest
"$shop" judge --steps 3000 | tee judged   # 0: random orders, 1: dynamic programming
awk '{ exit !($NF > 0.9) }' judged
"$shop" --help | grep -q '^  act '   # dqn_entry() brings it
"$shop" eval last --episodes 100 --json | tee shop.json   # and this, in the environment of this very program
grep -q '"return_low"' shop.json
grep -q '"environment": *"shop"' shop.json
if "$shop" eval last --render shop.mp4 2>wrong; then exit 1; fi
grep -q 'draws no pictures' wrong
for devices in cpu:1 cpu:2; do   # the other learner
  "$shop" train shop-ppo --steps 60 --devices $devices --json | grep -o '"digest": *"[0-9a-f]*"' >"ppo.$devices"
done
test -s ppo.cpu:1
cmp ppo.cpu:1 ppo.cpu:2
"$shop" judge shop-ppo | tee judged
awk '{ exit !($NF > 0.9) }' judged
line=./$(program_of own_verb)
"$line" train --steps 400 --noise 0 --json | tee line.json
"$line" predict last --x 2 --json | tee predicted.json   # 3 x + 1
grep -oE '"y":[0-9.]+' predicted.json | awk -F: '{ exit !($2 > 6.8 && $2 < 7.2) }'
"$line" predict --help | grep -q -- '--x number'
"$line" train --help | grep -q -- '--noise x .*\[0.1, default of line\]'
"$line" completion bash | grep -q predict
if "$line" eval last 2>wrong; then exit 1; fi   # a verb of other recipes
grep -q 'no command "eval"' wrong
test -x prefix/bin/tandem
prefix/bin/tandem version
