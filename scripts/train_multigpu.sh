#!/usr/bin/env bash
# scripts/train_multigpu.sh [N] [arguments of `tandem train video`] -- trains the video classifier on N GPUs.
#
# Without N: on all of them. Prints the GPUs first. `tandem train video --num-gpus N` does the same without the banner.
# Where CUDA_VISIBLE_DEVICES is set, its GPUs are all there are, as for every program of CUDA's.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/scripts/messages.sh"

tandem=${TANDEM:-$root/build/bin/tandem}
[[ -x $tandem ]] || tandem=$(command -v tandem) ||
  fail 2 "there is no tandem at $root/build/bin/tandem" "it was not built, or is not installed" "run \`make build\`, or name it: TANDEM=/path/to/tandem"

count=
if [[ ${1:-} =~ ^-?[0-9]+$ ]]; then
  count=$1
  shift
fi

list=
parts=   # MIG devices, which nvidia-smi lists below their GPU
if command -v nvidia-smi >/dev/null; then
  all=$(nvidia-smi -L 2>/dev/null)
  list=$(grep '^GPU ' <<<"$all")
  parts=$(sed -n 's/^ *MIG /MIG /p' <<<"$all")
fi
# As CUDA reads it: numbers, beginnings of UUIDs or MIG devices, up to the first that names nothing.
hidden=
if [[ -n $list && -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
  visible=
  IFS=, read -ra names <<<"$CUDA_VISIBLE_DEVICES"
  for name in "${names[@]}"; do
    name=${name//[[:space:]]/}
    case $name in
      GPU-*) line=$(grep -F "(UUID: $name" <<<"$list" | head -n 1) ;;
      MIG-*) line=$(grep -F "(UUID: $name)" <<<"$parts") || line="MIG device (UUID: $name)" ;;
      *) line=$([[ $name =~ ^[0-9]+$ ]] && grep "^GPU $((10#$name)):" <<<"$list") ;;
    esac
    [[ -n $line ]] || break
    visible+=${visible:+$'\n'}$line
  done
  [[ $visible == "$list" ]] || hidden=" (CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES hides others)"
  list=$visible
fi
found=0
[[ -n $list ]] && found=$(grep -c . <<<"$list")

if [[ -n $count && ! $count =~ ^[1-9][0-9]*$ ]]; then
  fail 2 "$count is no number of GPUs" "there are $found here$hidden" "run \`$0 ${found/#0/}\`, or \`$0\` for all of them"
fi
if [[ -n $count && $count -gt $found ]]; then
  fail 2 "$count GPUs were asked for, $found are here$hidden" "each worker needs a GPU of its own" \
    "$([[ $found -gt 0 ]] && echo "run \`$0 $found\`, or \`$0\` for all of them" || echo "run \`$0\` to train on the CPU, or \`nvidia-smi -L\` to see why there is no GPU")"
fi

rule=$(printf '=%.0s' {1..42})
say "$rule"
say "Multi-GPU Training Launcher"
say "$rule"
if [[ $found -eq 0 ]]; then
  say "Number of GPUs: 0"
  say ""
  say "No GPU was found$hidden, so training runs on the CPU, a worker for each device that \`tandem train\` chooses."
  say "It is for trying things: --quick takes a few minutes, a whole training days."
  say ""
  exec "$tandem" train video "$@"
fi
count=${count:-$found}
say "Number of GPUs: $count"
say ""
say "Available GPUs:"
say "$list"
say ""
say "Launching distributed training..."
say ""
exec "$tandem" train video --num-gpus "$count" "$@"
