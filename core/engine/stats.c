/* stats.c - totals by (site, strategy), and the walk of live memory, grouped.
 *
 * A total is what threads have told plus what their tallies still hold. Telling takes a lock,
 * asking takes all, so no block is counted twice or left out between the two. */
#include "engine/stats.h"

#include <string.h>

#include "device/provider.h"
#include "heap/walk.h"
#include "os/error.h"
#include "os/lock.h"

_Atomic uint64_t lm_stats_denied, lm_stats_fallbacks, lm_stats_failed, lm_stats_bad_frees;

/* ---- A table of sums by key ---------------------------------------------------------------- */

typedef struct sums {
  uint64_t key; /* 0: free */
  uint64_t live_bytes, live_blocks, total_bytes, total_blocks;
} sums;

/* Open-addressed, at most half full. `spill` has what there was no memory to keep apart, or no
 * leave to ask for any: then the table is `rigid`. */
typedef struct table {
  sums *row;
  size_t size, n;
  sums spill;
  bool rigid;
} table;

static uint64_t mix(uint64_t key) {
  key *= 0x9e3779b97f4a7c15u;
  return key ^ key >> 32;
}

static sums *row_of(const table *t, uint64_t key) {
  size_t i = mix(key) & (t->size - 1);
  while (t->row[i].key && t->row[i].key != key) i = (i + 1) & (t->size - 1);
  return &t->row[i];
}

static bool grow(table *t) {
  table grown = {
    .size = t->size ? t->size * 2 : 256, .n = t->n, .spill = t->spill, .rigid = t->rigid
  };
  grown.row = lm_metadata_alloc(grown.size * sizeof(sums));
  if (!grown.row) return false;
  for (size_t i = 0; i < t->size; i++)
    if (t->row[i].key) *row_of(&grown, t->row[i].key) = t->row[i];
  lm_metadata_free(t->row);
  *t = grown;
  return true;
}

/* The row of a key, new ones zeroed. */
static sums *touch(table *t, uint64_t key) {
  if (t->size) {
    sums *row = row_of(t, key);
    if (row->key) return row;
  }
  if ((t->n + 1) * 2 > t->size && (t->rigid || !grow(t))) return &t->spill;
  sums *row = row_of(t, key);
  row->key = key;
  t->n++;
  return row;
}

static void add(sums *row, const sums *more) {
  row->live_bytes += more->live_bytes;
  row->live_blocks += more->live_blocks;
  row->total_bytes += more->total_bytes;
  row->total_blocks += more->total_blocks;
}

static bool is_empty(const sums *row) {
  return !(row->live_bytes | row->live_blocks | row->total_bytes | row->total_blocks);
}

/* ---- Totals ------------------------------------------------------------------------------- */

/* By key, so that threads that go through many tags seldom meet. */
enum { STRIPES = 16 };
static struct stripe {
  lm_lock lock;
  table table;
} totals[STRIPES];

static struct stripe *stripe_of(uint64_t key) { return &totals[mix(key) >> 16 & (STRIPES - 1)]; }

/* Which 32nd of n the i-th is in, as a bit. */
static uint32_t part_of(size_t i, size_t n) { return 1u << i / (n / 32); }

/* The first from i on that may have been somebody's; n: none. */
static int next_used(_Atomic uint32_t *parts, int i, int n) {
  uint32_t used = atomic_load_explicit(parts, memory_order_relaxed);
  while (i < n && !(used & part_of((size_t)i, (size_t)n))) i++;
  return i;
}

/* Only the thread writes. */
static void use(_Atomic uint32_t *parts, uint32_t part) {
  uint32_t now = atomic_load_explicit(parts, memory_order_relaxed);
  if (!(now & part)) atomic_store_explicit(parts, now | part, memory_order_relaxed);
}

static void tell_locked(table *t, lm_tally *e, uint64_t key) {
  uint64_t blocks = atomic_load_explicit(&e->blocks, memory_order_acquire);
  uint64_t bytes = atomic_load_explicit(&e->bytes, memory_order_acquire);
  if (!blocks && !bytes) return;
  sums *row = touch(t, key);
  row->total_blocks += blocks;
  row->total_bytes += bytes;
  atomic_store_explicit(&e->blocks, 0, memory_order_relaxed);
  atomic_store_explicit(&e->bytes, 0, memory_order_relaxed);
}

