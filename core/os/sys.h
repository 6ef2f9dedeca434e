/* sys.h - all that is asked of the operating system, one contract; sys_linux.c is the port.
 *
 * Every function that can fail returns 0 or a positive errno value and changes nothing on
 * failure; errno itself is as it was, whatever happens. None calls malloc. In builds with
 * LOAM_CHECKS >= 1, lm_sys_refuse(n) makes the nth call from now fail with ENOMEM (once), so that
 * every path of failure can be walked. */
#ifndef LM_SYS_H
#define LM_SYS_H

#include <stdatomic.h>

#include "os/base.h"

/* Address space with no memory behind it and no access; `align` is a power of two >= LM_PAGE. */
int lm_sys_reserve(size_t size, size_t align, void **out);
/* Readable, writable, zero on first touch; only inside a reservation. */
int lm_sys_commit(void *at, size_t size);
/* Gives the memory back and takes access away; the reservation stays. */
int lm_sys_decommit(void *at, size_t size);
/* Gives the memory back, keeps access: the next touch finds zeros. */
int lm_sys_purge(void *at, size_t size);
/* Which pages have memory, by bit 0 of an entry each. What is swapped out has none, but content. */
int lm_sys_resident(const void *at, size_t size, unsigned char *in);
/* Of a file that is mapped and not written to: its pages are read again when they are touched. Not
 * if the host has locked them. */
int lm_sys_evict_file(void *at, size_t size);
/* Fresh readable, writable, zeroed memory outside any reservation, and its end. */
int lm_sys_map(size_t size, void **out);
void lm_sys_unmap(void *at, size_t size);
/* Readable, zero, without memory behind it until it is committed; only inside a reservation. */
int lm_sys_make_readable(void *at, size_t size);
/* Takes access away (a guard page) or gives it back. */
int lm_sys_protect(void *at, size_t size, bool access);
/* Commits pages of exactly `page` bytes (2 MiB, 1 GiB) at an aligned place in a reservation. They
 * are set aside, but not on the nodes of a later lm_sys_bind: a first touch can still find none
 * there and kill the process, so bound ones are prefaulted, which fails with words instead. */
int lm_sys_commit_huge(void *at, size_t size, size_t page);
/* Transparent huge pages: 1 wanted, 0 refused. */
int lm_sys_advise_huge(void *at, size_t size, int wanted);
/* Every page has memory afterwards; EFAULT where the nodes bound have none. Linux 5.14. */
int lm_sys_prefault(void *at, size_t size);
int lm_sys_mlock(void *at, size_t size);
int lm_sys_munlock(void *at, size_t size);
/* Pages that are there become transparent huge ones, as far as that is possible. Linux 6.1. */
int lm_sys_collapse(void *at, size_t size);
/* What is not touched soon may go first when memory is short; and goes now, to swap. A huge page
 * that the range cuts is split. EINVAL for locked pages. */
int lm_sys_advise_cold(void *at, size_t size);
int lm_sys_page_out(void *at, size_t size);
/* Moves pages, not bytes: the memory of `from` appears at `to` (both inside a reservation),
 * `from` is left reserved with no access. Before Linux 6.17 only of what was committed as one
 * piece, else EFAULT: the caller copies. */
int lm_sys_move(void *from, size_t size, void *to);

/* Memory policy of a range (mbind). `mode` is an LM_BIND_* of numa.h; mask has a bit a node. */
int lm_sys_bind(void *at, size_t size, int mode, const uint64_t *mask, unsigned mask_bits);
/* The same of a range in use: pages that are not where the mode wants them move there, as far as
 * there is room. Where `mask` has several nodes, a page on any of them stays. */
int lm_sys_rebind(void *at, size_t size, int mode, const uint64_t *mask, unsigned mask_bits);
/* Moves page i to node[i], as far as there is room; `node` NULL: moves none. status[i]: the node it
 * is on then, or a negative errno (-ENOENT: never touched). */
