# ansible.sh - the role of examples/fleet/ansible, with a local connection. A program obeys a policy
# that is rolled out. A refused policy does not reach the program. A policy that a program does not
# obey is rolled back.

. tests/system/_own_user.sh
. tests/system/_lib.sh
need "$CC" ansible-playbook
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

export HOME=$work ANSIBLE_LOCALHOST_WARNING=false ANSIBLE_NOCOLOR=1 ANSIBLE_PYTHON_INTERPRETER=/usr/bin/python3
# play TEXT [VARIABLE=VALUE...] - rolls the text out.
play() {
  printf '%s\n' "$1" > "$work/next.lua"
  shift
  local more=()
  for one; do more+=(-e "$one"); done
  ansible-playbook -i localhost, -c local examples/fleet/ansible/site.yml -e "policy=$work/next.lua" \
    -e "policy_path=$live" -e "loam=$LOAM" "${more[@]}" > "$work/play" 2>&1
}

live=$work/prod.lua
play "$(policy_text 64)" || fail "the first policy: $(tail -n 20 "$work/play")"
build aligned.c
"$LOAM" run --watch --policy "$live" -- "$program" 64 2048 > "$work/out" 2>> "$work/err" &
children="$children $!"
await "the program does not start" grep -x 'obeys 64' "$work/out"

play "$(policy_text 2048)" || fail "the second policy: $(tail -n 20 "$work/play")"
await "the program does not obey" grep -x 'obeys 2048' "$work/out"
echo "ok: a program obeys what is rolled out"

# The program sleeps from now on, and requests no memory.
play "$(policy_text 1024)" || fail "with a program that sleeps: $(tail -n 20 "$work/play")"
grep -qF s1024 "$live" || fail "a program that sleeps ends in a rollback: $(tail -n 20 "$work/play")"
play "$(policy_text 2048)" || fail "the second policy again: $(tail -n 20 "$work/play")"
echo "ok: a program that sleeps need not obey yet"

play 'return loam.polcy {}' && fail "a bad policy is rolled out"
grep -qF "loam has no 'polcy'" "$work/play" || fail "its error: $(tail -n 20 "$work/play")"
grep -qF s2048 "$live" || fail "a bad policy is in place"
play "$(policy_text 2048)" || fail "the policy that is in place already: $(tail -n 20 "$work/play")"
grep -q 'changed=0' "$work/play" || fail "an equal policy is a change: $(tail -n 5 "$work/play")"
echo "ok: a bad policy is not put into place, and an equal one changes nothing"

play "$(policy_text 2048 | sed '1i -- a comment')" || fail "a comment: $(tail -n 20 "$work/play")"
grep -qx -- '-- a comment' "$live" || fail "a comment is not rolled out: $(tail -n 20 "$work/play")"
play "$(policy_text 2048)" || fail "without the comment: $(tail -n 20 "$work/play")"
echo "ok: a text that decides alike is rolled out too"

echo 'return loam.polcy {}' | save "$live"
play "$(policy_text 2048)" || fail "over a bad policy: $(tail -n 20 "$work/play")"
grep -qF s2048 "$live" || fail "a bad policy stays in place: $(tail -n 20 "$work/play")"
echo 'return loam.polcy {}' | save "$live"
play "$(policy_text 2048)" policy_allow=denied && fail "a difference that is not known is allowed"
policy_text 2048 | save "$live"
echo "ok: a bad policy is replaced, unless only some differences are allowed"

# Nothing watches the file for the second program.
"$LOAM" run --policy "$live" -- sleep 600 2>> "$work/err" &
children="$children $!"
await "the second program has no place on a board" "$LOAM" status "$!"
play "$(policy_text 4096)" policy_timeout=0s && fail "a program that nothing watches for obeys"
grep -qF s2048 "$live" || fail "the old policy is not back: $(tail -n 20 "$work/play")"
grep -qF "the old one is back in place" "$work/play" || fail "no reason: $(tail -n 20 "$work/play")"
echo "ok: a policy that a program does not see is rolled back"
