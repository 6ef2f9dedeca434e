/* sweep.c - empties idle bins, and gives free memory back to the system.
 *
 * A tick of the service thread sweeps the bins of all threads and goes through all pools. Where no
 * service thread ticks, threads do the tick in steps from their slow paths (decay.h). A thread that
 * takes slow paths then gives up its own idle bins. For the other threads, the first step of a tick
 * claims their bins, and a step at least 10 ms later takes the bins of those that are still in no
 * operation.
 *
 * If memory becomes short in the control group (os/pressure.h), the age of free memory no longer
 * counts: with the next slow path of a thread all of it goes back, and ticks follow each other
 * soon.
 *
 * LM_SLOW_CLAIMED asks a thread to give up the bins that it did not use since the last sweep. Its
 * next operation takes the bit back and does that. If the bit is still set after a grace, or after
 * lm_thread_has_calmed, the thread is in no operation. The thread that sweeps then sets
 * LM_SLOW_TAKING, which keeps the other thread out of its next operation, and empties the bins
 * itself. */
#include "heap/sweep.h"

#include "heap/pools.h"
#include "heap/tails.h"
#include "heap/tcache_slow.h"
#include "os/decay.h"
#include "os/pressure.h"
#include "os/sys.h"
#include "pages/metadata.h"
#include "pages/states.h"

/* The slots (512 MiB) that one tick gives back at most. The system needs about 50 ms for that. */
enum { DECAY_MAX = 8192 };

/* Held from the claims of a sweep until the claimed bins are taken: a claim that another thread
 * makes later is not covered by the grace of this sweep. A tick that is done in steps drops the
 * lock between its claims and their taking, so it looks at `claims` then. Taken before the locks of
 * pools.h. Its holder is in a guarded section, so a fork waits for the end of a sweep, or of a step
 * of a tick. */
static lm_lock sweeping;

/* ---- Idle bins ---------------------------------------------------------------------------- */

enum { BATCHES_MAX = 4096 };

/* How many sweeps have claimed threads. Guarded by `sweeping`. */
static uint32_t claims;

/* How many ticks without a service thread have begun. Relaxed: a thread that sees it late gives up
 * its bins later. */
static _Atomic uint32_t ticks;

static uint32_t ticks_begun(void) { return atomic_load_explicit(&ticks, memory_order_relaxed); }

/* Notes that the calling thread has given up its idle bins. */
static void note_swept(lm_thread *t) {
  atomic_store_explicit(&lm_tcache_of(t)->swept, ticks_begun(), memory_order_relaxed);
}

/* While true, claimed threads give up the bins for which is_recalled holds, and no others. Relaxed:
 * the claim itself orders it. */
static _Atomic bool recalling;

/* The bins that one sweep closed. Law: n <= most <= BATCHES_MAX; not both `all` and `recall`. */
typedef struct sweep {
  bool all;    /* bins that are not idle are closed too */
  bool recall; /* only bins for which is_recalled holds are closed */
  bool more;   /* some bins with objects were not idle */
  uint32_t n, most;
  struct {
    lm_tcache_batch objects;
    lm_pool *pool;
    unsigned class_;
  } batch[BATCHES_MAX];
} sweep;

LM_INLINE bool sweep_is_valid(const sweep *w) {
  return w->n <= w->most && w->most <= BATCHES_MAX && !(w->all && w->recall);
}

static bool is_recalled(const lm_pool *pool, unsigned class_) {
  return class_ < LM_CLASSES &&
         (atomic_load_explicit(&pool->central[class_].detached, memory_order_relaxed) ||
          atomic_load_explicit(&pool->recalled, memory_order_relaxed));
}

/* Tells whether the bin was not used since the last sweep, and begins the next interval. */
static bool is_idle(sweep *w, lm_bin *bin) {
  lm_cached_object *top = lm_tcache_bin_top(bin);
  bool idle = w->all || top == bin->seen;
  bin->seen = top;
  if (!idle && top > bin->low) w->more = true;
  return idle;
}

static void sweep_pool(sweep *w, lm_pool *pool, lm_pool_bins *bins) {
  lm_assert(sweep_is_valid(w));
  for (unsigned c = 0; c < LM_CLASSES_ALL && w->n < w->most; c++) {
    if (!lm_tcache_bin_is_open(&bins->bin[c])) continue;
    if (w->recall ? !is_recalled(pool, c) : !is_idle(w, &bins->bin[c])) continue;
    w->batch[w->n].pool = pool;
    w->batch[w->n].class_ = c;
    w->batch[w->n++].objects = lm_tcache_bin_close(bins, c);
  }
  lm_assert(sweep_is_valid(w));
}

