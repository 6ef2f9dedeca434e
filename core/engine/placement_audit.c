/* placement_audit.c - compares the placement that strategies ask for with the placement they got.
 *
 * The kernel tells the node of each page (move_pages without nodes moves nothing). At most
 * PAGES_MOST pages of a strategy are looked up: of each `step` pages one, chosen by a hash. Every
 * step-th page would not do: of pages that alternate over four nodes, every second lies on two of
 * them. smaps tells huge pages only for each mapping. All memory of one mapping was prepared alike,
 * so the huge pages of a mapping are divided evenly among the objects in it. */
#include "engine/placement_audit.h"

#include "engine/live_limits.h"
#include "engine/smaps.h"
#include "heap/pool.h"
#include "heap/strategy.h"
#include "heap/walk.h"
#include "os/error.h"
#include "os/hash.h"
#include "pages/metadata.h"
#include "plan/site.h"

enum { PAGES_MOST = 16384, BATCH = 256 };

/* The findings about the strategies of one family, with all of their shares. */
typedef struct row {
  const lm_strategy *strategy; /* the newest member of interest */
  uint64_t pages;              /* of its live blocks */
  uint64_t step;               /* of as many pages one is looked at */
  uint64_t looked, next;       /* pages that were looked at, and pages before the next one */
  uint64_t small;              /* bytes on small pages that were to be on huge ones */
  loam_got got;
} row;

typedef struct look {
  const lm_audit_subject *of;
  uint32_t strategies, rows;
  uint32_t *row_of; /* by the id of a strategy: the row of its family; UINT32_MAX: none */
  row *row;
  uintptr_t last; /* page that was counted last: objects come in order, several on a page */
  size_t n;       /* pages of the batch */
  void *page[BATCH];
  uint32_t whose[BATCH];
  uint64_t wanted[BATCH]; /* nodes */
  lm_smaps maps;
} look;

/* ---- The placement that strategies ask for */

static bool asks_nodes(const lm_desc *d) { return d->placement.mode != LM_BIND_DEFAULT; }
static bool asks_huge(const lm_desc *d) { return d->huge == LM_HUGE_THP; }

/* With huge = false a program may still advise huge pages for the memory that it got, as NumPy
 * does. */
static bool has_wish_for_huge(const lm_desc *d) { return asks_huge(d) || d->huge == LM_HUGE_NEVER; }

static bool is_of_interest(const lm_strategy *s) {
  if (s->whole != s) return false;
  bool told = atomic_load_explicit(&s->failed, memory_order_relaxed) ||
              atomic_load_explicit(&s->served_late, memory_order_relaxed);
  return told ||
         (s->desc.kind == LM_KIND_HOST && (asks_nodes(&s->desc) || has_wish_for_huge(&s->desc)));
}

/* Adds the requests that a member of a row's family could not serve, or served late. */
static void add_failures(loam_got *got, const lm_strategy *s) {
  got->failed += atomic_load_explicit(&s->failed, memory_order_relaxed);
  got->at_limit += atomic_load_explicit(&s->at_limit, memory_order_relaxed);
  got->served_late += atomic_load_explicit(&s->served_late, memory_order_relaxed);
}

static const lm_strategy *strategy_at(const look *l, uint32_t id) {
  return l->of->strategy(l->of->ctx, id);
}

/* Makes a row for each family with a member of interest. More members may be of interest than were
 * counted, because other threads go on; there is then no row for the last ones. */
static void fill_rows(look *l, uint32_t most) {
  for (uint32_t id = 0; id < l->strategies; id++) {
    const lm_strategy *s = strategy_at(l, id);
    uint32_t *at = &l->row_of[s->family->id];
    if (!is_of_interest(s) || (*at == UINT32_MAX && l->rows == most)) continue;
    if (*at == UINT32_MAX) *at = l->rows++;
    l->row[*at].strategy = s;
    add_failures(&l->row[*at].got, s);
  }
  for (uint32_t id = 0; id < l->strategies; id++)
    l->row_of[id] = l->row_of[strategy_at(l, id)->family->id];
}

static bool open_rows(look *l) {
  l->strategies = l->of->strategies;
  for (uint32_t id = 0; id < l->strategies; id++) l->rows += is_of_interest(strategy_at(l, id));
  l->row_of = lm_metadata_alloc(l->strategies * sizeof *l->row_of);
  l->row = lm_metadata_alloc((l->rows + 1) * sizeof *l->row);
  if (!l->row_of || !l->row) return false;
  uint32_t most = l->rows;
  l->rows = 0;
  for (uint32_t id = 0; id < l->strategies; id++) l->row_of[id] = UINT32_MAX;
  fill_rows(l, most);
  return true;
}

