/* numa_bind.c - on which NUMA nodes the pages of a range are: binding, and moving pages in use.
 *
 * The kernel's weighted mode has one set of weights for the machine. loam puts the weights of
 * strategies into effect by itself: the address space is cut into cells, and cell k goes to the
 * node whose turn is number k in a smooth weighted round robin. So the proportions hold within a
 * large range and also over many small ranges. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "os/numa.h"

enum { PATH_SIZE = 256 };

static const char weights[] = "/sys/kernel/mm/mempolicy/weighted_interleave";

/* ---- Weighted ranges */

/* A range has at most so many cells, and one more if it begins inside a cell: a process may have
 * only 65,530 mappings. */
enum { CELLS_MAX = 64 };

/* Returns 64 KiB (2 MiB for huge pages), doubled until CELLS_MAX cells cover the range. */
static size_t choose_cell(size_t size, const lm_placement *placement) {
  size_t unit = placement->huge ? 2 * LM_MIB : 64 * LM_KIB;
  while (unit * CELLS_MAX < size) unit *= 2;
  return unit;
}

/* Returns the node whose turn is next: each node gets its weight as credit, and the node with the
 * most credit pays the sum of the weights. */
static unsigned next_turn(lm_numa_stripes *runs) {
  unsigned best = 0;
  for (unsigned i = 0; i < LM_NODES_MAX; i++) {
    runs->credit[i] += runs->placement->weight[i];
    if (runs->credit[i] > runs->credit[best]) best = i;
  }
  runs->credit[best] -= runs->sum;
  return best;
}

bool lm_numa_stripes_is_valid(const lm_numa_stripes *runs) {
  int credits = 0, sum = 0;
  for (unsigned i = 0; i < LM_NODES_MAX; i++) {
    credits += runs->credit[i];
    sum += runs->placement->weight[i];
  }
  bool is_inside = runs->at <= runs->end || runs->at - runs->end < runs->cell;
  return credits == 0 && sum == runs->sum && runs->cell && is_inside && runs->node < LM_NODES_MAX;
}

/* The turns repeat after `sum` cells, so at most `sum` turns are skipped to reach the first
 * cell. */
bool lm_numa_stripes_start(lm_numa_stripes *runs, const void *at, size_t size, size_t cell,
                           const lm_placement *placement) {
  uintptr_t from = (uintptr_t)at;
  lm_assert(!cell || lm_is_pow2(cell));
  *runs = (lm_numa_stripes){ .placement = placement, .at = from, .end = from + size, .cell = cell };
  if (!cell) runs->cell = choose_cell(size, placement);
  for (unsigned i = 0; i < LM_NODES_MAX; i++) runs->sum += placement->weight[i];
  if (runs->sum == 0) return false;
  size_t skipped = from / runs->cell % (size_t)runs->sum;
  while (skipped-- > 0) (void)next_turn(runs);
  runs->node = next_turn(runs);
  lm_verify(lm_numa_stripes_is_valid(runs));
  return true;
}

bool lm_numa_stripes_next(lm_numa_stripes *runs, lm_numa_stripe *out) {
  if (runs->at >= runs->end) return false;
  *out = (lm_numa_stripe){ .from = runs->at, .node = runs->node };
  do {
    runs->at = lm_align_down(runs->at, runs->cell) + runs->cell;
    runs->node = next_turn(runs);
  } while (runs->at < runs->end && runs->node == out->node);
  out->to = runs->at < runs->end ? runs->at : runs->end;
  lm_assert(out->from < out->to);
  lm_verify(lm_numa_stripes_is_valid(runs));
  return true;
}

/* ---- Binding */

/* Binds a range to a node that is only preferred. If that node has gone, this is no error: other
 * nodes serve the range, as they do for a full node. */
static int bind_preferring(void *at, size_t size, int mode, const uint64_t *mask) {
  lm_assert(mask && *mask);
  int error = lm_sys_bind(at, size, mode, mask);
  if (error != EINVAL) return error;
  lm_numa_refresh();
  return lm_numa_has((unsigned)__builtin_ctzll(*mask)) ? error : 0;
}

/* lm_sys_bind, lm_sys_rebind or bind_preferring. */
typedef int bind_fn(void *at, size_t size, int mode, const uint64_t *mask);

