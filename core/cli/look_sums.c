/* look_sums.c - the totals of another process, and the blocks that handlers, the system and drivers
 * made for it.
 *
 * Totals. A thread counts blocks in its own area, now and then moves a count to the tables of the
 * process, and notes each move in `changes` (engine/stats.h). The reader copies `changes`, then the
 * areas and the tables, and then `changes` again. If a thread moved a count between, the reader
 * copies all of them again. After TRIES readings it keeps the last one, in which a moved count may
 * be added twice.
 *
 * Provided blocks are in a treap, which counts its changes too. All addresses of a subtree lie
 * between two addresses of nodes above it. The reader checks that law, so it meets no node twice,
 * whatever the process writes. If the tree changes during each reading, the last reading leaves out
 * the subtrees that break the law, and the figures are not exact.
 *
 * Blocks of device memory are in lists of extents. The extents of a range follow one another
 * without a gap, and the reader checks that. These lists count no changes: if a list breaks its
 * law, it is read again. */
#include "cli/look.h"

#include <string.h>

#include "os/error.h"
#include "pages/metadata.h"

enum {
  TRIES = 16,
  ROWS_KEPT = 1 << 18, /* of sites, families and classes */
  THREADS_MOST = 1 << 18,
  ROWS_MOST = 1 << 24, /* in one table of totals */
  ROWS_AT_ONCE = 1024,
  POOLS_MOST = 4096, /* of device memory */
  RANGES_MOST = 1 << 16,
};

/* ---- Lists ---- */

/* The state of a walk that finds out whether a list ends. `mark` stays at an item for twice as many
 * steps each time, so a list that leads back to itself reaches it again (Brent, "An improved Monte
 * Carlo factorization algorithm", 1980). */
typedef struct list_end {
  uint32_t most, n; /* the most items that are possible; the items so far */
  uintptr_t mark;
} list_end;

/* Notes the next item. Returns whether the list is too long or has led back. */
static bool is_endless(list_end *end, uintptr_t at) {
  if (at == end->mark || end->n == end->most) return true;
  if (lm_is_pow2(++end->n)) end->mark = at;
  return false;
}

/* ---- Adding ---- */

/* Returns whether sums under this site and strategy can be kept. A strategy that is newer than the
 * copies makes the table of strategies be copied again. */
static bool is_known(lm_look *look, uint32_t site, uint32_t strategy) {
  if (site < LM_SITE_FIRST || site >= 1u << LM_SITE_BITS) return false;
  if (strategy >= look->strategies && lm_look_strategies(look) != LOAM_OK) return false;
  return strategy < look->strategies;
}

/* A table with half of ROWS_KEPT rows gets no more rows with a class, and one with ROWS_KEPT rows
 * does not grow: further keys are added to its common row. */
static lm_sums *row_of(lm_look *look, uint32_t site, uint32_t strategy, unsigned class_) {
  lm_sums_table *sums = &look->sums;
  uint64_t key = lm_look_key(site, look->strategy[strategy].family->id, class_);
  sums->is_fixed = sums->n >= ROWS_KEPT;
  if (sums->n < ROWS_KEPT / 2) return lm_sums_get(sums, key);
  lm_sums *row = lm_sums_find(sums, key);
  if (row) return row;
  look->is_inexact |= sums->is_fixed;
  return lm_sums_get(sums, lm_sums_with_class(key, LM_CLASS_UNKNOWN));
}

bool lm_look_add_live(lm_look *look, lm_token token, uint32_t strategy, unsigned class_,
                      uint64_t blocks, uint64_t bytes) {
  uint32_t site = lm_site_token_index(token);
  if (!is_known(look, site, strategy)) return false;
  lm_sums *row = row_of(look, site, strategy, class_);
  row->live_blocks += blocks;
  row->live_bytes += bytes;
  return true;
}

/* Adds a count of totals. `key` is lm_stats_key, or 0 for counts that have no row. */
static bool add_total(lm_look *look, uint64_t key, uint64_t blocks, uint64_t bytes) {
  uint32_t site = lm_stats_key_site(key), strategy = lm_stats_key_strategy(key);
  unsigned class_ = lm_sums_class(key);
  bool has_class = class_ < LM_CLASSES_COUNTED || class_ == LM_CLASS_UNKNOWN;
  lm_sums *row = &look->sums.spill;
  if (key && (!has_class || !is_known(look, site, strategy))) return false;
  if (key) row = row_of(look, site, strategy, class_);
  row->total_blocks += blocks;
  row->total_bytes += bytes;
  return true;
}

