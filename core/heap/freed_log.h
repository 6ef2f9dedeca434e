/* freed_log.h - to whom a freed block belonged.
 *
 * The state of a freed small object still names its token, as long as its span exists (state.h). A
 * freed large block leaves nothing behind, nor does a block of a device. So each thread logs the
 * latest ones that it freed. */
#ifndef LM_FREED_LOG_H
#define LM_FREED_LOG_H

#include "heap/pool.h"

/* Logs a large block, or a block of a device, that the calling thread has just freed; `t` is the
 * thread's area. */
LM_INLINE void lm_freed_log_add(lm_thread *t, const lm_object *object) {
  lm_assert(object->large && object->base);
  uint32_t n = atomic_load_explicit(&t->freed_count, memory_order_relaxed);
  lm_freed_entry *entry = &t->freed[n % LM_FREED_ENTRIES];
  atomic_store_explicit(&t->freed_count, n + 1, memory_order_relaxed);
  /* The releases pair with the acquires in freed_log.c: a reader that finds one base before and
   * after the other fields has read the fields of that block. */
  atomic_store_explicit(&entry->base, 0, memory_order_relaxed);
  atomic_store_explicit(&entry->size, object->size, memory_order_release);
  atomic_store_explicit(&entry->token, object->token, memory_order_release);
  atomic_store_explicit(&entry->strategy, object->strategy, memory_order_release);
  atomic_store_explicit(&entry->base, (uintptr_t)object->base, memory_order_release);
}

/* Describes the freed object that p points at or into. False: there is none, or it is not known any
 * more. The calling thread holds no lock. */
bool lm_freed_log_find(const void *p, lm_object *out);

#endif
