/* run.h - a set of free runs of slots: put, take, join.
 *
 * Segregated fit with boundary tags (Knuth, "The Art of Computer Programming" 1, 2.5; dlmalloc).
 * There is a list of runs for each length up to 15 slots, then four lists for each doubling of the
 * length, and a bit for each list that is not empty. The tags stand in the entries of the page map,
 * so a set needs no memory of its own:
 *
 *   first slot of a run   `use`: "first slot, set ID"; `slots`: the length
 *   last slot of a run    `use`: "last slot, set ID" (if the run has more than one slot);
 *                         `length`: the length
 *
 * Law: no two runs of a set are neighbours. A slot has a `use` of the set if and only if it is the
 * first or the last slot of one of its runs. Only the thread that holds the set's lock writes these
 * values. So the tag of a slot beside a run tells for certain whether a run of this set is there,
 * also if the slot belongs to another set or to none. */
#ifndef LM_RUN_H
#define LM_RUN_H

#include "pages/map.h"

enum { LM_RUN_LISTS = 104 };

/* A set. Law: `slots` is the sum of the lengths of all runs; bit i of `filled` is set if and only
 * if head[i] is not 0; each run is in the list of its length. */
typedef struct lm_runs {
  uint32_t id;                 /* the number that the tags bear; constant */
  uint32_t slots;              /* in all runs */
  uint64_t filled[2];          /* a bit for each list that has a run */
  uint32_t head[LM_RUN_LISTS]; /* first slot of the first run of each list; 0: none */
} lm_runs;

/* Makes an empty set of zeroed memory, with an id that no other set has. */
void lm_runs_init(lm_runs *runs);

/* All other functions: the caller holds the lock of the set, which the set's owner provides. */

/* Adds a run and joins it with its neighbours in the set. The slots are described by the page map
 * and have no use. */
void lm_runs_put(lm_runs *runs, uint32_t slot, uint32_t slots);
/* Takes `slots` slots that begin at a multiple of `align` bytes (a power of two; any alignment
 * below a slot is met). Returns the first slot, or 0 if no run fits. The slots are then an extent
 * of LM_USE_NONE. */
uint32_t lm_runs_take(lm_runs *runs, uint32_t slots, size_t align);
/* Takes the last `slots` slots of a run, so that later requests are served beside them and the
 * beginning of the run stays whole. Returns the first slot that it took, or 0 if no run fits. */
uint32_t lm_runs_take_last(lm_runs *runs, uint32_t slots);
/* Takes exactly these slots if a run begins with them. Returns whether it did. */
bool lm_runs_take_at(lm_runs *runs, uint32_t slot, uint32_t slots);
/* Takes the run that begins at `slot` if it has at most `most` slots. Returns its length, or 0 if
 * there is no such run. The entry of its first slot keeps the length until the caller puts the run
 * back, joined with a neighbour. */
uint32_t lm_runs_take_from(lm_runs *runs, uint32_t slot, uint32_t most);
/* Like lm_runs_take_from, for the run whose last slot is `slot`. */
uint32_t lm_runs_take_until(lm_runs *runs, uint32_t slot, uint32_t most);
/* Takes a whole run of the list with the longest runs. Returns its first slot and sets *slots to
 * its length; 0: the set is empty. */
uint32_t lm_runs_take_longest(lm_runs *runs, uint32_t *slots);
/* Returns whether the caller of lm_runs_take_suitable can use this run; `ctx` is the caller's. */
typedef bool lm_runs_suits(uint32_t slot, uint32_t slots, int ctx);
/* Takes a whole run of at most `most` slots that `suits` accepts; lists of longer runs are searched
 * first. Returns its first slot and sets *slots to its length; 0: there is none. */
uint32_t lm_runs_take_suitable(lm_runs *runs, uint32_t most, lm_runs_suits *suits, int ctx,
                               uint32_t *slots);
/* Returns whether a run has at least `slots` slots. */
bool lm_runs_has(const lm_runs *runs, uint32_t slots);
/* Returns whether both laws above hold. Walks all runs. */
bool lm_runs_is_valid(const lm_runs *runs);

#endif
