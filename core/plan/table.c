/* table.c - fills the table of a plan: ranges of sizes walked down the tree together. */
#include "plan/table.h"

#include <math.h>
#include <string.h>

#include "plan/plan.h"

const lm_entry lm_table_decide = { 0 };

/* ---- Where a range of sizes ends up ------------------------------------------------------- */

/* Sizes lo..hi on their way down the tree. `fuel` bounds the work: nodes that ask about something
 * else are followed both ways, which could double at each. */
typedef struct walk {
  const lm_plan *plan;
  unsigned fuel;
} walk;

/* The id of the strategy that serves the leaf of every size in lo..hi; or NODE + the node at which
 * they all come to ask something else; or NOWHERE. */
enum { NOWHERE = -1, NODE = LM_STRATEGIES_MAX };
static int reach(walk *w, int32_t at, size_t lo, size_t hi);

/* What the two ways from a node agree on. */
static int both(walk *w, int32_t at, size_t lo, size_t hi) {
  const lm_node *node = &w->plan->node[at];
  int strategy = reach(w, node->yes, lo, hi);
  bool agree = strategy >= 0 && strategy < NODE && reach(w, node->no, lo, hi) == strategy;
  return agree ? strategy : NODE + at;
}

/* Where the sizes lo..hi answer `size cmp k` differently: the last size that answers as lo does.
 * Called only when lo and hi answer differently, or for EQ with k inside. Sizes are whole and k is
 * between two of them, so k is finite and below 2^48. */
static size_t last_like_lo(unsigned cmp, size_t lo, double k) {
  if (cmp == LM_CMP_LT) return (size_t)ceil(k) - 1;
  if (cmp == LM_CMP_LE) return (size_t)floor(k);
  return (double)lo == k ? lo : (size_t)k - 1;
}

static int reach_size(walk *w, const lm_node *node, size_t lo, size_t hi) {
  bool first = lm_plan_compare(node->cmp, (double)lo, node->k);
  bool last = lm_plan_compare(node->cmp, (double)hi, node->k);
  bool inside = node->cmp == LM_CMP_EQ && node->k > (double)lo && node->k < (double)hi &&
                node->k == floor(node->k);
  if (first == last && !inside) return reach(w, first ? node->yes : node->no, lo, hi);
  size_t end = last_like_lo(node->cmp, lo, node->k);
  int found = reach(w, first ? node->yes : node->no, lo, end);
  if (found < 0) return NOWHERE;
  /* The rest begins at a size that answers differently; for EQ it may have to be split again. */
  return reach_size(w, node, end + 1, hi) == found ? found : NOWHERE;
}

static int reach(walk *w, int32_t at, size_t lo, size_t hi) {
  if (at < 0) return lm_plan_first(w->plan, (unsigned)~at);
  if (!w->fuel) return NOWHERE;
  w->fuel--;
  const lm_node *node = &w->plan->node[at];
  if (!node->code_n && node->input == LM_IN_SIZE) return reach_size(w, node, lo, hi);
  if (!node->code_n && (node->input == LM_IN_ALIGN || node->input == LM_IN_ZERO)) {
    double value = node->input == LM_IN_ALIGN ? 16 : 0;
    return reach(w, lm_plan_compare(node->cmp, value, node->k) ? node->yes : node->no, lo, hi);
  }
  return both(w, at, lo, hi);
}

/* ---- Filling ------------------------------------------------------------------------------ */

enum { FUEL = 1 << 18 }; /* of all walks of a plan: about a millisecond */

typedef struct filler {
  lm_table *table;
  walk walk;
  uint32_t entries;
  lm_entry entry[LM_TABLE_ENTRIES];
} filler;

