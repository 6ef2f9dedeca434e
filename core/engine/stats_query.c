/* stats_query.c - answers loam_stats and loam_stats_by: walks live memory, adds the totals, and
 * groups both by what the host asked for. */
#include "device/provider.h"
#include "engine/live_limits.h"
#include "engine/sample.h"
#include "engine/stats.h"
#include "heap/walk.h"
#include "os/error.h"
#include "pages/metadata.h"

/* ---- Grouping ----------------------------------------------------------------------------- */

/* A query under way. The key of a group has the index of a site from bit 0 on, the id of the family
 * of a strategy from LM_SITE_BITS on, a generation slot from SLOT_SHIFT on, and a class of figures
 * (lm_sums_class). A part is 0 if the query does not group by it. The top bit is set in every key,
 * so no key is 0. */
typedef struct query {
  lm_sums_table table;
  int keys;           /* LOAM_BY_*, BY_CLASS */
  uint32_t tags;      /* tags that existed when the query began */
  uint32_t *tag_site; /* by tag index: the site that stands for the tag; 0: none yet */
  lm_live_limits limits;
} query;

#define KEY_SET ((uint64_t)1 << 63)
enum { SLOT_SHIFT = LM_SITE_BITS + LM_STRATEGY_BITS, BY_CLASS = 8 };
_Static_assert(LM_GENERATION_SLOTS << (SLOT_SHIFT - 32) <= 1 << (LM_SUMS_CLASS - 32),
               "the parts of a key do not overlap");

/* Returns the index of the site that stands for the tag of a site. A tag that is newer than the
 * query has no place in tag_site: there each site stands for itself. */
static uint32_t site_for_tag(const query *q, uint32_t site) {
  const loam_site *s = lm_site_at(site);
  if (!s || s->tag_index > q->tags) return site;
  lm_assert(q->tag_site && s->tag_index);
  if (!q->tag_site[s->tag_index]) q->tag_site[s->tag_index] = site;
  return q->tag_site[s->tag_index];
}

static uint64_t group_key(const query *q, uint32_t site, uint32_t strategy, uint32_t slot,
                          unsigned class_) {
  uint64_t key = KEY_SET;
  lm_assert(site < 1u << LM_SITE_BITS && slot < LM_GENERATION_SLOTS);
  if (q->keys & LOAM_BY_TAG) key |= site_for_tag(q, site);
  if (q->keys & LOAM_BY_STRATEGY)
    key |= (uint64_t)lm_strategy_at(strategy)->family->id << LM_SITE_BITS;
  if (q->keys & LOAM_BY_GENERATION) key |= (uint64_t)slot << SLOT_SHIFT;
  return q->keys & BY_CLASS ? lm_sums_with_class(key, class_) : key;
}

/* ---- Adding ------------------------------------------------------------------------------- */

/* Adds a live block, and returns the row to which it was added. */
static lm_sums *add_live(query *q, lm_token token, uint32_t strategy, unsigned class_,
                         size_t size) {
  uint32_t site = lm_site_token_index(token), slot = lm_site_token_slot(token);
  lm_sums *row = lm_sums_get(&q->table, group_key(q, site, strategy, slot, class_));
  row->live_blocks++;
  row->live_bytes += size;
  return row;
}

static void add_object(void *ctx, const lm_object *object) {
  unsigned class_ = lm_class_counted_object(object->size);
  (void)add_live(ctx, object->token, object->strategy, class_, object->size);
}

static void add_objects(void *ctx, uint32_t strategy, size_t size, uint32_t n) {
  query *q = ctx;
  lm_sums *row = lm_sums_get(&q->table, group_key(q, 0, strategy, 0, 0));
  row->live_blocks += n;
  row->live_bytes += n * size;
}

/* A nested block (record.h) is skipped: the walk of the pools counts it. */
static void add_provided(void *ctx, lm_provided *block) {
  unsigned class_ = lm_class_counted(block->size);
  if (lm_pool_owns(block->base)) return;
  lm_sums *row = add_live(ctx, block->token, block->strategy, class_, block->size);
  if (block->is_asleep) row->asleep_bytes += block->size;
}

static void add_total(void *ctx, uint64_t key, uint64_t blocks, uint64_t bytes) {
  query *q = ctx;
  lm_sums *row = &q->table.spill;
  uint32_t site = lm_stats_key_site(key), strategy = lm_stats_key_strategy(key);
  if (key) row = lm_sums_get(&q->table, group_key(q, site, strategy, 0, lm_sums_class(key)));
  row->total_blocks += blocks;
  row->total_bytes += bytes;
}

static void walk_provided(query *q) { lm_provider_each(add_provided, q); }
static void walk_threads(query *q) { lm_stats_each_thread(add_total, q); }

/* Makes the walk with a table that does not grow, because the walk holds a lock under which no
 * memory may be allocated. If that table is too small, walks again with a table twice as large.
 * Then adds it to the table of the query. */
static void gather(query *q, void (*walk)(query *q)) {
  lm_sums_table all = q->table, part = { .is_fixed = true };
  bool is_larger;
  do {
    is_larger = lm_sums_grow(&part);
    lm_sums_clear(&part);
    q->table = part;
    walk(q);
    part = q->table;
  } while (is_larger && !lm_sums_is_empty(&part.spill));
  q->table = all;
  lm_sums_add(&q->table.spill, &part.spill);
  for (size_t i = 0; i < part.size; i++)
    if (part.row[i].key) lm_sums_add(lm_sums_get(&q->table, part.row[i].key), &part.row[i]);
  lm_sums_finish(&part);
}

/* To read the token of each object takes ten times as long as to count the objects of a span, so a
 * query that needs no token counts. The totals are read after live memory: then each block that was
 * seen alive is in them. */
