# image.sh - an image of `loam compile` works in every place where a policy works.
. tests/system/_lib.sh
need python3 grep fold tac
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

image=$work/policy.image
"$LOAM" compile "$policy" -o "$image" > "$work/out" || fail "loam compile: exit status $?"
grep -q 'policy.image: .* KiB, 1 plan' "$work/out" || fail "loam compile says: $(cat "$work/out")"
echo "ok: loam compile writes an image"

# LuaJIT's order of the strings in a table differs from process to process.
for i in 1 2 3 4 5 6; do
  "$LOAM" compile policies/multi-tenant.lua -o "$work/$i.image" > "$work/out" || fail "multi-tenant.lua: $?"
  cmp "$work/1.image" "$work/$i.image" || fail "two images of one text differ"
done
echo "ok: each process makes one image of a text"

# live WHAT COMMAND... - fails unless the program runs and an event says that the image is live.
live() {
  local what=$1
  shift
  LOAM_EVENTS=stderr "$@" > "$work/out" 2> "$work/err" || fail "$what: exit status $?: $(cat "$work/err")"
  [ "$(cat "$work/out")" = served ] || fail "$what: it said $(cat "$work/out")"
  grep -q 'is live as generation 1' "$work/err" || fail "$what: no event: $(cat "$work/err")"
}

# was_recompiled - succeeds if an event says that the policy was compiled again.
was_recompiled() { grep -q 'compiled again: policy image: it has format' "$work/err"; }

live "preloaded" env LD_PRELOAD="$LOAM_PRELOAD" LOAM_POLICY="$image" /bin/echo served
was_recompiled && fail "the image was compiled again: $(cat "$work/err")"
live "loam run" "$LOAM" run --policy "$image" -- /bin/echo served
was_recompiled && fail "the image was compiled again: $(cat "$work/err")"
echo "ok: a program is served under an image"

# The image decides like the text of the policy.
for question in "check" "explain --tag a --size 1500" "test"; do
  set -- $question
  verb=$1
  shift
  "$LOAM" "$verb" "$policy" "$@" | sed "s|$policy|FILE|g" > "$work/of_text"
  "$LOAM" "$verb" "$image" "$@" | sed "s|$image|FILE|g" > "$work/of_image"
  cmp -s "$work/of_text" "$work/of_image" ||
    fail "loam $verb: $(diff "$work/of_text" "$work/of_image" | head -n 5)"
done
echo "ok: check, explain and test answer for an image as for its text"

# change OFFSET SEAL - copies the image and changes the byte at OFFSET. If SEAL is given, also makes
# the checksum right.
change() {
  python3 - "$image" "$work/changed.image" "$1" "$2" << 'PY'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[int(sys.argv[3])] ^= 1
if sys.argv[4] == "seal":
    value, rest = 0xCBF29CE484222325, data[:16] + data[24:]
    for at in range(0, len(rest), 8): # lm_hash_words in core/os/hash.h
        value = (value ^ int.from_bytes(rest[at:at + 8], "little")) * 0x100000001B3 % 2**64
        value ^= value >> 32
    data[16:24] = value.to_bytes(8, "little")
open(sys.argv[2], "wb").write(data)
PY
}

change 52 seal # the version
live "another version" env LD_PRELOAD="$LOAM_PRELOAD" LOAM_POLICY="$work/changed.image" /bin/echo served
was_recompiled || fail "another version: no words: $(cat "$work/err")"
live "another version, by loam run" "$LOAM" run --policy "$work/changed.image" -- /bin/echo served
echo "ok: an image of another version is compiled again"

# The reports are about the text, and a program decides by the rest of the image.
change 736 seal # the limit of the first strategy
"$LOAM" run --policy "$work/changed.image" -- /bin/echo served > "$work/out" || fail "another limit: $?"
for words in "check $work/changed.image" "explain $work/changed.image --tag a --size 9" \
  "diff $policy $work/changed.image" "test $work/changed.image"; do
  # shellcheck disable=SC2086 # several words
  "$LOAM" $words > "$work/out" 2> "$work/err" && fail "loam $words accepts it: $(cat "$work/out")"
  grep -qF 'it is not the image of the text in it' "$work/err" "$work/out" || fail "loam $words: no words: $(cat "$work/err")"
done
echo "ok: no report is made on an image that decides otherwise than its text"

# hash_of FILE - prints the hash of a policy's text, as 8 bytes of an image in hexadecimal digits.
hash_of() { "$LOAM" wait --policy "$1" --timeout 0 --json | grep -o '"hash":"[0-9a-f]*' | cut -d'"' -f4 | fold -w 2 | tac | tr -d '\n'; }

