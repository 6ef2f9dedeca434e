# followers.sh - `loam wait --followers` on a machine whose programs run under several policies. It
# waits for the programs whose policy file is the given one, also where a program sees the file at
# another path, and not for one that sees another file at its path.

. tests/system/_own_user.sh
. tests/system/_lib.sh
need grep dd unshare mount
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
unshare --user --map-root-user --mount true 2> /dev/null || skip "no namespaces for users"

web=$work/etc/web.lua
db=$work/etc/db.lua
mkdir "$work/etc" "$work/here" "$work/elsewhere"
policy_text 32 | save "$web"
policy_text 64 | save "$db"
policy_text 128 > "$work/elsewhere/web.lua"

# starts COMMAND... - starts a command that becomes a program on a board; its process id is in $pid.
starts() {
  "$@" 2>> "$work/err" &
  pid=$!
  children="$children $pid"
  await "no place on a board: $*" "$LOAM" status "$pid"
}
# waits STATUS WORDS OPTION... - fails unless `loam wait` for the followers of the first file ends
# with this status and says these words.
waits() {
  local wanted=$1 words=$2 got=0
  shift 2
  "$LOAM" wait --policy "$web" --followers "$@" > "$work/out" 2>&1 || got=$?
  [ "$got" = "$wanted" ] || fail "loam wait $*: $got, not $wanted: $(cat "$work/out")"
  grep -qF -- "$words" "$work/out" || fail "loam wait $*: not '$words': $(cat "$work/out")"
}
# in_a_view COMMANDS - becomes a program that has its own view of the files, after these commands.
in_a_view() {
  exec unshare --user --map-root-user --mount bash -c "$1 && exec \"\$@\"" - "$LOAM" run "${@:2}"
}

waits 0 "no program of yours follows $web"
starts "$LOAM" run --policy "$db" -- sleep 600
of_db=$pid
waits 0 "no program of yours follows $web"
starts "$LOAM" run --watch --policy "$web" -- sleep 600
of_web=$pid
waits 0 "1 program obeys"
(cd "$work/etc" && "$LOAM" wait --policy web.lua --followers > "$work/out") || fail "a relative path"
echo "ok: a program under another policy is not waited for"

starts in_a_view "mount --bind $work/etc $work/here" --watch --policy "$work/here/web.lua" -- sleep 600
waits 0 "2 programs obey"
starts in_a_view "mount --bind $work/elsewhere $work/etc" --policy "$web" -- sleep 600
waits 0 "2 programs obey"
echo "ok: the file counts, and not its path"

policy_text 256 | save "$web"
waits 0 "2 programs obey" --published
starts "$LOAM" run --policy "$web" -- sleep 600
policy_text 512 | save "$web"
waits 3 "sleep ($pid) has not seen it: nothing watches its file $web" --published --timeout 500ms
kill "$pid"
waits 0 "2 programs obey" --published
echo "ok: they are waited for after an edit"

# becomes_other PID - makes the board of a process one of another version, as other_version.sh does.
becomes_other() {
  printf '\001\000\000\000' | dd of="$(echo "$work/control/$1"-*.board)" bs=1 seek=16 conv=notrunc status=none
}
becomes_other "$of_db"
waits 0 "2 programs obey" --published
becomes_other "$of_web"
waits 3 "the programs on 1 board of other versions cannot be read" --published --timeout 0
echo "ok: of the programs of another version, those that follow the file count"
