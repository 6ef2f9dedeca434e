/* numa.h - the NUMA nodes of this machine: which exist, which this process may use, how much memory
 * they have free; and on which nodes the pages of a range are.
 *
 * The nodes are read from sysfs on first use. A machine without /sys has one node, number 0. Nodes
 * from LM_NODES_MAX on are ignored. Any thread may call any function, except where a comment names
 * the service thread. numa.c has the nodes, numa_string.c the strings that name them, numa_bind.c
 * the pages. */
#ifndef LM_NUMA_H
#define LM_NUMA_H

#include <stdatomic.h>

#include "loam.h"
#include "os/published.h"
#include "os/sys.h"

enum { LM_NODES_MAX = 64 };

/* ---- Nodes. A mask has a bit for each node. */

/* Returns the nodes that have memory and that this process may use; never 0. The answer is of the
 * time when loam first asked, or of the latest lm_numa_refresh, since nodes and cpusets change. */
uint64_t lm_numa_nodes(void);

/* Returns the nodes that have memory and that this process may not use, of the same time. */
uint64_t lm_numa_others(void);

/* Reads again which nodes exist and which the process may use. A file that cannot be read changes
 * nothing. */
void lm_numa_refresh(void);

/* Returns whether a node is in lm_numa_nodes(). Any number may be passed. */
bool lm_numa_has(unsigned node);

/* Returns whether a node has CPUs, as when loam first asked. Any number may be passed. */
bool lm_numa_has_cpus(unsigned node);

/* Writes a mask as the kernel does, "0-1,3", and returns `buffer`. Text that does not fit is
 * cut. */
const char *lm_numa_text(uint64_t mask, char *buffer, size_t size);

/* Writes why a policy cannot name a node, and returns `buffer`: "this machine has nodes 0-1", "it
 * is offline; this machine has nodes 0-1", or "this process may use node 1". */
const char *lm_numa_why_absent(double node, char *buffer, size_t size);

/* Sets *out to the nodes that a string names as numactl(8) does: "0-3", "0,2", "!1" (all others),
 * "+0" (the first node that this process may use), "all". Nodes without memory are left out, and so
 * are nodes inside a range that this process may not use. Opens libnuma for that. Returns
 * LOAM_EINVAL if the string is not of this form, and LOAM_EUNSUPPORTED if it names a node that is
 * not there, or if libnuma is missing; `*out` is then not changed. loam_error() has the reason,
 * without the string. It allocates, so a request for memory may not call it. */
loam_status lm_numa_parse(const char *text, uint64_t *out);

/* Returns whether lm_numa_parse finds a usable libnuma. It allocates, as lm_numa_parse does. */
bool lm_numa_can_parse(void);

/* Returns the distance between two nodes as the firmware reports it: 10 from a node to itself, 20
 * where it is unknown. */
unsigned lm_numa_distance(unsigned from, unsigned to);

/* Returns the node of the CPU that the caller runs on. */
LM_INLINE unsigned lm_numa_here(void);

/* Returns the node in lm_numa_nodes() that is nearest to lm_numa_here(). */
unsigned lm_numa_nearest(void);

/* Returns the nearest node that has memory and no CPU; -1 if every node has a CPU. */
int lm_numa_memory_only(void);

/* If no node of `nodes` has a CPU, returns the nearest node that has CPUs and memory; -1 if there
 * is none, or if a node of `nodes` has a CPU. */
int lm_numa_nearest_with_cpus(uint64_t nodes);

/* ---- Memory of nodes */

/* Returns the bytes of memory that a node has; 0 for a node that is not in lm_numa_nodes(). */
uint64_t lm_numa_total(unsigned node);

/* Returns the bytes that are free on a node; 0 for a node that is not in lm_numa_nodes(). In a
 * process that follows a board, the watcher of the tree reads the figure each 50 ms, and asking
 * takes a load or two. In any other process, the service thread does that while threads ask. Where
 * neither runs, or while the service thread loads a policy, one of the asking threads reads the
 * figure every 100 ms. Allocates nothing. */
LM_INLINE uint64_t lm_numa_free(unsigned node);

/* Returns the bytes that a node can give at this moment: those that are free, and half of the pages
 * of files, which the kernel can soon free. Reads a file each time. It returns a large number if
 * the file cannot be read. */
uint64_t lm_numa_available(unsigned node);

