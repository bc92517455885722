#!/usr/bin/env bash
# tests/lint_test.sh -- every rule of the lint stops the line it was made for, and lets clean code pass.
#
# A small tree of clean files, then one planted line at a time: the lint must fail and name the rule.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

clean_tree() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree"/src/{base,hardware,kernels,telemetry,world,engine,recipes,cli} "$tree"/{tests,docs,examples/own}
  cp "$here/.clang-format" "$tree/"
  echo '#include "base/a.h"' | tee "$tree"/src/{base,hardware,kernels,telemetry,engine,recipes,cli}/a.{h,cc} "$tree"/src/engine/a_test.cc "$tree"/tests/whole_test.cc >/dev/null
  echo 'true' >"$tree/tests/whole.sh"
}

lint=("$here/scripts/lint.sh")

expect() { # WHAT RULE SUBJECT: WHAT is passes or stops; for the latter RULE must be in the words
  local what=$1 rule=$2 out code
  out=$("${lint[@]}" "$tree" 2>&1)
  code=$?
  if [[ $what == passes && $code -ne 0 ]] || [[ $what == stops && ($code -ne 1 || $out != *"$rule"*) ]]; then
    echo "FAILED: expected that the lint $what for: $3 (exit $code)"
    echo "$out"
    failed=1
  fi
}

plant() { # RULE FILE LINE
  clean_tree
  printf '%s\n' "$3" >>"$tree/$2"
  expect stops "[$1]" "$2: $3"
}

let_pass() { # FILE LINE
  clean_tree
  printf '%s\n' "$2" >>"$tree/$1"
  expect passes "" "$1: $2"
}

clean_tree
expect passes "" "clean tree"
clean_tree
echo 'int  f( ){return 1;}' >>"$tree/src/base/a.cc"
expect stops 'make format' 'a line out of shape'
plant random src/recipes/a.cc 'auto y = torch::rand({2});'

lint=(python3 "$here/scripts/promises.py") # the rest is about the promises alone, not about shape

for call in 'torch::rand({2})' 'torch::randn({2})' 'at::randperm(9)' 'at::bernoulli(x, 0.5)' 'torch::manual_seed(1)' 'x.uniform_(0, 1)' \
  'x.normal_()' 'x.multinomial(1)' 'torch::dropout(x, 0.5, true)' 'torch::nn::functional::dropout(x)' 'F::dropout(x)' 'torch::nn::Dropout(0.5)' \
  'torch::nn::init::xavier_uniform_(w)' 'torch::nn::LSTMOptions(2, 2).dropout(0.5)' 'at::detail::getDefaultCPUGenerator()'; do
  plant random src/recipes/a.cc "auto y = $call;"
done
plant std-random src/base/a.cc 'std::mt19937_64 engine(1);'
plant std-random src/engine/a.cc 'std::shuffle(a, b, engine);'
plant rand src/base/a.cc 'int i = std::rand();'
plant rand src/engine/a_test.cc 'std::random_device device;'
plant rand src/base/a.cc 'int i = rand();'
plant pickle src/engine/a.cc 'torch::load(model, "file.pt");'
plant pickle src/engine/a.cc 'auto v = torch::pickle_load(bytes);'
plant pickle src/engine/a.cc 'auto m = torch::jit::load("file.pt");'
plant sleep src/engine/a_test.cc 'void f() { std::this_thread::sleep_for(ms); }'
plant sleep tests/whole_test.cc 'void f() { usleep(10); }'
plant sleep tests/whole.sh 'sleep 1'
plant sleep tests/whole.sh 'while busy; do sleep 0.1; done'   # lint: allow(sleep) planted
plant sleep tests/whole.py 'import time; time.sleep(1)'   # lint: allow(sleep) planted
plant libm examples/own/a.cc 'double y = std::sin(0.5);'
plant libm src/world/a.h 'inline float odds(float x) { return expf(-x); }'
plant not-run tests/a_test.py $'class Forgotten(Case):\n    def test_something(self):\n        pass'
plant wide-include src/engine/a.h '#include <torch/torch.h>'
plant order src/base/a.cc '#include "engine/a.h"'
plant order src/engine/a.cc '#include "recipes/a.h"'
plant order src/kernels/a.cc '#include "telemetry/a.h"'
plant order src/telemetry/a.cc '#include "config/a.h"'
plant order src/hardware/a.cc '#include "telemetry/a.h"'
plant order src/kernels/a.h '#include <ATen/core/Tensor.h>'
plant order src/engine/a.cc '#include "a.h"'
clean_tree
for ((i = 0; i < 501; ++i)); do echo '// long'; done >>"$tree/src/base/a.cc"
expect stops '[length]' 'a file of 501 lines'

let_pass examples/own/a.cc 'double y = std::sqrt(0.5) + context.log(2);'
let_pass src/recipes/a.cc '// torch::rand would depend on the order of calls'
let_pass src/recipes/a.cc 'const char* text = "torch::rand";'
let_pass src/engine/a_test.cc 'std::mt19937_64 engine(1);'
let_pass src/engine/a.cc 'int i = random_u32(key, 1).rand_below(3);'
plant recipes src/cli/a.cc $'\n#include "recipes/b.h"'
let_pass src/cli/main.cc '#include "recipes/b.h"'
let_pass src/recipes/a.cc $'\n#include "engine/b.h"'
let_pass src/engine/a.cc 'auto g = at::rand({2});  // lint: allow(random) compares our numbers with theirs'

