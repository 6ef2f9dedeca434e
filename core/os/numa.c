/* numa.c - NUMA nodes, read from sysfs once; free memory, read again when it is old, by the
 * service thread while it is asked for. */
#include "os/numa.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/decay.h"
#include "os/thread.h"

enum {
  FREE_MAX_AGE_NS = 90000000, /* by the coarse clock, which is some milliseconds late */
  PATH_SIZE = 256,
  DISTANCE_SELF = 10,
  DISTANCE_OTHER = 20,
  FILE_SIZE = 1024 /* of the longer files, as much as has what is asked for */
};

/* Free memory of a node is kept by the service thread while somebody reads it. */
enum { KEEP_NS = LM_NUMA_REFRESH_MS * 1000000 };

/* Written once under the lock, before `ready`. */
static LM_SPARSE struct {
  lm_lock lock;
  _Atomic bool ready; /* release when the rest is written; pairs with the acquire in get_ready */
  _Atomic uint64_t online; /* with or without memory: where a CPU can be */
  _Atomic uint64_t others; /* with memory that this process may not use */
  _Atomic uint64_t nodes;  /* these change as nodes come and go; each is right by itself */
  uint64_t cpus;           /* nodes that have some */
  uint64_t total[LM_NODES_MAX];
  uint8_t distance[LM_NODES_MAX][LM_NODES_MAX];
} machine;

LM_SPARSE lm_numa_gauge lm_numa_gauges[LM_NODES_MAX];
_Atomic int lm_numa_only_node = LM_NUMA_UNREAD;

static _Atomic bool wanted; /* somebody reads a gauge: the service thread is to keep it */

static const char *root = "/sys/devices/system/node";
static const char weights[] = "/sys/kernel/mm/mempolicy/weighted_interleave";

static uint64_t online_now(void) {
  return atomic_load_explicit(&machine.online, memory_order_relaxed);
}

static uint64_t nodes_now(void) {
  return atomic_load_explicit(&machine.nodes, memory_order_relaxed);
}

/* ---- Reading sysfs */

static bool read_text(char *buffer, const char *name) {
  char path[PATH_SIZE];
  size_t length;
  int n = snprintf(path, sizeof path, "%s/%s", root, name);
  return n < PATH_SIZE && lm_sys_read_file(path, buffer, FILE_SIZE, &length) == 0;
}

static uint64_t bits_from(unsigned long first, unsigned long last) {
  uint64_t mask = 0;
  for (unsigned long i = first; i <= last && i < LM_NODES_MAX; i++) mask |= (uint64_t)1 << i;
  return mask;
}

/* The kernel's lists: "0-1,3". Nodes from LM_NODES_MAX on are left out. */
static uint64_t parse_list(const char *text) {
  uint64_t mask = 0;
  char *end;
  for (;; text = end + 1) {
    unsigned long first = strtoul(text, &end, 10), last = first;
    if (end == text) return mask;
    if (*end == '-') last = strtoul(end + 1, &end, 10);
    mask |= bits_from(first, last);
    if (*end != ',') return mask;
  }
}

static uint64_t read_list(const char *name, uint64_t otherwise) {
  char text[FILE_SIZE];
  return read_text(text, name) ? parse_list(text) : otherwise;
}

/* "Node 0 MemFree:  1234 kB" */
static uint64_t parse_field(const char *text, const char *field) {
  const char *at = strstr(text, field);
  return at ? strtoull(at + strlen(field), NULL, 10) * LM_KIB : 0;
}

/* A machine without /sys has the one node that sysinfo(2) tells of. */
static void read_memory(unsigned node, uint64_t *total, uint64_t *free) {
  char name[32], text[FILE_SIZE];
  snprintf(name, sizeof name, "node%u/meminfo", node);
  *total = *free = 0;
  if (read_text(text, name)) {
    *total = parse_field(text, "MemTotal:");
    *free = parse_field(text, "MemFree:");
  } else if (node == 0) {
    (void)lm_sys_memory(total, free);
  }
}

