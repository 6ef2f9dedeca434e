/* migrate_pages.h - changes the preparation (region.h) of pages that a program is using.
 *
 * The addresses stay; the program that touches a page while it is moved waits for that page. */
#ifndef LM_MIGRATE_PAGES_H
#define LM_MIGRATE_PAGES_H

#include "pages/region.h"

/* Returns the reason, in static words, why the pages of a range can never be changed from one
 * preparation to the other; NULL if it can be tried. */
const char *lm_migrate_pages_refusal(const lm_preparation *from, const lm_preparation *to,
                                     const void *at, size_t size);

/* Changes the pages of a range from one preparation to the other: moves them to their NUMA nodes,
 * makes or splits huge pages, locks or unlocks pages, faults them in. Returns 0 or an errno. After
 * an error only a part may have been done; a call with `from` and `to` exchanged undoes that part.
 * Huge pages are a wish: without them the call succeeds too. `at` and `size` are multiples of
 * LM_PAGE, better of 2 MiB. */
int lm_migrate_pages(const lm_preparation *from, const lm_preparation *to, void *at, size_t size);

/* Returns whether an error of lm_migrate_pages says that this process may not move pages at all.
 * Then nothing has been changed. */
bool lm_migrate_pages_is_barred(int error);

/* Returns the bytes of a range that are on other nodes than `to` names, after lm_migrate_pages.
 * *why is the errno that says why (lm_numa_misplaced), or 0. */
size_t lm_migrate_pages_misplaced(const lm_preparation *from, const lm_preparation *to,
                                  const void *at, size_t size, int *why);

/* Moves the pages of a range that spilled over back to the nodes that `how` names, which are not
 * none. Returns the bytes that came; *left is the bytes that did not, and *why the errno that says
 * why (lm_numa_fetch). */
size_t lm_migrate_pages_fetch(const lm_preparation *how, void *at, size_t size, size_t *left,
                              int *why);

#endif
