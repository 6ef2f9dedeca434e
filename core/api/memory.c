/* memory.c - loam_malloc and its family.
 *
 * Each allocating function makes the key of its request and tries lm_decision_serve, which is
 * inlined and serves most requests. For any other request, and each one with an alignment above 16,
 * it describes the request (lm_request), and serve_request serves it by the thread cache
 * (serve_cached) or by the engine (lm_memory_alloc). A large block is first looked for by
 * lm_decision_serve_large.
 *
 * loam_free pushes most objects into the thread cache (heap/tcache.h), and passes other blocks to
 * lm_memory_free. Slow calls begin as api/slow_call.h says, because another thread may fork.
 * lm_thread_self_or_empty is never NULL, so the fast paths do not test it. LM_HOT makes a function
 * begin at a cache line. */
#include "api/memory.h"

#include <errno.h>
#include <string.h>

#include "api/slow_call.h"
#include "api/start.h"
#include "device/device_idle.h"
#include "engine/engine.h"
#include "engine/sampled.h"
#include "engine/soft_limit.h"
#include "heap/sweep.h"
#include "heap/tails.h"
#include "heap/tcache_slow.h"
#include "os/error.h"
#include "os/memory_hook.h"
#include "pages/range.h"
#include "service/control.h"

/* ---- Slow ends ---------------------------------------------------------------------------- */

/* Ends a slow call. After success errno has the value that it had before the call. */
static void *finish(void *from, void *to, size_t size, int before) {
  if (lm_unlikely(lm_memory_hook_is_wanted()) && to) lm_memory_hook_call(from, to, size);
  errno = to ? before : ENOMEM;
  return to;
}

/* Ends the guarded section of a slow call. Returns p. */
static void *end_slow(void *p) {
  lm_soft_limit_poll();
  lm_lock_allow_cancel();
  return p;
}

LM_NOINLINE void *lm_memory_alloc(const lm_request *r) {
  int before = errno;
  lm_assert(!r->by_code || r->site);
  void *p = lm_slow_call_begin(r);
  if (lm_unlikely(p != NULL)) return p;
  lm_slow_call_chores();
  return end_slow(finish(NULL, lm_engine_serve(r, NULL), r->size, before));
}

/* The part of serve_cached that needs a guarded section. A request by code may lack its site: then
 * only an entry that `holds` can serve it. */
static LM_NOINLINE void *serve_guarded(const lm_request *r, bool holds) {
  void *p = NULL;
  if (lm_unlikely(!lm_lock_try_hold_now())) return NULL;
  lm_slow_call_chores();
  lm_thread *t = lm_thread_self; /* NULL: this is the first request of the thread */
  if (holds) p = lm_sampled_or_refill(t, lm_decision_key_of_request(t, r));
  if (p && r->zero) memset(p, 0, r->size);
  if (!p && t && r->site && lm_likely(!lm_memory_hook_is_wanted())) p = lm_decision_make(t, r);
  return end_slow(p);
}

/* Serves a request of malloc's family that lm_decision_serve did not serve, from the thread cache:
 * by the decision, if one `holds`, else by a new decision. Returns NULL, and has done nothing, if
 * only the engine can serve the request, or if another thread forks. */
LM_INLINE void *serve_cached(const lm_request *r, bool holds) {
  lm_assert(r->site && r->want == LM_WANT_HOST);
  void *p = holds ? NULL : lm_decision_serve_by_plan(lm_thread_self_or_empty, r);
  return lm_likely(p != NULL) ? p : serve_guarded(r, holds);
}

static void *serve_request(const lm_request *r, bool holds) {
  void *p = serve_cached(r, holds);
  return lm_likely(p != NULL) ? p : lm_memory_alloc(r);
}

/* Remembers where a free or realloc was called, to name it if the call turns out to be wrong. */
static void note_caller(const void *caller) {
  lm_thread *t = lm_thread_get();
  if (t) t->caller = caller;
}