/* A line of numbers, one for each node that is online, in order. */
static void read_distances(unsigned from) {
  char name[32], text[FILE_SIZE];
  for (unsigned to = 0; to < LM_NODES_MAX; to++)
    machine.distance[from][to] = to == from ? DISTANCE_SELF : DISTANCE_OTHER;
  if (!(online_now() >> from & 1)) return;
  snprintf(name, sizeof name, "node%u/distance", from);
  if (!read_text(text, name)) return;
  char *at = text;
  for (uint64_t left = online_now(); left; left &= left - 1) {
    char *end;
    unsigned long distance = strtoul(at, &end, 10);
    if (end == at) return;
    if (distance <= UINT8_MAX) machine.distance[from][__builtin_ctzll(left)] = (uint8_t)distance;
    at = end;
  }
}

/* ---- The machine */

static void read_gauge(unsigned node, int64_t now) {
  lm_numa_gauge *g = &lm_numa_gauges[node];
  uint64_t free;
  read_memory(node, &machine.total[node], &free);
  atomic_store_explicit(&g->free, free, memory_order_relaxed);
  atomic_store_explicit(&g->read_at, now, memory_order_relaxed);
}

static uint64_t allowed_by_kernel(void) {
  uint64_t mask;
  return lm_sys_nodes_allowed(&mask) == 0 && mask ? mask : UINT64_MAX;
}

/* Where a file cannot be read, it is as it was. */
static void read_nodes_locked(uint64_t allowed, uint64_t online, uint64_t nodes) {
  online = read_list("online", online);
  uint64_t all = read_list("has_memory", nodes) & online;
  nodes = all & allowed;
  atomic_store_explicit(&machine.others, all & ~allowed, memory_order_relaxed);
  atomic_store_explicit(&machine.online, online, memory_order_relaxed);
  atomic_store_explicit(&lm_numa_only_node,
                        lm_is_pow2(online) ? __builtin_ctzll(online) : LM_NUMA_SEVERAL,
                        memory_order_relaxed);
  atomic_store_explicit(&machine.nodes, nodes ? nodes : 1, memory_order_relaxed);
}

/* For tests: what stands in place of the kernel's word on what is allowed; 0: nothing. */
static uint64_t pretended;

static void read_machine_locked(uint64_t allowed) {
  read_nodes_locked(allowed, 1, 1);
  machine.cpus = read_list("has_cpu", UINT64_MAX);
  int64_t now = lm_sys_coarse_ns();
  for (unsigned node = 0; node < LM_NODES_MAX; node++) {
    machine.total[node] = 0;
    read_distances(node);
    if (nodes_now() >> node & 1) read_gauge(node, now);
  }
  atomic_store_explicit(&machine.ready, true, memory_order_release);
}

static void get_ready(void) {
  if (lm_likely(atomic_load_explicit(&machine.ready, memory_order_acquire))) return;
  lm_thread_add_fork_lock(&machine.lock);
  lm_lock_take(&machine.lock);
  if (!atomic_load_explicit(&machine.ready, memory_order_relaxed))
    read_machine_locked(allowed_by_kernel());
  lm_lock_drop(&machine.lock);
}

#if LOAM_CHECKS >= 1
void lm_numa_pretend(const char *sysfs, uint64_t allowed) {
  lm_lock_take(&machine.lock);
  root = sysfs;
  pretended = allowed;
  read_machine_locked(allowed);
  lm_lock_drop(&machine.lock);
}
#endif

void lm_numa_refresh(void) {
  get_ready();
  lm_lock_take(&machine.lock);
  uint64_t before = nodes_now(), allowed = pretended ? pretended : allowed_by_kernel();
  read_nodes_locked(allowed, online_now(), before);
  for (uint64_t come = nodes_now() & ~before; come; come &= come - 1) {
    unsigned node = (unsigned)__builtin_ctzll(come);
    read_distances(node);
    read_gauge(node, lm_sys_clock_ns());
  }
  lm_lock_drop(&machine.lock);
}

uint64_t lm_numa_nodes(void) {
  get_ready();
  return nodes_now();
}

