/* look_names.c - the strategies, sites and tags of another process, and the limits that its live
 * policy sets.
 *
 * Strategies and sites are only ever added, and do not change once they are there, so one copy is
 * enough. Plans go with the policy: they are read again if the generation has changed. */
#include "cli/look.h"

#include <stdlib.h>
#include <string.h>

#include "os/error.h"
#include "pages/metadata.h"

/* ---- Strategies ---- */

/* The address of a strategy in the process, and its id. */
typedef struct place {
  uintptr_t at;
  uint32_t id;
} place;

static int compare_places(const void *a, const void *b) {
  uintptr_t x = ((const place *)a)->at, y = ((const place *)b)->at;
  return (x > y) - (x < y);
}

/* Copies the table of pointers up to its end. Returns the number of strategies; 0: it cannot be
 * read. The place of the built-in strategy, whose id is 0, may be empty. */
static uint32_t read_places(lm_look *look, place *places) {
  uintptr_t at[256], table = (uintptr_t)look->root.strategies;
  uint32_t n = 0;
  while (n < LM_STRATEGIES_MAX) {
    if (!lm_remote_read(&look->remote, table + n * sizeof *at, at, sizeof at)) return 0;
    for (size_t i = 0; i < LM_COUNT(at); i++, n++) {
      if (!n && !at[i]) at[i] = (uintptr_t)look->root.builtin;
      if (!at[i]) return n;
      places[n] = (place){ at[i], n };
    }
  }
  return n;
}

static bool copy_strategies(lm_look *look, const place *places) {
  lm_remote_part part[LM_REMOTE_PARTS];
  for (uint32_t id = 0; id < look->strategies;) {
    uint32_t n = 0;
    for (; n < LM_REMOTE_PARTS && id < look->strategies; n++, id++)
      part[n] = (lm_remote_part){ places[id].at, &look->strategy[id], sizeof *look->strategy };
    if (!lm_remote_read_parts(&look->remote, part, n)) return false;
  }
  return true;
}

/* Returns the copy of the strategy that is at this address in the process; NULL: none is. */
static lm_strategy *find_copy(const lm_look *look, const place *sorted, const lm_strategy *at) {
  place wanted = { (uintptr_t)at, 0 };
  const place *found = bsearch(&wanted, sorted, look->strategies, sizeof *sorted, compare_places);
  return found ? &look->strategy[found->id] : NULL;
}

/* Makes a copy safe to use: its pointers lead to copies, its text ends, its kind exists. False: it
 * is no strategy. */
static bool mend(lm_look *look, const place *sorted, uint32_t id) {
  lm_strategy *s = &look->strategy[id];
  look->pool[id] = (uintptr_t)s->pool;
  s->whole = find_copy(look, sorted, s->whole);
  s->account = find_copy(look, sorted, s->account);
  s->family = find_copy(look, sorted, s->family);
  s->shares = NULL;
  s->twins = NULL;
  s->pool = NULL;
  s->older = NULL;
  s->desc.name[sizeof s->desc.name - 1] = 0;
  s->desc.shared[sizeof s->desc.shared - 1] = 0;
  return s->id == id && s->whole && s->account && s->family && (unsigned)s->desc.kind < LM_KINDS;
}

static loam_status make_copies(lm_look *look, place *places) {
  lm_metadata_free(look->strategy);
  lm_metadata_free(look->pool);
  look->strategies = read_places(look, places);
  look->strategy = lm_metadata_alloc((look->strategies + 1) * sizeof *look->strategy);
  look->pool = lm_metadata_alloc((look->strategies + 1) * sizeof *look->pool);
  if (!look->strategy || !look->pool)
    return lm_error(LOAM_ENOMEM, "statistics: no memory for strategies");
  if (!look->strategies || !copy_strategies(look, places))
    return lm_look_fail(look, "the table of strategies cannot be read");
  qsort(places, look->strategies, sizeof *places, compare_places);
  for (uint32_t id = 0; id < look->strategies; id++)
    if (!mend(look, places, id)) return lm_look_fail(look, "the table of strategies is broken");
  return LOAM_OK;
}

