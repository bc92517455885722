#!/bin/sh
# /usr/bin/tandem and tandem-worker of the Debian package: finds libtorch, then becomes the program.
#
# The worker looks in /usr/lib/tandem/torch (`tandem-torch` puts it there). Without that, an active virtual environment
# with the right torch serves; without either, commands that train say what to do. Everything else needs no libtorch.
home=/usr/lib/tandem
program=$home/${0##*/}
wanted=@TORCH_VERSION@

if [ ! -e $home/torch/lib/libtorch_cpu.so ]; then
  found=
  for torch in ${VIRTUAL_ENV:+"$VIRTUAL_ENV"/lib/python3*/site-packages/torch}; do
    [ -e "$torch/lib/libtorch_cpu.so" ] && grep -q "^__version__ = '$wanted" "$torch/version.py" && found=$torch
  done
  if [ -n "$found" ]; then
    LD_LIBRARY_PATH=$found/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
  else
    trains=
    [ "${0##*/}" = tandem-worker ] && trains=yes
    for word; do
      case $word in
        train | resume | bench) trains=yes; break ;;
        -*) ;;
        *) break ;;
      esac
    done
    for word; do
      case $word in --help | -h | --dry-run) [ "${0##*/}" = tandem ] && trains= ;; esac
    done
    if [ -n "$trains" ]; then
      cat >&2 <<END
error: libtorch $wanted is not here
  why    training needs it; $home/torch is empty, and no virtual environment with torch $wanted is active
  do     sudo tandem-torch install        (or, as yourself: python3 -m venv ~/torch && . ~/torch/bin/activate && pip install torch==$wanted)
END
      exit 2
    fi
  fi
fi
exec "$program" "$@"
