# owner.sh - `loam owner` tells to what an address of a running program belongs: blocks of all
# kinds, freed blocks, guard pages, stacks, libraries; for a C program and a Python program.
. tests/system/_lib.sh
need "$CC" grep
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
build addresses.c -lpthread
sed 's/guard = 50/guard = true/' "$policy" > "$work/guarded.lua"
policy=$work/guarded.lua

at() { sed -n "s/^$1 //p" "$work/said"; }

# says STATUS NAME PATTERN - asks for the address that the program printed with this name. Fails
# unless the command ends with STATUS and its only line matches.
says() {
  local got=0
  "$LOAM" owner "$pid" "$(at "$2")" > "$work/line" 2>&1 || got=$?
  [ "$(wc -l < "$work/line")" = 1 ] || fail "$2: not one line: $(cat "$work/line")"
  grep -Eq "^$(at "$2"): $3" "$work/line" || fail "$2: $(cat "$work/line")"
  [ "$got" = "$1" ] || fail "$2: status $got"
}

started exec_under_policy "$program"
says 0 small "live: tag malloc.addresses, strategy small: offset 0 of 64 bytes at $(at small)"
says 0 inside "live: tag malloc.addresses, strategy small: offset 17 of 64 bytes at $(at small)"
says 0 large "live: tag malloc.addresses, strategy large: offset 0 of 3,145,728 bytes"
says 0 large_inside "live: .* strategy large: offset 2,097,152 of 3,145,728 bytes at $(at large)"
says 0 guarded 'live: .* strategy guarded: offset 1 of 1,50[0-9] bytes'
says 1 guard 'guard: .* strategy guarded: [0-9]+ bytes behind 1,50[0-9] bytes'
says 1 quarantined 'freed, in quarantine: was tag malloc.addresses, strategy guarded: offset 0 '
says 1 freed 'freed.*: was tag malloc.addresses, strategy small: offset 0 of 96 bytes'
says 1 stack "the stack of thread $pid"
says 1 thread 'the stack of thread [0-9]+'
grep -q "thread $pid," "$work/line" && fail "the stack is of another thread: $(cat "$work/line")"
says 1 global "not loam's: .*/addresses, offset 0x"
says 1 function "not loam's: .*/addresses, offset 0x.*, r-xp"
says 1 library "not loam's: .*libc.so.6, offset 0x.*, r-xp"
says 1 own "not loam's: memory that the program mapped itself, rw-p"
says 1 unmapped 'not mapped'
echo "ok: addresses of a C program"

all=$(sed -n 's/^[a-z_]* 0x//p' "$work/said")
# shellcheck disable=SC2086
"$LOAM" owner "$pid" $all > "$work/lines" 2>&1
[ "$(wc -l < "$work/lines")" = "$(echo "$all" | wc -l)" ] || fail "lines: $(cat "$work/lines")"
stopped "$pid"
says 0 inside "live: .* offset 17 of 64 bytes"
killed
"$LOAM" owner "$pid" 7f00 > "$work/line" 2>&1 && fail "of an ended process: $(cat "$work/line")"
grep -q "no such process" "$work/line" || fail "$(cat "$work/line")"
"$LOAM" owner $$ 7f00 > "$work/line" 2>&1 && fail "of a program without loam: $(cat "$work/line")"
grep -q "process $$: it does not run under loam" "$work/line" || fail "$(cat "$work/line")"
echo "ok: several addresses, and addresses of a stopped program"

command -v python3 > "$work/why" || skip "python3 is not installed"
cat > "$work/program.py" <<'PY'
import ctypes, time
kept = bytearray(5 << 20)
print("array 0x%x" % ctypes.addressof(ctypes.c_char.from_buffer(kept, 1000)), flush=True)
print("ready", flush=True)
time.sleep(600)
PY
started exec_under_policy python3 "$work/program.py"
says 0 array 'live: tag malloc.[a-z0-9]*python3, strategy large: offset 1,[0-9]+ of 5,2[0-9,]+ bytes'
killed
echo "ok: an address of a Python program"
