#!/usr/bin/env bash
# scripts/setup.sh [test] [lint] [fuzz] [gym] [package] [monitor] -- makes this machine able to build tandem. `make` calls it; by hand works too.
#
# Promises: every step is named, and done only if it is not done yet (a step's stamp holds what was asked, so another
# request does it again); a second run needs no network. A failure names the step, why, and what to do; the next run
# goes on from there. Nothing is written outside the checkout but the Debian packages.
# Read from the environment: TORCH_DIR (your own libtorch), CUDA=auto|on|off|pypi, PYTHON.
# Exit codes: 0 ready; 1 the world failed (network, disk); 2 something is asked that this machine cannot give.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/messages.sh
. scripts/versions.sh
. scripts/nvcc.sh

VENV=$PWD/.venv
STAMPS=$VENV/.stamps
CUDA=${CUDA:-auto}
TORCH_DIR=${TORCH_DIR:-}
want_test=0 want_lint=0 want_fuzz=0 want_gym=0 want_package=0 want_monitor=0 worked=0
step_number=0 step_name=start

for word in "$@"; do
  case $word in
    test) want_test=1 ;;
    lint) want_lint=1 ;;
    fuzz) want_fuzz=1 ;;
    gym) want_gym=1 ;;
    monitor) want_monitor=1 ;;
    package) want_package=1 ;;
    *) fail 2 "scripts/setup.sh: unknown word '$word'" "it takes: test, lint, fuzz, gym, package, monitor" "leave it out, or choose one of these" ;;
  esac
done
case $CUDA in
  auto | on | off | pypi) ;;
  *) fail 2 "CUDA=$CUDA is not known" "it says where nvcc comes from: auto (the machine's, if there is one), on, off, pypi" \
       "run make again with one of these, or without CUDA=" ;;
esac

# ---- how a step runs -------------------------------------------------------------------------------------------------

begin() { step_number=$((step_number + 1)); step_name=$1; }

# done_before NAME ASKED: true if NAME was finished with exactly ASKED.
done_before() { [[ -f $STAMPS/$1 && $(<"$STAMPS/$1") == "$2" ]]; }
stamp() { mkdir -p "$STAMPS" && printf '%s\n' "$2" >"$STAMPS/$1.new" && mv "$STAMPS/$1.new" "$STAMPS/$1"; }

# run_logged LOG COMMAND...: quiet, but a line every 15 s says that it lives. Returns the command's status.
run_logged() {
  local log=$1 start seconds=0 pid
  shift
  start=$(now_ms)
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  while kill -0 $pid 2>/dev/null; do
    sleep 0.2
    if ((($(now_ms) - start) / 15000 > seconds / 15)); then
      seconds=$((($(now_ms) - start) / 1000))
      say "      ... $seconds s: $(tail -n 1 "$log" | tr -d '\r' | cut -c 1-100)"
    fi
  done
  wait $pid
}

# why_log LOG: what a failed apt or pip met, in words. The last line of the log if we do not know it.
why_log() {
  local log=$1
  if grep -qiE 'no space left|disk quota exceeded' "$log"; then
    echo "the disk is full ($(df -h --output=avail . | tail -n 1 | tr -d ' ') left here, $(df -h --output=avail /tmp | tail -n 1 | tr -d ' ') in /tmp)|free some space (about 3 GB without a GPU, 9 GB with one), then run the same command again"
  elif grep -qiE 'name resolution|network is unreachable|could not resolve|connection (refused|timed out|reset)|no route to host|failed to establish|read timed out|ProxyError|Unable to connect' "$log"; then
    echo "the network cannot be reached|check the connection (a proxy is taken from https_proxy), then run the same command again"
  elif grep -qiE 'certificate verify failed|SSLError' "$log"; then
    echo "the server's certificate is not trusted here|install ca-certificates, or set PIP_CERT to your proxy's certificate, then run the same command again"
  elif grep -qiE 'permission denied|read-only file system' "$log"; then
    echo "no permission: $(grep -iE 'permission denied|read-only' "$log" | tail -n 1 | cut -c 1-160)|give yourself the right to write there, or clone into a folder of yours"
  elif grep -qiE 'Could not get lock|is another process using it' "$log"; then
    echo "another package manager is at work|wait until it is done, then run the same command again"
  elif grep -qiE 'No matching distribution|Unable to locate package|has no installation candidate' "$log"; then
    echo "$(grep -iE 'No matching distribution|Unable to locate package|no installation candidate' "$log" | tail -n 1 | cut -c 1-200)|look whether your mirror carries it (Ubuntu: the component 'universe' must be on); docs/building.md lists what is needed"
  else
    echo "$(grep -E '[^[:space:]]' "$log" | tail -n 1 | cut -c 1-200)|read $log, then run the same command again"
  fi
}

