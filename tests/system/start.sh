# start.sh - events before main: a policy that denies everything, is broken, is missing, or is no
# file.
. tests/system/_lib.sh
need sort

broken=$work/broken.lua
echo 'return loam.policy { pick = function(req) return nosuch end }' > "$broken"

# refused WHAT POLICY - fails unless loam does not start the program, prints the error and ends with
# status 2, both with LD_PRELOAD alone and by `loam run`.
refused() {
  policy=$2 run_under_policy touch "$work/started" 2> "$work/err"
  status=$?
  [ "$status" = 2 ] || fail "$1: exit status $status, not 2: $(cat "$work/err")"
  [ ! -e "$work/started" ] || fail "$1: the program was started"
  grep -q "loam: .*not started" "$work/err" || fail "$1: no words: $(cat "$work/err")"
  [ -x "${LOAM:-}" ] || return
  "$LOAM" run --policy "$2" -- touch "$work/started" 2> "$work/err"
  status=$?
  [ "$status" = 2 ] || fail "$1: loam run exits with $status, not 2: $(cat "$work/err")"
  [ ! -e "$work/started" ] || fail "$1: loam run started the program"
  [ -s "$work/err" ] || fail "$1: loam run says nothing"
  echo "ok: $1"
}
refused "a broken policy" "$broken"
refused "a policy that is not there" "$work/nosuch.lua"
refused "a directory" "$work"
: > "$work/empty.lua"
refused "an empty file" "$work/empty.lua"
head -c 3000 /dev/urandom > "$work/noise.lua"
refused "noise" "$work/noise.lua"

# lenient WHAT COMMAND... - fails unless the command runs, with one warning.
lenient() {
  local what=$1
  shift
  "$@" > "$work/out" 2> "$work/err" || fail "$what: exit status $?: $(cat "$work/err")"
  [ "$(cat "$work/out")" = served ] || fail "$what: it said $(cat "$work/out")"
  grep -q 'warning' "$work/err" && grep -q nosuch "$work/err" || fail "$what: no warning: $(cat "$work/err")"
  echo "ok: $what"
}
LOAM_LENIENT=1 policy=$broken lenient "lenient" run_under_policy bash -c 'echo served'
[ -x "${LOAM:-}" ] &&
  lenient "loam run --lenient" "$LOAM" run --lenient --policy "$broken" -- bash -c 'echo served'

cat > "$work/deny.lua" <<'LUA'
local none, rest = loam.deny {}, loam.host {}
return loam.policy {
  pick = function(req)
    if req.tag:is("malloc.sort") and req.size >= 1000 then return none end
    return rest
  end,
}
LUA

policy=$work/deny.lua LC_ALL=C run_under_policy sort -S 10M <(seq 1000) > "$work/out" 2> "$work/err" &&
  fail "sort was not denied memory"
grep -q 'memory exhausted' "$work/err" || fail "denied, sort says: $(cat "$work/err")"
echo "ok: loam.deny is the program's ENOMEM"

# A bad edit changes nothing for programs that start after it, as a child or by exec: they obey the
# policy with which the tree began.
denied() {
  grep -q 'memory exhausted' "$work/err" || fail "$1 does not obey the first policy: $(cat "$work/out" "$work/err")"
  grep -q nosuch "$work/err" && fail "$1 was told of the edit: $(cat "$work/err")"
  echo "ok: $1 after a bad edit has the policy with which the tree began"
}
if [ -x "${LOAM:-}" ]; then
  seq 1000 > "$work/numbers"
  for how in "" exec; do
    cp "$work/deny.lua" "$work/edited.lua"
    LC_ALL=C "$LOAM" run --policy "$work/edited.lua" -- bash -c "cp \$0 \$1; $how sort -S 10M \$2; exit 3" \
      "$broken" "$work/edited.lua" "$work/numbers" > "$work/out" 2> "$work/err"
    denied "a program${how:+ by $how}"
  done
  # Without a board, the built-in default decides, and a warning says so.
  cp "$work/deny.lua" "$work/edited.lua"
  lenient "exec after a bad edit, without a board" env LOAM_CONTROL=0 "$LOAM" run \
    --policy "$work/edited.lua" -- bash -c 'cp "$0" "$1"; exec /bin/echo served' "$broken" "$work/edited.lua"