/* Whoever asks holds every lock, so an entry changes under that of what it has. */
void lm_stats_rekey(lm_thread *t, lm_tally *entry, uint64_t key) {
  uint64_t old = atomic_load_explicit(&entry->key, memory_order_relaxed);
  struct stripe *stripe = stripe_of(old);
  lm_lock_take(&stripe->lock);
  use(&t->used_tallies, part_of((size_t)(entry - t->tally), LM_TALLIES));
  tell_locked(&stripe->table, entry, old);
  atomic_store_explicit(&entry->key, key, memory_order_relaxed);
  lm_lock_drop(&stripe->lock);
}

static uint64_t owner_of(const lm_decision *d) {
  uint32_t site = atomic_load_explicit(&d->site, memory_order_relaxed);
  return site ? lm_stats_key(site, d->strategy) : 0;
}

static uint64_t blocks_of(const lm_decision *d) {
  return __atomic_load_n(&d->blocks, __ATOMIC_RELAXED);
}

static size_t size_of(const lm_decision *d) { return lm_class_size(d->class_); }

static void give_decision(lm_thread *t, lm_decision *d, uint32_t site, uint16_t strategy,
                          uint8_t class_) {
  uint64_t old = owner_of(d);
  struct stripe *stripe = stripe_of(old);
  lm_lock_take(&stripe->lock);
  use(&t->used_decisions, part_of((size_t)(d - t->decision), LM_DECISIONS));
  uint64_t blocks = blocks_of(d);
  if (blocks) {
    sums *row = touch(&stripe->table, old);
    row->total_blocks += blocks;
    row->total_bytes += blocks * size_of(d);
    __atomic_store_n(&d->blocks, 0, __ATOMIC_RELAXED);
  }
  atomic_store_explicit(&d->site, site, memory_order_relaxed);
  d->strategy = strategy;
  d->class_ = class_;
  lm_lock_drop(&stripe->lock);
}

void lm_stats_reuse(lm_thread *t, lm_decision *d, uint32_t site, const lm_serve *serve) {
  uint8_t class_ = (uint8_t)lm_class_of_usable(serve->units * (size_t)16);
  if (owner_of(d) != lm_stats_key(site, serve->strategy) || d->class_ != class_)
    give_decision(t, d, site, serve->strategy, class_);
}

static void tell_all(lm_thread *t) {
  for (int i = 0; (i = next_used(&t->used_tallies, i, LM_TALLIES)) < LM_TALLIES; i++) {
    uint64_t key = atomic_load_explicit(&t->tally[i].key, memory_order_relaxed);
    if (key) lm_stats_rekey(t, &t->tally[i], key);
  }
  for (int i = 0; (i = next_used(&t->used_decisions, i, LM_DECISIONS)) < LM_DECISIONS; i++)
    if (owner_of(&t->decision[i])) give_decision(t, &t->decision[i], 0, 0, 0);
}

/* Under these locks memory of loam's own is taken, so their fork hooks come before memory's. */
static void lock_totals(void) {
  for (int i = 0; i < STRIPES; i++) lm_lock_take(&totals[i].lock);
}

static void unlock_totals(void) {
  for (int i = 0; i < STRIPES; i++) lm_lock_drop(&totals[i].lock);
}

static void renew_totals(void) {
  for (int i = 0; i < STRIPES; i++) lm_lock_renew(&totals[i].lock);
}

void lm_stats_start(void) {
  static _Atomic bool begun;
  if (atomic_exchange_explicit(&begun, true, memory_order_relaxed)) return;
  lm_thread_add_hooks(&(lm_thread_hooks){ tell_all, lock_totals, unlock_totals, renew_totals });
}

/* ---- Grouping ----------------------------------------------------------------------------- */

/* Rows of a query. A group's key is site index (any of the tag's, the first met) | strategy << 20 |
 * generation slot << 34, with 0 for what is not grouped by; the top bit is set in all, so that no
 * key is 0. */
typedef struct query {
  table table;
  int keys;
  uint32_t tags;      /* how many there were when it began */
  uint32_t *tag_site; /* by tag index, a site of the tag */
} query;

#define KEY_SET ((uint64_t)1 << 63)
enum { SLOT_SHIFT = LM_SITE_BITS + LM_STRATEGY_BITS };

