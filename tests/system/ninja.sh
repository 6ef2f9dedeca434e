# ninja.sh - a build by ninja links the preload library as a build by make does: its own objects come
# first. cmake/order.cmake says why their order matters.
set -euo pipefail

command -v ninja > /dev/null || { echo "skipped: ninja is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# first_object GENERATOR - configures loam; prints the object file that the preload library begins with.
first_object() {
  local folder="$work/$1" link
  cmake -G "$1" -S . -B "$folder" -DCMAKE_C_COMPILER="$CC" -DLOAM_TESTS=OFF > "$work/log" 2>&1 ||
    { cat "$work/log" >&2; exit 1; }
  if [ "$1" = Ninja ]; then link=$(grep '^build libloam-preload.so:' "$folder/build.ninja")
  else link=$(cat "$folder/bindings/preload/CMakeFiles/loam-preload.dir/link.txt"); fi
  tr ' ' '\n' <<< "$link" | tr -d '"' | grep -m 1 '\.o$' | sed 's|.*CMakeFiles/||'
}

for generator in 'Unix Makefiles' Ninja; do
  first=$(first_object "$generator")
  case $first in
    loam-preload*) ;;
    *) echo "failed: $generator links $first first"; exit 1 ;;
  esac
done
echo "ok: make and ninja link the preload library's own objects first"
