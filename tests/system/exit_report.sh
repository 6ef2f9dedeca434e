# exit_report.sh - a program that was asked for it reports its memory at its end, and no other does.
. tests/system/_lib.sh
need perl

tight=$work/tight.lua
cat > "$tight" <<'LUA'
local small = loam.host { name = "small", limit = 64 * loam.MiB }
return loam.policy { pick = function(req) return small end }
LUA
err=$work/err file=$work/report

# under WHERE COMMAND... - runs a command under the policy, with a report to WHERE.
under() {
  "$LOAM" run --policy "$tight" --report "$1" -- "${@:2}" 2> "$err" || fail "$*: $(cat "$err")"
}

# has WORDS FILE - fails unless a line of the report matches the regular expression.
has() { grep -Eq "$1" "$2" || fail "no line '$1': $(cat "$2")"; }

perl_line='^loam: perl\[[0-9]+\]: at exit: '
under stderr perl -e '@a = map { "x" x 1_000_000 } 1 .. 20; undef @a'
has "$perl_line[0-9.]+ [KM]iB live in [0-9]+ blocks; [0-9.]+ MiB in [0-9]+ blocks allocated in all; at most [0-9.]+ MiB resident$" "$err"
has "${perl_line}tag 'malloc\.[a-z0-9]*perl', strategy 'small': .* live in [0-9]+ blocks; [0-9.]+ MiB in [0-9]+ blocks in all$" "$err"
has "${perl_line}strategy 'small': at most (19|2[0-9])(\.[0-9])? MiB of its limit of 64 MiB were used$" "$err"
grep -Ev "$perl_line" "$err" && fail "other lines: $(cat "$err")"
echo "ok: the report names the tags, the strategies and the peak of a limit"

sed 's/64 \* loam.MiB/1023 * loam.MiB + 680 * loam.KiB/' "$tight" > "$work/wide.lua"
"$LOAM" run --policy "$work/wide.lua" --report stderr -- perl -e 1 2> "$err"
has "[KM]iB of its limit of 1 GiB were used$" "$err"
echo "ok: sizes are rounded as by the command"

LOAM_REPORT=stderr "$LOAM" run --policy "$tight" -- perl -e '$a = "x" x 100_000_000' 2> "$err" && fail "it has a limit"
has "${perl_line}1 request failed: no strategy of the chain could serve$" "$err"
has "were used; it could not serve 1 request$" "$err"
echo "ok: it says that requests got no memory"

# The program that reads standard error has ended. The order of the programs is that of two pipes.
mkfifo "$work/start" "$work/gone"
"$LOAM" run --policy "$tight" --report stderr -- perl -e 'open F, ">", shift; open G, "<", shift' \
  "$work/start" "$work/gone" 2> >(exec 0<&- 2>&-; : < "$work/start"; : > "$work/gone") ||
  fail "a closed pipe at its end: status $?"
(ulimit -f 0; LOAM_CONTROL=0 LOAM_REPORT=stderr LOAM_POLICY="$tight" LD_PRELOAD="$LOAM_PRELOAD" perl -e 1 2> "$err") ||
  fail "a full file at its end: status $?"
echo "ok: a report that cannot be printed does not end the program by a signal"

under "$file" perl -e 'exit 0 unless fork; wait; exec "perl", "-e", "1"'
day=$(date -u +%Y-%m-%d)
[ -s "$err" ] && fail "the file has the report, and standard error has: $(cat "$err")"
has "^${day}T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z perl \([0-9]+\): at exit: .* resident$" "$file"
[ "$(grep -c " resident$" "$file")" = 2 ] || fail "a child and the last program: $(cat "$file")"
[ "$(stat -c %a "$file")" = 600 ] || fail "others may read the report"
echo "ok: a forked child reports too, and a program that exec replaces does not"

under stderr perl -e 'exit 0 unless fork; wait; exec "perl", "-e", "1"'
[ "$(grep -c " resident$" "$err")" = 1 ] || fail "not the last program alone: $(cat "$err")"
echo "ok: only the process that loam run became prints its report"

rm "$file"
under "$file" perl -e 'use POSIX; POSIX::_exit(0)'
"$LOAM" run --policy "$tight" --report "$file" -- perl -e 'kill 9, $$' 2> "$err" && fail "it was not killed"
[ -s "$file" ] && fail "_exit or a signal: $(cat "$file")"
"$LOAM" run --policy "$tight" -- perl -e 1 2> "$err"
[ -s "$err" ] && fail "nobody asked: $(cat "$err")"
LOAM_REPORT=$file perl -e 1
[ -s "$file" ] && fail "a program without loam: $(cat "$file")"
echo "ok: nothing is written after _exit, a signal, or where nobody asked"

(cd "$work" && under report ls -d /)
has ' ls \([0-9]+\): at exit: ' "$file"
echo "ok: a program that closes standard error reports to a file"

under "$work/none/report" perl -e 'print STDERR "begins\n"'
head -1 "$err" | grep -q "warning: LOAM_REPORT=$work/none/report: No such file or directory, so there is no report" ||
  fail "it does not say so as it begins: $(cat "$err")"
[ "$(wc -l < "$err")" = 2 ] || fail "it says so twice: $(cat "$err")"
LOAM_REPORT=report "$LOAM" run --policy "$tight" -- perl -e 1 2> "$err"
has "warning: LOAM_REPORT=report: it is neither stderr nor an absolute path" "$err"
echo "ok: a file that cannot be written is told"
