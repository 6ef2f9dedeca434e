# subproject.sh - loam as a part of another project, by add_subdirectory and by FetchContent.
set -euo pipefail

if [ -n "${LOAM_SANITIZE-}" ]; then
  echo "skipped: a build with sanitizers builds no other project"
  exit 77
fi
top=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "failed: $*"; exit 1; }

# A machine without cmocka and busted: pkg-config finds LuaJIT only.
mkdir "$work/pkgconfig" "$work/src"
cp "$(pkg-config --variable=pcfiledir luajit)/luajit.pc" "$work/pkgconfig"
export PKG_CONFIG_LIBDIR=$work/pkgconfig
unset PKG_CONFIG_PATH

cat > "$work/src/host.c" <<'C'
#include <loam.h>
#include <stdio.h>

int main(void) {
  void *p = loam_malloc(LOAM_SITE("host.words"), 100);
  loam_owner_info whose;
  if (loam_owner(p, &whose) != LOAM_OK) return 1;
  puts(whose.tag);
}
C
cat > "$work/src/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(parent C)
if(FETCHED)
  include(FetchContent)
  FetchContent_Declare(loam SOURCE_DIR $top)
  FetchContent_MakeAvailable(loam)
else()
  add_subdirectory($top loam)
endif()
add_executable(host host.c)
target_link_libraries(host PRIVATE loam::loam)
CMAKE

# configure FOLDER OPTION... - configures the parent.
configure() {
  local folder=$work/$1
  shift
  cmake -S "$work/src" -B "$folder" -DCMAKE_C_COMPILER="$CC" "$@" > "$work/log" 2>&1 || {
    cat "$work/log"
    fail "it cannot be configured: $*"
  }
  cmake --build "$folder" --target help > "$work/targets"
}

# cached FOLDER NAME VALUE - a variable of the parent's cache.
cached() {
  grep -qx "$2:[A-Z]*=$3" "$work/$1/CMakeCache.txt" || fail "$1: $(grep "^$2:" "$work/$1/CMakeCache.txt")"
}

configure debug -DCMAKE_BUILD_TYPE=Debug
for option in TESTS BENCH WERROR INSTALL; do cached debug "LOAM_$option" OFF; done
cached debug LOAM_CHECKS 0
cached debug CMAKE_BUILD_TYPE Debug
if grep -E 'test_|bench_|python' "$work/targets"; then fail "targets of tests or of Python"; fi
configure fetched -DFETCHED=ON
cached fetched CMAKE_BUILD_TYPE ''
if grep -E 'test_|bench_|python' "$work/targets"; then fail "targets of tests or of Python"; fi
echo "ok: a parent gets no tests, no checks and no Python package, and keeps its build type"

# The first target of a fresh folder.
cmake --build "$work/debug" --target loam-command --parallel 2 > "$work/log" 2>&1 ||
  { cat "$work/log"; fail "the command's own library is not built alone"; }

cmake --build "$work/debug" --target host --parallel 2 > "$work/log" 2>&1 || { cat "$work/log"; fail "build"; }
[ "$("$work/debug/host")" = host.words ] || fail "the host"
cmake --install "$work/debug" --prefix "$work/prefix" > "$work/log"
if [ -e "$work/prefix" ]; then fail "installed: $(find "$work/prefix")"; fi
echo "ok: a host of the parent is linked with loam::loam"
