/* cell_of.h - the state of a small object (pages/state.h), for tests of the heap. */
#ifndef CELL_OF_H
#define CELL_OF_H

#include "pages/map.h"

/* Returns the state cell of the small object at p, which is live or cached. */
static inline lm_state_cell *cell_of(const void *p) {
  const lm_span *s = lm_map_span_of(p);
  uint64_t offset = (uintptr_t)p - lm_load(uintptr_t, &s->start);
  uint64_t key = lm_load(uint64_t, &s->key);
  return lm_load(lm_state_cell *, &s->cells) + (size_t)(((unsigned __int128)offset * key) >> 64);
}

#endif
