# status_text.sh - `loam status --text` prints the policy that a program obeys, and the one before
# it, also after its file was edited again.
. tests/system/_lib.sh
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

# save NAME - writes a policy in one step.
save() {
  echo "local s = loam.host { name = '$1' }
return loam.policy { name = '$1', pick = function(req) return s end }" > "$work/next"
  mv "$work/next" "$work/$1.lua"
  cp "$work/$1.lua" "$work/copy"
  mv "$work/copy" "$work/prod.lua"
}
save first
"$LOAM" run --watch --policy "$work/prod.lua" -- sh -c 'while sleep 0.1; do :; done' > "$work/out" 2>&1 &
pid=$!
children=$pid
for _ in $(seq 600); do
  "$LOAM" wait --policy "$work/prod.lua" --pid "$pid" > "$work/said" 2>&1 && break
  sleep 0.1
done
"$LOAM" status "$pid" > "$work/status" || fail "no status"
grep -q '^before' "$work/status" && fail "there is none before: $(cat "$work/status")"
save second
"$LOAM" wait --policy "$work/prod.lua" --pid "$pid" > "$work/said" 2>&1 || fail "wait: $(cat "$work/said")"
echo 'return' > "$work/prod.lua" # a mistake, which is refused
"$LOAM" status "$pid" --text > "$work/now" || fail "no text"
cmp -s "$work/now" "$work/second.lua" || fail "not the policy in force: $(cat "$work/now")"
"$LOAM" status "$pid" > "$work/status" || fail "no status"
hash=$(sed -n 's/^before *hash \([0-9a-f]*\), published .*/\1/p' "$work/status")
"$LOAM" status "$pid" --text "$hash" > "$work/before" || fail "no text with hash $hash"
cmp -s "$work/before" "$work/first.lua" || fail "not the policy before: $(cat "$work/before")"
echo "ok: the policy in force and the one before it are printed, whatever the file has now"

"$LOAM" status "$pid" --text 0123456789abcdef > "$work/out" 2> "$work/why" && fail "a text that nobody has"
grep -q 'has no policy with hash 0123456789abcdef' "$work/why" || fail "words: $(cat "$work/why")"
echo "ok: an unknown hash is refused"