/* ---- Totals: the areas of threads ---- */

/* Entries of a thread's area, in 32 parts; a bit says which parts were used. */
typedef struct area {
  lm_thread *next;
  uint32_t used_tallies, used_decisions;
  lm_tally tally[LM_TALLIES];
  lm_decision decision[LM_DECISIONS];
} area;

/* Fills `part` with the used parts of an array of a thread's area, and returns their number. */
static size_t wanted_parts(lm_remote_part *part, uintptr_t from, void *to, uint32_t used,
                           size_t part_size) {
  size_t n = 0;
  for (size_t i = 0; i < 32; i++)
    if (used >> i & 1)
      part[n++] = (lm_remote_part){ from + i * part_size, (char *)to + i * part_size, part_size };
  return n;
}

static bool copy_area(lm_look *look, uintptr_t at, area *a) {
  lm_remote_part part[64], head[] = {
    { at + offsetof(lm_thread, next), &a->next, sizeof a->next },
    { at + offsetof(lm_thread, used_tallies), &a->used_tallies, sizeof a->used_tallies },
    { at + offsetof(lm_thread, used_decisions), &a->used_decisions, sizeof a->used_decisions },
  };
  if (!lm_remote_read_parts(&look->remote, head, LM_COUNT(head))) return false;
  size_t n = wanted_parts(part, at + offsetof(lm_thread, tally), a->tally, a->used_tallies,
                          sizeof a->tally / 32);
  n += wanted_parts(part + n, at + offsetof(lm_thread, decision), a->decision, a->used_decisions,
                    sizeof a->decision / 32);
  return lm_remote_read_parts(&look->remote, part, n);
}

static bool add_tallies(lm_look *look, const area *a) {
  for (size_t i = 0; i < LM_TALLIES; i++) {
    const lm_tally *e = &a->tally[i];
    if (!(a->used_tallies >> i / (LM_TALLIES / 32) & 1)) continue;
    uint64_t key = atomic_load_explicit(&e->key, memory_order_relaxed);
    uint64_t blocks = atomic_load_explicit(&e->blocks, memory_order_relaxed);
    uint64_t bytes = atomic_load_explicit(&e->bytes, memory_order_relaxed);
    if ((blocks || bytes) && !add_total(look, key, blocks, bytes)) return false;
  }
  return true;
}

static bool add_decisions(lm_look *look, const area *a) {
  for (size_t i = 0; i < LM_DECISIONS; i++) {
    const lm_decision *d = &a->decision[i];
    uint64_t blocks = lm_thread_served(d);
    if (!(a->used_decisions >> i / (LM_DECISIONS / 32) & 1) || !blocks) continue;
    uint32_t site = atomic_load_explicit(&d->site, memory_order_relaxed);
    if (!site) continue;
    if (d->class_ >= LM_CLASSES) return false;
    uint64_t bytes = blocks * lm_class_size(d->class_);
    uint64_t key = lm_stats_key(site, d->strategy, lm_class_counted_as(d->class_));
    if (!add_total(look, key, blocks, bytes)) return false;
  }
  return true;
}

static bool add_threads(lm_look *look, area *a) {
  uintptr_t at;
  list_end end = { .most = THREADS_MOST };
  if (!lm_remote_read(&look->remote, (uintptr_t)look->root.threads, &at, sizeof at)) return false;
  for (; at; at = (uintptr_t)a->next)
    if (is_endless(&end, at) || !copy_area(look, at, a) || !add_tallies(look, a) ||
        !add_decisions(look, a))
      return false;
  return true;
}

/* ---- Totals: the tables ---- */

typedef struct tables {
  lm_stats_stripe stripe[LM_STATS_STRIPES];
  uint32_t changes[LM_STATS_STRIPES]; /* before anything was copied */
  lm_sums row[ROWS_AT_ONCE];
} tables;

static bool copy_stripes(lm_look *look, tables *t) {
  return lm_remote_read(&look->remote, (uintptr_t)look->root.totals, t->stripe, sizeof t->stripe);
}

static uint32_t changes_of(const lm_stats_stripe *stripe) {
  return atomic_load_explicit(&stripe->changes, memory_order_relaxed);
}

