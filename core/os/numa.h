/* numa.h - NUMA nodes of this machine: which there are, which this process may use, their free
 * memory, and the binding of a range. Read from sysfs on first use; a machine without /sys has
 * one node, 0. */
#ifndef LM_NUMA_H
#define LM_NUMA_H

#include <stdatomic.h>

#include "os/sys.h"

enum { LM_NODES_MAX = 64 };

/* The kernel's MPOL_* values. */
enum {
  LM_BIND_DEFAULT = 0,
  LM_BIND_PREFERRED = 1,
  LM_BIND_BIND = 2,
  LM_BIND_INTERLEAVE = 3,
  LM_BIND_LOCAL = 4,
  LM_BIND_PREFERRED_MANY = 5,
  LM_BIND_WEIGHTED = 6
};

/* Bits of the nodes that have memory and that this process may use: as it was when the process
 * began, or at the last refresh, since nodes and cpusets change. */
uint64_t lm_numa_nodes(void);
uint64_t lm_numa_others(void); /* likewise, those that it may not use */
void lm_numa_refresh(void);
bool lm_numa_has(unsigned node);
bool lm_numa_has_cpus(unsigned node);
/* "0-1,3" */
const char *lm_numa_text(uint64_t mask, char *buffer, size_t size);
/* Why a node cannot be named: "this machine has nodes 0-1", or that the process may not use it. */
const char *lm_numa_why_absent(double node, char *buffer, size_t size);
unsigned lm_numa_distance(unsigned from, unsigned to); /* 10 is local */
/* Bytes free on a node, total bytes; 0 for a node that is not there. What is free is at most 100 ms
 * old: the service thread reads it while it is asked for, so that asking is a load or two; where
 * there is none, or while it loads a policy, one of those who ask does, each 100 ms. Nothing is
 * allocated for that. */
LM_INLINE uint64_t lm_numa_free(unsigned node);
uint64_t lm_numa_total(unsigned node);
/* The same at this moment, with what the kernel can soon make free: files' pages. */
uint64_t lm_numa_available(unsigned node);
LM_INLINE unsigned lm_numa_here(void); /* node of the calling CPU */
unsigned lm_numa_nearest(void);        /* the nearest to it of those with memory that may be used */

/* The service thread's: whether somebody asks; reads anew what is asked for, to be called each
 * LM_NUMA_REFRESH_MS; says that it does not for a while. */
enum { LM_NUMA_REFRESH_MS = 50, LM_NUMA_REFRESH_UNUSED = 20 };
bool lm_numa_free_is_wanted(void);
void lm_numa_free_refresh(void);
void lm_numa_free_pause(void);

/* How a strategy places its pages. */
typedef struct lm_placement {
  int mode;       /* LM_BIND_* */
  uint64_t nodes; /* the mask, where the mode has one; LOCAL of one node: prefers it */
  uint8_t weight[LM_NODES_MAX]; /* LM_BIND_WEIGHTED */
  bool huge;                    /* likewise: in pieces that can be pages of 2 MiB */
} lm_placement;

/* Applies a placement to a range not yet touched; 0 or an errno. WEIGHTED is the kernel's own mode,
 * page by page, where it has one (Linux 6.9) and the machine's weights are in these proportions.
 * Else nodes are preferred for runs of pages in proportion to the weights: exact to about a 64th of
 * the range, but to no less than 64 KiB, or 2 MiB where pages are to be `huge`. */
int lm_numa_bind(void *at, size_t size, const lm_placement *placement);

/* The same for a range in use: pages that are elsewhere move, as far as there is room; interleaved
 * in pieces of `unit` bytes. "local" and the default only forget what was bound: each page is local
 * to somebody. */
int lm_numa_rebind(void *at, size_t size, const lm_placement *placement, size_t unit);
/* Bytes of touched pages of a range that was rebound which are not on the node whose turn it is, or
 * on any of those named; 0 also where none can tell. *why: ENOSPC, EACCES where another process
 * shares them (a forked one), or EBUSY. */
size_t lm_numa_misplaced(const void *at, size_t size, const lm_placement *placement, size_t unit,
                         int *why);
/* Bytes of touched pages of a range in use that are on none of the nodes named: they spilled over
 * when these were full. Of a range above 4 MiB about that, by a sample. 0 where none can tell. */
size_t lm_numa_spilled(const void *at, size_t size, const lm_placement *placement);
/* Brings such pages where they were to be, as far as there is room, and nothing else; `unit` as
 * above. Bytes that came; *left: that did not, and *why, as of lm_numa_misplaced, or EPERM. */
size_t lm_numa_fetch(void *at, size_t size, const lm_placement *placement, size_t unit,
                     size_t *left, int *why);
/* Bytes of pages that have memory. */
size_t lm_numa_resident(const void *at, size_t size);
/* The nearest node with memory that has no CPU; -1: all have. */
int lm_numa_memory_only(void);
/* Where none of these nodes has CPUs: the nearest that has some, and memory. -1: one has, or there
 * is no such node. */
int lm_numa_nearest_with_cpus(uint64_t nodes);
/* The node that the page of an address is on; -1: none, or nobody knows. */
int lm_numa_of(const void *at);

/* The runs of a weighted range, one after the other. */
typedef struct lm_numa_stripe {
  uintptr_t from, to;
  unsigned node;
} lm_numa_stripe;

typedef struct lm_numa_stripes {
  const lm_placement *placement;
  uintptr_t at, end;
  size_t cell;
  unsigned node; /* of the cell at `at` */
  int sum, credit[LM_NODES_MAX];
} lm_numa_stripes;

/* `cell` 0: chosen. False if no node has a weight. */
bool lm_numa_stripes_start(lm_numa_stripes *runs, const void *at, size_t size, size_t cell,
                           const lm_placement *placement);
bool lm_numa_stripes_next(lm_numa_stripes *runs, lm_numa_stripe *out);

/* What gauges read without a call. `kept`: 0, or by the service thread what is free and 1 more;
 * below 0, the same, until somebody reads it: so that it is known whether anybody does. */
typedef struct lm_numa_gauge {
  _Atomic int64_t kept;
  uint32_t unused;         /* times it was kept since somebody read it; the service thread's */
  _Atomic int64_t read_at; /* whoever moves it reads the file; relaxed, the figure is a hint */
  _Atomic uint64_t free;
} lm_numa_gauge;
extern lm_numa_gauge lm_numa_gauges[LM_NODES_MAX] __attribute__((visibility("hidden")));

/* The node of every CPU, where that is one. */
enum { LM_NUMA_UNREAD = -2, LM_NUMA_SEVERAL = -1 };
extern _Atomic int lm_numa_only_node __attribute__((visibility("hidden")));

uint64_t lm_numa_free_slow(unsigned node);
unsigned lm_numa_here_slow(void);

/* The same as the two without, or below 0: they may have to call somebody. `node` is below
 * LM_NODES_MAX. */
LM_INLINE int64_t lm_numa_free_fast(unsigned node) {
  return atomic_load_explicit(&lm_numa_gauges[node].kept, memory_order_relaxed) - 1;
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
/* For tests: the machine is what this folder says, and the process may use `allowed`. */
void lm_numa_pretend(const char *sysfs, uint64_t allowed);
#endif

#endif
