# fork.sh - forks at moments when locks are held: in signal handlers, in handlers of pthread_atfork,
# and beside the C library's own locks. Each program would hang if an allocation could wait for
# something that is locked across fork.
. tests/system/_lib.sh
need "$CC" timeout

build interrupted.c && same "forks in signal handlers that interrupt allocations" timeout 100 "$program"
build prepares.c && same "handlers of pthread_atfork that allocate" timeout 100 "$program"
build flushes.c && same "fork beside fflush and getline" timeout 100 "$program"