uint64_t lm_numa_others(void) {
  get_ready();
  return atomic_load_explicit(&machine.others, memory_order_relaxed);
}

bool lm_numa_has_cpus(unsigned node) {
  get_ready();
  return node < LM_NODES_MAX && machine.cpus >> node & 1;
}

bool lm_numa_has(unsigned node) { return node < LM_NODES_MAX && lm_numa_nodes() >> node & 1; }

unsigned lm_numa_distance(unsigned from, unsigned to) {
  get_ready();
  return from < LM_NODES_MAX && to < LM_NODES_MAX ? machine.distance[from][to] : DISTANCE_OTHER;
}

uint64_t lm_numa_total(unsigned node) { return lm_numa_has(node) ? machine.total[node] : 0; }

/* Whether it is old, and it is this thread that is to do something about it. Asked of the coarse
 * clock, which costs a fifth of the other and is within some milliseconds. */
static bool claim(lm_numa_gauge *g) {
  int64_t now = lm_sys_coarse_ns();
  int64_t then = atomic_load_explicit(&g->read_at, memory_order_relaxed);
  return now - then > FREE_MAX_AGE_NS &&
         atomic_compare_exchange_strong_explicit(&g->read_at, &then, now, memory_order_relaxed,
                                                 memory_order_relaxed);
}

/* Nobody keeps it: whoever finds it old reads the file. */
static void refresh(unsigned node, lm_numa_gauge *g) {
  if (!claim(g)) return;
  uint64_t total, free;
  read_memory(node, &total, &free);
  atomic_store_explicit(&g->free, free, memory_order_relaxed);
  atomic_store_explicit(&wanted, true, memory_order_relaxed);
  lm_decay_stir(); /* wakes the service thread, which keeps it from then on */
}

/* A node that went may be back. */
static uint64_t free_of_missing(unsigned node, lm_numa_gauge *g) {
  if (!claim(g)) return 0;
  lm_numa_refresh();
  return lm_numa_has(node) ? atomic_load_explicit(&g->free, memory_order_relaxed) : 0;
}

uint64_t lm_numa_free_slow(unsigned node) {
  if (node >= LM_NODES_MAX) return 0;
  lm_numa_gauge *g = &lm_numa_gauges[node];
  if (!lm_numa_has(node)) return free_of_missing(node, g);
  int64_t kept = atomic_load_explicit(&g->kept, memory_order_relaxed);
  if (kept < 0)
    atomic_compare_exchange_strong_explicit(&g->kept, &kept, -kept, memory_order_relaxed,
                                            memory_order_relaxed);
  if (kept) return (uint64_t)(kept < 0 ? -kept : kept) - 1;
  refresh(node, g);
  return atomic_load_explicit(&g->free, memory_order_relaxed);
}

bool lm_numa_free_is_wanted(void) { return atomic_load_explicit(&wanted, memory_order_relaxed); }

/* One that nobody read for a second is kept no more; nor is one whose file is gone. Sooner, and
 * what is asked now and then would mostly be found unkept. */
static bool keep(unsigned node, lm_numa_gauge *g, int64_t now) {
  int64_t kept = atomic_load_explicit(&g->kept, memory_order_relaxed), next = 0;
  bool is_recent = now - atomic_load_explicit(&g->read_at, memory_order_relaxed) < 2 * KEEP_NS;
  bool is_used = kept > 0 || (!kept && is_recent);
  g->unused = is_used ? 0 : g->unused + 1;
  if (is_used || (kept && g->unused < LM_NUMA_REFRESH_UNUSED)) {
    uint64_t total, free;
    read_memory(node, &total, &free);
    atomic_store_explicit(&g->free, free, memory_order_relaxed);
    atomic_store_explicit(&g->read_at, now, memory_order_relaxed);
    next = -(int64_t)free - 1;
  }
  atomic_store_explicit(&g->kept, next, memory_order_relaxed);
  return next;
}