/* Where sizes lo..hi, all of class c, come to. */
static int reach_in(filler *f, size_t lo, size_t hi) {
  unsigned fuel = f->walk.plan->nodes * 2 + 64, left = f->walk.fuel;
  if (left < fuel) fuel = left;
  f->walk.fuel = fuel;
  int id = reach(&f->walk, f->walk.plan->nodes ? 0 : ~0, lo, hi);
  f->walk.fuel = left - (fuel - f->walk.fuel);
  return id;
}

/* The bin that a table holds: a thread's share is known only when it asks. */
static uint32_t bin_in_table(lm_strategy *s, unsigned c) {
  uint32_t bin = lm_pool_bin(s, c);
  return bin && s->shares ? LM_BIN_HERE : bin;
}

lm_serve lm_table_serve(lm_strategy *s, unsigned c) {
  uint32_t bin = lm_pool_bin(s, c);
  if (!bin) return (lm_serve){ 0 };
  uint16_t units = c < LM_CLASSES ? (uint16_t)(lm_table_bin_size(bin) / 16) : 0;
  return (lm_serve){ bin_in_table(s, c), { { (uint16_t)s->id, units } } };
}

static lm_serve serve_of(filler *f, unsigned c, size_t lo, size_t hi) {
  int id = reach_in(f, lo, hi);
  if (id < 0) return (lm_serve){ 0 };
  if (id >= NODE) return (lm_serve){ LM_BIN_ASKS, { .node = (uint32_t)(id - NODE) } };
  return lm_table_serve(lm_strategy_at((uint32_t)id), c);
}

static bool is_serve(const lm_serve *a, const lm_serve *b) {
  return a->bin == b->bin && a->node == b->node;
}

static bool is_entry(const lm_entry *a, const lm_entry *b) {
  return a->cut == b->cut && is_serve(&a->part[0], &b->part[0]) &&
         is_serve(&a->part[1], &b->part[1]);
}

/* The index of an entry, the newest first: neighbours are alike. 0 when there is no room. */
static unsigned intern(filler *f, const lm_entry *entry) {
  for (uint32_t i = f->entries; i-- > 1;)
    if (is_entry(&f->entry[i], entry)) return i;
  if (f->entries == LM_TABLE_ENTRIES) return 0;
  f->entry[f->entries] = *entry;
  return f->entries++;
}

static size_t unit_of(size_t size) { return (size + 15) / 16; }

static void put(filler *f, size_t lo, size_t hi, const lm_entry *entry) {
  memset(&f->table->at[unit_of(lo)], (int)intern(f, entry), unit_of(hi) - unit_of(lo) + 1);
}

static bool fill_whole(filler *f, unsigned c, size_t lo, size_t hi) {
  lm_entry entry = { .cut = UINT32_MAX, .part = { serve_of(f, c, lo, hi) } };
  if (!entry.part[0].bin) return false;
  put(f, lo, hi, &entry);
  return true;
}

/* A unit that one threshold parts. */
static void fill_parted(filler *f, unsigned c, size_t lo, size_t hi) {
  lm_entry entry = { .part = { serve_of(f, c, lo, lo), serve_of(f, c, hi, hi) } };
  if (!entry.part[0].bin || !entry.part[1].bin) return;
  for (size_t cut = lo + 1; cut <= hi; cut++) {
    lm_serve below = serve_of(f, c, lo, cut - 1), above = serve_of(f, c, cut, hi);
    if (!is_serve(&below, &entry.part[0]) || !is_serve(&above, &entry.part[1])) continue;
    entry.cut = (uint32_t)cut;
    put(f, lo, hi, &entry);
    return;
  }
}

static void fill_class(filler *f, unsigned c) {
  size_t lo = lm_class_min_size(c), hi = lm_class_max_size(c);
  if (fill_whole(f, c, lo, hi)) return;
  for (size_t end; lo <= hi; lo = end + 1) {
    end = unit_of(lo) * 16;
    if (!fill_whole(f, c, lo, end)) fill_parted(f, c, lo, end);
  }
}

