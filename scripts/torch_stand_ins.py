"""Loads empty libraries in the place of CUDA's, which torch names and does not call on a CPU (scripts/setup.sh)."""
import ctypes
import os
import pathlib
import sys

for _library in sorted(pathlib.Path(__file__).parent.glob("lib*")):
    ctypes.CDLL(str(_library))
sys.setdlopenflags(os.RTLD_LAZY)  # functions are looked up when they are called, and these never are
