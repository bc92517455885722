#!/usr/bin/env bash
# scripts/format.sh -- puts every C++ and CUDA source in clang-format's shape (.clang-format).
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/messages.sh
. scripts/clang_format.sh
find_clang_format .
mapfile -t files < <(cpp_files)
"$clang_format" --style=file -i "${files[@]}" && say "format: ${#files[@]} files"
