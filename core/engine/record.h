/* record.h - what loam knows of a live block, whoever made it, and how it keeps account of it.
 *
 * Blocks of the pools are described by the page map. Blocks that handlers, the system's allocator
 * or a driver made are entries in a table of foreign blocks (pages/provided.h).
 *
 * Law: the bytes of a live block are part of what lives under its tag exactly if its token is
 * COUNTED; they are in strategy->used exactly if its strategy has a limit.
 *
 * A nested block is a handler's block that is itself loam's memory, because the handler's allocator
 * is loam. It is known twice: to the page map, with a COUNTED token of the request's site, by which
 * it is counted; and to the table of foreign blocks, with a token that is not counted. */
#ifndef LM_RECORD_H
#define LM_RECORD_H

#include "heap/pool.h"
#include "pages/provided.h"
#include "plan/site.h"

typedef struct lm_record {
  char *base;
  size_t size; /* usable bytes */
  lm_token token;
  uint32_t strategy; /* id */
  bool is_foreign;
  lm_provided foreign; /* only then */
} lm_record;

/* How many nested blocks live. */
extern _Atomic uint64_t lm_record_nested __attribute__((visibility("hidden")));

/* Returns whether p may be a nested block. */
LM_INLINE bool lm_record_is_nested(const void *p) {
  return lm_unlikely(atomic_load_explicit(&lm_record_nested, memory_order_relaxed)) &&
         lm_pool_owns(p);
}

/* Describes the live block that p points into. False: there is none. */
bool lm_record_find(const void *p, lm_record *out);
void lm_record_of_pool(const lm_object *object, lm_record *out);
void lm_record_of_foreign(const lm_provided *foreign, lm_record *out);

/* Enters a foreign block, of which *b says base, size and maker, for a site and a strategy. False:
 * loam has no memory for the entry, and nothing was done. */
bool lm_record_enter(lm_thread *t, const loam_site *site, const lm_strategy *s, lm_token token,
                     lm_record *b);
/* Takes the foreign block at p out of the table. False: there is none. */
bool lm_record_remove(lm_thread *t, const void *p, lm_record *out);

/* Gives a live block of a pool another token, and counts it under that one. While active. */
void lm_record_retoken(lm_record *b, lm_token token);

/* Fills *out for loam_owner. False: no live block is there. */
bool lm_record_owner(const void *p, loam_owner_info *out);
/* Returns whether a live block begins at p. */
bool lm_record_is_block(const void *p);
/* Usable bytes of the live block that begins at p; 0 if there is none, and for an empty guarded
 * block (lm_large_is_empty). */
size_t lm_record_usable(const void *p);

#endif
