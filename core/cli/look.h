/* look.h - `loam stats` and `loam pages` read the tables of a process from outside. `loam owner`
 * looks addresses up in them.
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
 * look.c          opens a process, and writes the answer of `loam stats`
 * look_map.c      the page map and the states of objects
 * look_names.c    strategies, sites, tags, and the limits of the live policy
 * look_sums.c     totals, provided blocks, device memory
 * look_owner.c    what addresses are: writes the answer of `loam owner`
 * look_pages.c    where memory lies, slot by slot: the answer of `loam pages`
 * look_samples.c  samples and their stacks */
#ifndef LM_LOOK_H
#define LM_LOOK_H

#include "cli/remote.h"
#include "engine/live_limits.h"
#include "engine/outside.h"
#include "engine/placement_audit.h"
#include "heap/quota.h"
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
  int patience_ms; /* the time that the reading may take, for the words of a failure */
  lm_outside root; /* a copy, as are all tables below */
  lm_map_state map;
  uint64_t generation;
  /* By id: copies of the strategies. `whole`, `account` and `family` point to copies; other
   * pointers are NULL. */
  lm_strategy *strategy;
  uintptr_t *pool; /* by id: where the strategy's pool is in the process; 0: it has none */
  uint32_t strategies;
  lm_look_site *site; /* by index; `sites` of them, those below LM_SITE_FIRST unused */
  uint32_t sites;
  uint32_t *limited;      /* by id of a family: 1 + id of the member that limits it; 0: none */
  lm_quota_table *quotas; /* a copy; NULL: the process has none, or its limits are not shared */
  /* Sums by lm_look_key: of sites, families and classes while tables are read. */
  lm_sums_table sums;
  lm_sums_table classes; /* in the end: sums by tag, family and class, and `sums` without a class */
  bool is_inexact; /* some table changed whenever it was read: its figures are close, not exact */
} lm_look;

/* The states of an address, as far as loam's tables tell them. */
typedef enum lm_place_state {
  LM_PLACE_OUTSIDE,    /* not in memory of loam */
  LM_PLACE_LIVE,       /* in a live block */
  LM_PLACE_CACHED,     /* in a freed block that a thread or a central list keeps for reuse */
  LM_PLACE_FREE,       /* in an object of a span that no block uses now */
  LM_PLACE_QUARANTINE, /* in a guarded block that was freed, or beside it */
  LM_PLACE_GUARD,      /* beside a live guarded block, in its slots */
  LM_PLACE_METADATA,   /* in loam's own tables */
  LM_PLACE_REGION,     /* in address space of loam where no block is */
  LM_PLACE_CHANGING,   /* in memory whose entry was being changed whenever it was read */
  LM_PLACE_STATES
} lm_place_state;

/* An address of the process. */
typedef struct lm_place {
  uintptr_t address;
  lm_place_state state;
  /* The kind of block: "small", "large", "guarded", "provided" or "device"; NULL: there is no block
   * and was none. Without a block, the fields below are 0. */
  const char *memory;
  uintptr_t start;
  size_t size;       /* usable bytes */
  uint32_t strategy; /* id, below look->strategies */
  lm_token token;    /* of a block that was freed: the last one; LM_TOKEN_NONE: not known */
} lm_place;

/* The key of a row: the index of a site, the id of a family and a class of figures. Never 0. */
#define LM_LOOK_KEY ((uint64_t)1 << 63)
LM_INLINE uint64_t lm_look_key(uint32_t site, uint32_t family, unsigned class_) {
  return LM_LOOK_KEY | (uint64_t)class_ << LM_SUMS_CLASS | (uint64_t)family << LM_SITE_BITS | site;
}
LM_INLINE uint32_t lm_look_key_site(uint64_t key) { return key & ((1u << LM_SITE_BITS) - 1); }
LM_INLINE uint32_t lm_look_key_family(uint64_t key) {
  return key >> LM_SITE_BITS & (LM_STRATEGIES_MAX - 1);
}

/* Opens a process: finds its tables and copies those that others are read by. The functions of this
 * file set the error words when they fail: LOAM_EIO if the memory cannot be read, LOAM_ESTATE if
 * the process has no tables that this build knows, LOAM_EINVAL if a table breaks its law. */
loam_status lm_look_open(lm_look *look, int pid);
void lm_look_close(lm_look *look);
/* From now on lm_look_open takes the lm_outside of each process to be at `root`; 0: it looks for it
 * again. For tests. */
void lm_look_pretend(uintptr_t root);

/* Counts the live objects of all pools into look->sums. */
loam_status lm_look_count(lm_look *look);
/* Calls `visit` for each live object of the strategies that are wanted. The object has no token. */
loam_status lm_look_each(lm_look *look, lm_walk_visit *visit, lm_audit_wants *wants, void *ctx);

