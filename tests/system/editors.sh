# editors.sh - a policy is saved a thousand times, in every way that editors use, while four threads
# allocate.
. tests/system/_lib.sh
need "$CC" sed tee cp mv ln mkfifo
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

live=$work/live.lua
text() { # text NAME - prints a policy of that name
  printf 'local s = loam.host { name = "small", align = 32 }\n'
  printf 'local l = loam.host { name = "large", huge = "thp" }\n'
  printf 'return loam.policy {\n  name = "%s",\n  pick = function(req)\n' "$1"
  printf '    if req.size >= 100000 then return l:or_else(s) end\n    return s\n  end,\n}\n'
}

build busy.c
text one > "$live"
mkfifo "$work/in"
(exec "$LOAM" run --watch --policy "$live" -- "$program") \
  < "$work/in" > "$work/out" 2> "$work/err" &
pid=$!
children=$pid
exec 3> "$work/in"

status() { answer_of "$pid"; }

# shows WHAT TEXT - waits until the status of the host contains the text.
shows() {
  for _ in $(seq 600); do
    case $(status) in *"$2"*) echo "ok: $1"; return ;; esac
    sleep 0.1
  done
  fail "$1: no $2 in: $(status)"
}
live() { shows "$1" "\"name\":\"$2\""; }

for _ in $(seq 600); do [ -s "$work/out" ] && break; sleep 0.1; done
live "at start" one

text two > "$live";                                  live "written in place" two
text three | tee "$live" > "$work/tee";              live "tee" three
sed -i s/three/four/ "$live";                        live "sed -i" four
text five > "$work/new"; cp "$work/new" "$live";     live "cp" five
text six > "$work/new"; mv "$work/new" "$live";      live "mv" six
text seven > "$work/new"
cp --remove-destination "$work/new" "$live";         live "removed and copied" seven
text eight > "$work/new"
dd if="$work/new" of="$live" bs=16 2> "$work/dd";    live "in many small writes" eight
if command -v vim > "$work/which"; then
  vim -u NONE -es -c '%s/eight/vimmed/' -c wq "$live" < /dev/null
  live "vim" vimmed
  vim -u NONE -es -c 'set backup backupcopy=no' -c '%s/vimmed/renamed/' -c wq "$live" < /dev/null
  live "vim, renaming" renamed
fi
text linked > "$work/target"
ln -sfn "$work/target" "$live";                      live "a link put in its place" linked
text behind > "$work/target";                        live "an edit behind the link" behind
mkdir -p "$work/..1" "$work/..2"
text first > "$work/..1/policy.lua"
text second > "$work/..2/policy.lua"
ln -sfn ..1 "$work/..data"
ln -sfn ..data/policy.lua "$live";                   live "a mounted ConfigMap" first
ln -sfn ..2 "$work/..tmp"; mv -T "$work/..tmp" "$work/..data"
live "its swap" second

rm "$live";                                          shows "deleted" "No such file"
mkdir "$live";                                       shows "a folder" "is a directory"
rmdir "$live"; mkfifo "$live";                       shows "a FIFO" "not a regular file"
rm "$live"; ln -s live.lua "$live";                  shows "a link to itself" "symbolic links"
rm "$live"; ln -s /dev/zero "$live";                 shows "a device" "not a regular file"
rm "$live"; : > "$live";                             shows "an empty file" "is empty"
cp "$(command -v sed)" "$live";                      shows "a program" "not text"
text cut | head -c -1 > "$live";                     shows "cut off by a byte" "no newline"
status | grep -q '"name":"second"' || fail "the last good policy is not live: $(status)"
if [ "$(id -u)" != 0 ]; then
  text hidden > "$live"; chmod 0 "$live";            shows "unreadable" "Permission denied"
  chmod 600 "$live"
fi
text mended > "$live";                               live "mended" mended

# loam does not follow a file or folder that other users can write; the last good policy stays.
kept() { # kept NAME - fails unless that policy is live a second after an edit that loam ignores
  sleep 1
  status | grep -q "\"name\":\"$1\"" || fail "$1 is not live: $(status)"
}
chmod 646 "$live";                                   shows "a file that others can write" "mode 0646"
text strange > "$live";                              kept mended
chmod 644 "$live";                                   live "its mode set right" strange
chmod 777 "$work";                                   shows "a folder that others can write" "mode 0777"
text stranger > "$live";                             kept strange
chmod 1777 "$work";                                  live "a folder with the sticky bit" stranger
chmod 700 "$work"

# save I - makes the I-th save, in one of several ways. Every fifth policy is wrong, and every
# seventh is incomplete.
save() {
  case $1 in
    *[05]) echo 'return loam.policy { pick = 1 }' > "$live" ;;
    *[17]) text "edit $1" > "$live" ;;
    *[39]) text "edit $1" > "$work/new"; mv "$work/new" "$live" ;;
    *8) text "edit $1" | head -c 100 > "$live" ;;
    *) text "edit $1" > "$work/new"; ln -sfn "$work/new" "$work/..3"; mv -T "$work/..3" "$live" ;;
  esac
}
for i in $(seq 1000); do
  save "$i"
  [ $((i % 50)) = 1 ] && "$LOAM" reload "$pid" > "$work/reload" 2>&1
done
rm "$live"
text last > "$live"
live "a thousand edits" last

exec 3>&-
wait "$pid" || fail "it ended with $?: $(cat "$work/out" "$work/err")"
children=
grep -q ' 0 failed, 0 spoilt' "$work/out" || fail "it said: $(cat "$work/out")"
# loam reports a refused edit in one line, and reports nothing else.
grep -v '^loam: policy refused, the last good one stays: ' "$work/err" && fail "it was told things: $(cat "$work/err")"
echo "ok: $(tail -n 1 "$work/out")"