lint=(python3 "$here/scripts/names.py") # names that mean two things, and words that were given up
clean_tree
expect passes "" "clean tree"
clean_tree
echo 'struct Plan {};' | tee -a "$tree/src/base/a.h" >>"$tree/src/engine/a.h"
expect stops '[types]' 'a type in two headers'
clean_tree
echo 'enum class Plan { kOne };' >>"$tree/src/base/a.h"
printf 'namespace tandem {\nnamespace {\nstruct Plan final : Base {\n  int a;\n};\n}\n}\n' >>"$tree/src/engine/a.cc"
expect stops '[types]' 'a local type with the name of a header'"'"'s'
clean_tree
printf 'struct Plan;\nvoid f() {\n  struct Plan {};\n}\nstruct Engine {\n  struct Plan {};\n};\n' >>"$tree/src/engine/a.cc"
echo 'struct Plan {};' >>"$tree/src/base/a.h"
expect passes "" 'a declaration, a type of a function and a type of a class'
plant headers src/recipes/a.cc '#include "engine/a.h"'
clean_tree
echo 'namespace { int half(int a) { return a / 2; } }' | tee -a "$tree/src/engine/a.cc" >"$tree/src/engine/b.cc"
expect stops '[unity]' 'a local function in two files of a folder'
clean_tree
echo 'static const int kHalf = 2;' | tee -a "$tree/src/engine/a.cc" >"$tree/src/engine/b.cc"
expect stops '[unity]' 'a constant in two files of a folder'
clean_tree
printf '#pragma once\nnamespace tandem {\ninline constexpr double kLeast = 0.2;\n}\n' >"$tree/src/engine/a.h"
printf '#include "engine/a.h"\nnamespace tandem {\ndouble least() { return kLeast; }\n}\n' >"$tree/src/engine/a.cc"
printf 'namespace tandem {\nnamespace {\nconstexpr double kLeast = 0.1;\n}\n}\n' >"$tree/src/engine/b.cc"
expect stops '[unity]' "a local constant that hides a header's in another file of the folder"
clean_tree
echo 'namespace { int half(int a) { return a / 2; } }' | tee -a "$tree/src/engine/a.cc" "$tree/src/engine/a_test.cc" >"$tree/src/cli/b.cc"
echo 'namespace fs = std::filesystem;' | tee -a "$tree/src/engine/a.cc" >"$tree/src/engine/b.cc"
expect passes "" 'a name of another folder or of the tests, and an alias that is the same'
for name in card_bytes CardPhase kCards rival bury_worker seat_ kMostSeats ticket InputTray letter_bytes follower WayBack queue_way_back WholeStep whole_steps played_step PlayedDqn lobby told DqnTold told_ is_told causes_told_ wish Wishes kWish desk_ InputDesk halves kHalves weight_halves products\
  gemm_products recording StepRecording; do
  plant words src/engine/a.cc "int $name = 0;"
done
plant words tests/whole_test.cc 'void f(int card) {}'
let_pass src/engine/a.cc 'const char* key = "card";  // a card of the user'
let_pass src/engine/a.cc 'int cardinality = discard(arrival, letter, games_played, k_whole, step, web_product, desktop, foretold, record);'
let_pass src/engine/a_test.cc $'TEST(Folder, AFailureIsToldOnceAndTheRunGoesOn) {}\nTEST(Secret, FieldsAreToldApart) {}\nTEST(Scale, OverflowHalvesTheScale) {}'
let_pass src/engine/a.cc 'int card = 0;  // lint: allow(words) a playing card'

lint=(python3 "$here/scripts/results.py" --check) # tables of the pages are what the data says
results() { # FIGURE: a page with its data, and the figure that the page shows
  clean_tree
  mkdir -p "$tree/docs/results"
  cat >"$tree/docs/results/a.json" <<'DATA'
{"machines": {"box": "a machine"},
 "tables": {"speed": {"machine": "box", "date": "2026-01-02", "command": "make bench", "columns": [["what", "what"], ["time", "figure"]],
                      "rows": [{"what": "a step", "figure": 12, "unit": "us"}]}}}
DATA
  printf '<!-- table: speed -->\n| what | time |\n|---|---|\n| a step | %s us |\n<!-- end of table -->\n' "$1" >"$tree/docs/a.md"
}
results 12
expect passes "" "a page with the figures of its data"
results 11
expect stops "[results]" "a page with another figure than its data"
results 12
sed -i 's/"command": "make bench", //' "$tree/docs/results/a.json"
expect stops "[results]" "a figure that nobody could measure again"

lint=(python3 "$here/scripts/docs.py") # and what the pages name
for words in '`src/engine/a_test.cc:Planner.LosesShards`' '`tests/python/none_test.py:Faults.test_one`' '`scripts/none.sh`' '[a page](none.md)' '[a place](#none)' "$(printf 'x%.0s' {1..121})"; do
  plant docs docs/a.md "$words"
done
clean_tree
echo 'TEST(Planner, KeepsShards) {}' >"$tree/src/engine/a_test.cc"
printf 'class Faults:\n    def test_one(self):\n        pass\n' >"$tree/tests/whole.py"
printf '# A place\n`src/engine/a_test.cc:Planner.KeepsShards` `tests/whole.py:Faults.test_one` [here](#a-place)\n' >"$tree/docs/a.md"
expect passes "" "a page whose tests and links are there"
echo '# Pages' >"$tree/docs/README.md"
expect stops "[docs]" "a page that is not in the list"

((failed)) || echo "every rule stops its line"
exit $failed
