# stand_in.sh - tests tests/gpu/run on the stand-in for a driver: a whole run, and a run that ends
# before its measurements.
#
#   stand_in.sh BUILD
set -euo pipefail
build=${1:?the build folder}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*" >&2; exit 1; }

# has WORDS - fails unless a line of the results begins with the words.
has() { grep -q "^$1" "$work/results.md" || fail "no line \"$1\": $(cat "$work/results.md")"; }

# A machine with a GPU may be lent for one run. So a run that ends early says where it ran, too.
bash tests/gpu/run --stand-in --build "$build" --seconds 0 --out "$work/results.md" > "$work/log" 2>&1
has "tests/gpu/run --stand-in .*, 20[0-9][0-9]-"
for what in loam "GPU and driver" processor memory kernel glibc compiler Python; do has "| $what | "; done
has "Building the programs of tests/gpu: ok, "
has "Measures: SKIPPED, "
has "    no time was left of 0 s"

bash tests/gpu/run --stand-in --build "$build" --out "$work/results.md"
has "Measures: ok, "
has "Memory that sleeps and wakes: ok, "
[ "$(grep -c '^| loam | ' "$work/results.md")" -gt 1 ] || fail "no figures: $(cat "$work/results.md")"
