/* look_pages.c - says where the memory of another process lies: the answer of `loam pages`.
 *
 * Three sources are joined, slot by slot of the range (pages/map.h):
 *
 *   the page map and the states   which strategy has the slot, and which bytes of it are live
 *   /proc/PID/pagemap             which pages of the slot have memory, and which are huge
 *   move_pages(2)                 the NUMA node of a page of the slot
 *
 * Then consecutive slots of one strategy and one node are joined to cells, so that an answer has at
 * most CELLS_ALL cells and one for each group, whatever the size of the process. The answer for a
 * stopped process is exact, with two exceptions. Before Linux 6.7, the kernel tells huge pages only
 * for a mapping; the reader divides them evenly among the pages of the mapping that have memory. In
 * a process of more than NODES_ASKED slots, the reader asks for the nodes of some slots only. */
#include "cli/look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/page_scan.h"
#include "engine/smaps.h"
#include "heap/pools.h"
#include "os/error.h"
#include "os/hash.h"
#include "pages/metadata.h"

enum {
  CELLS = 4096,         /* the most cells of used slots; each group can have one more */
  CELLS_ALL = 8192,     /* and of all slots */
  NODES_ASKED = 65536,  /* the most slots whose node the reader asks for */
  NODES_AT_ONCE = 1024, /* pages of one call */
  LARGEST = 5,          /* large blocks that are listed */
  RANKS = 32,           /* strategies with groups of their own: those with the most slots */
  RANK_OTHERS = RANKS,  /* all other strategies together */
  RANK_METADATA,
  RANK_NONE, /* slots that the page map gives to no strategy */
  RANKS_ALL
};

/* The use of a slot. */
typedef enum kind {
  NONE, /* it is free in the range: nothing of it is shown */
  SMALL,
  LARGE,
  GUARDED,
  FREE,     /* free in a pool; touched, and not given back since */
  RETURNED, /* free in a pool; its memory was given back to the system, or it was never touched */
  METADATA,
  OTHER, /* reserved, under change, or waiting for another process to end */
  KINDS
} kind;

static const char *const kind_texts[KINDS] = { "none", "small",    "large",    "guarded",
                                               "free", "returned", "metadata", "other" };

/* A slot of the range. Sums of bytes; none exceeds LM_SLOT. */
typedef struct slot {
  uint32_t live;     /* of live objects, on pages with memory */
  uint32_t absent;   /* of live objects, on pages without memory: never touched, or swapped out */
  uint32_t cached;   /* of objects in thread caches and depots, on pages with memory */
  uint16_t present;  /* a bit for each page with memory */
  uint16_t strategy; /* id of the family; unused for METADATA and OTHER */
  uint8_t kind;
  uint8_t swapped, huge; /* pages in swap, and on huge pages (page_scan.h) */
  uint8_t node;          /* 1 + node of one of its pages with memory; 0: not known */
  bool begins;           /* a large or guarded block begins here, live or not */
} slot;

/* A set of free runs (pages/run.h), by the number that its tags bear. */
typedef struct run_set {
  uint32_t id;
  uint16_t strategy; /* id of the family */
  bool is_metadata, is_clean;
} run_set;

/* Sums over slots: of a cell, of a group, or of all. Bytes. */
typedef struct pages_sum {
  uint64_t slots, live, absent, cached, resident, swapped, huge, returned;
} pages_sum;

typedef struct cell {
  uint32_t group, first; /* number of the group; the first slot */
  uint32_t blocks;       /* large and guarded blocks that begin in it */
  uint32_t of_kind[KINDS];
  pages_sum sum;
} cell;

/* The slots of one strategy and one node. */
typedef struct group {
  uint32_t rank;
  int node;
  cell open;    /* the cell that is being filled */
  uint32_t gap; /* slots since then that are RETURNED and have no memory */
  uint32_t gap_first;
  pages_sum sum;
} group;

typedef struct large_block {
  uint64_t bytes;
  uint32_t strategy;
  lm_token token;
} large_block;

