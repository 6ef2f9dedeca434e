/* numa.c - NUMA nodes, read from sysfs once; and their free memory, which is read again when the
 * figure is old: by the watcher of the tree where the process follows a board, else by the service
 * thread while threads ask for it, else by a thread that asks. */
#include "os/numa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/decay.h"
#include "os/text.h"
#include "os/thread.h"

enum {
  FREE_MAX_AGE_NS = 90000000, /* on the coarse clock, which is some milliseconds late */
  PATH_SIZE = 256,
  DISTANCE_SELF = 10,
  DISTANCE_OTHER = 20,
  FILE_SIZE = 1024 /* bytes that are read of a file: the fields that loam uses are among them */
};

/* The interval at which the service thread refreshes figures. */
enum { KEEP_NS = LM_NUMA_REFRESH_MS * 1000000 };

/* Written once under the lock, before `ready`, except the three masks. They change, under the lock,
 * as nodes come and go; loads and stores of `online` and `others` are relaxed, since each of these
 * masks stands for itself. The total and the distances of a node that comes later are written when
 * it comes: before the node is in `nodes`, whose release in set_nodes_locked pairs with the acquire
 * in nodes_now. A node that comes back has them already while they are written again, so both are
 * atomic (relaxed): each is used by itself. */
static LM_SPARSE struct {
  lm_lock lock;
  _Atomic bool ready;      /* release when all is written; pairs with the acquire in get_ready */
  _Atomic uint64_t online; /* nodes with or without memory: where a CPU can be */
  _Atomic uint64_t others; /* nodes with memory that this process may not use */
  _Atomic uint64_t nodes;  /* nodes with memory that it may use */
  uint64_t cpus;           /* nodes that have CPUs */
  _Atomic uint64_t total[LM_NODES_MAX];
  _Atomic uint8_t distance[LM_NODES_MAX][LM_NODES_MAX]; /* 0: no file tells it */
} machine;

LM_SPARSE lm_numa_gauge lm_numa_gauges[LM_NODES_MAX];
_Atomic int lm_numa_only_node = LM_NUMA_UNREAD;
_Thread_local uint16_t lm_numa_reads = 1; /* the first reading of a thread takes the slow path */

_Static_assert((int)LM_PUBLISHED_NODES == (int)LM_NODES_MAX, "each node has a word on the page");

/* A thread reads a gauge, so the service thread should keep it. Relaxed: a hint. */
static _Atomic bool wanted;

static const char usual_root[] = "/sys/devices/system/node", *root = usual_root;

static uint64_t online_now(void) {
  return atomic_load_explicit(&machine.online, memory_order_relaxed);
}

static uint64_t nodes_now(void) {
  return atomic_load_explicit(&machine.nodes, memory_order_acquire);
}

/* ---- Reading sysfs */

static bool read_text(char *buffer, const char *name) {
  char path[PATH_SIZE];
  size_t length;
  size_t n = lm_text_put(path, sizeof path, root, "/", name, NULL);
  return n < sizeof path && lm_sys_read_file(path, buffer, FILE_SIZE, &length) == 0;
}

static uint64_t bits_from(unsigned long first, unsigned long last) {
  uint64_t mask = 0;
  for (unsigned long i = first; i <= last && i < LM_NODES_MAX; i++) mask |= (uint64_t)1 << i;
  return mask;
}

/* Returns the mask of a list as the kernel writes it: "0-1,3". */
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

/* Returns the mask in a file of sysfs, or `otherwise` if the file cannot be read. */
static uint64_t read_list(const char *name, uint64_t otherwise) {
  char text[FILE_SIZE];
  return read_text(text, name) ? parse_list(text) : otherwise;
}

/* Returns the bytes of a field: "Node 0 MemFree:  1234 kB". 0 if the field is missing. */
static uint64_t parse_field(const char *text, const char *field) {
  const char *at = strstr(text, field);
  return at ? strtoull(at + strlen(field), NULL, 10) * LM_KIB : 0;
}

