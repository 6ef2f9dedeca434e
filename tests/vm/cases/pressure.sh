# pressure.sh - tests memory pressure in a control group of version 2: memory.max, memory.high, and
# the stalls that the kernel counts.
. /t/cases/_lib.sh

group=/sys/fs/cgroup/pressure
mkdir "$group" || fail "no control group"
leave_group() {
  exec 3>&-
  echo max > "$group/memory.high"
  echo 1 > "$group/cgroup.kill"
  for attempt in $(seq 100); do
    rmdir "$group" 2> /dev/null && break
    sleep 0.1
  done
}
trap 'leave_group; rm -rf "$work"' EXIT
[ ! -e "$group/memory.swap.max" ] || echo 0 > "$group/memory.swap.max"
# within COMMAND... - runs the command in the group.
within() { sh -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$group" "$@"; }

policy "local s = loam.host {}
return loam.policy { pick = function() return s end }"
patiently "$LOAM" check "$policy" || fail "$(cat "$work/out")"

echo 48M > "$group/memory.max"
patiently within env LOAM_PRESSURE=0 "$LOAM" run --watch --policy "$policy" -- peaks 4 14 &&
  fail "without a reaction no worker is killed: the case shows nothing"
grep -q '^killed: [1-4]$' "$work/out" || fail "without a reaction: $(cat "$work/out")"
patiently within "$LOAM" run --policy "$policy" -- peaks 4 14 || fail "memory.max: $(cat "$work/out")"
ok "below memory.max every worker lives"

echo max > "$group/memory.max"
echo 48M > "$group/memory.high"
patiently within "$LOAM" run --policy "$policy" -- peaks 4 14 || fail "memory.high: $(cat "$work/out")"
ok "below memory.high too"

# A program that needs more than memory.high waits for memory. Another program in its group sees
# that.
policy "local plain = loam.host { name = 'plain' }
local aligned = loam.host { name = 'aligned', align = 4096 }
return loam.policy { pick = function(req)
  if loam.pressure() >= 5 then return aligned end
  return plain
end }"
patiently "$LOAM" check "$policy" || fail "$(cat "$work/out")"
[ -e "$group/memory.pressure" ] || skip "this kernel counts no stalls"
mkfifo "$work/in"
within "$LOAM" run --policy "$policy" -- gauge follow < "$work/in" > "$work/said" 2>&1 &
exec 3> "$work/in"
until grep -q plain "$work/said"; do sleep 0.1; done
echo 8M > "$group/memory.high"
within dd if=/dev/zero of=/dev/null bs=24M count=100000 2> /dev/null &
for attempt in $(seq 600); do
  ! grep -q aligned "$work/said" || break
  sleep 0.1
done
grep -q aligned "$work/said" ||
  fail "the policy does not see the stalls: $(cat "$work/said" "$group/memory.pressure")"
ok "a policy sees that the group waits for memory"
