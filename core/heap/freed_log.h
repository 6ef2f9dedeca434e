/* freed_log.h - whose a block was that has been freed.
 *
 * Small blocks tell it themselves as long as their span is one (state.h). A large one leaves
 * nothing behind, so each thread keeps the particulars of the latest that it freed. */
#ifndef LM_FREED_LOG_H
#define LM_FREED_LOG_H

#include "heap/pool.h"

/* Of a large block that this thread has just freed. */
LM_INLINE void lm_freed_log_add(lm_thread *t, const lm_object *object) {
  uint32_t n = atomic_load_explicit(&t->freed_count, memory_order_relaxed);
  lm_freed_entry *d = &t->freed[n % LM_FREED_ENTRIES];
  atomic_store_explicit(&t->freed_count, n + 1, memory_order_relaxed);
  /* Release, twice: one who finds the same base before and after has read what belongs to it. */
  atomic_store_explicit(&d->base, 0, memory_order_relaxed);
  atomic_store_explicit(&d->size, object->size, memory_order_release);
  atomic_store_explicit(&d->token, object->token, memory_order_relaxed);
  atomic_store_explicit(&d->strategy, object->strategy, memory_order_relaxed);
  atomic_store_explicit(&d->base, (uintptr_t)object->base, memory_order_release);
}

/* The dead block that p is in, if that is known. Not for a thread that holds a lock. */
bool lm_freed_log_find(const void *p, lm_object *out);

#endif
