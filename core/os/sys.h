/* sys.h - everything that loam asks of the operating system, under one contract. The port for Linux
 * is sys_linux.c, sys_read.c, sys_evict.c and (for sys_file.h) sys_file.c.
 *
 * Contract: a function that can fail returns 0 or a positive errno value, and changes nothing when
 * it fails. No function changes errno. No function calls malloc. Any thread may call any of them.
 * In builds with LOAM_CHECKS >= 1, lm_sys_refuse(n) makes the nth call from now on fail, once, so
 * that tests can walk every path of failure. Addresses of ranges are multiples of LM_PAGE; the
 * kernel rounds sizes up to whole pages. */
#ifndef LM_SYS_H
#define LM_SYS_H

#include <stdatomic.h>

#include "os/base.h"

/* ---- Address space */

/* Returns the bytes of a page of this kernel. loam has memory only where they are LM_PAGE: kernels
 * for AArch64 may have pages of 16 or 64 KiB (pages/range.c). */
size_t lm_sys_page_size(void);

/* Reserves address space without memory and without access, below LM_SIZE_MAX, because LuaJIT takes
 * memory only there. The functions below say which of them need a reservation. */
int lm_sys_reserve(size_t size, void **out);

/* Reserves address space at an address where nothing is mapped. EEXIST: something is mapped there,
 * and stays. Any part of the reservation may be given back by lm_sys_unmap. */
int lm_sys_reserve_at(void *at, size_t size);

/* Makes part of a reservation, or of a mapping, readable and writable. Pages that were not touched
 * before are zero. */
int lm_sys_commit(void *at, size_t size);

/* Gives back the memory of part of a reservation and takes access away; the reservation stays. */
int lm_sys_decommit(void *at, size_t size);

/* Gives back the memory of a range and keeps access: the next touch finds zeros. */
int lm_sys_purge(void *at, size_t size);

/* Says which pages of a range have memory: bit 0 of in[i] for page i. A page in swap has content
 * but no memory. */
int lm_sys_resident(const void *at, size_t size, unsigned char *in);

/* Gives back the memory of pages that map a file and were not written to. The next touch reads the
 * file again. A page that was written to keeps its contents, for example the breakpoints of a
 * debugger. Fails if the host has locked the pages. Fails also if /proc/self/pagemap, which names
 * the pages that were written to, cannot be read. After a failure, pages may remain. */
int lm_sys_evict_file(void *at, size_t size);

/* Maps fresh, readable, writable, zeroed memory outside any reservation. */
int lm_sys_map(size_t size, void **out);

/* Like lm_sys_map, for memory that reads as zeros in each forked child, however it was forked.
 * EINVAL before Linux 4.14. */
int lm_sys_map_wiped(size_t size, void **out);

/* Maps zeroed memory that can be read, outside any reservation. lm_sys_commit makes parts of it
 * writable. Until then a part counts against no limit but that on address space. */
int lm_sys_map_readable(size_t size, void **out);

/* Like lm_sys_map_readable, in a process that called mlockall(MCL_FUTURE): the kernel refuses a new
 * mapping there if it is larger than what RLIMIT_MEMLOCK leaves. `page` is one page of a mapping of
 * lm_sys_map_readable that was never written to and is older than that call. The new mapping is as
 * little locked as that one is. Needs Linux 5.7. */
int lm_sys_map_like(void *page, size_t size, void **out);

/* Ends a reservation or a mapping. If the kernel has no memory to do so, the range stays,
 * unused. */
void lm_sys_unmap(void *at, size_t size);

/* Makes part of a reservation readable: it reads as zeros and takes no memory until it is
 * committed. */
int lm_sys_make_readable(void *at, size_t size);

/* Commits huge pages of exactly `page` bytes (2 MiB or 1 GiB) in part of a reservation; `at` and
 * `size` are multiples of `page`. The kernel sets the pages aside, but not on the nodes of a later
 * lm_sys_bind: there a first touch may find no page and kill the process. So bound pages are
 * prefaulted, which reports that failure. */
int lm_sys_commit_huge(void *at, size_t size, size_t page);

/* Asks the kernel for transparent huge pages in a range (`wanted` is 1), or not to use any (0). */
int lm_sys_advise_huge(void *at, size_t size, int wanted);

/* Gives memory to every page of a range. EFAULT: the nodes that the range is bound to have none
 * left. EINVAL before Linux 5.14. */
int lm_sys_prefault(void *at, size_t size);

/* Brings in every page of a range, without writing to it. EFAULT: a page of a mapped file cannot be
 * read; without this call, reading it would end the process by SIGBUS. EINVAL before Linux 5.14. */
int lm_sys_preread(void *at, size_t size);

/* Locks the pages of a range in memory, or unlocks them. */
int lm_sys_mlock(void *at, size_t size);
int lm_sys_munlock(void *at, size_t size);

/* Makes transparent huge pages of pages that have memory, where that is possible. EINVAL before
 * Linux 6.1. */
int lm_sys_collapse(void *at, size_t size);

