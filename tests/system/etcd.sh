# etcd.sh - examples/fleet/etcd/follow with a real etcd: a program obeys the value that is put under
# a key, and a refused value does not reach the file.

. tests/system/_lib.sh
need "$CC" etcd etcdctl
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

client=http://127.0.0.1:$(free_port) peer=http://127.0.0.1:$(free_port)
etcd --data-dir "$work/etcd" --listen-client-urls "$client" --advertise-client-urls "$client" \
  --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
  --initial-cluster "default=$peer" > "$work/log" 2>&1 &
children="$children $!"
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=$client
await "etcd does not start" etcdctl endpoint health

live=$work/prod.lua
etcdctl put prod "$(policy_text 64)" > "$work/put"
PATH=$(dirname "$LOAM"):$PATH examples/fleet/etcd/follow prod "$live" > "$work/followed" 2>&1 &
children="$children $!"
await "the file does not come" test -s "$live"

build aligned.c
"$LOAM" run --watch --policy "$live" -- "$program" 64 2048 4096 > "$work/out" 2>> "$work/err" &
children="$children $!"
await "it does not obey 64" grep -qx 'obeys 64' "$work/out"
etcdctl put prod "$(policy_text 2048)" > "$work/put"
await "it does not obey 2048" grep -qx 'obeys 2048' "$work/out"
echo "ok: a program obeys what is put"

etcdctl put prod 'return loam.polcy {}' > "$work/put"
await "nothing is refused" grep -qF "loam has no 'polcy'" "$work/followed"
grep -qF 's2048' "$live" || fail "a bad value reached the file"
etcdctl put prod "$(policy_text 4096)" > "$work/put"
await "it does not obey 4096" grep -qx 'obeys 4096' "$work/out"
[ ! -s "$work/err" ] || fail "the program was told of the bad value: $(cat "$work/err")"
echo "ok: a bad value does not reach the file, and the next one does"
