/* lock.h - a lock of four bytes, for the supply of memory.
 *
 * loam does not use pthread_mutex_t, because a pool has a lock for each size class, and a child
 * process renews a lock of four bytes with one store. The algorithm is Drepper, "Futexes are
 * tricky", mutex 2.
 *
 * Law: `state` is 0 when the lock is free, 1 when it is held, 2 when it is held and perhaps a
 * thread sleeps on it.
 *
 * Cancellation. A thread whose cancellation type is asynchronous could be cancelled while it holds
 * a lock, and then no thread would drop that lock. So the first lock that a thread takes makes its
 * type deferred, and the last lock that it drops restores the type. The thread is in a guarded
 * section from the first of these locks to the last, for which a fork waits (fork_gate.h): the
 * functions whose names have "hold" or "cancel" serve both purposes. System calls that are
 * cancellation points are made between lm_sys_cancel_off and lm_sys_cancel_restore (sys.h). */
#ifndef LM_LOCK_H
#define LM_LOCK_H

#include "os/sys.h"

typedef struct lm_lock {
  _Atomic uint32_t state;
} lm_lock;

/* ---- Cancellation */

/* How many locks this thread holds, and calls of lm_lock_hold_cancel without its counterpart. Above
 * 0 the thread is in a guarded section (fork_gate.h). */
extern _Thread_local uint32_t lm_lock_cancel_holds
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
/* The thread's type was asynchronous before lm_lock_cancel_holds became 1. */
extern _Thread_local bool lm_lock_cancel_was_async
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* lm_lock_hold_cancel_first and lm_lock_try_hold_first make the type deferred and begin a guarded
 * section. lm_lock_allow_cancel_last ends the section and makes the type asynchronous again, if it
 * was asynchronous before. Only the functions below call these three. */
void lm_lock_hold_cancel_first(void);
bool lm_lock_try_hold_first(bool waits);
void lm_lock_allow_cancel_last(void);

/* From lm_lock_hold_cancel to the matching lm_lock_allow_cancel the calling thread is in a guarded
 * section: no other thread forks, and the thread is not cancelled at an arbitrary instruction.
 * Pairs nest. The first waits while another thread forks. lm_lock_allow_cancel does not return if
 * the thread was cancelled in the meantime and the last pair ends. */
LM_INLINE void lm_lock_hold_cancel(void) {
  if (lm_lock_cancel_holds++ == 0) lm_lock_hold_cancel_first();
}
LM_INLINE void lm_lock_allow_cancel(void) {
  lm_assert(lm_lock_cancel_holds > 0);
  if (--lm_lock_cancel_holds == 0) lm_lock_allow_cancel_last();
}

/* Like lm_lock_hold_cancel, but returns false if another thread forks for longer than most forks
 * last: that fork may wait for something that the caller holds. Then no section has begun, and the
 * caller takes no lock. */
LM_INLINE bool lm_lock_try_hold(void) {
  return lm_lock_cancel_holds++ > 0 || lm_lock_try_hold_first(true);
}
/* Like lm_lock_try_hold, but does not wait. */
LM_INLINE bool lm_lock_try_hold_now(void) {
  return lm_lock_cancel_holds++ > 0 || lm_lock_try_hold_first(false);
}

/* A guarded section that lm_lock_suspend has interrupted. */
typedef struct lm_lock_suspended {
  uint32_t holds;
  bool was_async;
  bool is_counted; /* in the thread's area, which did exist: `interrupted` in thread.h */
} lm_lock_suspended;

/* Between these two calls the calling thread is in no guarded section, whatever locks it holds, and
 * other threads may fork: foreign code is called there, which may itself fork or wait for a thread
 * that forks. A fork still waits for such code for a moment: most of it ends soon, and the calling
 * thread may hold a lock of the C library which the fork needs. A module whose locks may be held
 * there renews them in a forked child. Outside of guarded sections the two calls do nothing.
 * lm_lock_resume waits while another thread forks. */
