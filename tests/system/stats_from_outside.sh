# stats_from_outside.sh - `loam stats` of processes that cannot help: stopped ones, one without a
# socket, one of another user, and one that was killed.
. tests/system/_lib.sh
need "$CC" grep
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

NOBODY=65534
chmod 755 "$work"
build holds.c

# counts PID - fails unless `loam stats` counts the 1000 blocks of 48 bytes of holds.c. All other
# blocks together have at most 40 KiB.
counts() {
  "$LOAM" stats "$1" > "$work/stats" 2>&1 || fail "stats: $(cat "$work/stats")"
  grep -Eq '^malloc.holds +small .* 1,00[0-9] ' "$work/stats" || fail "rows: $(cat "$work/stats")"
  grep -q 'of 2 MiB' "$work/stats" || fail "no limit: $(cat "$work/stats")"
  "$LOAM" stats "$1" --json > "$work/json" 2>&1 || fail "json: $(cat "$work/json")"
  grep -q "^{\"verb\":\"stats\",\"version\":1,\"ok\":true,\"pid\":$1,.*\"rows\":\\[{" "$work/json" || fail "json: $(cat "$work/json")"
}

# on_board COMMAND... - replaces this shell by a program that has a board, where its last figures
# stay.
on_board() { exec "$LOAM" run --policy "$policy" -- "$@"; }

started on_board "$program"
counts "$pid"
stopped "$pid"
counts "$pid"
echo "ok: a stopped process is counted"

killed
"$LOAM" stats "$pid" > "$work/stats" 2>&1 || fail "last figures: $(cat "$work/stats")"
grep -q 'ended .*its last figures' "$work/stats" || fail "last figures: $(cat "$work/stats")"
grep -Eq '^small .* 2 MiB$' "$work/stats" || fail "last figures: $(cat "$work/stats")"
echo "ok: the limits of a killed process are shown"

started env LOAM_CONTROL=0 LD_PRELOAD="$LOAM_PRELOAD" LOAM_POLICY="$policy" "$program"
[ -e "$LOAM_CONTROL_DIR/$pid.sock" ] && fail "it has a socket"
counts "$pid"
killed
echo "ok: a process without a socket is counted"

"$LOAM" stats $$ > "$work/stats" 2>&1 && fail "a shell without loam: $(cat "$work/stats")"
grep -q 'it does not run under loam' "$work/stats" || fail "words: $(cat "$work/stats")"
echo "ok: a process without loam is refused"

as_nobody() { setpriv --reuid=$NOBODY --clear-groups env -u XDG_RUNTIME_DIR "$@"; }
if [ "$(id -u)" = 0 ] && as_nobody "$LOAM" --version > "$work/version" 2>&1; then
  started setpriv --reuid=$NOBODY --clear-groups env -u LOAM_CONTROL_DIR -u XDG_RUNTIME_DIR \
    LD_PRELOAD="$LOAM_PRELOAD" "$program"
  "$LOAM" stats "$pid" > "$work/stats" 2>&1 || fail "another user: $(cat "$work/stats")"
  grep -Eq '^malloc.holds .* 1,00[0-9] ' "$work/stats" || fail "rows: $(cat "$work/stats")"
  killed
  started exec_under_policy "$program"
  as_nobody "$LOAM" stats "$pid" > "$work/stats" 2>&1 && fail "shown: $(cat "$work/stats")"
  [ "$(wc -l < "$work/stats")" = 1 ] || fail "more than a line: $(cat "$work/stats")"
  grep -q 'only root may read the memory of user 0' "$work/stats" || fail "$(cat "$work/stats")"
  killed
  echo "ok: root counts a process of another user, and only root"
fi

if command -v luajit > "$work/why"; then
  started "$LOAM" run --policy "$policy" -- luajit -e 'local n = 0
    for i = 1, 1e6 do n = n + i % 7 end
    print("ready") io.flush()
    local ffi = require("ffi") ffi.cdef "int pause(void);" ffi.C.pause()'
  "$LOAM" stats "$pid" --json > "$work/stats" 2>&1 || fail "a program with a JIT: $(cat "$work/stats")"
  grep -Eq '"resident_code_bytes":[1-9]' "$work/stats" || fail "its code: $(cat "$work/stats")"
  killed
  echo "ok: code that was made at run time is told"
fi
