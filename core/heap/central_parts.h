/* central_parts.h - what central.c and central_detach.c share.
 *
 * The caller of a function that ends in _locked holds the lock of the list. */
#ifndef LM_CENTRAL_PARTS_H
#define LM_CENTRAL_PARTS_H

#include "heap/central.h"

/* Returns the palette of a span. The caller holds the lock of the span's list; under this lock the
 * states of the span do not move, so a relaxed load is enough. */
LM_INLINE lm_palette *lm_central_palette(const lm_span *span) {
  return lm_state_palette(atomic_load_explicit(&span->cells, memory_order_relaxed));
}

/* Returns the number of FREE objects of a span. The caller holds the lock of the span's list. */
LM_INLINE uint32_t lm_central_free_of(const lm_span *span) {
  return lm_central_palette(span)->free;
}

/* The note of a span says whether the span is in the list `purged`, whether it was abandoned, or
 * neither. It stands in the state byte of the entry of the span's first slot, which has no other
 * use in a span of small objects. Written under the lock. */
enum { LM_CENTRAL_NOTE_NONE, LM_CENTRAL_NOTE_PURGED, LM_CENTRAL_NOTE_ABANDONED };

LM_INLINE uint32_t lm_central_note(const lm_span *span) {
  return atomic_load_explicit(&span->cell, memory_order_relaxed);
}
LM_INLINE void lm_central_set_note(lm_span *span, uint32_t note) {
  atomic_store_explicit(&span->cell, note, memory_order_relaxed);
}

/* Tells whether a span of this list is detached: its entry then names another bin. */
LM_INLINE bool lm_central_is_detached(const lm_central *c, const lm_span *span) {
  return atomic_load_explicit(&span->bin, memory_order_relaxed) != c->bin;
}

/* Takes a span out of the list `partial` or `purged`, in which its note says it is. At least one
 * object of the span is free, and at least one is not. */
void lm_central_unlink_locked(lm_central *c, uint32_t slot);
/* Puts a span that is in no list, and has a free object, into the list `empty` or `partial`.
 * `empty` tells whether all objects of the span are free. */
void lm_central_list_locked(lm_central *c, uint32_t slot, bool empty);
/* Puts objects back into their spans. Skips items that are not CACHED. */
void lm_central_put_all_locked(lm_central *c, const lm_cached_object *items, unsigned n);
/* Puts the objects of the depot back into their spans. */
void lm_central_empty_depot_locked(lm_central *c);

#endif