# The text in the image gets an error for one tag. So no image can be made of it, and a report on
# another tag must not be made of it either.
printf '%s\n' 'local s, t, u = loam.host { name = "s" }, loam.host { name = "t" }, 7' \
  'return loam.policy { pick = function(req) if req.tag == "x" then return t end return s end }' > "$work/two.lua"
sed 's/return t end/return u end/' "$work/two.lua" > "$work/error.lua"
"$LOAM" compile "$work/two.lua" -o "$work/two.image" > "$work/out" || fail "two.lua: $?"
python3 -c 'import sys; path, old, new = sys.argv[1:]; data = open(path, "rb").read()
open(path, "wb").write(data.replace(bytes.fromhex(old), bytes.fromhex(new)))' \
  "$work/two.image" "$(hash_of "$work/two.lua")" "$(hash_of "$work/error.lua")"
at=$(grep -abo 'return t end' "$work/two.image") || fail "two.image has no text"
image=$work/two.image change $((${at%%:*} + 7)) seal # t becomes u
"$LOAM" run --policy "$work/changed.image" -- /bin/echo served > "$work/out" || fail "another text: $?"
for words in "explain $work/changed.image --tag a --size 9" "plan $work/changed.image --tag a" \
  "check $work/changed.image"; do
  # shellcheck disable=SC2086 # several words
  "$LOAM" $words > "$work/out" 2> "$work/err" && fail "loam $words accepts it: $(cat "$work/out")"
  grep -qF 'changed.image:2: ' "$work/err" "$work/out" || fail "loam $words: no words: $(cat "$work/err")"
done
echo "ok: no report is made on an image whose text has an error"

change 200 leave
"$LOAM" run --policy "$work/changed.image" -- touch "$work/started" 2> "$work/err"
status=$?
[ "$status" = 2 ] || fail "damaged: loam run exits with $status, not 2: $(cat "$work/err")"
[ ! -e "$work/started" ] || fail "damaged: the program was started"
grep -q 'changed.image: .*checksum' "$work/err" || fail "damaged: no words: $(cat "$work/err")"
started "$LOAM" run --policy "$policy" -- bash -c 'echo ready; exec sleep 600'
"$LOAM" reload "$pid" "$work/changed.image" > "$work/err" 2>&1 && fail "damaged: it is live"
grep -q "$work/changed.image: policy image: its checksum" "$work/err" || fail "reload: no words: $(cat "$work/err")"
killed
echo "ok: a damaged image is refused"

# If a policy is refused, the old image stays.
echo 'return loam.policy { pick = function(req) return nosuch end }' > "$work/broken.lua"
cp "$image" "$work/before"
"$LOAM" compile "$work/broken.lua" -o "$image" 2> "$work/err" && fail "a broken policy is compiled"
grep -q 'broken.lua:1: .*nosuch' "$work/err" || fail "broken: no words: $(cat "$work/err")"
cmp -s "$image" "$work/before" || fail "a broken policy changed the image"
echo "ok: a refused policy leaves the old image"

# A limit on the size of files is reported like any other error.
{ policy_text 64 && seq -f '-- line %.0f' 200; } > "$work/long.lua"
(ulimit -f 1 && exec "$LOAM" compile "$work/long.lua" -o "$work/long.image") 2> "$work/err"
status=$?
[ "$status" = 1 ] || fail "ulimit -f: loam compile exits with $status, not 1: $(cat "$work/err")"
grep -q 'long.image: File too large' "$work/err" || fail "ulimit -f: no words: $(cat "$work/err")"
for left in "$work"/long.image*; do [ ! -e "$left" ] || fail "ulimit -f: it leaves $left"; done
echo "ok: a limit for the size of files is told"

# A load may take 200 ms for a step. Where a condition asks about the tag and the size, the questions
# behind a true and a false answer are as many.
{ echo 'local a, b = loam.host { name = "a" }, loam.host { name = "b", align = 64 }'
  echo 'return loam.policy { pick = function(req)'
  for i in {1..200}; do
    echo "  if req.tag:under 't$i.a' and req.size > $((16 * i)) then return a end"
  done
  echo '  return b'
  echo 'end }'; } > "$work/rules.lua"
"$LOAM" compile "$work/rules.lua" -o "$work/rules.image" > "$work/out" 2> "$work/err" ||
  fail "200 rules: $(cat "$work/err")"
grep -q ', 201 plans' "$work/out" || fail "200 rules: $(cat "$work/out")"
echo "ok: an image of 200 rules about tags and sizes"