/* Makes each stripe of the range prefer its node. A node is preferred, not required, as the
 * kernel's interleaving does it. */
static int bind_cells(bind_fn *bind, void *at, size_t size, size_t cell,
                      const lm_placement *placement) {
  lm_numa_stripes runs;
  lm_numa_stripe run;
  if (!lm_numa_stripes_start(&runs, at, size, cell, placement)) return EINVAL;
  while (lm_numa_stripes_next(&runs, &run)) {
    uint64_t mask = (uint64_t)1 << run.node;
    int error = bind((void *)run.from, run.to - run.from, LM_BIND_PREFERRED, &mask);
    if (error) return error;
  }
  return 0;
}

/* Returns whether the weights of the machine have the proportions of the placement's weights. The
 * kernel has one set of weights for the machine. The files are read each time, because an
 * administrator may change them; ranges that use the kernel's mode then follow the new weights. */
static bool machine_has_weights(const lm_placement *placement) {
  unsigned long theirs = 0, ours = 0; /* of the first node: the machine's weight and ours */
  for (uint64_t left = placement->nodes; left; left &= left - 1) {
    unsigned node = (unsigned)__builtin_ctzll(left);
    char path[PATH_SIZE], text[32];
    size_t length;
    snprintf(path, sizeof path, "%s/node%u", weights, node);
    if (lm_sys_read_file(path, text, sizeof text, &length)) return false;
    unsigned long weight = strtoul(text, NULL, 10);
    if (!ours) {
      theirs = weight;
      ours = placement->weight[node];
    }
    if (!weight || weight * ours != placement->weight[node] * theirs) return false;
  }
  return ours;
}

static int bind_all_cells(bind_fn *bind, void *at, size_t size, const lm_placement *placement) {
  int error = bind_cells(bind, at, size, 0, placement);
  /* EINVAL: the range may have pages of 1 GiB, which smaller cells would cut. */
  if (error == EINVAL && ((uintptr_t)at | size) % LM_GIB == 0)
    error = bind_cells(bind, at, size, LM_GIB, placement);
  return error;
}

static int bind_weighted(void *at, size_t size, const lm_placement *placement) {
  if (machine_has_weights(placement) && !lm_sys_bind(at, size, LM_BIND_WEIGHTED, &placement->nodes))
    return 0;
  return bind_all_cells(bind_preferring, at, size, placement);
}

int lm_numa_bind(void *at, size_t size, const lm_placement *placement) {
  lm_assert((uintptr_t)at % LM_PAGE == 0 && placement);
  switch (placement->mode) {
    case LM_BIND_DEFAULT: return 0;
    case LM_BIND_LOCAL:
      if (placement->nodes) return bind_preferring(at, size, LM_BIND_PREFERRED, &placement->nodes);
      return lm_sys_bind(at, size, LM_BIND_LOCAL, NULL);
    case LM_BIND_PREFERRED: return bind_preferring(at, size, placement->mode, &placement->nodes);
    case LM_BIND_WEIGHTED: return bind_weighted(at, size, placement);
    default: return lm_sys_bind(at, size, placement->mode, &placement->nodes);
  }
}

/* ---- Memory in use */

/* BATCH pages are moved by one system call. lm_numa_spilled looks at about SAMPLE pages at most. */
enum { BATCH = 256, SAMPLE = 1024 };

/* Returns node number n of a mask, counted from 0. */
static unsigned nth_node(uint64_t mask, size_t n) {
  lm_assert(n < (size_t)__builtin_popcountll(mask));
  while (n-- > 0) mask &= mask - 1;
  return (unsigned)__builtin_ctzll(mask);
}

/* Moves piece k of the address space to node number k of the mask, modulo the number of nodes, as
 * the kernel interleaves. The kernel itself would leave a page on any of the nodes alone, so the
 * pages are moved one by one. */
static int interleave_pages(uintptr_t at, size_t size, uint64_t nodes, size_t unit) {
  void *page[BATCH];
  int node[BATCH], status[BATCH];
  size_t all = (size_t)__builtin_popcountll(nodes);
  for (uintptr_t end = at + size; at < end;) {
    size_t n = 0;
    for (; n < BATCH && at < end; n++, at += LM_PAGE) {
      page[n] = (void *)at;
      node[n] = (int)nth_node(nodes, at / unit % all);
    }
    int error = lm_sys_move_pages(page, node, status, n);
    if (error) return error;
  }
  return 0;
}

