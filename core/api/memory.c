/* memory.c - loam_malloc and its family.
 *
 * Each allocating function makes the key of its request and tries lm_decision_serve, which is
 * inlined and serves most requests. For any other request it describes the request (lm_request),
 * and `serve` makes a decision or passes the request to lm_memory_alloc.
 *
 * loam_free pushes most objects into the thread cache (heap/tcache.h), and passes other blocks to
 * lm_memory_free. lm_thread_self_or_empty is never NULL, so the fast paths do not test it. LM_HOT
 * makes a function begin at a cache line. */
#include "api/memory.h"

#include <errno.h>
#include <string.h>

#include "api/start.h"
#include "device/provider.h"
#include "engine/engine.h"
#include "heap/sweep.h"
#include "heap/tcache_slow.h"
#include "os/error.h"
#include "os/memory_hook.h"
#include "os/spare.h"
#include "pages/range.h"
#include "service/board.h"
#include "service/control.h"
#include "service/publish.h"

/* ---- Slow calls while a thread forks ------------------------------------------------------ */

/* A slow call is a guarded section (os/fork_gate.h). If another thread forks for long, that fork
 * may wait for something that the caller of this call holds: the host's lock, or a file of the C
 * library. Then the call does without what loam's locks guard (os/spare.h). */

/* Does the frees that were noted while a thread forked. The calling thread is in a guarded section.
 * Does nothing in an inner section, because free_noted itself may have called its caller. */
static LM_NOINLINE void free_noted(void) {
  if (lm_lock_cancel_holds > 1) return;
  for (void *ptr; (ptr = lm_spare_next_noted());) lm_memory_free(ptr, SIZE_MAX, NULL, NULL);
}

/* Begins a guarded section, unless a fork lasts too long; then returns false. */
LM_INLINE bool begin_slow(void) {
  if (lm_unlikely(!lm_lock_try_hold())) return false;
  if (lm_unlikely(lm_spare_is_used())) free_noted();
  return true;
}

/* Serves a request while a thread forks. Returns NULL, in a guarded section, if the request had to
 * wait for the fork: a request for pinned or device memory, and a request that names a handler,
 * because the handler's own function will reallocate the block. */
static LM_NOINLINE void *alloc_in_fork(const lm_request *r) {
  bool may_be_spare = r->want == LM_WANT_HOST && !r->handler;
  void *p = may_be_spare ? lm_spare_alloc(r->size, r->align) : NULL;
  if (!p) lm_lock_hold_cancel();
  return p;
}

/* Begins a slow request. Returns NULL, in a guarded section; or the block that serves the request,
 * in none. */
LM_INLINE void *begin_or_spare(const lm_request *r) {
  return lm_likely(begin_slow()) ? NULL : alloc_in_fork(r);
}

/* Moves a spare block to where the policy wants it. */
static LM_NOINLINE void *realloc_spare(loam_site *site, void *ptr, size_t size) {
  size_t usable = lm_spare_usable(ptr);
  void *p = loam_malloc(site, size);
  if (!p) return NULL;
  memcpy(p, ptr, usable < size ? usable : size);
  (void)lm_spare_free(ptr);
  return p;
}

/* Gives an object of a pool another size while a thread forks. NULL: it has to wait. */
static LM_NOINLINE void *realloc_in_fork(void *ptr, size_t size) {
  lm_object object = { 0 };
  if (ptr && (lm_record_is_nested(ptr) || !lm_pool_find(ptr, &object))) return NULL;
  if (size > LM_SIZE_MAX || object.base != ptr) return NULL;
  void *p = lm_spare_alloc(size, 16);
  if (!p || !ptr) return p;
  memcpy(p, ptr, object.size < size ? object.size : size);
  loam_free(ptr);
  return p;
}

/* ---- Slow ends ---------------------------------------------------------------------------- */

/* Ends a slow call. After success errno has the value that it had before the call. */
static void *answer(void *from, void *to, size_t size, int before) {
  if (lm_unlikely(lm_memory_hook_is_wanted()) && to) lm_memory_hook_call(from, to, size);
  errno = to ? before : ENOMEM;
  return to;
}