static void sweep_thread(sweep *w, lm_thread *t) {
  lm_thread_bins *bins = lm_tcache_of(t);
  for (uint32_t place = bins->first; place; place = bins->pool[place].next) {
    lm_strategy *strategy = lm_pool_holder(place);
    if (strategy && lm_pool_of(strategy)) sweep_pool(w, lm_pool_of(strategy), &bins->pool[place]);
  }
}

static void return_all(sweep *w) {
  for (uint32_t i = 0; i < w->n; i++)
    lm_tcache_batch_return(w->batch[i].pool, w->batch[i].class_, &w->batch[i].objects);
  w->n = 0;
}

static void claim(lm_thread *t, void *ctx) {
  (void)ctx;
  if (t != lm_thread_self) lm_thread_set_slow(t, LM_SLOW_CLAIMED);
}

/* Empties the bins of a thread that has not taken back its claim. The grace has made the thread's
 * last operation visible. Release pairs with the acquire in lm_thread_enter: the thread's next
 * operation finds these bins closed. */
static void take_claimed(lm_thread *t, void *ctx) {
  uint32_t slow = atomic_load_explicit(&t->slow_reasons, memory_order_relaxed);
  do {
    if (!(slow & LM_SLOW_CLAIMED)) return;
  } while (!atomic_compare_exchange_weak_explicit(
      &t->slow_reasons, &slow, (slow & ~(uint32_t)LM_SLOW_CLAIMED) | LM_SLOW_TAKING,
      memory_order_acq_rel, memory_order_relaxed));
  sweep_thread(ctx, t);
  lm_thread_clear_slow(t, LM_SLOW_TAKING);
}

/* The struct of a sweep; NULL: there is no memory. It is made once, because memory that each tick
 * takes and frees would itself be idle memory to give back. */
static sweep *begin_locked(bool all) {
  static sweep *kept;
  if (!kept && !(kept = lm_metadata_alloc(sizeof *kept))) return NULL;
  kept->n = 0;
  kept->most = BATCHES_MAX;
  kept->all = all;
  kept->recall = atomic_load_explicit(&recalling, memory_order_relaxed);
  kept->more = false;
  return kept;
}

static bool sweep_threads_locked(bool all) {
  sweep *w = begin_locked(all);
  if (!w) return false;
  claims++;
  lm_thread_each(claim, NULL);
  if (!lm_thread_grace()) return false;
  lm_lock_take(&lm_pools_make_lock);
  lm_thread_each(take_claimed, w);
  if (lm_thread_self) sweep_thread(w, lm_thread_self);
  return_all(w);
  lm_lock_drop(&lm_pools_make_lock);
  return w->more;
}

/* Empties the bins of all threads, as `all` and `recall` say. True: some bins are in use. Not under
 * lm_pools_end_lock, because it waits for threads that may wait for that lock. */
static bool sweep_threads(bool all, bool recall) {
  lm_assert(!(all && recall));
  lm_lock_take(&sweeping);
  atomic_store_explicit(&recalling, recall, memory_order_relaxed);
  bool more = sweep_threads_locked(all);
  atomic_store_explicit(&recalling, false, memory_order_relaxed);
  lm_lock_drop(&sweeping);
  return more;
}

/* Gives up the recalled bins of the calling thread, which has memory of its own for this, because
 * the sweep's struct is in use. */
static void give_up_recalled(lm_thread *t) {
  sweep *w = lm_metadata_alloc(sizeof *w);
  if (!w) return;
  w->recall = true;
  w->most = BATCHES_MAX;
  lm_lock_take(&lm_pools_make_lock);
  sweep_thread(w, t);
  return_all(w);
  lm_lock_drop(&lm_pools_make_lock);
  lm_metadata_free(w);
}

/* The lock keeps pools from being retired during this. */
static void give_up_idle(lm_thread *t) {
  lm_lock_take(&lm_pools_make_lock);
  lm_tcache_flush_idle(t);
  lm_lock_drop(&lm_pools_make_lock);
  note_swept(t);
}

void lm_sweep_claimed_thread(lm_thread *t) {
  if (atomic_load_explicit(&recalling, memory_order_relaxed)) give_up_recalled(t);
  else give_up_idle(t);
  lm_decay_stir();
}

void lm_sweep_recall(void) { (void)sweep_threads(false, true); }

/* ---- Free memory -------------------------------------------------------------------------- */

