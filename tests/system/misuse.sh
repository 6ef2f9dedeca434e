# misuse.sh - frees that are wrong are found, told and end the program, or not, as LOAM_BAD_FREE says:
# then it goes on unharmed.
. tests/system/_lib.sh
need "$CC"

build misuse.c -Wno-use-after-free -Wno-free-nonheap-object

# Some look right: a block that somebody has by now, the neighbour that begins where a block ends. And
# what stands in others' stacks, or nowhere that loam could know, the C library has to judge.
excepted='taken-|end-1048576|stack-of-another|thread-local'
of_class() {
  "$program" | awk -F '\t' -v class="$1" -v excepted="^($excepted)" '$1 == class && $2 !~ excepted { print $2 }'
}

# told CASE - in one line, that names the pointer.
told() {
  grep -q '^loam: .*free of 0x\|^loam: realloc of 0x' "$work/err" || fail "$1: no words: $(cat "$work/err")"
  [ "$(grep -c '^loam: ' "$work/err")" = 1 ] || fail "$1: not one line: $(cat "$work/err")"
}

goes_on() {
  LOAM_BAD_FREE=$2 under "$program" "$1" > "$work/out" 2> "$work/err" ||
    fail "$1: $2 ends it: $(cat "$work/out" "$work/err")"
  [ "$(cat "$work/out")" = $'went on\nend' ] || fail "$1: $2, then: $(cat "$work/out")"
}

# found CLASS - every case of it.
found() {
  local case n=0
  for case in $(of_class "$1"); do
    (under "$program" "$case") > "$work/out" 2> "$work/err"
    status=$?
    [ "$status" = 134 ] || fail "$case: status $status, not that of abort: $(cat "$work/out" "$work/err")"
    [ -s "$work/out" ] && fail "$case: it went on"
    told "$case"
    goes_on "$case" report
    told "$case"
    n=$((n + 1))
  done
  [ "$n" != 0 ] || fail "no case of class $1"
  goes_on "$case" ignore
  [ -s "$work/err" ] && fail "$case: ignored, yet told: $(cat "$work/err")"
  echo "ok: $1: $n"
}
for class in 'double free' 'realloc of freed' 'inside a block' stack static; do found "$class"; done

for case in $(of_class 'impossible size'); do
  under "$program" "$case" > "$work/out" 2> "$work/err" || fail "$case: $(cat "$work/out" "$work/err")"
  [ "$(cat "$work/out")" = $'refused\nwent on\nend' ] || fail "$case: $(cat "$work/out")"
done
echo "ok: impossible sizes are refused"