/* On a machine without /sys, sysinfo(2) gives the memory of node 0. */
static void read_memory(unsigned node, uint64_t *total, uint64_t *free) {
  char name[32], number[LM_TEXT_NUMBER], text[FILE_SIZE];
  lm_text_put(name, sizeof name, "node", lm_text_number(number, node), "/meminfo", NULL);
  *total = *free = 0;
  if (read_text(text, name)) {
    *total = parse_field(text, "MemTotal:");
    *free = parse_field(text, "MemFree:");
  } else if (node == 0) {
    (void)lm_sys_memory(total, free);
  }
}

/* The distance that the file of node `from` tells; 0: none. */
static uint8_t distance_told(unsigned from, unsigned to) {
  return atomic_load_explicit(&machine.distance[from][to], memory_order_relaxed);
}

/* Writes a distance where it changes. So a process on a machine of one node has no memory for the
 * table. A number above 255 is no distance. */
static void tell_distance(unsigned from, unsigned to, unsigned long distance) {
  if (distance <= UINT8_MAX && distance != distance_told(from, to))
    atomic_store_explicit(&machine.distance[from][to], (uint8_t)distance, memory_order_relaxed);
}

/* The file has a line of numbers, one for each node that is online, in order. If only one node is
 * online, its distance to itself is known without the file. */
static void read_distances(unsigned from) {
  char name[32], text[FILE_SIZE];
  for (unsigned to = 0; to < LM_NODES_MAX; to++) tell_distance(from, to, 0);
  if (!(online_now() >> from & 1) || lm_is_pow2(online_now())) return;
  snprintf(name, sizeof name, "node%u/distance", from);
  if (!read_text(text, name)) return;
  char *at = text;
  for (uint64_t left = online_now(); left; left &= left - 1) {
    char *end;
    unsigned long distance = strtoul(at, &end, 10);
    if (end == at) return;
    tell_distance(from, (unsigned)__builtin_ctzll(left), distance);
    at = end;
  }
}

/* ---- The machine */

/* Reads the memory of a node for the first time. If only one node is online, its memory is the
 * machine's, and sysinfo(2) gives both figures faster than the file of the node does. Later reads
 * may be part of a request for memory, where a program may forbid calls that it does not know. So
 * they read the file. */
static void read_gauge(unsigned node, int64_t now) {
  lm_numa_gauge *g = &lm_numa_gauges[node];
  uint64_t total = 0, free = 0;
  bool is_only = root == usual_root && lm_is_pow2(online_now());
  lm_assert(node < LM_NODES_MAX && lm_lock_is_held(&machine.lock));
  if (!is_only || lm_sys_memory(&total, &free)) read_memory(node, &total, &free);
  atomic_store_explicit(&machine.total[node], total, memory_order_relaxed);
  atomic_store_explicit(&g->free, free, memory_order_relaxed);
  atomic_store_explicit(&g->read_at, now, memory_order_relaxed);
}

/* Returns the nodes that the kernel lets this process use; all nodes if the kernel does not say. */
static uint64_t allowed_by_kernel(void) {
  uint64_t mask;
  return lm_sys_nodes_allowed(&mask) == 0 && mask ? mask : UINT64_MAX;
}

/* Sets the masks, except `nodes`, which it returns: the caller sets it when the total and the
 * distances of the nodes are known. `online` and `nodes` are used in place of files that cannot be
 * read. If only one node is online, that node has all memory and all CPUs of the machine. The files
 * that say so are then not read, which makes the start of a program shorter. */
