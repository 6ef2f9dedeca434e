# watcher.sh - the process that follows the policy file is refused what it needs: descriptors,
# processes, inotify, room on the board, memory for its compiler. One line says so, and a later edit
# is obeyed.
. tests/system/_lib.sh
need flock mkfifo pgrep setpriv unshare
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
NOBODY=65534
live=$work/live.lua
export LOAM live work

# counts N WORDS - tells whether the standard error of the program has N lines with these words.
counts() { [ "$(grep -cF -- "$2" "$work/err")" = "$1" ]; }
ready_program() { exec "$LOAM" run --watch --policy "$live" -- bash -c 'echo ready; while :; do sleep 0.1; done'; }

# The kernel kills a compiler if the control group has no memory left. Here the compiler waits for
# the lock of the board, so that it can be found and killed.
policy_text 16 > "$live"
started ready_program
watcher=$(pgrep -f "^loam-watcher $live")
children="$children $watcher"
exec 5< "$(ls "$LOAM_CONTROL_DIR"/*.board)"
flock 5
policy_text 32 | save "$live"
has_compiler() { compiler=$(cat "/proc/$watcher/task/$watcher/children") && [ -n "$compiler" ]; }
await "nothing compiles the edit" has_compiler
# $compiler ends with a space.
# shellcheck disable=SC2086
kill -KILL $compiler
exec 5<&-
await "nothing tells of the killed compiler" counts 1 "its compiler was ended by signal 9"
touch "$live"
await "an edit whose compiler was killed is not loaded again" \
  eval '"$LOAM" wait --policy "$live" --timeout 0s'
killed
echo "ok: an edit whose compiler was killed is loaded when its file is touched"

# The watcher ends if it gets no descriptor for the board.
of_few() { ulimit -n 4; exec "$LOAM" run --watch --policy "$live" -- sleep 600; }
mkfifo "$work/errors"
cat "$work/errors" > "$work/err" &
(of_few) 2> "$work/errors" 3>&- 4>&- &
children="$children $!"
await "nothing says that the file is not followed" counts 1 "nothing follows the policy file: board: "
echo "ok: a watcher without a descriptor for the board"

# A program that ends at once removes the board before the watcher begins. Here the watcher waits
# until the program has removed it, and the program waits until the watcher has ended.
cat > "$work/late.c" << 'C'
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