LM_NOINLINE void lm_memory_free(void *ptr, size_t size, const lm_stream *on, const void *caller) {
  int before = errno;
  if (!ptr) return;
  if (lm_unlikely(!lm_slow_call_begin_free(ptr, on))) return;
  lm_control_wake_if_asleep();
  note_caller(caller);
  lm_record b;
  bool tell = lm_unlikely(lm_memory_hook_is_wanted()) && lm_record_find(ptr, &b);
  lm_engine_free(ptr, size, on);
  if (tell && b.base == ptr) lm_memory_hook_call(ptr, NULL, 0);
  lm_device_idle_poll(lm_thread_self);
  lm_lock_allow_cancel();
  errno = before;
}

/* ---- malloc, calloc ----------------------------------------------------------------------- */

static LM_NOINLINE void *serve_slow(loam_site *site, size_t size, bool zero, bool holds) {
  return serve_request(&(lm_request){ .site = site, .size = size, .align = 16, .zero = zero },
                       holds);
}

static LM_NOINLINE void *malloc_large(loam_site *site, size_t size) {
  lm_thread *t = lm_thread_self_or_empty;
  lm_assert(size > LM_SMALL_MAX);
  lm_request r = { .site = lm_decision_site(t, site), .size = size, .align = 16 };
  void *p = size <= LM_LARGE_MAX ? lm_decision_serve_large(t, &r) : NULL;
  return lm_likely(p != NULL) ? p : serve_request(&r, false);
}

LM_HOT void *loam_malloc(loam_site *site, size_t size) {
  lm_thread *t = lm_thread_self_or_empty;
  if (lm_unlikely(size > LM_SMALL_MAX)) return malloc_large(site, size);
  site = lm_decision_site(t, site);
  bool holds;
  void *p = lm_decision_serve(t, lm_decision_key_of(site, size), &holds);
  return lm_likely(p != NULL) ? p : serve_slow(site, size, false, holds);
}

static LM_NOINLINE void *calloc_overflow(size_t count, size_t size) {
  lm_error_null("%zu times %zu bytes: no address space is that large", count, size);
  return finish(NULL, NULL, 0, 0);
}

LM_HOT void *loam_calloc(loam_site *site, size_t count, size_t size) {
  size_t bytes;
  lm_thread *t = lm_thread_self_or_empty;
  if (lm_unlikely(!lm_mul(count, size, &bytes))) return calloc_overflow(count, size);
  site = lm_decision_site(t, site);
  if (lm_unlikely(bytes > LM_SMALL_MAX)) return serve_slow(site, bytes, true, false);
  bool holds;
  void *p = lm_decision_serve(t, lm_decision_key_of(site, bytes), &holds);
  return lm_likely(p != NULL) ? memset(p, 0, bytes) : serve_slow(site, bytes, true, holds);
}

/* ---- By the code that calls --------------------------------------------------------------- */

/* Serves a request for which an entry holds, and lm_decision_serve returned NULL. */
static LM_NOINLINE void *code_refill(size_t size, const void *code, loam_code_fn miss) {
  lm_request r = { .size = size, .code = (uintptr_t)code, .by_code = true };
  void *p = serve_guarded(&r, true);
  return lm_likely(p != NULL) ? p : miss(size, code);
}

LM_INLINE void *serve_code(size_t size, const void *code, loam_code_fn miss, bool zero) {
  if (lm_unlikely(size > LM_SMALL_MAX)) return miss(size, code);
  bool holds;
  lm_thread *t = lm_thread_self_or_empty;
  void *p = lm_decision_serve(t, lm_decision_key_of_code(t, (uintptr_t)code, size), &holds);
  if (lm_likely(p != NULL)) return zero ? memset(p, 0, size) : p;
  return holds && !zero ? code_refill(size, code, miss) : miss(size, code);
}

LM_HOT void *loam_code_malloc(size_t size, const void *code, loam_code_fn miss) {
  return serve_code(size, code, miss, false);
}

LM_HOT void *loam_code_calloc(size_t size, const void *code, loam_code_fn miss) {
  return serve_code(size, code, miss, true);
}

/* Serves a request of a site, and keeps the decision under `code` if the request is small and a key
 * has room for that address. */
static void *learn_request(size_t size, const void *code, loam_site *site, bool zero) {
  bool fits = site && code && size <= LM_SMALL_MAX && !((uintptr_t)code & ~LM_DECISION_CODE);
  lm_request r = { .site = site ? site : &lm_site_empty, .size = size, .align = 16, .zero = zero };
  r.by_code = fits;
  r.code = (uintptr_t)code;
  return serve_request(&r, false);
}

