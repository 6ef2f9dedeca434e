/* pagemap.h - which pages of a process have memory: the call PAGEMAP_SCAN of Linux 6.7, which
 * returns ranges of pages that are alike. Documentation/admin-guide/mm/pagemap.rst of Linux
 * describes it. */
#ifndef LM_PAGEMAP_H
#define LM_PAGEMAP_H

#include "os/descriptor.h"

/* A page may have several of these properties. A page of zeros is one that the kernel shows to all
 * processes: it is present, but takes no memory. Before Linux 6.16 the kernel does not say so of
 * the huge page of zeros. Reserved huge pages are huge too. */
enum {
  LM_PAGEMAP_PRESENT = 1 << 3,
  LM_PAGEMAP_SWAPPED = 1 << 4,
  LM_PAGEMAP_ZERO = 1 << 5,
  LM_PAGEMAP_HUGE = 1 << 6,
};

/* A range of pages, and the sum of LM_PAGEMAP_* that holds for each of them. */
typedef struct lm_pagemap_run {
  uint64_t from, to, is;
} lm_pagemap_run;

/* Opens the page table of a process; `pid` is 0 for this process. None, with errno: the kernel
 * refuses, or the process has ended. */
lm_descriptor lm_pagemap_open(int pid);

/* Calls `visit` for the pages of [from, to) that are present or in swap, by ascending address.
 * Returns 0 or an errno value: ENOTTY or EINVAL if the kernel has no such call, and EFAULT if the
 * range is not of the process. */
typedef void lm_pagemap_visit(void *ctx, const lm_pagemap_run *run);
int lm_pagemap_scan(const lm_descriptor *pagemap, uintptr_t from, uintptr_t to,
                    lm_pagemap_visit *visit, void *ctx);

/* Returns whether memory is used by the pages of a run. */
LM_INLINE bool lm_pagemap_is_resident(const lm_pagemap_run *run) {
  return run->is & LM_PAGEMAP_PRESENT && !(run->is & LM_PAGEMAP_ZERO);
}

#endif