static size_t most_large(unsigned c) { return (size_t)lm_class_slots(c) << LM_SLOT_SHIFT; }

static void fill_wide(filler *f, unsigned c) {
  bool small = c < LM_CLASSES, first = c == LM_CLASSES;
  size_t lo = small ? lm_class_min_size(c) : first ? LM_SMALL_EAGER + 1 : most_large(c - 1) + 1;
  if (c == LM_CLASS_ALIGNED) return;
  f->table->wide[c - LM_TABLE_CLASSES] = serve_of(f, c, lo,
                                                  small ? lm_class_max_size(c) : most_large(c));
}

static void keep(filler *f) {
  size_t bytes = f->entries * sizeof *f->entry;
  lm_entry *copy = f->entries > 1 ? lm_metadata_alloc(bytes) : NULL;
  if (!copy) {
    memset(f->table->at, 0, sizeof f->table->at);
    return;
  }
  memcpy(copy, f->entry, bytes);
  f->table->entries = f->entries;
  f->table->entry = copy;
}

static bool is_even(const lm_table *table, unsigned class_) {
  size_t lo = class_ ? lm_class_size(class_ - 1) / 16 + 1 : 0, hi = lm_class_size(class_) / 16;
  for (size_t unit = lo; unit < hi; unit++)
    if (table->at[unit] != table->at[hi]) return false;
  return table->entry[table->at[hi]].cut == UINT32_MAX;
}

static void note_even(lm_table *table) {
  table->even = 0;
  for (unsigned c = 0; c < LM_TABLE_CLASSES; c++)
    if (is_even(table, c)) table->even |= (uint64_t)1 << c;
}

void lm_table_fill(lm_table *table, const lm_plan *plan) {
  table->entries = 1;
  table->entry = &lm_table_decide;
  memset(table->wide, 0, sizeof table->wide);
  filler f = { .table = table, .walk = { plan, FUEL }, .entries = 1 };
  for (unsigned c = 0; c < LM_TABLE_CLASSES; c++) fill_class(&f, c);
  for (unsigned c = LM_TABLE_CLASSES; c < LM_CLASSES_ALL; c++) fill_wide(&f, c);
  keep(&f);
  note_even(table);
}

void lm_table_finish(lm_table *table) {
  if (table->entry != &lm_table_decide) lm_metadata_free((void *)(uintptr_t)table->entry);
}

static bool is_right(const lm_serve *s, size_t size, const lm_plan *plan) {
  if (!s->bin) return true;
  if (s->bin == LM_BIN_ASKS) return s->node < plan->nodes;
  return s->units * (size_t)16 >= size &&
         bin_in_table(lm_strategy_at(s->strategy), lm_class_of(size)) == s->bin;
}

static bool is_wide_right(const lm_serve *s, unsigned c, const lm_plan *plan) {
  if (!s->bin || s->bin == LM_BIN_ASKS) return !s->bin || s->node < plan->nodes;
  size_t usable = c < LM_CLASSES ? lm_class_max_size(c) : 0;
  return s->units * (size_t)16 >= usable && !s->units == !usable &&
         bin_in_table(lm_strategy_at(s->strategy), c) == s->bin;
}

bool lm_table_is_valid(const lm_table *table, const lm_plan *plan) {
  if (!table->entries || !is_entry(&table->entry[0], &lm_table_decide)) return false;
  for (size_t unit = 0; unit < LM_TABLE_UNITS; unit++) {
    if (table->at[unit] >= table->entries) return false;
    const lm_entry *e = &table->entry[table->at[unit]];
    if (!is_right(&e->part[0], unit * 16, plan) || !is_right(&e->part[1], unit * 16, plan))
      return false;
  }
  for (unsigned c = LM_TABLE_CLASSES; c < LM_CLASSES_ALL; c++)
    if (!is_wide_right(&table->wide[c - LM_TABLE_CLASSES], c, plan)) return false;
  return true;
}
