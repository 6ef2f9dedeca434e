/* size_table.h - for each size class, how a plan decides its requests.
 *
 * Most policies decide by size, and most of their thresholds lie between two size classes. So most
 * requests are decided by one look into this table. If a plan reads something else (a gauge, or
 * where a size lies within its class), the table names the node of the decision tree from which to
 * evaluate it. */
#ifndef LM_SIZE_TABLE_H
#define LM_SIZE_TABLE_H

#include "heap/pool.h"

struct lm_plan;

/* The entry of a class:
 *   0       no thread cache serves the requests: the engine goes along the chain of the leaf
 *   n > 0   the strategy with the id n - 1 serves them
 *   n < 0   evaluate the decision tree from node ~n on
 *
 * Law, for requests of the class with align <= 16 and zero = 0:
 *   - n < 0 only if each of them passes that node;
 *   - n > 0 only if each of them reaches, whatever the gauges say, a leaf whose first strategy for
 *     malloc (lm_plan_first_host) is that strategy, and the strategy has a bin for the class
 *     (lm_pool_bin). */
typedef struct lm_size_table {
  int32_t entry[LM_CLASSES_ALL];
} lm_size_table;

/* Fills the table from the tree. Takes about a millisecond at most, whatever the tree. */
void lm_size_table_fill(lm_size_table *table, const struct lm_plan *plan);
/* Returns whether each entry names a node of the plan, or a strategy with a bin for the class. It
 * does not evaluate the plan to check the law. */
bool lm_size_table_is_valid(const lm_size_table *table, const struct lm_plan *plan);

#endif
