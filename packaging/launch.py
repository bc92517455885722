"""The commands of the wheel: `tandem` and `tandem-worker` find libtorch in the installed torch, then become the program.

The programs lie in bin/ beside this file and look for libtorch in ../../torch/lib, which is where pip puts it. Where torch
was installed elsewhere (a virtual environment with the system's packages, say), its folder goes into LD_LIBRARY_PATH.
torch is looked for, never imported: that would take seconds.
"""
import importlib.machinery
import os
import re
import sys

TORCH = "@TORCH_VERSION@"
HERE = os.path.dirname(os.path.abspath(__file__))


def version_of(folder):
    try:
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            found = re.search(r"^__version__ = '([0-9.]+)", file.read(), re.M)
    except OSError:
        return None
    return found.group(1) if found else None


def find_torch():
    """Its folder, and whether the program finds it by itself."""
    beside = os.path.join(os.path.dirname(HERE), "torch")
    if os.path.exists(os.path.join(beside, "lib", "libtorch_cpu.so")):
        return beside, True
    spec = importlib.machinery.PathFinder.find_spec("torch")
    return (os.path.dirname(spec.origin), False) if spec and spec.origin else (None, False)


def start(name):
    folder, beside = find_torch()
    version = folder and version_of(folder)
    first = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if version != TORCH and (name == "tandem-worker" or first in ("train", "resume", "bench")) and not {"--help", "-h", "--dry-run"} & set(sys.argv):
        why = f"{folder} is {version}, and bits differ between versions" if folder else "training needs it, and this Python has no torch"
        print(f"error: torch {TORCH} is not here\n  why    {why}\n  do     {sys.executable} -m pip install torch=={TORCH}", file=sys.stderr)
        return 2
    if folder and not beside:
        known = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = os.path.join(folder, "lib") + (":" + known if known else "")
    program = os.path.join(HERE, "bin", name)
    os.execv(program, [name, *sys.argv[1:]])


def tandem():
    return start("tandem")


def worker():
    return start("tandem-worker")


if __name__ == "__main__":
    sys.exit(tandem())
