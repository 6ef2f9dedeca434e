/* live_bytes.h - how many bytes live under a tag whose plans read req.live.
 *
 * Only such tags are counted. If each thread added to the tag's counter at each allocation, all
 * threads would write one cache line. So a thread keeps a sum of its own for each tag, in
 * lm_thread.live_pending, and adds it to the counter when the sum passes LM_LIVE_PENDING_MAX, when
 * another tag needs the place, and when the thread ends. What a thread reads is the counter plus
 * its own sum, so req.live is exact except for what each other thread has not added yet. */
#ifndef LM_LIVE_BYTES_H
#define LM_LIVE_BYTES_H

#include "plan/site.h"

/* The most bytes of one tag that a thread keeps to itself, allocated or freed. */
enum { LM_LIVE_PENDING_MAX = 128 << 10 };

/* Adds bytes to the live bytes of the site's tag; `bytes` is below 0 for a free. The calling thread
 * is active and the tag is counted. lm_live_pending.bytes is LM_LIVE_PENDING_MAX more than the sum,
 * so one comparison shows that the sum has passed the limit on either side. */
void lm_live_count_slow(lm_thread *t, const loam_site *site, int64_t bytes);
LM_INLINE void lm_live_count(lm_thread *t, const loam_site *site, int64_t bytes) {
  lm_live_pending *u = &t->live_pending[site->tag_index % LM_LIVE_PLACES];
  uint64_t sum = u->bytes + (uint64_t)bytes;
  lm_assert(site->live);
  if (lm_likely(u->live == site->live && sum <= 2 * LM_LIVE_PENDING_MAX)) u->bytes = sum;
  else lm_live_count_slow(t, site, bytes);
}

/* Bytes that live under the site's tag, as the calling thread knows them; never below 0. The tag is
 * counted. */
LM_INLINE int64_t lm_live_of(const lm_thread *t, const loam_site *site) {
  const lm_live_pending *u = &t->live_pending[site->tag_index % LM_LIVE_PLACES];
  lm_assert(site->live && site->tag_index);
  int64_t live = lm_load(int64_t, site->live);
  if (u->live == site->live) live += (int64_t)u->bytes - LM_LIVE_PENDING_MAX;
  return live > 0 ? live : 0;
}

/* Tags begin to be counted before a plan that reads req.live goes live: the loader marks each such
 * tag, then calls lm_live_begin once. That walks live memory if any marked tag is new. When it
 * returns, every live block of a marked tag is counted, and each one to come will be. The caller is
 * not active. */
void lm_live_mark(loam_site *site);
void lm_live_begin(void);

/* Calls `visit` for tags that are counted, with their live bytes as the counters say, without what
 * threads have not added yet. Knows the first LM_LIVE_TAGS tags that were marked. Returns how many
 * more were marked. Takes no lock. */
enum { LM_LIVE_TAGS = 256 };
typedef void lm_live_visit(void *ctx, const loam_site *site, uint64_t bytes);
uint32_t lm_live_each(lm_live_visit *visit, void *ctx);

/* Registers with threads, once. */
void lm_live_start(void);

#endif