/* Tests first whether the process may move pages. If it may not, nothing changes. */
static int rebind_interleaved(void *at, size_t size, const lm_placement *placement, size_t unit) {
  int error = lm_sys_move_pages(NULL, NULL, NULL, 0);
  if (error == EPERM || error == ENOSYS) return error;
  error = lm_sys_bind(at, size, placement->mode, &placement->nodes);
  return error ? error : interleave_pages((uintptr_t)at, size, placement->nodes, unit);
}

int lm_numa_rebind(void *at, size_t size, const lm_placement *placement, size_t unit) {
  lm_assert((uintptr_t)at % LM_PAGE == 0 && (placement->mode != LM_BIND_INTERLEAVE || unit));
  switch (placement->mode) {
    case LM_BIND_DEFAULT: return lm_sys_bind(at, size, LM_BIND_DEFAULT, NULL);
    case LM_BIND_LOCAL:
      if (placement->nodes) return lm_sys_rebind(at, size, LM_BIND_PREFERRED, &placement->nodes);
      return lm_sys_bind(at, size, LM_BIND_LOCAL, NULL);
    case LM_BIND_WEIGHTED: return bind_all_cells(lm_sys_rebind, at, size, placement);
    case LM_BIND_INTERLEAVE: return rebind_interleaved(at, size, placement, unit);
    default: return lm_sys_rebind(at, size, placement->mode, &placement->nodes);
  }
}

/* The right nodes of each page of a range, as lm_numa_rebind places them. Pages are looked up in
 * the order of their addresses. */
typedef struct targets {
  const lm_placement *placement;
  size_t unit;
  lm_numa_stripes runs;
  lm_numa_stripe run;
} targets;

static void begin_targets(targets *t, const void *at, size_t size, const lm_placement *placement,
                          size_t unit) {
  *t = (targets){ .placement = placement, .unit = unit };
  if (placement->mode == LM_BIND_WEIGHTED)
    (void)lm_numa_stripes_start(&t->runs, at, size, 0, placement);
}

/* Returns the mask of a page's right nodes; 0: no node is right. */
static uint64_t target_of(targets *t, uintptr_t page) {
  uint64_t nodes = t->placement->nodes;
  if (t->placement->mode == LM_BIND_INTERLEAVE)
    return 1ull << nth_node(nodes, page / t->unit % (size_t)__builtin_popcountll(nodes));
  if (t->placement->mode != LM_BIND_WEIGHTED) return nodes;
  while (page >= t->run.to && lm_numa_stripes_next(&t->runs, &t->run)) continue;
  return 1ull << t->run.node;
}

/* Tries once more to move a page that is on a wrong node. Returns 0 if the page is there now, since
 * a node that was full may have room again; else the kernel's reason. */
static int move_again(void *page, uint64_t nodes) {
  int node = __builtin_ctzll(nodes), status = -EBUSY; /* the kernel may not set it */
  int error = lm_sys_move_pages(&page, &node, &status, 1);
  if (!error && status == node) return 0;
  if (error == EACCES || error == ENODEV) return EINVAL; /* not in the cpuset; without memory */
  if (!error && status < 0) error = -status;
  return error == ENOMEM ? ENOSPC : error == EACCES ? EACCES : EBUSY;
}

/* Returns how many of n pages are on a wrong node. If `why` is not NULL and *why is 0, tries such
 * pages once more, until one of them cannot be moved; *why is the reason for that page. */
static size_t count_misplaced(void *const *page, const uint64_t *right, size_t n, int *why) {
  int status[BATCH];
  size_t count = 0;
  if (lm_sys_move_pages(page, NULL, status, n)) return 0;
  for (size_t i = 0; i < n; i++) {
    if (status[i] < 0 || status[i] >= LM_NODES_MAX || right[i] >> status[i] & 1) continue;
    bool is_tried = why && !*why;
    if (is_tried) *why = move_again(page[i], right[i]);
    if (!is_tried || *why) count++;
  }
  return count;
}

