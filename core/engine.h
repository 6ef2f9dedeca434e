/* engine.h - a request in, a pointer out: plan, strategy, fallback, account. loam.c calls these
 * after it has checked arguments; they set the error words on failure. */
#ifndef LM_ENGINE_H
#define LM_ENGINE_H

#include "site.h"
#include "stats.h"

void *lm_engine_alloc(loam_site *site, size_t size, size_t align, bool zero);
void *lm_engine_realloc(loam_site *site, void *ptr, size_t size);
/* `guess` is the size a sized free claims, SIZE_MAX for none. */
void lm_engine_free(void *ptr, size_t guess);
bool lm_engine_owner(const void *ptr, loam_owner_info *out);
size_t lm_engine_usable(const void *ptr);

/* Site to use for a NULL one: scope, else default. */
loam_site *lm_engine_site(loam_site *site);

/* Keeping `live` exactly for the tags whose plans read it (policy.c, before a swap): mark each tag,
 * then settle once, which walks live memory if any tag is new; blocks of marked tags are counted
 * from then on. The caller is not inside an operation. */
void lm_engine_count_mark(loam_site *site);
void lm_engine_count_settle(void);
/* Both. */
void lm_engine_count_tag(loam_site *site);

/* Registers with threads, once; before anything is allocated. */
void lm_engine_start(void);

/* The site of the thread's scope, else the default. */
LM_INLINE loam_site *lm_engine_scope(const lm_thread *t) {
  loam_site *site = t->depth ? t->scope[(t->depth < LM_SCOPES ? t->depth : LM_SCOPES) - 1] : NULL;
  return site ? site : &lm_site_empty;
}

/* What the site's plan says of a small size; bin 0 if it has to be decided. While active. */
LM_INLINE lm_serve lm_engine_serve(loam_site *site, size_t size, bool zero, lm_token *token) {
  /* Acquire pairs with the swap: the decisions of this parity are seen. */
  uint64_t generation = atomic_load_explicit(&lm_generation, memory_order_acquire);
  lm_decision *d = &site->now[generation & 1];
  const lm_plan *plan = atomic_load_explicit(&d->plan, memory_order_acquire);
  *token = atomic_load_explicit(&d->token, memory_order_relaxed);
  lm_serve serve = lm_table_at(&plan->table, size);
  /* Of counted tags every block is decided: see lm_engine_count_settle. */
  if (lm_unlikely(atomic_load_explicit(&site->counted, memory_order_relaxed))) serve.bin = 0;
  if (zero && lm_unlikely(plan->reads & 1u << LM_IN_ZERO)) serve.bin = 0;
  return serve;
}

/* Most allocations, whole, without a call: of a size that the site's plan serves from a bin, not
 * empty, in a thread that allocated the like of it just before. False: ask lm_engine_alloc. */
LM_INLINE bool lm_engine_take(lm_thread *t, loam_site *site, size_t size, bool zero, void **out) {
  lm_token token;
  bool taken = false;
  lm_thread_enter(t);
  lm_serve serve = lm_engine_serve(site, size, zero, &token);
  lm_tally *tally = lm_stats_entry(t, site->index, serve.strategy);
  if (lm_likely(serve.bin && lm_stats_is_of(tally, site->index, serve.strategy))) {
    taken = lm_pool_bin_at(t, serve.bin)->n != 0;
    if (lm_likely(taken)) {
      *out = lm_pool_take(t, serve.bin, token);
      lm_stats_add(&tally->blocks, 1);
      lm_stats_add(&tally->bytes, serve.units * (size_t)16);
    }
  }
  lm_thread_leave(t);
  return taken;
}

/* Most frees. False: ask lm_engine_free. */
LM_INLINE bool lm_engine_give(lm_thread *t, void *p) {
  lm_thread_enter(t);
  bool freed = lm_pool_give(t, p);
  lm_thread_leave(t);
  return freed;
}

#endif