static row *row_of(look *l, const lm_object *object) {
  if (object->strategy >= l->strategies) return NULL;
  uint32_t at = l->row_of[object->strategy];
  return at == UINT32_MAX ? NULL : &l->row[at];
}

/* Returns the nodes that are right for a page of a strategy: each node, if the strategy names
 * none. */
static uint64_t nodes_wanted(const lm_strategy *s) {
  const lm_placement *p = &s->desc.placement;
  return p->nodes ? p->nodes : UINT64_MAX;
}

/* ---- Nodes */

static void note_page(row *r, int node, uint64_t wanted) {
  r->got.checked_bytes += LM_PAGE;
  if (node < 0 || node >= LM_NODES_MAX) {
    r->got.untouched_bytes += LM_PAGE;
    return;
  }
  r->got.node_bytes[node] += LM_PAGE;
  if (!(wanted >> node & 1)) r->got.elsewhere_bytes += LM_PAGE;
}

static void flush(look *l) {
  int status[BATCH];
  bool told = l->n && !lm_sys_pages_of(l->of->pid, l->page, status, l->n);
  for (size_t i = 0; i < l->n; i++) {
    row *r = &l->row[l->whose[i]];
    if (told) note_page(r, status[i], l->wanted[i]);
    else r->got.unknown_bytes += LM_PAGE;
  }
  l->n = 0;
}

static void add_page(look *l, row *r, uintptr_t page, uint64_t wanted) {
  l->page[l->n] = (void *)page;
  l->whose[l->n] = (uint32_t)(r - l->row);
  l->wanted[l->n] = wanted;
  if (++l->n == BATCH) flush(l);
}

/* Returns where the pages of an object begin, without a page that an object before it was counted
 * on. Sets *end to where they end. */
static uintptr_t first_page(look *l, const lm_object *object, uintptr_t *end) {
  uintptr_t from = lm_align_down((uintptr_t)object->base, LM_PAGE);
  *end = lm_align_up((uintptr_t)object->base + object->size, LM_PAGE);
  if (from == l->last) from += LM_PAGE;
  if (from < *end) l->last = *end - LM_PAGE;
  return from;
}

static void count_pages(void *ctx, const lm_object *object) {
  look *l = ctx;
  row *r = row_of(l, object);
  uintptr_t end;
  if (!r) return;
  uintptr_t from = first_page(l, object, &end);
  if (from < end) r->pages += (end - from) / LM_PAGE;
}

/* Returns which page of the n-th run of `step` pages is looked at. */
static uint64_t chosen_page(const row *r, uint64_t n) {
  return lm_hash_below(n, (uint32_t)r->step);
}

/* Notes that a page was looked at, and chooses the next one. */
static void choose_next(row *r) {
  uint64_t n = r->looked++;
  r->next = r->step - chosen_page(r, n) + chosen_page(r, n + 1);
}

static void look_at_pages(void *ctx, const lm_object *object) {
  look *l = ctx;
  row *r = row_of(l, object);
  uintptr_t end;
  if (!r || !asks_nodes(&r->strategy->desc)) return;
  uintptr_t from = first_page(l, object, &end);
  for (; from < end; from += LM_PAGE, r->next--) {
    if (r->next > 0) continue;
    add_page(l, r, from, nodes_wanted(strategy_at(l, object->strategy)));
    choose_next(r);
  }
}

/* ---- Huge pages */

static void look_at_huge(void *ctx, const lm_object *object) {
  look *l = ctx;
  row *r = row_of(l, object);
  uintptr_t end;
  if (!r || !has_wish_for_huge(&r->strategy->desc)) return;
  uintptr_t from = first_page(l, object, &end);
  if (from >= end) return;
  if (asks_huge(&r->strategy->desc)) r->got.huge_asked_bytes += end - from;
  const lm_smaps_mapping *m = lm_smaps_behind(&l->maps, from);
  for (; m < lm_smaps_end(&l->maps) && m->from < end; m++) {
    uintptr_t a = m->from > from ? m->from : from, b = m->to < end ? m->to : end;
    double part = (double)(b - a), share = (double)m->huge / (double)m->resident;
    r->got.huge_bytes += (uint64_t)(part * (share < 1 ? share : 1));
    if (share < 1 && asks_huge(&r->strategy->desc))
      r->small += (uint64_t)(part * (1 - share) * (double)m->resident / (double)(m->to - m->from));
  }
}

static bool has_huge(const look *l) {
  for (uint32_t i = 0; i < l->rows; i++)
    if (has_wish_for_huge(&l->row[i].strategy->desc) && l->row[i].pages) return true;
  return false;
}

/* ---- Telling */

static void choose_steps(look *l) {
  for (uint32_t i = 0; i < l->rows; i++) {
    row *r = &l->row[i];
    r->step = (r->pages + PAGES_MOST - 1) / PAGES_MOST;
    if (!r->step) r->step = 1;
    r->next = chosen_page(r, 0);
  }
}

