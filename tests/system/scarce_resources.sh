# scarce_resources.sh - a machine where a resource is missing or scarce: descriptors, threads,
# memory, disk, /proc, a home. loam reports what is missing in one line, and the program runs in
# spite of that.
. tests/system/_lib.sh
need "$CC" unshare setpriv prlimit pgrep
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
export LOAM_PRELOAD LOAM policy work
export LOAM_SERVICE=1 # only a program with a service needs a thread and a socket

# runs WHAT WORDS COMMAND... - fails unless the command prints "served" and loam prints WORDS; for
# "", loam prints nothing.
runs() {
  local what=$1 words=$2
  shift 2
  LOAM_EVENTS=stderr "$@" > "$work/out" 2> "$work/err" ||
    fail "$what: exit status $?: $(cat "$work/err")"
  [ "$(cat "$work/out")" = served ] || fail "$what: it said '$(cat "$work/out")'"
  grep -v 'is live as generation' "$work/err" > "$work/told"
  if [ -n "$words" ]; then
    grep -q "^loam: .*$words" "$work/told" || fail "$what: no '$words' in: $(cat "$work/told")"
    [ "$(wc -l < "$work/told")" = 1 ] || fail "$what: more than one line: $(cat "$work/told")"
  elif [ -s "$work/told" ]; then
    fail "$what: it was told: $(cat "$work/told")"
  fi
  echo "ok: $what"
}
# with SHELL - executes these words of shell, and then echo under the policy.
with() { bash -c "$1"'; exec "$LOAM" run --policy "$policy" -- /bin/echo served'; }

long=$(printf '%0120d' 0)
nearly=$(printf "%0$((100 - ${#work}))d" 0)
: > "$work/file"
mkdir -m 777 "$work/shared"
mkdir -m 700 "$work/own"
ln -s own "$work/link"
runs "a folder of sockets with too long a name" "at most 107" \
  with "export LOAM_CONTROL_DIR=$work/$long"
runs "one in which no socket's name fits" "too long for a socket" \
  with "export LOAM_CONTROL_DIR=$work/$nearly"
runs "one that is a file" "is not a directory that only" \
  with "export LOAM_CONTROL_DIR=$work/file"
runs "one that all may write" "is not a directory that only" \
  with "export LOAM_CONTROL_DIR=$work/shared"
runs "one that is a symbolic link" "link: is a symbolic link; name the folder to which it leads" \
  with "export LOAM_CONTROL_DIR=$work/link"
runs "one that cannot be made" "No such file" with "export LOAM_CONTROL_DIR=/proc/nosuch"
runs "no environment" "" env -i LOAM_EVENTS=stderr LOAM_CONTROL_DIR="$LOAM_CONTROL_DIR" \
  "$LOAM" run --policy "$policy" -- /bin/echo served
runs "standard input closed" "" with "exec <&-"
"$LOAM" run --policy "$policy" -- /bin/echo served >&- 2> "$work/err" && fail "closed, yet written"
grep -q 'Bad file descriptor' "$work/err" || fail "closed, yet: $(cat "$work/err")"
"$LOAM" run --policy "$policy" -- sh -c '[ ! -e /proc/$$/fd/0 ] && [ ! -e /proc/$$/fd/2 ]' <&- 2>&- ||
  fail "a program gets a descriptor that was closed"
"$LOAM" top --json --every 100ms > "$work/out" <&- 2>&- &
closed=$!
children="$children $closed"
is_filled() { [ "$(readlink "/proc/$closed/fd/$1")" = /dev/null ]; }
for fd in 0 2; do await "a file of the command may get the number $fd" is_filled "$fd"; done
kill "$closed"
echo "ok: standard input, output and error closed"

runs "five descriptors" "Too many open files" with "ulimit -n 5"
runs "address space for little more than the program" "more than a 16th" with "ulimit -v 100000"
# A third of a limit on address space is left to the program. A board would take 72 MiB.
for kib in 64000 70000 76000 100000 106000 150000; do
  (ulimit -v "$kib"; LOAM_EVENTS=none exec "$LOAM" run --policy "$policy" -- \
    /usr/bin/python3 -ISc "bytearray($kib * 1024 // 3)") 2> "$work/err" ||
    fail "a third of $kib KiB of address space: $(cat "$work/err")"
done
echo "ok: a third of the address space under a limit is left to the program"
# Finds the least address space with which the command itself starts. With less, the kernel or the
# dynamic linker fails.
for kib in $(seq 4000 250 40000); do
  status=0
  (ulimit -v "$kib"; exec "$LOAM" check "$policy") > "$work/out" 2> "$work/err" || status=$?
  if [ "$status" -lt 126 ] && ! grep -q 'shared libraries' "$work/err"; then break; fi
