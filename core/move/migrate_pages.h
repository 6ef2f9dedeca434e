/* migrate_pages.h - brings memory in use from one preparation (region.h) to another, at its
 * address. */
#ifndef LM_MIGRATE_PAGES_H
#define LM_MIGRATE_PAGES_H

#include "pages/region.h"

/* Why it cannot be done at all, in words; NULL: it can be tried. */
const char *lm_migrate_pages_refusal(const lm_preparation *from, const lm_preparation *to,
                                     const void *at, size_t size);

/* Pages are moved to their nodes, huge pages made or split, pages locked or let go, faulted in:
 * whoever uses the memory meanwhile only waits for a page at a time. 0 or an errno; then it has
 * been done in part, and is undone by the reverse. Huge pages are advice: without them it
 * succeeds. `size` is a multiple of LM_PAGE, better of 2 MiB. */
int lm_migrate_pages(const lm_preparation *from, const lm_preparation *to, void *at, size_t size);
/* That was the error of a process that may not do such at all: nothing has been done. */
bool lm_migrate_pages_is_barred(int error);

/* Bytes that the kernel left elsewhere than it was told to, and why (lm_numa_misplaced). */
size_t lm_migrate_pages_misplaced(const lm_preparation *from, const lm_preparation *to,
                                  const void *at, size_t size, int *why);
/* Brings pages that spilled over back to the nodes of the preparation (lm_numa_fetch). */
size_t lm_migrate_pages_fetch(const lm_preparation *how, void *at, size_t size, size_t *left,
                              int *why);

#endif