LM_NOINLINE void *lm_memory_alloc(const lm_request *r) {
  int before = errno;
  lm_assert(!r->by_code || r->site);
  void *p = begin_or_spare(r);
  if (lm_unlikely(p != NULL)) return p;
  lm_start_awake();
  p = answer(NULL, lm_engine_alloc(r), r->size, before);
  lm_lock_allow_cancel();
  return p;
}

/* Returns whether the thread `t`, which is lm_thread_self, may decide by itself: it has an area,
 * loam is started, and the host has no callback for blocks. */
LM_INLINE bool may_decide(const lm_thread *t) {
  lm_control_wake_if_asleep();
  lm_publish_obey_if_new();
  return lm_likely(t && lm_start_is_running() && !lm_memory_hook_is_wanted());
}

static void *serve_guarded(const lm_request *r, bool holds) {
  lm_thread *t = lm_thread_self;
  lm_assert(r->site && r->want == LM_WANT_HOST);
  if (lm_unlikely(!may_decide(t))) return lm_memory_alloc(r);
  if (holds) lm_board_refresh_calmly(); /* the bin is empty: a program that grows comes here */
  void *p = holds ? lm_decision_refill(t, lm_decision_key_of_request(t, r)) : NULL;
  if (p) return r->zero ? memset(p, 0, r->size) : p;
  p = lm_decision_make(t, r);
  return lm_likely(p != NULL) ? p : lm_memory_alloc(r);
}

/* Serves a request of malloc's family that lm_decision_serve did not serve: by the decision, if one
 * `holds`, else by a new decision, else by the engine. */
static void *serve(const lm_request *r, bool holds) {
  void *p = begin_or_spare(r);
  if (lm_unlikely(p != NULL)) return p;
  p = serve_guarded(r, holds);
  lm_lock_allow_cancel();
  return p;
}

/* Remembers where a free or realloc was called, to name it if the call turns out to be wrong. */
static void note_caller(const void *caller) {
  lm_thread *t = lm_thread_get();
  if (t) t->caller = caller;
}

/* Returns whether another allocator may have made the block, before loam started. */
static bool is_early(const void *ptr) { return !lm_start_is_running() && !loam_owns(ptr); }

/* Deals with a free while a thread forks, or while spare memory is used. `has_begun` says whether
 * the free has begun a guarded section. Returns true, in no section, if the block is free or will
 * be freed after the fork; else returns false, in a section. */
static LM_NOINLINE bool free_spare_or_later(void *ptr, const lm_stream *on, bool has_begun) {
  if (lm_spare_free(ptr) || (!has_begun && !on && lm_spare_note_free(ptr))) {
    if (has_begun) lm_lock_allow_cancel();
    return true;
  }
  if (!has_begun) lm_lock_hold_cancel();
  free_noted();
  return false;
}

LM_NOINLINE void lm_memory_free(void *ptr, size_t size, const lm_stream *on, const void *caller) {
  int before = errno;
  if (!ptr) return;
  bool has_begun = lm_lock_try_hold();
  if (lm_unlikely(!has_begun || lm_spare_is_used()) && free_spare_or_later(ptr, on, has_begun))
    return;
  lm_control_wake_if_asleep();
  if (!is_early(ptr) || !lm_engine_ask_foreign(ptr)) {
    note_caller(caller);
    lm_record b;
    bool tell = lm_unlikely(lm_memory_hook_is_wanted()) && lm_record_find(ptr, &b);
    lm_engine_free(ptr, size, on);
    if (tell && b.base == ptr) lm_memory_hook_call(ptr, NULL, 0);
  }
  lm_lock_allow_cancel();
  errno = before;
}

/* ---- malloc, calloc ----------------------------------------------------------------------- */

LM_INLINE void *malloc_guarded(loam_site *site, size_t size, bool holds) {
  lm_thread *t = lm_thread_self;
  if (may_decide(t)) {
    void *p = NULL;
    if (holds) p = lm_decision_refill(t, lm_decision_key_of(site, size));
    if (!p) p = lm_decision_make_small(t, site, size);
    if (lm_likely(p != NULL)) return p;
  }
  return lm_memory_alloc(&(lm_request){ .site = site, .size = size, .align = 16 });
}