fail_step() { # LOG
  local words
  words=$(why_log "$1")
  fail 1 "set-up stopped at step $step_number ($step_name)" "${words%%|*}" "${words#*|}"
}

finish() { say "[$step_number] $step_name: done in $(seconds_since "$1") s"; worked=1; }

# ---- 1. the system ---------------------------------------------------------------------------------------------------

check_system() {
  begin "system"
  local id="" version="" like=""
  [[ -r /etc/os-release ]] && { id=$(. /etc/os-release; echo "${ID:-}"); version=$(. /etc/os-release; echo "${VERSION_ID:-}"); like=$(. /etc/os-release; echo "${ID_LIKE:-}"); }
  case $(uname -m) in
    x86_64 | aarch64) ;;
    *) fail 2 "this machine is $(uname -m)" "torch $TORCH_VERSION exists for x86_64 and aarch64" "build on one of these" ;;
  esac
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    fail 2 "unsupported distribution: ${id:-unknown} $version" "set-up installs Debian packages, and there is no dpkg here" \
      "use Debian 12 or Ubuntu 24.04 (a container will do), or build by hand: docs/building.md, 'By hand'"
  fi
  case "$id $version" in
    "debian 12" | "ubuntu 24.04") ;;
    *) [[ -f $STAMPS/system ]] || say "note: tandem is tried on Debian 12 and Ubuntu 24.04; this is ${id:-unknown} $version ${like:+(like $like)}, going on" ;;
  esac
}

# ---- 2. Debian packages ----------------------------------------------------------------------------------------------

BUILD_PACKAGES="g++ make ccache python3 python3-venv ca-certificates libfmt-dev nlohmann-json3-dev libtomlplusplus-dev
  libcli11-dev libncurses-dev libsqlite3-dev libssl-dev libxxhash-dev libzstd-dev libgtest-dev libgloo-dev
  libavcodec-dev libavformat-dev libavutil-dev libswscale-dev"

# What the monitor's page and terminal view are tried with: a browser, a terminal, Prometheus' own judge. Ubuntu's chromium is a
# snap, which a container cannot run: there those tests are skipped.
MONITOR_PACKAGES="tmux prometheus"
[[ -r /etc/os-release && $(. /etc/os-release; echo "${ID:-}") == debian ]] && MONITOR_PACKAGES+=" chromium"

missing_packages() { # prints those of its arguments that are not installed
  local installed
  installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' "$@" 2>/dev/null)"
  local p
  for p in "$@"; do [[ $installed == *" installed:$p "* ]] || printf '%s ' "$p"; done
}

