# scripts/messages.sh -- how the scripts speak: one line per step with its time; an error tells what, why and what to do.
#
# Sourced, never run. Talk goes to stderr, so that a script's data may go to stdout.

say() { printf '%s\n' "$*" >&2; }

# fail CODE WHAT WHY DO: 1 = the world's fault (network, disk), 2 = what was asked cannot be done like this.
fail() {
  local code=$1
  { printf 'error: %s\n  why    %s\n  do     %s\n' "$2" "$3" "$4"; } >&2
  exit "$code"
}

warn() { printf 'warning: %s\n  why    %s\n  do     %s\n' "$1" "$2" "$3" >&2; }

now_ms() { local t=${EPOCHREALTIME/[.,]/}; printf '%s' "${t%???}"; }

# seconds_since MS: "12.3"
seconds_since() { local d=$(($(now_ms) - $1)); printf '%d.%d' $((d / 1000)) $((d % 1000 / 100)); }