/* `serve` for malloc. Only the engine needs a description of the request. */
static LM_NOINLINE void *malloc_slow(loam_site *site, size_t size, bool holds) {
  lm_assert(site && size <= LM_SMALL_MAX);
  void *p = NULL;
  if (lm_unlikely(!begin_slow())) p = alloc_in_fork(&(lm_request){ .size = size, .align = 16 });
  if (lm_unlikely(p != NULL)) return p;
  p = malloc_guarded(site, size, holds);
  lm_lock_allow_cancel();
  return p;
}

static LM_NOINLINE void *malloc_large(loam_site *site, size_t size) {
  lm_thread *t = lm_thread_self_or_empty;
  lm_assert(size > LM_SMALL_MAX);
  lm_request r = { .site = site ? site : lm_decision_scope(t), .size = size, .align = 16 };
  void *p = size <= LM_LARGE_MAX ? lm_decision_serve_large(t, &r) : NULL;
  return lm_likely(p != NULL) ? p : serve(&r, false);
}

LM_HOT void *loam_malloc(loam_site *site, size_t size) {
  lm_thread *t = lm_thread_self_or_empty;
  if (lm_unlikely(size > LM_SMALL_MAX)) return malloc_large(site, size);
  if (!site) site = lm_decision_scope(t);
  bool holds;
  void *p = lm_decision_serve(t, lm_decision_key_of(site, size), &holds);
  return lm_likely(p != NULL) ? p : malloc_slow(site, size, holds);
}

static LM_NOINLINE void *calloc_slow(loam_site *site, size_t size, bool holds) {
  return serve(&(lm_request){ .site = site, .size = size, .align = 16, .zero = true }, holds);
}

static LM_NOINLINE void *calloc_overflow(size_t count, size_t size) {
  lm_error_null("%zu times %zu bytes: no address space is that large", count, size);
  return answer(NULL, NULL, 0, 0);
}

LM_HOT void *loam_calloc(loam_site *site, size_t count, size_t size) {
  size_t bytes;
  lm_thread *t = lm_thread_self_or_empty;
  if (lm_unlikely(!lm_mul(count, size, &bytes))) return calloc_overflow(count, size);
  if (!site) site = lm_decision_scope(t);
  if (lm_unlikely(bytes > LM_SMALL_MAX)) return calloc_slow(site, bytes, false);
  bool holds;
  void *p = lm_decision_serve(t, lm_decision_key_of(site, bytes), &holds);
  return lm_likely(p != NULL) ? memset(p, 0, bytes) : calloc_slow(site, bytes, holds);
}

/* ---- By the code that calls --------------------------------------------------------------- */

