# _lib.sh - functions that all cases use. A case sources this file, and runs in the virtual machine,
# under busybox.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LOAM_CONTROL_DIR=$work/control

fail() { echo "failed: $*"; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
ok() { echo "ok: $*"; }
# patiently COMMAND... - runs the command, and keeps its output in $work/out. Repeats it while it
# fails because a policy took longer than 200 ms to load: an emulated machine on a busy host may
# need more.
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
# policy TEXT - writes a policy with this text, and sets $policy to its path.
policy() { policy=$work/policy.lua; printf '%s\n' "$1" > "$policy"; }
# nodes N - skips the case unless this machine has N nodes.
nodes() { [ "$VM_NODES" = "$1" ] || skip "only on the machine with $1 nodes"; }
