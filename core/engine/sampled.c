/* sampled.c - allocates and frees the small objects that the profiler samples. */
#include "engine/sampled.h"

#include "heap/tcache_slow.h"

/* Takes an object from the bin of an entry as lm_tcache_take_ready does, but with the state of an
 * object that the profiler knows. */
static void *take_sampled(lm_thread *t, const lm_decision *d) {
  lm_bin *bin = lm_tcache_bin_at(t, d->bin);
  const lm_cached_object *last = lm_tcache_bin_top(bin) - 1;
  if (lm_tcache_is_sentinel(last)) return NULL;
  if (d->state > LM_STATE_COMMON_LAST && !lm_tcache_palette_has(last, d)) return NULL;
  lm_state sampled = LM_STATE_SAMPLED + d->state % LM_STATE_IDS;
  return lm_tcache_take_last(bin, last->p, last->cell, sampled);
}

LM_NOINLINE void *lm_sampled_serve(lm_thread *t, lm_decision_key k) {
  if (t->inside) return NULL;
  uint64_t key = lm_decision_enter(t, k);
  lm_decision *d = lm_decision_at(t, k);
  if (!lm_decision_is_due(d, key)) {
    lm_thread_leave(t);
    return NULL;
  }
  lm_load_fence();
  size_t size = lm_class_size(d->class_);
  uint32_t strategy = d->strategy;
  const loam_site *site = lm_site_at(atomic_load_explicit(&d->site, memory_order_relaxed));
  int32_t stock = lm_sample_stock(t, size);
  bool has_room = stock < LM_STATS_STOCK - 1 - d->start; /* to go on counting */
  void *p = has_room ? take_sampled(t, d) : NULL;
  if (p) lm_stats_restock(d, stock);
  lm_assert(lm_decision_is_valid(t, d));
  lm_thread_leave(t);
  if (p) lm_sample_take_marked(t, site, strategy, p, size);
  return p;
}

/* The object becomes a plain one and is then freed like any other. Of two threads that free it at
 * one time, by a mistake of the host's, only one makes it plain. */
LM_NOINLINE bool lm_sampled_free(lm_thread *t, void *ptr, lm_located met) {
  uint32_t bin = lm_load(uint32_t, &met.span->bin);
  lm_state state = lm_load(lm_state, met.cell);
  bool is_small = lm_tcache_bin_place(bin) && lm_tcache_bin_class(bin) < LM_CLASSES;
  if (!is_small || !lm_state_is_sampled(state) || !lm_lock_try_hold_now()) return false;
  lm_sample_forget(ptr);
  lm_state plain = LM_STATE_LIVE + state % LM_STATE_IDS;
  bool done = atomic_compare_exchange_strong_explicit(met.cell, &state, plain, memory_order_acq_rel,
                                                      memory_order_relaxed) &&
              (lm_tcache_give_located(t, ptr, met) || lm_tcache_give_full(t, ptr, met));
  lm_lock_allow_cancel();
  return done;
}
