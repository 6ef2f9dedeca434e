# stdin.sh - check, explain, plan, test and diff read a policy from standard input and from a pipe.
. tests/system/_lib.sh
need sed grep cmp mkfifo
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

cat > "$work/old.lua" <<'LUA'
local a, b = loam.host { name = "a" }, loam.host { name = "b" }
return loam.policy { name = "old", pick = function(req)
  if req.size > 1000 then return a end
  return b
end, tests = { { tag = "x", size = 8, expect = b } } }
LUA
sed 's/1000/2000/' "$work/old.lua" > "$work/new.lua"

# compare_inputs VERB ARGUMENT... - fails unless the output of the verb for standard input and for a pipe
# equals its output for the file.
compare_inputs() {
  local verb=$1
  shift
  (cd "$work" && "$LOAM" "$verb" old.lua "$@") > "$work/file" 2>&1 || fail "$verb: $(cat "$work/file")"
  "$LOAM" "$verb" - "$@" < "$work/old.lua" > "$work/input" 2>&1 || fail "$verb -: $(cat "$work/input")"
  sed 's/\bstdin\b/old.lua/' "$work/input" | cmp - "$work/file" || fail "$verb -: $(cat "$work/input")"
  cat "$work/old.lua" | "$LOAM" "$verb" /dev/stdin "$@" > "$work/pipe" 2>&1 || fail "$verb: $(cat "$work/pipe")"
  sed 's,/dev/stdin,old.lua,' "$work/pipe" | cmp - "$work/file" || fail "$verb of a pipe: $(cat "$work/pipe")"
}
compare_inputs check
compare_inputs check --json
compare_inputs plan --tag x
compare_inputs explain --tag x --size 2000
compare_inputs test
echo "ok: check, plan, explain and test read a policy from standard input and from a pipe"

"$LOAM" diff <(cat "$work/old.lua") "$work/new.lua" > "$work/out" 2>&1
[ $? = 1 ] || fail "diff of a pipe: $(cat "$work/out")"
grep -q '^moved .*1001 to < 2001' "$work/out" || fail "diff of a pipe: $(cat "$work/out")"
"$LOAM" diff <(cat "$work/old.lua") <(cat "$work/old.lua") > "$work/out" 2>&1 || fail "two pipes: $(cat "$work/out")"
"$LOAM" compile "$work/old.lua" -o "$work/old.image" > "$work/out" || fail "compile: $(cat "$work/out")"
"$LOAM" diff - "$work/old.lua" < "$work/old.image" > "$work/out" 2>&1 || fail "an image: $(cat "$work/out")"
echo "ok: diff compares policies and images that come from pipes"

# refused WORDS ARGUMENT... - fails unless the command refuses its standard input with these words.
refused() {
  local words=$1
  shift
  "$LOAM" "$@" > "$work/out" 2>&1 && fail "loam $*: $(cat "$work/out")"
  grep -qF -- "$words" "$work/out" || fail "loam $*: $(cat "$work/out")"
}
refused "stdin:3: syntax: " check - < <(printf 'local nothing\n\nx =\n')
refused "stdin: file: the last line has no newline" check - < <(printf 'return nothing')
refused "stdin: file: has 2000000 bytes, a policy has at most 1048576" check - < <(head -c 2000000 /dev/zero)
refused "stdin: file: the file is empty" check - < /dev/null
mkfifo "$work/named"
refused "is not a regular file" check "$work/named"
refused "standard input cannot be both OLD and NEW" diff - - < "$work/old.lua"
refused "standard input cannot be both the policy" explain - --batch - < "$work/old.lua"
refused "loam compile: it reads no standard input; name a file" compile - -o "$work/none.image" < "$work/old.lua"
refused "loam run: it reads no standard input; name a file" run --policy - -- true < "$work/old.lua"
echo "ok: what cannot be a policy is refused; compile and run want a file"
