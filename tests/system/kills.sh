# kills.sh - processes of one board are killed at random moments, and after each kill `loam ps` and
# `loam status` can read the board.
#
#   LOAM_KILLS=10000 tests/system/kills.sh   the long mode; by default there are 40 kills
. tests/system/_lib.sh
need "$CC" setsid
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

KILLS=${LOAM_KILLS:-40}
PREY=8       # processes that live at one time; each also has a child most of the time
EDIT_EACH=50 # kills between two edits of the policy

build guest.c
live=$work/live.lua
cp "$policy" "$live"
mkfifo "$work/in"
setsid "$LOAM" run --watch --policy "$live" -- "$program" prey "$PREY" < "$work/in" 2> "$work/err" &
pid=$!
children=$pid
exec 3> "$work/in"
[ -e "/proc/$pid/task/$pid/children" ] || skip "the kernel does not list the children of a process"

# victim - sets $victim to a random child of the program, or to a random grandchild. If there is
# none, $victim is "".
victim() {
  local list more
  victim=
  read -r -a list < "/proc/$pid/task/$pid/children" || [ ${#list[@]} -gt 0 ] || return
  victim=${list[RANDOM % ${#list[@]}]}
  [ $((RANDOM % 3)) = 0 ] || return
  read -r more < "/proc/$victim/task/$victim/children" && victim=${more%% *}
}

killed=0
for _ in $(seq 600); do
  "$LOAM" status "$pid" --json > "$work/status" 2>&1 && break
  sleep 0.1
done
while [ "$killed" -lt "$KILLS" ]; do
  kill -0 "$pid" 2> "$work/why" || fail "the program ended after $killed kills: $(cat "$work/err")"
  victim 2> "$work/why"
  [ -n "$victim" ] && sleep "0.00$((RANDOM % 10))" && kill -KILL "$victim" 2> "$work/why" || continue
  killed=$((killed + 1))
  "$LOAM" status "$pid" --json > "$work/status" 2>&1 || fail "after kill $killed: $(cat "$work/status")"
  grep -q '"state":"running".*"strategies_left_out":' "$work/status" || fail "after kill $killed: $(cat "$work/status")"
  "$LOAM" ps --all > "$work/ps" 2>&1 || fail "after kill $killed: $(cat "$work/ps")"
  grep -q "^ *$pid " "$work/ps" || fail "after kill $killed, ps does not list the program: $(cat "$work/ps")"
  [ $((killed % EDIT_EACH)) != 0 ] || { sed "s/align = 64/align = $((64 << killed / EDIT_EACH % 4))/" "$policy" > "$work/next" && mv "$work/next" "$live"; }
  [ $((killed % 500)) != 0 ] || echo "$killed kills"
done
[ "$(ls "$LOAM_CONTROL_DIR" | grep -c 'board$')" = 1 ] || fail "boards: $(ls "$LOAM_CONTROL_DIR")"
exec 3>&-
wait "$pid" 2> "$work/why"
children=
echo "ok: $killed processes were killed, and after each the board could be read"
