#!/usr/bin/env bash
# startup.sh - what loam adds to the start of a program. Compares, in turns, /bin/true alone,
# preloaded without a policy, with a policy, as `loam run` starts it, with `loam run` itself, and as
# a program under `loam run` starts it.
# Prints processor time beside the time on the wall, which is longer on a busy machine.
#
#   tests/bench/startup.sh [BUILD] [RUNS]     default: build, 200
set -eu
case ${1-} in
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;;
  -*) echo "startup.sh: no option $1; --help tells" >&2; exit 2 ;;
esac
build=$(realpath "${1:-build}")
runs=${2:-200}
preload=$build/libloam-preload.so
[ -e "$preload" ] || { echo "startup.sh: $preload is not built" >&2; exit 2; }
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
parent=
trap 'rm -rf "$work"; [ -z "$parent" ] || kill "$parent"' EXIT
export LOAM_CONTROL_DIR=$work/control
# Prints what `loam run` hands on in LOAM_VETTED: the hash of a policy that it has just checked, and
# its image.
vetted() { "$build/loam" run --policy "policies/$1.lua" -- env | sed -n 's/^LOAM_VETTED=//p'; }
vetted_default=$(vetted default) vetted_rich=$(vetted multi-tenant)

# A program under `loam run`, and what it hands on to the programs that it starts.
"$build/loam" run --policy policies/default.lua -- sleep 10000 &
parent=$!
until grep -qz '^LOAM_RUN=' "/proc/$parent/environ"; do sleep 0.1; done
mapfile -d '' handed_on < <(grep -zE '^(LD_PRELOAD|LOAM_[A-Z]*)=' "/proc/$parent/environ")

# turn KIND COMMAND... - runs the command ten times. Adds a line "wall user system", in seconds, to
# the file of the kind.
TIMEFORMAT='%R %U %S'
turn() {
  local kind=$1
  shift
  { time for _ in 1 2 3 4 5 6 7 8 9 10; do "$@"; done; } 2>> "$work/$kind"
}
for ((i = 0; i < runs / 10; i++)); do
  turn plain env A=1 /bin/true
  turn numa env LD_PRELOAD=libnuma.so.1 /bin/true
  turn preload env LD_PRELOAD="$preload" /bin/true
  turn silent env LD_PRELOAD="$preload" LOAM_CONTROL=0 /bin/true
  turn policy env LD_PRELOAD="$preload" LOAM_POLICY=policies/default.lua /bin/true
  turn rich env LD_PRELOAD="$preload" LOAM_POLICY=policies/multi-tenant.lua /bin/true
  turn vetted env LD_PRELOAD="$preload" LOAM_POLICY=policies/multi-tenant.lua \
    LOAM_VETTED="$vetted_rich" /bin/true
  turn carried env LD_PRELOAD="$preload" LOAM_POLICY=policies/default.lua \
    LOAM_VETTED="$vetted_default" /bin/true
  turn child env "${handed_on[@]}" /bin/true
  turn run env A=1 "$build/loam" run --policy policies/default.lua -- /bin/true
  turn run_rich env A=1 "$build/loam" run --policy policies/multi-tenant.lua -- /bin/true
done

# row WHAT KIND - prints the milliseconds of a run, the difference to a plain run, and the ratio.
row() {
  awk -v what="$1" '
    FNR == NR { plain_wall += $1; plain_cpu += $2 + $3; next }
    { wall += $1; cpu += $2 + $3; n += 10 }
    END {
      printf "%-32s %7.2f %+7.2f %6.2f   %7.2f %+7.2f %6.2f\n", what,
        wall * 1e3 / n, (wall - plain_wall) * 1e3 / n, wall / plain_wall,
        cpu * 1e3 / n, (cpu - plain_cpu) * 1e3 / n, cpu / plain_cpu
    }' "$work/plain" "$work/$2"
}
printf '%-32s %22s   %22s\n' "/bin/true, $((runs / 10 * 10)) runs, ms" "wall, added, ratio" "cpu, added, ratio"
row "plain" plain
row "libnuma, not linked by loam" numa
row "preloaded, built-in default" preload
row "the same, no board" silent
row "policies/default.lua" policy
row "the same, as by loam run" carried
row "and loam run itself" run
row "a program that it starts" child
row "policies/multi-tenant.lua" rich
row "the same, as by loam run" vetted
row "and loam run itself" run_rich
