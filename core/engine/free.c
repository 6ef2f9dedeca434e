/* free.c - frees a block: an object of a pool, a block of a device pool, a provided block (of a
 * handler, the system's allocator or a driver), or a foreign pointer, which is not loam's. */
#include "device/device_pool.h"
#include "device/pinned.h"
#include "device/provider.h"
#include "engine/bad_free.h"
#include "engine/engine.h"
#include "engine/live_bytes.h"
#include "engine/sample.h"
#include "heap/freed_log.h"
#include "pages/range.h"

/* Logs a block of a device, or for devices, that the thread frees. Nothing but the log will tell of
 * a second free whose block it was. */
static void log_freed(lm_thread *t, const lm_provided *b) {
  if (b->device >= 0)
    lm_freed_log_add(t, &(lm_object){ b->base, b->size, b->token, b->strategy, true, NULL });
}

/* Frees a provided block. Returns false if no such block begins at p. */
static bool free_provided(lm_thread *t, void *p, const lm_stream *on) {
  lm_record b;
  if (!lm_record_remove(t, p, &b, NULL)) return false;
  log_freed(t, &b);
  lm_strategy_limit_give(lm_strategy_at(b.strategy), (int64_t)b.size);
  lm_lock_suspended section = lm_thread_foreign_begin(t);
  lm_provider_free(&b, on);
  lm_thread_foreign_end(t, section);
  return true;
}

/* Frees an object of a pool. Pinned memory that a stream may still use is freed after the
 * stream. */
static void free_pool(lm_thread *t, void *p, const lm_stream *on) {
  lm_object object;
  bool waits = on && lm_pinned_owns(p);
  lm_thread_enter(t);
  lm_free_result freed = waits ? lm_pool_hold(p, &object) : lm_pool_free(t, p, &object);
  if (freed == LM_FREE_DONE && object.token & LM_TOKEN_COUNTED)
    lm_live_count(t, lm_site_of(object.token), -(int64_t)object.size);
  if (freed == LM_FREE_DONE && object.large) lm_freed_log_add(t, &object);
  lm_thread_leave(t);
  if (freed == LM_FREE_DOUBLE) lm_bad_free_double(p, &object);
  else if (freed != LM_FREE_DONE) lm_bad_free_wrong("free", p);
  else if (object.damage) lm_bad_free_damaged(p, &object);
  else if (waits) {
    lm_lock_suspended section = lm_thread_foreign_begin(t);
    lm_pinned_free_after(p, *on);
    lm_thread_foreign_end(t, section);
  }
}

/* The function of loam_on_foreign. Relaxed: nothing else is read through it. */
static int (*_Atomic on_foreign)(void *ptr);

void loam_on_foreign(int (*free_it)(void *ptr)) {
  atomic_store_explicit(&on_foreign, free_it, memory_order_relaxed);
}

/* Frees a pointer that loam does not know: the host's function for foreign pointers may know it. If
 * not, the free is reported as wrong. */
static void free_unknown(lm_thread *t, void *p) {
  int (*ask)(void *) = atomic_load_explicit(&on_foreign, memory_order_relaxed);
  lm_lock_suspended section = lm_thread_foreign_begin(t);
  bool done = !lm_range_reserves(p) && ask && ask(p);
  lm_thread_foreign_end(t, section);
  if (!done) lm_bad_free_wrong("free", p);
}

/* Frees a block of a device pool, in the order of the stream `on` if that is not NULL. Returns
 * false if no such block begins at p. */
static bool free_from_device_pool(lm_thread *t, const void *p, const lm_stream *on) {
  lm_provided f;
  lm_device_pool *attend;
  lm_stream_ref line = { 0 };
  if (on) line = lm_device_pool_stream_at(p, *on);
  lm_thread_enter(t);
  bool freed = lm_device_pool_free(p, on ? &line : NULL, &f, &attend);
  if (freed) lm_site_add_live(f.token, -(int64_t)f.size);
  lm_thread_leave(t);
  if (!freed) return false;
  log_freed(t, &f);
  lm_strategy_limit_give(lm_strategy_at(f.strategy), (int64_t)f.size);
  lm_lock_suspended section = lm_thread_foreign_begin(t);
  if (attend) lm_device_pool_poll(attend, line);
  lm_thread_foreign_end(t, section);
  return true;
}

void lm_engine_free(void *ptr, size_t size, const lm_stream *on) {
  lm_thread *t = lm_thread_get();
  lm_assert(!lm_thread_is_active());
  if (!ptr || !t) return; /* no memory for a thread's area: the block is lost, the host is not */
  if (size != SIZE_MAX) lm_bad_free_check_size(ptr, size);
  lm_sample_end(ptr);
  if (lm_record_is_nested(ptr) && free_provided(t, ptr, on)) return;
  if (lm_pool_owns(ptr)) free_pool(t, ptr, on);
  else if (!free_from_device_pool(t, ptr, on) && !free_provided(t, ptr, on)) free_unknown(t, ptr);
}
