/* look.h - `loam stats` reads the tables of a process from outside, and counts live memory.
 *
 * The process takes no part: it may be stopped, hung or hostile. So the reader trusts nothing that
 * it reads. A pointer is only ever given to the kernel (remote.h). Each count and each index is
 * compared with the size of its table. Each loop is bounded by a law that the entries must obey, by
 * a count, and by the deadline of the reading. A table that breaks its law makes the reading fail
 * with words.
 *
 * The process may also run and change its tables. The reader copies an entry before and after the
 * data that the entry describes; if both copies are equal, the data belong to the entry. Each file
 * says how it reads its tables:
 *
 * look.c        opens a process, and writes the answer
 * look_map.c    the page map and the states of objects
 * look_names.c  strategies, sites, tags, and the limits of the live policy
 * look_sums.c   totals, provided blocks, device memory
 * look_samples.c   samples and their stacks */
#ifndef LM_LOOK_H
#define LM_LOOK_H

#include "cli/remote.h"
#include "engine/live_limits.h"
#include "engine/outside.h"
#include "engine/placement_audit.h"
#include "heap/walk.h"
#include "script/json.h"

/* The fields of a site that figures are grouped by. */
typedef struct lm_look_site {
  uintptr_t tag;      /* where its text is in the process; 0: there is no such site */
  uint32_t tag_index; /* the number of the tag: sites with equal tags have equal numbers */
  uintptr_t plan;     /* under the live policy */
} lm_look_site;

/* A process that is being looked at. */
typedef struct lm_look {
  lm_remote remote;
  lm_outside root; /* a copy, as are all tables below */
  lm_map_state map;
  uint64_t generation;
  /* By id: copies of the strategies. `whole`, `account` and `family` point to copies; other
   * pointers are NULL. */
  lm_strategy *strategy;
  uint32_t strategies;
  lm_look_site *site; /* by index; `sites` of them, those below LM_SITE_FIRST unused */
  uint32_t sites;
  uint32_t *limited; /* by id of a family: 1 + id of the member that limits it; 0: none */
  /* Sums by lm_look_key: of sites and families while tables are read. */
  lm_sums_table sums;
  bool is_inexact; /* some table changed whenever it was read: its figures are close, not exact */
} lm_look;

/* The key of a row: the index of a site and the id of a family. Never 0. */
#define LM_LOOK_KEY ((uint64_t)1 << 63)
LM_INLINE uint64_t lm_look_key(uint32_t site, uint32_t family) {
  return LM_LOOK_KEY | (uint64_t)family << LM_SITE_BITS | site;
}
LM_INLINE uint32_t lm_look_key_site(uint64_t key) { return key & ((1u << LM_SITE_BITS) - 1); }
LM_INLINE uint32_t lm_look_key_family(uint64_t key) {
  return key >> LM_SITE_BITS & (LM_STRATEGIES_MAX - 1);
}

/* Opens a process: finds its tables and copies those that others are read by. The functions of this
 * file set the error words when they fail: LOAM_EIO if the memory cannot be read, LOAM_ESTATE if
 * the process has no tables that this build knows, LOAM_EINVAL if a table breaks its law. */
loam_status lm_look_open(lm_look *look, int pid);
/* Like lm_look_open, for a process whose lm_outside is known to be at `root`. For tests. */
loam_status lm_look_open_at(lm_look *look, int pid, uintptr_t root);
void lm_look_close(lm_look *look);

/* Counts the live objects of all pools into look->sums. */
loam_status lm_look_count(lm_look *look);
/* Calls `visit` for each live object of the strategies that are wanted. The object has no token. */
loam_status lm_look_each(lm_look *look, lm_walk_visit *visit, lm_audit_wants *wants, void *ctx);

/* Adds provided blocks and blocks of device memory to look->sums. */
loam_status lm_look_provided(lm_look *look);
/* Adds the totals of all blocks ever allocated to look->sums. */
loam_status lm_look_totals(lm_look *look);

/* Copy the strategies; copy the sites and read the limits. */
loam_status lm_look_strategies(lm_look *look);
loam_status lm_look_sites(lm_look *look);
/* Returns the live limit of a strategy's family, and how much of it is used. */
lm_limit_use lm_look_limit(const lm_look *look, const lm_strategy *s);

/* Adds live blocks of `bytes` bytes together. A token or strategy that names nothing is a broken
 * table: returns false. */
bool lm_look_add_live(lm_look *look, lm_token token, uint32_t strategy, uint64_t blocks,
                      uint64_t bytes);

/* Fails with LOAM_EINVAL and words that name the table, or, if the time is over, with LOAM_EIO. */
loam_status lm_look_fail(const lm_look *look, const char *what);

/* Looks at a process and writes the answer that its control socket gives to `stats`. On failure the
 * text is not complete. */
loam_status lm_look_stats(int pid, lm_json *out);
loam_status lm_look_stats_at(int pid, uintptr_t root, lm_json *out);

/* Looks at a process and writes its samples (engine/sample.h) as one object: `pid`, `interval` in
 * bytes (0: nothing is sampled now), `began` (whether anything ever was), `seconds` since then,
 * `live`, the samples of live blocks, and `live_lost`, `unfit` and `skipped`, samples that had no
 * room; `stacks`, a list of {tag, strategy, total_blocks, total_bytes, live_blocks, live_bytes,
 * frames}, the innermost frame first; `mappings`, the code of the process, a list of {from, to,
 * offset, file, build_id}. Without `is_whole`, `stacks` and `mappings` are missing. On failure the
 * text is not complete. */
loam_status lm_look_samples(int pid, bool is_whole, lm_json *out);
loam_status lm_look_samples_at(int pid, uintptr_t root, bool is_whole, lm_json *out);

#endif
