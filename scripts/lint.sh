#!/usr/bin/env bash
# scripts/lint.sh [ROOT] -- the shape of the sources (clang-format), the project's promises (promises.py), names that must differ (names.py),
# what the pages name (docs.py) and the tables that are made from docs/results/ (results.py). Changes nothing.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/messages.sh"
. "$here/clang_format.sh"
root=${1:-$here/..}
cd "$root" || exit 2
status=0
find_clang_format "$here/.."
mapfile -t files < <(cpp_files)
if ((${#files[@]})); then
  "$clang_format" --style="file" --dry-run -Werror "${files[@]}" || {
    say "error: the shape of the lines above is not clang-format's"
    say "  why    one shape for all, so that a change shows what it changes"
    say "  do     run \`make format\`"
    status=1
  }
fi
say "format: ${#files[@]} files"
python3 "$here/promises.py" . || status=1
python3 "$here/names.py" . || status=1
python3 "$here/docs.py" . || status=1
python3 "$here/results.py" --check . || status=1
exit $status