/* Notes the counts of changes. Returns whether each count is even and equals the count that was
 * noted by the last call. */
static bool compare_changes(tables *t) {
  bool are_equal = true;
  for (int i = 0; i < LM_STATS_STRIPES; i++) {
    uint32_t now = changes_of(&t->stripe[i]);
    are_equal &= !(now & 1) && now == t->changes[i];
    t->changes[i] = now;
  }
  return are_equal;
}

static bool add_table(lm_look *look, tables *t, const lm_sums_table *table) {
  if (table->size > ROWS_MOST) return false;
  for (size_t at = 0; at < table->size;) {
    size_t n = table->size - at < ROWS_AT_ONCE ? table->size - at : ROWS_AT_ONCE;
    if (!lm_remote_read(&look->remote, (uintptr_t)table->row + at * sizeof *t->row, t->row,
                        n * sizeof *t->row))
      return false;
    for (size_t i = 0; i < n; i++) {
      const lm_sums *row = &t->row[i];
      if (row->key && !add_total(look, row->key, row->total_blocks, row->total_bytes)) return false;
    }
    at += n;
  }
  return add_total(look, 0, table->spill.total_blocks, table->spill.total_bytes);
}

/* Reads all totals into look->sums, which has nothing else. Returns whether the tables could be
 * read; *is_exact becomes whether nothing moved. */
static bool try_totals(lm_look *look, area *a, tables *t, bool *is_exact) {
  lm_sums_clear(&look->sums);
  if (!copy_stripes(look, t)) return false;
  compare_changes(t);
  bool ok = add_threads(look, a) && copy_stripes(look, t);
  for (int i = 0; ok && i < LM_STATS_STRIPES; i++) ok = add_table(look, t, &t->stripe[i].table);
  ok = ok && copy_stripes(look, t);
  *is_exact = ok && compare_changes(t);
  return ok;
}

/* The totals get a table of their own, because they may be read several times; then they are added
 * to the other sums. */
static void add_part(lm_look *look, const lm_sums_table *all) {
  lm_sums_table part = look->sums;
  look->sums = *all;
  lm_sums_add(&look->sums.spill, &part.spill);
  for (size_t i = 0; i < part.size; i++)
    if (part.row[i].key) lm_sums_add(lm_sums_get(&look->sums, part.row[i].key), &part.row[i]);
  lm_sums_finish(&part);
}

static bool read_totals(lm_look *look, area *a, tables *t) {
  lm_sums_table all = look->sums;
  bool ok = false, is_exact = false;
  look->sums = (lm_sums_table){ 0 };
  for (int tries = 0; !is_exact && tries < TRIES && !look->remote.is_late; tries++)
    ok = try_totals(look, a, t, &is_exact);
  if (!is_exact) look->is_inexact = true;
  add_part(look, &all);
  return ok;
}

loam_status lm_look_totals(lm_look *look) {
  area *a = lm_metadata_alloc(sizeof *a);
  tables *t = lm_metadata_alloc(sizeof *t);
  bool ok = a && t && read_totals(look, a, t);
  lm_metadata_free(a);
  lm_metadata_free(t);
  return ok ? LOAM_OK : lm_look_fail(look, "the totals of sites and threads are broken");
}

/* ---- Provided blocks ---- */

/* A subtree that is to be visited: its nodes have addresses from `low` to `high`. */
typedef struct subtree {
  uintptr_t at, low, high;
} subtree;

enum { NODES_AT_ONCE = LM_REMOTE_PARTS };

typedef struct treap {
  bool is_tolerant;  /* a subtree that breaks the law is left out */
  bool has_left_out; /* one was */
  subtree *waiting;
  size_t n, room;
  subtree taken[NODES_AT_ONCE];
  lm_remote_part part[NODES_AT_ONCE];
  lm_provided_node node[NODES_AT_ONCE];
} treap;

static bool push(treap *t, const lm_provided_node *at, uintptr_t low, uintptr_t high) {
  if (!at) return true;
  if (low > high) return false; /* no address lies between: the tree breaks its law */
  if (t->n == t->room) {
    size_t room = t->room ? t->room * 2 : 1024;
    subtree *more = lm_metadata_realloc(t->waiting, room * sizeof *more);
    if (!more) return false;
    t->waiting = more;
    t->room = room;
  }
  t->waiting[t->n++] = (subtree){ (uintptr_t)at, low, high };
  return true;
}

