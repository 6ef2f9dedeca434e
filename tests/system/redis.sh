# redis.sh - redis-server under redis-benchmark. The server has its own allocator, and threads.
. tests/system/_lib.sh
need redis-server redis-benchmark redis-cli

socket=$work/redis.sock
ask() { redis-cli -s "$socket" "$@"; }

start() {
  rm -f "$work/dump.rdb"
  ("$1" redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --dir "$work") \
    > "$work/log" 2>&1 &
  server=$!
  children=$server
  for _ in $(seq 600); do
    [ "$(ask ping 2>/dev/null)" = PONG ] && return
    sleep 0.1
  done
  cat "$work/log"
  fail "redis-server does not answer"
}

end() {
  ask shutdown nosave 2>/dev/null
  wait "$server"
  status=$?
  children=
  [ "$status" = 0 ] || { cat "$work/log"; fail "redis-server ended with $status"; }
}

# The commands alone decide the data set. The test compares the final contents.
load() {
  redis-benchmark -s "$socket" -q -n 20000 -c 20 -P 8 -d 100 -t set,get,incr,lpush,rpop,sadd,hset,zadd \
    > "$work/benchmark" || fail "redis-benchmark: $(cat "$work/benchmark")"
  ask eval 'for i = 1, 5000 do redis.call("set", "k" .. i, string.rep("v" .. i, i % 50)) end return "loaded"' 0
  ask eval 'local n = 0 for i = 1, 5000 do n = n + #redis.call("get", "k" .. i) end return n' 0
  ask append long "$(head -c 60000 /dev/zero | tr '\0' x)"
  for _ in 1 2 3 4 5 6; do ask eval 'local v = redis.call("get", "long") redis.call("set", "long", v .. v) return #v' 0; done
  ask debug digest-value k1 k2 k4999 long
  ask get counter:__rand_int__
  ask bgsave
  while [ "$(ask info persistence | tr -d '\r' | sed -n 's/^rdb_bgsave_in_progress://p')" = 1 ]; do sleep 0.05; done
  ask info persistence | tr -d '\r' | grep rdb_last_bgsave_status
  ask flushall
}

start exec
load > "$work/plain.out"
end
start exec_under_policy
load > "$work/loam.out"
grep -q "${LOAM_PRELOAD##*/}" "/proc/$server/maps" || fail "redis-server runs without loam"
end
cmp "$work/plain.out" "$work/loam.out" || fail "redis: $(diff "$work/plain.out" "$work/loam.out")"
grep -q "ok\|PONG\|loaded" "$work/loam.out" || fail "redis said nothing"
echo "ok: redis-server under redis-benchmark"