/* An extent of the page map (pages/map.h). All fields after `use` are 0 if it holds no objects, or
 * if it changed in each of many copies. */
typedef struct lm_look_extent {
  uint32_t slot, slots, use;
  uint32_t strategy;    /* id */
  uint32_t count;       /* objects: 1 for a large or guarded block */
  uintptr_t start;      /* address of the first object */
  size_t size;          /* usable bytes of an object; all objects lie in the slots of the extent */
  const uint8_t *state; /* a copy of the state of each object, for the time of the call */
  lm_token token;       /* of a large or guarded block */
} lm_look_extent;

/* Calls `show` for each extent of the page map, by ascending address and without gap or overlap. */
typedef void lm_look_extent_fn(void *ctx, const lm_look_extent *e);
loam_status lm_look_extents(lm_look *look, lm_look_extent_fn *show, void *ctx);

/* Adds provided blocks and blocks of device memory to look->sums. */
loam_status lm_look_provided(lm_look *look);
/* Fills in what the pools of each device have; `of` has LM_DEVICES_MAX entries. If a pool cannot be
 * read, it and those after it in the list are left out, and the figures are not exact. */
void lm_look_devices(lm_look *look, lm_device_figures *of);
/* Adds the totals of all blocks ever allocated to look->sums. */
loam_status lm_look_totals(lm_look *look);

/* Copy the strategies; copy the sites and read the limits. */
loam_status lm_look_strategies(lm_look *look);
loam_status lm_look_sites(lm_look *look);
/* Returns the live limit of a strategy's family, and how much of it is used. */
lm_limit_use lm_look_limit(const lm_look *look, const lm_strategy *s);

/* Find what place->address is, and fill in the other fields: lm_look_find_pooled in the range of
 * the pools, lm_look_find_provided among the blocks of handlers, of the system and of devices. An
 * address that is not there becomes LM_PLACE_OUTSIDE. */
loam_status lm_look_find_pooled(lm_look *look, lm_place *place);
loam_status lm_look_find_provided(lm_look *look, lm_place *place);
/* Copies the site with an index. Its strings are addresses in the process. False: there is no such
 * site. */
bool lm_look_site_at(lm_look *look, uint32_t index, loam_site *out);

/* Adds live blocks of `bytes` bytes together, of one class of figures. A token or strategy that
 * names nothing is a broken table: returns false. */
bool lm_look_add_live(lm_look *look, lm_token token, uint32_t strategy, unsigned class_,
                      uint64_t blocks, uint64_t bytes);

/* Fails with LOAM_EINVAL and words that name the table, or, if the time is over, with LOAM_EIO. */
loam_status lm_look_fail(const lm_look *look, const char *what);

/* Looks at a process and writes the answer that its control socket gives to `stats`. On failure the
 * text is not complete. */
loam_status lm_look_stats(int pid, lm_json *out);
/* Like lm_look_stats, but gives up with LOAM_EIO after `patience_ms` milliseconds. */
loam_status lm_look_stats_within(int pid, int patience_ms, lm_json *out);

/* Looks at a process for `loam top`, often and cheaply: writes sums, rows, and the requests that
 * each strategy could not serve. If has_got is set, also writes `got` and the memory on each node;
 * the kernel has to look pages up for them. *root is where the process has its lm_outside, or 0 if
 * that is not known; the function sets it. On failure the text is not complete. */
loam_status lm_look_figures(int pid, uintptr_t *root, bool has_got, lm_json *out);

/* Looks up what n addresses of a process are, and writes the answer of `loam owner`. On failure the
 * text is not complete. */
loam_status lm_look_owner(int pid, const uintptr_t *address, size_t n, lm_json *out);

/* Looks at a process and writes where its memory lies: the answer of `loam pages`. On failure the
 * text is not complete. */
loam_status lm_look_pages(int pid, lm_json *out);

/* Looks at a process and writes its samples (engine/sample.h) as one object: `pid`, `interval` in
 * bytes (0: nothing is sampled now), `began` (whether anything ever was), `seconds` since the
 * session began, `live`, the samples of live blocks, and `live_lost`, `unfit` and `skipped`,
 * samples that had no room; `stacks`, a list of {tag, strategy, total_blocks, total_bytes,
 * live_blocks, live_bytes, frames}, the innermost frame first, and `python` where the stack has
 * frames of Python, a list of {name, file, line, is_entry}; `mappings`, the code of the process, a
 * list of {from, to, offset, file, build_id}. Without `is_whole`, `stacks` and `mappings` are
 * missing. On failure the text is not complete. */
loam_status lm_look_samples(int pid, bool is_whole, lm_json *out);

#endif
