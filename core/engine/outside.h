/* outside.h - where a process has its tables, for a process that reads them from outside.
 *
 * `loam stats` reads the memory of a running process with process_vm_readv(2) and counts live
 * objects itself (cli/look.h). The process does nothing for that: it may be stopped or hung. One
 * structure, lm_outside, has the address of each table that the reader needs. An ELF note in the
 * program or library that holds loam says where the structure is, so the list of mappings is enough
 * to find it:
 *
 *   name   "loam"
 *   type   LM_OUTSIDE_NOTE
 *   desc   8 bytes: the address of lm_outside, as an offset from these 8 bytes
 *
 * The structure does not describe the tables: reader and process must have been compiled from equal
 * declarations. `layout` is a hash of the sizes and offsets of all fields that a reader uses. A
 * reader whose own hash differs refuses to read. */
#ifndef LM_OUTSIDE_H
#define LM_OUTSIDE_H

#include "device/device_pool.h"
#include "engine/sample.h"
#include "engine/stats.h"
#include "pages/provided.h"
#include "pages/regions.h"

#define LM_OUTSIDE_MAGIC "loam outside"
enum { LM_OUTSIDE_NOTE = 1 };

typedef struct lm_outside {
  /* All versions of loam have these three fields here, so that a reader can name the version. */
  char magic[16];
  char version[16];        /* of loam */
  _Atomic uint64_t layout; /* lm_outside_layout(); stored last, so 0 means: loam has not started */
  const lm_map_state *map; /* the range and its page map */
  const void *common;      /* lm_state_common */
  const void *strategies;  /* lm_strategy_table */
  const lm_strategy *builtin;
  const void *site_chunks; /* lm_site_chunk */
  const loam_site *site_empty;
  const void *generation; /* lm_site_generation */
  const lm_stats_stripe *totals;
  const void *threads; /* the place of the pointer to the first thread's area */
  const lm_provided_tree *provided;
  const void *device_pools; /* the place of the pointer to the first pool of device memory */
  const void *taken;        /* slots of the range that are taken */
  const lm_regions *metadata, *states;
  const lm_samples *samples;
  const void *quotas; /* the place of the pointer to the table of quotas */
  const void *denied, *fallbacks, *failed, *bad_frees; /* lm_stats_denied and its neighbours */
} lm_outside;

/* The structure of this process. */
extern lm_outside lm_outside_root __attribute__((visibility("hidden")));

/* Fills the structure, once; before the process allocates. */
void lm_outside_start(void);
/* Returns the hash of the sizes and offsets of all that a reader uses. */
uint64_t lm_outside_layout(void);

#endif
