/* available.h - whether memory is available now. loam tests this before it takes memory: if the
 * bound nodes or the control group have none left, the kernel does not refuse, it kills the
 * process. */
#ifndef LM_AVAILABLE_H
#define LM_AVAILABLE_H

#include "os/base.h"

/* Returns whether this process can take `bytes` now, from the nodes of a mask (0: from any node).
 * Keeps a little of the free memory back, since other processes take memory too. Returns true for
 * limits that it cannot read. Makes some system calls. Any thread may call it. */
bool lm_available_has(size_t bytes, uint64_t nodes);

/* Returns how many bytes the control groups of this process still allow; UINT64_MAX: there is no
 * limit. Sets *limit to the lowest limit, or UINT64_MAX. */
uint64_t lm_available_in_group(uint64_t *limit);

#if LOAM_CHECKS >= 1
/* For tests: replaces /proc/self/cgroup, /sys/fs/cgroup and /proc/meminfo by these paths. */
void lm_available_pretend(const char *self, const char *groups, const char *machine);
#endif

#endif
