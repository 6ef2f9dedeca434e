# _tagged.sh - runs tagged.c, a program that takes and frees memory under tags by the commands of a
# test. Tests source it after _lib.sh.
need "$CC" od
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
[ -e "${LOAM_BUILD:-}/libloam.so" ] || skip "no libloam.so in LOAM_BUILD"
build tagged.c -L"$LOAM_BUILD" -lloam -Wl,-rpath,"$LOAM_BUILD"

# start - starts the program. Its commands go to descriptor 3, and its answers come from 4.
start() {
  rm -f "$work/in" "$work/out"
  mkfifo "$work/in" "$work/out"
  (exec "$LOAM" run --policy "$policy" -- "$program") < "$work/in" > "$work/out" 2> "$work/err" &
  pid=$!
  children=$pid
  exec 3> "$work/in" 4< "$work/out"
  answered
}
# answered - waits until the program has executed the last command.
answered() { read -r -t 60 word <&4 && [ "$word" = done ] || fail "no answer: $(cat "$work/err")"; }
# tell COMMAND... - gives the program a command, and waits until the program has executed it.
tell() { echo "$*" >&3; answered; }
# hex TEXT - prints the bytes of a text in hexadecimal. The text may have the escapes of printf.
hex() { printf '%b' "$1" | od -An -v -tx1 | tr -d ' \n'; }
# profile ARGUMENT... - runs `loam profile`. Its output goes to $work/said.
profile() { "$LOAM" profile "$@" > "$work/said" 2> "$work/why" || fail "loam profile $*: $(cat "$work/why")"; }
# live - prints the live bytes that `loam stats` counts.
live() { "$LOAM" stats "$pid" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["live_bytes"])'; }
