# extreme.sh - policies that request a scarce resource for every allocation. The program must still
# run.
. tests/system/_lib.sh
need "$CC" perl

# every STRATEGY - writes a policy that gives all memory to the strategy, or to plain memory if the
# strategy cannot serve.
every() {
  policy=$work/every.lua
  printf 'local most, rest = loam.%s, loam.host {}\n' "$1" > "$policy"
  printf 'return loam.policy { pick = function(req) return most:or_else(rest) end }\n' >> "$policy"
}
cat > "$work/script.pl" <<'SCRIPT'
my %h; $h{$_ % 7919} .= $_ for 1 .. 300_000;
my $n = 0; $n += length for values %h; print "$n\n";
SCRIPT
build shallow.c
shallow=$program
build many.c
for strategy in 'host { guard = true }' 'host { guard = 4 }' 'host { huge = "2MiB" }' \
  'host { huge = "1GiB" }' 'host { lock = true }' 'host { limit = 100000 }' 'host { align = 65536 }' \
  'host { prefault = true, zero = true }' 'host { numa = "interleave" }' 'host { numa = 0 }' \
  'host { shared = "extreme", limit = 1000000 }' 'shared {}' "file { dir = \"$work\" }" 'system {}' \
  'device {}'; do
  every "$strategy"
  compare_runs "$strategy: many blocks" "$program"
  compare_runs "$strategy: perl" perl "$work/script.pl"
  compare_runs "$strategy: threads with small stacks" "$shallow"
done

# Each kind of event comes up on a thread with a small stack: a full member of a chain, a request
# that fails, last words, a soft limit, samples.
policy=$work/full.lua
cat > "$policy" <<'LUA'
local first = loam.host { name = "first", limit = 100000, soft = 50000 }
local last = loam.host { name = "last", limit = 1000000, soft = 70000, guard = 3 }
return loam.policy { pick = function() return first:or_else(last) end }
LUA
for setting in LOAM_EVENTS=stderr LOAM_LAST_WORDS="$work/words" LOAM_PROFILE=64KiB; do
  env "$setting" LD_PRELOAD="$LOAM_PRELOAD" LOAM_POLICY="$policy" "$shallow" > "$work/out" 2> "$work/err" ||
    fail "threads with small stacks, $setting: status $?: $(cat "$work/err")"
  grep -q "as it must be" "$work/out" || fail "threads with small stacks, $setting: $(cat "$work/out")"
  grep -q "last words: " "$work/err" || fail "threads with small stacks, $setting: no event: $(cat "$work/err")"
done
[ -s "$work/words" ] || fail "threads with small stacks: no last words in the file"
echo "ok: threads with small stacks, and each kind of event"