/* The service thread calls these three to keep the figures of lm_numa_free. lm_numa_free_is_wanted
 * says whether a thread asks for one. lm_numa_free_refresh reads the figures that threads ask for;
 * it is called each LM_NUMA_REFRESH_MS, and a figure that no thread read during
 * LM_NUMA_REFRESH_UNUSED calls is dropped. lm_numa_free_pause says that the next call will be
 * late. */
enum { LM_NUMA_REFRESH_MS = 50, LM_NUMA_REFRESH_UNUSED = 20 };
bool lm_numa_free_is_wanted(void);
void lm_numa_free_refresh(void);
void lm_numa_free_pause(void);

/* The oldest figure on a board that a process believes: a watcher that is late by a second or two
 * is busy, a later one is stopped or dead. */
enum { LM_NUMA_FRESH_MS = 3000 };
/* For publishers: reads the free memory of all nodes, and writes it into the gauges of a board. */
void lm_numa_free_publish(lm_published_gauges *to);
/* For publishers: says on a board that no publisher keeps the figures any more. */
void lm_numa_free_withdraw(lm_published_gauges *to);

/* ---- Where the pages of a range go */

/* Modes of a placement. The values are the kernel's (MPOL_*). */
enum {
  LM_BIND_DEFAULT = 0,
  LM_BIND_PREFERRED = 1,
  LM_BIND_BIND = 2,
  LM_BIND_INTERLEAVE = 3,
  LM_BIND_LOCAL = 4,
  LM_BIND_PREFERRED_MANY = 5,
  LM_BIND_WEIGHTED = 6
};

/* How a strategy places its pages. */
typedef struct lm_placement {
  int mode;       /* LM_BIND_* */
  uint64_t nodes; /* a mask, for modes that take nodes; LOCAL with a node prefers that node */
  uint8_t weight[LM_NODES_MAX]; /* WEIGHTED: the share of each node; 0 for nodes outside `nodes` */
  bool huge;                    /* WEIGHTED: share out pieces that can be huge pages of 2 MiB */
} lm_placement;

/* Applies a placement to a range whose pages were not touched yet. Returns 0 or an errno value.
 *
 * WEIGHTED uses the kernel's weighted mode, which works page by page, if the kernel has it (Linux
 * 6.9) and the weights of the machine have the same proportions. Otherwise runs of pages prefer one
 * node each, in the proportion of the weights: exact to about a 64th of the range, but not below 64
 * KiB, or 2 MiB with `huge`. */
int lm_numa_bind(void *at, size_t size, const lm_placement *placement);

/* Applies a placement to a range that is in use: pages on a wrong node move, as far as the right
 * nodes have room. INTERLEAVE shares out pieces of `unit` bytes. LOCAL without a node, and DEFAULT,
 * remove the old policy and move nothing, since each page is local to some thread. Returns 0 or an
 * errno value. */
int lm_numa_rebind(void *at, size_t size, const lm_placement *placement, size_t unit);

/* Returns the bytes of touched pages that lm_numa_rebind with these arguments left on a wrong node;
 * 0 also where the kernel does not say. Tries such pages once more, until one of them cannot be
 * moved. Sets *why to 0, or to the reason for that page: ENOSPC, EACCES (another process shares the
 * page, such as a forked child), EINVAL (the process may not use the node, or it has no memory), or
 * EBUSY. */
size_t lm_numa_misplaced(const void *at, size_t size, const lm_placement *placement, size_t unit,
                         int *why);

/* Returns the bytes of touched pages that are on none of the placement's nodes: they spilled over
 * while those nodes were full. Above 4 MiB it looks at a sample of pages, so the result is
 * approximate. 0 also where the kernel does not say. */
size_t lm_numa_spilled(const void *at, size_t size, const lm_placement *placement);

/* The result of lm_numa_fetch. */
typedef struct lm_numa_fetched {
  size_t came; /* bytes of pages that are on a right node now */
  size_t left; /* bytes of pages that are still on a wrong node */
  int why; /* why pages are left, as of lm_numa_misplaced, or EPERM or ENOSYS; 0: none is left */
} lm_numa_fetched;

/* Moves the pages that spilled over (lm_numa_spilled) to the placement's nodes, as far as these
 * have room. Leaves all other pages and the policy of the range alone. The placement has nodes. */
lm_numa_fetched lm_numa_fetch(void *at, size_t size, const lm_placement *placement, size_t unit);

/* Returns the bytes of a range's pages that have memory; 0 also where the kernel does not say. */
size_t lm_numa_resident(const void *at, size_t size);

/* Returns the node that the page of an address is on; -1 if the page has no memory, or where the
 * kernel does not say. */
int lm_numa_of(const void *at);