typedef struct pages {
  lm_look *look;
  uint32_t end;  /* slots of the range */
  uint32_t last; /* the slots below it include all that are shown */
  slot *slot;
  run_set *set;
  uint32_t sets;
  lm_page_scan scan;
  const char *broken; /* why reading failed; NULL: it did not */
  lm_smaps maps;      /* where the kernel does not tell huge pages page by page; else empty */
  uint16_t *rank;     /* by id of a family */
  uint32_t rank_strategy[RANKS];
  uint32_t group_at[RANKS_ALL][LM_NODES_MAX + 1]; /* 1 + index in `group`; 0: none */
  int last_node[RANKS_ALL];
  group *group;
  uint32_t groups;
  cell *cell;
  uint32_t cells, cell_room;
  uint32_t cell_slots; /* a cell stands for so many slots; a power of two */
  uint32_t node_step;  /* of as many slots with memory, the reader asks for the node of one */
  large_block largest[LARGEST];
} pages;

/* ---- Sets of free runs ---- */

static int compare_sets(const void *a, const void *b) {
  uint32_t x = ((const run_set *)a)->id, y = ((const run_set *)b)->id;
  return (x > y) - (x < y);
}

static void add_sets(pages *p, uintptr_t at, uint32_t family, bool is_metadata) {
  lm_regions r;
  if (!lm_remote_read(&p->look->remote, at, &r, sizeof r)) return;
  p->set[p->sets++] = (run_set){ r.clean.id, (uint16_t)family, is_metadata, true };
  p->set[p->sets++] = (run_set){ r.dirty.id, (uint16_t)family, is_metadata, false };
}

/* Notes which sets belong to which pool. A pool that is made later is not known: its free slots
 * count as free in the range. */
static bool read_sets(pages *p) {
  const lm_look *look = p->look;
  p->set = lm_metadata_alloc((2 * look->strategies + 4) * sizeof *p->set);
  if (!p->set) return false;
  add_sets(p, (uintptr_t)look->root.metadata, 0, true);
  add_sets(p, (uintptr_t)look->root.states, 0, true);
  for (uint32_t id = 0; id < look->strategies; id++)
    if (look->pool[id])
      add_sets(p, look->pool[id] + offsetof(lm_pool, regions), look->strategy[id].family->id,
               false);
  qsort(p->set, p->sets, sizeof *p->set, compare_sets);
  return true;
}

static const run_set *find_set(const pages *p, uint32_t use) {
  run_set wanted = { .id = (use - LM_USE_RUNS) / 2 };
  return bsearch(&wanted, p->set, p->sets, sizeof *p->set, compare_sets);
}

/* ---- Pages with memory ---- */

static const char no_page_table[] = "its page table (/proc/PID/pagemap) cannot be read";

/* Notes which pages of a slot have memory. */
static void note_memory(pages *p, uint32_t at) {
  slot *s = &p->slot[at];
  const lm_slot_pages *found = lm_page_scan_slot(&p->scan, at);
  if (!found) {
    p->broken = no_page_table;
    return;
  }
  s->present = found->present;
  s->swapped = (uint8_t)__builtin_popcount(found->swapped);
  s->huge = (uint8_t)__builtin_popcount(found->huge);
}

static uint32_t resident_of(const slot *s) {
  return (uint32_t)__builtin_popcount(s->present) * LM_PAGE;
}

/* ---- Extents ---- */

/* Adds the bytes of an object from `from` to `to`, as offsets in the range, to their slots. */
static void add_object(pages *p, uintptr_t from, uintptr_t to, bool is_live) {
  while (from < to) {
    uintptr_t end = lm_align_down(from, LM_PAGE) + LM_PAGE;
    slot *s = &p->slot[from >> LM_SLOT_SHIFT];
    bool has_memory = s->present >> (from / LM_PAGE % LM_PAGE_SCAN_PAGES) & 1;
    if (end > to) end = to;
    if (is_live && has_memory) s->live += (uint32_t)(end - from);
    else if (is_live) s->absent += (uint32_t)(end - from);
    else if (has_memory) s->cached += (uint32_t)(end - from);
    from = end;
  }
}

static void add_objects(pages *p, const lm_look_extent *e) {
  uintptr_t from = e->start - p->look->map.base, end = (uintptr_t)p->end << LM_SLOT_SHIFT;
  for (uint32_t i = 0; i < e->count; i++, from += e->size) {
    bool is_live = lm_state_is_live(e->state[i]);
    uintptr_t to = from + e->size;
    if (from >= end || to > end) return;
    if (is_live || lm_state_is_cached(e->state[i])) add_object(p, from, to, is_live);
  }
}