void lm_numa_free_refresh(void) {
  bool any = false;
  int64_t now = lm_sys_coarse_ns();
  uint64_t nodes = lm_numa_nodes();
  for (unsigned node = 0; node < LM_NODES_MAX; node++) {
    lm_numa_gauge *g = &lm_numa_gauges[node];
    if (nodes >> node & 1) any = keep(node, g, now) || any;
    else atomic_store_explicit(&g->kept, 0, memory_order_relaxed); /* it went */
  }
  atomic_store_explicit(&wanted, any, memory_order_relaxed);
}

void lm_numa_free_pause(void) {
  for (unsigned node = 0; node < LM_NODES_MAX; node++)
    atomic_store_explicit(&lm_numa_gauges[node].kept, 0, memory_order_relaxed);
}

/* One that went is looked for again. */
static bool has_now(unsigned node) {
  if (!lm_numa_has(node)) lm_numa_refresh();
  return lm_numa_has(node);
}

uint64_t lm_numa_available(unsigned node) {
  char name[32], text[FILE_SIZE];
  if (!has_now(node)) return 0;
  snprintf(name, sizeof name, "node%u/meminfo", node);
  if (!read_text(text, name)) return UINT64_MAX / LM_NODES_MAX;
  uint64_t files = parse_field(text, "Active(file):") + parse_field(text, "Inactive(file):");
  return parse_field(text, "MemFree:") + files / 2;
}

unsigned lm_numa_here_slow(void) {
  get_ready();
  int place = atomic_load_explicit(&lm_numa_only_node, memory_order_relaxed);
  return place >= 0 ? (unsigned)place : lm_sys_node();
}

unsigned lm_numa_nearest(void) {
  unsigned here = lm_numa_here();
  if (lm_likely(lm_numa_has(here))) return here;
  uint64_t left = nodes_now();
  unsigned best = (unsigned)__builtin_ctzll(left);
  for (; left; left &= left - 1) {
    unsigned node = (unsigned)__builtin_ctzll(left);
    if (lm_numa_distance(here, node) < lm_numa_distance(here, best)) best = node;
  }
  return best;
}

static size_t add_run(char *buffer, size_t size, size_t used, unsigned first, unsigned last) {
  const char *comma = used ? "," : "";
  int n = first == last ? snprintf(buffer + used, size - used, "%s%u", comma, first)
                        : snprintf(buffer + used, size - used, "%s%u-%u", comma, first, last);
  used += (size_t)n;
  return used < size ? used : size - 1;
}

const char *lm_numa_text(uint64_t mask, char *buffer, size_t size) {
  size_t used = 0;
  buffer[0] = 0;
  for (unsigned i = 0; i < LM_NODES_MAX; i++) {
    if (!(mask >> i & 1)) continue;
    unsigned first = i;
    while (i + 1 < LM_NODES_MAX && mask >> (i + 1) & 1) i++;
    used = add_run(buffer, size, used, first, i);
  }
  return buffer;
}

const char *lm_numa_why_absent(double node, char *buffer, size_t size) {
  char text[256];
  uint64_t may = lm_numa_nodes(), others = lm_numa_others();
  bool is_there = node >= 0 && node < LM_NODES_MAX && others >> (unsigned)node & 1;
  uint64_t nodes = is_there ? may : others | may;
  snprintf(buffer, size, "%s %s %s", is_there ? "this process may use" : "this machine has",
           lm_is_pow2((size_t)nodes) ? "node" : "nodes", lm_numa_text(nodes, text, sizeof text));
  return buffer;
}

/* ---- Binding */

/* The kernel's own weighted mode has one set of weights for the whole machine, so those of other
 * strategies are put into effect here: the address space is cut into cells, and cell k goes to the
 * node whose turn is number k in a smooth weighted round robin (nginx's), so proportions hold
 * within a large range and over many small ones. A node is preferred, not demanded, as in
 * interleaving.
 *
 * Cells are a 64th of the range at least: a process may have only 65,530 mappings. They are
 * multiples of 2 MiB where they are to have huge pages. */
enum { CELLS_MAX = 64 };

static size_t choose_cell(size_t size, const lm_placement *placement) {
  size_t unit = placement->huge ? 2 * LM_MIB : 64 * LM_KIB;
  while (unit * CELLS_MAX < size) unit *= 2;
  return unit;
}