fi

# A policy that `loam run` has compiled needs no Lua any more, in the program or in its children.
if [ -x "${LOAM:-}" ]; then
  cat > "$work/one.lua" <<'LUA'
local small, large = loam.host {}, loam.host { align = 64 }
return loam.policy { pick = function(req) return req.size < 4096 and small or large end }
LUA
  for one in "$top/policies/default.lua" "$work/one.lua"; do
    "$LOAM" run --policy "$one" -- sh -c 'cat /proc/$$/maps; /bin/cat /proc/self/maps' > "$work/out" ||
      fail "$one: exit status $?"
    [ "$(grep -c preload "$work/out")" -gt 0 ] || fail "$one: nothing was preloaded"
    grep -q luajit "$work/out" && fail "$one: LuaJIT was opened"
  done
  echo "ok: a plan of every tag comes with the program"
fi

# Without LOAM_EVENTS, loam prints nothing about a correct policy or about a file system where
# nothing can be written.
LOAM_CONTROL_DIR=/proc/nosuch run_under_policy bash -c 'echo served' > "$work/out" 2> "$work/err" || fail "no socket"
[ -s "$work/err" ] && fail "told without being asked: $(cat "$work/err")"
LOAM_EVENTS=stderr run_under_policy bash -c 'echo served' > "$work/out" 2> "$work/err"
grep -q '^loam: ' "$work/err" || fail "LOAM_EVENTS=stderr tells nothing"
echo "ok: events are told when asked for"

# expect_report VARIABLE=VALUE - fails unless loam reports a meaningless value in one line, which names the
# value and the possible values, and the program runs.
expect_report() {
  env "$1" LD_PRELOAD="$LOAM_PRELOAD" LOAM_POLICY="$policy" echo served > "$work/out" 2> "$work/err" ||
    fail "$1: exit status $?"
  [ "$(cat "$work/out")" = served ] || fail "$1: it said $(cat "$work/out")"
  [ "$(grep -c '' "$work/err")" = 1 ] || fail "$1: not one line: $(cat "$work/err")"
  grep -qF ": warning: $1: it may be $2; taken as ${2%%|*}" "$work/err" || fail "$1: $(cat "$work/err")"
}
expect_report LOAM_BAD_FREE=aborted 'abort|report|ignore'
expect_report LOAM_BAD_FREE=Report 'abort|report|ignore'
expect_report LOAM_EVENTS=stdout 'errors|none|stderr'
expect_report LOAM_WATCH=yes '0|1'
expect_report LOAM_LENIENT=2 '0|1'
expect_report LOAM_CONTROL=off '1|0'
expect_report LOAM_LEAKS=yes '0|1'
for good in LOAM_BAD_FREE=abort LOAM_BAD_FREE= LOAM_WATCH=1 LOAM_WATCH=0 LOAM_EVENTS=none LOAM_CONTROL=0; do
  env "$good" LD_PRELOAD="$LOAM_PRELOAD" LOAM_POLICY="$policy" echo served > "$work/out" 2> "$work/err" ||
    fail "$good: exit status $?"
  [ -s "$work/err" ] && fail "$good: $(cat "$work/err")"
done
echo "ok: a value that means nothing is told"

if [ -x "${LOAM:-}" ]; then
  # The kept image of a policy is used only while the text of the policy is unchanged.
  {
    echo 'local plain = loam.host {}'
    echo 'return loam.policy { name = "first", pick = function() return plain end }'
  } > "$work/kept.lua"
  name() {
    "$LOAM" run --policy "$work/kept.lua" -- sh -c '"$0" ps --json; :' "$LOAM" |
      sed -n 's/.*"name":"\([^"]*\)","path":"[^"]*kept.lua".*/\1/p'
  }
  for n in 1 2; do [ "$(name)" = first ] || fail "run $n: $(name)"; done
  sed -i 's/first/other/' "$work/kept.lua"
  for n in 1 2; do [ "$(name)" = other ] || fail "edited, run $n: $(name)"; done
  echo "ok: a policy that was edited is compiled again"
fi