/* Tells whether a block lies in the range of the pools: there the walk of the pools counts it. */
static bool is_in_range(const lm_look *look, uintptr_t at) {
  return at - look->map.base < atomic_load_explicit(&look->map.top, memory_order_relaxed);
}

static bool add_block(lm_look *look, uintptr_t base, uint32_t token, uint32_t strategy,
                      uint64_t size) {
  return is_in_range(look, base) ||
         lm_look_add_live(look, token, strategy, lm_class_counted(size), 1, size);
}

/* Adds a provided block. Its class is known: row_of returns the row to which add_block added it. */
static bool add_provided(lm_look *look, const lm_provided *b) {
  uint32_t site = lm_site_token_index(b->token);
  uintptr_t base = (uintptr_t)b->base;
  if (!add_block(look, base, b->token, b->strategy, b->size)) return false;
  if (b->is_asleep && !is_in_range(look, base))
    row_of(look, site, b->strategy, lm_class_counted(b->size))->asleep_bytes += b->size;
  return true;
}

/* Adds a node's block, and its subtrees to those that wait. False: it breaks the law. */
static bool visit_node(lm_look *look, treap *t, const subtree *s, const lm_provided_node *node) {
  const lm_provided *block = &node->block;
  uintptr_t key = (uintptr_t)block->base;
  if (key < s->low || key > s->high) return false;
  if (!add_provided(look, block)) return false;
  return push(t, node->left, s->low, key - 1) && push(t, node->right, key + 1, s->high);
}

/* Copies a node alone, for the case that the copy of several failed. */
static bool copy_node(lm_look *look, treap *t, size_t i) {
  return lm_remote_read(&look->remote, t->taken[i].at, &t->node[i], sizeof t->node[i]);
}

/* Copies and visits some of the waiting nodes. */
static bool visit_some(lm_look *look, treap *t) {
  size_t n = t->n < NODES_AT_ONCE ? t->n : NODES_AT_ONCE;
  t->n -= n;
  memcpy(t->taken, t->waiting + t->n, n * sizeof *t->taken);
  for (size_t i = 0; i < n; i++)
    t->part[i] = (lm_remote_part){ t->taken[i].at, &t->node[i], sizeof t->node[i] };
  bool are_copied = lm_remote_read_parts(&look->remote, t->part, n);
  if (!are_copied && !t->is_tolerant) return false;
  for (size_t i = 0; i < n; i++) {
    bool ok = (are_copied || copy_node(look, t, i)) &&
              visit_node(look, t, &t->taken[i], &t->node[i]);
    if (!ok && !t->is_tolerant) return false;
    t->has_left_out |= !ok;
  }
  return !look->remote.is_late;
}

/* Reads the tree into look->sums, which has nothing else. Returns whether it obeys its law, or
 * changes. */
static bool try_provided(lm_look *look, treap *t, bool *is_exact) {
  lm_provided_tree before, after;
  uintptr_t at = (uintptr_t)look->root.provided;
  t->n = 0;
  if (!lm_remote_read(&look->remote, at, &before, sizeof before)) return false;
  bool ok = push(t, before.root, 1, UINTPTR_MAX - 1); /* key - 1 and key + 1 do not wrap */
  t->has_left_out = false;
  while (ok && t->n) ok = visit_some(look, t);
  if (!lm_remote_read(&look->remote, at, &after, sizeof after)) return false;
  uint32_t changes = atomic_load_explicit(&before.changes, memory_order_relaxed);
  bool is_still = !(changes & 1) &&
                  changes == atomic_load_explicit(&after.changes, memory_order_relaxed);
  *is_exact = ok && is_still;
  return ok && !(is_still && t->has_left_out);
}

/* ---- Device memory ---- */

/* Called for an extent of device memory. False ends the reading. */
typedef bool visit_extent(lm_look *look, const lm_extent *e, void *ctx);

/* A visit_extent that adds live blocks. */
static bool add_extent(lm_look *look, const lm_extent *e, void *ctx) {
  (void)ctx;
  return e->state != LM_EXTENT_LIVE || add_block(look, e->at, e->token, e->strategy, e->size);
}

