/* lock.c - a lock of four bytes: the slow path, and guarded sections. */
#include "os/lock.h"

#include <pthread.h>

#include "os/fork_gate.h"
#include "os/thread.h"

enum { SPINS = 64 };

LM_INLINE void pause_cpu(void) { __builtin_ia32_pause(); }

/* loam holds a lock for a fraction of a microsecond, so a short spin usually succeeds. */
static bool spin(lm_lock *lock) {
  for (int i = 0; i < SPINS; i++) {
    uint32_t free = 0;
    if (atomic_compare_exchange_weak_explicit(&lock->state, &free, 1, memory_order_acquire,
                                              memory_order_relaxed))
      return true;
    pause_cpu();
  }
  return false;
}

/* A thread that had to sleep takes the lock with state 2, because other threads may still sleep. */
LM_NOINLINE void lm_lock_wait(lm_lock *lock) {
  lm_assert(lm_lock_cancel_holds > 0 && lm_lock_is_valid(lock));
  if (spin(lock)) return;
  while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
    lm_sys_wait(&lock->state, 2);
}

_Thread_local uint32_t lm_lock_cancel_holds __attribute__((tls_model("initial-exec")));
_Thread_local bool lm_lock_cancel_was_async __attribute__((tls_model("initial-exec")));

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

/* ---- Guarded sections */

/* How long lm_lock_try_hold waits for a fork. */
#define PATIENCE_NS ((int64_t)10000000)

void lm_lock_hold_cancel_first(void) {
  lm_assert(lm_lock_cancel_holds == 1);
  defer_cancel();
  lm_fork_gate_enter();
}

void lm_lock_allow_cancel_last(void) {
  lm_assert(lm_lock_cancel_holds == 0);
  lm_fork_gate_leave();
  if (lm_unlikely(lm_thread_owes_child)) lm_thread_begin_child();
  restore_cancel();
}

static bool hold_within(int64_t patience_ns) {
  if (lm_lock_cancel_holds++ > 0) return true;
  defer_cancel();
  if (lm_likely(lm_fork_gate_try(patience_ns))) return true;
  lm_lock_cancel_holds = 0;
  restore_cancel();
  return false;
}

bool lm_lock_try_hold(void) { return hold_within(PATIENCE_NS); }
bool lm_lock_hold_if_open(void) { return hold_within(0); }

lm_lock_suspended lm_lock_suspend(void) {
  lm_lock_suspended section = { lm_lock_cancel_holds, lm_lock_cancel_was_async };
  if (!section.holds) return section;
  lm_lock_cancel_holds = 0;
  lm_fork_gate_leave();
  return section;
}

void lm_lock_resume(lm_lock_suspended section) {
  lm_assert(!section.holds || !lm_lock_cancel_holds);
  if (!section.holds) return;
  lm_lock_cancel_holds = section.holds;
  lm_lock_cancel_was_async = section.was_async;
  lm_fork_gate_return();
}
