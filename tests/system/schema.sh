# schema.sh - the JSON of every command has the form that its schema describes, in success and in
# failure. A schema allows no additional member, no other type and no missing member.
. tests/system/_lib.sh
need python3
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
python3 -c 'import jsonschema' 2> "$work/why" || skip "python3-jsonschema is not installed"

sed -i 's/limit = 32 \* MiB/&, shared = "large"/' "$policy"
cat > "$work/all.lua" <<'LUA'
local plain = loam.host { name = "plain", align = 64, huge = false, zero = true, limit = 2 ^ 40,
                          shared = "all" }
local none = loam.deny()
local kinds = {
  loam.host { name = "here", numa = "local", prefault = true, lock = true, guard = true },
  loam.host { name = "spread", numa = "interleave", huge = "thp", guard = 50 },
  loam.host { name = "first", numa = 0 }, loam.host { name = "list", numa = { 0 } },
  loam.host { name = "likes", numa = { prefer = 0 } },
  loam.host { name = "weighs", numa = { weights = { [0] = 3 } } },
  loam.shared { name = "lent" }, loam.file { name = "disk", dir = "/var/tmp" },
  loam.device { name = "gpu", id = 0, pool = "chunks" }, loam.device { name = "now", id = "current" },
  loam.managed { name = "both", prefer = 0 }, loam.system { name = "libc" },
  loam.pinned { name = "pin", mapped = true, portable = true, write_combined = true },
}
return loam.policy {
  name = "all",
  pick = function(req)
    for i, kind in ipairs(kinds) do
      if req.tag:is("k" .. i) then return kind:or_else(plain) end
    end
    if req.tag:is("no") then return none end
    return plain
  end,
  tests = { { tag = "k1", size = 100, expect = kinds[1] } },
  always = { ["it is aligned"] = function(req, got) return got.kind ~= "host" or true end },
}
LUA
cat > "$work/fails.lua" <<'LUA'
local a, b = loam.host { name = "a" }, loam.host { name = "b" }
return loam.policy {
  pick = function(req) if req.size > 100 then return a end return b end,
  tests = { { tag = "x", size = 100, expect = a } },
  always = { ["never b"] = function(_, got) return got.name ~= "b" end },
}
LUA
cat > "$work/broken.lua" <<'LUA'
local a = loam.host { name = "a" }
return loam.policy {
  pick = function(req)
    if req.size > 4096 and req.szie > 1 then return a end
    return a
  end,
}
LUA
sed 's/align = 64/align = 128/; s/"rest"/"other"/; s/"system",/"system", apply = "live",/' \
  "$policy" > "$work/next.lua"
echo 'while true do end' > "$work/endless.lua"
printf 'x\t100\nx\t5000\t64\t1\n' > "$work/batch"
printf 'x\nx\ty\n' > "$work/bad_batch"
printf 'x\t5000\n' > "$work/broken_batch"

# gives KIND STATUS VERB WORD... - fails unless the verb ends with this status. Each line that it
# writes must have the form KIND of the schema of VERB. Keeps the lines for the validator.
gives() {
  local kind=$1 wanted=$2 verb=$3 got=0
  shift 2
  "$LOAM" "$@" --json > "$work/out" 2> "$work/err" || got=$?
  [ "$got" = "$wanted" ] || fail "loam $*: status $got, not $wanted: $(cat "$work/out" "$work/err")"
  [ -s "$work/out" ] || fail "loam $*: no output: $(cat "$work/err")"
  sed "s/^/$verb\t$kind\t/" "$work/out" >> "$work/answers"
}

for each in all fails; do
  status=0
  [ "$each" = all ] || status=1
  gives answer $status check "$work/$each.lua" --tag x
  gives answer $status test "$work/$each.lua"
done
gives answer 0 plan "$work/all.lua" --tag no
for i in $(seq 13); do gives answer 0 explain "$work/all.lua" --tag "k$i" --size 64; done
gives answer 0 explain "$work/all.lua" --batch "$work/batch"
gives line 1 explain "$work/all.lua" --batch "$work/bad_batch"
gives refused 1 explain "$work/broken.lua" --batch "$work/broken_batch"
gives failure 1 explain "$work/all.lua" --batch "$work"
for each in broken absent endless; do
  gives refused 1 check "$work/$each.lua"
  gives refused 1 test "$work/$each.lua"
  gives refused 1 plan "$work/$each.lua" --tag x
  gives refused 1 explain "$work/$each.lua" --tag x --size 5000
done
gives answer 0 diff "$work/all.lua" "$work/all.lua"
gives answer 1 diff "$work/all.lua" "$policy"
gives answer 1 diff "$policy" "$work/next.lua"
gives refused 2 diff "$work/all.lua" "$work/absent.lua"
gives answer 0 doctor
echo "ok: commands about policies and the machine have answered"