/* ---- Weighted ranges. The address space is cut into cells. Each cell has the node whose turn it
 * is in a smooth weighted round robin (the algorithm of nginx), which begins at address 0. */

/* Consecutive cells of one node in a range. */
typedef struct lm_numa_stripe {
  uintptr_t from, to;
  unsigned node;
} lm_numa_stripe;

/* A walk over the stripes of a range. Law: sum is the sum of the weights, and the credits add up to
 * 0 between turns. */
typedef struct lm_numa_stripes {
  const lm_placement *placement;
  uintptr_t at,
      end;       /* the part of the range that is left; `at` is past `end` after the last cell */
  size_t cell;   /* bytes of a cell */
  unsigned node; /* the node of the cell at `at` */
  int sum, credit[LM_NODES_MAX];
} lm_numa_stripes;

/* Begins a walk. `cell` is the size of a cell, a power of two, or 0 to choose one. Returns false if
 * no node has a weight. */
bool lm_numa_stripes_start(lm_numa_stripes *runs, const void *at, size_t size, size_t cell,
                           const lm_placement *placement);

/* Sets *out to the next stripe and returns true, or returns false at the end of the range. */
bool lm_numa_stripes_next(lm_numa_stripes *runs, lm_numa_stripe *out);

/* Returns whether the law of a walk holds. */
bool lm_numa_stripes_is_valid(const lm_numa_stripes *runs);

/* ---- Figures that are read without a call */

/* The notes of this process about the free memory of a node. The word from which the figure is read
 * without a call is in lm_published.gauges. All loads and stores are relaxed: each is a hint. */
typedef struct lm_numa_gauge {
  uint32_t unused; /* refreshes since a thread read the figure; the service thread's alone */
  _Atomic int64_t
      read_at;           /* coarse clock, when the file was read; who advances it reads the file */
  _Atomic uint64_t free; /* the figure that this process read last */
} lm_numa_gauge;
extern lm_numa_gauge lm_numa_gauges[LM_NODES_MAX] __attribute__((visibility("hidden")));

/* A thread takes so many figures of a board without a look whether they are fresh. */
enum { LM_NUMA_READS = 2048 };

/* Counts down, to 1, the figures that the calling thread takes without a look whether they are
 * fresh. At 1 it takes the slow path, which looks and begins a new count. */
extern _Thread_local uint16_t lm_numa_reads
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The one node of every CPU of the machine, or one of the two values. Relaxed: it stands for
 * itself. */
enum { LM_NUMA_UNREAD = -2, LM_NUMA_SEVERAL = -1 };
extern _Atomic int lm_numa_only_node __attribute__((visibility("hidden")));

/* The slow paths of lm_numa_free and lm_numa_here, which are below. */
uint64_t lm_numa_free_slow(unsigned node);
unsigned lm_numa_here_slow(void);

/* Return what lm_numa_free and lm_numa_here return, or a number below 0 if these would have to call
 * a function. `node` is below LM_NODES_MAX. */
LM_INLINE int64_t lm_numa_free_fast(unsigned node) {
  const _Atomic int64_t *word = lm_published.gauges.node_free;
  int64_t kept = atomic_load_explicit(&word[node], memory_order_relaxed);
  if (lm_unlikely(kept <= 0) || lm_unlikely(lm_numa_reads == 1)) return -1;
  lm_numa_reads--;
  return kept - 1;
}

LM_INLINE int lm_numa_here_fast(void) {
  int place = atomic_load_explicit(&lm_numa_only_node, memory_order_relaxed);
  return lm_likely(place >= 0) || place == LM_NUMA_UNREAD ? place : lm_sys_node_fast();
}

LM_INLINE uint64_t lm_numa_free(unsigned node) {
  int64_t free = node < LM_NODES_MAX ? lm_numa_free_fast(node) : -1;
  return lm_likely(free >= 0) ? (uint64_t)free : lm_numa_free_slow(node);
}

LM_INLINE unsigned lm_numa_here(void) {
  int node = lm_numa_here_fast();
  return lm_likely(node >= 0) ? (unsigned)node : lm_numa_here_slow();
}

#if LOAM_CHECKS >= 1
/* For tests: pretends that the machine is what the folder `sysfs` says, NULL for the real machine,
 * and that the process may use the nodes of `allowed`. */
void lm_numa_pretend(const char *sysfs, uint64_t allowed);
/* For tests: lm_numa_parse opens the library `name`, a text that lives on, in place of libnuma. */
void lm_numa_pretend_library(const char *name);
#endif

#endif