static uint64_t key_of(const query *q, uint32_t site, uint32_t strategy, uint32_t slot) {
  uint64_t key = KEY_SET;
  if (q->keys & LOAM_BY_TAG) {
    const loam_site *s = lm_site_at(site);
    if (s && s->tag_index <= q->tags && !q->tag_site[s->tag_index])
      q->tag_site[s->tag_index] = site;
    key |= s && s->tag_index <= q->tags ? q->tag_site[s->tag_index] : site;
  }
  if (q->keys & LOAM_BY_STRATEGY) key |= (uint64_t)lm_strategy_whole(strategy) << LM_SITE_BITS;
  if (q->keys & LOAM_BY_GENERATION) key |= (uint64_t)slot << SLOT_SHIFT;
  return key;
}

static void add_live(query *q, lm_token token, uint32_t strategy, size_t size) {
  sums *row = touch(&q->table,
                    key_of(q, lm_site_token_index(token), strategy, lm_site_token_slot(token)));
  row->live_blocks++;
  row->live_bytes += size;
}

static void add_object(void *ctx, const lm_object *object) {
  add_live(ctx, object->token, object->strategy, object->size);
}

static void add_counted(void *ctx, uint32_t strategy, size_t size, uint32_t n) {
  query *q = ctx;
  sums *row = touch(&q->table, key_of(q, 0, strategy, 0));
  row->live_blocks += n;
  row->live_bytes += n * size;
}

/* Whose each block is tells its token, which costs ten times as much to ask as what it is. */
static bool asks_whose(const query *q) { return q->keys & (LOAM_BY_TAG | LOAM_BY_GENERATION); }

/* A handler's block that is loam's own memory is told as that (engine.c). */
static void add_foreign(void *ctx, lm_provided *block) {
  if (!lm_pool_owns(block->base)) add_live(ctx, block->token, block->strategy, block->size);
}

static void add_total(query *q, uint64_t key, uint64_t blocks, uint64_t bytes) {
  if (!blocks && !bytes) return;
  sums *row = touch(&q->table, key_of(q, (uint32_t)key, (uint32_t)(key >> 32), 0));
  row->total_blocks += blocks;
  row->total_bytes += bytes;
}

static void add_thread(lm_thread *t, void *ctx) {
  for (int i = 0; (i = next_used(&t->used_tallies, i, LM_TALLIES)) < LM_TALLIES; i++) {
    const lm_tally *e = &t->tally[i];
    /* Acquire pairs with lm_stats_add: the key is the one that the sum is of. */
    uint64_t blocks = atomic_load_explicit(&e->blocks, memory_order_acquire);
    uint64_t bytes = atomic_load_explicit(&e->bytes, memory_order_acquire);
    add_total(ctx, atomic_load_explicit(&e->key, memory_order_relaxed), blocks, bytes);
  }
  for (int i = 0; (i = next_used(&t->used_decisions, i, LM_DECISIONS)) < LM_DECISIONS; i++) {
    uint64_t blocks = blocks_of(&t->decision[i]);
    if (blocks)
      add_total(ctx, owner_of(&t->decision[i]), blocks, blocks * size_of(&t->decision[i]));
  }
}

static void walk_foreign(query *q) { lm_provider_each(add_foreign, q); }
static void walk_threads(query *q) { lm_thread_each(add_thread, q); }

/* A walk that holds a lock under which no memory may be asked for: into a table of its own, larger
 * ones until its rows suffice. */
static void gather(query *q, void (*walk)(query *q)) {
  table whole = q->table;
  table part = { 0 };
  do {
    part.spill = (sums){ 0 };
    bool can_grow = grow(&part);
    for (size_t i = 0; i < part.size; i++) part.row[i] = (sums){ 0 };
    part.n = 0;
    part.rigid = true;
    q->table = part;
    walk(q);
    part = q->table;
    if (!can_grow) break;
  } while (!is_empty(&part.spill));
  q->table = whole;
  add(&q->table.spill, &part.spill);
  for (size_t i = 0; i < part.size; i++)
    if (part.row[i].key) add(touch(&q->table, part.row[i].key), &part.row[i]);
  lm_metadata_free(part.row);
}

static void add_stripe(query *q, const table *t) {
  for (size_t i = 0; i < t->size; i++)
    if (t->row[i].key) add_total(q, t->row[i].key, t->row[i].total_blocks, t->row[i].total_bytes);
  add(&q->table.spill, &t->spill);
}

static void add_totals(query *q) {
  lock_totals();
  for (int i = 0; i < STRIPES; i++) add_stripe(q, &totals[i].table);
  gather(q, walk_threads);
  unlock_totals();
}

