# _prometheus.sh - runs a real Prometheus with the rules of examples/fleet. Tests source it after
# _lib.sh. The programs that Prometheus observes are called $name.
need curl prometheus python3
export no_proxy='*'
rules=examples/fleet

# quick_config - writes a configuration whose times are short enough for a test. Reads the
# scrape_configs from standard input.
quick_config() {
  sed 's/for: .*/for: 0s/; s/\[5m\]/[8s]/g; s/offset 5m/offset 8s/g' "$rules/loam.rules.yml" > "$work/rules.yml"
  {
    echo 'global: { scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms }'
    echo 'rule_files: [rules.yml]'
    echo 'scrape_configs:'
    cat
  } > "$work/prometheus.yml"
}
# start_prometheus - starts Prometheus with the configuration of quick_config.
start_prometheus() {
  prometheus_port=$(free_port)
  prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" --log.level=warn \
    --web.listen-address="127.0.0.1:$prometheus_port" > "$work/prometheus.log" 2>&1 &
  children="$children $!"
}

# asks QUERY - prints Prometheus's answer: the labels and the value of each series in a line.
asks() {
  curl -fsS --data-urlencode "query=$1" "http://127.0.0.1:$prometheus_port/api/v1/query" > "$work/answer" || return
  python3 - "$work/answer" << 'PY'
import json, sys
for found in json.load(open(sys.argv[1]))["data"]["result"]:
    print(json.dumps(found["metric"], sort_keys=True), found["value"][1])
PY
}
# counts NUMBER QUERY - succeeds if the answer has that number of series.
counts() {
  asks "$2" > "$work/rows" || return
  cat "$work/rows"
  [ "$(wc -l < "$work/rows")" = "$1" ]
}
# firing ALERT - prints a query for the alert on the programs of the test.
firing() { echo "ALERTS{alertname=\"$1\",alertstate=\"firing\",program=\"$name\"}"; }
