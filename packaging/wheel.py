#!/usr/bin/env python3
"""packaging/wheel.py STAGE OUT --version V --torch T -- a wheel of what stands in STAGE: bin/ (the programs), lib/ (what they link).

py3-none-manylinux_*: no Python is compiled, so one wheel serves every Python 3.10 and later. The tag's glibc is the newest that a
file in it asks for. Files have one date (SOURCE_DATE_EPOCH), so equal inputs give an equal file.
"""
import argparse
import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import time
import zipfile

NAME, MODULE = "tandem-train", "tandem_train"
METADATA = """Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: Trains models on all your devices; the result depends on the recipe, never on the machines
Requires-Python: >=3.10
Requires-Dist: torch=={torch}
Provides-Extra: gym
Requires-Dist: gymnasium>=1.0; extra == "gym"
Description-Content-Type: text/markdown

{readme}"""
ENTRY_POINTS = f"""[console_scripts]
tandem = {MODULE}.launch:tandem
tandem-worker = {MODULE}.launch:worker
"""


def glibc_of(files):
    """The newest glibc symbol version that any of the files needs."""
    newest = (2, 17)
    for file in files:
        words = subprocess.run(["objdump", "-T", file], capture_output=True, text=True, check=True).stdout
        for found in re.finditer(r"\bGLIBC_2\.(\d+)", words):
            newest = max(newest, (2, int(found.group(1))))
    return newest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("stage", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--torch", required=True)
    options = parser.parse_args()
    here = pathlib.Path(__file__).resolve().parent
    programs = sorted(path for folder in ("bin", "lib") for path in (options.stage / folder).glob("*") if path.is_file())
    tag = "py3-none-manylinux_{}_{}_{}".format(*glibc_of(programs), platform.machine())
    info = f"{MODULE}-{options.version}.dist-info"
    launch = (here / "launch.py").read_text().replace("@TORCH_VERSION@", options.torch)
    readme = (here.parent / "README.md").read_text()
    # (path in the wheel, bytes, may be run)
    files = [(f"{MODULE}/__init__.py", b"", False), (f"{MODULE}/launch.py", launch.encode(), False),
             (f"{MODULE}/__main__.py", f"import sys\n\nfrom {MODULE}.launch import tandem\n\nsys.exit(tandem())\n".encode(), False)]
    files += [(f"{MODULE}/{path.parent.name}/{path.name}", path.read_bytes(), True) for path in programs]
    files += [(f"{MODULE}-{options.version}.data/data/share/{path.relative_to(options.stage / 'share')}", path.read_bytes(), False)
              for path in sorted((options.stage / "share").rglob("*")) if path.is_file()]
    files += [(f"{info}/licenses/{path.name}", path.read_bytes(), False) for path in sorted((options.stage / "licenses").glob("*"))]
    files += [(f"{info}/METADATA", METADATA.format(name=NAME, version=options.version, torch=options.torch, readme=readme).encode(), False),
              (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: tandem\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), False),
              (f"{info}/entry_points.txt", ENTRY_POINTS.encode(), False)]
    record = "".join("{},sha256={},{}\n".format(path, base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(), len(data))
                     for path, data, _ in files)
    files.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), False))
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 315532800)), 315532800))[:6]   # a zip begins in 1980
    target = options.out / f"{MODULE}-{options.version}-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data, runs in files:
            entry = zipfile.ZipInfo(path, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if runs else 0o100644) << 16
            wheel.writestr(entry, data)
    print(target)


if __name__ == "__main__":
    main()
