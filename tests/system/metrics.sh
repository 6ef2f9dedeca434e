# metrics.sh - `loam metrics` with a real Prometheus and a real node_exporter: both formats are
# scraped, the alerts of examples/fleet fire and clear again, and no input makes a page invalid.
. tests/system/_lib.sh
. tests/system/_server.sh
. tests/system/_prometheus.sh
need "$CC" pgrep promtool prometheus-node-exporter
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
python=/usr/bin/python3
"$python" -c 'import prometheus_client.openmetrics.parser' 2> "$work/why" ||
  skip "python3-prometheus-client is not installed"
: > "$work/log"

# Alerts name the program, so no other program of this machine may have its name.
name=fleet$$
build requests.c
mv "$program" "$work/$name"
program=$work/$name

text() { # text NAME - prints a policy that denies 5000 bytes and limits small blocks to 1 MiB
  cat << LUA
local small = loam.host { name = "small", limit = loam.MiB }
local rest  = loam.host { name = "rest" }
local none  = loam.deny { name = "none" }
return loam.policy {
  name = "$1",
  pick = function(req)
    if req.size == 5000 then return none end
    if req.size == 16000 then return small end
    return rest
  end,
}
LUA
}
text fleet | save "$work/a.lua"
text fleet | save "$work/b.lua"

# begins LETTER - starts the program under the policy LETTER.lua, with a pipe as its input.
begins() {
  mkfifo "$work/$1.in"
  (exec "$LOAM" run --watch --policy "$work/$1.lua" -- "$program") \
    < "$work/$1.in" > "$work/$1.out" 2> "$work/$1.err" &
  pid=$!
  children="$children $pid"
}
has_lines() { [ "$(wc -l < "$1")" -ge "$2" ]; }

begins a
a=$pid
exec {a_in}> "$work/a.in"
begins b
b=$pid
exec {b_in}> "$work/b.in"
declare -A input=([a]=$a_in [b]=$b_in)
# tells LETTER LINE - writes the line to the program, and waits for the answer.
tells() {
  local before
  before=$(wc -l < "$work/$1.out")
  printf '%s\n' "$2" >&"${input[$1]}"
  await "no answer to $2" has_lines "$work/$1.out" $((before + 1))
}
tells a 'take 1 100'
tells b 'take 1 100'

# follows LETTER PID GENERATION - succeeds if the program has obeyed an edit. A program obeys when
# it requests memory.
follows() {
  tells "$1" 'take 1 100' && "$LOAM" status "$2" --json | grep -q "\"generation\":$3,"
}

# ---- the page

# valid FILE FORMAT - fails unless Prometheus's own checker and another reader accept the page.
valid() {
  if [ "$2" = text ]; then
    promtool check metrics < "$1" > "$work/why" 2>&1 || fail "promtool: $(cat "$work/why")"
  fi
  "$python" - "$1" "$2" << 'PY' || fail "the page in $2 is not valid"
import sys
import prometheus_client.openmetrics.parser as openmetrics
import prometheus_client.parser as text
page = open(sys.argv[1], encoding="utf-8", newline="").read()
reader = openmetrics if sys.argv[2] == "openmetrics" else text
assert len(list(reader.text_string_to_metric_families(page))) > 10
PY
}
# has FILE WORDS - fails unless a line of the page contains these words.
has() { grep -qF -- "$2" "$1" || fail "no '$2': $(grep -F "$name" "$1" | head -n 40)"; }

"$LOAM" metrics > "$work/page" 2> "$work/why" || fail "metrics: $(cat "$work/why")"
valid "$work/page" text
for pid in $a $b; do
  has "$work/page" "loam_live_bytes{pid=\"$pid\",program=\"$name\",tag=\"malloc.$name\",strategy=\"rest\",kind=\"host\"}"
  has "$work/page" "loam_policy_last_load_successful{pid=\"$pid\",program=\"$name\"} 1"
done
echo "ok: one page on standard output"

