# together.sh - at the same time, threads allocate, the program forks, policies are published,
# limits are reached, and the tables are read from outside.
. tests/system/_lib.sh
need "$CC"
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
build together.c

live=$work/live.lua
write() { # write NAME ALIGNMENT MiB - writes a policy with a limit, a fallback, and a counted tag
  cat > "$work/next" <<LUA
local MiB = loam.MiB
local few  = loam.host { name = "few$1", align = $2, limit = $3 * MiB }
local rest = loam.host { name = "rest$1", align = 64 }
return loam.policy {
  name = "p$1",
  pick = function(req)
    if req.size >= 2000 and req.live < 8 * MiB then return few:or_else(rest) end
    return req.size < 300 and few:or_else(rest) or rest
  end,
}
LUA
  mv "$work/next" "$live"
}

write 0 64 4
"$LOAM" run --watch --policy "$live" -- "$program" "$work/enough" > "$work/out" 2> "$work/err" &
pid=$!
children=$pid
for _ in $(seq 1200); do
  grep -q up "$work/out" && break
  sleep 0.1
done
most=${EDITS:-25} edits=0 looks=0
while [ "$edits" -lt "$most" ] && kill -0 "$pid" 2> "$work/why"; do
  edits=$((edits + 1))
  write "$edits" $((16 << edits % 6)) $((1 + edits % 3))
  "$LOAM" reload "$pid" "$live" > "$work/reload" 2>&1 || grep -q "$pid" "$work/reload" ||
    fail "edit $edits: $(cat "$work/reload")"
  for one in "$pid" $(pgrep -P "$pid"); do
    if "$LOAM" stats "$one" --json > "$work/stats" 2> "$work/why"; then
      looks=$((looks + 1))
    else
      ! kill -0 "$one" 2> "$work/gone" || [ "$one" != "$pid" ] || fail "stats: $(cat "$work/why")"
    fi
  done
  "$LOAM" ps > "$work/ps" 2>&1 || fail "ps: $(cat "$work/ps")"
done
: > "$work/enough"
wait "$pid" || fail "it ended with $?: $(cat "$work/err")"
children=
grep -q "as it must be" "$work/out" || fail "it says: $(cat "$work/out")"
! grep -vE "^loam: .*(live as generation|cannot serve|tells? once|told once)" "$work/err" ||
  fail "its errors: $(cat "$work/err")"
echo "ok: $edits edits and $looks looks at a program that allocates and forks"