/* Keeps a large block if it is one of the largest, which are in descending order. */
static void note_large(pages *p, const lm_look_extent *e) {
  large_block block = { e->size, e->strategy, e->token };
  for (size_t i = 0; i < LARGEST; i++) {
    if (p->largest[i].bytes >= block.bytes) continue;
    large_block smaller = p->largest[i];
    p->largest[i] = block;
    block = smaller;
  }
}

/* Returns what an extent is used for. Sets *family where a strategy has it. */
static kind kind_of(const pages *p, const lm_look_extent *e, uint32_t *family) {
  if (e->count) *family = p->look->strategy[e->strategy].family->id;
  if (e->use == LM_USE_METADATA) return METADATA;
  if (e->use >= LM_USE_RUNS) {
    const run_set *set = find_set(p, e->use);
    if (!set) return NONE;
    *family = set->strategy;
    if (set->is_metadata) return set->is_clean ? NONE : METADATA;
    return set->is_clean ? RETURNED : FREE;
  }
  if (!e->count) return OTHER;
  if (e->use == LM_USE_GUARDED) return GUARDED;
  return e->use == LM_USE_SMALL ? SMALL : LARGE;
}

/* Tells whether there is such a strategy. If it is newer than the copied table of strategies, the
 * table is copied again. */
static bool is_known(lm_look *look, uint32_t strategy) {
  if (strategy >= look->strategies && lm_look_strategies(look) != LOAM_OK) return false;
  return strategy < look->strategies;
}

static void show(void *ctx, const lm_look_extent *e) {
  pages *p = ctx;
  uint32_t family = 0, end = e->slots < p->end - e->slot ? e->slot + e->slots : p->end;
  if (p->broken) return;
  if (e->count && !is_known(p->look, e->strategy)) {
    p->broken = "an extent has a strategy that does not exist";
    return;
  }
  kind k = kind_of(p, e, &family);
  if (k == NONE) return;
  p->last = end;
  for (uint32_t i = e->slot; i < end && !p->broken; i++) {
    p->slot[i].kind = (uint8_t)k;
    p->slot[i].strategy = (uint16_t)family;
    note_memory(p, i);
  }
  if (p->broken || !e->count) return;
  add_objects(p, e);
  p->slot[e->slot].begins = k != SMALL;
  if (k != SMALL && lm_state_is_live(*e->state)) note_large(p, e);
}

/* ---- Nodes ---- */

/* One call of the kernel: a page of each slot, and the slot that it stands for. */
typedef struct question {
  size_t n;
  void *page[NODES_AT_ONCE];
  uint32_t whose[NODES_AT_ONCE];
} question;

static void ask(pages *p, question *q) {
  int status[NODES_AT_ONCE];
  bool is_told = q->n && !lm_sys_pages_of(p->look->remote.pid, q->page, status, q->n);
  for (size_t i = 0; i < q->n; i++)
    if (is_told && status[i] >= 0 && status[i] < LM_NODES_MAX)
      p->slot[q->whose[i]].node = (uint8_t)(1 + status[i]);
  q->n = 0;
}

/* Returns whether the reader asks for the node of the slot with memory that has number n. Slots may
 * alternate over nodes: then every second slot lies on half of them. So a hash chooses a slot. */
static bool is_asked(const pages *p, uint32_t n) {
  return n % p->node_step == lm_hash_below(n / p->node_step, p->node_step);
}

/* Returns the page of slot i whose node the reader asks for: one with memory, chosen by a hash,
 * because the pages may alternate over nodes too. */
static void *asked_page(const pages *p, uint32_t i) {
  uint32_t present = p->slot[i].present;
  uint64_t skip = lm_hash_below(i, (uint32_t)__builtin_popcount(present));
  while (skip-- > 0) present &= present - 1;
  size_t page = (size_t)__builtin_ctz(present) * LM_PAGE;
  return (void *)(p->look->map.base + ((uintptr_t)i << LM_SLOT_SHIFT) + page);
}

