# machine.sh - checks that the machine has what the other cases expect, and that `loam doctor`
# reports it.
. /t/cases/_lib.sh

cat /sys/devices/system/node/has_memory /sys/devices/system/node/has_cpu > "$work/nodes"
case $VM_NODES in
  4) printf '0-3\n0-2\n' ;;
  2) printf '0-1\n0-1\n' ;;
  1) printf '0\n0\n' ;;
esac | cmp -s - "$work/nodes" || fail "nodes with memory, and with CPUs: $(cat "$work/nodes")"
ok "its nodes"

"$LOAM" doctor > "$work/doctor" || fail "loam doctor: exit status $?"
cat "$work/doctor"

# says WHAT TEXT - fails unless doctor's line about WHAT contains TEXT.
says() { grep "  $1  " "$work/doctor" | grep -q "$2" || fail "of $1 doctor says not: $2"; }
case $VM_NODES in
  2) says '1 GiB huge pages' '1 reserved, 1 free' ;;
  *) says '1 GiB huge pages' none ;;
esac
ok "its pages of 1 GiB"