tells a 'tag quote"back\slash'
tells a 'tag line\nloam_up 1\n# EOF\n'
tells a 'tag \xff\xfe\xc0\x80'
tells a 'tag \xff\xff\xc0\x80'
tells a 'tag {a="b"} 1'

# serves WORDS... - starts `loam metrics WORDS`. Its standard error goes to $work/said.
serves() {
  : > "$work/said"
  "$LOAM" metrics "$@" 2> "$work/said" &
  server=$!
  children="$children $server"
}
# ended STATUS - fails unless the command in the background ends with this status.
ended() {
  local got=0
  wait "$server" || got=$?
  [ "$got" = "$1" ] || fail "it ended with $got, not $1: $(cat "$work/said")"
}
serves --listen 127.0.0.1:0
await "it does not serve" grep -q serving "$work/said"
listener=$server
url=$(sed -n 's/.*serving //p' "$work/said")
curl -fsS -D "$work/head" -H 'Accept: application/openmetrics-text; version=1.0.0' "$url" > "$work/page" || fail "curl"
grep -qi 'content-type: application/openmetrics-text; version=1.0.0' "$work/head" || fail "$(cat "$work/head")"
valid "$work/page" openmetrics
has "$work/page" 'tag="quote\"back\\slash"'
has "$work/page" 'tag="line\nloam_up 1\n# EOF\n"'
[ "$(grep -c "loam_live_bytes{pid=\"$a\".*tag=\"ÿ" "$work/page")" = 2 ] || fail "tags that are not UTF-8"
curl -fsS -D "$work/head" "$url" > "$work/page" || fail "curl"
grep -qi 'content-type: text/plain; version=0.0.4' "$work/head" || fail "$(cat "$work/head")"
valid "$work/page" text
[ "$(curl -sS -o "$work/page" -w '%{http_code}' -X POST -d x "$url")" = 405 ] || fail "POST"
[ "$(curl -sS -o "$work/page" -w '%{http_code}' "${url%metrics}")" = 200 ] || fail "the root"
echo "ok: both formats are valid, with hostile tags"

# The server has as many connections as it may have, so it does not listen. All of them end at one
# time, while it is stopped. Then it must listen again: its next wait can last a minute.
"$python" - "$url" "$listener" << 'PY' || fail "it does not listen after 64 clients at a time"
import os, signal, socket, sys, time, urllib.parse, urllib.request
url, server = sys.argv[1], int(sys.argv[2])
place = urllib.parse.urlsplit(url)
clients = [socket.create_connection((place.hostname, place.port)) for _ in range(64)]
while len(os.listdir(f"/proc/{server}/fd")) < 64:
    time.sleep(0.01)
os.kill(server, signal.SIGSTOP)
for client in clients:
    client.close()
os.kill(server, signal.SIGCONT)
assert urllib.request.urlopen(url, timeout=45).status == 200
PY
echo "ok: it listens again after as many clients as it may have"

"$python" - "$url" << 'PY' || fail "clients that send no whole request keep others waiting"
import socket, sys, urllib.parse, urllib.request
place = urllib.parse.urlsplit(sys.argv[1])
clients = [socket.create_connection((place.hostname, place.port)) for _ in range(200)]
for client in clients[::2]:
    try:
        client.send(b"GET /metrics HTTP/1.1\r\nHo")
    except OSError:
        pass  # the server has closed this one
assert urllib.request.urlopen(sys.argv[1], timeout=5).status == 200
PY
echo "ok: clients that send no whole request keep no other waiting"

# ---- Prometheus

mkdir "$work/text"
"$LOAM" metrics --textfile "$work/text" --every 300ms 2> "$work/textfile" &
writer=$!
children="$children $writer"
node_port=$(free_port)
quick_config << END
  - job_name: openmetrics
    static_configs: [{ targets: ["${url#http://}"] }]
  - job_name: text
    params: { format: [text] }
    static_configs: [{ targets: ["${url#http://}"] }]
  - job_name: node
    static_configs: [{ targets: ["127.0.0.1:$node_port"] }]
END
sed -i 's,/metrics",",' "$work/prometheus.yml"
promtool check rules "$rules/loam.rules.yml" > "$work/why" 2>&1 || fail "rules: $(cat "$work/why")"
promtool test rules tests/system/alerts.yml > "$work/why" 2>&1 || fail "rules: $(cat "$work/why")"
for config in "$rules/prometheus.yml" "$work/prometheus.yml"; do
  promtool check config "$config" > "$work/why" 2>&1 || fail "$config: $(cat "$work/why")"
done
prometheus-node-exporter --collector.disable-defaults --collector.textfile \
  --collector.textfile.directory="$work/text" --web.listen-address="127.0.0.1:$node_port" \
  > "$work/node.log" 2>&1 &
children="$children $!"
start_prometheus

# fires ALERT, clears ALERT - waits until the alert fires, or has cleared, in all three jobs.
fires() { await "$1 does not fire" counts 3 "$(firing "$1")"; }
clears() { await "$1 does not clear" counts 0 "$(firing "$1")"; }

await "not all jobs have both programs" counts 6 "loam_policy_generation{program=\"$name\"}"
await "other types" counts 6 "loam_denied_requests_total{program=\"$name\"} == 0"
echo "ok: Prometheus scrapes OpenMetrics, text, and node_exporter's file"

echo 'return loam.polcy {}' | save "$work/a.lua"
{ text fleet; echo '-- edited'; } | save "$work/b.lua"
await "it does not follow" follows b "$b" 2
tells a 'take 60 16000'
# The program requests denied memory until the alert fires, however late Prometheus scrapes.
denies() { tells a 'take 1 5000' && counts 3 "$(firing LoamRequestsDenied)"; }
await "LoamRequestsDenied does not fire" denies
echo "ok: LoamRequestsDenied fires"
for alert in LoamPolicyRefused LoamFleetSplit LoamLimitNearlyFull; do
  fires "$alert"
  echo "ok: $alert fires"
done
asks "loam_policy_refused_info{program=\"$name\",job=\"text\"}" | grep -q "\"pid\": \"$a\"" || fail "no refused hash"

text fleet | save "$work/a.lua"
text fleet | save "$work/b.lua"
await "it does not follow" follows b "$b" 3
tells a drop
for alert in LoamPolicyRefused LoamFleetSplit LoamRequestsDenied LoamLimitNearlyFull; do
  clears "$alert"
  echo "ok: $alert clears"
done
await "not two programs in each job" counts 3 "count by (job) (loam_policy_info{program=\"$name\"}) == 2"

# All series that the dashboard queries exist.
"$python" - "$rules/loam.dashboard.json" > "$work/queries" << 'PY' || fail "a query for all machines"
import json, re, sys
board = json.load(open(sys.argv[1]))
for panel in board["panels"]:
    for target in panel.get("targets", []):
        query = target["expr"].replace("$__rate_interval", "8s")
        for selector in re.findall(r"loam_\w+(?:{.*?})?", query):
            assert 'instance=~"$instance"' in selector, query
        for name in ("$job", "$instance", "$program", "$pid"):
            query = query.replace(name, ".*")
        print(query)
PY
has_series() { asks "$1" > "$work/rows" && { [ -s "$work/rows" ] || echo "$1" | grep -Eq 'huge|placement|node_bytes|folded|strategy_failed'; }; }
while read -r query; do has_series "$query" || fail "the dashboard: $query"; done < "$work/queries"
echo "ok: Prometheus answers the $(wc -l < "$work/queries") queries of the dashboard"

# Of a limit that processes share, the panel shows what all of them use, as the alert does.
"$python" - "$rules/loam.dashboard.json" > "$work/panel.yml" << 'PY'
import json, sys
panels = json.load(open(sys.argv[1]))["panels"]
query = next(panel for panel in panels if panel["title"] == "Limits")["targets"][0]["expr"]
for name in ("$job", "$instance", "$program", "$pid"):
    query = query.replace(name, ".*")
labels = 'pid="1",program="p",strategy="s"'
def series(name, value, more=""):
    return {"series": f"{name}{{{labels}{more}}}", "values": value}
print(json.dumps({"tests": [{
    "interval": "15s",
    "input_series": [series("loam_limit_bytes", "100"), series("loam_limit_used_bytes", "10"),
                     series("loam_limit_shared_used_bytes", "95", ',shared="all"')],
    "promql_expr_test": [{"expr": query, "eval_time": "0s",
                          "exp_samples": [{"labels": f"{{{labels}}}", "value": 0.95}]}],
}]}))
PY
promtool test rules "$work/panel.yml" > "$work/why" 2>&1 || fail "the panel of limits: $(cat "$work/why")"
echo "ok: the panel of limits shows what all processes use of a shared limit"

# ---- failures

kill "$writer"
server=$writer
ended 0
[ -z "$(ls "$work/text")" ] || fail "files are left: $(ls "$work/text")"
echo "ok: at its end the file is removed"

address=${url#http://}
serves --listen "${address%/metrics}"
ended 1
grep -q "cannot listen on ${address%/metrics}: Address already in use" "$work/said" || fail "$(cat "$work/said")"
for _ in 1 2 3 4 5 6 7 8; do run_under_policy "$program" < /dev/null & done
for i in 1 2 3 4 5; do
  "$LOAM" metrics > "$work/page" 2> "$work/why" || fail "$(cat "$work/why")"
  promtool check metrics < "$work/page" > "$work/why" 2>&1 || fail "page $i: $(cat "$work/why")"
done
echo "ok: pages are whole while processes start and end"

build requests_forever.c
mv "$program" "$work/many$$"
(exec "$LOAM" run --policy "$work/a.lua" -- "$work/many$$" 200) > "$work/up" 2>&1 &
children="$children $!"
all_shown() {
  curl -fsS "$url" > "$work/page"
  [ "$(grep -c "loam_process_readable{.*,program=\"many$$\"} 1" "$work/page")" = 200 ]
}
await "not all processes are shown" all_shown
valid "$work/page" text
echo "ok: 200 processes are on a page, after" "$(sed -n 's/^loam_page_seconds //p' "$work/page") s"

board=$(find "$LOAM_CONTROL_DIR" -name '*.board' | head -n 1)
cp --sparse=always "$board" "$LOAM_CONTROL_DIR/1-1.board"
dd if=/dev/urandom of="$LOAM_CONTROL_DIR/1-1.board" bs=1024 seek=4 count=60 conv=notrunc 2> "$work/why"
"$LOAM" metrics > "$work/page" 2> "$work/why" || fail "a corrupt board: $(cat "$work/why")"
valid "$work/page" text
has "$work/page" "loam_policy_generation{pid=\"$b\",program=\"$name\"}"
rm -f "$LOAM_CONTROL_DIR/1-1.board"
echo "ok: a corrupt board breaks no page"

(ulimit -f 1 && exec "$LOAM" metrics --textfile "$work/text") > "$work/said" 2>&1 && fail "a full disk"
grep -q 'cannot write the page: .*File too large' "$work/said" || fail "$(cat "$work/said")"
[ -z "$(ls "$work/text")" ] || fail "files are left: $(ls "$work/text")"
echo "ok: a page that cannot be written leaves no file"

touch "$work/file"
serves --listen "unix:$work/file"
ended 1
grep -q "$work/file: it exists and is no socket" "$work/said" || fail "$(cat "$work/said")"
serves --listen "unix:$work/socket"
await "no socket" curl -fsS --unix-socket "$work/socket" http://loam/metrics
first=$server
serves --listen "unix:$work/socket"
ended 1
grep -q "$work/socket: another program listens there" "$work/said" || fail "$(cat "$work/said")"
kill -KILL "$first"
wait "$first" 2> "$work/why"
serves --listen "unix:$work/socket"
await "not again" curl -fsS --unix-socket "$work/socket" http://loam/metrics
kill -INT "$server"
ended 0
[ -e "$work/socket" ] && fail "the socket is left"
echo "ok: the socket of a killed server is replaced, and a server removes its own"

server=$listener
kill "$server"
ended 0
echo "ok: SIGTERM ends it"