/* Asks for the node of a page of each slot with memory, or of some of these slots. */
static void ask_nodes(pages *p) {
  question q = { 0 };
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->last; i++) n += p->slot[i].present != 0;
  p->node_step = n / NODES_ASKED + 1;
  n = 0;
  for (uint32_t i = 0; i < p->last; i++) {
    if (!p->slot[i].present || !is_asked(p, n++)) continue;
    q.page[q.n] = asked_page(p, i);
    q.whose[q.n] = i;
    if (++q.n == NODES_AT_ONCE) ask(p, &q);
  }
  ask(p, &q);
}

/* ---- Ranks ---- */

static bool is_of_strategy(const slot *s) {
  return s->kind != NONE && s->kind != METADATA && s->kind != OTHER;
}

/* Gives the strategies with the most slots a rank of their own. */
static bool rank_strategies(pages *p) {
  uint32_t n = p->look->strategies;
  uint32_t *slots = lm_metadata_alloc(n * sizeof *slots);
  p->rank = lm_metadata_alloc(n * sizeof *p->rank);
  for (uint32_t i = 0; slots && p->rank && i < p->last; i++)
    if (is_of_strategy(&p->slot[i])) slots[p->slot[i].strategy]++;
  for (uint32_t id = 0; slots && p->rank && id < n; id++) p->rank[id] = RANK_OTHERS;
  for (uint16_t rank = 0; slots && p->rank && rank < RANKS; rank++) {
    uint32_t most = 0;
    for (uint32_t id = 1; id < n; id++)
      if (slots[id] > slots[most]) most = id;
    if (!slots[most]) break;
    slots[most] = 0;
    p->rank[most] = rank;
    p->rank_strategy[rank] = most;
  }
  bool ok = slots && p->rank;
  lm_metadata_free(slots);
  return ok;
}

static uint32_t rank_of(const pages *p, const slot *s) {
  if (s->kind == METADATA) return RANK_METADATA;
  return s->kind == OTHER ? RANK_NONE : p->rank[s->strategy];
}

/* A slot that was not asked, or has no memory, counts to the node of the last slot of its strategy
 * that is known. Slots before the first such slot count to that one's node. */
static void begin_nodes(pages *p) {
  for (uint32_t rank = 0; rank < RANKS_ALL; rank++) p->last_node[rank] = -1;
  for (uint32_t i = p->last; i-- > 0;) {
    const slot *s = &p->slot[i];
    if (s->kind != NONE && s->node) p->last_node[rank_of(p, s)] = s->node - 1;
  }
}

/* ---- Cells ---- */

static void add_sum(pages_sum *to, const pages_sum *from) {
  to->slots += from->slots;
  to->live += from->live;
  to->absent += from->absent;
  to->cached += from->cached;
  to->resident += from->resident;
  to->swapped += from->swapped;
  to->huge += from->huge;
  to->returned += from->returned;
}

static bool put_cell(pages *p, group *g, const cell *c) {
  if (p->cells == p->cell_room) {
    uint32_t room = p->cell_room ? p->cell_room * 2 : 1024;
    cell *more = lm_metadata_realloc(p->cell, room * sizeof *more);
    if (!more) return false;
    p->cell = more;
    p->cell_room = room;
  }
  p->cell[p->cells] = *c;
  p->cell[p->cells++].group = (uint32_t)(g - p->group);
  add_sum(&g->sum, &c->sum);
  return true;
}

/* Ends the cell that is being filled. */
static bool close_cell(pages *p, group *g) {
  bool ok = !g->open.sum.slots || put_cell(p, g, &g->open);
  g->open = (cell){ 0 };
  return ok;
}

/* Adds slots without memory to the cell that is being filled. */
static bool add_returned(pages *p, group *g, uint32_t first, uint32_t slots) {
  while (slots) {
    uint32_t room = p->cell_slots - (uint32_t)g->open.sum.slots, n = slots < room ? slots : room;
    if (!g->open.sum.slots) g->open.first = first;
    g->open.sum.slots += n;
    g->open.sum.returned += (uint64_t)n << LM_SLOT_SHIFT;
    g->open.of_kind[RETURNED] += n;
    first += n;
    slots -= n;
    if (g->open.sum.slots == p->cell_slots && !close_cell(p, g)) return false;
  }
  return true;
}

