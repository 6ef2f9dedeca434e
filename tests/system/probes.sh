# probes.sh - the static probes otel_memory:alloc and otel_memory:free are in the library, and a
# debugger stops at them when a sample is taken and freed.
. tests/system/_lib.sh
need "$CC" gdb readelf
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
readelf -n "$LOAM_PRELOAD" > "$work/notes"
grep -q 'Provider: otel_memory' "$work/notes" || skip "built without sys/sdt.h"
for name in alloc free; do grep -q "Name: $name" "$work/notes" || fail "no probe $name"; done
build sampled.c

# Breakpoints at probes are set at the start of main, when the library is loaded.
cat > "$work/commands" <<GDB
set pagination off
set confirm off
set debuginfod enabled off
set startup-with-shell on
set exec-wrapper env LD_PRELOAD=$LOAM_PRELOAD LOAM_CONTROL=0 LOAM_PROFILE=1KiB
break main
run < /dev/null > /dev/null
delete
break -probe-stap otel_memory:alloc
continue
printf "alloc %d %d %d\n", \$_probe_argc, \$_probe_arg1, \$_probe_arg2
delete
break -probe-stap otel_memory:free
continue
printf "free %d\n", \$_probe_argc
kill
GDB
gdb -q -batch -nx -x "$work/commands" "$program" > "$work/said" 2>&1
grep -q ptrace "$work/said" && ! grep -q '^alloc' "$work/said" && skip "gdb cannot trace here"
read -r _ argc size weighted < <(grep '^alloc ' "$work/said")
[ "${argc:-0}" = 3 ] || fail "gdb does not stop at alloc: $(tail -n 5 "$work/said")"
[ "$weighted" -ge "$size" ] && [ "$size" -gt 0 ] || fail "size $size, weighted $weighted"
grep -q '^free 1$' "$work/said" || fail "gdb does not stop at free: $(tail -n 5 "$work/said")"
echo "ok: gdb stops at both probes"
