# machine.sh - the machine is the one that the other cases take for granted, and loam sees it.
. /t/cases/_lib.sh

cat /sys/devices/system/node/has_memory /sys/devices/system/node/has_cpu > "$work/nodes"
case $VM_NODES in
  4) printf '0-3\n0-2\n' ;;
  1) printf '0\n0\n' ;;
esac | cmp -s - "$work/nodes" || fail "nodes with memory, and with CPUs: $(cat "$work/nodes")"
ok "its nodes"

"$LOAM" doctor > "$work/doctor" || fail "loam doctor: exit status $?"
cat "$work/doctor"