static uint64_t read_nodes_locked(uint64_t allowed, uint64_t online, uint64_t nodes) {
  lm_assert(lm_lock_is_held(&machine.lock));
  online = read_list("online", online);
  uint64_t all = lm_is_pow2(online) ? online : read_list("has_memory", nodes) & online;
  nodes = all & allowed;
  atomic_store_explicit(&machine.others, all & ~allowed, memory_order_relaxed);
  atomic_store_explicit(&machine.online, online, memory_order_relaxed);
  atomic_store_explicit(&lm_numa_only_node,
                        lm_is_pow2(online) ? __builtin_ctzll(online) : LM_NUMA_SEVERAL,
                        memory_order_relaxed);
  return nodes ? nodes : 1;
}

static void set_nodes_locked(uint64_t nodes) {
  lm_assert(nodes && lm_lock_is_held(&machine.lock));
  atomic_store_explicit(&machine.nodes, nodes, memory_order_release);
}

/* For tests: the nodes that the process may use, in place of the kernel's answer; 0: not used. */
static uint64_t pretended;

static void read_machine_locked(uint64_t allowed) {
  lm_assert(allowed);
  uint64_t nodes = read_nodes_locked(allowed, 1, 1);
  machine.cpus = lm_is_pow2(online_now()) ? UINT64_MAX : read_list("has_cpu", UINT64_MAX);
  int64_t now = lm_sys_coarse_ns();
  for (unsigned node = 0; node < LM_NODES_MAX; node++) {
    atomic_store_explicit(&machine.total[node], 0, memory_order_relaxed);
    read_distances(node);
    if (nodes >> node & 1) read_gauge(node, now);
  }
  set_nodes_locked(nodes);
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
  root = sysfs ? sysfs : usual_root;
  pretended = allowed;
  read_machine_locked(allowed);
  lm_lock_drop(&machine.lock);
}
#endif

void lm_numa_refresh(void) {
  get_ready();
  lm_lock_take(&machine.lock);
  uint64_t before = nodes_now(), allowed = pretended ? pretended : allowed_by_kernel();
  uint64_t nodes = read_nodes_locked(allowed, online_now(), before);
  for (uint64_t come = nodes & ~before; come; come &= come - 1) {
    unsigned node = (unsigned)__builtin_ctzll(come);
    read_distances(node);
    read_gauge(node, lm_sys_clock_ns());
  }
  set_nodes_locked(nodes);
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
  if (from >= LM_NODES_MAX || to >= LM_NODES_MAX) return DISTANCE_OTHER;
  uint8_t told = distance_told(from, to);
  return told ? told : from == to ? DISTANCE_SELF : DISTANCE_OTHER;
}

uint64_t lm_numa_total(unsigned node) {
  return lm_numa_has(node) ? atomic_load_explicit(&machine.total[node], memory_order_relaxed) : 0;
}

/* Returns true if the figure is old and the calling thread is the one that reads it again. The
 * coarse clock costs a fifth of the other and is late by some milliseconds at most. */
static bool claim_reading(lm_numa_gauge *g) {
  int64_t now = lm_sys_coarse_ns();
  int64_t then = atomic_load_explicit(&g->read_at, memory_order_relaxed);
  return now - then > FREE_MAX_AGE_NS &&
         atomic_compare_exchange_strong_explicit(&g->read_at, &then, now, memory_order_relaxed,
                                                 memory_order_relaxed);
}

/* Reads the figure of a gauge again if it is old: for a gauge that the service thread does not
 * keep. */
static void refresh_if_old(unsigned node, lm_numa_gauge *g) {
  if (!claim_reading(g)) return;
  uint64_t total, free;
  read_memory(node, &total, &free);
  atomic_store_explicit(&g->free, free, memory_order_relaxed);
  atomic_store_explicit(&wanted, true, memory_order_relaxed);
  lm_decay_stir(); /* wakes the service thread, which keeps the gauge from then on */
}

/* Returns the free bytes of a node that was missing, if it has come back, else 0. A board may have
 * a figure of the node, which is not for this process: so the thread takes the slow path again. */
