# subproject.sh - loam is a part of another project, by add_subdirectory and by FetchContent, in
# each build type and with several build types at a time (Ninja Multi-Config).
set -euo pipefail

if [ -n "${LOAM_SANITIZE-}" ]; then
  echo "skipped: a build with sanitizers builds no other project"
  exit 77
fi
top=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "failed: $*"; exit 1; }

# Acts as a machine without cmocka and busted: pkg-config finds only LuaJIT.
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
cat > "$work/src/words.cc" <<'CC'
#include <cstdio>
#include <loam.hpp>

int main() { std::puts(loam::block("host.words", 100).tag()); }
CC
cat > "$work/src/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(parent C CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
enable_testing()
add_executable(host host.c)
add_test(NAME mine COMMAND host)
if(ALONE)
  target_include_directories(host PRIVATE $top/core/include)
  return()
endif()
if(FETCHED)
  include(FetchContent)
  FetchContent_Declare(loam SOURCE_DIR $top)
  FetchContent_MakeAvailable(loam)
else()
  add_subdirectory($top loam)
endif()
target_link_libraries(host PRIVATE loam::loam)
add_executable(whole host.c)
target_link_libraries(whole PRIVATE loam::static)
add_executable(words words.cc)
target_link_libraries(words PRIVATE loam::cxx)
add_executable(whole-words words.cc)
target_link_libraries(whole-words PRIVATE loam::static)
CMAKE

# configure FOLDER OPTION... - configures the parent.
configure() {
  local folder=$work/$1
  shift
  cmake -S "$work/src" -B "$folder" -DCMAKE_C_COMPILER="$CC" \
    -DCMAKE_CXX_COMPILER="$CXX" "$@" > "$work/log" 2>&1 || {
    cat "$work/log"
    fail "it cannot be configured: $*"
  }
  cmake --build "$folder" --target help > "$work/targets"
}

# cached FOLDER NAME VALUE - fails unless a variable of the parent's cache has this value.
cached() {
  grep -qx "$2:[A-Z]*=$3" "$work/$1/CMakeCache.txt" || fail "$1: $(grep "^$2:" "$work/$1/CMakeCache.txt")"
}

# is_untouched FOLDER - fails unless the parent's files are compiled as they are without loam, its
# list of tests has only its own test, and it has no target of loam's tests, benchmarks or Python.
is_untouched() {
  local line
  line=$(grep "host\.dir/.*src/host\.c\",\$" "$work/$1/compile_commands.json" |
    sed 's/-isystem/-I/g; s/-I /-I/g')
  [ -n "$line" ] || fail "$1: host.c is not compiled"
  line=${line//"$work/$1"/FOLDER}
  [ "$line" = "$2" ] || fail "$1: host.c is compiled otherwise:"$'\n'"$line"$'\n'"$2"
  [ "$(ctest --test-dir "$work/$1" -C Debug -N | grep -c 'Test *#')" = 1 ] || fail "$1: the tests of loam"
  if grep -E 'test_|bench_|python' "$work/targets"; then fail "$1: targets of tests or of Python"; fi
}

# Tries each build type, for a parent without loam and with loam.
for type in Debug Release RelWithDebInfo ''; do
  for way in alone subdirectory fetched; do
    folder=$way-$type
    case $way in
      alone) configure "$folder" -DCMAKE_BUILD_TYPE="$type" -DALONE=ON ;;
      subdirectory) configure "$folder" -DCMAKE_BUILD_TYPE="$type" ;;
      fetched) configure "$folder" -DCMAKE_BUILD_TYPE="$type" -DFETCHED=ON ;;
    esac
    cached "$folder" CMAKE_BUILD_TYPE "$type"
    if [ "$way" = alone ]; then
      alone=$(grep "src/host\.c\",\$" "$work/$folder/compile_commands.json")
      alone=${alone//"$work/$folder"/FOLDER}
    else
      is_untouched "$folder" "$alone"
    fi
  done
  echo "ok: a parent of build type '$type' is compiled and tested as it is without loam"
done

# BUILD_SHARED_LIBS decides for libraries without a type; both libraries of loam have a type.
configure debug -DCMAKE_BUILD_TYPE=Debug -DBUILD_SHARED_LIBS=OFF -DCMAKE_UNITY_BUILD=ON
for option in TESTS BENCH WERROR INSTALL; do cached debug "LOAM_$option" OFF; done
cached debug LOAM_CHECKS 0
cached debug CMAKE_BUILD_TYPE Debug
cached debug BUILD_SHARED_LIBS OFF
echo "ok: a parent gets no tests, no checks and no Python package, and keeps its build type"

# A build of all targets of the parent makes only the parts of loam that the parent uses, and so not
# the command. The parent joins the sources of a target (a unity build), which loam's sources do not
# allow.
built=debug
config=()
if command -v ninja > /dev/null; then
  built=several
  config=(--config RelWithDebInfo)
  configure several -G "Ninja Multi-Config" -DCMAKE_C_FLAGS_RELWITHDEBINFO=-O0 -DCMAKE_UNITY_BUILD=ON
  if grep -q '^CMAKE_BUILD_TYPE' "$work/several/CMakeCache.txt"; then fail "several: a build type"; fi
else
  echo "not tested, as ninja is not installed: several types of build at a time"
fi

# The first target that is built in a new folder.
cmake --build "$work/$built" "${config[@]}" --target loam-command --parallel 2 > "$work/log" 2>&1 ||
  { cat "$work/log"; fail "the command's own library is not built alone"; }

cmake --build "$work/$built" "${config[@]}" --parallel 2 > "$work/log" 2>&1 ||
  { cat "$work/log"; fail "build"; }
for name in host whole words whole-words; do
  host=$(find "$work/$built" -name $name -type f -perm -u+x)
  [ "$("$host")" = host.words ] || fail "the program $name"
done
made=$(find "$work/$built" -name loam -type f -perm -u+x)
[ -z "$made" ] || fail "the parent's build makes what it does not use: $made"
cmake --install "$work/$built" "${config[@]}" --prefix "$work/prefix" > "$work/log"
if [ -e "$work/prefix" ]; then fail "installed: $(find "$work/prefix")"; fi
echo "ok: programs of the parent are linked with loam::loam, loam::static and loam::cxx, in C and C++"

# Clang builds a parent for a sanitizer, and the parent's warnings are errors. Without optimization
# that takes a minute less.
if command -v clang > /dev/null && command -v clang++ > /dev/null; then
  sanitize='-O0 -fsanitize=address'
  CC=clang CXX=clang++ configure sanitized -DCMAKE_COMPILE_WARNING_AS_ERROR=ON \
    -DCMAKE_C_FLAGS="-Wall -Werror $sanitize" -DCMAKE_CXX_FLAGS="$sanitize"
  cmake --build "$work/sanitized" --target words --parallel 2 > "$work/log" 2>&1 ||
    { tail -n 20 "$work/log"; fail "clang does not build a parent with AddressSanitizer and -Werror"; }
  [ "$("$work/sanitized/words")" = host.words ] || fail "the program words of clang"
  echo "ok: clang builds a parent with AddressSanitizer and -Werror"
else
  echo "not tested, as clang is not installed: a parent with AddressSanitizer and -Werror"
fi
