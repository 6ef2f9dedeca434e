/* available.h - whether memory is available now. loam tests this before it takes memory: if the
 * bound nodes or the control group have none left, the kernel does not refuse, it kills the
 * process. os/pressure.h decides from these figures when idle memory is to go back soon. */
#ifndef LM_AVAILABLE_H
#define LM_AVAILABLE_H

#include "os/base.h"

/* Returns whether this process can take `bytes` now, from the nodes of a mask (0: from any node).
 * All files that a control group has in the cache count as free, because the kernel drops them
 * before it kills a process. Keeps a little of the free memory back, since other processes take
 * memory too. Returns true for limits that it cannot read. Makes some system calls. Any thread may
 * call it. */
bool lm_available_has(size_t bytes, uint64_t nodes);

/* Returns how many bytes the control groups of this process still allow; UINT64_MAX: there is no
 * limit. Sets *limit to the lowest limit, or UINT64_MAX. */
uint64_t lm_available_in_group(uint64_t *limit);

/* Like lm_available_in_group, for the process whose /proc/PID/cgroup has the path `self` (NULL: the
 * calling process). memory.high counts as a limit too. The kernel kills no process because of
 * memory.high: it makes a group slow that is above it. All cached files count as free: the kernel
 * drops them before it kills a process, and counts a stall if they are missed. */
uint64_t lm_available_below_high(const char *self, uint64_t *limit);

/* Returns the percentage of the last ten seconds in which some task of the group waited for memory:
 * avg10 of the line "some" of the group's memory.pressure, rounded down to a whole number. The
 * process in that group has the file /proc/PID/cgroup at the path `self` (NULL: the calling
 * process). Where the group has no such file, the nearest group above it counts, and then the whole
 * machine (/proc/pressure/memory). -1: the kernel has none of these files, or keeps them from this
 * process. */
int lm_available_stalled(const char *self);

#if LOAM_CHECKS >= 1
/* For tests: replaces /proc/self/cgroup, /sys/fs/cgroup and /proc/meminfo by these paths. */
void lm_available_pretend(const char *self, const char *groups, const char *machine);
/* For tests: replaces /proc/pressure/memory by this path. */
void lm_available_pretend_stalls(const char *machine);
#endif

#endif