done
[ "$status" != 0 ] || fail "$kib KiB do"
grep -q '^loam: .*no memory' "$work/err" || fail "without memory it says: $(cat "$work/err")"
echo "ok: no memory"
# Memory may also become short later: here while the command reads a policy of 16 MiB.
{ printf '\177loamimg'; head -c 16M /dev/zero; } > "$work/large"
shorts=0
for kib in $(seq "$kib" 2000 200000); do
  (ulimit -v "$kib"; exec "$LOAM" check - < "$work/large") > "$work/out" 2> "$work/err" || true
  grep -q 'its head says' "$work/err" && break
  [ "$(wc -l < "$work/err")" = 1 ] || fail "with $kib KiB it says: $(cat "$work/err")"
  if [ "$(cat "$work/err")" = "loam: not enough memory" ]; then shorts=$((shorts + 1)); fi
done
grep -q 'its head says' "$work/err" || fail "$kib KiB do not suffice: $(cat "$work/err")"
[ "$shorts" -gt 0 ] || fail "memory was never short while the policy was read"
echo "ok: memory that becomes short"

# A command whose output cannot be written fails.
for verb in "check $policy" "check --json $policy" "explain $policy --tag a --size 1" \
  "plan $policy --tag a" "test $policy" doctor --version --help; do
  # $verb is several words.
  # shellcheck disable=SC2086
  "$LOAM" $verb > /dev/full 2> "$work/err" && fail "loam $verb: written to a full disk"
  [ "$(cat "$work/err")" = "loam: cannot write: No space left on device" ] ||
    fail "loam $verb, to a full disk: $(cat "$work/err")"
done
echo "ok: a full disk for the output"

# No file may have a byte. So the policy's image is not kept, and there is no board. The program also
# cannot note on the board of a killed program that this program has ended. A program that writes too
# long a file is ended by the signal, as without loam.
echo "-- another text" >> "$policy"
started "$LOAM" run --policy "$policy" -- sh -c 'echo ready; exec sleep 600'
killed
{ (ulimit -f 0; exec "$LOAM" run --policy "$policy" -- /bin/echo served) || true; } |
  cat > "$work/out"
grep -qx served "$work/out" || fail "where files may have no byte: $(cat "$work/out")"
status=0
(exec "$LOAM" run --policy "$policy" -- bash -c 'ulimit -f 1; printf "%02000d" 0 > "$0"' "$work/long") \
  2> "$work/err" || status=$?
[ "$status" = 153 ] || fail "a program that writes too long a file ends with $status, not by SIGXFSZ"
echo "ok: files that may have no byte"

# loam leaves a file alone that is no socket, or a socket that belongs to another host.
mkdir -m 700 "$LOAM_CONTROL_DIR" 2> "$work/err"
: > "$LOAM_CONTROL_DIR/55.sock"
mkdir "$LOAM_CONTROL_DIR/56.sock"
"$LOAM" ps > "$work/out" 2>&1 || fail "ps beside other files: exit status $?"
[ -e "$LOAM_CONTROL_DIR/55.sock" ] || fail "ps removed a file that was no socket"
runs "a file where the socket should be" "is no socket" bash -c \
  ': > "$LOAM_CONTROL_DIR/$$.sock"; exec "$LOAM" run --policy "$policy" -- /bin/echo served'
rm -r "$LOAM_CONTROL_DIR"

# The kernel refuses poll(2) for two descriptors to a process that may have one alone.
env -u LOAM_SERVICE "$LOAM" run --watch --policy "$policy" -- sleep 600 &
pid=$!
children="$children $pid"
is_watched() { watcher=$(pgrep -f "^loam-watcher $policy"); }
await "nothing watches the policy" is_watched
children="$children $watcher"
kill -STOP "$watcher" # it calls poll again when it continues
prlimit --pid "$watcher" --nofile=1
kill "$pid"
kill -CONT "$watcher"
has_ended() { ! kill -0 "$watcher"; }
await "the watcher has not ended with its program" has_ended
echo "ok: a watcher that cannot wait for events"

[ "$(id -u)" = 0 ] || skip "the rest needs root"
chmod 711 "$work"
mkdir -m 700 "$work/nobody"
chown 65534 "$work/nobody"
as_nobody() { setpriv --reuid 65534 --clear-groups "$@"; }
if as_nobody test -x "$LOAM" -a -r "$LOAM_PRELOAD"; then
  LOAM_CONTROL_DIR=$work/nobody runs "no threads" "no service thread" as_nobody bash -c \
    'ulimit -u 1; exec "$LOAM" run --policy "$policy" -- /bin/echo served'
fi

unshare -m true 2> "$work/err" || skip "the rest needs mount namespaces"
# in_mount_namespace SHELL - like `with`, in a mount namespace of its own.
in_mount_namespace() {
  unshare -m bash -c "mount --make-rprivate /; $1; "'exec "$LOAM" run --policy "$policy" -- \
    /bin/echo served'
}
mkdir "$work/small"
runs "no /proc" "" in_mount_namespace "mount -t tmpfs none /proc"
runs "no /sys" "" in_mount_namespace "mount -t tmpfs none /sys"
runs "a disk without room for the socket's folder" "No space left" in_mount_namespace \
  "mount -t tmpfs -o nr_inodes=1 none $work/small; export LOAM_CONTROL_DIR=$work/small/control"
runs "a disk that cannot be written" "Read-only" in_mount_namespace \
  "mount -t tmpfs -o ro none $work/small
   export HOME=$work/small LOAM_CONTROL_DIR=$work/small/control"