install_packages() {
  begin "Debian packages"
  local wanted=$BUILD_PACKAGES missing sudo="" log start
  ((want_fuzz)) && wanted+=" clang $(clang_runtime_package)"
  ((want_package || want_test)) && wanted+=" binutils dpkg-dev patchelf"   # scripts/package.sh, and its test
  ((want_test)) && wanted+=" openmpi-bin iproute2 zstd stockfish ffmpeg"   # runs under mpirun, on two hosts; zstd reads our files; an opponent; a judge of frames
  ((want_monitor)) && wanted+=" $MONITOR_PACKAGES"
  # shellcheck disable=SC2086 -- lists are split on purpose, here and below
  missing=$(missing_packages $wanted)
  [[ -z $missing ]] && return
  start=$(now_ms)
  if ((EUID != 0)); then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 && -t 2 ]]; }; then
      sudo=sudo
    else
      fail 2 "Debian packages are missing: $missing" "installing them needs root, and sudo asks for a password or is not here" \
        "as root, once:  apt-get update && apt-get install -y --no-install-recommends ${missing% }   and run the same command again"
    fi
  fi
  say "[$step_number] $step_name: ${sudo:+with sudo, }${missing% }"
  log=$(mktemp) || fail 1 "set-up stopped at step $step_number ($step_name)" "no temporary file can be made in ${TMPDIR:-/tmp}" "free some space there, then run the same command again"
  [[ -n $sudo ]] && ! sudo -n true 2>/dev/null && { sudo true || fail 2 "sudo refused" "no permission to install packages" "run as root, or ask for: apt-get install -y ${missing% }"; }
  # The lists may be old or absent; try without, since that needs the network only for what is missing.
  if ! run_logged "$log" $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing; then
    run_logged "$log" $sudo apt-get update -q || fail_step "$log"
    run_logged "$log" $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing || fail_step "$log"
  fi
  [[ -z $(missing_packages $wanted) ]] || fail_step "$log"
  rm -f "$log"
  finish "$start"
}

clang_runtime_package() { # libFuzzer and the sanitizers of the distribution's clang
  case $(. /etc/os-release; echo "${ID:-} ${VERSION_ID:-}") in
    "debian 12") echo libclang-rt-14-dev ;;
    "ubuntu 24.04") echo libclang-rt-18-dev ;;
    *) apt-cache depends clang 2>/dev/null | sed -nE 's/.*Depends: clang-([0-9]+)$/libclang-rt-\1-dev/p' | head -n 1 ;;
  esac
}

# ---- 3. the private virtual environment ------------------------------------------------------------------------------

make_venv() {
  begin "virtual environment"
  local python log start version
  done_before venv "venv 1" && [[ -x $VENV/bin/python3 ]] && return
  start=$(now_ms)
  python=${PYTHON:-/usr/bin/python3}
  [[ -z ${PYTHON:-} ]] && ! command -v "$python" >/dev/null && python=python3
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
    fail 2 "no Python at '$python'" "set-up keeps torch, CMake and ninja in a private virtual environment" "install python3, or name one with PYTHON=/path/to/python3"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail 2 "$python is version $version" "torch $TORCH_VERSION needs Python 3.10 or newer" "name a newer one: make ... PYTHON=/path/to/python3"
  [[ -w . ]] || fail 2 "cannot write into $PWD" "set-up keeps its virtual environment in .venv here" "clone into a folder of yours"
  room_for 3000
  say "[$step_number] $step_name: .venv with $python ($version)"
  log=$(mktemp)
  run_logged "$log" "$python" -m venv --clear "$VENV" || { rm -rf "$VENV"; fail_step "$log"; }
  rm -f "$log"
  stamp venv "venv 1"
  finish "$start"
}

room_for() { # MB
  local free_mb
  free_mb=$(df -m --output=avail . | tail -n 1 | tr -d ' ')
  ((free_mb >= $1)) || fail 1 "set-up stopped at step $step_number ($step_name)" "it needs about $1 MB in $PWD, $free_mb MB are free" "free some space, then run the same command again"
}

# pip_step STAMP ASKED ARGUMENTS...: pip install ARGUMENTS unless STAMP says that ASKED is there.
pip_step() {
  local name=$1 asked=$2 log start
  shift 2
  done_before "$name" "$asked" && return
  start=$(now_ms)
  say "[$step_number] $step_name: $asked"
  mkdir -p "$STAMPS"
  rm -f "$STAMPS/$name"
  log=$STAMPS/$name.log
  run_logged "$log" "$VENV/bin/python3" -m pip install --disable-pip-version-check --no-input --progress-bar off --no-cache-dir "$@" || fail_step "$log"
  stamp "$name" "$asked"
  finish "$start"
}

# ---- 4. torch --------------------------------------------------------------------------------------------------------

