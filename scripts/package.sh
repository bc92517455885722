#!/usr/bin/env bash
# scripts/package.sh [deb] [wheel] -- packs the programs of BUILD_DIR; both, if nothing is named. `make package` builds first.
#
# The packages land in BUILD_DIR/package (PACKAGE_DIR). What is packed is a copy: without debug information, and with libtorch looked for
# in the torch wheel relative to the program, never in the folder it was built with. docs/building.md tells what lies where.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/messages.sh
. scripts/versions.sh

BUILD_DIR=${BUILD_DIR:-build}
PACKAGE_DIR=${PACKAGE_DIR:-$BUILD_DIR/package}
MAINTAINER=${MAINTAINER:-tandem <tandem@localhost>}
kinds=("$@")
((${#kinds[@]})) || kinds=(deb wheel)
for kind in "${kinds[@]}"; do
  [[ $kind == deb || $kind == wheel ]] || fail 2 "scripts/package.sh: unknown word '$kind'" "it makes: deb, wheel" "leave it out, or choose one of these"
done
for program in tandem tandem-worker; do
  [[ -x $BUILD_DIR/bin/$program ]] || fail 2 "no $program in $BUILD_DIR/bin" "nothing has been built there" "run \`make build\`, or name the folder: BUILD_DIR=..."
done
for tool in strip patchelf objdump dpkg-deb dpkg-shlibdeps; do
  command -v $tool >/dev/null || fail 2 "$tool is not here" "packing needs it" "run \`scripts/setup.sh package\`"
done
version=$("$BUILD_DIR/bin/tandem" --version 2>/dev/null | sed -nE 's/^tandem ([0-9.]+).*/\1/p;q')
[[ -n $version ]] || fail 1 "$BUILD_DIR/bin/tandem tells no version" "it may be of another machine" "build it here: \`make build\`"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}
work=$(mktemp -d) || fail 1 "no temporary folder can be made" "${TMPDIR:-/tmp} is full or not writable" "free some space there"
trap 'rm -rf "$work"' EXIT
mkdir -p "$PACKAGE_DIR" || fail 1 "cannot make the folder $PACKAGE_DIR" "no permission, or the disk is full" "name another one: PACKAGE_DIR=..."

# pack_programs FOLDER RPATH: the programs, small, and with another place for libtorch. RPATH, not RUNPATH: it serves what a library loads, too.
pack_programs() {
  local file
  mkdir -p "$1"
  for file in tandem tandem-worker tandem-video libtandem_cuda.so; do
    [[ -e $BUILD_DIR/bin/$file ]] || continue
    strip --strip-unneeded -o "$1/$file" "$BUILD_DIR/bin/$file" && patchelf --force-rpath --set-rpath "$2" "$1/$file" && chmod "$([[ $file == *.so ]] && echo 644 || echo 755)" "$1/$file" ||
      fail 1 "$file cannot be packed" "strip's or patchelf's words are above" "look whether the disk is full"
  done
}

# fill_share FOLDER ZSH: completions; zsh has a folder for packages and one for others
fill_share() {
  mkdir -p "$1"/{bash-completion/completions,zsh/"$2",fish/vendor_completions.d}
  "$BUILD_DIR/bin/tandem" completion bash >"$1/bash-completion/completions/tandem"
  "$BUILD_DIR/bin/tandem" completion zsh >"$1/zsh/$2/_tandem"
  "$BUILD_DIR/bin/tandem" completion fish >"$1/fish/vendor_completions.d/tandem.fish"
}

# Libraries that every Linux of the wheel's glibc has, and those that torch's wheel brings.
provided='^(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s|gomp|c10|torch|torch_cpu|cudart|cupti))\.so'

# linked: the libraries of the programs as "name path" lines. package_of PATH: the Debian package that it is of.
linked() { ldd "$BUILD_DIR/bin/tandem" "$BUILD_DIR/bin/tandem-worker" | sed -nE 's/^\s*(\S+) => (\/\S+) .*/\1 \2/p' | sort -u; }
package_of() {
  local real
  real=$(readlink -f "$1")
  dpkg -S "$real" "${real#/usr}" 2>/dev/null | sed -nE 's/^([^:, ]+)(:[a-z0-9]+)?: .*/\1/p;q'
}

with_versions() { sed -e "s/@TORCH_VERSION@/$TORCH_VERSION/g" -e "s/@TORCH_SLIM_WHEELS@/$TORCH_SLIM_WHEELS/g" "$1"; }

make_deb() {
  local root=$work/deb depends target
  pack_programs "$root/usr/lib/tandem" "\$ORIGIN/torch/lib"
  ln -s /var/lib/tandem/torch "$root/usr/lib/tandem/torch"
  mkdir -p "$root"/usr/bin "$root"/DEBIAN "$root"/usr/share/{man/man1,doc/tandem}
  for program in tandem tandem-worker; do with_versions packaging/tandem.sh >"$root/usr/bin/$program"; done
  with_versions packaging/tandem-torch.sh >"$root/usr/bin/tandem-torch"
  chmod 755 "$root"/usr/bin/*
  fill_share "$root/usr/share" vendor-completions
  python3 packaging/man_page.py "$BUILD_DIR/bin/tandem" | gzip -9n >"$root/usr/share/man/man1/tandem.1.gz" || fail 1 "the manual page was not made" "see above" "run packaging/man_page.py by hand"
  ln -s tandem.1.gz "$root/usr/share/man/man1/tandem-worker.1.gz"
  ln -s tandem.1.gz "$root/usr/share/man/man1/tandem-torch.1.gz"
  mkdir "$root/usr/share/doc/tandem/docs"
  cp README.md "$root/usr/share/doc/tandem/" && cp docs/*.md "$root/usr/share/doc/tandem/docs/" || fail 1 "the pages were not packed" "see above" "look whether the disk is full"
  printf 'tandem (%s) unstable; urgency=medium\n\n  * Made of commit %s.\n\n -- %s  %s\n' "$version" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$MAINTAINER" \
    "$(LC_ALL=C date -uRd "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$root/usr/share/doc/tandem/changelog.gz"
  install -m 755 packaging/postinst.sh "$root/DEBIAN/postinst"
  install -m 755 packaging/postrm.sh "$root/DEBIAN/postrm"
  # libtorch is no Debian package: what is in no package is left out.
  mkdir -p "$work/shlibs/debian"
  printf 'Source: tandem\n\nPackage: tandem\nArchitecture: any\n' >"$work/shlibs/debian/control"
  depends=$(cd "$work/shlibs" && dpkg-shlibdeps --ignore-missing-info -O "$root/usr/lib/tandem/tandem" 2>"$work/shlibs.log" | sed -n 's/^shlibs:Depends=//p')
  [[ -n $depends ]] || { cat "$work/shlibs.log" >&2; fail 1 "the packages that tandem needs were not found" "see above" "look at dpkg-shlibdeps"; }
  # The worker's own come on top; libtorch is found only where it is installed, so dpkg-shlibdeps does not look at the worker.
  local library path package
  while read -r library path; do
    [[ $library =~ $provided ]] && continue
    package=$(package_of "$path")
    [[ -z $package || ", $depends," =~ ", $package"[,\ ] ]] || depends+=", $package"
  done < <(objdump -p "$root/usr/lib/tandem/tandem-worker" | sed -n 's/^ *NEEDED *//p' | sort | join - <(linked))
  # Videos are decoded by FFmpeg, a hundred packages that nobody needs who has none: recommended. The wheel brings none of it.
  local recommends="python3-venv, ca-certificates"
  if [[ -e $root/usr/lib/tandem/tandem-video ]]; then
    while read -r library path; do
      package=$(package_of "$path")
      [[ $library =~ ^lib(av|sw) && -n $package ]] && recommends+=", $package"
    done < <(ldd "$BUILD_DIR/bin/tandem-video" | sed -nE 's/^\s*(\S+) => (\/\S+) .*/\1 \2/p' | sort -u |
      join - <(objdump -p "$root/usr/lib/tandem/tandem-video" | sed -n 's/^ *NEEDED *//p' | sort))
  fi
  cat >"$root/DEBIAN/control" <<END
Package: tandem
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $MAINTAINER
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: $depends, python3 (>= 3.10)
Recommends: $recommends
Section: science
Priority: optional
Description: trains models on all your devices, with the same result on any of them
 Multi-GPU and CPU training in one program. The weights depend on the recipe,
 never on the machines: the same bits for any number of workers, through kills,
 freezes, joins and resumes.
 .
 libtorch $TORCH_VERSION comes from PyPI: run "sudo tandem-torch install" once.
END
  find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  target=$PACKAGE_DIR/tandem_${version}_$(dpkg --print-architecture).deb
  dpkg-deb --root-owner-group -Zxz -z"${DEB_LEVEL:-6}" --build "$root" "$target" >/dev/null || fail 1 "$target was not made" "dpkg-deb's words are above" "look whether the disk is full"
  say "made $target, $(du -k "$target" | cut -f1) KB"
}

make_wheel() {
  local stage=$work/wheel library path package
  pack_programs "$stage/bin" "\$ORIGIN/../../torch/lib:\$ORIGIN/../lib"
  mkdir -p "$stage/lib" "$stage/licenses"
  # What Debian brings and others do not: copied, with its licence.
  while read -r library path; do
    [[ $library =~ $provided ]] && continue
    cp -L "$path" "$stage/lib/$library" && strip --strip-unneeded "$stage/lib/$library" && patchelf --force-rpath --set-rpath "\$ORIGIN" "$stage/lib/$library" ||
      fail 1 "$path cannot be packed" "see above" "look whether it is there"
    package=$(package_of "$path")
    [[ -n $package ]] && cp -L "/usr/share/doc/$package/copyright" "$stage/licenses/$package" 2>/dev/null
  done < <(linked)
  fill_share "$stage/share" site-functions
  python3 packaging/wheel.py "$stage" "$PACKAGE_DIR" --version "$version" --torch "$TORCH_VERSION" >"$work/made" || fail 1 "the wheel was not made" "see above" "look whether the disk is full"
  say "made $(<"$work/made"), $(du -k "$(<"$work/made")" | cut -f1) KB"
}

for kind in "${kinds[@]}"; do "make_$kind"; done
