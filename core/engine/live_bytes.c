/* live_bytes.c - how many bytes live under a tag, and how a tag begins to be counted while threads
 * allocate and free.
 *
 * The result: every live block of the tag has a COUNTED token and is counted once (plan/site.h).
 *
 *   1. The tag's sites are marked. An active section that begins later gives its blocks COUNTED
 *      tokens, and counts the blocks in that section (decision.c; serve_from_pool and
 *      take_from_device_pool in chain.c; lm_record_enter; pool_resize in resize.c).
 *   2. All threads take the slow path. A section that begins later has forgotten its decisions for
 *      the tag's sites, and frees by compare and exchange of the token.
 *   3. Grace: every section that began before steps 1 and 2 has ended. Now each block of the tag
 *      either is COUNTED and counted, or has a plain token that only the walk of step 4 or its free
 *      can change.
 *   4. The walk exchanges each plain token for its COUNTED one, and counts the block if the
 *      exchange succeeds. If the block is freed before the exchange, that fails, and neither
 *      the walk nor the free counts. If it is freed after the exchange, the free finds COUNTED and
 *      takes away the bytes that the walk adds. It may do so before the walk adds them, so the
 *      counter is signed.
 *
 * A block that is being resized gets its new token before its size changes, so the walk counts the
 * size that it read. On a machine without membarrier, and where a request obeys a published policy
 * (lm_thread_refuse_graces), step 3 waits for nothing. Then a block that was being allocated may
 * never be counted, and one that was being freed may stay counted. */
#include "engine/live_bytes.h"

#include "device/provider.h"
#include "heap/walk.h"

/* ---- Counting ----------------------------------------------------------------------------- */

/* Adds a thread's own sum to the counter of the tag. */
static void add_pending(lm_live_pending *u) {
  int64_t bytes = (int64_t)u->bytes - LM_LIVE_PENDING_MAX;
  if (u->live && bytes) atomic_fetch_add_explicit(u->live, bytes, memory_order_relaxed);
  u->bytes = LM_LIVE_PENDING_MAX;
}

LM_NOINLINE void lm_live_count_slow(lm_thread *t, const loam_site *site, int64_t bytes) {
  lm_live_pending *u = &t->live_pending[site->tag_index % LM_LIVE_PLACES];
  if (u->live != site->live) {
    add_pending(u);
    u->live = site->live;
  }
  u->bytes += (uint64_t)bytes;
  if (u->bytes > 2 * LM_LIVE_PENDING_MAX) add_pending(u);
}

static void add_all_pending(lm_thread *t) {
  for (int i = 0; i < LM_LIVE_PLACES; i++)
    if (t->live_pending[i].live) add_pending(&t->live_pending[i]); /* unused ones stay unwritten */
}

/* ---- Beginning to count ------------------------------------------------------------------- */

static struct {
  lm_lock lock;
  bool wanted; /* a tag was marked whose live blocks are not counted yet; under the lock */
} beginning;

static bool begins_to_count(lm_token token) {
  if (token & LM_TOKEN_COUNTED) return false;
  const loam_site *site = lm_site_at(lm_site_token_index(token));
  return site && atomic_load_explicit(&site->counted, memory_order_relaxed);
}

static void count_object(void *ctx, const lm_object *object) {
  (void)ctx;
  lm_token slow = object->token | LM_TOKEN_COUNTED;
  if (begins_to_count(object->token) && lm_pool_retoken(object->base, object->token, slow))
    lm_site_add_live(slow, (int64_t)object->size);
}

/* Begins to count a provided block (pages/provided.h). The caller holds the lock of provided
 * blocks. A free takes this lock before it reads the token, so it finds the block counted or not
 * counted. */
static void count_provided(void *ctx, lm_provided *entry) {
  (void)ctx;
  if (lm_pool_owns(entry->base) || !begins_to_count(entry->token)) return;
  entry->token |= LM_TOKEN_COUNTED;
  lm_site_add_live(entry->token, (int64_t)entry->size);
}

/* A site of each counted tag, in the order of their marks, and the number of marks. The holder of
 * beginning.lock writes both. Release of a site pairs with the acquire in lm_live_each. */
static LM_SPARSE const loam_site *_Atomic counted[LM_LIVE_TAGS];
static _Atomic uint32_t counted_n;

static void list_tag(const loam_site *site) {
  uint32_t n = atomic_load_explicit(&counted_n, memory_order_relaxed);
  if (n < LM_LIVE_TAGS) atomic_store_explicit(&counted[n], site, memory_order_release);
  atomic_store_explicit(&counted_n, n + 1, memory_order_relaxed);
}

uint32_t lm_live_each(lm_live_visit *visit, void *ctx) {
  uint32_t n = atomic_load_explicit(&counted_n, memory_order_relaxed);
  for (uint32_t i = 0; i < n && i < LM_LIVE_TAGS; i++) {
    const loam_site *site = atomic_load_explicit(&counted[i], memory_order_acquire);
    int64_t live = site ? atomic_load_explicit(site->live, memory_order_relaxed) : 0;
    if (site) visit(ctx, site, live > 0 ? (uint64_t)live : 0);
  }
  return n > LM_LIVE_TAGS ? n - LM_LIVE_TAGS : 0;
}

/* A load and a new site may mark at one time. Each tag is listed once: lm_site_begin_counting makes
 * all sites of the tag counted. */
void lm_live_mark(loam_site *site) {
  lm_lock_take(&beginning.lock);
  if (!atomic_load_explicit(&site->counted, memory_order_relaxed)) list_tag(site);
  if (lm_site_begin_counting(site)) beginning.wanted = true;
  lm_lock_drop(&beginning.lock);
}

void lm_live_begin(void) {
  lm_assert(!lm_thread_is_active());
  lm_lock_take(&beginning.lock);
  if (beginning.wanted) {
    beginning.wanted = false;
    lm_thread_set_slow_all(LM_SLOW_COUNTING | LM_SLOW_STALE);
    (void)lm_thread_grace();
    lm_walk_each(count_object, NULL);
    lm_provider_each(count_provided, NULL);
    lm_thread_clear_slow_all(LM_SLOW_COUNTING);
  }
  lm_lock_drop(&beginning.lock);
}

void lm_live_start(void) {
  lm_thread_add_fork_lock(&beginning.lock);
  lm_thread_add_hooks(&(lm_thread_hooks){ .exit = add_all_pending });
}