static void trim_pool(lm_pool *pool) {
  for (unsigned c = 0; c < LM_CLASSES; c++) lm_central_trim(&pool->central[c]);
  (void)lm_large_unpark(&pool->large);
  lm_regions_trim(&pool->regions);
}

size_t lm_sweep_trim(void) {
  size_t before = lm_regions_released();
  if (lm_thread_self) lm_tcache_flush_thread(lm_thread_self);
  (void)sweep_threads(true, false);
  lm_lock_take(&lm_pools_end_lock);
  lm_pools_each(trim_pool);
  lm_states_trim();
  lm_metadata_trim();
  lm_thread_trim_vacant();
  lm_lock_drop(&lm_pools_end_lock);
  return lm_regions_released() - before;
}

/* Registered memory is given back by its driver alone. */
static void drain_pool(lm_pool *pool) {
  if (!pool->regions.how.registered && !pool->regions.how.stays)
    (void)lm_regions_drain(&pool->regions);
}

/* Until when the time that reclaims took is still to be balanced by other work: each nanosecond of
 * a reclaim counts for RECLAIM_PART. Relaxed: it orders nothing, and two threads may reclaim at a
 * time. */
static _Atomic int64_t reclaim_debt_ns;

/* Returns whether pools of plain memory have at least 1 MiB of free slots together: a reclaim gives
 * these back. */
static bool has_free_slots(void) {
  size_t free_bytes = 0;
  lm_lock_take(&lm_pools_make_lock);
  for (uint32_t id = 0, n = lm_strategy_count(); id < n && free_bytes < LM_MIB; id++) {
    lm_pool *pool = lm_pools_at(id);
    if (!pool || !lm_region_is_plain(&pool->regions.how)) continue;
    size_t used = (size_t)lm_regions_used(&pool->regions) << LM_SLOT_SHIFT;
    size_t size = lm_regions_size(&pool->regions);
    if (size > used) free_bytes += size - used;
  }
  lm_lock_drop(&lm_pools_make_lock);
  return free_bytes >= LM_MIB;
}

bool lm_sweep_reclaim(void) {
  enum { RECLAIM_PART = 10, MOST_DEBT_NS = 2000000000 };
  int64_t begun = lm_sys_clock_ns();
  int64_t debt = atomic_load_explicit(&reclaim_debt_ns, memory_order_relaxed);
  if (debt - begun > MOST_DEBT_NS && !has_free_slots()) return false;
  (void)lm_sweep_trim();
  lm_lock_take(&lm_pools_end_lock);
  lm_pools_each(drain_pool);
  lm_lock_drop(&lm_pools_end_lock);
  lm_tails_cut();
  int64_t took = lm_sys_clock_ns() - begun;
  atomic_store_explicit(&reclaim_debt_ns, (debt > begun ? debt : begun) + RECLAIM_PART * took,
                        memory_order_relaxed);
  return true;
}

/* The child may have limits of its own, so it owes nothing for what its parent reclaimed. A word
 * that is 0 is not written, as in lm_lock_renew. */
void lm_sweep_fork_child(void) {
  lm_lock_renew(&sweeping);
  if (atomic_load_explicit(&reclaim_debt_ns, memory_order_relaxed))
    atomic_store_explicit(&reclaim_debt_ns, 0, memory_order_relaxed);
  lm_decay_note_unserved();
}

static bool decay_pool(lm_pool *pool, uint32_t *most) {
  bool more = false;
  for (unsigned c = 0; c < LM_CLASSES; c++) more |= lm_central_decay(&pool->central[c]);
  more |= lm_large_unpark(&pool->large);
  return lm_regions_decay(&pool->regions, most) || more;
}

void lm_sweep_decay(void) {
  uint32_t most = DECAY_MAX;
  lm_decay_note_served(lm_sys_clock_ns());
  lm_decay_begin();
  bool more = sweep_threads(false, false);
  lm_lock_take(&lm_pools_end_lock);
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (lm_pools_at(id)) more |= decay_pool(lm_pools_at(id), &most);
  more |= lm_states_decay(&most);
  more |= lm_metadata_decay(&most);
  more |= lm_thread_decay_vacant();
  lm_lock_drop(&lm_pools_end_lock);
  lm_decay_end(more);
}

/* ---- Memory is short ---------------------------------------------------------------------- */

/* An alarm makes a request take at most this long, and then some of the next requests, until all
 * free memory went back. */
#define ALARM_STEP_NS 20000000