pid_t setsid(void) {
  char started[4096];
  snprintf(started, sizeof started, "%s/started", getenv("work"));
  FILE *file = fopen(started, "w");
  fprintf(file, "%d\n", getpid());
  fclose(file);
  snprintf(started, sizeof started, "%s/removed", getenv("work"));
  while (access(started, F_OK)) usleep(1000);
  return (pid_t)syscall(SYS_setsid);
}
C
${CC:-cc} -shared -fPIC -o "$work/late.so" "$work/late.c" || fail "late.c is not compiled"
cat > "$work/brief" << 'SH'
until [ -s "$work/started" ]; do sleep 0.01; done
read -r watcher < "$work/started"
rm "$LOAM_CONTROL_DIR"/*.board
: > "$work/removed"
while kill -0 "$watcher" 2> /dev/null; do sleep 0.01; done
SH
LD_PRELOAD=$work/late.so "$LOAM" run --watch --policy "$live" -- env -u LD_PRELOAD bash "$work/brief" \
  2> "$work/err" || fail "the program that ends at once: $?"
[ ! -s "$work/err" ] || fail "a watcher whose program has ended says: $(cat "$work/err")"
echo "ok: a watcher that begins after the end of its program says nothing"

# Without inotify the file is read every two seconds. On a full board each reading is refused.
cat > "$work/polled" << 'SH'
echo 0 > /proc/sys/user/max_inotify_instances || exit 77
mkdir "$work/small" && mount -t tmpfs -o size=1m none "$work/small" || exit 77
mkdir "$work/seen" && mount -t tmpfs -o strictatime none "$work/seen" || exit 77
cp "$live" "$work/seen/live.lua"
live=$work/seen/live.lua
edited() { cp "$work/$1" "$work/seen/new" && mv "$work/seen/new" "$live"; }
export LOAM_CONTROL_DIR=$work/small/control
"$LOAM" run --watch --policy "$live" -- bash -c 'echo ready; exec sleep 600' &
pid=$!
trap 'kill -KILL $pid' EXIT
until grep -qs ready "$work/said"; do sleep 0.05; done
cat /dev/zero > "$work/small/filled" 2> "$work/why"
edited other.lua
refused() { "$LOAM" status "$pid" --json | grep -q "\"refused\":$1[,}]"; }
until refused 3; do sleep 0.1; done
cp "$work/err" "$work/polled.err"
touch "$live"
until [ "$(grep -c 'No space left' "$work/err")" -gt "$(grep -c 'No space left' "$work/polled.err")" ]; do sleep 0.1; done
rm "$work/small/filled"
until "$LOAM" wait --policy "$live" --published > "$work/out" 2>&1; do sleep 0.1; done

# A text whose compiler was killed is read at each poll, and compiled again only after a touch.
is_obeyed() { "$LOAM" wait --policy "$live" --published --timeout 0s > "$work/out" 2>&1; }
watcher=$(pgrep -f "^loam-watcher $live")
exec 5< "$(ls "$LOAM_CONTROL_DIR"/*.board)"
flock 5
edited third.lua
until compiler=$(cat "/proc/$watcher/task/$watcher/children") && [ -n "$compiler" ]; do sleep 0.05; done
kill -KILL $compiler
exec 5<&-
until grep -q 'its compiler was ended by signal 9' "$work/err"; do sleep 0.05; done
for i in 1 2 3; do
  read_at=$(stat -c %x "$live")
  until [ "$(stat -c %x "$live")" != "$read_at" ]; do sleep 0.05; done
done
! is_obeyed || { echo "the text was compiled again" >&2; exit 1; }
touch "$live"
until is_obeyed; do sleep 0.1; done
SH
if unshare --user --map-root-user --mount true 2> "$work/why"; then
  status=0
  policy_text 64 > "$work/other.lua"
  policy_text 128 > "$work/third.lua"
  unshare --user --map-root-user --mount timeout 200 bash "$work/polled" > "$work/said" 2> "$work/err" || status=$?
  [ "$status" = 77 ] && skip "no limit on inotify: $(cat "$work/err")"
  [ "$status" = 0 ] || fail "status $status: $(tail -n 3 "$work/out" "$work/err")"
  [ "$(grep -c 'No space left' "$work/polled.err")" = 1 ] ||
    fail "three refusals for one reason are told as: $(cat "$work/polled.err")"
  echo "ok: a polled file on a full board is told of once, and once more when it is touched"
  echo "ok: a polled file whose compiler was killed is compiled again only when it is touched"
fi

# Under a limit on processes there is neither a watcher nor a service thread.
[ "$(id -u)" = 0 ] || skip "the rest needs root"
chmod 711 "$work"
mkdir -m 700 "$work/nobody"
chown "$NOBODY" "$work/nobody"
policy_text 16 > "$live"
chmod 644 "$live"
as_nobody() { (LOAM_CONTROL_DIR=$work/nobody exec setpriv --reuid "$NOBODY" --clear-groups "$@"); }
as_nobody test -x "$LOAM" -a -r "$LOAM_PRELOAD" || skip "another user cannot use this build"
(LOAM_CONTROL_DIR=$work/nobody exec setpriv --reuid "$NOBODY" --clear-groups bash -c \
  'ulimit -u 1; exec "$LOAM" run --watch --policy "$live" -- /bin/sleep 600') 2> "$work/err" &
pid=$!
children="$children $pid"
await "the program is not shown" eval 'as_nobody "$LOAM" status "$pid" > "$work/out"'
counts 1 "by a thread of its own" || fail "no watcher: $(cat "$work/err")"
counts 1 "no edit of the policy file reaches the program: no service thread" ||
  fail "no service thread: $(cat "$work/err")"
grep -q "^file .*, not watched" "$work/out" || fail "a file that nothing follows: $(cat "$work/out")"
echo "ok: neither a process nor a thread to follow the file"
