/* metadata.h - memory for loam's own structures, from the same range as the pools', never from
 * malloc.
 *
 * Thread-safe, usable before anything else and inside an allocation: it takes locks of its own only
 * and knows neither policies nor thread caches. Counted as metadata. */
#ifndef LM_METADATA_H
#define LM_METADATA_H

#include "pages/map.h"

/* Zeroed, aligned to 16, and to a cache line if `size` is a multiple of one; NULL when there is no
 * memory. */
void *lm_metadata_alloc(size_t size);
/* The same, with whatever stands in it. */
void *lm_metadata_take(size_t size);
void *lm_metadata_realloc(void *p, size_t size);
void lm_metadata_free(void *p);
size_t lm_metadata_size(const void *p); /* usable bytes */

/* Makes sure that its locks are hooked to fork; before a module above it hooks its own. */
void lm_metadata_start(void);
/* Bytes of the range that it has memory for; that it has at all. */
size_t lm_metadata_held(void);
size_t lm_metadata_taken(void);
/* Gives back what is unused, or was since the last tick (decay.h). */
void lm_metadata_trim(void);
bool lm_metadata_decay(uint32_t *most);

bool lm_metadata_is_valid(void);

#endif
