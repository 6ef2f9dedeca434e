# etcd.sh - examples/fleet/etcd/follow with a real etcd: a program obeys what is put under a key, and a
# value that is refused does not reach the file.

. tests/system/_lib.sh
need "$CC" etcd etcdctl
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

text() { # text ALIGNMENT
  printf 'local s = loam.host { name = "s%s", align = %s }\n' "$1" "$1"
  printf 'return loam.policy { name = "p%s", pick = function(req) return s end }\n' "$1"
}
# eventually COMMAND... - waits until the command succeeds.
eventually() {
  for _ in $(seq 600); do
    "$@" > /dev/null 2>&1 && return
    sleep 0.1
  done
  fail "never: $*: $(tail -n 5 "$work"/*.log)"
}

# Free ports: the kernel chose them for sockets that are closed now.
ports=$(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(one.getsockname()[1] for one in sockets))')
client=http://127.0.0.1:${ports% *} peer=http://127.0.0.1:${ports#* }
etcd --data-dir "$work/etcd" --listen-client-urls "$client" --advertise-client-urls "$client" \
  --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
  --initial-cluster "default=$peer" > "$work/etcd.log" 2>&1 &
children="$children $!"
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=$client
eventually etcdctl endpoint health

live=$work/prod.lua
etcdctl put prod "$(text 64)" > "$work/put.log"
PATH=$(dirname "$LOAM"):$PATH examples/fleet/etcd/follow prod "$live" > "$work/follow.log" 2>&1 &
children="$children $!"
eventually test -s "$live"

build aligned.c
"$LOAM" run --watch --policy "$live" -- "$program" 64 2048 4096 > "$work/out.log" 2>> "$work/err.log" &
children="$children $!"
eventually grep -qx 'obeys 64' "$work/out.log"
etcdctl put prod "$(text 2048)" > "$work/put.log"
eventually grep -qx 'obeys 2048' "$work/out.log"
echo "ok: a program obeys what is put"

etcdctl put prod 'return loam.polcy {}' > "$work/put.log"
eventually grep -qF "loam has no 'polcy'" "$work/follow.log"
grep -qF 's2048' "$live" || fail "a bad value reached the file"
etcdctl put prod "$(text 4096)" > "$work/put.log"
eventually grep -qx 'obeys 4096' "$work/out.log"
[ ! -s "$work/err.log" ] || fail "the program was told of the bad value: $(cat "$work/err.log")"
echo "ok: a bad value does not reach the file, and the next one does"
