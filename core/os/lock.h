/* lock.h - a lock of four bytes, for the supply of memory.
 *
 * Not a pthread_mutex_t, because a pool has one for each size class and all of them are taken
 * around fork: four bytes that a child can simply renew, and no limit on how many are held.
 * Free: 0; held: 1; held and perhaps waited for: 2 (Drepper, "Futexes are tricky", mutex 2).
 *
 * A thread that has asked to be cancelled at any instruction is not while it holds a lock, which
 * nobody would drop: the first that it takes shields it, the last that it drops ends that. System
 * calls that would have any cancelled thread end are made calmly (sys.h). */
#ifndef LM_LOCK_H
#define LM_LOCK_H

#include "os/sys.h"

typedef struct lm_lock {
  _Atomic uint32_t state;
} lm_lock;

/* Shields that this thread is under: a lock each, or without one. */
extern _Thread_local uint32_t lm_lock_cancel_holds
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
extern _Thread_local bool lm_lock_cancel_was_async /* a wish to be cancelled at any instruction */
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

void lm_lock_hold_cancel_first(void);
void lm_lock_allow_cancel_last(void);

LM_INLINE void lm_lock_hold_cancel(void) {
  if (lm_lock_cancel_holds++ == 0) lm_lock_hold_cancel_first();
}
LM_INLINE void lm_lock_allow_cancel(void) {
  if (--lm_lock_cancel_holds == 0 && lm_unlikely(lm_lock_cancel_was_async))
    lm_lock_allow_cancel_last();
}
/* In a forked child, where locks were renewed, not dropped. */
void lm_lock_cancel_reset(void);

void lm_lock_wait(lm_lock *lock);

/* Acquire pairs with the release of lm_lock_drop. */
LM_INLINE void lm_lock_take(lm_lock *lock) {
  lm_lock_hold_cancel();
  uint32_t free = 0;
  if (lm_unlikely(!atomic_compare_exchange_strong_explicit(
          &lock->state, &free, 1, memory_order_acquire, memory_order_relaxed)))
    lm_lock_wait(lock);
}

/* Takes it if it is free; whether it was. */
LM_INLINE bool lm_lock_try(lm_lock *lock) {
  uint32_t free = 0;
  lm_lock_hold_cancel();
  if (lm_likely(atomic_compare_exchange_strong_explicit(
          &lock->state, &free, 1, memory_order_acquire, memory_order_relaxed)))
    return true;
  lm_lock_allow_cancel();
  return false;
}

LM_INLINE void lm_lock_drop(lm_lock *lock) {
  lm_assert(atomic_load_explicit(&lock->state, memory_order_relaxed) != 0);
  if (lm_unlikely(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2))
    lm_sys_wake(&lock->state);
  lm_lock_allow_cancel();
}

/* In a forked child, by the thread that took it before the fork: its waiters are gone. */
LM_INLINE void lm_lock_renew(lm_lock *lock) {
  atomic_store_explicit(&lock->state, 0, memory_order_release);
}

#endif
