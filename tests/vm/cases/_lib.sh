# _lib.sh - what the cases share; they source it. They run in the virtual machine, under busybox.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LOAM_CONTROL_DIR=$work/control

fail() { echo "failed: $*"; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
ok() { echo "ok: $*"; }
# patiently COMMAND... - its output in $work/out. A policy has 200 ms to load, which an emulated
# machine on a busy host may need more than.
patiently() {
  local status=0 attempt
  for attempt in $(seq 40); do
    status=0
    "$@" > "$work/out" 2>&1 || status=$?
    grep -q 'budget: .* took more than' "$work/out" || break
    sleep 1
  done
  return "$status"
}
# policy TEXT - a policy of this text; its path is in $policy.
policy() { policy=$work/policy.lua; printf '%s\n' "$1" > "$policy"; }
# nodes N - this machine has N nodes, or the case is skipped.
nodes() { [ "$VM_NODES" = "$1" ] || skip "only on the machine with $1 nodes"; }