/* lm_sys_advise_cold says that a range will not be touched soon, so its pages go first when memory
 * is short. lm_sys_page_out moves the pages to swap in this call. Both split a huge page at the
 * ends of the range, and return EINVAL for locked pages. */
int lm_sys_advise_cold(void *at, size_t size);
int lm_sys_page_out(void *at, size_t size);

/* Moves pages without copying bytes: the memory of `from` appears at `to`, and `from` becomes
 * reserved without access. Both are inside reservations. If the call fails, the memory is at `from`
 * as before, and `to` is reserved without access. At `to` the pages have mappings of their own,
 * which never join those beside them: each move adds one at least. */
int lm_sys_move(void *from, size_t size, void *to);

/* ---- NUMA nodes. A mask has a bit for each of the first 64 nodes. */

/* Sets the memory policy of a range (mbind). `mode` is LM_BIND_* of numa.h; `nodes` is NULL for a
 * mode that takes no nodes. Pages that have memory stay where they are. */
int lm_sys_bind(void *at, size_t size, int mode, const uint64_t *nodes);

/* Like lm_sys_bind, and moves the pages that are on a wrong node, as far as the right nodes have
 * room. A page on any of the nodes stays. */
int lm_sys_rebind(void *at, size_t size, int mode, const uint64_t *nodes);

/* Moves page i to node[i] if that node has room; moves nothing if `node` is NULL. Sets status[i] to
 * the node that the page is on afterwards, or to a negative errno value (-ENOENT: the page was
 * never touched). */
int lm_sys_move_pages(void *const *page, const int *node, int *status, size_t pages);

/* Sets status[i] as lm_sys_move_pages does, for page i of another process, and moves nothing. `pid`
 * is 0 for this process. */
int lm_sys_pages_of(int pid, void *const *page, int *status, size_t pages);

/* Sets *mask to the nodes that this process may take memory from. */
int lm_sys_nodes_allowed(uint64_t *mask);

/* Returns the node of the CPU that the caller runs on; 0 where the kernel does not say. Makes no
 * system call where the kernel keeps the number in the thread's rseq area. */
unsigned lm_sys_node(void);

/* Offset of the thread's rseq area from its thread pointer, or one of the two values below.
 * Relaxed: it is set once, to one value, by the first lm_sys_node. */
enum { LM_SYS_RSEQ_UNKNOWN, LM_SYS_RSEQ_NONE };
extern _Atomic ptrdiff_t lm_sys_rseq __attribute__((visibility("hidden")));

/* Returns what lm_sys_node returns, without a call; -1: lm_sys_node must be called. */
LM_INLINE int lm_sys_node_fast(void) {
  enum { CPU_ID = 1, NODE_ID = 5 }; /* places in struct rseq, counted in words */
  ptrdiff_t at = atomic_load_explicit(&lm_sys_rseq, memory_order_relaxed);
  if (lm_unlikely(at == LM_SYS_RSEQ_UNKNOWN || at == LM_SYS_RSEQ_NONE)) return -1;
  const volatile int *area = (const int *)((const char *)__builtin_thread_pointer() + at);
  return lm_likely(area[CPU_ID] >= 0) ? area[NODE_ID] : -1;
}

/* Sets *total and *free to the bytes of memory in the machine and to how many are free. */
int lm_sys_memory(uint64_t *total, uint64_t *free);

/* Sets *used to the bytes of address space that this process has. Reads /proc/self/statm. */
int lm_sys_address_space(size_t *used);
/* Returns how many it may have (RLIMIT_AS); SIZE_MAX: there is no limit. */
size_t lm_sys_address_limit(void);

/* Returns whether the kernel limits the memory that processes may commit: the system does not
 * overcommit (vm.overcommit_memory is 2). Reads a file of /proc. */
bool lm_sys_is_commit_limited(void);

/* Returns whether the kernel counts all memory of this process that can be written, also where it
 * was never touched: RLIMIT_DATA has a finite value, or the memory that processes may commit is
 * limited. Reads a file of /proc. */
bool lm_sys_counts_data(void);

/* ---- Threads */

/* When it returns 0, the caller sees every store that another thread of the process made before the
 * call, and other threads see the caller's. ENOSYS where the kernel has no membarrier(2). */
int lm_sys_membarrier(void);

/* Sleeps while *word is `value`, until a lm_sys_wake. May also return without a reason. Tests
 * cannot make it fail. */
void lm_sys_wait(_Atomic uint32_t *word, uint32_t value);
/* Wakes one thread that sleeps in lm_sys_wait on this word. */
void lm_sys_wake(_Atomic uint32_t *word);

/* From lm_sys_cancel_off to the matching lm_sys_cancel_restore the calling thread is not cancelled,
 * neither at an arbitrary instruction nor in a system call that is a cancellation point (read,
 * send, close). No other thread would give back what a cancelled thread holds. Pairs nest. */
void lm_sys_cancel_off(void);
void lm_sys_cancel_restore(void);

/* Sleeps for `ns` nanoseconds. */
void lm_sys_sleep(int64_t ns);
/* Lets other threads run for a moment. The caller waits until another thread has changed a word,
 * and calls this each time it has looked, with the number of looks before. The first calls yield,
 * and later ones sleep, each longer than the one before, up to a millisecond. Without the sleep a
 * thread of a real-time priority would wait for ever if the other thread has a lower priority and
 * needs the same processor: a yield lets only threads of its own priority run. */
