# meson.sh - a Meson project uses an installed loam, by pkg-config and by CMake's files. Where loam
# is not installed, it uses loam as a subproject, by the files of bindings/meson.
set -euo pipefail

if [ -n "${LOAM_SANITIZE-}" ]; then
  echo "skipped: a build with sanitizers builds no other project"
  exit 77
fi
for program in meson ninja git; do
  command -v "$program" > /dev/null || { echo "skipped: $program is not installed"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "failed: $*"; [ ! -e "$work/log" ] || tail -n 40 "$work/log"; exit 1; }

mkdir "$work/host"
cat > "$work/host/host.c" <<'C'
#include <loam.h>
#include <stdio.h>

int main(void) {
  void *p = loam_malloc(LOAM_SITE("host.words"), 100);
  loam_owner_info whose;
  if (loam_owner(p, &whose) != LOAM_OK) return 1;
  puts(whose.tag);
}
C
cat > "$work/host/words.cc" <<'CC'
#include <cstdio>
#include <loam.hpp>
#include <vector>

int main() {
  loam::resource memory("host.words");
  std::pmr::vector<int> numbers(100, &memory);
  std::puts(loam::owner(numbers.data())->tag);
}
CC
cat > "$work/host/meson.build" <<'MESON'
project('host', 'c', 'cpp', default_options: ['cpp_std=c++17', 'warning_level=2', 'werror=true'])
loam = dependency('loam', version: '>= 0.1')
executable('host', 'host.c', dependencies: loam)
executable('words', 'words.cc', dependencies: loam)
MESON

# setup FOLDER OPTION... - configures the project with the compilers in CC and CXX.
setup() {
  local folder=$work/$1
  shift
  meson setup "$folder" "$work/host" "$@" > "$work/log" 2>&1 || fail "it cannot be configured: $*"
}
# builds FOLDER - builds the project, and runs its two programs.
builds() {
  local program
  ninja -C "$work/$1" > "$work/log" 2>&1 || fail "$1: it cannot be built"
  for program in host words; do
    [ "$("$work/$1/$program")" = host.words ] || fail "$1: $program"
  done
}

# ---- An installed loam

prefix=$work/prefix
# Installs by component: system.install uses the list of files of a whole installation.
for component in library development; do
  cmake --install "$LOAM_BUILD" --prefix "$prefix" --component $component > "$work/log" || fail "it cannot be installed"
done
library=$(dirname "$(find "$prefix" -name libloam.so)")
needs() { readelf -d "$1" | grep -q 'NEEDED.*libloam\.so'; }

PKG_CONFIG_PATH=$library/pkgconfig setup pkgconfig
builds pkgconfig
needs "$work/pkgconfig/host" || fail "pkg-config: the host does not need libloam.so"
echo "ok: dependency('loam') finds an installed loam by pkg-config"

sed "s/, version.*/, method: 'cmake', modules: 'loam::cxx')/" -i "$work/host/meson.build"
setup cmake --cmake-prefix-path "$prefix"
# Meson sets the library path of a program only with the data of pkg-config.
LD_LIBRARY_PATH=$library builds cmake
needs "$work/cmake/words" || fail "CMake: words does not need libloam.so"
echo "ok: and by CMake's files"

# ---- A subproject

sed "s/, method.*/, version: '>= 0.1')/" -i "$work/host/meson.build"
mkdir "$work/loam"
cp -r CMakeLists.txt core lua cmake bindings "$work/loam"
git -C "$work/loam" init -q
git -C "$work/loam" add .
git -C "$work/loam" -c user.name=test -c user.email=test commit -qm sources
cp -r bindings/meson "$work/host/subprojects"
sed -i "s|^url = .*|url = file://$work/loam|" "$work/host/subprojects/loam.wrap"
# Without optimization the library is built in a fifth of the time.
PKG_CONFIG_PATH='' setup subproject -Dbuildtype=plain -Dc_args=-O0
builds subproject
if needs "$work/subproject/host"; then fail "the subproject's host needs libloam.so"; fi
made=$(find "$work/subproject" \( -name 'libloam*.so*' -o -name loam -type f \) -perm -u+x)
[ -z "$made" ] || fail "more is built than the library: $made"
ninja -C "$work/subproject" > "$work/log"
if grep -q Linking "$work/log"; then fail "the second build links again"; fi
touch "$work/host/subprojects/loam/core/os/numa.c"
ninja -C "$work/subproject" > "$work/log"
grep -q 'Linking target host' "$work/log" || fail "an edit of loam's sources is not built"
echo "ok: loam.wrap builds the library alone, where loam is not installed"
