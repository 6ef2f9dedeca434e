/* walk.h - each live object, in the order of addresses. Lock-free against allocations and frees:
 * each is seen as it was at some moment. */
#ifndef LM_WALK_H
#define LM_WALK_H

#include "heap/pool.h"

/* It may call lm_pool_retoken and nothing else of the pool. */
typedef void lm_walk_visit(void *ctx, const lm_object *object);

void lm_walk_each(lm_walk_visit *visit, void *ctx);
/* The same for who does not ask whose they are: n of a strategy, of so many bytes each, a span of
 * small ones at once. */
typedef void lm_walk_count(void *ctx, uint32_t strategy, size_t size, uint32_t n);
void lm_walk_counts(lm_walk_count *visit, void *ctx);
/* Those of the extent that begins at `slot`. */
void lm_walk_extent(uint32_t slot, lm_walk_visit *visit, void *ctx);

#endif