static void collect(query *q) {
  if (asks_whose(q)) lm_walk_each(add_object, q);
  else lm_walk_counts(add_counted, q);
  gather(q, walk_foreign);
  /* Totals after what lives: a block that is seen living has been allocated. */
  if (!(q->keys & LOAM_BY_GENERATION)) add_totals(q);
}

/* ---- Answering ---------------------------------------------------------------------------- */

static bool is_before(const sums *a, const sums *b) {
  if (a->live_bytes != b->live_bytes) return a->live_bytes > b->live_bytes;
  if (a->total_bytes != b->total_bytes) return a->total_bytes > b->total_bytes;
  return a->key < b->key;
}

/* Sinks row[i] in the heap of n whose top comes last. */
static void sink(sums *row, size_t i, size_t n) {
  for (size_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && is_before(&row[child], &row[child + 1])) child++;
    if (!is_before(&row[i], &row[child])) return;
    sums moved = row[i];
    row[i] = row[child];
    row[child] = moved;
  }
}

/* Heap sort: qsort may call malloc. */
static void sort(sums *row, size_t n) {
  for (size_t i = n / 2; i-- > 0;) sink(row, i, n);
  for (size_t end = n; end-- > 1;) {
    sums moved = row[0];
    row[0] = row[end];
    row[end] = moved;
    sink(row, 0, end);
  }
}

/* Brings the rows together at the front; how many there are. */
static size_t pack(table *t) {
  size_t n = 0;
  for (size_t i = 0; i < t->size; i++)
    if (t->row[i].key) t->row[n++] = t->row[i];
  return n;
}

static void tell_row(const query *q, const sums *row, loam_row_fn callback, void *ctx) {
  loam_stats_row out = { .tag = "", .strategy = "", .kind = "" };
  const loam_site *site = lm_site_at(row->key & ((1u << LM_SITE_BITS) - 1));
  if (q->keys & LOAM_BY_TAG && site) out.tag = site->where.tag;
  if (q->keys & LOAM_BY_STRATEGY) {
    const lm_strategy *s = lm_strategy_at(row->key >> LM_SITE_BITS & (LM_STRATEGIES_MAX - 1));
    out.strategy = s->desc.name;
    out.kind = lm_strategy_kind_text(s->desc.kind);
  }
  if (q->keys & LOAM_BY_GENERATION)
    out.generation = lm_site_generation_of(row->key >> SLOT_SHIFT & (LM_GENERATION_SLOTS - 1));
  out.live_bytes = row->live_bytes;
  out.live_blocks = row->live_blocks;
  out.total_bytes = row->total_bytes;
  out.total_blocks = row->total_blocks;
  callback(ctx, &out);
}

loam_status lm_stats_by(int keys, loam_row_fn callback, void *ctx) {
  query q = { .keys = keys, .tags = lm_site_tag_count() };
  q.tag_site = lm_metadata_alloc((q.tags + 1) * sizeof *q.tag_site);
  if (!q.tag_site) return lm_error(LOAM_ENOMEM, "figures: no memory for %u tags", q.tags);
  collect(&q);
  size_t n = pack(&q.table);
  sort(q.table.row, n);
  for (size_t i = 0; i < n; i++) tell_row(&q, &q.table.row[i], callback, ctx);
  bool is_whole = is_empty(&q.table.spill);
  lm_metadata_free(q.table.row);
  lm_metadata_free(q.tag_site);
  if (!is_whole) return lm_error(LOAM_ENOMEM, "figures: no memory for a row of each tag");
  return LOAM_OK;
}

loam_status lm_stats_get(struct loam_stats *out) {
  query q = { .keys = 0 };
  collect(&q);
  sums all = q.table.spill;
  for (size_t i = 0; i < q.table.size; i++) add(&all, &q.table.row[i]);
  lm_metadata_free(q.table.row);
  lm_pool_figures memory;
  lm_pool_figures_get(&memory);
  *out = (struct loam_stats){
    .generation = atomic_load_explicit(&lm_site_generation, memory_order_acquire),
    .live_bytes = all.live_bytes,
    .live_blocks = all.live_blocks,
    .total_bytes = all.total_bytes,
    .total_blocks = all.total_blocks,
    .reserved_bytes = memory.reserved,
    .region_bytes = memory.regions,
    .metadata_bytes = memory.metadata,
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
