# abi.sh - the library has the binary interface of the last version (tests/abi). The check itself is
# tested too: additions pass with a note, and incompatible changes do not pass.
set -euo pipefail

if [ -n "${LOAM_SANITIZE-}" ]; then
  echo "skipped: a build with sanitizers is not for installing"
  exit 77
fi
command -v abidiff > /dev/null || { echo "skipped: abidiff (abigail-tools) is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "failed: $*"; exit 1; }
mkdir "$work/include"
export LOAM_ABI_HEADERS=$work/include

# library EXPRESSION - compiles a small loam whose header is edited by an expression of sed.
library() {
  sed -e "$1" > "$work/include/small.h" <<'C'
typedef struct loam_config { unsigned long size; int watch; int tries; } loam_config;
typedef struct loam_info { int live; int limit; } loam_info;
enum { LOAM_OK = 0, LOAM_EINVAL = -1 };
typedef enum loam_kind { LOAM_ONE = 1, LOAM_TWO = 2 } loam_kind;
int loam_start(const loam_config *config);
int loam_read(loam_info *info, loam_kind kind);
int loam_stop(void);
C
  {
    echo '#include "small.h"'
    sed -n 's/^\(int loam_.*\);$/\1 { return 0; }/p' "$work/include/small.h"
  } > "$work/small.c"
  "$CC" -g -shared -fPIC -Wl,-soname,libsmall.so.0 -I"$work/include" -o "$work/libsmall.so" "$work/small.c"
}

library ''
tests/abi write "$work/libsmall.so" "$work/small.abi"
passes() {
  library "$2"
  tests/abi check "$work/libsmall.so" "$work/small.abi" > "$work/out" || { cat "$work/out"; fail "$1"; }
  echo "ok: $1 is compatible"
}
refuses() {
  library "$2"
  if tests/abi check "$work/libsmall.so" "$work/small.abi" > "$work/out"; then fail "$1 passes"; fi
  grep -q "$3" "$work/out" || { cat "$work/out"; fail "$1: no words"; }
  echo "ok: $1 is not compatible"
}
passes "no change" ''
passes "an added function" '$a int loam_more(int number);'
grep -q '^added, which is compatible: .*loam_more' "$work/out" || { cat "$work/out"; fail "no note"; }
passes "a field at the end of a struct with its size" 's/int tries;/int tries; int lenient;/'
passes "a value at the end of an enumeration" 's/LOAM_TWO = 2/LOAM_TWO = 2, LOAM_THREE = 3/'
refuses "a removed function" '/loam_stop/d' loam_stop
refuses "another argument" 's/loam_stop(void)/loam_stop(int now)/' loam_stop
refuses "another type of an argument" 's/loam_info \*info, loam_kind/loam_info *info, long/' loam_read
refuses "a field in the middle" 's/unsigned long size;/unsigned long size; long more;/' loam_config
refuses "a field at the end of a struct without its size" 's/int limit;/int limit; int more;/' loam_info
refuses "fields that change places" 's/int live; int limit;/int limit; int live;/' loam_info
refuses "fields that change places behind a size" 's/int watch; int tries;/int tries; int watch;/' loam_config
refuses "another type of a field" 's/int live;/long live;/' loam_info
refuses "another value of an enumeration" 's/LOAM_TWO = 2/LOAM_TWO = 3/' LOAM_TWO
refuses "an added and a removed function" 's/loam_stop/loam_halt/' loam_stop

unset LOAM_ABI_HEADERS
if ! readelf -S -W "$LOAM_BUILD/libloam.so" | grep -q '\.debug_info'; then
  echo "not tested: this build has no debugging information, so its interface cannot be read"
  exit
fi
tests/abi check "$LOAM_BUILD/libloam.so" || fail "the interface of loam"
echo "ok: the library has the interface of the last version"
