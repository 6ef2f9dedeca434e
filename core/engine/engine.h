/* engine.h - a request in, a pointer out: the chain of strategies that the policy names is tried in
 * order. This is the long way, which always works; most requests are served by decision.h. The
 * functions set the error words of the thread on failure. The calling thread is not active. */
#ifndef LM_ENGINE_H
#define LM_ENGINE_H

#include "engine/decision.h"
#include "engine/live_bytes.h"
#include "engine/record.h"
#include "engine/sample.h"
#include "engine/stats.h"

/* Serves a request of any kind. If `ptr` is not NULL, this is a realloc: the new block has the
 * contents of the block at `ptr`, as far as they fit, and its site if the request has none. Returns
 * NULL if the policy denies the request, or no member of the chain can serve it; the block at `ptr`
 * is then unchanged. */
void *lm_engine_serve(const lm_request *r, void *ptr);

/* Returns whether the block at `ptr` is an object of a pool that has room for `size` bytes, at most
 * LM_LARGE_MAX, and the policy decides as before: then a realloc has nothing to do. If the
 * object belongs to a size class and has to move, sets *from to its usable bytes, and sets *site to
 * its site if *site was NULL. In all other cases sets *from to 0, and lm_engine_serve has to do the
 * realloc. Changes no block. */
bool lm_engine_realloc_stays(lm_thread *t, void *ptr, size_t size, loam_site **site, size_t *from);

/* Frees the block at ptr, of whatever kind, or tells the host that there is none. `size` is the
 * size that a sized free claims, SIZE_MAX for none. Work on stream `on` may still use the memory;
 * NULL: on the stream of the request. */
void lm_engine_free(void *ptr, size_t size, const lm_stream *on);
/* Frees an object of a pool whose token is counted. Returns false, and has done nothing, for any
 * other object, for a nested block (record.h) and for a sample. The thread is active. */
LM_INLINE bool lm_engine_free_counted(lm_thread *t, void *ptr, lm_located met) {
  lm_token token;
  size_t size = lm_load(size_t, &met.span->size);
  if (!lm_state_is_counted(lm_load(lm_state, met.cell))) return false;
  if (lm_unlikely(lm_load(uint64_t, &lm_record_nested))) return false;
  if (lm_unlikely(lm_load(uint64_t, &lm_sample_all.live)) && lm_sample_may_have(ptr)) return false;
  if (!lm_tcache_give_counted(t, ptr, met, &token)) return false;
  lm_live_count(t, lm_site_of(token), -(int64_t)size);
  return true;
}

/* Registers with threads, once; before anything is allocated. */
void lm_engine_start(void);

#endif