/* lm_pressure_word of the last alarm for which all free memory went back. Written under `sweeping`.
 * Relaxed: a thread that sees an old value looks again under the lock. */
static _Atomic uint32_t obeyed_alarm;

/* The position of a trim that is done in steps. Guarded by `sweeping`. */
static struct {
  uint32_t alarm;  /* the word of the alarm */
  uint32_t id;     /* of the strategy whose pool is next */
  unsigned class_; /* the class of that pool whose list is next */
} alarm_step;

static bool is_obeyed(uint32_t alarm) {
  return atomic_load_explicit(&obeyed_alarm, memory_order_relaxed) == alarm;
}

bool lm_sweep_is_alarmed(lm_thread *t) {
  uint32_t alarm = lm_pressure_word();
  return lm_unlikely(alarm & 1) && (lm_tcache_of(t)->alarm != alarm || !is_obeyed(alarm));
}

static void trim_slots(lm_pool *pool) {
  (void)lm_large_unpark(&pool->large);
  lm_regions_trim(&pool->regions);
}

/* Trims the lists of all pools from the position on. Returns false if the time has passed. */
static bool trim_lists_until(int64_t end_ns) {
  for (uint32_t n = lm_strategy_count(); alarm_step.id < n; alarm_step.id++) {
    lm_pool *pool = lm_pools_at(alarm_step.id);
    for (; pool && alarm_step.class_ < LM_CLASSES; alarm_step.class_++)
      if (!lm_central_trim_until(&pool->central[alarm_step.class_], end_ns)) return false;
    alarm_step.class_ = 0;
  }
  return true;
}

/* Does a step of the trim for an alarm. Each step gives back the slots that are free as wholes,
 * which takes least time for most memory; the lists then add slots to those. */
static void step_alarm_locked(uint32_t alarm) {
  int64_t end_ns = lm_sys_clock_ns() + ALARM_STEP_NS;
  if (alarm_step.alarm != alarm) {
    alarm_step.alarm = alarm;
    alarm_step.id = alarm_step.class_ = 0;
    lm_pools_each(trim_slots);
  }
  bool is_done = trim_lists_until(end_ns);
  lm_pools_each(trim_slots);
  if (!is_done) return;
  lm_states_trim();
  lm_metadata_trim();
  lm_thread_trim_vacant();
  atomic_store_explicit(&obeyed_alarm, alarm, memory_order_relaxed);
}

static void trim_for_alarm(uint32_t alarm) {
  if (is_obeyed(alarm) || !lm_lock_try(&sweeping)) return;
  if (!is_obeyed(alarm) && lm_lock_try(&lm_pools_end_lock)) {
    step_alarm_locked(alarm);
    lm_lock_drop(&lm_pools_end_lock);
  }
  lm_lock_drop(&sweeping);
}

LM_NOINLINE void lm_sweep_obey_alarm(lm_thread *t) {
  uint32_t alarm = lm_pressure_word();
  lm_assert(t == lm_thread_self);
  if (lm_tcache_of(t)->alarm != alarm) lm_tcache_flush_own(t);
  lm_tcache_of(t)->alarm = alarm;
  trim_for_alarm(alarm);
}

/* ---- Ticks without a service thread ------------------------------------------------------- */

/* A step of a tick takes STEP_NS, or the time for STEP_SLOTS slots (8 MiB). The next step is done
 * after PAUSE_NS, so that a thread gives at most about a tenth of its time, and the next tick after
 * TICK_NS. */
#define STEP_NS 500000
#define PAUSE_NS 10000000
#define TICK_NS 250000000
/* The time between two ticks while memory is short. */
#define TICK_SHORT_NS 50000000
enum { STEP_SLOTS = 128 };
/* A step takes at most this many bins of idle threads, which takes about STEP_NS too. */
enum { STEP_BINS = 1024 };

/* The position of a tick that is done in steps. Guarded by `sweeping`. */
static struct {
  bool has_begun;
  bool more;          /* a later tick has something to do */
  int64_t claimed_ns; /* when the tick claimed threads; 0: it has none to look at */
  uint32_t claims;    /* `claims` at that time */
  uint32_t id;        /* of the strategy whose pool is next */
  unsigned class_;    /* the class of that pool whose list is next; LM_CLASSES: its regions */
} step;

/* Does the tick for the lists and regions of a pool that this tick has not visited yet. Returns
 * false if the step ends before all are visited. */