void *loam_code_learn(size_t size, const void *code, loam_site *site) {
  loam_site *scope = lm_thread_self_or_empty->site;
  if (size > LM_SMALL_MAX) return malloc_large(scope ? scope : site, size);
  return scope ? loam_malloc(scope, size) : learn_request(size, code, site, false);
}

void *loam_code_learn_zeroed(size_t size, const void *code, loam_site *site) {
  loam_site *scope = lm_thread_self_or_empty->site;
  return scope ? loam_calloc(scope, 1, size) : learn_request(size, code, site, true);
}

void loam_code_forget(void) {
  lm_thread_set_slow_all(LM_SLOW_STALE);
  lm_unwind_forget();
}

/* ---- Aligned and pinned ------------------------------------------------------------------- */

void *loam_aligned_alloc(loam_site *site, size_t alignment, size_t size) {
  if (lm_unlikely(!lm_is_pow2(alignment))) {
    lm_error(LOAM_EINVAL, "alignment %zu: it must be a power of two", alignment);
    errno = EINVAL;
    return NULL;
  }
  if (alignment <= 16) return loam_malloc(site, size); /* every block has this alignment */
  site = lm_decision_site(lm_thread_self_or_empty, site);
  void *p = serve_request(&(lm_request){ .site = site, .size = size, .align = alignment }, false);
  if (lm_likely(p != NULL)) lm_pool_note_oversized(size, alignment);
  return p;
}

void *loam_pinned_alloc(loam_site *site, size_t size, unsigned flags) {
  enum { ALL = LOAM_PINNED_MAPPED | LOAM_PINNED_PORTABLE | LOAM_PINNED_WRITE_COMBINED };
  lm_thread *t = lm_thread_self_or_empty;
  if (lm_unlikely(flags & ~(unsigned)ALL)) {
    lm_error(LOAM_EINVAL, "flags %#x: they must be a sum of LOAM_PINNED_*", flags);
    errno = EINVAL;
    return NULL;
  }
  lm_request r = { .site = lm_decision_site(t, site), .size = size, .align = 16 };
  r.want = LM_WANT_PINNED;
  r.flags = flags;
  bool holds, is_small = size <= LM_SMALL_EAGER;
  void *p = is_small ? lm_decision_serve(t, lm_decision_key_of_request(t, &r), &holds) : NULL;
  return lm_likely(p != NULL) ? p : lm_memory_alloc(&r);
}

/* ---- realloc ------------------------------------------------------------------------------ */

/* Moves an object of a pool to an object of another size class. Returns NULL, and has done nothing,
 * if only the engine can find memory for it. */
static void *move_object(lm_thread *t, loam_site *site, void *ptr, size_t from, size_t to) {
  lm_request r = { .site = site, .size = to, .align = 16 };
  bool holds;
  void *p = lm_decision_serve(t, lm_decision_key_of(site, to), &holds);
  if (!p) p = serve_cached(&r, holds);
  if (!p) return NULL;
  memcpy(p, ptr, from < to ? from : to);
  loam_free(ptr);
  return p;
}

void *loam_realloc(loam_site *site, void *ptr, size_t size) {
  lm_thread *t = lm_thread_self;
  size_t from = 0;
  loam_site *of = site;
  bool is_quick = t && size <= LM_LARGE_MAX && lm_start_is_running() && !lm_memory_hook_is_wanted();
  if (is_quick && lm_engine_realloc_stays(t, ptr, size, &of, &from)) return ptr;
  void *p = from ? move_object(t, of, ptr, from, size) : NULL;
  if (lm_likely(p != NULL)) return p;
  if (!ptr) return loam_malloc(site, size);
  if (lm_unlikely(!lm_slow_call_begin_realloc(site, ptr, size, &p))) return p;
  int before = errno;
  lm_slow_call_chores();
  note_caller(__builtin_return_address(0));
  p = lm_engine_serve(&(lm_request){ .site = site, .size = size }, ptr);
  return end_slow(finish(ptr, p, size, before));
}

/* ---- free --------------------------------------------------------------------------------- */

/* Frees an object for which the thread cache has no room, that the profiler knows, or that is not
 * live. Ends the active section. */
