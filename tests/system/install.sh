# install.sh - the files that `cmake --install` writes to a prefix can be found, linked with and
# run, by pkg-config and by find_package, shared and static, also after the prefix was moved.
set -euo pipefail

if [ -n "${LOAM_SANITIZE-}" ]; then
  echo "skipped: a build with sanitizers is not for installing"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The installed files can be removed, and no other file is removed.
mkdir -p "$work/gone/share/loam"
touch "$work/gone/share/loam/mine"
cmake --install "$LOAM_BUILD" --prefix "$work/gone" > "$work/log" || { cat "$work/log"; exit 1; }
cmake -D MANIFEST="$LOAM_BUILD/install_manifest.txt" -P cmake/uninstall.cmake > "$work/log" 2>&1 || {
  cat "$work/log"
  exit 1
}
left=$(find "$work/gone" ! -type d)
[ "$left" = "$work/gone/share/loam/mine" ] || { echo "left by uninstall: $left"; exit 1; }
left=$(find "$work/gone" -path '*/loam*' -type d)
[ "$left" = "$work/gone/share/loam" ] || { echo "folders left by uninstall: $left"; exit 1; }
echo "uninstall: all files"

cmake --install "$LOAM_BUILD" --prefix "$work/first" > "$work/log" || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/prefix"
prefix=$work/prefix
for file in bin/loam include/loam.h include/loam.hpp share/loam/policies/default.lua share/man/man1/loam.1 \
  share/loam/schema/check.json share/loam/schema/doctor.json share/loam/examples/fleet/loam.rules.yml share/bash-completion/completions/loam; do
  [ -f "$prefix/$file" ] || { echo "not installed: $file"; exit 1; }
done
# Each link in an installed manual leads to an installed file.
links=0
for manual in $(find "$prefix/share/loam" -name '*.md'); do
  for link in $(grep -o ']([^):#]*[)#]' "$manual" | sed 's/^](//; s/[)#]$//'); do
    [ -e "$(dirname "$manual")/$link" ] || { echo "${manual#"$prefix/"}: a dead link: $link"; exit 1; }
    links=$((links + 1))
  done
done
[ "$links" -gt 20 ] || { echo "$links links in the installed manuals"; exit 1; }
echo "installed manuals: $links links"
library=$(dirname "$(find "$prefix" -name libloam.so)")
[ -f "$library/libloam.a" ]
[ -f "$library/loam/libloam-preload.so" ]

# Debian's list of the library's functions (cmake/debian) names each function, and nothing else.
nm -D --defined-only "$library/libloam.so" | awk '{ print $3 }' | sort > "$work/has"
sed -n 's/^ \(.*\)@Base .*/\1/p' cmake/debian/libloam*.symbols | sort > "$work/lists"
diff "$work/lists" "$work/has" > "$work/log" || {
  echo "cmake/debian's list (<) and the library (>) differ:"
  grep '^[<>]' "$work/log"
  exit 1
}

# The last entry of the packages' changelog is about this version.
grep -q "^loam ($("$prefix/bin/loam" --version | sed 's/^loam //')-" <(head -n 1 cmake/debian/changelog) || {
  echo "cmake/debian/changelog begins with another version: $(head -n 1 cmake/debian/changelog)"
  exit 1
}

# Absolute folders, as some distributions give them, are as good as relative ones.
root=$work/absolute
cmake -S . -B "$root/build" -DCMAKE_C_COMPILER="$CC" -DLOAM_TESTS=OFF -DLOAM_PYTHON= -DCMAKE_INSTALL_PREFIX="$root" \
  -DCMAKE_INSTALL_LIBDIR="$root/lib" -DCMAKE_INSTALL_INCLUDEDIR="$root/include" -DCMAKE_INSTALL_DATADIR="$root/share" \
  -DCMAKE_INSTALL_BINDIR="$root/bin" -DCMAKE_INSTALL_MANDIR="$root/share/man" \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE="-O1 -DPACKAGER" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
diff "$root/build/loam.pc" - > "$work/log" < <(sed "s|^libdir=.*|libdir=\${prefix}/lib|; s|^prefix=.*|prefix=\${pcfiledir}/../..|" "$library/pkgconfig/loam.pc") ||
  { cat "$work/log"; exit 1; }
grep -q '"\.\./\.\./\.\./\.\./lib/libloam.so' "$root/build/bindings/lua/library.lua" ||
  { grep 'local path' "$root/build/bindings/lua/library.lua"; exit 1; }
echo "absolute folders: loam.pc and library.lua"
grep '/os/error.c"' "$root/build/compile_commands.json" > "$work/log"
if ! grep -q -e '-O1 -DPACKAGER' "$work/log" || grep -q -e ' -O[^1]' "$work/log"; then
  echo "the flags of a packager are not obeyed: $(cat "$work/log")"
  exit 1
