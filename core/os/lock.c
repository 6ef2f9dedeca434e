/* lock.c - a lock of four bytes: the slow path, and what begins and ends with locks. */
#include "os/lock.h"

#include <pthread.h>

#include "os/fork_gate.h"

enum { SPINS = 64 };

/* loam holds a lock for a fraction of a microsecond, so a short spin usually succeeds. */
static bool spin(lm_lock *lock) {
  for (int i = 0; i < SPINS; i++) {
    uint32_t free = 0;
    if (atomic_compare_exchange_weak_explicit(&lock->state, &free, 1, memory_order_acquire,
                                              memory_order_relaxed))
      return true;
    lm_pause();
  }
  return false;
}

/* A thread that had to sleep takes the lock with state 2, because other threads may still sleep. */
static void take_busy(lm_lock *lock) {
  lm_assert(lm_lock_is_valid(lock));
  if (spin(lock)) return;
  while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
    lm_sys_wait(&lock->state, 2);
}

LM_NOINLINE void lm_lock_wait(lm_lock *lock) {
  lm_assert(lm_lock_cancel_holds > 0);
  take_busy(lock);
}

_Thread_local uint32_t lm_lock_cancel_holds __attribute__((tls_model("initial-exec")));
_Thread_local bool lm_lock_cancel_was_async __attribute__((tls_model("initial-exec")));

/* ---- Guarded sections */

static void defer_cancel(void) {
  int before;
  lm_lock_cancel_was_async = !pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before) &&
                             before == PTHREAD_CANCEL_ASYNCHRONOUS;
}

/* Does not return if the thread was cancelled while its type was deferred. */
static void restore_cancel(void) {
  int before;
  if (lm_unlikely(lm_lock_cancel_was_async))
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
}

void lm_lock_hold_cancel_first(void) {
  lm_assert(lm_lock_cancel_holds == 1);
  defer_cancel();
  if (lm_unlikely(!lm_fork_gate_pass())) lm_fork_gate_enter();
  lm_verify(lm_fork_gate_is_valid());
}

void lm_lock_allow_cancel_last(void) {
  lm_assert(lm_lock_cancel_holds == 0);
  lm_fork_gate_leave();
  lm_verify(lm_fork_gate_is_valid());
  restore_cancel();
}

/* How long lm_lock_try_hold waits for a fork. Most forks last for less than this time. Where a fork
 * and this thread wait for each other, both lose this time. */
#define PATIENCE_NS ((int64_t)10000000)

static LM_NOINLINE bool try_slowly(bool waits) {
  if (lm_fork_gate_try(waits ? PATIENCE_NS : 0)) return true;
  lm_lock_cancel_holds = 0;
  restore_cancel();
  return false;
}

bool lm_lock_try_hold_first(bool waits) {
  defer_cancel();
  return lm_likely(lm_fork_gate_pass()) || try_slowly(waits);
}

/* ---- Foreign code */

lm_lock_suspended lm_lock_suspend(void) {
  lm_lock_suspended section = { lm_lock_cancel_holds, lm_lock_cancel_was_async, false };
  if (!section.holds) return section;
  lm_lock_cancel_holds = 0;
  section.is_counted = lm_fork_gate_interrupt();
  return section;
}

void lm_lock_resume(lm_lock_suspended section) {
  lm_assert(!section.holds || !lm_lock_cancel_holds);
  if (!section.holds) return;
  lm_lock_cancel_holds = section.holds;
  lm_lock_cancel_was_async = section.was_async;
  lm_fork_gate_return(section.is_counted);
}

/* The section begins only to be interrupted: the thread then counts as interrupted, so a closing
 * gate lets it pass, as threads that hold a lock around foreign code must. */
lm_lock_suspended lm_lock_take_long(lm_lock *lock) {
  lm_sys_cancel_off();
  lm_lock_hold_cancel();
  lm_lock_suspended section = lm_lock_suspend();
  take_busy(lock);
  return section;
}

void lm_lock_drop_long(lm_lock *lock, lm_lock_suspended section) {
  lm_assert(section.holds > 0);
  lm_lock_release(lock);
  lm_lock_resume(section);
  lm_lock_allow_cancel();
  lm_sys_cancel_restore();
}
