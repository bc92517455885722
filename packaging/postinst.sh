#!/bin/sh
set -e
if [ "$1" = configure ] && [ ! -e /usr/lib/tandem/torch/lib/libtorch_cpu.so ]; then
  echo "tandem: training needs libtorch from PyPI; once:  sudo tandem-torch install"
fi
