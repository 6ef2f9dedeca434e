# nginx.sh - nginx, whose master is root and whose workers become another user. It answers requests,
# and the workers obey an edit of the policy, though they cannot open the board.
. tests/system/_lib.sh
. tests/system/_server.sh
need python3 pgrep
nginx=$(PATH=$PATH:/usr/sbin command -v nginx) || skip "nginx is not installed"
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
[ "$(id -u)" = 0 ] || skip "only root can start nginx with workers of another user"
user=$(id -u www-data) || skip "there is no user www-data"

chmod 755 "$work" # the workers must read the page
seq 20000 > "$work/page"
port=$(free_port)
cat > "$work/config" << END
user www-data;
worker_processes 3;
daemon off;
pid $work/pid;
error_log stderr notice;
events { worker_connections 64; }
http {
  access_log off;
  gzip on;
  gzip_types *;
$(printf "  %s_temp_path $work/temp;\n" client_body proxy fastcgi uwsgi scgi)
  server {
    listen 127.0.0.1:$port reuseport;
    root $work;
  }
}
END

# request COUNT - makes COUNT connections, which the kernel spreads over the workers.
request() {
  python3 - "$port" "$1" "$work/page" << 'END'
import gzip, sys, urllib.request
address = "http://127.0.0.1:%s/page" % sys.argv[1]
expected = open(sys.argv[3], "rb").read()
for _ in range(int(sys.argv[2])):
    question = urllib.request.Request(address, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(question, timeout=60) as answer:
        assert gzip.decompress(answer.read()) == expected
END
}
workers() { pgrep -P "$server" -f '^nginx: worker process$'; }
are_up() { [ "$(workers | wc -l)" = 3 ] && request 1; }
all_obey() {
  local process
  request 10 || return
  for process in $(workers) "$@"; do obeys "$process" after || return; done
}
are_new() { are_up && ! workers | grep -qxF "$old"; }

for way in $ways; do
  write "$live" before 64
  (run_as "$way" "$nginx" -e stderr -c "$work/config") > "$work/log" 2>&1 &
  server=$!
  children=$server
  await "$way: nginx does not start" are_up
  request 60 > "$work/request" 2>&1 || fail "$way: $(cat "$work/request" "$work/log")"
  for worker in $(workers); do
    grep -q "^Uid:.$user.$user" "/proc/$worker/status" || fail "$way: $worker is of another user"
  done
  echo "ok: $way: requests"
  reached "$way" "$server"
  same_figures "$way" "$server"

  if [ "$way" = run ]; then
    write "$live" after 4096
    await "$way: a worker does not obey an edit" all_obey
    for worker in $(workers); do
      "$LOAM" stats "$worker" > "$work/stats" 2>&1 || fail "stats of a worker: $(cat "$work/stats")"
      grep -q '^malloc.nginx ' "$work/stats" || fail "stats of a worker: $(cat "$work/stats")"
    done
    echo "ok: $way: each worker obeys an edit, and root sees its figures"
  fi

  # The master reads its configuration again, and starts new workers.
  old=$(workers)
  kill -HUP "$server"
  await "$way: no new workers" are_new
  [ "$way" != run ] || await "$way: the master or a new worker does not obey" all_obey "$server"
  request 60 > "$work/request" 2>&1 || fail "$way: $(cat "$work/request" "$work/log")"
  same_figures "$way" "$server"
  echo "ok: $way: new workers"

  kill -QUIT "$server"
  wait "$server" || fail "$way: nginx ended with $?: $(cat "$work/log")"
  children=
  ! grep -E '\[(alert|emerg|crit)\]' "$work/log" || fail "$way: nginx complains"
done
