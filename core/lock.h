/* lock.h - a lock of four bytes, for the supply of memory.
 *
 * Not a pthread_mutex_t, because a pool has one for each size class and all of them are taken
 * around fork: four bytes that a child can simply renew, and no limit on how many are held.
 * Free: 0; held: 1; held and perhaps waited for: 2 (Drepper, "Futexes are tricky", mutex 2). */
#ifndef LM_LOCK_H
#define LM_LOCK_H

#include "sys.h"

typedef struct lm_lock {
  _Atomic uint32_t state;
} lm_lock;

void lm_lock_wait(lm_lock *lock);

/* Acquire pairs with the release of lm_lock_drop. */
LM_INLINE void lm_lock_take(lm_lock *lock) {
  uint32_t free = 0;
  if (lm_unlikely(!atomic_compare_exchange_strong_explicit(
          &lock->state, &free, 1, memory_order_acquire, memory_order_relaxed)))
    lm_lock_wait(lock);
}

LM_INLINE void lm_lock_drop(lm_lock *lock) {
  lm_assert(atomic_load_explicit(&lock->state, memory_order_relaxed) != 0);
  if (lm_unlikely(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2))
    lm_sys_wake(&lock->state);
}

/* In a forked child, by the thread that took it before the fork: its waiters are gone. */
LM_INLINE void lm_lock_renew(lm_lock *lock) {
  atomic_store_explicit(&lock->state, 0, memory_order_release);
}

#endif