static uint64_t free_of_missing(unsigned node, lm_numa_gauge *g) {
  lm_numa_reads = 1;
  if (!claim_reading(g)) return 0;
  lm_numa_refresh();
  return lm_numa_has(node) ? atomic_load_explicit(&g->free, memory_order_relaxed) : 0;
}

static _Atomic int64_t *word_of(unsigned node) {
  lm_assert(node < LM_NODES_MAX);
  return &lm_published.gauges.node_free[node];
}

/* ---- Figures on a board */

/* Looks whether the figures on the board are fresh, and whether the calling thread may take the
 * next ones without a look. It may if this process may use each node that has a figure: any other
 * node has 0 bytes free for this process. Returns whether the figures are fresh. */
static bool look_at_board(void) {
  const lm_published_gauges *g = &lm_published.gauges;
  int64_t age_ns = lm_sys_coarse_ns() -
                   atomic_load_explicit(&g->refreshed_at, memory_order_relaxed);
  bool is_fresh = age_ns < LM_NUMA_FRESH_MS * 1000000ll && age_ns > -1000000000;
  bool is_for_all = !(atomic_load_explicit(&g->nodes, memory_order_relaxed) & ~lm_numa_nodes());
  lm_numa_reads = is_fresh && is_for_all ? LM_NUMA_READS : 1;
  return is_fresh;
}

/* Returns the free bytes of a node that this process may use, from the board; a number below 0: the
 * board has no fresh figure. */
static int64_t free_on_board(unsigned node) {
  return look_at_board() ? atomic_load_explicit(word_of(node), memory_order_relaxed) - 1 : -1;
}

void lm_numa_free_publish(lm_published_gauges *to) {
  uint64_t nodes = lm_numa_nodes();
  for (unsigned node = 0; node < LM_NODES_MAX; node++) {
    uint64_t total, free;
    if (nodes >> node & 1) read_memory(node, &total, &free);
    atomic_store_explicit(&to->node_free[node], nodes >> node & 1 ? (int64_t)free + 1 : 0,
                          memory_order_relaxed);
  }
  atomic_store_explicit(&to->nodes, nodes, memory_order_relaxed);
  atomic_store_explicit(&to->refreshed_at, lm_sys_coarse_ns(), memory_order_relaxed);
}

void lm_numa_free_withdraw(lm_published_gauges *to) {
  atomic_store_explicit(&to->refreshed_at, 0, memory_order_relaxed);
  for (unsigned node = 0; node < LM_NODES_MAX; node++)
    atomic_store_explicit(&to->node_free[node], 0, memory_order_relaxed);
}

/* ---- Figures of this process */

/* Writes the word of a node, unless the process follows a board. */
static void set_word(unsigned node, int64_t value) {
  if (!lm_published_begin_write()) return;
  atomic_store_explicit(word_of(node), value, memory_order_relaxed);
  lm_published_end_write();
}

/* Notes in the word of a node that a thread has read its figure. */
static void note_read(unsigned node, int64_t kept) {
  if (!lm_published_begin_write()) return;
  atomic_compare_exchange_strong_explicit(word_of(node), &kept, -kept, memory_order_relaxed,
                                          memory_order_relaxed);
  lm_published_end_write();
}

/* Returns the figure that the service thread of this process keeps, and notes that a thread has
 * read it; a number below 0: it keeps none. Not in a process that follows a board, which cannot
 * write the word. */
static int64_t free_of_service(unsigned node) {
  int64_t kept = atomic_load_explicit(word_of(node), memory_order_relaxed);
  lm_numa_reads = LM_NUMA_READS;
  if (kept < 0) note_read(node, kept);
  return (kept < 0 ? -kept : kept) - 1;
}

uint64_t lm_numa_free_slow(unsigned node) {
  if (node >= LM_NODES_MAX) return 0;
  lm_numa_gauge *g = &lm_numa_gauges[node];
  if (!lm_numa_has(node)) return free_of_missing(node, g);
  int64_t free = lm_published_is_mapped() ? free_on_board(node) : free_of_service(node);
  if (free >= 0) return (uint64_t)free;
  refresh_if_old(node, g);
  return atomic_load_explicit(&g->free, memory_order_relaxed);
}

