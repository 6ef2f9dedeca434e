# misuse.sh - frees that are wrong are found, told and end the program, or not, as LOAM_BAD_FREE says.
. tests/system/_lib.sh
need "$CC"
ulimit -c 0

build misuse.c -Wno-use-after-free -Wno-free-nonheap-object
for what in double double-guarded double-large double-late interior interior-large realloc-dead; do
  (under "$program" $what) > "$work/out" 2> "$work/err"
  status=$?
  [ "$status" = 134 ] || fail "$what: status $status, not that of abort: $(cat "$work/err")"
  grep -q 'loam: free(): .*0x' "$work/err" || fail "$what: no words: $(cat "$work/err")"
  LOAM_BAD_FREE=report under "$program" $what > "$work/out" 2> "$work/err" || fail "$what: report ends it"
  grep -q 'went on' "$work/out" && grep -q 'loam: free(): ' "$work/err" || fail "$what: nothing reported"
  LOAM_BAD_FREE=ignore under "$program" $what > "$work/out" 2> "$work/err" || fail "$what: ignore ends it"
  [ -s "$work/err" ] && fail "$what: ignored, yet told: $(cat "$work/err")"
  echo "ok: $what"
done