static LM_NOINLINE void free_full(void *ptr, lm_thread *t, lm_located met, const void *caller) {
  int before = errno;
  bool done = lm_tcache_give_full(t, ptr, met) || lm_sampled_free(t, ptr, met);
  lm_thread_leave(t);
  errno = before;
  if (!done) lm_memory_free(ptr, SIZE_MAX, NULL, caller);
}

/* Frees an object that lm_tcache_give_to refused: its token is counted, its bin is full, the
 * profiler knows it, or it is not live. Ends the active section. */
static LM_NOINLINE void free_refused(void *ptr, lm_thread *t, lm_located met, const void *caller) {
  lm_assert(met.cell && met.span && lm_thread_is_active());
  if (lm_likely(lm_engine_free_counted(t, ptr, met))) lm_thread_leave(t);
  else free_full(ptr, t, met, caller);
}

/* Frees an address where lm_tcache_locate_fast found no object: the thread is on the slow path or
 * has not copied lm_map.reach yet, or the range is not whole, or no object of a size class begins
 * at the address, for example because the block is guarded. `size` is the claimed size; only a
 * guarded block is compared with it. Ends the active section. */
static LM_NOINLINE void free_unlocated(void *ptr, size_t size, lm_thread *t, const void *caller) {
  lm_located met;
  bool is_fast = lm_load_first(uint64_t, &t->epoch) & LM_EPOCH_FAST;
  lm_load_fence();
  if (is_fast) lm_tcache_update_reach(t);
  if (lm_unlikely(!is_fast || !lm_tcache_locate(ptr, &met))) {
    lm_thread_leave(t);
    if (size != SIZE_MAX && !lm_pool_is_guarded(ptr)) size = SIZE_MAX;
    lm_memory_free(ptr, size, NULL, caller);
  } else if (lm_unlikely(!lm_tcache_give_located(t, ptr, met))) {
    free_refused(ptr, t, met, caller);
  } else {
    lm_thread_leave(t);
  }
}

/* The body of loam_free and loam_free_claimed. `size` is the claimed size, or the constant
 * SIZE_MAX. The return address is of the function into which this body is inlined. The body does
 * not look at the epoch: while the thread is on the slow path, its `reach` finds no object. Its
 * `reach` never finds a guarded block, because such a block has no bin. */
LM_INLINE void free_fast(void *ptr, size_t size) {
  lm_thread *t = lm_thread_self_or_empty;
  lm_located met;
  size_t bin;
  lm_thread_begin(t);
  if (lm_unlikely(!lm_tcache_locate_fast(t, ptr, &met, &bin)))
    free_unlocated(ptr, size, t, __builtin_return_address(0));
  else if (lm_unlikely(!lm_tcache_give_to(t, ptr, met, bin)))
    free_refused(ptr, t, met, __builtin_return_address(0));
  else lm_thread_leave(t);
}

LM_HOT void loam_free(void *ptr) { free_fast(ptr, SIZE_MAX); }
LM_HOT void loam_free_claimed(void *ptr, size_t size) { free_fast(ptr, size); }

/* lm_memory_free does not check the size SIZE_MAX, which no block has. */
void loam_free_sized(void *ptr, size_t size) {
  size_t usable = lm_pool_usable(ptr);
  if (lm_likely(usable && lm_class_fits(usable, size))) loam_free(ptr);
  else lm_memory_free(ptr, size - (size == SIZE_MAX), NULL, __builtin_return_address(0));
}

/* ---- Sizes, and memory that is free -------------------------------------------------------- */

size_t loam_usable_size(const void *ptr) { return lm_record_usable(ptr); }

LM_HOT size_t loam_live_size(const void *ptr) {
  size_t size = lm_load(uint64_t, &lm_record_nested) ? 0 : lm_pool_live_size(ptr);
  return lm_likely(size != 0) ? size : lm_record_usable(ptr);
}

size_t loam_trim(void) { return lm_sweep_trim(); }

/* Free memory goes back, so that it does not count against the limits. The range learns of the
 * limits before and after: if the process has more than a limit, only a sparse range can give
 * memory back. */
void loam_limits_changed(void) {
  lm_tails_learn();
  lm_range_limit_changed();
  (void)lm_sweep_reclaim();
  lm_range_limit_changed();
}