# A program has memory on huge pages and memory under a limit, and the limit refuses some requests.
(LOAM_SERVICE=1 exec_under_policy python3 -c '
import sys, time
keep = [bytearray(8 << 20), bytearray(48 << 20)]
open(sys.argv[1], "w").close()
time.sleep(600)' "$work/ready") > "$work/said" 2> "$work/err" &
pid=$!
children=$pid
for _ in $(seq 600); do [ -e "$work/ready" ] && break; sleep 0.1; done
[ -e "$work/ready" ] || fail "the program does not start: $(cat "$work/err")"
answer_of "$pid" > "$work/status"
gives answer 0 status "$pid"
grep -q '"shared":"large","shared_used_bytes":' "$work/out" || fail "no shared limit: $(cat "$work/out")"
gives answer 0 stats "$pid"
grep -q '"limit_shared":"large","limit_own":' "$work/out" || fail "no shared limit: $(cat "$work/out")"
gives answer 0 pages "$pid"
for by in tag strategy node process service; do
  gives answer 0 top --by "$by" --every 100ms --count 1
done
gives answer 0 top "$pid" --by process --every 100ms --count 2
gives answer 1 diff "$policy" "$work/next.lua" --pid "$pid"
gives answer 0 diff "$policy" --pid "$pid"
gives failure 2 diff "$policy" --pid 999999999
gives answer 1 owner "$pid" 0 7fffffffffff
gives answer 0 ps --all
gives answer 0 reload "$pid"
gives answer 0 wait --policy "$policy" "$pid"
gives answer 1 reload "$pid" "$work/broken.lua"
gives answer 1 wait --policy "$work/broken.lua" "$pid"
gives answer 3 wait --hash 00000000deadbeef --timeout 0 "$pid"
gives answer 0 status "$pid"
grep -q '"refused_hash":' "$work/out" || fail "no hash of the refused text: $(cat "$work/out")"
gives answer 0 rebalance "$pid"
gives cut_short 1 rebalance "$pid" --tag nosuch
gives answer 0 demote "$pid" --to cold --tag malloc
gives cut_short 1 demote "$pid" --to cold --tag nosuch
gives failure 1 demote "$pid" --to node=999 --tag malloc
gives answer 0 wake "$pid"
kill -KILL "$pid"
wait "$pid" 2> "$work/why"
children=
gives answer 0 status "$pid"
gives last_words 0 stats "$pid"

# A program without a service follows the board. `loam wait` does not wait for a program that
# requests no memory.
(exec "$LOAM" run --policy "$policy" -- sleep 600) > "$work/said" 2> "$work/err" &
pid=$!
children=$pid
for _ in $(seq 600); do "$LOAM" status "$pid" > "$work/status" 2>&1 && break; sleep 0.1; done
gives answer 0 status "$pid"
grep -q '"board":' "$work/out" || fail "it follows no board: $(cat "$work/out")"
gives answer 0 reload "$pid"
grep -q '"waits":true' "$work/out" || fail "sleep asks for memory: $(cat "$work/out")"
gives answer 1 reload "$pid" "$work/broken.lua"
kill "$pid"
wait "$pid" 2> "$work/why"
children=

# A program with memory of a device, which the stand-in for CUDA's driver gives.
cat > "$work/device.c" <<'C'
#include <loam.h>
#include <unistd.h>

int main(void) {
  void *p = loam_device_alloc(loam_site_get("schema.device"), 1 << 20, NULL);
  return p && write(1, "ready\n", 6) == 6 ? pause() : 1;
}
C
"$CC" -Icore/include "$work/device.c" -o "$work/device" -L"$LOAM_BUILD" -lloam -Wl,-rpath,"$LOAM_BUILD"
LOAM_CUDA_DRIVER=$LOAM_STANDIN STANDIN_LOG=/dev/null "$work/device" > "$work/said" 2> "$work/err" &
pid=$!
children=$pid
for _ in $(seq 600); do grep -q ready "$work/said" && break; sleep 0.1; done
gives answer 0 stats "$pid"
grep -q '"devices":\[{"device":0,"reserved_bytes":' "$work/out" || fail "no device: $(cat "$work/out" "$work/err")"
kill "$pid"
wait "$pid" 2> "$work/why"
children=

gives failure 1 owner 1 7f00
gives failure 1 top 1
for verb in status stats pages reload rebalance "demote --tag x" "sleep --tag x" wake; do
  # $verb is the verb and its options.
  # shellcheck disable=SC2086
  gives failure 1 $verb 1
done
echo "ok: commands about programs have answered"

for verb in $("$LOAM" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
  "$LOAM" help "$verb" | grep -q -e '^  --json' || continue
  echo "$verb" >> "$work/verbs"
  "$LOAM" schema "$verb" > "$work/schema" || fail "loam schema $verb"
  cmp -s "$work/schema" "lua/loam/command/schema/$verb.json" || fail "loam schema $verb: another text"
  "$LOAM" "$verb" --help | grep -q "share/loam/schema/$verb.json" || fail "$verb --help: no schema"
done
"$LOAM" schema run > "$work/out" 2>&1 && fail "run has a schema: $(cat "$work/out")"
python3 tests/system/_schema.py lua/loam/command/schema "$work/verbs" "$work/answers" || fail "see above"
