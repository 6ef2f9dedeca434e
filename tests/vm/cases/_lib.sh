# _lib.sh - what the cases share; they source it. They run in the virtual machine, under busybox.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LOAM_CONTROL_DIR=$work/control

fail() { echo "failed: $*"; exit 1; }
skip() { echo "skipped: $*"; exit 77; }
ok() { echo "ok: $*"; }
# policy TEXT - a policy of this text; its path is in $policy.
policy() { policy=$work/policy.lua; printf '%s\n' "$1" > "$policy"; }
# nodes N - this machine has N nodes, or the case is skipped.
nodes() { [ "$VM_NODES" = "$1" ] || skip "only on the machine with $1 nodes"; }
