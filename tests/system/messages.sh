# messages.sh - the messages that a program under `loam run` prints without LOAM_EVENTS, and the
# messages that it must not print.
. tests/system/_lib.sh
need perl

tight=$work/tight.lua
cat > "$tight" <<'LUA'
local small = loam.host { name = "small", limit = 4 * loam.MiB }
local no = loam.deny {}
return loam.policy { pick = function(req)
  if req.size >= 64 * loam.MiB then return no end
  return small
end }
LUA

# lines FILE - prints the number of loam's lines in a file.
lines() { grep -c '^loam: ' "$1" || true; }

# out_of WHAT PERL_EXPRESSION [LINES] - runs Perl until it exceeds a limit or a denial ends it.
# Fails unless loam prints LINES lines (1 by default). Its messages are in $err.
err=$work/err
out_of() {
  "$LOAM" run --policy "$tight" -- perl -e "$2" > "$work/out" 2> "$err" && fail "$1: it did not end"
  [ "$(lines "$err")" = "${3:-1}" ] || fail "$1: $(cat "$err")"
}
out_of "a limit" '$a[$_] = "x" x 100_000 for 1 .. 1000' 2
grep -q "^loam: [^ ]*\[[0-9]*\]: size [0-9]* under tag 'malloc.*': strategy 'small' cannot serve it: this would pass its limit: [0-9]* of 4194304 bytes are used (told once" "$err" ||
  fail "a limit: $(cat "$err")"
grep -q "^loam: [^ ]*\[[0-9]*\]: last words: no memory for size [0-9]* under tag 'malloc.*'; most is live under 'malloc[^']*' ([0-9]* bytes in [0-9]* blocks\?).*; in the strategies 'small' (" "$err" ||
  fail "no last words: $(cat "$err")"
out_of "a denial" '$a = "x" x 80_000_000'
grep -q "^loam: [^ ]*\[[0-9]*\]: size [0-9]* under tag 'malloc.*': the policy denies it (told once" "$err" ||
  fail "a denial: $(cat "$err")"
out_of "a request that no machine can serve" '$a = "x" x 2**46' 1
"$LOAM" run --policy "$policy" -- perl -e '$a = "x" x 2**46' 2> "$err" && fail "2**46 bytes"
[ "$(lines "$err")" = 0 ] || fail "a shortage that the policy did not cause: $(cat "$err")"
LOAM_EVENTS=stderr "$LOAM" run --policy "$tight" -- perl -e '$a = "x" x 20_000_000' 2> "$err" && fail "20 MB"
[ "$(grep -c "would pass its limit" "$err")" = 1 ] || fail "all events: $(cat "$err")"
grep -q "^loam: [^ ]*\[[0-9]*\]: size [0-9]* under tag 'malloc.*': strategy 'small' cannot serve it: " "$err" ||
  fail "all events: $(cat "$err")"
echo "ok: a limit or a denial that leaves a request without memory is told once"

# Last words also go to a file, whatever LOAM_EVENTS says.
LOAM_LAST_WORDS=$work/last LOAM_EVENTS=none out_of "a limit" '$a[$_] = "x" x 100_000 for 1 .. 1000' 0
day=$(date -u +%Y-%m-%d)
grep -q "^${day}T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z perl ([0-9]*): last words: no memory for size [0-9]* under tag 'malloc" "$work/last" ||
  fail "no last words in the file: $(cat "$work/last" "$err")"
[ "$(stat -c %a "$work/last")" = 600 ] || fail "others may read last words"
LOAM_LAST_WORDS=$work/last out_of "a limit" '$a[$_] = "x" x 100_000 for 1 .. 1000' 2
[ "$(wc -l < "$work/last")" = 2 ] || fail "last words are not appended: $(cat "$work/last")"
LOAM_LAST_WORDS=$work/none/last out_of "a limit" '$a[$_] = "x" x 100_000 for 1 .. 1000' 3
grep -q "^loam: [^ ]*\[[0-9]*\]: warning: LOAM_LAST_WORDS=$work/none/last: not written: No such file" "$err" ||
  fail "no folder: $(cat "$err")"
LOAM_LAST_WORDS=last out_of "a limit" '$a[$_] = "x" x 100_000 for 1 .. 1000' 3
grep -q "^loam: [^ ]*\[[0-9]*\]: warning: LOAM_LAST_WORDS=last: it is not an absolute path" "$err" ||
  fail "a relative path: $(cat "$err")"
LOAM_LAST_WORDS=$work/title out_of "a limit" '$0 = "a title"; $a[$_] = "x" x 100_000 for 1 .. 1000' 2
grep -q "Z perl ([0-9]*): last words: " "$work/title" || fail "another name: $(cat "$work/title")"
(ulimit -v 300000; "$LOAM" run --policy "$policy" -- perl -e '$a[$_] = "x" x 100_000 for 1 .. 9000') \
  > "$work/out" 2> "$err" && fail "ulimit -v: it did not end"
