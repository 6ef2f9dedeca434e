/* tails.c - makes the tails of large blocks inaccessible: tails.h. */
#include "heap/tails.h"

#include "heap/pools.h"
#include "os/sys.h"
#include "os/thread.h"

/* CLAIMS: how many blocks are claimed before one grace. A tail of fewer bytes than TAIL_LEAST is
 * not worth the two mappings that it takes to cut it. */
enum { CLAIMS = 2048, TAIL_LEAST = LM_SLOT / 4 };

static _Atomic bool is_counted; /* relaxed: a later request for memory tries again */

/* A walk over the extents that claims blocks. Guarded by lm_large_claiming. */
static LM_SPARSE struct {
  uint32_t at, end; /* the slot to go on with, and the slot behind the last extent */
  uint32_t room;    /* how many tails may still be cut */
  uint32_t n;       /* claimed blocks */
  uint32_t claimed[CLAIMS];
} walk;

void lm_tails_learn(void) {
  lm_thread_add_fork_lock(&lm_large_claiming);
  atomic_store_explicit(&is_counted, lm_sys_counts_data(), memory_order_relaxed);
}

static uint32_t use_at(uint32_t slot) {
  return atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed);
}

/* Returns the bytes of the tail of the large block at `slot`, and sets *at to its address. The
 * result is right if the block is claimed and a grace has passed. Before that, another thread may
 * resize the block. */
static size_t tail_of(uint32_t slot, char **at) {
  const lm_span *head = lm_map_span(slot);
  size_t size = lm_align_up(atomic_load_explicit(&head->size, memory_order_relaxed), LM_PAGE);
  size_t bytes = (size_t)atomic_load_explicit(&head->slots, memory_order_relaxed) << LM_SLOT_SHIFT;
  *at = (char *)lm_map_address(slot) + size;
  return size < bytes ? bytes - size : 0;
}

/* Returns the pool of the large block that begins at `slot`. NULL: no large block begins there, or
 * another thread is changing the entry. The caller is in an active section, which keeps the pool
 * from ending. */
static lm_pool *pool_at(uint32_t slot) {
  lm_span_info view;
  uint32_t version;
  if (!lm_map_use_is_large(use_at(slot))) return NULL;
  return lm_map_read(lm_map_span(slot), &view, &version) ? lm_pools_at(view.strategy) : NULL;
}

/* Claims the block at `slot` if it is plain memory with a tail of TAIL_LEAST or more. Returns
 * whether it did. */
static bool claim(uint32_t slot) {
  char *tail;
  if (use_at(slot) != LM_USE_LARGE || tail_of(slot, &tail) < TAIL_LEAST) return false;
  lm_pool *pool = pool_at(slot);
  return pool && lm_region_is_plain(&pool->regions.how) && lm_large_claim(&pool->large, slot);
}

/* Ends the claim of the block at `slot`. Cuts its tail first if `waited`: a grace has passed since
 * the claim. A claim does nothing where another thread was about to resize or move the block, so
 * now the block may be gone: then no pool is there, or lm_large_confirm says so. */
static void end_claim(uint32_t slot, bool waited) {
  lm_pool *pool = pool_at(slot);
  size_t freed = 0;
  char *at;
  if (!pool) return;
  if (!waited || lm_large_confirm(&pool->large, slot, &freed)) {
    size_t bytes = waited ? tail_of(slot, &at) : 0;
    bool is_cut = bytes && !lm_sys_decommit(at, bytes);
    freed = lm_large_release(&pool->large, slot, is_cut);
  }
  if (freed) lm_strategy_limit_give(pool->strategy, (int64_t)freed);
}

/* Calls `act` for each extent from walk.at on, until it returns false or the walk is at its end. */
static void go_on_locked(bool (*act)(uint32_t slot)) {
  bool goes_on = true;
  while (goes_on && walk.at < walk.end) {
    uint32_t next = lm_map_next(walk.at);
    goes_on = act(walk.at);
    walk.at = next > walk.at ? next : walk.at + 1;
  }
}

static bool count_cut_locked(uint32_t slot) {
  if (walk.room && use_at(slot) == LM_USE_UNPREPARED) walk.room--;
  return true;
}

static bool claim_locked(uint32_t slot) {
  if (walk.n < walk.room && claim(slot)) walk.claimed[walk.n++] = slot;
  return walk.n < CLAIMS && walk.n < walk.room;
}

static void begin_locked(void) {
  walk.at = LM_MAP_FIRST;
  walk.end = lm_map_end();
}

/* Claims up to CLAIMS blocks from walk.at on, waits until no thread resizes or caches one of them,
 * and cuts their tails. Where a thread cannot wait for that (lm_thread_grace), all claims end and
 * no tail is cut. */
static void cut_some_locked(lm_thread *t) {
  walk.n = 0;
  lm_thread_enter(t);
  go_on_locked(claim_locked);
  lm_thread_leave(t);
  bool waited = walk.n && lm_thread_grace();
  lm_thread_enter(t);
  for (uint32_t i = 0; i < walk.n; i++) end_claim(walk.claimed[i], waited);
  lm_thread_leave(t);
  walk.room -= walk.n;
}

void lm_tails_cut(void) {
  lm_thread *t = lm_thread_self;
  if (!t || !atomic_load_explicit(&is_counted, memory_order_relaxed)) return;
  if (!atomic_load_explicit(&lm_map.top, memory_order_acquire)) return;
  lm_lock_take(&lm_large_claiming);
  walk.room = lm_large_guard_max();
  begin_locked();
  go_on_locked(count_cut_locked);
  begin_locked();
  while (walk.room && walk.at < walk.end) cut_some_locked(t);
  lm_lock_drop(&lm_large_claiming);
}