loam_status lm_look_strategies(lm_look *look) {
  place *places = lm_metadata_alloc((LM_STRATEGIES_MAX + 256) * sizeof *places);
  if (!places) return lm_error(LOAM_ENOMEM, "statistics: no memory for strategies");
  loam_status status = make_copies(look, places);
  if (status != LOAM_OK) look->strategies = 0;
  lm_metadata_free(places);
  return status;
}

/* ---- Sites ---- */

/* The last chunk that can be full: plan/site.c. */
enum { CHUNKS = (1 << LM_SITE_BITS) / LM_SITE_CHUNK - 1 };

static void take_site(lm_look *look, uint32_t index, const loam_site *s) {
  const lm_site_plan *now = &s->now[look->generation & 1];
  if (s->index != index) return; /* not made yet */
  look->site[index] = (lm_look_site){
    .tag = (uintptr_t)s->where.tag,
    .tag_index = s->tag_index,
    .plan = (uintptr_t)atomic_load_explicit(&now->plan, memory_order_relaxed),
  };
}

/* Copies the sites of one chunk, whose first site has the index `first`. */
static bool read_chunk(lm_look *look, loam_site *chunk, uintptr_t at, uint32_t first) {
  if (!lm_remote_read(&look->remote, at, chunk, LM_SITE_CHUNK * sizeof *chunk)) return false;
  for (uint32_t i = 0; i < LM_SITE_CHUNK; i++)
    if (first + i > LM_SITE_FIRST) take_site(look, first + i, &chunk[i]);
  return true;
}

/* Copies the pointers to the chunks. Returns how many there are; -1: they cannot be read. */
static int read_chunk_table(lm_look *look, uintptr_t *table) {
  int n = 0;
  if (!lm_remote_read(&look->remote, (uintptr_t)look->root.site_chunks, table,
                      CHUNKS * sizeof *table))
    return -1;
  while (n < CHUNKS && table[n]) n++;
  return n;
}

/* A new table of as many sites as `chunks` can hold; the default site stands in no chunk. */
static bool begin_sites(lm_look *look, uint32_t chunks) {
  lm_metadata_free(look->site);
  look->sites = chunks * LM_SITE_CHUNK + LM_SITE_FIRST + 1;
  look->site = lm_metadata_alloc(look->sites * sizeof *look->site);
  return look->site != NULL;
}

static bool read_sites(lm_look *look, loam_site *chunk) {
  uintptr_t table[CHUNKS];
  lm_remote *r = &look->remote;
  int chunks = read_chunk_table(look, table);
  if (chunks < 0 || !begin_sites(look, (uint32_t)chunks)) return false;
  if (!lm_remote_read(r, (uintptr_t)look->root.generation, &look->generation, 8)) return false;
  if (!lm_remote_read(r, (uintptr_t)look->root.site_empty, chunk, sizeof *chunk)) return false;
  take_site(look, LM_SITE_FIRST, chunk);
  for (uint32_t i = 0; i < (uint32_t)chunks; i++)
    if (!read_chunk(look, chunk, table[i], i * LM_SITE_CHUNK + LM_SITE_FIRST)) return false;
  return true;
}

bool lm_look_site_at(lm_look *look, uint32_t index, loam_site *out) {
  uint32_t at = index - LM_SITE_FIRST;
  uintptr_t chunk = (uintptr_t)look->root.site_empty;
  uintptr_t table = (uintptr_t)look->root.site_chunks;
  if (index < LM_SITE_FIRST || at / LM_SITE_CHUNK >= CHUNKS) return false;
  if (at && !lm_remote_read(&look->remote, table + at / LM_SITE_CHUNK * sizeof chunk, &chunk,
                            sizeof chunk))
    return false;
  chunk += at % LM_SITE_CHUNK * sizeof *out;
  return lm_remote_read(&look->remote, chunk, out, sizeof *out) && out->index == index;
}

/* ---- Limits ---- */

enum { CHAINS_MOST = 1 << 16, LIMIT_TRIES = 8 };

/* Notes the limits of the strategies that a plan names. False: the plan is none; it was freed, or
 * the process is hostile. */