grep -q "^loam: [^ ]*\[[0-9]*\]: last words: no memory for size [0-9]*" "$err" || fail "ulimit -v: $(cat "$err")"
echo "ok: last words say where the memory is, on standard error and in a file"

# By then, descriptor 2 may be a data file of the program.
out_of "another file" "close STDERR; open STDERR, '>', '$work/data'; \$a = 'x' x (80_000_000 + \$#ARGV)" 0
[ "$(lines "$work/data")" = 0 ] || fail "a message in a file of the program"
build data_file.c -Wno-use-after-free
for how in "" append; do
  LOAM_BAD_FREE=report LOAM_EVENTS=stderr "$LOAM" run --policy "$policy" -- "$program" "$work/data" $how \
    2> "$err" || fail "a program with a data file: $(cat "$err")"
  [ -n "$how" ] || [ ! -s "$work/data" ] ||
    fail "a wrong free is told in a data file: $(cat "$work/data")"
done
grep -q 'double free' "$work/data" || fail "a wrong free is not told in a log: $(cat "$work/data")"
echo "ok: nothing is written to a file that the program opened as descriptor 2, but to its log"

# loam cannot govern a static program.
printf 'int main(void) { return 7; }\n' > "$work/static.c"
cc -static -o "$work/static" "$work/static.c"
status=0
"$LOAM" run --policy "$policy" -- "$work/static" 2> "$err" || status=$?
[ "$status" = 7 ] || fail "a static program: status $status"
grep -qx "loam: note: $work/static is linked statically, so loam does not govern it" "$err" ||
  fail "a static program: $(cat "$err")"
status=0
LOAM_EVENTS=none "$LOAM" run --policy "$policy" -- "$work/static" 2> "$err" || status=$?
[ "$status $(lines "$err")" = "7 0" ] || fail "a static program, in silence: $(cat "$err")"
echo "ok: a program that loam does not govern is told"

# Another allocator is first: one that LD_PRELOAD names first, or the program's own.
cat > "$work/other.c" <<'C'
#include <stddef.h>
void *__libc_malloc(size_t size), *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void __libc_free(void *block);
void *malloc(size_t size) { return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return __libc_realloc(block, size); }
void free(void *block) { __libc_free(block); }
C
cc -shared -fPIC -o "$work/libother.so" "$work/other.c"
cc -rdynamic -o "$work/owner" "$work/static.c" "$work/other.c"
status=0
"$LOAM" run --policy "$policy" -- "$work/owner" 2> "$err" || status=$?
[ "$status $(lines "$err")" = "7 1" ] || fail "a program with a malloc: status $status: $(cat "$err")"
grep -q '^loam: owner\[[0-9]*\]: note: malloc of .*/owner comes before loam.s; loam governs what it passes on$' \
  "$err" || fail "a program with a malloc: $(cat "$err")"
first="$work/libother.so $LOAM_PRELOAD"
LD_PRELOAD=$first LOAM_POLICY=$policy sh -c '/bin/true; exec /bin/true' 2> "$err"
[ "$(lines "$err")" = 1 ] || fail "another malloc comes first: $(cat "$err")"
grep -q "note: malloc of $work/libother.so comes before loam's" "$err" ||
  fail "another malloc comes first: $(cat "$err")"
LOAM_EVENTS=none "$LOAM" run --policy "$policy" -- "$work/owner" 2> "$err"
LD_PRELOAD=$first true 2>> "$err" # without a policy, nobody expects loam to serve
LD_PRELOAD="$work/libother.so" "$LOAM" run --policy "$policy" -- true 2>> "$err"
[ ! -s "$err" ] || fail "another malloc, in silence: $(cat "$err")"
# A program that is no PIE and takes the address of malloc.
printf '#include <stdlib.h>\nvoid *(*volatile get)(size_t) = malloc;\nint main(void) { return !get(9); }\n' \
  > "$work/fixed.c"
cc -no-pie -fno-pie -fno-builtin -o "$work/fixed" "$work/fixed.c"
run_under_policy "$work/fixed" 2> "$err" || fail "a program at a fixed address: $?"
[ ! -s "$err" ] || fail "a program at a fixed address: $(cat "$err")"
LD_PRELOAD=$first LOAM_POLICY=$policy "$work/fixed" 2> "$err"
grep -q "note: malloc of $work/libother.so comes before loam's" "$err" || fail "at a fixed address: $(cat "$err")"
echo "ok: a program in which another allocator is first is told"

# A program that can have no board still runs. A warning names the commands that do not find it.
status=0
LOAM_CONTROL_DIR=/proc/nosuch "$LOAM" run --policy "$policy" -- perl -e 'exit 7' 2> "$err" || status=$?
[ "$status $(lines "$err")" = "7 1" ] || fail "no folder: status $status: $(cat "$err")"
grep -q '^loam: warning: the program has no board: .*/proc/nosuch: No such file or directory; so `loam ps`' \
  "$err" || fail "no folder: $(cat "$err")"