/* Serves a request whose decision holds although lm_decision_serve returned NULL. */
static LM_NOINLINE void *code_refill(size_t size, const void *code, loam_code_fn miss) {
  lm_thread *t = lm_thread_self_or_empty;
  void *p = NULL;
  if (lm_likely(lm_lock_try_hold_now())) {
    p = lm_decision_refill(t, lm_decision_key_of_code(t, (uintptr_t)code, size));
    lm_lock_allow_cancel();
  }
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
static void *learn(size_t size, const void *code, loam_site *site, bool zero) {
  bool fits = site && code && size <= LM_SMALL_MAX && (uintptr_t)code >> LM_DECISION_CODE_BITS == 0;
  lm_request r = { .site = site ? site : &lm_site_empty, .size = size, .align = 16, .zero = zero };
  r.by_code = fits;
  r.code = (uintptr_t)code;
  return serve(&r, false);
}

void *loam_code_learn(size_t size, const void *code, loam_site *site) {
  loam_site *scope = lm_thread_self_or_empty->site;
  if (size > LM_SMALL_MAX) return malloc_large(scope ? scope : site, size);
  return scope ? loam_malloc(scope, size) : learn(size, code, site, false);
}

void *loam_code_learn_zeroed(size_t size, const void *code, loam_site *site) {
  loam_site *scope = lm_thread_self_or_empty->site;
  return scope ? loam_calloc(scope, 1, size) : learn(size, code, site, true);
}

void loam_code_forget(void) { lm_thread_set_slow_all(LM_SLOW_STALE); }

/* ---- Aligned and pinned ------------------------------------------------------------------- */

static void *fail_argument(void) {
  errno = EINVAL;
  return NULL;
}

void *loam_aligned_alloc(loam_site *site, size_t alignment, size_t size) {
  lm_thread *t = lm_thread_self_or_empty;
  lm_request r = { .site = site ? site : lm_decision_scope(t), .size = size, .align = alignment };
  bool holds = false;
  void *p = NULL;
  if (lm_unlikely(!lm_is_pow2(alignment))) {
    lm_error(LOAM_EINVAL, "alignment %zu: it must be a power of two", alignment);
    return fail_argument();
  }
  if (lm_likely(alignment > 16 && lm_decision_can_serve(&r)))
    p = lm_decision_serve(t, lm_decision_key_of_request(t, &r), &holds);
  if (lm_likely(p != NULL)) return p;
  lm_pool_note_oversized(size, alignment);
  return serve(&r, holds);
}

void *loam_pinned_alloc(loam_site *site, size_t size, unsigned flags) {
  enum { ALL = LOAM_PINNED_MAPPED | LOAM_PINNED_PORTABLE | LOAM_PINNED_WRITE_COMBINED };
  lm_thread *t = lm_thread_self_or_empty;
  lm_request r = { .site = site ? site : lm_decision_scope(t), .size = size, .align = 16 };
  r.want = LM_WANT_PINNED;
  r.flags = flags;
  if (!(flags & ~(unsigned)ALL)) {
    bool holds;
    bool is_small = size <= LM_SMALL_EAGER;
    void *p = is_small ? lm_decision_serve(t, lm_decision_key_of_request(t, &r), &holds) : NULL;
    return lm_likely(p != NULL) ? p : lm_memory_alloc(&r);
  }
  lm_error(LOAM_EINVAL, "flags %#x: they must be a sum of LOAM_PINNED_*", flags);
  return fail_argument();
}

/* ---- realloc ------------------------------------------------------------------------------ */

void *loam_realloc(loam_site *site, void *ptr, size_t size) {
  lm_thread *t = lm_thread_self;
  bool is_quick = t && size <= LM_LARGE_MAX && lm_start_is_running() && !lm_memory_hook_is_wanted();
  void *p = lm_likely(is_quick) ? lm_engine_realloc_quick(t, site, ptr, size) : NULL;
  if (lm_likely(p != NULL)) return p;
  if (lm_unlikely(lm_spare_usable(ptr))) return realloc_spare(site, ptr, size);
  if (lm_unlikely(!begin_slow())) {
    if ((p = realloc_in_fork(ptr, size))) return p;
    lm_lock_hold_cancel(); /* it has to wait */
  }
  int before = errno;
  lm_start_awake();
  note_caller(__builtin_return_address(0));
  p = answer(ptr, lm_engine_realloc(site, ptr, size), size, before);
  lm_lock_allow_cancel();
  return p;
}

/* ---- free --------------------------------------------------------------------------------- */

/* Frees an object that lm_tcache_give_to refused: its token is counted, or its bin is full, or it
 * is not live. Ends the active section. */
static LM_NOINLINE void free_refused(void *ptr, lm_thread *t, lm_located met, const void *caller) {
  int before = errno;
  lm_assert(met.cell && met.span && lm_thread_is_active());
  bool done = lm_engine_free_counted(t, ptr, met) || lm_tcache_give_full(t, ptr, met);
  lm_thread_leave(t);
  errno = before;
  if (!done) lm_memory_free(ptr, SIZE_MAX, NULL, caller);
}

/* Frees an address where lm_tcache_locate_fast found no object: the thread is on the slow path or
 * has not copied lm_map.reach yet, or the range is not whole, or no object of a size class begins
 * at the address. Ends the active section. */
static LM_NOINLINE void free_unlocated(void *ptr, lm_thread *t, const void *caller) {
  lm_located met;
  bool is_fast = lm_load_first(uint64_t, &t->epoch) & LM_EPOCH_FAST;
  lm_load_fence();
  if (is_fast) lm_tcache_update_reach(t);
  if (lm_unlikely(!is_fast || !lm_tcache_locate(ptr, &met))) {
    lm_thread_leave(t);
    lm_memory_free(ptr, SIZE_MAX, NULL, caller);
  } else if (lm_unlikely(!lm_tcache_give_located(t, ptr, met))) {
    free_refused(ptr, t, met, caller);
  } else {
    lm_thread_leave(t);
  }
}

/* Does not look at the epoch: while the thread is on the slow path its `reach` finds no object. */
LM_HOT void loam_free(void *ptr) {
  lm_thread *t = lm_thread_self_or_empty;
  lm_located met;
  size_t bin;
  lm_thread_begin(t);
  if (lm_unlikely(!lm_tcache_locate_fast(t, ptr, &met, &bin)))
    free_unlocated(ptr, t, __builtin_return_address(0));
  else if (lm_unlikely(!lm_tcache_give_to(t, ptr, met, bin)))
    free_refused(ptr, t, met, __builtin_return_address(0));
  else lm_thread_leave(t);
}

/* Tells of a wrong size if the block is guarded, and frees the block. Ends the active section. */
static LM_NOINLINE void free_claimed(void *ptr, size_t size, lm_thread *t, const void *caller) {
  lm_thread_leave(t);
  if (ptr && lm_pool_is_guarded(ptr)) {
    lm_memory_free(ptr, size, NULL, caller);
  } else {
    lm_thread_begin(t);
    free_unlocated(ptr, t, caller);
  }
}

/* A guarded block has no bin, so lm_tcache_locate_fast does not find it. */
LM_HOT void loam_free_claimed(void *ptr, size_t size) {
  lm_thread *t = lm_thread_self_or_empty;
  lm_located met;
  size_t bin;
  lm_thread_begin(t);
  if (lm_unlikely(!lm_tcache_locate_fast(t, ptr, &met, &bin)))
    free_claimed(ptr, size, t, __builtin_return_address(0));
  else if (lm_unlikely(!lm_tcache_give_to(t, ptr, met, bin)))
    free_refused(ptr, t, met, __builtin_return_address(0));
  else lm_thread_leave(t);
}

void loam_free_sized(void *ptr, size_t size) {
  size_t usable = lm_pool_usable(ptr);
  if (lm_likely(usable && lm_class_fits(usable, size))) loam_free(ptr);
  else lm_memory_free(ptr, size, NULL, __builtin_return_address(0));
}

void loam_on_foreign(int (*free_it)(void *ptr)) { lm_engine_set_foreign(free_it); }

/* ---- Questions ---------------------------------------------------------------------------- */

size_t loam_usable_size(const void *ptr) { return lm_record_usable(ptr); }

LM_HOT size_t loam_live_size(const void *ptr) {
  size_t size = lm_load(uint64_t, &lm_record_nested) ? 0 : lm_pool_live_size(ptr);
  return lm_likely(size != 0) ? size : lm_record_usable(ptr);
}

int loam_owns(const void *ptr) {
  lm_provided block;
  return lm_pool_owns(ptr) || lm_spare_usable(ptr) || lm_provider_find(ptr, &block) ||
         lm_range_reserves(ptr);
}

loam_status loam_owner(const void *ptr, loam_owner_info *out) {
  if (!out) return lm_error(LOAM_EINVAL, "out: it is NULL");
  if (lm_record_owner(ptr, out)) return LOAM_OK;
  return lm_error(LOAM_EBADPTR, "%p: it is in no live block", ptr);
}

size_t loam_trim(void) { return lm_sweep_trim(); }

/* Free memory goes back first, so that it does not count as memory that the program has. */
void loam_limits_changed(void) {
  (void)lm_sweep_reclaim();
  lm_range_limit_changed();
}
