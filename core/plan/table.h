/* table.h - what each small size gets under a plan, where that is known beforehand.
 *
 * A byte for each 16-byte unit of size up to LM_TABLE_MAX names an entry; an entry has at most one
 * threshold, because few policies have two within 16 bytes. So most requests under a policy that
 * asks about sizes are decided by one look-up and one comparison, however many leaves it has. */
#ifndef LM_TABLE_H
#define LM_TABLE_H

#include "heap/pool.h"

struct lm_plan;

/* A bin that serves a request, and what is noted of it; or where the tree begins to ask gauges. */
typedef struct lm_serve {
  uint32_t bin; /* offset of the bin in the thread; 0: decide; LM_BIN_HERE, LM_BIN_ASKS */
  union {
    struct {
      uint16_t strategy; /* id */
      uint16_t units;    /* usable bytes of the bin's objects / 16 */
    };
    uint32_t node; /* LM_BIN_ASKS: all that stands before it in the tree is answered */
  };
} lm_serve;

/* Sizes below `cut` get part[0], the others part[1]. */
typedef struct lm_entry {
  uint32_t cut;
  lm_serve part[2];
} lm_entry;

enum { LM_TABLE_CLASSES = 40, LM_TABLE_ENTRIES = 256 };
#define LM_TABLE_MAX ((size_t)32 << 10)
enum { LM_TABLE_UNITS = LM_TABLE_MAX / 16 + 1 };

/* Law: lm_table_at(size).bin is LM_BIN_ASKS only if every request of that size with align <= 16 and
 *      zero = 0 passes .node; else it is not 0 only if each of them reaches, whatever the gauges
 *      say, a leaf whose first member (lm_plan_first) is .strategy, a pool strategy that can be
 *      served from the thread's bins. entry[0] is all zero: decide. The same of `wide`, by
 *      class. */
typedef struct lm_table {
  uint64_t even;              /* a bit for each class all of whose sizes get the same */
  uint8_t at[LM_TABLE_UNITS]; /* index of the entry of sizes 16 * i - 15 .. 16 * i */
  uint32_t entries;
  const lm_entry *entry;
  lm_serve wide[LM_CLASSES_ALL - LM_TABLE_CLASSES]; /* bin 0: decide; units 0: large */
} lm_table;

/* Entries cost memory; where there is none, more is left to be decided. */
void lm_table_fill(lm_table *table, const struct lm_plan *plan);
/* A table that leaves all to be decided. */
#define LM_TABLE_BARE \
  { .entries = 1, .entry = &lm_table_decide }
extern const lm_entry lm_table_decide;
void lm_table_finish(lm_table *table);
bool lm_table_is_valid(const lm_table *table, const struct lm_plan *plan);

/* What serves a class under a strategy; bin 0: it has none. */
lm_serve lm_table_serve(lm_strategy *strategy, unsigned class_);

/* Usable bytes of the objects of a bin. */
LM_INLINE size_t lm_table_bin_size(uint32_t bin) {
  size_t at = bin - LM_THREAD_BINS - offsetof(lm_thread_bins, pool);
  return lm_class_size(
      (unsigned)((at % sizeof(lm_pool_bins) - offsetof(lm_pool_bins, bin)) / sizeof(lm_bin)));
}

/* For size <= LM_TABLE_MAX. */
LM_INLINE lm_serve lm_table_at(const lm_table *table, size_t size) {
  const lm_entry *e = &table->entry[table->at[(size + 15) / 16]];
  return e->part[size >= e->cut];
}

#endif
