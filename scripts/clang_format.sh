# scripts/clang_format.sh -- which clang-format, and which files. Sourced, never run.
#
# Each version breaks lines a little differently, so there is one for everybody: 14, from .venv or the machine's own.

find_clang_format() { # CHECKOUT; sets clang_format
  for clang_format in "$1/.venv/bin/clang-format" clang-format-14 clang-format; do
    command -v "$clang_format" >/dev/null && "$clang_format" --version 2>/dev/null | grep -q 'version 14\.' && return
  done
  fail 2 "no clang-format 14 here" "other versions break lines differently" "run \`make lint\` or \`make format\`: they install it into .venv"
}

cpp_files() {
  local tops=() top
  for top in src tests bench examples fuzz; do [[ -d $top ]] && tops+=("$top"); done
  find "${tops[@]}" -path '*/build*' -prune -o -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print | LC_ALL=C sort
}