/* Ends a row of slots without memory. A long one is a cell of its own, of any length. */
static bool end_gap(pages *p, group *g) {
  uint32_t gap = g->gap;
  g->gap = 0;
  if (gap < p->cell_slots) return add_returned(p, g, g->gap_first, gap);
  cell c = { .first = g->gap_first, .of_kind[RETURNED] = gap };
  c.sum = (pages_sum){ .slots = gap, .returned = (uint64_t)gap << LM_SLOT_SHIFT };
  return close_cell(p, g) && put_cell(p, g, &c);
}

/* Returns the bytes of a slot that are on huge pages. */
static uint64_t huge_of(const pages *p, uint32_t at) {
  if (!p->scan.is_old) return (uint64_t)p->slot[at].huge * LM_PAGE;
  uintptr_t from = p->look->map.base + ((uintptr_t)at << LM_SLOT_SHIFT);
  const lm_smaps_mapping *m = lm_smaps_behind(&p->maps, from);
  if (m == lm_smaps_end(&p->maps) || m->from >= from + LM_SLOT) return 0;
  return (uint64_t)((double)resident_of(&p->slot[at]) * (double)m->huge / (double)m->resident);
}

static bool add_slot(pages *p, group *g, uint32_t at) {
  const slot *s = &p->slot[at];
  if (s->kind == RETURNED && !s->present) {
    if (!g->gap) g->gap_first = at;
    g->gap++;
    return true;
  }
  if (g->gap && !end_gap(p, g)) return false;
  pages_sum sum = { .slots = 1,
                    .live = s->live,
                    .absent = s->absent,
                    .cached = s->cached,
                    .resident = resident_of(s),
                    .swapped = (uint64_t)s->swapped * LM_PAGE,
                    .huge = huge_of(p, at) };
  if (!g->open.sum.slots) g->open.first = at;
  add_sum(&g->open.sum, &sum);
  g->open.of_kind[s->kind]++;
  g->open.blocks += s->begins;
  return g->open.sum.slots < p->cell_slots || close_cell(p, g);
}

/* Returns the group of a slot; NULL: there is no memory for one more. */
static group *group_of(pages *p, const slot *s) {
  uint32_t rank = rank_of(p, s);
  if (s->node) p->last_node[rank] = s->node - 1;
  int node = p->last_node[rank];
  uint32_t *at = &p->group_at[rank][node + 1];
  if (!*at) {
    group *more = lm_metadata_realloc(p->group, (p->groups + 1) * sizeof *more);
    if (!more) return NULL;
    p->group = more;
    p->group[p->groups] = (group){ .rank = rank, .node = node };
    *at = ++p->groups;
  }
  return &p->group[*at - 1];
}

/* Chooses how many slots a cell stands for: the least power of two that keeps both bounds. */
static void choose_scale(pages *p) {
  uint32_t used = 0, returned = 0;
  for (uint32_t i = 0; i < p->last; i++) {
    bool is_returned = p->slot[i].kind == RETURNED && !p->slot[i].present;
    used += p->slot[i].kind != NONE && !is_returned;
    returned += is_returned;
  }
  p->cell_slots = 1;
  while ((uint64_t)used > (uint64_t)p->cell_slots * CELLS ||
         used + 2 * (uint64_t)returned > (uint64_t)p->cell_slots * CELLS_ALL)
    p->cell_slots *= 2;
}

static bool make_cells(pages *p) {
  if (!rank_strategies(p)) return false;
  choose_scale(p);
  begin_nodes(p);
  for (uint32_t i = 0; i < p->last; i++) {
    if (p->slot[i].kind == NONE) continue;
    group *g = group_of(p, &p->slot[i]);
    if (!g || !add_slot(p, g, i)) return false;
  }
  for (uint32_t i = 0; i < p->groups; i++)
    if ((p->group[i].gap && !end_gap(p, &p->group[i])) || !close_cell(p, &p->group[i]))
      return false;
  return true;
}

/* ---- The answer ---- */

static void put_figure(lm_json *out, const char *key, uint64_t bytes) {
  if (bytes) lm_json_uint(out, key, bytes);
}

/* Returns the kind that most slots of a cell have. */
static kind kind_of_cell(const cell *c) {
  kind most = NONE;
  for (kind k = NONE; k < KINDS; k++)
    if (c->of_kind[k] > c->of_kind[most]) most = k;
  return most;
}

