"""Loads stand-ins for CUDA's libraries, which torch names and does not call on a CPU (scripts/setup.sh)."""
import ctypes
import pathlib

_here = pathlib.Path(__file__).parent
ctypes.CDLL(str(_here / "functions.so"), ctypes.RTLD_GLOBAL)
for _library in sorted(_here.glob("lib*")):
    ctypes.CDLL(str(_library))