static void collect(query *q) {
  bool needs_tokens = q->keys & (LOAM_BY_TAG | LOAM_BY_GENERATION);
  if (needs_tokens) lm_walk_each(add_object, q);
  else lm_walk_counts(add_objects, q);
  gather(q, walk_provided);
  if (q->keys & LOAM_BY_GENERATION) return; /* totals are not kept by generation */
  lm_stats_lock();
  lm_stats_each(add_total, q);
  gather(q, walk_threads);
  lm_stats_unlock();
}

/* ---- Answering ---------------------------------------------------------------------------- */

/* Describes a group, and the limit of its strategy if the groups are by strategy. */
static loam_stats_row row_of(const query *q, const lm_sums *row, lm_limit_use *use) {
  loam_stats_row out = { .tag = "", .strategy = "", .kind = "" };
  const loam_site *site = lm_site_at(row->key & ((1u << LM_SITE_BITS) - 1));
  lm_assert(row->key & KEY_SET);
  *use = (lm_limit_use){ 0 };
  if (q->keys & LOAM_BY_TAG && site) out.tag = site->where.tag;
  if (q->keys & LOAM_BY_STRATEGY) {
    const lm_strategy *s = lm_strategy_at(row->key >> LM_SITE_BITS & (LM_STRATEGIES_MAX - 1));
    *use = lm_live_limits_of(&q->limits, s->id);
    out.strategy = s->desc.name;
    out.kind = lm_strategy_kind_text(s->desc.kind);
    out.limit = use->limit;
    out.limit_used = use->used;
  }
  if (q->keys & LOAM_BY_GENERATION)
    out.generation = lm_site_generation_of(row->key >> SLOT_SHIFT & (LM_GENERATION_SLOTS - 1));
  out.live_bytes = row->live_bytes;
  out.live_blocks = row->live_blocks;
  out.total_bytes = row->total_bytes;
  out.total_blocks = row->total_blocks;
  return out;
}

/* Collects the groups into q->table. */
static loam_status begin(query *q, int keys) {
  *q = (query){ .keys = keys, .tags = lm_site_tag_count() };
  q->tag_site = lm_metadata_alloc((q->tags + 1) * sizeof *q->tag_site);
  if (!q->tag_site) return lm_error(LOAM_ENOMEM, "statistics: no memory for %u tags", q->tags);
  collect(q);
  if (keys & LOAM_BY_STRATEGY) lm_live_limits_read(&q->limits);
  return LOAM_OK;
}

/* Frees the query. `n` rows were reported. */
static loam_status end(query *q, size_t n) {
  bool is_complete = lm_sums_is_empty(&q->table.spill);
  lm_sums_finish(&q->table);
  lm_live_limits_finish(&q->limits);
  lm_metadata_free(q->tag_site);
  if (is_complete) return LOAM_OK;
  return lm_error(LOAM_ENOMEM, "statistics: no memory for a row beyond %zu", n);
}

loam_status lm_stats_by(int keys, loam_row_fn callback, void *ctx) {
  query q;
  loam_status status = begin(&q, keys);
  if (status != LOAM_OK) return status;
  size_t n = lm_sums_sort(&q.table);
  for (size_t i = 0; i < n; i++) {
    lm_limit_use use;
    loam_stats_row row = row_of(&q, &q.table.row[i], &use);
    callback(ctx, &row);
  }
  return end(&q, n);
}

loam_status lm_stats_each_row(lm_stats_row_visit *visit, void *ctx) {
  query q;
  loam_status status = begin(&q, LOAM_BY_TAG | LOAM_BY_STRATEGY | BY_CLASS);
  if (status != LOAM_OK) return status;
  lm_sums_table classes = q.table;
  q.table = (lm_sums_table){ 0 };
  lm_sums_fold(&classes, &q.table);
  size_t n = lm_sums_sort(&q.table);
  for (size_t i = 0; i < n; i++) {
    lm_limit_use use;
    loam_stats_row row = row_of(&q, &q.table.row[i], &use);
    visit(ctx, &row, &use, &classes, q.table.row[i].key);
  }
  lm_sums_finish(&classes);
  return end(&q, n);
}

loam_status lm_stats_get(struct loam_stats *out) {
  query q = { .keys = 0 };
  lm_assert(out);
  collect(&q);
  lm_sums all = q.table.spill;
  for (size_t i = 0; i < q.table.size; i++) lm_sums_add(&all, &q.table.row[i]);
  lm_sums_finish(&q.table);
  lm_pool_figures memory;
  size_t unfilled = lm_sample_unfilled(); /* read first, so that `memory` has the tables */
  lm_pool_figures_get(&memory);
  *out = (struct loam_stats){
    .generation = atomic_load_explicit(&lm_site_generation, memory_order_acquire),
    .live_bytes = all.live_bytes,
    .live_blocks = all.live_blocks,
    .total_bytes = all.total_bytes,
    .total_blocks = all.total_blocks,
    .reserved_bytes = memory.reserved,
    .region_bytes = memory.regions,
    .metadata_bytes = memory.metadata - unfilled,
    .denied = atomic_load_explicit(&lm_stats_denied, memory_order_relaxed),
    .fallbacks = atomic_load_explicit(&lm_stats_fallbacks, memory_order_relaxed),
    .failed = atomic_load_explicit(&lm_stats_failed, memory_order_relaxed),
    .bad_frees = atomic_load_explicit(&lm_stats_bad_frees, memory_order_relaxed),
    .threads = lm_thread_count(),
    .sites = lm_site_count(),
    .strategies = lm_strategy_count(),
  };
  return LOAM_OK;
}
