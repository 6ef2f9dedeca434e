# bench.sh - each benchmark still runs, and prints all of its rows. It does a thousandth of its
# work, so the test does not look at the figures.
. tests/system/_lib.sh
bench=${LOAM_BUILD:?the build; ctest sets it}/bench
[ -x "$bench/decision" ] || skip "this build has no benchmarks"
export BENCH_TINY=1 LOAM_CONTROL=0

# rows COUNT PATTERN COMMAND... - fails unless COUNT lines of the command's output match, and each
# figure in them is a number.
rows() {
  local count=$1 pattern=$2 found
  shift 2
  timeout 120 "$@" > "$work/out" 2> "$work/err" || fail "$*: status $?: $(cat "$work/out" "$work/err")"
  found=$(grep -cE "$pattern" "$work/out")
  [ "$found" = "$count" ] || fail "$*: $found rows of $count: $(cat "$work/out")"
  ! grep -iwE 'nan|-nan|inf' "$work/out" || fail "$*: a figure is none"
  echo "ok: ${*##*/}"
}

rows 5 '^[a-z].*( +[0-9.]+){3}$' "$bench/block"
rows 8 '^(glibc|loam|pick\(req\)|two scalars)[^/]*( +[0-9.]+){4,}$' "$bench/decision"
rows 9 '^[a-z][-a-z0-9]*( +[-+0-9.]+){10}$' "$bench/gauge"
rows 8 '^( +[-+0-9.]+){5}$' "$bench/limit"
rows 3 '^( +[0-9.]+){5}$' "$bench/look"
rows 2 '^(meanwhile|quiet)' "$bench/moving"
rows 3 '^( +[0-9.]+){5}$' "$bench/owner"
rows 7 '^( +[0-9.]+){7}$' "$bench/pool_pair"
rows 3 '^(meanwhile|during|quiet|.*reloads: mean)' "$bench/reload"
rows 7 '^( +[-0-9.]+){6}$' "$bench/sampled"
rows 2 '^( +[0-9.]+){5}$' "$bench/tags"
rows 16 '^(pair of|pinned,|random up to|training:)' "$bench/device"
for row in $("$bench/patterns" count | cut -f 1 | awk 'NR % 6 == 1'); do
  rows 1 '^[0-9.]+$' "$bench/patterns_direct" "$row" 1
done
rows 1 '/' "$bench/patterns" serves
rows 2 '[0-9]$' "$bench/frugal" objects
for scene in $("$bench/tails" list | cut -f 1); do rows 1 '^[0-9.]+$' "$bench/tails" "$scene"; done
rows 2 '^(malloc|free)( +[0-9]+){5}$' "$bench/latency"
rows 1 '^[0-9.]+$' "$bench/large" cycle malloc 1 1
rows 1 '^[0-9.]+$' "$bench/large" reuse loam 1 1
rows 0 . "$bench/measure" "$work/measured" true
grep -q '[0-9]' "$work/measured" || fail "measure kept nothing"
rows 11 '( +[-+0-9.]+){6}$' bash tests/bench/startup.sh "$LOAM_BUILD" 10
rows 2 ' of a core, oldest look ' bash tests/bench/top.sh "$LOAM_BUILD" 1 3

# refused WORDS ARGUMENT - `tests/bench/allocators --also` refuses a wrong argument in one line,
# before it builds anything.
refused() {
  local words=$1
  shift
  bash tests/bench/allocators --also "$@" > "$work/out" 2> "$work/err"
  [ $? = 2 ] || fail "--also $*: no exit status 2: $(cat "$work/out" "$work/err")"
  [ "$(grep -c . "$work/err")" = 1 ] && grep -qF -- "$words" "$work/err" ||
    fail "--also $*: not one line with \"$words\": $(cat "$work/err")"
}
refused 'write NAME=LIBRARY'
refused 'write NAME=LIBRARY' mimalloc3
refused 'the name "a b"' "a b=$LOAM_PRELOAD"
refused '"jemalloc" already' "jemalloc=$LOAM_PRELOAD"
refused "no file $work/none" "x=$work/none"
refused '"TUNED" is not VARIABLE=VALUE' "x=$LOAM_PRELOAD,TUNED"
# taken ARGUMENT - calls the functions by which the benches take an argument of --also. loam's
# library serves as an example.
taken() {
  bash -c '. tests/bench/_lib.sh; build=$1; add_also "$2"; check_serves "${also[@]}"
    environment_of "${also[0]}"; env "${environment[@]}" printenv TUNED' \
    allocators "$LOAM_BUILD" "$1" > "$work/out" 2> "$work/err"
}
taken "again=$LOAM_PRELOAD,TUNED=1" || fail "--also refuses loam's library: $(cat "$work/err")"
grep -q '^again .*preload' "$work/out" && grep -qx 1 "$work/out" ||
  fail "--also does not show the library, or does not set TUNED: $(cat "$work/out")"
