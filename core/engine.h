/* engine.h - a request in, a pointer out: plan, strategy, fallback, account. loam.c calls these
 * after it has checked arguments; they set the error words on failure. */
#ifndef LM_ENGINE_H
#define LM_ENGINE_H

#include "site.h"

void *lm_engine_alloc(loam_site *site, size_t size, size_t align, bool zero);
void *lm_engine_realloc(loam_site *site, void *ptr, size_t size);
/* `guess` is the size a sized free claims, SIZE_MAX for none. */
void lm_engine_free(void *ptr, size_t guess);
bool lm_engine_owner(const void *ptr, loam_owner_info *out);
size_t lm_engine_usable(const void *ptr);

/* Site to use for a NULL one: scope, else default. */
loam_site *lm_engine_site(loam_site *site);

/* Starts keeping `live` exactly for the tag of a site whose plan reads it (policy.c, before a swap). */
void lm_engine_count_tag(loam_site *site);

#endif
