/* states.h - memory for the states of spans, and assigning tokens to objects. */
#ifndef LM_STATES_H
#define LM_STATES_H

#include "pages/map.h"

/* Registers what this module does around a fork. Call it once, before a module that is used above
 * this one registers its own locks: in a child those are renewed later. */
void lm_states_start(void);

/* Returns the cells of a new span of `count` objects of a small class: all FREE, none with a token,
 * and one more at the end that stays FREE. The palette stands before them. NULL: no memory. Any
 * thread. The central list of the class owns them until lm_states_free. */
lm_state_cell *lm_states_alloc(unsigned class_, uint32_t count);
/* Frees what lm_states_alloc returned. Other threads may still read the cells: see state.h. */
void lm_states_free(lm_state_cell *cells);

/* Returns the state for the object at `index` if it is to have `token`, and 0 when there is no
 * memory to note the token. The caller stores the state. *hint is an id to try first (see
 * lm_state_hint), and becomes the id of the token, if it has one. Inside an active section; the
 * span must not end during the call. */
lm_state lm_states_assign(lm_state_cell *cells, size_t index, lm_token token, uint8_t *hint);
/* Like lm_states_assign, for the object at `p`, whose cell is `at`, in a span of small objects. If
 * the state is COUNTED, the span's entries of the page map get the token too (lm_span.token). */
LM_INLINE lm_state lm_states_assign_at(const void *p, lm_state_cell *at, lm_token token,
                                       uint8_t *hint) {
  const lm_span *span = lm_map_span_of(p);
  lm_state_cell *cells = atomic_load_explicit(&span->cells, memory_order_relaxed);
  lm_state state = lm_states_assign(cells, (size_t)(at - cells), token, hint);
  if (state == LM_STATE_COUNTED &&
      atomic_load_explicit(&span->token, memory_order_relaxed) != token)
    lm_map_note_counted(span, token);
  return state;
}

/* Gives back to the system all memory of this module that is unused. */
void lm_states_trim(void);
/* One tick of decay (os/decay.h): gives back slots that were unused throughout the last interval,
 * at most *most, and subtracts their number from *most. Returns whether a later tick has more to
 * do. */
bool lm_states_decay(uint32_t *most);
/* Returns the bytes of the range that this module has memory in. */
size_t lm_states_held(void);
/* The slots of this module, for a process that reads them from outside (engine/outside.h). */
extern const struct lm_regions *const lm_states_outside __attribute__((visibility("hidden")));
/* Returns the bytes of the range that belong to this module, with or without memory. */
size_t lm_states_taken(void);

/* Returns whether all structures of this module obey their laws. Takes the module's locks. */
bool lm_states_is_valid(void);
/* Returns whether the states of one span obey the laws of state.h. No thread may be replacing a
 * token of the span during the call. */
bool lm_states_span_is_valid(lm_state_cell *cells);

#endif
