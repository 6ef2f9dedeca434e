# different_machines.sh - the machines of a fleet differ: a policy that a machine cannot obey,
# images of another version and of another architecture, no LuaJIT, a folder that cannot be written,
# a read-only home, no compiler. Each case gives a clear message, and the earlier policy stays in
# force.
. tests/system/_lib.sh
need "$CC" python3
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
build aligned.c
live=$work/prod.lua
policy_text 64 > "$live"
image=$work/next.image
policy_text 128 > "$work/next.lua"
"$LOAM" compile "$work/next.lua" -o "$image" > "$work/out" || fail "loam compile"

# begins COMMAND... - starts the program under $live; COMMAND is a prefix that runs it.
begins() {
  : > "$work/out"
  "$@" "$LOAM" run --watch --policy "$live" -- "$program" 64 128 256 > "$work/out" 2> "$work/err" &
  pid=$!
  children="$children $pid"
  await "it does not start" grep -qx 'obeys 64' "$work/out"
}
# policy_is NAME - succeeds if the live policy of the program has this name.
policy_is() { "$LOAM" status "$pid" --json > "$work/status" && grep -F "\"name\":\"$1\"" "$work/status"; }
# refuses WORDS - fails unless the program refuses the file with these words and keeps its policy.
refuses() {
  has_refused() { "$LOAM" status "$pid" --json > "$work/status" && grep -F -- "$1" "$work/status"; }
  await "it does not refuse: $1" has_refused "$1"
  policy_is p64 > "$work/why" || fail "the policy before is gone: $(cat "$work/status")"
}

begins env
policy_text 128 | sed 's/align/numa = 63, align/' | save "$live"
refuses "machine: node 63: this machine has node"
"$LOAM" wait --policy "$live" --pid "$pid" > "$work/wait" 2>&1 && fail "it is obeyed"
grep -qF "refused it: $live:1: machine: node 63:" "$work/wait" || fail "wait: $(cat "$work/wait")"
"$LOAM" run --policy "$live" -- touch "$work/started" 2> "$work/why" && fail "it is started"
[ ! -e "$work/started" ] && grep -qF "$live:1: machine: node 63:" "$work/why" || fail "run: $(cat "$work/why")"
echo "ok: a policy for a machine with other NUMA nodes is refused, and the one before stays"