static unsigned next_turn(lm_numa_stripes *runs) {
  unsigned best = 0;
  for (unsigned i = 0; i < LM_NODES_MAX; i++) {
    runs->credit[i] += runs->placement->weight[i];
    if (runs->credit[i] > runs->credit[best]) best = i;
  }
  runs->credit[best] -= runs->sum;
  return best;
}

/* The turns repeat after `sum`, so those before the first cell's number are soon skipped. */
bool lm_numa_stripes_start(lm_numa_stripes *runs, const void *at, size_t size, size_t cell,
                           const lm_placement *placement) {
  uintptr_t from = (uintptr_t)at;
  *runs = (lm_numa_stripes){ .placement = placement, .at = from, .end = from + size, .cell = cell };
  if (!cell) runs->cell = choose_cell(size, placement);
  for (unsigned i = 0; i < LM_NODES_MAX; i++) runs->sum += placement->weight[i];
  if (runs->sum == 0) return false;
  size_t skipped = from / runs->cell % (size_t)runs->sum;
  while (skipped-- > 0) (void)next_turn(runs);
  runs->node = next_turn(runs);
  return true;
}

/* Cells of one node in a row are one run. */
bool lm_numa_stripes_next(lm_numa_stripes *runs, lm_numa_stripe *out) {
  if (runs->at >= runs->end) return false;
  *out = (lm_numa_stripe){ .from = runs->at, .node = runs->node };
  do {
    runs->at = lm_align_down(runs->at, runs->cell) + runs->cell;
    runs->node = next_turn(runs);
  } while (runs->at < runs->end && runs->node == out->node);
  out->to = runs->at < runs->end ? runs->at : runs->end;
  return true;
}

/* A node that went is as one that is full: where it is only preferred, others serve. */
static int bind_preferring(void *at, size_t size, int mode, const uint64_t *mask) {
  int error = lm_sys_bind(at, size, mode, mask);
  if (error != EINVAL) return error;
  lm_numa_refresh();
  return lm_numa_has((unsigned)__builtin_ctzll(*mask)) ? error : 0;
}

typedef int bind_fn(void *at, size_t size, int mode, const uint64_t *mask);

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

/* Whether the machine's weights are in the placement's proportions. Read each time: an
 * administrator may change them, and what is bound then follows. */
static bool has_weights(const lm_placement *placement) {
  unsigned long machines = 0, ours = 0;
  for (uint64_t left = placement->nodes; left; left &= left - 1) {
    unsigned node = (unsigned)__builtin_ctzll(left);
    char path[PATH_SIZE], text[32];
    size_t length;
    snprintf(path, sizeof path, "%s/node%u", weights, node);
    if (lm_sys_read_file(path, text, sizeof text, &length)) return false;
    unsigned long weight = strtoul(text, NULL, 10);
    if (!ours) {
      machines = weight;
      ours = placement->weight[node];
    }
    if (!weight || weight * ours != placement->weight[node] * machines) return false;
  }
  return ours;
}

static int bind_all_cells(bind_fn *bind, void *at, size_t size, const lm_placement *placement) {
  int error = bind_cells(bind, at, size, 0, placement);
  /* Pages of 1 GiB cannot be shared out in smaller cells. */
  if (error == EINVAL && ((uintptr_t)at | size) % LM_GIB == 0)
    error = bind_cells(bind, at, size, LM_GIB, placement);
  return error;
}

static int bind_weighted(void *at, size_t size, const lm_placement *placement) {
  if (has_weights(placement) && !lm_sys_bind(at, size, LM_BIND_WEIGHTED, &placement->nodes))
    return 0;
  return bind_all_cells(bind_preferring, at, size, placement);
}

