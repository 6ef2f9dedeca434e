/* record.h - what loam knows of a live block, whoever made it, and how it keeps account of it.
 *
 * Blocks of the pools are described by the page map. Blocks that handlers, the system's allocator
 * or a driver made are entries in a table of provided blocks (pages/provided.h).
 *
 * Law: the bytes of a live block are counted as live bytes of its tag exactly if its token is
 * COUNTED. They are counted in the `used` of its strategy's account (heap/strategy.h) exactly if
 * the strategy has a limit.
 *
 * A nested block is a handler's block in memory of loam's pools, because the handler itself
 * allocates from loam. loam knows it twice. The page map has it with a COUNTED token of the
 * request's site, and this token makes it counted. The table of provided blocks has it with a token
 * that is not counted. */
#ifndef LM_RECORD_H
#define LM_RECORD_H

#include "heap/pool.h"
#include "pages/provided.h"
#include "plan/site.h"

/* The record of a block of a pool has the maker LM_PROVIDER_HEAP. It has no `made`, `asked`,
 * `handler` and `context`. */
typedef lm_provided lm_record;

/* How many nested blocks live. */
extern _Atomic uint64_t lm_record_nested __attribute__((visibility("hidden")));

/* Returns whether p may be a nested block. */
LM_INLINE bool lm_record_is_nested(const void *p) {
  return lm_unlikely(atomic_load_explicit(&lm_record_nested, memory_order_relaxed)) &&
         lm_pool_owns(p);
}

/* Returns whether a record of a live block can be true: it has a base, a size above 0 unless it is
 * an empty guarded block (lm_large_is_empty), a token of a site, a strategy, and the maker
 * LM_PROVIDER_HEAP only in the range of the pools. Constant time. */
bool lm_record_is_valid(const lm_record *b);

/* Describes the live block that p points into. False: there is none. */
bool lm_record_find(const void *p, lm_record *out);
/* Describes the object of a pool. */
LM_INLINE void lm_record_of_object(const lm_object *object, lm_record *out) {
  *out = (lm_record){ .base = object->base,
                      .size = object->size,
                      .token = object->token,
                      .strategy = object->strategy,
                      .maker = LM_PROVIDER_HEAP,
                      .device = -1 };
}

/* Enters a provided block into the table, as a block of `site` and of its own strategy, and counts
 * it. Its other fields say where it begins, how large it is and who provides it. `node` is one that
 * lm_record_remove kept, and then this cannot fail, or NULL. Returns false if loam has no memory
 * for the entry; nothing has changed then. */
bool lm_record_enter(lm_thread *t, const loam_site *site, lm_token token, lm_record *b,
                     lm_provided_node *node);
/* Takes the provided block that begins at p out of the table, and copies it to *out. If `node` is
 * not NULL, *node is what the caller gives to lm_record_enter afterwards. Returns false if there is
 * no such block. */
bool lm_record_remove(lm_thread *t, const void *p, lm_record *out, lm_provided_node **node);

/* Gives a live block of a pool another token, and counts it under that one and no more under the
 * old one. The thread is active. */
void lm_record_retoken(lm_record *b, lm_token token);

/* Usable bytes of the live block that begins at p; 0 if there is none, and for an empty guarded
 * block (lm_large_is_empty). */
size_t lm_record_usable(const void *p);

#endif
