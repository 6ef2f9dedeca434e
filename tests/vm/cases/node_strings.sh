# node_strings.sh - tests policies that name nodes as numactl does: on the machine with four nodes,
# in a cpuset of two of them, and without libnuma.
. /t/cases/_lib.sh
nodes 4

# shown NUMA COMMAND... - prints the nodes of a strategy with this option, as `COMMAND check` shows
# them, or the error of that command.
shown() {
  local numa=$1
  shift
  policy "local s = loam.host { name = 's', numa = $numa }
return loam.policy { name = 'p', pick = function() return s end }"
  patiently "$@" check "$policy" || true
  sed -n 's/^s .*host: numa //p; s/^.*policy.lua:1: //p' "$work/out"
}
# says NUMA WORDS COMMAND... - fails unless `shown NUMA COMMAND...` prints WORDS.
says() {
  local numa=$1 words=$2 got
  shift 2
  got=$(shown "$numa" "$@")
  [ "$got" = "$words" ] || fail "numa = $numa: \"$got\", and not \"$words\": $(cat "$work/out")"
}

says "'0-3'" 0,1,2,3 "$LOAM"
says "'0,2-3'" 0,2,3 "$LOAM"
says "'!1'" 0,2,3 "$LOAM"
says "'!0-2'" 3 "$LOAM"
says "'+2'" 2 "$LOAM"
says "'all'" 0,1,2,3 "$LOAM"
says "{ prefer = '+1' }" "{prefer=1}" "$LOAM"
says "'0-4'" 'machine: numa = "0-4": node 4: it has no memory; this machine has nodes 0-3' "$LOAM"
says "'!all'" 'machine: numa = "!all": it names none of the nodes that this process may use: 0-3' "$LOAM"
ok "the nodes of strings"

set=/sys/fs/cgroup/strings
mkdir "$set"
echo 0-3 > "$set/cpuset.cpus"
echo 1-2 > "$set/cpuset.mems"
printf '#!/bin/sh\necho $$ > %s/cgroup.procs\nexec %s "$@"\n' "$set" "$LOAM" > "$work/confined"
chmod 755 "$work/confined"
says "'+0'" 1 "$work/confined"
says "'+1'" 2 "$work/confined"
says "'all'" 1,2 "$work/confined"
says "'!1'" 2 "$work/confined"
says "'+2'" 'machine: numa = "+2": +2: this process may use nodes 1-2, which are +0 to +1' "$work/confined"
says "'0-3'" 'machine: numa = "0-3": node 0: this process may use nodes 1-2' "$work/confined"
rmdir "$set"
ok "a cpuset of two nodes"

library=$(find / -xdev -name libnuma.so.1)
: > "$work/empty"
printf '#!/bin/sh\nmount -o bind %s/empty %s && exec %s "$@"\n' "$work" "$library" "$LOAM" > "$work/lacking"
chmod 755 "$work/lacking"
case $(shown "'0-1'" unshare -m "$work/lacking") in
  'machine: numa = "0-1": a string of nodes needs libnuma (Debian package libnuma1): '*) ;;
  *) fail "without libnuma it says: $(cat "$work/out")" ;;
esac
says "{ 0, 1 }" 0,1 unshare -m "$work/lacking"
ok "no libnuma"
