# completion.sh - the completion of `loam` in bash, which must know each command.
. tests/system/_lib.sh
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
. lua/loam/command/loam.bash
compopt() { files=1; }

# offers WORD... - completes the last word. Sets $offered to the offered words, and $files if names
# of files are offered too.
offers() {
  COMP_WORDS=(loam "$@") COMP_CWORD=$# COMPREPLY=() files=
  _loam "$LOAM" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
  offered="${COMPREPLY[*]}"
}
# is WANTED WORD... - fails unless the completion of the last word is exactly WANTED.
is() {
  local wanted=$1
  shift
  offers "$@"
  [ "$offered" = "$wanted" ] || fail "loam $*: '$offered', not '$wanted'"
}

verbs=$("$LOAM" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' | tr '\n' ' ')
is "${verbs}help --help --version" ""
is "${verbs% }" help ""
is "" help run ""
is "status stats" st
is "--all --json --help" ps -
is "--tag --rate --json --help" rebalance 4 --
is "svg" profile --format sv
is "pageout" demote 4 --tag t --to p
is "moved" diff a b --allow m
is "peak processes" top --sort p
is "pid peak policy" top --by process --sort p
is "" top --every ""
offers schema ""
for word in $offered; do "$LOAM" schema "$word" > "$work/schema" || fail "loam schema $word is offered"; done
[ "$(wc -w <<< "$offered")" = "$(ls lua/loam/command/schema | wc -l)" ] || fail "loam schema: '$offered'"
offers check ""
[ "$files" ] || fail "no files for check"
for words in "ls -" "ls x"; do
  offers run --policy p.lua -- $words
  [ "$files" ] && [ -z "$offered" ] || fail "options of loam for another command: '$offered'"
done
sleep 600 & children=$! plain=$!
(exec_under_policy sleep 600) & children="$children $!" governed=$!
until "$LOAM" ps 2> /dev/null | grep -q "^ *$governed "; do sleep 0.05; done
for words in "stats" "wait --pid" "top"; do
  offers $words ""
  [[ " $offered " == *" $governed "* && " $offered " != *" $plain "* ]] || fail "loam $words: '$offered'"
done
is "" stats "$governed" "x"
echo "ok: each command, its options and the programs are offered"