static bool each_extent(lm_look *look, const lm_extent_range *range, visit_extent *visit,
                        void *ctx) {
  lm_extent e;
  uintptr_t end = range->base;
  for (uintptr_t at = (uintptr_t)range->first; at; at = (uintptr_t)e.after) {
    if (!lm_remote_read(&look->remote, at, &e, sizeof e)) return false;
    if (e.at != end || !e.size || e.size > range->size - (end - range->base)) return false;
    end += e.size;
    if (!visit(look, &e, ctx)) return false;
  }
  return true;
}

static bool each_range(lm_look *look, uintptr_t first, visit_extent *visit, void *ctx) {
  lm_extent_range range;
  list_end end = { .most = RANGES_MOST };
  for (uintptr_t at = first; at; at = (uintptr_t)range.next) {
    if (is_endless(&end, at)) return false;
    if (!lm_remote_read(&look->remote, at, &range, sizeof range)) return false;
    if (!each_extent(look, &range, visit, ctx)) return false;
  }
  return true;
}

/* Visits the extents of all pools. False: a list breaks its law, or `visit` has returned false. */
static bool try_devices(lm_look *look, visit_extent *visit, void *ctx) {
  uintptr_t at, ranges;
  list_end end = { .most = POOLS_MOST };
  if (!lm_remote_read(&look->remote, (uintptr_t)look->root.device_pools, &at, sizeof at))
    return false;
  while (at) {
    uintptr_t older;
    lm_remote_part part[] = { { at + offsetof(lm_device_pool, ranges), &ranges, sizeof ranges },
                              { at + offsetof(lm_device_pool, older), &older, sizeof older } };
    if (is_endless(&end, at) || !lm_remote_read_parts(&look->remote, part, 2)) return false;
    if (!each_range(look, ranges, visit, ctx)) return false;
    at = older;
  }
  return true;
}

/* Adds what one pool has. Returns false if it cannot be read or names no device. */
static bool add_pool(lm_look *look, uintptr_t pool, lm_device_figures *of, uintptr_t *older) {
  int device;
  size_t mapped, live;
  uint8_t is_gone, is_pinned; /* no bool: the process may hold any byte there */
  lm_remote_part part[] = {
    { pool + offsetof(lm_device_pool, device), &device, sizeof device },
    { pool + offsetof(lm_device_pool, gone), &is_gone, sizeof is_gone },
    { pool + offsetof(lm_device_pool, mapped), &mapped, sizeof mapped },
    { pool + offsetof(lm_device_pool, live), &live, sizeof live },
    { pool + offsetof(lm_device_pool, pinned.is_pinned), &is_pinned, sizeof is_pinned },
    { pool + offsetof(lm_device_pool, older), older, sizeof *older },
  };
  if (!lm_remote_read_parts(&look->remote, part, LM_COUNT(part))) return false;
  if (device < 0 || device >= LM_DEVICES_MAX) return false;
  if (!is_gone) lm_device_figures_add(&of[device], is_pinned, mapped, live);
  return true;
}

void lm_look_devices(lm_look *look, lm_device_figures *of) {
  uintptr_t at, older;
  list_end end = { .most = POOLS_MOST };
  memset(of, 0, LM_DEVICES_MAX * sizeof *of);
  bool ok = lm_remote_read(&look->remote, (uintptr_t)look->root.device_pools, &at, sizeof at);
  for (; ok && at; at = older) ok = !is_endless(&end, at) && add_pool(look, at, of, &older);
  if (!ok) look->is_inexact = true;
}

/* ---- Both ---- */

static bool read_provided(lm_look *look, treap *t) {
  lm_sums_table all = look->sums;
  bool ok = false, is_exact = false;
  look->sums = (lm_sums_table){ 0 };
  for (int tries = 0; !is_exact && tries < TRIES && !look->remote.is_late; tries++) {
    lm_sums_clear(&look->sums);
    t->is_tolerant = tries == TRIES - 1;
    ok = try_provided(look, t, &is_exact) && try_devices(look, add_extent, NULL);
    is_exact = is_exact && ok;
  }
  if (!is_exact) look->is_inexact = true;
  add_part(look, &all);
  return ok;
}

loam_status lm_look_provided(lm_look *look) {
  treap *t = lm_metadata_alloc(sizeof *t);
  bool ok = t && read_provided(look, t);
  if (t) lm_metadata_free(t->waiting);
  lm_metadata_free(t);
  return ok ? LOAM_OK : lm_look_fail(look, "the blocks of handlers and devices are broken");
}