install_torch() {
  if [[ -n $TORCH_DIR ]]; then
    begin "your libtorch"
    check_torch_dir
    return
  fi
  begin "torch"
  local full="torch==$TORCH_VERSION with its CUDA libraries" slim="torch==$TORCH_VERSION for the CPU, $TORCH_SLIM_WHEELS"
  if gpu_here && [[ $CUDA != off ]]; then
    done_before torch "$full" || room_for 9000
    pip_step torch "$full" "torch==$TORCH_VERSION"
  elif ! done_before torch "$full"; then
    done_before torch "$slim" || room_for 2500
    # shellcheck disable=SC2086
    pip_step torch "$slim" --no-deps "torch==$TORCH_VERSION" $TORCH_SLIM_WHEELS
  fi
}

check_torch_dir() {
  local dir found version
  dir=$(cd "$TORCH_DIR" 2>/dev/null && pwd) ||
    fail 2 "TORCH_DIR=$TORCH_DIR is not a folder" "it must hold include/ and lib/ of libtorch $TORCH_VERSION" "correct the path, or leave TORCH_DIR out and set-up installs torch"
  for found in "$dir" "$dir/torch" "$dir/libtorch"; do
    [[ -f $found/include/ATen/ATen.h && -f $found/lib/libtorch_cpu.so ]] && break
    found=""
  done
  [[ -n $found ]] || fail 2 "no libtorch in TORCH_DIR=$TORCH_DIR" "it needs include/ATen/ATen.h and lib/libtorch_cpu.so" "name the folder above include/ and lib/, or leave TORCH_DIR out and set-up installs torch"
  [[ $found == "$dir" ]] || fail 2 "no libtorch in TORCH_DIR=$TORCH_DIR" "it is one folder below" "run again with TORCH_DIR=$found"
  version=$(cat "$dir"/include/torch/{headeronly/,csrc/api/include/torch/}version.h 2>/dev/null |
    sed -nE 's/^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+)$/\2/p' | head -n 3 | paste -sd.)
  [[ $version == "${TORCH_VERSION%.*}".* ]] ||
    fail 2 "the libtorch in $TORCH_DIR is version ${version:-unknown}" "tandem is made for ${TORCH_VERSION%.*}.x: headers differ from one version to the next, and so do the bits" \
      "give a libtorch ${TORCH_VERSION%.*}.x, or leave TORCH_DIR out and set-up installs $TORCH_VERSION"
}

# ---- 5. to 7. ---------------------------------------------------------------------------------------------------------

install_build_tools() {
  begin "CMake and ninja"
  local wheels
  read -ra wheels <<<"$BUILD_WHEELS"
  pip_step build "$BUILD_WHEELS" "${wheels[@]}"
}

install_nvcc() {
  [[ $CUDA == pypi ]] || { [[ $CUDA == auto ]] && gpu_here && ! machine_nvcc >/dev/null; } || return 0
  begin "nvcc"
  local wheels
  read -ra wheels <<<"$NVCC_WHEELS"
  pip_step nvcc "$NVCC_WHEELS" --no-deps "${wheels[@]}"
}

install_test_tools() {
  local wheels
  if ((want_test)); then
    begin "what the tests read with"
    read -ra wheels <<<"$TEST_WHEELS"
    pip_step test "$TEST_WHEELS" "${wheels[@]}"
  elif ((want_lint)); then
    done_before test "$TEST_WHEELS" && return
    begin "clang-format"
    read -ra wheels <<<"$LINT_WHEELS"
    pip_step lint "$LINT_WHEELS" "${wheels[@]}"
  fi
}

install_gymnasium() {
  ((want_gym || want_test)) || return 0
  begin "gymnasium"
  local wheels
  read -ra wheels <<<"$GYM_WHEELS"
  pip_step gym "$GYM_WHEELS" "${wheels[@]}"
}

# ---- torchrun, for the tests that run under it -----------------------------------------------------------------------

