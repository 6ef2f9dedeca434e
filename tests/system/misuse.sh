# misuse.sh - loam finds wrong frees, reports them and ends the program. With LOAM_BAD_FREE=report
# or =ignore the program continues undamaged.
. tests/system/_lib.sh
need "$CC" addr2line

build misuse.c -Wno-use-after-free -Wno-free-nonheap-object

# Some wrong frees look right: a freed place that another block has now, or the neighbour that
# begins where a block ends. Pointers into the stacks of other threads, or into the program's own
# mappings, are left to the C library.
excepted='taken-|end-1048576|stack-of-another|thread-local|mapped'
of_class() {
  "$program" | awk -F '\t' -v class="$1" -v excepted="^($excepted)" '$1 == class && $2 !~ excepted { print $2 }'
}

# expect_report CASE - fails unless loam has reported the case in one line, which names the pointer and the
# caller of free.
expect_report() {
  grep -q '^loam: .*free of 0x\|^loam: .*: realloc of 0x' "$work/err" || fail "$1: no words: $(cat "$work/err")"
  grep -q "freed under tag 'malloc.misuse', at misuse+0x[0-9a-f]*$" "$work/err" || fail "$1: freed by whom: $(cat "$work/err")"
  [ "$(grep -c '^loam: ' "$work/err")" = 1 ] || fail "$1: not one line: $(cat "$work/err")"
}

# names CASE - fails unless the report also names the block. After several MiB were freed in a row,
# their memory has gone back to the system, and loam cannot know any more which block was where.
names() {
  grep -q "block of [0-9]* bytes of tag 'malloc.misuse' and strategy '.*', decided by generation 1; freed" "$work/err" ||
    [[ $1 = of-many* || $1 = among-40000 ]] || fail "$1: whose block: $(cat "$work/err")"
}

goes_on() {
  LOAM_BAD_FREE=$2 run_under_policy "$program" "$1" > "$work/out" 2> "$work/err" ||
    fail "$1: $2 ends it: $(cat "$work/out" "$work/err")"
  [ "$(cat "$work/out")" = $'went on\nend' ] || fail "$1: $2, then: $(cat "$work/out")"
}

# The name of a file may have a newline, which is no end of the line.
name=$work/a$'\n'b
cp "$program" "$name"
run_under_policy "$name" "$(of_class "double free" | head -n 1)" > "$work/out" 2> "$work/err"
grep -q "^loam: a?b\[.*of tag 'malloc.a?b'.*freed under tag 'malloc.a?b', at a?b+0x[0-9a-f]*$" "$work/err" ||
  fail "a name with a newline: $(cat "$work/err")"
echo "ok: a report is one line, also of a program whose name has two"

# found CLASS - fails unless loam finds every case of the class.
found() {
  local case n=0
  for case in $(of_class "$1"); do
    (run_under_policy "$program" "$case") > "$work/out" 2> "$work/err"
    status=$?
    [ "$status" = 134 ] || fail "$case: status $status, not that of abort: $(cat "$work/out" "$work/err")"
    [ -s "$work/out" ] && fail "$case: it went on"
    expect_report "$case"
    [[ $1 != *free* && $1 != *block ]] || names "$case"
    goes_on "$case" report
    expect_report "$case"
    n=$((n + 1))
  done
  [ "$n" != 0 ] || fail "no case of class $1"
  goes_on "$case" ignore
  [ -s "$work/err" ] && fail "$case: ignored, yet told: $(cat "$work/err")"
  echo "ok: $1: $n"
}
for class in 'double free' 'realloc of freed' 'inside a block' stack static "nobody's memory"; do
  found "$class"
done

(run_under_policy "$program" inside-8) > "$work/out" 2> "$work/err"
at=$(sed -n 's/.*, at misuse+//p' "$work/err")
line=$(addr2line -f -e "$program" "$at" | tr '\n' ' ')
[[ $line = "inside "*/misuse.c:* ]] || fail "at $at: $line"
echo "ok: a report names the place of the wrong free in its file, as addr2line takes it"

for case in $(of_class 'impossible size'); do
  run_under_policy "$program" "$case" > "$work/out" 2> "$work/err" || fail "$case: $(cat "$work/out" "$work/err")"
  [ "$(cat "$work/out")" = $'refused\nwent on\nend' ] || fail "$case: $(cat "$work/out")"
done
echo "ok: impossible sizes are refused"

# Where every block is guarded, an access beyond the end of a block or to a freed block stops the
# program at that access, with a report that names the block. Two writes are found only by the free:
# a write to the alignment bytes behind an end that is no multiple of 16, and a write to the bytes
# of the page before a block. Reads of these bytes are not found.
echo 'local g = loam.host { guard = true, name = "all" }
return loam.policy { pick = function(req) return g end }' > "$work/guard.lua"
excepted='past-[18]-1000?$|read-past-1-100$|before-[18]-100$'
beside='past-[18]-1000?|before-[18]-100'
for class in overflow underflow over-read 'use after free'; do
  n=0
  for case in $(of_class "$class"); do
    (policy=$work/guard.lua run_under_policy "$program" "$case") > "$work/out" 2> "$work/err"
    status=$?
    [ "$status" = 139 ] && [ ! -s "$work/out" ] || fail "$case: status $status, $(cat "$work/out" "$work/err")"
    grep -q "^loam: [^ ]*\[[0-9]*\]: fault at 0x[0-9a-f]*, [0-9]* bytes\? .* block of [0-9]* bytes of .*strategy 'all'" "$work/err" ||
      fail "$case: no words: $(cat "$work/err")"
    n=$((n + 1))
  done
  (LOAM_GUARD_REPORT=0 policy=$work/guard.lua run_under_policy "$program" "$case") > "$work/out" 2> "$work/err"
  status=$?
  [ "$status" = 139 ] && ! grep -q loam: "$work/err" || fail "$case: unreported: status $status, $(cat "$work/err")"
  echo "ok: $class: $n, where every block is guarded"
