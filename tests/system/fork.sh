# fork.sh - forks while locks are held: in signal handlers, in handlers of pthread_atfork, beside
# the C library's own locks, and while other threads change free memory. The first three programs
# would hang if an allocation waited for a lock that is held across fork. An assertion of a debug
# build would end the fourth program if a fork did not wait for the other threads.
. tests/system/_lib.sh
need "$CC" timeout

build interrupted.c && compare_runs "forks in signal handlers that interrupt allocations" timeout 100 "$program"
build prepares.c && compare_runs "handlers of pthread_atfork that allocate" timeout 100 "$program"
build flushes.c && compare_runs "fork beside fflush and getline" timeout 100 "$program"
build midway.c && compare_runs "forks in the middle of slow calls of other threads" timeout 200 "$program"
