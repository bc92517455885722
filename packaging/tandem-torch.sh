#!/bin/sh
# tandem-torch -- which libtorch the installed tandem uses; installs one, or takes one that is there.
set -u
link=/var/lib/tandem/torch
venv=/var/lib/tandem/venv
wanted=@TORCH_VERSION@
slim='@TORCH_SLIM_WHEELS@'

fail() {
  printf 'error: %s\n  why    %s\n  do     %s\n' "$2" "$3" "$4" >&2
  exit "$1"
}

usage() {
  cat <<END
usage: tandem-torch [show | install | use FOLDER]
  tandem-torch                     which libtorch is used
  sudo tandem-torch install        torch $wanted from PyPI into $venv: with its CUDA libraries (5 GB) where there is an NVIDIA
                                   GPU, else what a CPU needs (1.3 GB); --cpu or --cuda decide
  sudo tandem-torch use ~/venv/lib/python3.11/site-packages/torch      one that is there already
exit codes: 0 done, 1 the world failed (network, disk), 2 what is asked cannot be done like this
END
}

version_of() { sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$1/version.py" 2>/dev/null; }

need_root() {
  [ "$(id -u)" = 0 ] || fail 2 "tandem-torch $1 needs root" "it writes to /var/lib/tandem" "sudo tandem-torch $1; or use a virtual environment of your own: docs/building.md"
}

take() { # FOLDER
  folder=$(cd "$1" 2>/dev/null && pwd -P) || fail 2 "$1 is not a folder" "it must be torch's own, with lib/libtorch_cpu.so" "look with: python3 -c 'import torch; print(torch.__path__[0])'"
  [ -e "$folder/lib/libtorch_cpu.so" ] || fail 2 "no libtorch in $folder" "lib/libtorch_cpu.so is not there" "name the folder above lib/"
  version=$(version_of "$folder")
  [ "$version" = $wanted ] || fail 2 "the torch in $folder is version ${version:-unknown}" "this tandem was built with $wanted, and bits differ between versions" "sudo tandem-torch install"
  mkdir -p "${link%/*}" && ln -sfn "$folder" "$link.new" && mv -T "$link.new" "$link" || fail 1 "cannot write $link" "see above" "mend it and run the same command again"
  echo "libtorch $version: $folder"
}

case ${1:-show} in
  show)
    [ -e $link/lib/libtorch_cpu.so ] || fail 2 "no libtorch is set" "$link is not there" "sudo tandem-torch install"
    echo "libtorch $(version_of $link): $(cd $link && pwd -P)"
    ;;
  install)
    need_root install
    cuda=
    [ -e /dev/nvidia0 ] || [ -e /dev/nvidiactl ] && cuda=yes
    case ${2:-} in --cpu) cuda= ;; --cuda) cuda=yes ;; "") ;; *) usage >&2; exit 2 ;; esac
    mkdir -p "${venv%/*}" && python3 -m venv $venv || fail 1 "cannot make $venv" "see above; the package python3-venv is needed" "apt-get install -y python3-venv, then the same command again"
    if [ -n "$cuda" ]; then
      $venv/bin/pip install -q torch==$wanted
    else # libtorch_cpu needs these two and no more
      $venv/bin/pip install -q --no-deps torch==$wanted $slim
    fi || fail 1 "torch $wanted could not be installed" "pip's words are above" "mend the network or make room (1.3 GB, with CUDA 5 GB), then the same command again"
    for folder in $venv/lib/python3*/site-packages/torch; do take "$folder"; done
    ;;
  use)
    [ $# = 2 ] || { usage >&2; exit 2; }
    need_root "use $2"
    take "$2"
    ;;
  -h | --help) usage ;;
  *) usage >&2; exit 2 ;;
esac
