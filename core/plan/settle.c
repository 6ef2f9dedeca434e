/* settle.c - how a tag begins to be counted while threads allocate and free.
 *
 * Wanted: every live block of the tag has a COUNTED token and is counted once (site.h).
 *
 *   1. The tag's sites are marked. An active section that begins later stamps its blocks COUNTED
 *   and
 *      counts them in the same section (pool_take, record, pool_resize).
 *   2. All threads become wary: sections that begin later have forgotten the lanes of the tag's
 *      sites, and free by compare and exchange of the token.
 *   3. Grace: no section is left that began before 1 and 2. So now every block of the tag is either
 *      COUNTED and counted, or has a token without COUNTED that only this walk or its free will
 *      change.
 *   4. The walk: each such token is exchanged for its COUNTED one, and only then counted. A free
 *      before the exchange makes it fail, and neither counts; a free after it finds COUNTED and
 *      takes away what the walk adds (for a moment perhaps before it is added: the counter is
 *      signed).
 *
 * A block that is being resized has had its token replaced before its size changes, so the size
 * that the walk read is the one it counts. Where there is no membarrier, step 3 waits for nothing
 * and a block that was being allocated may be left out until it is freed. */
#include "plan/settle.h"

#include "device/provider.h"
#include "heap/walk.h"
#include "plan/live.h"

static struct {
  lm_lock lock;
  _Atomic bool wanted;
} settling;

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

/* Under the map's lock, which a free takes. */
static void count_foreign(void *ctx, lm_provided *entry) {
  (void)ctx;
  if (lm_pool_owns(entry->base) || !begins_to_count(entry->token)) return;
  entry->token |= LM_TOKEN_COUNTED;
  lm_site_add_live(entry->token, (int64_t)entry->size);
}

void lm_settle_mark(loam_site *site) {
  if (lm_site_begin_counting(site))
    atomic_store_explicit(&settling.wanted, true, memory_order_relaxed);
}

void lm_settle_all(void) {
  lm_lock_take(&settling.lock);
  if (atomic_exchange_explicit(&settling.wanted, false, memory_order_relaxed)) {
    lm_thread_set_slow_all(LM_SLOW_COUNTING | LM_SLOW_STALE);
    (void)lm_thread_grace();
    lm_walk_each(count_object, NULL);
    lm_provider_each(count_foreign, NULL);
    lm_thread_clear_slow_all(LM_SLOW_COUNTING);
  }
  lm_lock_drop(&settling.lock);
}

void lm_settle_tag(loam_site *site) {
  lm_settle_mark(site);
  lm_settle_all();
}

static void fork_prepare(void) { lm_lock_take(&settling.lock); }
static void fork_parent(void) { lm_lock_drop(&settling.lock); }
static void fork_child(void) { lm_lock_renew(&settling.lock); }

void lm_settle_start(void) {
  lm_thread_add_hooks(&(lm_thread_hooks){ lm_live_leave, fork_prepare, fork_parent, fork_child });
}