/* Looks at one page in each `step` bytes of the range, and returns the bytes that the pages on a
 * wrong node stand for. */
static size_t count_range(const void *at, size_t size, size_t step, targets *t, int *why) {
  void *page[BATCH];
  uint64_t right[BATCH];
  size_t count = 0, n = 0;
  lm_assert(step && step % LM_PAGE == 0);
  for (uintptr_t p = (uintptr_t)at, end = p + size; p < end; p += step) {
    right[n] = target_of(t, p);
    page[n++] = (void *)p;
    if (n < BATCH && p + step < end) continue;
    count += count_misplaced(page, right, n, why);
    n = 0;
  }
  return count * step;
}

size_t lm_numa_misplaced(const void *at, size_t size, const lm_placement *placement, size_t unit,
                         int *why) {
  targets t;
  lm_assert(why && unit);
  *why = 0;
  if (!placement->nodes) return 0;
  begin_targets(&t, at, size, placement, unit);
  return count_range(at, size, LM_PAGE, &t, why);
}

size_t lm_numa_resident(const void *at, size_t size) {
  static const lm_placement nowhere;
  targets t;
  begin_targets(&t, at, size, &nowhere, LM_PAGE);
  return count_range(at, size, LM_PAGE, &t, NULL);
}

size_t lm_numa_spilled(const void *at, size_t size, const lm_placement *placement) {
  lm_placement any = { .mode = LM_BIND_BIND, .nodes = placement->nodes };
  size_t step = lm_align_up(size / SAMPLE + 1, LM_PAGE);
  targets t;
  begin_targets(&t, at, size, &any, LM_PAGE);
  return count_range(at, size, step, &t, NULL);
}

/* Moves to the front of `page` the pages that are on no node of `nodes`, and returns how many these
 * are. */
static size_t pick_spilled(void **page, size_t n, uint64_t nodes) {
  int status[BATCH];
  size_t found = 0;
  if (lm_sys_move_pages(page, NULL, status, n)) return 0;
  for (size_t i = 0; i < n; i++)
    if (status[i] >= 0 && status[i] < LM_NODES_MAX && !(nodes >> status[i] & 1))
      page[found++] = page[i];
  return found;
}

/* Moves n pages to their right nodes and returns how many arrived. Sets *why, if it is 0, to the
 * reason for the first page that did not. */
static size_t fetch_pages(void **page, size_t n, targets *t, int *why) {
  int node[BATCH], status[BATCH];
  uint64_t nodes = t->placement->nodes;
  lm_assert(n <= BATCH && nodes);
  for (size_t i = 0; i < n; i++) {
    uint64_t right = target_of(t, (uintptr_t)page[i]);
    node[i] = (int)nth_node(right,
                            (uintptr_t)page[i] / t->unit % (size_t)__builtin_popcountll(right));
  }
  int error = lm_sys_move_pages(page, node, status, n);
  size_t left = pick_spilled(page, n, nodes);
  if (left && !*why && (error == EPERM || error == ENOSYS)) *why = error;
  while (left && !*why) {
    *why = move_again(page[left - 1], nodes);
    if (!*why) left--;
  }
  return n - left;
}

lm_numa_fetched lm_numa_fetch(void *at, size_t size, const lm_placement *placement, size_t unit) {
  targets t;
  void *page[BATCH];
  lm_numa_fetched done = { 0 };
  lm_assert(placement->nodes && unit);
  begin_targets(&t, at, size, placement, unit);
  for (uintptr_t p = (uintptr_t)at, end = p + size; p < end;) {
    size_t n = 0;
    for (; n < BATCH && p < end; p += LM_PAGE) page[n++] = (void *)p;
    size_t spilled = pick_spilled(page, n, placement->nodes);
    size_t some = spilled ? fetch_pages(page, spilled, &t, &done.why) : 0;
    done.came += some * LM_PAGE;
    done.left += (spilled - some) * LM_PAGE;
  }
  return done;
}

int lm_numa_of(const void *at) {
  void *page = (void *)lm_align_down((uintptr_t)at, LM_PAGE);
  int status = -1;
  return lm_sys_move_pages(&page, NULL, &status, 1) || status < 0 ? -1 : status;
}
