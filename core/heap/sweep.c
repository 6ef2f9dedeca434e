/* sweep.c - bins that idle are emptied, and what nobody needs goes back to the system. */
#include "heap/sweep.h"

#include "heap/pools.h"
#include "os/decay.h"
#include "pages/states.h"

/* What one tick of decay gives back at most, in slots (512 MiB): the system takes some 50 ms to. */
enum { DECAY_MOST = 8192 };

/* Held, before those of pools.h, from the claims of a sweep until what was claimed is taken: a
 * claim that somebody else made since is not covered by this sweep's grace. Fork does not wait for
 * it. */
static lm_lock sweeping;

/* ---- Idle bins
 *
 * A thread is asked to give up the bins that it did not use since it was last asked, by
 * LM_SLOW_CLAIMED. Its next operation takes that back, and does it; if after a grace it has not, it
 * is in no operation, and while LM_SLOW_TAKING keeps it out of the next one, whoever asked does. */

enum { HAULS = 4096 };

/* While set, what is asked of threads is what is_recalled says, only that. */
static _Atomic bool recalling;

typedef struct sweep {
  bool all; /* idle or not */
  bool recall;
  bool more; /* some were not idle */
  uint32_t n;
  struct {
    lm_tcache_batch what;
    lm_pool *pool;
    unsigned class_;
  } haul[HAULS];
} sweep;

static bool is_recalled(const lm_pool *pool, unsigned class_) {
  return class_ < LM_CLASSES &&
         (atomic_load_explicit(&pool->store[class_].apart, memory_order_relaxed) ||
          atomic_load_explicit(&pool->recalled, memory_order_relaxed));
}

static bool is_idle(sweep *w, lm_bin *bin) {
  lm_cached_object *top = lm_pool_bin_top(bin);
  bool idle = w->all || top == bin->seen;
  bin->seen = top;
  if (!idle && top > bin->low) w->more = true;
  return idle;
}

static void sweep_pool(sweep *w, lm_pool *pool, lm_pool_bins *bins) {
  for (unsigned c = 0; c < LM_CLASSES_ALL && w->n < HAULS; c++) {
    if (!lm_tcache_bin_is_open(&bins->bin[c])) continue;
    if (w->recall ? !is_recalled(pool, c) : !is_idle(w, &bins->bin[c])) continue;
    w->haul[w->n].pool = pool;
    w->haul[w->n].class_ = c;
    w->haul[w->n++].what = lm_tcache_bin_close(bins, c);
  }
}

static void sweep_thread(sweep *w, lm_thread *t) {
  lm_thread_bins *bins = lm_pool_bins_of(t);
  for (uint32_t place = bins->first; place; place = bins->pool[place].next) {
    lm_strategy *strategy = lm_pool_holder(place);
    if (strategy && lm_pool_of(strategy)) sweep_pool(w, lm_pool_of(strategy), &bins->pool[place]);
  }
}

static void stow_all(sweep *w) {
  for (uint32_t i = 0; i < w->n; i++)
    lm_tcache_batch_return(w->haul[i].pool, w->haul[i].class_, &w->haul[i].what);
  w->n = 0;
}

static void claim(lm_thread *t, void *ctx) {
  (void)ctx;
  if (t != lm_thread_self) lm_thread_set_slow(t, LM_SLOW_CLAIMED);
}

static void take_claimed(lm_thread *t, void *ctx) {
  uint32_t wary = atomic_load_explicit(&t->slow_reasons, memory_order_relaxed);
  do {
    if (!(wary & LM_SLOW_CLAIMED)) return;
  } while (!atomic_compare_exchange_weak_explicit(
      &t->slow_reasons, &wary, (wary & ~(uint32_t)LM_SLOW_CLAIMED) | LM_SLOW_TAKING,
      memory_order_acq_rel, memory_order_relaxed));
  sweep_thread(ctx, t);
  lm_thread_clear_slow(t, LM_SLOW_TAKING);
}

/* Made once: what a tick takes and gives back would itself be something to give back. */
static sweep *sweep_locked(bool all) {
  static sweep *kept;
  if (!kept && !(kept = lm_metadata_alloc(sizeof *kept))) return NULL;
  kept->n = 0;
  kept->all = all;
  kept->recall = atomic_load_explicit(&recalling, memory_order_relaxed);
  kept->more = false;
  return kept;
}

static bool sweep_threads_locked(bool all) {
  sweep *w = sweep_locked(all);
  if (!w) return false;
  lm_thread_each(claim, NULL);
  if (!lm_thread_grace()) return false;
  lm_lock_take(&lm_pools_make_lock);
  lm_thread_each(take_claimed, w);
  if (lm_thread_self) sweep_thread(w, lm_thread_self);
  stow_all(w);
  lm_lock_drop(&lm_pools_make_lock);
  return w->more;
}

/* True if there are bins in use. Not under lm_pools_end_lock, since it waits for who may wait for
 * that. */
static bool sweep_threads(bool all, bool recall) {
  lm_lock_take(&sweeping);
  atomic_store_explicit(&recalling, recall, memory_order_relaxed);
  bool more = sweep_threads_locked(all);
  atomic_store_explicit(&recalling, false, memory_order_relaxed);
  lm_lock_drop(&sweeping);
  return more;
}

/* The thread's own: it was asked, and is at work. */
void lm_sweep_claimed_thread(lm_thread *t) {
  sweep *w = lm_metadata_alloc(sizeof *w);
  if (!w) return;
  w->recall = atomic_load_explicit(&recalling, memory_order_relaxed);
  lm_lock_take(&lm_pools_make_lock);
  sweep_thread(w, t);
  stow_all(w);
  lm_lock_drop(&lm_pools_make_lock);
  lm_metadata_free(w);
  lm_decay_stir();
}

void lm_sweep_fork_child(void) { lm_lock_renew(&sweeping); }

void lm_sweep_recall(void) { (void)sweep_threads(false, true); }

/* ---- Memory that nobody needs */

static void trim_pool(lm_pool *pool) {
  for (unsigned c = 0; c < LM_CLASSES; c++) lm_central_trim(&pool->store[c]);
  (void)lm_large_unpark(&pool->large);
  lm_regions_trim(&pool->regions);
}

size_t lm_sweep_trim(void) {
  size_t before = lm_regions_released();
  if (lm_thread_self) lm_pools_flush(lm_thread_self);
  (void)sweep_threads(true, false);
  lm_lock_take(&lm_pools_end_lock);
  lm_pools_each(trim_pool);
  lm_states_trim();
  lm_metadata_trim();
  lm_lock_drop(&lm_pools_end_lock);
  return lm_regions_released() - before;
}

static bool decay_pool(lm_pool *pool, uint32_t *most) {
  bool more = false;
  for (unsigned c = 0; c < LM_CLASSES; c++) more |= lm_central_decay(&pool->store[c]);
  more |= lm_large_unpark(&pool->large);
  return lm_regions_decay(&pool->regions, most) || more;
}

void lm_sweep_decay(void) {
  uint32_t most = DECAY_MOST;
  lm_decay_begin();
  bool more = sweep_threads(false, false);
  lm_lock_take(&lm_pools_end_lock);
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (lm_pools_at(id)) more |= decay_pool(lm_pools_at(id), &most);
  more |= lm_states_decay(&most);
  more |= lm_metadata_decay(&most);
  lm_lock_drop(&lm_pools_end_lock);
  lm_decay_end(more);
}