static bool read_plan(lm_look *look, uintptr_t at) {
  uint32_t chains;
  uintptr_t chain;
  lm_remote_part parts[] = { { at + offsetof(lm_plan, chains), &chains, sizeof chains },
                             { at + offsetof(lm_plan, chain), &chain, sizeof chain } };
  if (!lm_remote_read_parts(&look->remote, parts, LM_COUNT(parts))) return false;
  if (chains > CHAINS_MOST) return false;
  uint32_t *id = lm_metadata_alloc((chains + 1) * sizeof *id);
  bool ok = id && lm_remote_read(&look->remote, chain, id, chains * sizeof *id);
  for (uint32_t i = 0; ok && i < chains; i++) {
    ok = id[i] < look->strategies;
    const lm_strategy *s = ok ? &look->strategy[id[i]] : NULL;
    if (ok && s->desc.limit) look->limited[s->family->id] = s->id + 1;
  }
  lm_metadata_free(id);
  return ok;
}

/* Reads each plan once for a row of sites that have it, as engine/live_limits.c does. */
static bool read_plans(lm_look *look) {
  uintptr_t last = 0;
  bool ok = true;
  for (uint32_t i = LM_SITE_FIRST; ok && i < look->sites; i++) {
    uintptr_t plan = look->site[i].plan;
    if (plan && plan != last) ok = read_plan(look, plan);
    last = plan;
  }
  return ok;
}

/* Tells whether the policy that the sites were copied under is still live. */
static bool is_same_policy(lm_look *look) {
  uint64_t now;
  return lm_remote_read(&look->remote, (uintptr_t)look->root.generation, &now, sizeof now) &&
         now == look->generation;
}

static bool has_quota(const lm_look *look) {
  for (uint32_t id = 0; id < look->strategies; id++)
    if (atomic_load_explicit(&look->strategy[id].quota, memory_order_relaxed)) return true;
  return false;
}

/* Copies the table of quotas, if a limit is shared. Without a copy, a limit shows only what the
 * process itself uses of it. */
static void read_quotas(lm_look *look) {
  uintptr_t at = 0;
  lm_metadata_free(look->quotas);
  look->quotas = NULL;
  if (!has_quota(look) ||
      !lm_remote_read(&look->remote, (uintptr_t)look->root.quotas, &at, sizeof at) || !at)
    return;
  look->quotas = lm_metadata_alloc(sizeof *look->quotas);
  if (look->quotas && lm_remote_read(&look->remote, at, look->quotas, sizeof *look->quotas)) return;
  lm_metadata_free(look->quotas);
  look->quotas = NULL;
}

loam_status lm_look_sites(lm_look *look) {
  loam_site *chunk = lm_metadata_alloc(LM_SITE_CHUNK * sizeof *chunk);
  bool are_read = chunk != NULL, have_limits = false;
  for (int tries = 0; are_read && !have_limits && tries < LIMIT_TRIES; tries++) {
    are_read = read_sites(look, chunk) && lm_look_strategies(look) == LOAM_OK;
    lm_metadata_free(look->limited);
    look->limited = lm_metadata_alloc((look->strategies + 1) * sizeof *look->limited);
    have_limits = are_read && look->limited && read_plans(look) && is_same_policy(look);
  }
  lm_metadata_free(chunk);
  if (are_read && have_limits) read_quotas(look);
  if (are_read && have_limits) return LOAM_OK;
  return lm_look_fail(look, are_read ? "a site has no plan" : "the table of sites cannot be read");
}

lm_limit_use lm_look_limit(const lm_look *look, const lm_strategy *s) {
  uint32_t member = look->limited[s->family->id];
  if (!member) return (lm_limit_use){ 0 };
  const lm_strategy *limits = &look->strategy[member - 1];
  int64_t used = atomic_load_explicit(&limits->account->used, memory_order_relaxed);
  uint32_t quota = atomic_load_explicit(&limits->account->quota, memory_order_relaxed);
  uint64_t own = used > 0 ? (uint64_t)used : 0;
  bool is_shared = limits->desc.shared[0];
  uint64_t all = is_shared && quota && look->quotas ? lm_quota_used_of(look->quotas, quota) : own;
  return (lm_limit_use){ .limit = limits->desc.limit,
                         .used = all,
                         .own = own,
                         .peak = lm_strategy_limit_peak(limits, all),
                         .shared = is_shared ? limits->desc.shared : NULL };
}
