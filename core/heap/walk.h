/* walk.h - visits each live object, in the order of addresses.
 *
 * A walk takes no lock, so other threads can allocate and free during it. An object that lives
 * during the whole walk is visited once, and its description was true at some moment of the
 * walk. */
#ifndef LM_WALK_H
#define LM_WALK_H

#include "heap/pool.h"

/* Called for a live object. Of the functions in pool.h it may call only lm_pool_retoken. */
typedef void lm_walk_visit(void *ctx, const lm_object *object);

/* Visits every live object. */
void lm_walk_each(lm_walk_visit *visit, void *ctx);
/* Called for n live objects of a strategy (an id), with `size` usable bytes each. */
typedef void lm_walk_count(void *ctx, uint32_t strategy, size_t size, uint32_t n);
/* Counts the live objects of each span, without their tokens: faster than lm_walk_each. */
void lm_walk_counts(lm_walk_count *visit, void *ctx);
/* Visits the live objects of the extent that begins at `slot`. */
void lm_walk_extent(uint32_t slot, lm_walk_visit *visit, void *ctx);

#endif
