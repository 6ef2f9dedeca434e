/* resident.h - how much of the process is in memory, and how much of that is loam's. */
#ifndef LM_RESIDENT_H
#define LM_RESIDENT_H

#include <stdint.h>

/* Bytes in memory (RSS): of the whole process, and of loam's address range, which holds the pools
 * of host memory and loam's own structures. The entries of the page map (pages/map.h) lie before
 * the range and count for `all` only. Both are 0 if the kernel does not tell. */
typedef struct lm_resident {
  uint64_t all, own;
} lm_resident;

/* Reads /proc/PID/smaps, for which the kernel visits every page table of the process. This takes a
 * millisecond, and more for many gigabytes, so only answers to people call it. Allocates nothing
 * and takes no lock of loam. */
lm_resident lm_resident_read(void);
/* Like lm_resident_read, for the process `pid`, whose range of loam is from `from` to `to`. */
lm_resident lm_resident_of(int pid, uintptr_t from, uintptr_t to);

#endif