fi

# Only debugging information names the folder of the sources. So builds of two folders are equal.
for file in "$prefix/bin/loam" "$library/libloam.a" "$library/libloam.so" "$library/loam/libloam-preload.so"; do
  strip --strip-debug -o "$work/stripped" "$file"
  if grep -qF "$PWD/" "$work/stripped"; then echo "$file names the folder of the sources"; exit 1; fi
done

cat > "$work/host.c" <<'C'
#include <loam.h>
#include <stdio.h>

int main(void) {
  void *p = loam_malloc(LOAM_SITE("host.words"), 100);
  loam_owner_info whose;
  if (loam_owner(p, &whose) != LOAM_OK) return 1;
  printf("%s %s %s\n", loam_version(), whose.tag, whose.strategy);
  loam_free(p);
  return 0;
}
C
cp "$work/host.c" "$work/host.cc"
version=$("$prefix/bin/loam" --version | grep -o '[0-9][0-9.]*')
want="$version host.words default"

# expect NAME COMMAND... - fails unless the command prints $want.
expect() {
  local name=$1 got
  shift
  got=$("$@") || { echo "$name: exit status $?"; exit 1; }
  [ "$got" = "$want" ] || { echo "$name: \"$got\", not \"$want\""; exit 1; }
  echo "$name: $got"
}

export PKG_CONFIG_PATH=$library/pkgconfig
[ "$(pkg-config --modversion loam)" = "$version" ]
flags=(-Wall -Wextra -Werror -Wl,-rpath,"$library")
# shellcheck disable=SC2046
{
  "$CC" "${flags[@]}" -o "$work/shared" "$work/host.c" $(pkg-config --cflags --libs loam)
  "$CC" "${flags[@]}" -o "$work/static" "$work/host.c" $(pkg-config --cflags loam) \
    "$library/libloam.a" $(pkg-config --static --libs-only-l loam | sed 's/-lloam//')
  "$CC" "${flags[@]}" -o "$work/bstatic" "$work/host.c" $(pkg-config --cflags loam) \
    -Wl,-Bstatic $(pkg-config --libs loam) -Wl,-Bdynamic $(pkg-config --static --libs loam |
      sed 's/-lloam//')
  "$CC" -Wall -Wextra -Werror -static -o "$work/whole" "$work/host.c" \
    $(pkg-config --static --cflags --libs loam) 2> "$work/log" || { cat "$work/log"; exit 1; }
}
expect "pkg-config, shared" "$work/shared"
expect "pkg-config, static" "$work/static"
expect "pkg-config, static by -Bstatic" "$work/bstatic"
expect "pkg-config --static, a static program" "$work/whole"

# LuaJIT cannot raise an error in a static program. So loam refuses a policy's text there, and
# accepts an image.
cat > "$work/loads.c" <<'C'
#include <loam.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **argument) {
  if (loam_policy_load_text("bad.lua", "return 1\n") == LOAM_OK) return 1;
  if (!strstr(loam_error(), "linked statically; it can use an image of `loam compile`")) return 2;
  if (loam_policy_load(argument[count - 1]) != LOAM_OK) return 3;
  loam_owner_info whose;
  void *p = loam_malloc(LOAM_SITE("host.words"), 100);
  if (loam_owner(p, &whose) != LOAM_OK) return 4;
  printf("%s %s %s\n", loam_version(), whose.tag, whose.strategy);
}
C
echo 'local s = loam.host { name = "default" } return loam.policy { pick = function() return s end }' > "$work/plain.lua"
"$prefix/bin/loam" compile "$work/plain.lua" -o "$work/plain.image" > "$work/log"
# shellcheck disable=SC2046
"$CC" -static -o "$work/loads" "$work/loads.c" $(pkg-config --static --cflags --libs loam) 2> "$work/log" ||
  { cat "$work/log"; exit 1; }
expect "a static program under an image" "$work/loads" "$work/plain.image"
expect "pkg-config, C++" bash -c '
  "$CXX" -Wall -Wextra -Werror -Wl,-rpath,"$1" -o "$2/cxx" "$2/host.cc" \
    $(pkg-config --cflags --libs loam) && "$2/cxx"' - "$library" "$work"

cat > "$work/words.cc" <<'CC'
#include <loam.hpp>
#include <cstdio>
#include <vector>

int main() {
  loam::resource memory("host.words");
  std::pmr::vector<int> numbers(100, &memory);
  auto whose = loam::owner(numbers.data());
  std::printf("%s %s %s\n", loam_version(), whose->tag, whose->strategy);
}
CC