static void put_cell_json(lm_json *out, const cell *c) {
  lm_json_open(out, NULL, '{');
  lm_json_uint(out, "at", (uint64_t)c->first << LM_SLOT_SHIFT);
  lm_json_uint(out, "bytes", c->sum.slots << LM_SLOT_SHIFT);
  lm_json_text(out, "kind", kind_texts[kind_of_cell(c)]);
  put_figure(out, "blocks", c->blocks);
  put_figure(out, "live", c->sum.live);
  put_figure(out, "absent", c->sum.absent);
  put_figure(out, "cached", c->sum.cached);
  put_figure(out, "resident", c->sum.resident);
  put_figure(out, "swapped", c->sum.swapped);
  put_figure(out, "huge", c->sum.huge);
  put_figure(out, "returned", c->sum.returned);
  lm_json_close(out, '}');
}

static void put_sum_json(lm_json *out, const pages_sum *sum) {
  lm_json_uint(out, "bytes", sum->slots << LM_SLOT_SHIFT);
  lm_json_uint(out, "live_bytes", sum->live + sum->absent);
  lm_json_uint(out, "absent_bytes", sum->absent);
  lm_json_uint(out, "cached_bytes", sum->cached);
  lm_json_uint(out, "resident_bytes", sum->resident);
  lm_json_uint(out, "swapped_bytes", sum->swapped);
  lm_json_uint(out, "huge_bytes", sum->huge);
  lm_json_uint(out, "returned_bytes", sum->returned);
}

/* Returns the huge pages that a strategy asks for, as policies write them; "": none. */
static const char *huge_text(lm_huge huge) {
  static const char *const text[] = { "", "false", "thp", "2MiB", "1GiB" };
  return (unsigned)huge < LM_COUNT(text) ? text[huge] : "";
}

static const char *what_text(uint32_t rank) {
  if (rank < RANKS) return "strategy";
  if (rank == RANK_OTHERS) return "strategies";
  return rank == RANK_METADATA ? "metadata" : "other";
}

static void put_strategy(const pages *p, lm_json *out, uint32_t rank) {
  lm_json_text(out, "what", what_text(rank));
  if (rank >= RANKS) return;
  const lm_strategy *s = &p->look->strategy[p->rank_strategy[rank]];
  lm_json_text(out, "strategy", s->desc.name);
  lm_json_text(out, "kind", lm_strategy_kind_text(s->desc.kind));
  if (*huge_text(s->desc.huge)) lm_json_text(out, "asks_huge", huge_text(s->desc.huge));
}

static void put_group(const pages *p, lm_json *out, uint32_t index) {
  const group *g = &p->group[index];
  lm_json_open(out, NULL, '{');
  put_strategy(p, out, g->rank);
  if (g->node >= 0) lm_json_int(out, "node", g->node);
  put_sum_json(out, &g->sum);
  lm_json_open(out, "cells", '[');
  for (uint32_t i = 0; i < p->cells; i++)
    if (p->cell[i].group == index) put_cell_json(out, &p->cell[i]);
  lm_json_close(out, ']');
  lm_json_close(out, '}');
}

static void put_largest(const pages *p, lm_json *out) {
  lm_look *look = p->look;
  lm_json_open(out, "largest", '[');
  for (size_t i = 0; i < LARGEST && p->largest[i].bytes; i++) {
    const large_block *block = &p->largest[i];
    char tag[LM_TAG_MAX + 1] = "";
    uint32_t site = lm_site_token_index(block->token);
    uintptr_t text = site < look->sites ? look->site[site].tag : 0;
    if (text) lm_remote_text(&look->remote, text, tag, sizeof tag);
    lm_json_open(out, NULL, '{');
    lm_json_text(out, "tag", tag);
    lm_json_text(out, "strategy", look->strategy[block->strategy].desc.name);
    lm_json_uint(out, "bytes", block->bytes);
    lm_json_close(out, '}');
  }
  lm_json_close(out, ']');
}

/* Returns the bytes of live blocks outside of the range: those of handlers, drivers and the
 * system's malloc. */
static uint64_t provided_bytes(const lm_look *look) {
  uint64_t sum = look->sums.spill.live_bytes;
  for (size_t i = 0; i < look->sums.size; i++)
    if (look->sums.row[i].key) sum += look->sums.row[i].live_bytes;
  return sum;
}