static bool wants(const void *to, uint32_t strategy) {
  const look *l = to;
  return strategy < l->strategies && l->row_of[strategy] != UINT32_MAX;
}

static void walk(look *l, void (*visit)(void *ctx, const lm_object *object)) {
  l->last = 0;
  l->of->walk(l->of->ctx, visit, wants, l);
}

/* A large block has small pages at its rim: less than half is no shortfall. */
static void tell_event(const row *r, uint64_t generation) {
  lm_strategy *s = lm_strategy_at(r->strategy->id);
  const loam_got *got = &r->got;
  if (got->elsewhere_bytes && lm_site_generation_first(&s->told_elsewhere))
    lm_error_event(LOAM_EVENT_SHORTFALL, generation, NULL,
                   "strategy '%s' has %llu of %llu bytes on nodes that it did not ask for",
                   s->desc.name, (unsigned long long)got->elsewhere_bytes,
                   (unsigned long long)got->checked_bytes);
  if (r->small > got->huge_bytes && lm_site_generation_first(&s->told_huge))
    lm_error_event(LOAM_EVENT_SHORTFALL, generation, NULL,
                   "strategy '%s' has %llu bytes on small pages that were to be on huge ones",
                   s->desc.name, (unsigned long long)r->small);
}

static void tell(const look *l, const row *r, loam_got_fn callback, void *ctx) {
  loam_got got = r->got;
  lm_limit_use use = l->of->limit(l->of->ctx, r->strategy);
  got.strategy = r->strategy->desc.name;
  got.limit = use.limit;
  got.limit_used = use.used;
  got.live_bytes = r->pages * LM_PAGE;
  if (asks_huge(&r->strategy->desc) && got.huge_bytes > got.huge_asked_bytes)
    got.huge_bytes = got.huge_asked_bytes;
  callback(ctx, &got);
}

static bool has_nodes(const look *l) {
  for (uint32_t i = 0; i < l->rows; i++)
    if (asks_nodes(&l->row[i].strategy->desc) && l->row[i].pages) return true;
  return false;
}

static void find_out(look *l) {
  if (!l->rows) return;
  walk(l, count_pages);
  choose_steps(l);
  if (has_nodes(l)) walk(l, look_at_pages);
  flush(l);
  if (!has_huge(l)) return;
  if (!lm_smaps_read(&l->maps, l->of->pid, l->of->from, l->of->to)) return;
  walk(l, look_at_huge);
}

/* Finds out about a process, and tells the events of the calling process if `has_events`. */
static loam_status examine(const lm_audit_subject *subject, bool has_events, loam_got_fn callback,
                           void *ctx) {
  look *l = lm_metadata_alloc(sizeof *l);
  if (l) l->of = subject;
  bool whole = l && open_rows(l);
  if (whole) find_out(l);
  uint64_t generation = atomic_load(&lm_site_generation);
  for (uint32_t i = 0; whole && has_events && i < l->rows; i++) tell_event(&l->row[i], generation);
  for (uint32_t i = 0; whole && i < l->rows; i++) tell(l, &l->row[i], callback, ctx);
  if (l) {
    lm_smaps_finish(&l->maps);
    lm_metadata_free(l->row);
    lm_metadata_free(l->row_of);
  }
  lm_metadata_free(l);
  return whole ? LOAM_OK : lm_error(LOAM_ENOMEM, "no memory to look at what strategies got");
}

loam_status lm_placement_audit_of(const lm_audit_subject *subject, loam_got_fn callback,
                                  void *ctx) {
  return examine(subject, false, callback, ctx);
}

/* ---- The calling process */

static const lm_strategy *own_strategy(void *ctx, uint32_t id) {
  (void)ctx;
  return lm_strategy_at(id);
}

static void walk_own(void *ctx, lm_walk_visit *visit, lm_audit_wants *is_wanted, void *to) {
  (void)ctx;
  (void)is_wanted;
  lm_walk_each(visit, to);
}

static lm_limit_use own_limit(void *ctx, const lm_strategy *s) {
  return lm_live_limits_of(ctx, s->id);
}

loam_status lm_placement_audit_each(loam_got_fn callback, void *ctx) {
  lm_live_limits limits;
  lm_live_limits_read(&limits);
  lm_audit_subject own = {
    .from = lm_map.base,
    .to = lm_map.base + atomic_load_explicit(&lm_map.top, memory_order_acquire),
    .strategies = lm_strategy_count(),
    .strategy = own_strategy,
    .walk = walk_own,
    .limit = own_limit,
    .ctx = &limits,
  };
  loam_status status = examine(&own, true, callback, ctx);
  lm_live_limits_finish(&limits);
  return status;
}