lm_lock_suspended lm_lock_suspend(void);
void lm_lock_resume(lm_lock_suspended section);

/* ---- The lock */

/* Spins for a moment, then sleeps, until the calling thread holds the lock. Only lm_lock_take calls
 * it. */
void lm_lock_wait(lm_lock *lock);

/* Returns whether a thread holds the lock. Assertions use it: the answer is true in the thread that
 * holds the lock. In other threads it may be out of date when it arrives. */
LM_INLINE bool lm_lock_is_held(const lm_lock *lock) {
  return atomic_load_explicit(&lock->state, memory_order_relaxed) != 0;
}

/* Waits until the lock is free and takes it. The caller does not hold it. In a thread that is in no
 * guarded section it first waits while another thread forks. Acquire pairs with the release of
 * lm_lock_drop. */
LM_INLINE void lm_lock_take(lm_lock *lock) {
  lm_lock_hold_cancel();
  uint32_t free = 0;
  if (lm_unlikely(!atomic_compare_exchange_strong_explicit(
          &lock->state, &free, 1, memory_order_acquire, memory_order_relaxed)))
    lm_lock_wait(lock);
}

/* Takes the lock and returns true if it is free; else returns false. Does not wait for the lock. In
 * a thread that is in no guarded section it still waits while another thread forks. Acquire pairs
 * with the release of lm_lock_drop. */
LM_INLINE bool lm_lock_try(lm_lock *lock) {
  uint32_t free = 0;
  lm_lock_hold_cancel();
  if (lm_likely(atomic_compare_exchange_strong_explicit(
          &lock->state, &free, 1, memory_order_acquire, memory_order_relaxed)))
    return true;
  lm_lock_allow_cancel();
  return false;
}

/* Makes the lock free and wakes one sleeper. Release pairs with the acquire of lm_lock_take. Only
 * the functions that drop a lock call it. */
LM_INLINE void lm_lock_release(lm_lock *lock) {
  if (lm_unlikely(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2))
    lm_sys_wake(&lock->state);
}

/* Drops the lock, which the caller holds, and wakes one sleeper. */
LM_INLINE void lm_lock_drop(lm_lock *lock) {
  lm_assert(lm_lock_is_held(lock));
  lm_lock_release(lock);
  lm_lock_allow_cancel();
}

/* Take and drop a long lock: one that is held around foreign code, which may last for seconds. From
 * lm_lock_take_long, also while it waits for the lock, to lm_lock_drop_long the calling thread is
 * interrupted (lm_lock_suspend) and is not cancelled. So no fork waits for the foreign code, be it
 * through the holder or through a thread that waits for the lock. All threads take a long lock by
 * these functions alone.
 *
 * Law: a child renews the lock. What the lock guards, a child does not use, or can use although a
 * change of it is half done. A change that must be whole in a child is made in a guarded section,
 * which the holder may begin by taking another lock. lm_lock_drop_long takes the result of
 * lm_lock_take_long. The lock may be free already where the holder itself has forked. */
lm_lock_suspended lm_lock_take_long(lm_lock *lock);
void lm_lock_drop_long(lm_lock *lock, lm_lock_suspended section);

/* Makes the lock free in a forked child, where the threads that waited for it do not exist. Only
 * the thread that forked calls it. A lock that is free is not written, so that the child needs no
 * copy of its page. Release, for symmetry with lm_lock_drop. */
LM_INLINE void lm_lock_renew(lm_lock *lock) {
  if (atomic_load_explicit(&lock->state, memory_order_relaxed))
    atomic_store_explicit(&lock->state, 0, memory_order_release);
}

/* Returns whether the law of the lock holds. */
LM_INLINE bool lm_lock_is_valid(const lm_lock *lock) {
  return atomic_load_explicit(&lock->state, memory_order_relaxed) <= 2;
}

#endif
