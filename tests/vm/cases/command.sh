# command.sh - tests the loam command on this machine: with the policies of policies/, with a node
# that does not exist, and without /sys.
. /t/cases/_lib.sh

for file in /t/policies/*.lua; do
  patiently "$LOAM" test "$file" || fail "loam test $file: $(cat "$work/out")"
done
ok "the policies that come with loam"

policy "local far = loam.host { name = 'far', numa = 7 }
return loam.policy { name = 'p', pick = function() return far end }"
patiently "$LOAM" check "$policy" && fail "a policy names node 7"
grep -q 'node 7' "$work/out" || fail "of node 7 it says: $(cat "$work/out")"
ok "a node that is not there"

policy "local MiB = loam.MiB
local near = loam.host { name = 'near', numa = 'local' }
local spread = loam.host { name = 'spread', numa = 'interleave', huge = 'thp' }
return loam.policy { name = 'p', pick = function(req)
  if req.size >= 1 * MiB then return spread end
  return near
end }"
patiently "$LOAM" run --policy "$policy" -- sh -c 'echo served' || fail "$(cat "$work/out")"
grep -qx served "$work/out" || fail "it said: $(cat "$work/out")"
ok "a program under it"

patiently unshare -m sh -c \
  "mount -t tmpfs none /sys; exec '$LOAM' run --policy '$policy' -- sh -c 'echo served'"
grep -qx served "$work/out" || fail "without /sys: $(cat "$work/out")"
patiently unshare -m sh -c "mount -t tmpfs none /sys; exec '$LOAM' doctor" ||
  fail "doctor without /sys: $(cat "$work/out")"
ok "no /sys"
