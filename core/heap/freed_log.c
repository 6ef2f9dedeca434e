/* freed_log.c - to whom a freed block belonged: the search. */
#include "heap/freed_log.h"

#include "heap/large.h"

typedef struct search {
  uintptr_t p;
  lm_object *out;
  bool found;
} search;

/* Tells whether the entry is of a block around the searched address; copies it then. The acquires
 * pair with the releases in lm_freed_log_add. */
static bool is_in(const lm_freed_entry *entry, search *s) {
  uintptr_t base = atomic_load_explicit(&entry->base, memory_order_acquire);
  lm_object object = {
    .base = (void *)base,
    .size = atomic_load_explicit(&entry->size, memory_order_acquire),
    .token = atomic_load_explicit(&entry->token, memory_order_acquire),
    .strategy = atomic_load_explicit(&entry->strategy, memory_order_acquire),
  };
  if (!base || s->p - base >= object.size) return false;
  if (atomic_load_explicit(&entry->base, memory_order_relaxed) != base) return false;
  *s->out = object;
  return true;
}

/* Searches the log of one thread, the latest entry first: several logged blocks may have been at
 * the searched address. */
static void search_thread(lm_thread *t, void *ctx) {
  search *s = ctx;
  lm_assert(s->out);
  uint32_t last = atomic_load_explicit(&t->freed_count, memory_order_relaxed);
  for (uint32_t i = 1; i <= LM_FREED_ENTRIES && !s->found; i++)
    s->found = is_in(&t->freed[(last - i) % LM_FREED_ENTRIES], s);
}

bool lm_freed_log_find(const void *p, lm_object *out) {
  lm_map_object place;
  if (lm_map_find(p, &place)) {
    *out = (lm_object){ (void *)place.base, lm_large_usable((void *)place.base, place.size),
                        place.token,        place.strategy,
                        place.large,        NULL };
    return !lm_state_is_live(place.state);
  }
  search s = { (uintptr_t)p, out, false };
  lm_thread_each(search_thread, &s);
  return s.found;
}
