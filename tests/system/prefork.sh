# prefork.sh - a server forks its workers before it serves. With --service each worker is a host,
# and gives memory back and follows an edit while it is idle.
. tests/system/_lib.sh
need "$CC" grep
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

live=$work/live.lua
write() { # write NAME - writes a policy of that name
  printf 'local s = loam.host { name = "s" }\nreturn loam.policy {\n  name = "%s",\n' "$1" > "$work/next"
  printf '  pick = function(req) return s end,\n}\n' >> "$work/next"
  mv "$work/next" "$live"
}

build prefork.c
write one
mkfifo "$work/in" "$work/out"
(exec "$LOAM" run --service --watch --policy "$live" -- "$program") < "$work/in" > "$work/out" 2> "$work/err" &
pid=$!
children=$pid
exec 3> "$work/in" 4< "$work/out"
read -r -t 60 -a workers <&4 || fail "the program says nothing: $(cat "$work/err")"
children="$pid ${workers[*]}"

says() { "$LOAM" status "$1" --json | tee "$work/status" && grep "\"$2\"" "$work/status"; }
is_small() {
  grep VmRSS "/proc/$1/status" | tee "$work/status" && [ "$(tr -dc 0-9 < "$work/status")" -lt 32768 ]
}

for worker in "${workers[@]}"; do await "worker $worker has no socket" says "$worker" one; done
echo "ok: each worker answers"
for worker in "${workers[@]}"; do await "worker $worker keeps its peak" is_small "$worker"; done
echo "ok: each worker gives its peak back"
write two
for worker in "${workers[@]}" "$pid"; do await "$worker follows no edit" says "$worker" two; done
echo "ok: each worker follows an edit"
for worker in "${workers[@]}"; do
  "$LOAM" ps | grep -q "\<$worker\>" || fail "loam ps does not show $worker: $("$LOAM" ps)"
done

exec 3>&-
wait "$pid" || fail "it ended with $?"
children=
[ -s "$work/err" ] && fail "it was told things: $(cat "$work/err")"
[ -z "$(ls "$LOAM_CONTROL_DIR" | grep -v '^kept-\|^quotas')" ] || fail "a socket is left behind: $(ls "$LOAM_CONTROL_DIR")"
echo "ok: they end without a trace"