# changed OFFSET FORMAT VALUE - writes $work/changed.image: the image with another value at the
# offset and a right checksum. FORMAT is a format of Python's struct.
changed() {
  python3 - "$image" "$work/changed.image" "$@" << 'PY'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
offset, form, value = int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
struct.pack_into(form, data, offset, value)
total, rest = 0xCBF29CE484222325, data[:16] + data[24:]
for at in range(0, len(rest), 8): # lm_hash_words in core/os/hash.h
    total = (total ^ int.from_bytes(rest[at:at + 8], "little")) * 0x100000001B3 % 2**64
    total ^= total >> 32
data[16:24] = total.to_bytes(8, "little")
open(sys.argv[2], "wb").write(data)
PY
}
# The image has the format number at offset 48, the version of loam at 52, and the size of a page at
# 72.
read -r FORMAT page < <(python3 -c '
import struct, sys
data = open(sys.argv[1], "rb").read()
print(*struct.unpack_from("<I", data, 48), *struct.unpack_from("<I", data, 72))' "$image")
[ "$page" = "$(getconf PAGESIZE)" ] || fail "the page is elsewhere in the image: $page"
# compiled_again WHAT WORDS - fails unless a program starts under $work/changed.image, and an event
# says why the text is compiled again.
compiled_again() {
  LOAM_EVENTS=stderr LD_PRELOAD="$LOAM_PRELOAD" LOAM_POLICY="$work/changed.image" /bin/true 2> "$work/why" ||
    fail "$1: exit status $?: $(cat "$work/why")"
  grep -qF "compiled again: policy image: $2" "$work/why" || fail "$1: $(cat "$work/why")"
  grep -q 'is live as generation 1' "$work/why" || fail "$1: it is not live: $(cat "$work/why")"
  echo "ok: $1"
}
changed 52 '<I' 131075
compiled_again "an image of another version is compiled again" "it has format $FORMAT of loam 2.0.3, but this is format $FORMAT of"
changed 48 '<I' 99
compiled_again "an image of another format is compiled again" "it has format 99 of loam"
changed 72 '<I' "$((page * 16))"
compiled_again "an image for larger pages is compiled again" "it was compiled for pages of bytes $(printf "%#x, but this machine has %#x" $((page * 16)) "$page")"

# The size of the image is its second number. This is how a machine of the other byte order writes
# it.
changed 8 '>Q' "$(stat -c %s "$image")"
"$LOAM" run --policy "$work/changed.image" -- touch "$work/started" 2> "$work/why" && fail "it is started"
[ ! -e "$work/started" ] && grep -Eq "changed.image: .*policy image: it has [0-9]+ bytes, but its head says" "$work/why" ||
  fail "the other byte order: $(cat "$work/why")"
cp "$work/changed.image" "$work/again"
mv "$work/again" "$live"
refuses "bytes, but its head says"
echo "ok: an image of the other byte order is refused, and the policy before stays"

if [ "$(id -u)" = 0 ] && unshare --mount true 2> "$work/why"; then
  library=$(/sbin/ldconfig -p | sed -n 's/.*libluajit-5\.1\.so\.2 .*=> //p' | head -n 1)
else
  library=
fi
[ -n "$library" ] || skip "the rest needs root, mount namespaces and libluajit-5.1.so.2"
# shellcheck disable=SC2016
without_luajit=(unshare --mount sh -c 'mount --bind /dev/null "$0" && exec "$@"' "$(readlink -f "$library")")
policy_text 64 > "$work/text.lua"
"${without_luajit[@]}" env LD_PRELOAD="$LOAM_PRELOAD" LOAM_POLICY="$work/text.lua" \
  touch "$work/started" 2> "$work/why" && fail "a text is compiled without LuaJIT"
[ ! -e "$work/started" ] && grep -q "^loam: [^ ]*\[[0-9]*\]: the program is not started: policies need LuaJIT (Debian package" "$work/why" ||
  fail "without LuaJIT: $(cat "$work/why")"
LOAM_EVENTS=stderr "${without_luajit[@]}" env LD_PRELOAD="$LOAM_PRELOAD" LOAM_POLICY="$image" \
  /bin/true 2> "$work/why" || fail "an image needs LuaJIT: $(cat "$work/why")"
grep -qF "$image is live as generation 1" "$work/why" || fail "an image: $(cat "$work/why")"
policy_text 64 | save "$live"
begins "${without_luajit[@]}"
policy_text 128 | save "$live"
await "an edit is not obeyed" grep -qx 'obeys 128' "$work/out"
echo "ok: without LuaJIT images and loam run work, and a text is refused in words"

# A folder that not even root can write: the policy in it stays.
mkdir "$work/etc"
policy_text 64 > "$work/etc/prod.lua"
# shellcheck disable=SC2016
unshare --mount sh -c 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"' "$work/etc" \
  "$LOAM" compile "$work/next.lua" -o "$work/etc/prod.lua" 2> "$work/why" && fail "it is written"
grep -q "$work/etc/prod.lua.*: Read-only file system" "$work/why" || fail "read-only: $(cat "$work/why")"
policy_text 64 | cmp - "$work/etc/prod.lua" || fail "the policy has changed"
echo "ok: in a folder that cannot be written, loam compile says so, and the policy stays"

# No folder for a board can be written, neither the home nor another place. The programs run, each
# follows the file by itself, and they keep their policy when an edit is refused.
mkdir -m 755 "$work/home"
# shellcheck disable=SC2016
read_only=(unshare --mount sh -c 'mount -t tmpfs -o ro none "$0" && exec "$@"' "$work/home"
  env HOME="$work/home" XDG_RUNTIME_DIR="$work/home" LOAM_CONTROL_DIR="$work/home/control" LOAM_EVENTS=stderr)
policy_text 64 | save "$live"
begins "${read_only[@]}"
grep -q "^loam: .*$work/home/control: Read-only file system" "$work/err" || fail "read-only home: $(cat "$work/err")"
policy_text 128 | save "$live"
await "an edit is not obeyed with a read-only home" grep -qx 'obeys 128' "$work/out"
policy_text 64 | sed 's/align/allign/' | save "$live"
await "a wrong edit is not told" grep -qF "$live:1: option: loam.host has no option \"allign\"" "$work/err"
policy_text 256 | save "$live"
await "the edit after it is not obeyed" grep -qx 'obeys 256' "$work/out"
echo "ok: with a read-only home programs run, edits are obeyed, and a wrong one is told"

# There is no C compiler, and no other program that builds loam.
mkdir "$work/bin"
ln -s "$(type -P true)" "$work/bin"
PATH=$work/bin "$LOAM" check "$live" > "$work/out" 2>&1 || fail "no compiler: $(cat "$work/out")"
PATH=$work/bin "$LOAM" run --policy "$live" -- true 2> "$work/why" || fail "no compiler: $(cat "$work/why")"
[ ! -s "$work/why" ] || fail "no compiler: $(cat "$work/why")"
echo "ok: without a compiler, policies are checked and programs run"
