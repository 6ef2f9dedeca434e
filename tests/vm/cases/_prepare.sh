# _prepare.sh - sets the state that each case finds and must leave behind: transparent huge pages
# only for programs that ask for them and, on the machine with four nodes, 16 reserved pages of 2
# MiB on each node.
echo madvise > /sys/kernel/mm/transparent_hugepage/enabled
if [ "$VM_NODES" = 4 ]; then
  for node in 0 1 2 3; do
    pages=/sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages
    # The kernel reserves as many pages as it finds at the moment, so the write is repeated.
    for attempt in 1 2 3 4 5; do
      echo 16 > $pages
      [ "$(cat $pages)" != 16 ] || break
      sleep 1
    done
  done
fi
