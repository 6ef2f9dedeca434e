#!/usr/bin/env bash
# startup.sh - what loam adds to the start of a program: /bin/true plain, preloaded under no policy, and
# under one, in turns.
#
#   tests/bench/startup.sh [BUILD] [RUNS]     default: build, 200
set -eu
build=$(realpath "${1:-build}")
runs=${2:-200}
preload=$build/libloam-preload.so
[ -e "$preload" ] || { echo "startup.sh: $preload is not built" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LOAM_CONTROL_DIR=$work/control

# Ten of the runs a turn; a turn's time goes to the total of its kind.
now() { echo "${EPOCHREALTIME/./}"; }
declare -A total
turn() { # turn KIND COMMAND...
  local kind=$1 start
  shift
  start=$(now)
  for _ in 1 2 3 4 5 6 7 8 9 10; do "$@"; done
  total[$kind]=$((${total[$kind]:-0} + $(now) - start))
}
rounds=$((runs / 10))
for ((i = 0; i < rounds; i++)); do
  turn plain env A=1 /bin/true
  turn preload env LD_PRELOAD="$preload" /bin/true
  turn silent env LD_PRELOAD="$preload" LOAM_CONTROL=0 /bin/true
  turn policy env LD_PRELOAD="$preload" LOAM_POLICY=policies/default.lua /bin/true
done

printf '%-46s %8s %8s\n' "/bin/true, $((rounds * 10)) runs" "ms" "ratio"
row() {
  awk -v what="$1" -v us="${total[$2]}" -v plain="${total[plain]}" -v runs=$((rounds * 10)) \
    'BEGIN { printf "%-46s %8.2f %8.2f\n", what, us / runs / 1000, us / plain }'
}
row "plain" plain
row "preloaded, built-in default" preload
row "the same, no control socket" silent
row "preloaded, policies/default.lua" policy