done
if [ -x "${LOAM:-}" ]; then
  # faults WHAT COMMAND... - fails unless the command, with the last case, ends at the fault.
  faults() {
    local what=$1 status=0
    shift
    ("$@" -- "$program" "$case") > "$work/out" 2> "$work/err" || status=$?
    [ "$status" = 139 ] && [ ! -s "$work/out" ] || fail "$what: status $status, $(cat "$work/out" "$work/err")"
    grep -q "^loam: [^ ]*\[[0-9]*\]: fault at 0x.* block of .*tag 'malloc.misuse'" "$work/err" || fail "$what: $(cat "$work/err")"
  }
  faults "--guard" "$LOAM" run --policy "$policy" --guard
  faults "LOAM_GUARD" env LOAM_GUARD=1 "$LOAM" run --policy "$policy"
  debug=$(find /lib/ -name libc_malloc_debug.so.0 2> /dev/null | head -n 1)
  [ -z "$debug" ] || faults "MALLOC_CHECK_" env MALLOC_CHECK_=3 LD_PRELOAD="$debug" "$LOAM" run --policy "$policy"
  without() { shift; env LD_PRELOAD="$LOAM_PRELOAD" LOAM_GUARD=1 "$@"; }
  faults "LOAM_GUARD without a policy" without
  grep -q "strategy 'default'" "$work/err" || fail "LOAM_GUARD without a policy: $(cat "$work/err")"
  (LOAM_GUARD=-1 "$LOAM" run --policy "$policy" -- true) 2> "$work/err" || fail "LOAM_GUARD=-1 ends a program"
  grep -q "^loam: .*LOAM_GUARD=-1: it may be N, from 0 to 4294967295" "$work/err" || fail "LOAM_GUARD=-1: $(cat "$work/err")"
  echo "ok: --guard, LOAM_GUARD and MALLOC_CHECK_ guard blocks under a policy that guards none"
fi
n=0
for case in $("$program" | awk -F '\t' -v beside="^($beside)$" '$2 ~ beside { print $2 }'); do
  (policy=$work/guard.lua run_under_policy "$program" "$case") > "$work/out" 2> "$work/err"
  status=$?
  [ "$status" = 134 ] && [ ! -s "$work/out" ] || fail "$case: status $status, $(cat "$work/out" "$work/err")"
  grep -q "^loam: [^ ]*\[[0-9]*\]: write at 0x[0-9a-f]*, \(1 byte\|[02-9] bytes\|[1-9][0-9][0-9]* bytes\) \(before\|past the end of\) a block of 100*[0-9]* bytes of .*strategy 'all'" "$work/err" ||
    fail "$case: no words: $(cat "$work/err")"
  n=$((n + 1))
done
[ "$n" = 6 ] || fail "writes beside guarded blocks: $n cases, not 6"
echo "ok: writes beside a block: $n, found when it is freed, where every block is guarded"

# A wrong size of a C++ delete is reported if the block is guarded; else it does no harm.
n=0
for case in $(of_class 'wrong size'); do
  run_under_policy "$program" "$case" > "$work/out" 2> "$work/err" || fail "$case: $(cat "$work/out" "$work/err")"
  (policy=$work/guard.lua run_under_policy "$program" "$case") > "$work/out" 2> "$work/err"
  status=$?
  [ "$status" = 134 ] || fail "$case: guarded: status $status: $(cat "$work/out" "$work/err")"
  grep -q "^loam: [^ ]*\[[0-9]*\]: free of 0x[0-9a-f]* with size [0-9]*: the block has" "$work/err" ||
    fail "$case: no words: $(cat "$work/err")"
  n=$((n + 1))
done
[ "$n" != 0 ] || fail "no case of a wrong size"
echo "ok: wrong sizes: $n, where every block is guarded"

# Every form of new with every form of delete. A right size is never reported; a wrong size is
# reported if the block is guarded.
build deletes.cc -std=c++17
for which in "$policy" "$work/guard.lua"; do
  policy=$which run_under_policy "$program" > "$work/out" 2> "$work/err" || fail "deletes: $(cat "$work/err")"
  [ "$(cat "$work/out" "$work/err")" = "went on, 24 pairs" ] ||
    fail "deletes: $(cat "$work/out" "$work/err")"
done
echo "ok: 24 pairs of new and delete, with the right size"
n=0
while read -r new delete; do
  for size in 1 99 101 112 128 5000; do
    (policy=$work/guard.lua run_under_policy "$program" "$new" "$delete" "$size") > "$work/out" 2> "$work/err"
    status=$?
    [ "$status" = 134 ] || fail "$new, $delete of $size bytes: status $status: $(cat "$work/err")"
    grep -q "^loam: [^ ]*\[[0-9]*\]: free of 0x[0-9a-f]* with size $size: the block has 100 bytes" "$work/err" ||
      fail "$new, $delete of $size bytes: no words: $(cat "$work/err")"
    n=$((n + 1))
  done
done < <("$program" list)
[ "$n" = 48 ] || fail "pairs with a size: $n cases, not 48"
echo "ok: wrong sizes of delete: $n, where every block is guarded"