/* ---- One address ---- */

enum {
  DEPTH_MOST = 4096, /* of the treap: far more than one of 2^32 nodes has */
  NODE_TRIES = 256   /* readings of the treap */
};

static void place_block(lm_place *out, const char *memory, uintptr_t start, size_t size) {
  out->state = LM_PLACE_LIVE;
  out->memory = memory;
  out->start = start;
  out->size = size;
}

/* Goes down the treap towards the greatest start that is at most the address, and describes the
 * block that holds the address, if there is one. False: the tree breaks its law. */
static bool descend(lm_look *look, uintptr_t at, lm_place *out) {
  lm_provided_node node;
  uintptr_t low = 1, high = UINTPTR_MAX - 1;
  for (int depth = 0; at; depth++) {
    const lm_provided *block = &node.block;
    if (depth == DEPTH_MOST || !lm_remote_read(&look->remote, at, &node, sizeof node)) return false;
    uintptr_t key = (uintptr_t)block->base;
    if (key < low || key > high) return false;
    at = (uintptr_t)(key <= out->address ? node.right : node.left);
    if (key <= out->address) low = key + 1;
    else high = key - 1;
    if (out->address - key >= block->size) continue; /* also if it is below the block */
    place_block(out, "provided", key, block->size);
    out->token = block->token;
    out->strategy = block->strategy;
    return true;
  }
  return true;
}

/* Reads the tree once. False: it breaks its law. *is_exact becomes whether nothing changed. */
static bool try_node(lm_look *look, lm_place *out, bool *is_exact) {
  lm_provided_tree before, after;
  uintptr_t at = (uintptr_t)look->root.provided;
  *is_exact = false;
  *out = (lm_place){ .address = out->address };
  if (!lm_remote_read(&look->remote, at, &before, sizeof before)) return false;
  bool ok = descend(look, (uintptr_t)before.root, out);
  if (!lm_remote_read(&look->remote, at, &after, sizeof after)) return false;
  uint32_t changes = atomic_load_explicit(&before.changes, memory_order_relaxed);
  *is_exact = !(changes & 1) &&
              changes == atomic_load_explicit(&after.changes, memory_order_relaxed);
  return ok || !*is_exact;
}

static bool is_same_block(const lm_place *a, const lm_place *b) {
  return a->memory && a->memory == b->memory && a->start == b->start && a->size == b->size &&
         a->token == b->token && a->strategy == b->strategy;
}

/* Finds the block that holds the address. In a tree that changes during each reading, a block
 * counts if two readings in succession find it; without such a block *is_exact becomes false.
 * Returns false if the tree breaks its law. */
static bool find_node(lm_look *look, lm_place *out, bool *is_exact) {
  lm_place last = { 0 };
  bool ok = true;
  *is_exact = false;
  for (int tries = 0; ok && !*is_exact && tries < NODE_TRIES; tries++) {
    ok = try_node(look, out, is_exact);
    if (is_same_block(out, &last)) return ok;
    last = *out;
  }
  if (!*is_exact) *out = (lm_place){ .address = out->address };
  return ok;
}

/* A visit_extent that describes the extent at the address of a place, and then ends the reading. */
static bool find_extent(lm_look *look, const lm_extent *e, void *ctx) {
  lm_place *out = ctx;
  (void)look;
  if (out->address - e->at >= e->size) return true;
  out->state = LM_PLACE_REGION;
  if (e->state != LM_EXTENT_LIVE) return false;
  place_block(out, "device", e->at, e->size);
  out->token = e->token;
  out->strategy = e->strategy;
  return false;
}

loam_status lm_look_find_provided(lm_look *look, lm_place *place) {
  bool is_exact, ok = find_node(look, place, &is_exact);
  for (int tries = 0; ok && place->state == LM_PLACE_OUTSIDE && tries < TRIES; tries++) {
    if (!try_devices(look, find_extent, place)) continue;
    if (!is_exact && place->state == LM_PLACE_OUTSIDE) place->state = LM_PLACE_CHANGING;
    return LOAM_OK;
  }
  if (ok && place->state != LM_PLACE_OUTSIDE) return LOAM_OK;
  return lm_look_fail(look, "the blocks of handlers and devices are broken");
}