void lm_sys_wait_a_little(int tries);

/* Gives the calling thread an ordinary priority if it has a real-time one: for loam's own threads
 * and processes, which inherit the program's priority. No right is needed for that. */
void lm_sys_end_real_time(void);

/* Returns the kernel's number of the calling thread. */
int lm_sys_thread_id(void);
/* Returns whether a thread of this process has the number. */
bool lm_sys_thread_lives(int thread);

/* Installs a handler for SIGSEGV. It calls `report` with the address that the faulting instruction
 * touched; `report` may do only what signal-safety(7) allows. Then the fault takes the way that it
 * would have taken without loam: to the previous handler, or it ends the process. Called once in a
 * process. */
int lm_sys_on_fault(void (*report)(const void *address));

/* ---- Processes */

/* Sets *out to a descriptor that becomes readable when the process ends. Returns ENOSYS before
 * Linux 5.3. */
int lm_sys_process_open(int pid, int *out);
/* Copies a descriptor of the process that a pidfd stands for: *out, closed on exec. */
int lm_sys_process_copy(int process, int descriptor, int *out);
/* Forks without the hooks of fork, and without a signal at the end of the child: wait(2) does not
 * see the child unless it asks with __WALL. Sets *out to 0 in the child, and to the child's id in
 * the parent. */
int lm_sys_process_hidden(int *out);
/* Closes all descriptors from `first` on. Before Linux 5.9, or where a filter refuses
 * close_range(2), closes one number after another. */
void lm_sys_process_close_from(int first);

/* ---- Clocks and random numbers */

int64_t lm_sys_unix_ns(void);   /* nanoseconds since 1970 */
int64_t lm_sys_clock_ns(void);  /* monotonic */
int64_t lm_sys_coarse_ns(void); /* monotonic, some milliseconds late, at a fifth of the cost */
int64_t lm_sys_boot_ns(void);   /* since the machine's boot, with the time of suspend */
int64_t lm_sys_cpu_ns(void);    /* time that the calling thread has run on a CPU */
uint64_t lm_sys_random(void);

/* ---- Environment and small files */

/* Returns the value of an environment variable, or NULL where it is not set. Always returns NULL in
 * a process whose program was started with more rights than the user who started it has (the
 * kernel's AT_SECURE: a set-user-ID or set-group-ID program, or one with file capabilities), also
 * after it has given those rights up: that user wrote its environment. All of loam reads the
 * environment through this function. The text belongs to the environment. */
const char *lm_sys_getenv(const char *name);

/* Reads at most `size` - 1 bytes of a small file into `buffer`, terminates them, and sets *out to
 * their number. `size` is at least 1. */
int lm_sys_read_file(const char *path, char *buffer, size_t size, size_t *out);

/* Like lm_sys_read_file, but reads from a byte `offset` of the file on, `size` bytes at most, and
 * terminates nothing. */
int lm_sys_read_part(const char *path, size_t offset, void *buffer, size_t size, size_t *out);

/* Reads /proc/PID/status into `text`. Returns what stands behind `field`, such as "\nUid:"; NULL:
 * the file cannot be read, or does not have the field. `pid` is 0 for this process. */
enum { LM_SYS_STATUS = 4096 };
char *lm_sys_process_field(int pid, const char *field, char text[LM_SYS_STATUS]);

/* Opens the directory `path` below the directory `root`, which the path takes for the root of the
 * file system: no symbolic link leads out of it, whoever made it. Returns a descriptor for reading,
 * which exec closes; -1: there is no such directory, or the kernel is older than Linux 5.6. */
int lm_sys_open_below(int root, const char *path);

/* Calls `visit` for each line of a text file of any length. A line above 4095 bytes is cut there.
 * The line is terminated, has no newline, and lives for the call. */
int lm_sys_each_line(const char *path, void (*visit)(void *ctx, const char *line), void *ctx);

/* A mapping of a process. */
typedef struct lm_sys_mapping {
  uintptr_t from, to;
  char access[5]; /* such as "r-xp" */
  uint64_t offset, inode;
  const char *name; /* in the line; "": the mapping has none */
} lm_sys_mapping;

/* Reads a line of /proc/PID/maps. In smaps, such a line stands before the lines with the figures of
 * the mapping. Returns false for any other line. */
bool lm_sys_read_mapping(const char *line, lm_sys_mapping *out);

/* ---- For tests: calls that fail */

#if LOAM_CHECKS >= 1
void lm_sys_refuse(long nth);      /* makes the nth call from now on fail; 0: none */
void lm_sys_refuse_from(long nth); /* makes that call and all after it fail; 0: none */
long lm_sys_calls(void);           /* how many calls have been made that can be made to fail */
const char *lm_sys_refused(void);  /* the function that was last made to fail; "": none was */
/* For the port: counts a call of `function`, and returns whether it is to fail. */
bool lm_sys_refuses(const char *function);
#endif

#endif