static bool step_pool(lm_pool *pool, int64_t end_ns, uint32_t *most) {
  for (; step.class_ < LM_CLASSES; step.class_++)
    if (!lm_central_decay_until(&pool->central[step.class_], end_ns, &step.more)) return false;
  step.more |= lm_large_unpark(&pool->large);
  step.more |= lm_regions_decay(&pool->regions, most);
  return *most > 0;
}

/* Returns false if the tick has to go on in a later step. */
static bool step_pools(void) {
  int64_t end_ns = lm_sys_clock_ns() + STEP_NS;
  uint32_t most = STEP_SLOTS, n = lm_strategy_count();
  for (; step.id < n; step.id++, step.class_ = 0) {
    lm_pool *pool = lm_pools_at(step.id);
    if (pool && !step_pool(pool, end_ns, &most)) return false;
  }
  step.more |= lm_states_decay(&most);
  step.more |= lm_metadata_decay(&most);
  step.more |= lm_thread_decay_vacant();
  return true;
}

/* Claims a thread, unless it gave up its idle bins by itself since the tick before. Then a later
 * tick has to look at it. */
static void claim_if_still(lm_thread *t, void *ctx) {
  bool *more = ctx;
  uint32_t swept = atomic_load_explicit(&lm_tcache_of(t)->swept, memory_order_relaxed);
  if (t == lm_thread_self) return;
  if (ticks_begun() - swept <= 1) *more = true;
  else lm_thread_set_slow(t, LM_SLOW_CLAIMED);
}

static void take_if_calm(lm_thread *t, void *ctx) {
  const sweep *w = ctx;
  if (w->n < w->most && lm_thread_has_calmed(t, step.claimed_ns)) take_claimed(t, ctx);
}

/* Takes the idle bins of the threads that this tick has claimed and that are in no operation, at
 * most STEP_BINS of them. A thread whose claim is not taken gives its bins up in its next
 * operation, or is claimed by the next tick. Returns false if the tick has to go on with this in a
 * later step. lm_pools_end_lock, which the caller holds, keeps the pools of the bins. */
static bool step_threads(void) {
  if (!step.claimed_ns || step.claims != claims) return true;
  if (lm_sys_clock_ns() - step.claimed_ns < PAUSE_NS) return false;
  sweep *w = begin_locked(false);
  if (!w || !lm_lock_try(&lm_pools_make_lock)) return true;
  w->most = STEP_BINS;
  lm_thread_each(take_if_calm, w);
  lm_lock_drop(&lm_pools_make_lock);
  bool is_done = w->n < w->most;
  step.more |= w->more || !is_done;
  return_all(w);
  if (is_done) step.claimed_ns = 0;
  return is_done;
}

/* Returns whether the tick has claimed threads, which it looks at in a later step. */
static bool begin_tick(void) {
  lm_decay_begin();
  atomic_fetch_add_explicit(&ticks, 1, memory_order_relaxed);
  step.has_begun = true;
  step.more = false;
  step.id = step.class_ = 0;
  step.claimed_ns = 0;
  if (!lm_thread_has_others()) return false;
  step.claims = ++claims;
  lm_thread_each(claim_if_still, &step.more);
  step.claimed_ns = lm_sys_clock_ns();
  return true;
}

static void do_step_locked(void) {
  bool must_wait = !step.has_begun && begin_tick();
  bool is_done = !must_wait && step_threads() && step_pools();
  if (is_done && lm_decay_has_devices()) lm_thread_set_slow(lm_thread_self, LM_SLOW_DEVICES);
  if (is_done) lm_decay_end(step.more);
  step.has_begun = !is_done;
  int64_t calm_ns = lm_pressure_is_short() ? TICK_SHORT_NS : TICK_NS;
  lm_decay_wait(is_done ? calm_ns : PAUSE_NS);
}

static LM_NOINLINE void poll_slowly(lm_thread *t) {
  uint32_t swept = atomic_load_explicit(&lm_tcache_of(t)->swept, memory_order_relaxed);
  if (swept != ticks_begun()) lm_tcache_flush_idle(t);
  note_swept(t);
  if (!lm_decay_is_due() || !lm_lock_try(&sweeping)) return;
  if (lm_lock_try(&lm_pools_end_lock)) {
    do_step_locked();
    lm_lock_drop(&lm_pools_end_lock);
  }
  lm_lock_drop(&sweeping);
}

void lm_sweep_poll(lm_thread *t) {
  lm_assert(t == lm_thread_self);
  if (lm_unlikely(lm_sweep_is_alarmed(t))) lm_sweep_obey_alarm(t);
  if (++lm_tcache_of(t)->slow_calls % LM_DECAY_CALLS == 0) poll_slowly(t);
}