int lm_numa_bind(void *at, size_t size, const lm_placement *placement) {
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

/* Pages that one call asks about or moves; that are looked at of a range, at most about. */
enum { PAGES = 256, SAMPLE = 1024 };

static unsigned nth_node(uint64_t mask, size_t n) {
  while (n-- > 0) mask &= mask - 1;
  return (unsigned)__builtin_ctzll(mask);
}

/* Piece k of the address space goes to the node whose turn it is, as the kernel has it; it lets a
 * page stay that is on any of the nodes, so the pages are moved one by one. */
static int spread(uintptr_t at, size_t size, uint64_t nodes, size_t unit) {
  void *page[PAGES];
  int node[PAGES], status[PAGES];
  size_t all = (size_t)__builtin_popcountll(nodes);
  for (uintptr_t end = at + size; at < end;) {
    size_t n = 0;
    for (; n < PAGES && at < end; n++, at += LM_PAGE) {
      page[n] = (void *)at;
      node[n] = (int)nth_node(nodes, at / unit % all);
    }
    int error = lm_sys_move_pages(page, node, status, n);
    if (error) return error;
  }
  return 0;
}

/* Whoever may not move pages changes nothing: that is asked first. */
static int rebind_interleaved(void *at, size_t size, const lm_placement *placement, size_t unit) {
  int error = lm_sys_move_pages(NULL, NULL, NULL, 0);
  if (error == EPERM || error == ENOSYS) return error;
  error = lm_sys_bind(at, size, placement->mode, &placement->nodes);
  return error ? error : spread((uintptr_t)at, size, placement->nodes, unit);
}

int lm_numa_rebind(void *at, size_t size, const lm_placement *placement, size_t unit) {
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

/* Which node each page of a range is to be on, as rebinding has it; asked in order. */
typedef struct turns {
  const lm_placement *placement;
  size_t unit;
  lm_numa_stripes runs;
  lm_numa_stripe run;
} turns;

static void begin_turns(turns *t, const void *at, size_t size, const lm_placement *placement,
                        size_t unit) {
  *t = (turns){ .placement = placement, .unit = unit };
  if (placement->mode == LM_BIND_WEIGHTED)
    (void)lm_numa_stripes_start(&t->runs, at, size, 0, placement);
}

/* A mask; 0: none is right. */
static uint64_t turn_of(turns *t, uintptr_t page) {
  uint64_t nodes = t->placement->nodes;
  if (t->placement->mode == LM_BIND_INTERLEAVE)
    return 1ull << nth_node(nodes, page / t->unit % (size_t)__builtin_popcountll(nodes));
  if (t->placement->mode != LM_BIND_WEIGHTED) return nodes;
  while (page >= t->run.to && lm_numa_stripes_next(&t->runs, &t->run)) continue;
  return 1ull << t->run.node;
}

/* A page that is elsewhere is tried once more, for the kernel to say why. */
static int why_astray(void *page, uint64_t nodes) {
  int node = __builtin_ctzll(nodes), status = 0;
  int error = lm_sys_move_pages(&page, &node, &status, 1);
  if (!error && status < 0) error = -status;
  return error == ENOMEM ? ENOSPC : error == EACCES ? EACCES : EBUSY;
}

static size_t count_astray(void *const *page, const uint64_t *right, size_t n, int *why) {
  int status[PAGES];
  size_t count = 0;
  if (lm_sys_move_pages(page, NULL, status, n)) return 0;
  for (size_t i = 0; i < n; i++) {
    if (status[i] < 0 || status[i] >= LM_NODES_MAX || right[i] >> status[i] & 1) continue;
    count++;
    if (why && !*why) *why = why_astray(page[i], right[i]);
  }
  return count;
}

/* Of every page that is `step` bytes from the one before. */
static size_t count_range(const void *at, size_t size, size_t step, turns *t, int *why) {
  void *page[PAGES];
  uint64_t right[PAGES];
  size_t count = 0, n = 0;
  for (uintptr_t p = (uintptr_t)at, end = p + size; p < end; p += step) {
    right[n] = turn_of(t, p);
    page[n++] = (void *)p;
    if (n < PAGES && p + step < end) continue;
    count += count_astray(page, right, n, why);
    n = 0;
  }
  return count * step;
}

size_t lm_numa_misplaced(const void *at, size_t size, const lm_placement *placement, size_t unit,
                         int *why) {
  turns t;
  *why = 0;
  if (!placement->nodes) return 0;
  begin_turns(&t, at, size, placement, unit);
  return count_range(at, size, LM_PAGE, &t, why);
}

size_t lm_numa_resident(const void *at, size_t size) {
  static const lm_placement nowhere;
  turns t;
  begin_turns(&t, at, size, &nowhere, LM_PAGE);
  return count_range(at, size, LM_PAGE, &t, NULL);
}

size_t lm_numa_spilled(const void *at, size_t size, const lm_placement *placement) {
  lm_placement any = { .mode = LM_BIND_BIND, .nodes = placement->nodes };
  size_t step = lm_align_up(size / SAMPLE + 1, LM_PAGE);
  turns t;
  begin_turns(&t, at, size, &any, LM_PAGE);
  return count_range(at, size, step, &t, NULL);
}

/* Of n pages those that are on no node of `nodes` are put first; how many. */
static size_t pick_spilled(void **page, size_t n, uint64_t nodes) {
  int status[PAGES];
  size_t found = 0;
  if (lm_sys_move_pages(page, NULL, status, n)) return 0;
  for (size_t i = 0; i < n; i++)
    if (status[i] >= 0 && status[i] < LM_NODES_MAX && !(nodes >> status[i] & 1))
      page[found++] = page[i];
  return found;
}

/* The number of them that came. */
static size_t fetch_pages(void **page, size_t n, turns *t, int *why) {
  int node[PAGES], status[PAGES];
  uint64_t nodes = t->placement->nodes;
  for (size_t i = 0; i < n; i++) {
    uint64_t right = turn_of(t, (uintptr_t)page[i]);
    node[i] = (int)nth_node(right,
                            (uintptr_t)page[i] / t->unit % (size_t)__builtin_popcountll(right));
  }
  int error = lm_sys_move_pages(page, node, status, n);
  size_t left = pick_spilled(page, n, nodes);
  if (left && !*why) *why = error == EPERM || error == ENOSYS ? error : why_astray(page[0], nodes);
  return n - left;
}

size_t lm_numa_fetch(void *at, size_t size, const lm_placement *placement, size_t unit,
                     size_t *left, int *why) {
  turns t;
  void *page[PAGES];
  size_t came = 0;
  *left = 0;
  *why = 0;
  begin_turns(&t, at, size, placement, unit);
  for (uintptr_t p = (uintptr_t)at, end = p + size; p < end;) {
    size_t n = 0;
    for (; n < PAGES && p < end; p += LM_PAGE) page[n++] = (void *)p;
    size_t spilled = pick_spilled(page, n, placement->nodes);
    size_t some = spilled ? fetch_pages(page, spilled, &t, why) : 0;
    came += some * LM_PAGE;
    *left += (spilled - some) * LM_PAGE;
  }
  return came;
}

/* By the distance from the node of the caller. */
int lm_numa_memory_only(void) {
  int best = -1;
  unsigned here = lm_numa_here();
  for (uint64_t left = lm_numa_nodes() & ~machine.cpus; left; left &= left - 1) {
    int node = __builtin_ctzll(left);
    if (best < 0 || lm_numa_distance(here, (unsigned)node) < lm_numa_distance(here, (unsigned)best))
      best = node;
  }
  return best;
}

int lm_numa_nearest_with_cpus(uint64_t nodes) {
  uint64_t left = lm_numa_nodes() & machine.cpus;
  if (!nodes || nodes & machine.cpus || !left) return -1;
  unsigned far = (unsigned)__builtin_ctzll(nodes), best = (unsigned)__builtin_ctzll(left);
  for (; left; left &= left - 1) {
    unsigned node = (unsigned)__builtin_ctzll(left);
    if (lm_numa_distance(far, node) < lm_numa_distance(far, best)) best = node;
  }
  return (int)best;
}

int lm_numa_of(const void *at) {
  void *page = (void *)lm_align_down((uintptr_t)at, LM_PAGE);
  int status = -1;
  return lm_sys_move_pages(&page, NULL, &status, 1) || status < 0 ? -1 : status;
}
