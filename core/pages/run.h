/* run.h - sets of free runs of slots: put, take, join.
 *
 * Segregated fit with boundary tags, after Knuth 2.5 and dlmalloc: a list for each length up to 15
 * slots, then four to a doubling; a bit for each list that is not empty. The tags are in the span
 * entries of a run's first slot (`use` says "first, of set id", `slots` how long) and, when it is
 * another, last slot (`use` says "last, of set id"; `length`, in either case, how long), so a set
 * needs no memory of its own.
 *
 * Law: no two runs of one set are neighbours, and no slot but their first and last says `use` of
 * the set. Whoever holds the set's lock is the only one to write that value, so reading a
 * neighbour's tag is decisive, whoever the neighbour is. */
#ifndef LM_RUN_H
#define LM_RUN_H

#include "pages/map.h"

enum { LM_RUN_LISTS = 104 };

typedef struct lm_runs {
  uint32_t id;
  uint32_t slots;              /* in all runs */
  uint64_t filled[2];          /* a bit for each list that has a run */
  uint32_t head[LM_RUN_LISTS]; /* first slot of the first run, 0 for none */
} lm_runs;

/* `runs` is zeroed memory. */
void lm_runs_init(lm_runs *runs);
/* Adds a run and joins it with its neighbours in the set. */
void lm_runs_put(lm_runs *runs, uint32_t slot, uint32_t slots);
/* Takes a run whose address is a multiple of `align` (a power of two; below a slot is no demand).
 * 0: there is none. The run is then an extent of LM_USE_NONE. */
uint32_t lm_runs_take(lm_runs *runs, uint32_t slots, size_t align);
/* The same of at most `unit` slots (a power of two). Where the run is long they are the first of
 * its last whole unit, so that those that come after are beside them, and not at its start. */
uint32_t lm_runs_take_spaced(lm_runs *runs, uint32_t slots, uint32_t unit);
/* Takes exactly these slots if a run begins with them. */
bool lm_runs_take_at(lm_runs *runs, uint32_t slot, uint32_t slots);
/* Takes the run that begins with, or ends with, a slot, if it has at most so many: how many it has;
 * 0: there is none. The run is then still an extent of the set's, to be put with a neighbour. */
uint32_t lm_runs_take_from(lm_runs *runs, uint32_t slot, uint32_t most);
uint32_t lm_runs_take_until(lm_runs *runs, uint32_t slot, uint32_t most);
/* Takes one of the longest runs, whole. 0: the set is empty. */
uint32_t lm_runs_take_longest(lm_runs *runs, uint32_t *slots);
/* Takes a run of at most `most` slots of which `suits` is true, whole; a long one. 0: none. */
typedef bool lm_runs_suits(uint32_t slot, uint32_t slots, int ctx);
uint32_t lm_runs_take_suitable(lm_runs *runs, uint32_t most, lm_runs_suits *suits, int ctx,
                               uint32_t *slots);
/* Whether it has a run of at least so many. */
bool lm_runs_has(const lm_runs *runs, uint32_t slots);
bool lm_runs_is_valid(const lm_runs *runs);

#endif
