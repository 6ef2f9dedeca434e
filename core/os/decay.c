/* decay.c - when memory that is no longer used goes back to the system by itself: the state that
 * decay.h describes, and who is woken. */
#include "os/decay.h"

#include <string.h>

#include "os/sys.h"
#include "os/thread.h"

_Atomic uint32_t lm_decay_state __attribute__((aligned(LM_CACHE_LINE))) = LM_DECAY_ASLEEP;

/* Wakes the service thread; NULL: there is none yet. Relaxed: the service thread looks at the state
 * before it waits for the first time, so a thread that misses the new function loses nothing. */
static _Atomic(bool (*)(void)) waker;

/* When the service thread was last woken for a tick, or ticked. Relaxed: a time alone. Ticks are a
 * quarter of a second apart, so a service thread that is silent for SERVED_NS is not there. */
static _Atomic int64_t served_at_ns;
#define SERVED_NS 3000000000

/* When the next step of a tick may be done by a thread that allocates or frees. Relaxed: a time
 * alone. */
static _Atomic int64_t due_ns;

void lm_decay_note_served(int64_t now_ns) {
  atomic_store_explicit(&served_at_ns, now_ns, memory_order_relaxed);
}

/* A process that was never served is not written, as in lm_lock_renew. */
void lm_decay_note_unserved(void) {
  if (atomic_load_explicit(&served_at_ns, memory_order_relaxed)) lm_decay_note_served(0);
}

LM_NOINLINE void lm_decay_stir_slow(void) {
  uint32_t before = atomic_exchange_explicit(&lm_decay_state, LM_DECAY_STIRRED,
                                             memory_order_acq_rel);
  lm_assert(before <= LM_DECAY_STIRRED);
  bool (*wake)(void) = atomic_load_explicit(&waker, memory_order_relaxed);
  if (before == LM_DECAY_ASLEEP && wake && wake()) lm_decay_note_served(lm_sys_clock_ns());
}

/* Relaxed: a thread that sees it late gives memory back later. */
static _Atomic bool has_devices;

void lm_decay_stir_devices(void) {
  lm_decay_stir();
  atomic_store_explicit(&has_devices, true, memory_order_relaxed);
  if (lm_thread_self && !lm_decay_is_served()) lm_thread_set_slow(lm_thread_self, LM_SLOW_DEVICES);
}

bool lm_decay_has_devices(void) { return atomic_load_explicit(&has_devices, memory_order_relaxed); }
void lm_decay_end_devices(void) {
  atomic_store_explicit(&has_devices, false, memory_order_relaxed);
}

void lm_decay_set_wake(bool (*wake)(void)) {
  atomic_store_explicit(&waker, wake, memory_order_relaxed);
}

bool lm_decay_keeps_all(void) {
  enum { UNREAD, KEEPS, GIVES_BACK };
  static _Atomic int kept; /* relaxed: every thread reads the same environment */
  if (lm_unlikely(atomic_load_explicit(&kept, memory_order_relaxed) == UNREAD)) {
    const char *value = lm_sys_getenv("LOAM_KEEP");
    int found = value && !strcmp(value, "1") ? KEEPS : GIVES_BACK;
    atomic_store_explicit(&kept, found, memory_order_relaxed);
  }
  return atomic_load_explicit(&kept, memory_order_relaxed) == KEEPS;
}

static bool is_served_at(int64_t now) {
  int64_t at = atomic_load_explicit(&served_at_ns, memory_order_relaxed);
  return at && now - at < SERVED_NS;
}

bool lm_decay_is_served(void) { return lm_decay_keeps_all() || is_served_at(lm_sys_clock_ns()); }

bool lm_decay_is_due(void) {
  if (lm_decay_is_asleep()) return false;
  int64_t now = lm_sys_clock_ns();
  return now >= atomic_load_explicit(&due_ns, memory_order_relaxed) && !is_served_at(now);
}

void lm_decay_wait(int64_t wait_ns) {
  lm_assert(wait_ns >= 0);
  atomic_store_explicit(&due_ns, lm_sys_clock_ns() + wait_ns, memory_order_relaxed);
}

bool lm_decay_is_asleep(void) {
  return atomic_load_explicit(&lm_decay_state, memory_order_relaxed) == LM_DECAY_ASLEEP ||
         lm_decay_keeps_all();
}

/* The store is ordered before the tick's reads of the pools by the locks that the tick takes. */
void lm_decay_begin(void) {
  atomic_store_explicit(&lm_decay_state, LM_DECAY_TICKING, memory_order_relaxed);
}

/* Fails, and so keeps STIRRED, if memory became free during the tick. The exchange in
 * lm_decay_stir_slow and this one are on one object, so one of the two comes first. */
void lm_decay_end(bool more) {
  uint32_t ticking = LM_DECAY_TICKING;
  if (!more)
    atomic_compare_exchange_strong_explicit(&lm_decay_state, &ticking, LM_DECAY_ASLEEP,
                                            memory_order_acq_rel, memory_order_relaxed);
}
