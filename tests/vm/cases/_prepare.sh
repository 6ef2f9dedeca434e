# _prepare.sh - the state that each case finds and must leave behind: on the machine of four nodes,
# 16 pages of 2 MiB set aside on every node, and transparent huge pages where a program asks.
echo madvise > /sys/kernel/mm/transparent_hugepage/enabled
if [ "$VM_NODES" = 4 ]; then
  for node in 0 1 2 3; do
    pages=/sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages
    # The kernel gives what it has at the moment.
    for attempt in 1 2 3 4 5; do
      echo 16 > $pages
      [ "$(cat $pages)" != 16 ] || break
      sleep 1
    done
  done
fi
