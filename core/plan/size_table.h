/* size_table.h - for each size class, how a plan serves its requests.
 *
 * Most policies decide by size, and most of their thresholds lie between two size classes. So most
 * requests are decided by one look into this table. If a plan reads something else (a gauge, or
 * where a size lies within its class), the table names the node of the decision tree from which to
 * evaluate it. */
#ifndef LM_SIZE_TABLE_H
#define LM_SIZE_TABLE_H

#include "heap/pool.h"

struct lm_plan;

/* Values of lm_serve.bin other than the offset of a bin. */
enum {
  LM_BIN_NONE = 0, /* no thread cache can serve this: the engine goes along the chain of the leaf */
  LM_BIN_HERE = 1, /* the bin of the strategy's share on the NUMA node of the calling thread */
  LM_BIN_ASKS = 2  /* evaluate the decision tree from .node on */
};

/* How the requests of a size class are served: by a bin, with the figures that statistics need; or
 * by the leaf to which the decision tree leads from a node. */
typedef struct lm_serve {
  uint32_t bin; /* offset of the bin in the thread's area, or LM_BIN_* */
  union {
    struct {
      uint16_t strategy; /* id */
      uint16_t units;    /* usable bytes of the bin's objects / 16; 0 for large classes */
    };
    uint32_t node; /* of LM_BIN_ASKS */
  };
} lm_serve;

/* Law, for requests of the class with align <= 16 and zero = 0:
 *   - .bin is LM_BIN_ASKS only if each of them passes .node;
 *   - else .bin is not LM_BIN_NONE only if each of them reaches, whatever the gauges say, a leaf
 *     whose first member (lm_plan_first) is .strategy. */
typedef struct lm_size_table {
  lm_serve serve[LM_CLASSES_ALL];
} lm_size_table;

/* Fills the table from the tree. Takes about a millisecond at most, whatever the tree. */
void lm_size_table_fill(lm_size_table *table, const struct lm_plan *plan);
/* Returns whether each entry is in range. It does not evaluate the plan to check the law. */
bool lm_size_table_is_valid(const lm_size_table *table, const struct lm_plan *plan);

/* Finds how a strategy serves a class; LM_BIN_NONE if its thread caches have no such class. */
lm_serve lm_size_table_find(lm_strategy *strategy, unsigned class_);
/* Stores the result of lm_size_table_find for all classes of a strategy, so that
 * lm_size_table_serve is one load from then on. The loader of a plan calls it for the strategies
 * that the plan names, before the plan goes live. If memory is short it does nothing, and
 * lm_size_table_serve is slower. */
void lm_size_table_note(lm_strategy *strategy);

/* By strategy id: the results that lm_size_table_note has stored, by class; NULL if there are
 * none. */
extern _Atomic(_Atomic(lm_serve) *) lm_size_table_noted[LM_STRATEGIES_MAX]
    __attribute__((visibility("hidden")));

/* Returns how the strategy with this id serves a class. */
LM_INLINE lm_serve lm_size_table_serve(uint32_t id, unsigned class_) {
  lm_assert(id < LM_STRATEGIES_MAX && class_ < LM_CLASSES_ALL);
  /* Acquire pairs with the release in lm_size_table_note. */
  _Atomic(lm_serve) *row = atomic_load_explicit(&lm_size_table_noted[id], memory_order_acquire);
  return lm_likely(row != NULL) ? atomic_load_explicit(&row[class_], memory_order_relaxed)
                                : lm_size_table_find(lm_strategy_at(id), class_);
}

#endif