int lm_sys_move_pages(void *const *page, const int *node, int *status, size_t pages);
/* Bits of the nodes below 64 that this process may take memory from. */
int lm_sys_nodes_allowed(uint64_t *mask);
/* The node that the caller runs on, without a system call where the kernel allows. */
unsigned lm_sys_node(void);
/* Where the kernel keeps that for a thread, from its thread pointer; relaxed, it is set once. */
enum { LM_SYS_RSEQ_UNKNOWN, LM_SYS_RSEQ_NONE };
extern _Atomic ptrdiff_t lm_sys_rseq __attribute__((visibility("hidden")));
/* The same without a call; -1: it has to be called. */
LM_INLINE int lm_sys_node_fast(void) {
  enum { CPU_ID = 1, NODE_ID = 5 }; /* of struct rseq, in words */
  ptrdiff_t at = atomic_load_explicit(&lm_sys_rseq, memory_order_relaxed);
  if (lm_unlikely(at == LM_SYS_RSEQ_UNKNOWN || at == LM_SYS_RSEQ_NONE)) return -1;
  const volatile int *area = (const int *)((const char *)__builtin_thread_pointer() + at);
  return lm_likely(area[CPU_ID] >= 0) ? area[NODE_ID] : -1;
}
/* Bytes of memory in the machine, and free ones. */
int lm_sys_memory(uint64_t *total, uint64_t *free);

/* After it returns, every store that another thread of the process made before is seen by us,
 * and ours by it. ENOSYS where the kernel has no membarrier(2). */
int lm_sys_membarrier(void);

/* Sleeps while *word is `value`, until a wake (spurious returns allowed). Never refused. */
void lm_sys_wait(_Atomic uint32_t *word, uint32_t value);
/* Wakes one sleeper. */
void lm_sys_wake(_Atomic uint32_t *word);

/* Until the matching lm_sys_cancel_restore the thread is not cancelled, be it at any instruction or
 * where a system call would have it end (read, send, close): what it holds, nobody else gives back.
 * Nests. */
void lm_sys_cancel_off(void);
void lm_sys_cancel_restore(void);

/* Lets others run: for a moment, or for `ns`. */
void lm_sys_yield(void);
void lm_sys_sleep(int64_t ns);

/* From now on `tell` is called for each fault (SIGSEGV) of an instruction of this process, in the
 * signal's handler, with the address that was touched. Afterwards the fault goes the way it would
 * have gone: to the handler that was there, or it ends the process. Once in a process. */
int lm_sys_on_fault(void (*tell)(const void *address));

/* The kernel's number of the calling thread; whether a thread of this process still has it. */
int lm_sys_thread_id(void);
bool lm_sys_thread_lives(int thread);

int64_t lm_sys_unix_ns(void);
int64_t lm_sys_clock_ns(void);  /* monotonic */
int64_t lm_sys_coarse_ns(void); /* the same, some milliseconds late, but cheap */
int64_t lm_sys_cpu_ns(void);    /* that the calling thread has run */
uint64_t lm_sys_random(void);

/* The value of an environment variable, or NULL where it is not set. Always NULL in a process whose
 * program was started with more rights than the user who started it has (the kernel's AT_SECURE: a
 * set-user-ID or set-group-ID program, or one with file capabilities), also after it has given
 * those rights up: its environment was written by that user. All of loam reads the environment
 * through this function. The text belongs to the environment. */
const char *lm_sys_getenv(const char *name);

/* Reads at most `size` - 1 bytes of a small file and terminates it; *out is the length. */
int lm_sys_read_file(const char *path, char *buffer, size_t size, size_t *out);
/* Calls `tell` for each line of a text, however long that is; of a line above 511 bytes, for pieces
 * of it. The line is terminated, without its end, and lives for the call. */
int lm_sys_each_line(const char *path, void (*tell)(void *ctx, const char *line), void *ctx);

#if LOAM_CHECKS >= 1
void lm_sys_refuse(long nth);              /* 0: none */
void lm_sys_refuse_from(long nth);         /* that one and all after it; 0: none */
long lm_sys_calls(void);                   /* calls made so far that could be refused */
bool lm_sys_refuses(const char *function); /* of the port: whether this call is refused */
const char *lm_sys_refused(void);          /* the function that was refused last; "": none was */
#endif

#endif