bool lm_numa_free_is_wanted(void) { return atomic_load_explicit(&wanted, memory_order_relaxed); }

/* Refreshes one gauge, for the service thread, and returns whether it keeps the gauge. It drops a
 * gauge that no thread read for a second. A shorter time would mostly miss a thread that reads the
 * gauge now and then. */
static bool refresh_gauge(unsigned node, lm_numa_gauge *g, int64_t now) {
  int64_t kept = atomic_load_explicit(word_of(node), memory_order_relaxed), next = 0;
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
  set_word(node, next);
  return next;
}

void lm_numa_free_refresh(void) {
  bool any = false;
  int64_t now = lm_sys_coarse_ns();
  uint64_t nodes = lm_numa_nodes();
  if (lm_published_is_mapped()) return; /* the figures are on the board */
  for (unsigned node = 0; node < LM_NODES_MAX; node++) {
    lm_numa_gauge *g = &lm_numa_gauges[node];
    if (nodes >> node & 1) any = refresh_gauge(node, g, now) || any;
    else set_word(node, 0); /* the node has gone */
  }
  atomic_store_explicit(&wanted, any, memory_order_relaxed);
}

void lm_numa_free_pause(void) {
  if (lm_published_is_mapped()) return;
  for (unsigned node = 0; node < LM_NODES_MAX; node++) set_word(node, 0);
}

/* Returns whether the node exists, and reads the nodes again before it says no. */
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
  lm_assert(left);
  unsigned best = (unsigned)__builtin_ctzll(left);
  for (; left; left &= left - 1) {
    unsigned node = (unsigned)__builtin_ctzll(left);
    if (lm_numa_distance(here, node) < lm_numa_distance(here, best)) best = node;
  }
  return best;
}

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

/* Appends "3" or "0-1" to the list, and returns how many bytes of the buffer are used. */
static size_t add_run(char *buffer, size_t size, size_t used, unsigned first, unsigned last) {
  const char *comma = used ? "," : "";
  int n = first == last ? snprintf(buffer + used, size - used, "%s%u", comma, first)
                        : snprintf(buffer + used, size - used, "%s%u-%u", comma, first, last);
  lm_assert(n > 0 && first <= last);
  used += (size_t)n;
  return used < size ? used : size - 1;
}

const char *lm_numa_text(uint64_t mask, char *buffer, size_t size) {
  size_t used = 0;
  lm_assert(buffer && size);
  buffer[0] = 0;
  for (unsigned i = 0; i < LM_NODES_MAX; i++) {
    if (!(mask >> i & 1)) continue;
    unsigned first = i;
    while (i + 1 < LM_NODES_MAX && mask >> (i + 1) & 1) i++;
    used = add_run(buffer, size, used, first, i);
  }
  return buffer;
}

/* Says why a node that the kernel knows has no memory. `bit` is the bit of the node in a mask. */
static const char *lack_of(uint64_t bit) {
  if (bit & online_now()) return "it has no memory; ";
  return bit & read_list("possible", 0) ? "it is offline; " : "";
}

const char *lm_numa_why_absent(double node, char *buffer, size_t size) {
  char text[256];
  lm_assert(buffer && size);
  uint64_t may = lm_numa_nodes(), others = lm_numa_others();
  uint64_t bit = node >= 0 && node < LM_NODES_MAX ? (uint64_t)1 << (unsigned)node : 0;
  bool is_there = bit & others;
  uint64_t nodes = is_there ? may : others | may;
  snprintf(buffer, size, "%s%s %s %s", is_there ? "" : lack_of(bit),
           is_there ? "this process may use" : "this machine has",
           lm_is_pow2((size_t)nodes) ? "node" : "nodes", lm_numa_text(nodes, text, sizeof text));
  return buffer;
}