static void put_answer(const pages *p, lm_json *out) {
  pages_sum all = { 0 };
  for (uint32_t i = 0; i < p->groups; i++) add_sum(&all, &p->group[i].sum);
  lm_json_open(out, NULL, '{');
  lm_json_int(out, "pid", p->look->remote.pid);
  lm_json_uint(out, "generation", p->look->generation);
  lm_json_uint(out, "slot_bytes", LM_SLOT);
  lm_json_uint(out, "cell_bytes", (uint64_t)p->cell_slots << LM_SLOT_SHIFT);
  lm_json_uint(out, "node_step", p->node_step);
  put_sum_json(out, &all);
  lm_json_uint(out, "map_bytes", (uint64_t)p->end * sizeof(lm_span));
  lm_json_uint(out, "provided_bytes", provided_bytes(p->look));
  lm_json_open(out, "groups", '[');
  for (uint32_t rank = 0; rank < RANKS_ALL; rank++)
    for (uint32_t node = 0; node <= LM_NODES_MAX; node++)
      if (p->group_at[rank][node]) put_group(p, out, p->group_at[rank][node] - 1);
  lm_json_close(out, ']');
  put_largest(p, out);
  if (p->scan.is_old) lm_json_bool(out, "huge_by_mapping", true);
  if (p->look->is_inexact) lm_json_bool(out, "inexact", true);
  lm_json_close(out, '}');
}

/* Tells whether the copies have all strategies that slots name: they may have been copied again. */
static bool has_strategies(const pages *p) {
  for (uint32_t i = 0; i < p->last; i++)
    if (p->slot[i].strategy >= p->look->strategies) return false;
  for (size_t i = 0; i < LARGEST; i++)
    if (p->largest[i].strategy >= p->look->strategies) return false;
  return true;
}

static loam_status read_all(pages *p) {
  lm_look *look = p->look;
  p->end = (uint32_t)(atomic_load_explicit(&look->map.top, memory_order_relaxed) >> LM_SLOT_SHIFT);
  p->slot = lm_metadata_alloc((p->end + 1) * sizeof *p->slot);
  if (!p->slot || !read_sets(p))
    return lm_error(LOAM_ENOMEM, "pages: no memory for %u slots", p->end);
  if (!lm_page_scan_open(&p->scan, &look->remote, look->map.base, p->end))
    return lm_look_fail(look, no_page_table);
  loam_status status = lm_look_extents(look, show, p);
  if (status == LOAM_OK && p->broken) status = lm_look_fail(look, p->broken);
  if (status == LOAM_OK) status = lm_look_provided(look);
  if (status == LOAM_OK) status = lm_look_sites(look);
  if (status == LOAM_OK && !has_strategies(p))
    status = lm_look_fail(look, "the table of strategies became shorter");
  if (status != LOAM_OK) return status;
  ask_nodes(p);
  uintptr_t base = look->map.base, end = base + ((uintptr_t)p->end << LM_SLOT_SHIFT);
  if (p->scan.is_old) (void)lm_smaps_read(&p->maps, look->remote.pid, base, end);
  return make_cells(p) ? LOAM_OK : lm_error(LOAM_ENOMEM, "pages: no memory for the cells");
}

static loam_status write_pages(lm_look *look, lm_json *out) {
  pages *p = lm_metadata_alloc(sizeof *p);
  if (!p) return lm_error(LOAM_ENOMEM, "pages: no memory to read a process");
  p->look = look;
  p->scan.pagemap = LM_DESCRIPTOR_NONE;
  loam_status status = read_all(p);
  if (status == LOAM_OK) put_answer(p, out);
  lm_page_scan_close(&p->scan);
  lm_smaps_finish(&p->maps);
  lm_metadata_free(p->slot);
  lm_metadata_free(p->set);
  lm_metadata_free(p->rank);
  lm_metadata_free(p->group);
  lm_metadata_free(p->cell);
  lm_metadata_free(p);
  return status;
}

loam_status lm_look_pages(int pid, lm_json *out) {
  lm_look look;
  loam_status status = lm_look_open(&look, pid);
  if (status != LOAM_OK) return status;
  status = write_pages(&look, out);
  lm_look_close(&look);
  return status;
}