taken "x=$bench/patterns,TUNED=1" && fail "--also takes a library without a malloc"
grep -q 'does not serve malloc' "$work/err" || fail "--also x: $(cat "$work/err")"
# A table of two rows: the packaged allocators have the times 1 to 4, those of --also the time 2 and
# a missing time, and loam the time 6.
awk -v OFS='\t' 'BEGIN {
  print "pattern", "size", "allocator", "ns", "instructions", "peak_kib", "left_kib", "later_kib"
  n = split("glibc,jemalloc,mimalloc,tcmalloc,fast,slow,loam run,loam_malloc", name, ",")
  split("4,4,8,4,2,12,6,3", ns, ",")
  for (row = 1; row <= 2; row++)
    for (i = 1; i <= n; i++)
      print "row " row, "16 B", name[i], name[i] == "slow" && row == 2 ? "-" : ns[i], "-", "-", "-", "-"
}' > "$work/also.tsv"
rows 2 '^row .* 1.50  *0.75$' awk -f tests/bench/table.awk "$work/also.tsv"
rows 1 '^row 1 .* 3.00  1.50     0.50  0.25     1.50  0.75     3.00  1.50$' \
  awk -f tests/bench/table.awk "$work/also.tsv"
rows 1 '^geometric mean  .* 3.00  1.50     0.50  0.25     1.50  0.75     3.00  1.50$' \
  awk -f tests/bench/table.awk "$work/also.tsv"
# The table of tests/bench/programs, for one program and three rounds.
awk -v OFS='\t' 'BEGIN {
  print "program", "allocator", "wall_s", "cpu_s", "peak_kib", "kernel_s", "faults"
  n = split("glibc,jemalloc,mimalloc,tcmalloc,fast,loam run", name, ",")
  split("4,4,8,4,2,6", s, ",")
  for (round = 1; round <= 3; round++)
    for (i = 1; i <= n; i++) print "perl", name[i], s[i], s[i], 1024, 1, 1000
}' > "$work/also.tsv"
rows 1 '^perl  *4.00  1.00  2.00  1.00  0.50  1.50   1.50  0.00 ' \
  awk -f tests/bench/programs.awk "$work/also.tsv"
rows 1 'best of all others: .* fast 0.50, loam run 3.00$' awk -f tests/bench/programs.awk "$work/also.tsv"

# A trace is derived and replayed. The requests of a replay are recorded as a new trace.
if [ ! -x "$bench/trace" ] || [ ! -e "${LOAM_STANDIN:-}" ]; then
  echo "not run: traces: this build has no GPU support, or no stand-in for a driver"
  exit 0
fi
export LOAM_CUDA_DRIVER=$LOAM_STANDIN STANDIN_MEMORY=141G STANDIN_LOG=$work/standin.log
rows 15 ' MiB +[0-9.]+( +[0-9]+ ns)?$' bash tests/bench/traces --quick --build "$LOAM_BUILD"
"${LUAJIT:-luajit}" tests/bench/trace/derive.lua random 2 > "$work/random"
LOAM_MANAGER=$bench/librecorder.so TRACE_FILE=$work/recorded \
  rows 1 'pool = "none".* MiB' "$bench/trace" --pool none "$work/random"
sizes() { grep '^alloc' "$1" | cut -d ' ' -f 3 | sort -n | uniq; }
[ "$(sizes "$work/random" | wc -l)" -gt 50 ] || fail "the derived trace is short"
[ "$(sizes "$work/recorded" | wc -l)" = "$(sizes "$work/random" | wc -l)" ] ||
  fail "what was recorded is not what was asked for"
rows 5 ' MiB +[0-9.]+' "$bench/trace" "$work/recorded"
! grep violation: "$work/standin.log" || fail "the stand-in saw a violation"
echo "ok: traces"
