/* lock.c - a lock of four bytes: the slow path, and cancellation while a lock is held. */
#include "os/lock.h"

#include <pthread.h>

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

void lm_lock_hold_cancel_first(void) {
  int before;
  lm_assert(lm_lock_cancel_holds == 1);
  lm_lock_cancel_was_async = !pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before) &&
                             before == PTHREAD_CANCEL_ASYNCHRONOUS;
}

/* Does not return if the thread was cancelled while its type was deferred. */
void lm_lock_allow_cancel_last(void) {
  int before;
  lm_assert(lm_lock_cancel_holds == 0);
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
}

void lm_lock_cancel_reset(void) {
  if (!lm_lock_cancel_holds) return;
  lm_lock_cancel_holds = 1;
  lm_lock_allow_cancel();
}
