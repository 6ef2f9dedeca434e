# fleet.sh - 200 processes on one machine, in 20 trees. Half of the trees follow one file and half
# another, as on two machines. Edits reach all of them. A Prometheus with the rules of
# examples/fleet shows that the fleet is split while one half has the new policy, and whole again
# after that.
. tests/system/_lib.sh
. tests/system/_prometheus.sh
need "$CC"
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

TREES=20
TREE=10
ALL=$((TREES * TREE))

# Alerts name the program, so no other program of this machine may have its name.
build requests_forever.c
name=fleet$$
mv "$program" "$work/$name"
write() { # write FILE ALIGNMENT - edits a policy, and keeps its name
  policy_text "$2" | sed 's/name = "p[0-9]*"/name = "fleet"/' | save "$work/$1.lua"
}
write a 64
write b 64
mkdir "$work/up"
for i in $(seq "$TREES"); do
  half=$([ $((i % 2)) = 0 ] && echo a || echo b)
  (exec "$LOAM" run --watch --policy "$work/$half.lua" -- "$work/$name" "$TREE") > "$work/up/$i" 2>> "$work/err" &
  children="$children $!"
done
are_up() { [ "$(cat "$work"/up/* | grep -c up)" = "$TREES" ]; }
await "not all trees have started" are_up

# policies - prints a line for each policy in use: the number of its processes and its hash.
policies() {
  "$LOAM" ps --json | python3 -c '
import collections, json, sys
programs = [one for one in json.load(sys.stdin)["programs"] if one["program"] == sys.argv[1]]
for digest, count in sorted(collections.Counter(one["hash"] for one in programs).items()):
    print(count, digest)' "$name"
}
has_policies() { policies > "$work/policies" && diff - "$work/policies"; }
hash_of() { "$LOAM" check "$work/$1.lua" --json | sed -n 's/.*"hash":"\([0-9a-f]*\)".*/\1/p'; }
old=$(hash_of a)
all_have() { echo "$ALL $1" | has_policies; }
await "not all have the first policy" all_have "$old"

"$LOAM" metrics --listen 127.0.0.1:0 2> "$work/said" &
children="$children $!"
await "it does not serve" grep -q serving "$work/said"
url=$(sed -n 's/.*serving //p' "$work/said")
address=${url#http://}
quick_config << END
  - job_name: fleet
    static_configs: [{ targets: ["${address%/metrics}"] }]
END
start_prometheus
await "Prometheus does not see all" counts "$ALL" "loam_policy_info{program=\"$name\"}"
await "the fleet is not whole" counts 0 "$(firing LoamFleetSplit)"
echo "ok: Prometheus sees $ALL processes"

# began - starts a time measurement. took - prints the time since then.
began() { begin=$(date +%s%N); }
took() { echo "$((($(date +%s%N) - begin) / 1000000)) ms after the save"; }

began
write a 128
new=$(hash_of a)
split() { printf '%s\n' "$((ALL / 2)) $old" "$((ALL / 2)) $new" | sort -k 2 | has_policies; }
await "not half of them obey" split
echo "ok: half of the fleet obeys an edit, $(took)"
await "LoamFleetSplit does not fire" counts 1 "$(firing LoamFleetSplit)"
versions="count by (hash) (loam_policy_info{program=\"$name\",name=\"fleet\"})"
await "Prometheus does not show two halves" counts 2 "$versions == $((ALL / 2))"
echo "ok: Prometheus shows that the fleet is split"

began
write b 128
await "not all obey" all_have "$new"
echo "ok: the other half obeys, $(took)"
await "LoamFleetSplit does not clear" counts 0 "$(firing LoamFleetSplit)"
await "Prometheus does not show one policy" counts 1 "$versions == $ALL"
echo "ok: Prometheus shows that the fleet is whole"

began
write a 256
write b 256
await "not all obey" all_have "$(hash_of b)"
echo "ok: $ALL processes obey an edit, $(took)"
await "Prometheus does not show the edit" counts 1 "$versions == $ALL"
[ ! -s "$work/err" ] || fail "they were told things: $(cat "$work/err")"
