/* tails.h - makes the tails of large blocks inaccessible when memory is short and tails count.
 *
 * A large block has whole slots of 64 KiB. Its tail is the pages at the end of its slots that the
 * block does not need. A tail takes no memory, since no thread touches it. The kernel counts it all
 * the same against RLIMIT_DATA, as all memory that can be written. Where the system does not
 * overcommit (vm.overcommit_memory is 2), the kernel counts it against the free memory of the
 * system. So when the system has refused memory there, the tails of live blocks are cut: they
 * become inaccessible.
 *
 * A block without its tail is LM_USE_UNPREPARED. It cannot grow where it is, no thread caches it,
 * and when it is freed its slots go back to the range. It takes two of the mappings that the kernel
 * allows a process, so there are at most as many such blocks as guarded ones
 * (lm_large_guard_max). */
#ifndef LM_TAILS_H
#define LM_TAILS_H

#include "os/base.h"

/* Reads whether the kernel counts tails. Called at the start, and when the limits of the process
 * have changed, because a program may have given up the right to read files when memory becomes
 * short. */
void lm_tails_learn(void);
/* If the kernel counts tails, cuts the tails of all live large blocks of plain memory that have at
 * least a quarter of a slot. A block that another thread frees or resizes keeps its tail. Any
 * thread that is in no active section and holds no lock. */
void lm_tails_cut(void);

#endif