# torchrun imports all of torch, whose libraries name cuBLAS, cuDNN, NCCL and others: 4 GB that a CPU never calls. Where torch
# is installed without them, this environment's Python loads stand-ins at its start: empty libraries of the same names, and one
# with their functions, which only end the program. The workers do not see them.
install_torchrun() {
  local site
  site=$(compgen -G "$VENV/lib/python3*/site-packages" | head -n 1)
  [[ -n $site ]] || return 0
  if [[ -n $TORCH_DIR ]] || done_before torch "torch==$TORCH_VERSION with its CUDA libraries"; then
    rm -rf -- "$site/torch_stand_ins" "$site/torch_stand_ins.pth" "$STAMPS/stand-ins"
    return 0
  fi
  ((want_test)) || return 0
  begin "torchrun"
  local wheels name missing log start made=$site/torch_stand_ins
  read -ra wheels <<<"$TORCHRUN_WHEELS"
  pip_step torchrun "$TORCHRUN_WHEELS" "${wheels[@]}"
  done_before stand-ins "torch==$TORCH_VERSION, 3" && return
  start=$(now_ms)
  missing=$(ldd "$site/torch/lib/libtorch_python.so" | awk '/not found/ { print $1 }' | sort -u)
  say "[$step_number] $step_name: stand-ins for" $missing
  rm -rf -- "$made"
  mkdir -p "$made" "$STAMPS"
  log=$STAMPS/stand-ins.log
  nm -D --undefined-only "$site"/torch/lib/lib*.so |
    sed -nE 's/.* U ((cublas|cudnn|cufft|cuFile|curand|cusolver|cusparse|nccl|nvshmem)[A-Za-z0-9_]*)(@.*)?$/void \1(void) { __builtin_trap(); }/p' |
    sort -u >"$made/functions.c"
  run_logged "$log" g++ -x c -w -shared -nostdlib -fPIC -o "$made/functions.so" "$made/functions.c" || fail_step "$log"
  for name in $missing; do
    run_logged "$log" g++ -x c -shared -nostdlib -o "$made/$name" "-Wl,-soname,$name" /dev/null || fail_step "$log"
  done
  cp scripts/torch_stand_ins.py "$made/__init__.py" && echo "import torch_stand_ins" >"$site/torch_stand_ins.pth" &&
    "$VENV/bin/torchrun" --help >"$log" 2>&1 || fail_step "$log"
  stamp stand-ins "torch==$TORCH_VERSION, 3"
  finish "$start"
}

# ---- the driver: told, never installed -------------------------------------------------------------------------------

check_driver() {
  gpu_here || return 0
  local driver=""
  [[ -r /proc/driver/nvidia/version ]] && driver=$(grep -oE '[0-9]{3,}\.[0-9]+(\.[0-9]+)?' /proc/driver/nvidia/version | head -n 1)
  [[ -z $driver ]] && driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
  if [[ ! $driver =~ ^[0-9.]+$ ]]; then
    warn "an NVIDIA GPU seems to be here, but its driver does not answer" "tandem's GPU parts need driver $OLDEST_DRIVER or newer (CUDA 13)" \
      "install the driver if you want the GPU; training on the CPU works without"
  elif [[ $(printf '%s\n%s\n' "$OLDEST_DRIVER" "$driver" | sort -V | head -n 1) != "$OLDEST_DRIVER" ]]; then
    warn "the NVIDIA driver is $driver" "CUDA 13, which torch $TORCH_VERSION is built with, needs $OLDEST_DRIVER or newer" \
      "update the driver to use the GPU; training on the CPU works with this one"
  fi
}

main() {
  local start
  start=$(now_ms)
  mkdir -p .cache 2>/dev/null || fail 2 "cannot write into $PWD" "set-up keeps its files here (.venv, .cache)" "clone into a folder of yours"
  exec 9>.cache/setup.lock
  flock -n 9 || { say "another set-up is at work in this folder; waiting for it"; flock 9; }
  check_system
  install_packages
  make_venv
  install_build_tools
  install_torch
  install_nvcc
  install_test_tools
  install_gymnasium
  install_torchrun
  check_driver
  stamp system ok
  ((worked)) && say "set-up ready after $(seconds_since "$start") s"
  return 0
}
main
