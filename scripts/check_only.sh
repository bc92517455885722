#!/usr/bin/env bash
# scripts/check_only.sh COMPILER ARGUMENT... -- the compiler checks a file, templates and warnings too, and makes nothing of it.
#
# Put before the compiler by -DTANDEM_CHECK_UNRUN=ON (cmake/TandemTargets.cmake), for programs that no test runs. What should have been an object is
# an empty file, and the program a script that says so, with exit code 2.
set -eu
compiles='' out='' previous=''
for word in "$@"; do
  [[ $previous == -o ]] && out=$word
  [[ $word == -c ]] && compiles=yes
  previous=$word
done
if [[ $compiles ]]; then
  "$@" -fsyntax-only
  : >"$out"
  exit
fi
rm -f -- "$out"
cat >"$out" <<'END'
#!/bin/sh
echo "error: this program was checked, not built
  why    the build was configured with -DTANDEM_CHECK_UNRUN=ON, as CI does
  do     configure without it (unset CMAKE_ARGS) and build again" >&2
exit 2
END
chmod +x "$out"
