#!/usr/bin/env bash
# tests/package_test.sh BUILD_DIR TORCH_DIR -- what scripts/package.sh makes of the built programs: what is in it, that it names no folder
# of this machine, that its programs train with the torch they find, and that they do so with next to no /dev/shm. 77: a tool is missing.
set -eu
build=$(cd "$1" && pwd) torch=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for tool in patchelf objdump dpkg-deb dpkg-shlibdeps; do command -v $tool >/dev/null || { echo "no $tool: skipped"; exit 77; }; done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
BUILD_DIR=$build PACKAGE_DIR=$work DEB_LEVEL=1 "$here/scripts/package.sh"
deb=$(echo "$work"/tandem_*.deb) wheel=$(echo "$work"/tandem_train-*.whl)
stop() { echo "FAILED: $*"; exit 1; }

dpkg-deb -c "$deb" | awk '{ print $6 }' >"$work/list"
for path in usr/bin/tandem usr/bin/tandem-worker usr/bin/tandem-torch usr/lib/tandem/tandem usr/lib/tandem/tandem-worker usr/lib/tandem/torch \
  usr/share/bash-completion/completions/tandem usr/share/zsh/vendor-completions/_tandem usr/share/fish/vendor_completions.d/tandem.fish \
  usr/share/man/man1/tandem.1.gz usr/share/doc/tandem/README.md usr/share/doc/tandem/docs/README.md usr/share/doc/tandem/docs/troubleshooting.md; do
  grep -qx "./$path" "$work/list" || stop "the .deb has no $path"
done
[[ ! -e $build/bin/libtandem_cuda.so ]] || grep -q libtandem_cuda.so "$work/list" || stop "the .deb has no libtandem_cuda.so"
depends=$(dpkg-deb -f "$deb" Depends)
for package in libc6 libfmt libncursesw6 libsqlite3-0 libssl3 libstdc++6 libzstd1; do [[ $depends == *"$package"* ]] || stop "the .deb depends on '$depends', not on $package"; done
[[ $depends != *lib32* && $depends != *-dev* ]] || stop "the .deb depends on '$depends'"

python3 - "$wheel" <<'END'
import base64, csv, hashlib, io, re, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
names = wheel.namelist()
info = next(name.split("/")[0] for name in names if ".dist-info/" in name)
metadata = wheel.read(info + "/METADATA").decode()
assert "Requires-Dist: torch==2." in metadata, metadata[:400]
tag = re.search("^Tag: (.*)$", wheel.read(info + "/WHEEL").decode(), re.M).group(1)
assert sys.argv[1].endswith(f"-{tag}.whl") and tag.startswith("py3-none-manylinux_2_"), tag
rows = {row[0]: row for row in csv.reader(io.StringIO(wheel.read(info + "/RECORD").decode()))}
assert set(rows) == set(names), set(rows) ^ set(names)
for name in names:
    if not name.endswith("RECORD"):
        digest = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).rstrip(b"=").decode()
        assert rows[name][1] == "sha256=" + digest, name
assert "@" not in wheel.read("tandem_train/launch.py").decode(), "a version was not filled in"
bundled = {name.split("/")[-1].split(".so")[0] for name in names if name.startswith("tandem_train/lib/")}
assert {"libfmt", "libcrypto", "libncursesw", "libsqlite3", "libtinfo"} <= bundled and not {"libc", "libstdc++", "libtorch_cpu"} & bundled, bundled
END

# Into a root of its own: torch is beside, as pip would put it.
dpkg-deb -x "$deb" "$work/root"
mkdir -p "$work/site"
python3 -m zipfile -e "$wheel" "$work/site"
chmod +x "$work"/site/tandem_train/bin/*
ln -s "$torch" "$work/site/torch"
rm "$work/root/usr/lib/tandem/torch"
ln -s "$torch" "$work/root/usr/lib/tandem/torch"
for file in "$work"/root/usr/lib/tandem/tandem* "$work"/site/tandem_train/bin/tandem*; do
  [[ $(patchelf --print-rpath "$file") == '$ORIGIN/'* ]] || stop "$file looks for libraries in $(patchelf --print-rpath "$file")"
done

small_shm=()   # a container's /dev/shm, and smaller; only root may
if unshare -m mount -t tmpfs -o size=64k tmpfs /dev/shm 2>/dev/null; then
  small_shm=(unshare -m sh -c 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"' sh)
fi
cd "$work"
digest_of() { "$@" --json 2>"$work/words" | grep -o '"digest": *"[0-9a-f]*"' || { cat "$work/words"; stop "$*"; }; }
arguments=(train tiny --steps 5 --seed 7 --devices cpu:2)
want=$(digest_of "$build/bin/tandem" "${arguments[@]}")
[[ $(digest_of ${small_shm[@]+"${small_shm[@]}"} "$work/root/usr/lib/tandem/tandem" "${arguments[@]}") == "$want" ]] || stop "the .deb's program trains to other bits"
[[ $(digest_of env -u VIRTUAL_ENV PYTHONPATH="$work/site" python3 -m tandem_train "${arguments[@]}") == "$want" ]] || stop "the wheel's program trains to other bits"
rm "$work/site/torch"
if PYTHONPATH="$work/site" python3 -S -m tandem_train "${arguments[@]}" 2>"$work/words"; then stop "it trained without torch"; fi
grep -q 'pip install torch==' "$work/words" || { cat "$work/words"; stop "without torch it does not say what to do"; }
[[ ${#small_shm[@]} -gt 0 ]] && echo "with 64 KB of /dev/shm: the same bits"
echo "packages: $(du -k "$deb" | cut -f1) and $(du -k "$wheel" | cut -f1) KB, the bits of the build"
