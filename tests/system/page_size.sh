# page_size.sh - on a kernel with larger pages, the command and a program under loam end with one
# line that says why. A library in front of the C library's getauxval(3) pretends such pages.
. tests/system/_lib.sh
need "$CC"
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

cat > "$work/pages.c" <<'C'
#include <sys/auxv.h>
unsigned long getauxval(unsigned long type) { return type == AT_PAGESZ ? 64 << 10 : 0; }
C
"$CC" -shared -fPIC -o "$work/pages.so" "$work/pages.c" || fail "$CC makes no library"
words="loam needs a kernel with pages of 4 KiB: this one has 64"

# ends_with STATUS COMMAND... - runs the command; its one line of errors contains the words.
ends_with() {
  local expected=$1 status=0
  shift
  "$@" > "$work/out" 2> "$work/err" || status=$?
  [ "$status" = "$expected" ] || fail "$*: status $status: $(cat "$work/err")"
  [ "$(wc -l < "$work/err")" = 1 ] || fail "$*: not one line: $(cat "$work/err")"
  grep -qF "$words" "$work/err" || fail "$*: $(cat "$work/err")"
  [ ! -s "$work/out" ] || fail "$*: $(cat "$work/out")"
}

for command in "check policies/default.lua" "run --policy policies/default.lua -- true" doctor; do
  # shellcheck disable=SC2086  # words
  ends_with 70 env LD_PRELOAD="$work/pages.so" "$LOAM" $command
done
for lenient in 0 1; do
  ends_with 2 env LD_PRELOAD="$work/pages.so $LOAM_PRELOAD" LOAM_LENIENT=$lenient true
  ends_with 2 env LD_PRELOAD="$work/pages.so $LOAM_PRELOAD" LOAM_LENIENT=$lenient LOAM_POLICY="$policy" true
done
echo "ok: the command and the program end, and say why"