LOAM_EVENTS=none LOAM_CONTROL_DIR=/proc/nosuch "$LOAM" run --policy "$policy" -- true 2> "$err"
LOAM_CONTROL_DIR=/proc/nosuch run_under_policy true 2>> "$err"
[ -s "$err" ] && fail "no folder, in silence: $(cat "$err")"
echo "ok: a folder of boards that cannot be made is told once"

# The path of a folder may be short enough for a board, but too long for a socket.
long=$work/$(printf 'd%.0s' $(seq $((98 - ${#work}))))
LOAM_CONTROL_DIR=$long "$LOAM" run --service --policy "$policy" -- perl -e 'system "true"; exit 7' 2> "$err"
[ "$? $(lines "$err")" = "7 1" ] || fail "no socket: $(cat "$err")"
grep -q '^loam: [^ ]*\[[0-9]*\]: warning: the program cannot be asked: control socket: .*: too long for a socket; so `loam reload`' "$err" ||
  fail "no socket: $(cat "$err")"
LOAM_EVENTS=none LOAM_CONTROL_DIR=$long "$LOAM" run --service --policy "$policy" -- true 2> "$err"
LOAM_CONTROL_DIR=$long "$LOAM" run --policy "$policy" -- true 2>> "$err"
[ ! -s "$err" ] || fail "no socket, in silence: $(cat "$err")"
LOAM_CONTROL_DIR=/proc/nosuch "$LOAM" run --service --policy "$policy" -- true 2> "$err"
[ "$(lines "$err")" = 1 ] || fail "neither a board nor a socket: $(cat "$err")"
echo "ok: a program that has no socket to be asked by says so once"

# The process that `loam run` became reports a broken policy. Its children do not.
good='local s = loam.host { name = "s" } return loam.policy { pick = function() return s end }'
echo "$good" > "$work/edited.lua"
: > "$err"
"$LOAM" run --watch --policy "$work/edited.lua" -- perl -e '
  my $pid = fork; my @a = map { "x" x $_ } 1 .. 2000; $| = 1; print "up $$\n"; sleep 60' \
  > "$work/out" 2>> "$err" &
host=$!
children=$host
LOAM_EVENTS=none "$LOAM" run --watch --policy "$work/edited.lua" -- sleep 60 2>> "$work/none" &
silent=$!
echo "$good" > "$work/socket.lua"
# Standard error may be a socket: systemd's journal is one.
perl -MSocket -e 'socketpair A, B, AF_UNIX, SOCK_STREAM, 0;
  if (!fork) { open STDERR, ">&B"; close A; exec @ARGV }
  close B; $| = 1; print while <A>' "$LOAM" run --watch --policy "$work/socket.lua" -- \
  bash -c 'echo $$ > "$0"; echo up >&2; exec sleep 60' "$work/socket.pid" > "$work/socket" &
reader=$!
mkfifo "$work/more"
"$LOAM" run --watch --policy "$work/edited.lua" -- bash -c 'echo first >&2; read -r; echo second; sleep 60' \
  < "$work/more" > "$work/both" 2>&1 &
overwrites=$!
exec 5> "$work/more"
children="$host $silent $overwrites $reader"
for _ in $(seq 100); do [ "$(grep -c up "$work/out")" = 2 ] && break; sleep 0.1; done
await "the program with a socket does not start" grep up "$work/socket"
children="$(sed 's/up //' "$work/out") $silent $overwrites $reader $(cat "$work/socket.pid")"
await "the program with one file for all does not start" grep first "$work/both"
await "the silent program does not start" "$LOAM" status "$silent"
echo 'return loam.polcy {}' > "$work/edited.lua"
for _ in $(seq 100); do grep -q polcy "$err" && break; sleep 0.1; done
sleep 1
[ "$(grep -c polcy "$err")" = 1 ] || fail "a broken policy: $(cat "$err")"
grep -q "^loam: policy refused, the last good one stays: .*edited.lua:1: .*polcy" "$err" ||
  fail "a broken policy: $(cat "$err")"
"$LOAM" wait --policy "$work/edited.lua" --pid "$silent" > "$work/out" 2>&1 && fail "it was not refused"
grep -q polcy "$work/out" || fail "the silent program has not refused it: $(cat "$work/out")"
[ -s "$work/none" ] && fail "LOAM_EVENTS=none: $(cat "$work/none")"
echo >&5
exec 5>&-
await "the program with one file for all ends early" grep second "$work/both"
# Where Yama restricts ptrace(2), only root's watcher may write there.
if [ "$(id -u)" = 0 ] || [ "$(cat /proc/sys/kernel/yama/ptrace_scope 2> "$work/why")" -lt 1 ]; then
  [ "$(sed 's/^loam: .*policy refused.*/told/' "$work/both")" = $'first\ntold\nsecond' ] ||
    fail "in a file that is not opened for append: $(cat "$work/both")"
  echo 'return loam.polcy {}' > "$work/socket.lua"
  await "a socket gets no line" grep -q '^loam: policy refused.*polcy' "$work/socket"
fi
echo "ok: a broken policy is told in one line, and with LOAM_EVENTS=none in none"
