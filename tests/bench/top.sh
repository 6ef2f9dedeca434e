#!/usr/bin/env bash
# top.sh - the share of a core that `loam top` takes: for many small processes, and for one with
# many blocks. It also prints how old the figures of a process get, because a look that takes
# long is made less often.
#
#   tests/bench/top.sh [BUILD] [SECONDS] [PROCESSES]     default: build, 20, 200
set -eu
case ${1-} in
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;;
  -*) echo "top.sh: no option $1; --help tells" >&2; exit 2 ;;
esac
loam=$(realpath "${1:-build}")/loam
seconds=${2:-20}
processes=${3:-200}
[ -x "$loam" ] || { echo "top.sh: $loam is not built" >&2; exit 2; }
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
children=
finish() {
  for child in $children; do kill "$child" 2> "$work/why" || true; done
  rm -rf "$work"
}
trap finish EXIT
export LOAM_CONTROL_DIR=$work/control
mkdir -m 700 "$work/control"

# hold STRINGS FILE - starts a Perl program that holds this many strings. It makes the file once it
# has them.
hold() {
  perl -e 'my @a = map { "x" x ($_ % 100 + 1) } 1 .. $ARGV[0]; open my $f, ">", $ARGV[1]; sleep 600' \
    "$1" "$2" &
}

# ticks PID - prints the processor time of a process, in clock ticks.
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }

# measure WHAT PID... - prints the share of a core, and the greatest age of figures.
measure() {
  local what=$1 top before after
  shift
  rm -f "$work/out"
  "$loam" top --json --by process "$@" > "$work/out" &
  top=$!
  while [ ! -s "$work/out" ]; do sleep 0.2; done # top has looked at all processes once
  before=$(ticks "$top")
  sleep "$seconds"
  after=$(ticks "$top")
  kill "$top"
  wait "$top" || true
  age=$(tail -n 1 "$work/out" | grep -o '"age_ms":[0-9]*' | cut -d: -f2 | sort -n | tail -n 1)
  awk -v what="$what" -v n="$((after - before))" -v hz="$(getconf CLK_TCK)" -v s="$seconds" \
    -v age="$age" \
    'BEGIN { printf "%-34s %4.1f%% of a core, oldest look %4.1f s ago\n", what, 100 * n / hz / s, age / 1000 }'
}

# The whole tree runs under one board. Its shell waits until the trap ends it.
export -f hold
"$loam" run --policy policies/default.lua -- bash -c '
  for i in $(seq "$1"); do hold 2000 "$2/ready.$i"; done
  trap "kill \$(jobs -p) 2> /dev/null" TERM
  wait' bash "$processes" "$work" &
children=$!
while [ "$(find "$work" -name 'ready.*' | wc -l)" -lt "$processes" ]; do sleep 0.2; done
measure "$processes processes of 4,000 blocks"
kill "$children"
wait "$children" || true
"$loam" run --policy policies/default.lua -- \
  perl -e 'my @a = map { "x" x ($_ % 100 + 1) } 1 .. 3000000; open my $f, ">", $ARGV[0]; sleep 600' \
  "$work/large" &
children=$!
while [ ! -e "$work/large" ]; do sleep 0.2; done
measure "1 process of 6,000,000 blocks" "$children"