cat > "$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(host C CXX)
find_package(loam 1.0 REQUIRED)
add_executable(shared host.c)
target_link_libraries(shared PRIVATE loam::loam)
add_executable(static host.c)
target_link_libraries(static PRIVATE loam::static)
add_executable(words words.cc)
target_link_libraries(words PRIVATE loam::cxx)
CMAKE
{
  cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" \
    -DCMAKE_CXX_COMPILER="$CXX" &&
    cmake --build "$work/build"
} > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
expect "find_package, shared" "$work/build/shared"
expect "find_package, static" "$work/build/static"
expect "find_package, C++" "$work/build/words"

# A plugin that contains the static library is never unloaded, because a thread of loam runs its
# code.
cat > "$work/plugin.c" <<'C'
#include <loam.h>

char *words(void);
char *words(void) {
  loam_config config = { .size = sizeof config, .control = 1 };
  (void)loam_start(&config);
  return loam_malloc(LOAM_SITE("plugin.words"), 100);
}
C
cat > "$work/opens.c" <<'C'
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **path) {
  for (int i = 0; i < 3; i++) {
    void *plugin = dlopen(path[count - 1], RTLD_NOW);
    char *(*words)(void) = plugin ? (char *(*)(void))dlsym(plugin, "words") : NULL;
    if (!words) return fprintf(stderr, "%s\n", dlerror()), 1;
    words()[99] = 0;
    dlclose(plugin);
    usleep(300000);
  }
  puts("stayed");
}
C
mkdir "$work/plugin"
mv "$work/plugin.c" "$work/opens.c" "$work/plugin"
cat > "$work/plugin/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(plugin C)
find_package(loam 1.0 REQUIRED)
add_library(plugin MODULE plugin.c)
target_link_libraries(plugin PRIVATE loam::static)
add_executable(opens opens.c)
target_link_libraries(opens PRIVATE ${CMAKE_DL_LIBS})
CMAKE
# shellcheck disable=SC2046
{
  cmake -S "$work/plugin" -B "$work/plugin" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" &&
    cmake --build "$work/plugin" &&
    "$CC" -shared -fPIC -o "$work/plugin/by_pkg_config.so" "$work/plugin/plugin.c" \
      $(pkg-config --cflags loam) -Wl,-Bstatic $(pkg-config --libs loam) -Wl,-Bdynamic \
      $(pkg-config --static --libs loam | sed 's/-lloam//')
} > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
want=stayed
expect "find_package, a plugin" "$work/plugin/opens" "$work/plugin/libplugin.so"
expect "pkg-config, a plugin" "$work/plugin/opens" "$work/plugin/by_pkg_config.so"

# find_package accepts the versions and components that exist, and refuses others.
major=${version%%.*}
rest=${version#*.}
minor=${rest%%.*}
finds() {
  mkdir -p "$work/finds"
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(finds C)\nfind_package(loam %s)\n' "$1 REQUIRED" \
    > "$work/finds/CMakeLists.txt"
  cmake -S "$work/finds" -B "$work/finds/build" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER="$CC" > "$work/log" 2>&1
}
for wanted in "" "$version" "$major.$minor" "$version EXACT" "COMPONENTS loam static cxx" \
  "$major.$minor COMPONENTS cxx OPTIONAL_COMPONENTS other"; do
  finds "$wanted" || { cat "$work/log"; echo "find_package(loam $wanted) fails"; exit 1; }
done
for wanted in "$((major + 1)).0" "$major.$((minor + 1))" "$major.$minor.99 EXACT" "COMPONENTS other"; do
  if finds "$wanted"; then echo "find_package(loam $wanted) finds loam $version"; exit 1; fi
  grep -q 'loam' "$work/log" || { cat "$work/log"; exit 1; }
done
grep -q 'the component "other" is not here; the components are loam, static and cxx' "$work/log" || { cat "$work/log"; exit 1; }
echo "find_package: versions and components"

want=$version
expect "LuaJIT" env LUA_PATH="$prefix/share/lua/5.1/?.lua" "$LUAJIT" -e '
  local loam = require("loam")
  assert(loam.block("host.words", 100)):release()
  print(loam.version())'

# The files may be in a package for all architectures, so that the library is in another folder. The
# linker finds it there, without the development files.
mkdir "$work/linker"
cp "$library/libloam.so.$major" "$work/linker"
cp -r "$prefix/share/lua/5.1" "$work/lua"
expect "LuaJIT, by the linker" env LUA_PATH="$work/lua/?.lua" LD_LIBRARY_PATH="$work/linker" "$LUAJIT" -e '
  print(require("loam").version())'

want=hello
expect "loam run" "$prefix/bin/loam" run --policy "$prefix/share/loam/policies/default.lua" -- \
  /bin/echo hello
