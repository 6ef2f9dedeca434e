/* resident.h - the memory of the process that is in RAM: loam's part, and the other parts. */
#ifndef LM_RESIDENT_H
#define LM_RESIDENT_H

#include "os/base.h"

/* Bytes in memory (RSS): of the whole process, and of loam's address range, which holds the pools
 * of host memory and loam's own structures. The entries of the page map (pages/map.h) lie before
 * the range and do not count for `own`. All fields are 0 if the kernel does not tell.
 *
 * Law: all >= own + files + stacks + code. The difference is in other mappings without a file,
 * such as the arenas of pymalloc, Python's own allocator. */
typedef struct lm_resident {
  uint64_t all, own;
  uint64_t files;  /* mapped files: programs, libraries, data, shared memory with a name */
  uint64_t stacks; /* of threads: mappings directly above a guard of at least a page */
  uint64_t code;   /* executable mappings without a file: code made at run time (JIT) */
} lm_resident;

/* Returns whether the law of the figures holds. */
LM_INLINE bool lm_resident_is_valid(const lm_resident *r) {
  return r->all >= r->own + r->files + r->stacks + r->code;
}

/* Reads the figures of this process. The kernel visits every page table of the process for that.
 * This takes a millisecond, and more for many gigabytes, so only answers to people call it.
 * Allocates nothing and takes no lock of loam. */
lm_resident lm_resident_read(void);
/* Like lm_resident_read, for the process `pid`, whose range of loam is from `from` to `to`. */
lm_resident lm_resident_of(int pid, uintptr_t from, uintptr_t to);

#endif
