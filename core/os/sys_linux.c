/* sys_linux.c - the operating system, for Linux: address space, NUMA nodes, threads, faults,
 * clocks. Small files are in sys_read.c, files as memory in sys_file.c. */
#define _GNU_SOURCE 1
#include "os/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/mempolicy.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "os/numa.h"
#include "os/outcome.h"
#include "os/poison.h"

/* Constants that are missing from older kernel headers. */
enum {
  ADVICE_POPULATE_READ = 22,   /* MADV_POPULATE_READ */
  ADVICE_POPULATE_WRITE = 23,  /* MADV_POPULATE_WRITE */
  ADVICE_DONTNEED_LOCKED = 24, /* MADV_DONTNEED_LOCKED */
  REMAP_DONTUNMAP = 4,         /* MREMAP_DONTUNMAP */
  AUX_RSEQ_FEATURES = 27,      /* AT_RSEQ_FEATURE_SIZE */
  ADVICE_COLD = 20,            /* MADV_COLD */
  ADVICE_PAGE_OUT = 21,        /* MADV_PAGEOUT */
  ADVICE_COLLAPSE = 25         /* MADV_COLLAPSE */
};

/* ---- Calls that fail, for tests */

/* The calls from refused_call to last_refused_call fail; refused_call is 0 if none does. Relaxed: a
 * test sets these before the calls that it wants to fail. */
#if LOAM_CHECKS >= 1
static _Atomic long calls, refused_call, last_refused_call;
static _Atomic(const char *) refused_function;

bool lm_sys_refuses(const char *function) {
  long n = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
  long first = atomic_load_explicit(&refused_call, memory_order_relaxed);
  long last = atomic_load_explicit(&last_refused_call, memory_order_relaxed);
  if (!first || n < first || n > last) return false;
  atomic_store_explicit(&refused_function, function, memory_order_relaxed);
  return true;
}

static void refuse_between(long first, long last) {
  atomic_store_explicit(&refused_call, 0, memory_order_relaxed);
  atomic_store_explicit(&last_refused_call, last, memory_order_relaxed);
  atomic_store_explicit(&refused_call, first, memory_order_relaxed);
}

void lm_sys_refuse(long nth) {
  long at = nth ? lm_sys_calls() + nth : 0;
  refuse_between(at, at);
}

void lm_sys_refuse_from(long nth) { refuse_between(nth ? lm_sys_calls() + nth : 0, LONG_MAX); }

long lm_sys_calls(void) { return atomic_load_explicit(&calls, memory_order_relaxed); }

const char *lm_sys_refused(void) {
  const char *function = atomic_load_explicit(&refused_function, memory_order_relaxed);
  return function ? function : "";
}
#endif

/* ---- Address space */

enum { ANONYMOUS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };

LM_INLINE bool is_page(const void *at) { return (uintptr_t)at % LM_PAGE == 0; }

static int map(void *at, size_t size, int access, int flags, void **out) {
  int before = errno;
  void *p = mmap(at, size, access, flags, -1, 0);
  if (p == MAP_FAILED) return outcome(-1, before);
  *out = p;
  return 0;
}

void lm_sys_unmap(void *at, size_t size) {
  if (size == 0) return;
  int before = errno;
  munmap(at, size); /* fails only if the kernel has no memory; then the range stays, unused */
  errno = before;
}

size_t lm_sys_page_size(void) { return getauxval(AT_PAGESZ); }

/* Replaces the mapping of a range in one step, so no other mapping can take the range in between.
 * The new mapping also has no node policy, advice or locks, which mprotect would keep. */
static int make_reserved(void *at, size_t size) {
  void *same;
  lm_assert(is_page(at) && size % LM_PAGE == 0);
  return map(at, size, PROT_NONE, ANONYMOUS | MAP_FIXED, &same);
}

/* Where the kernel has put the mapping above LM_SIZE_MAX, as AArch64 does, the place with the same
 * lower bits is asked for, and then places further and further down. So the place is as random as
 * the kernel's own. */
int lm_sys_reserve(size_t size, void **out) {
  void *p = NULL;
  lm_assert(out && size);
  if (is_refused()) return ENOMEM;
  int error = map(NULL, size, PROT_NONE, ANONYMOUS, &p);
  uintptr_t hint = (uintptr_t)p % LM_SIZE_MAX;
  for (size_t step = size; !error && (uintptr_t)p + size > LM_SIZE_MAX; step *= 2) {
    lm_sys_unmap(p, size);
    if (hint <= step) return ENOMEM;
    error = map((void *)hint, size, PROT_NONE, ANONYMOUS, &p);
    hint -= step;
  }
  if (!error) *out = p;
  return error;
}

/* Before Linux 4.17 the address is a hint, and the mapping is elsewhere if the place is taken. */
int lm_sys_reserve_at(void *at, size_t size) {
  void *p = NULL;
  lm_assert(is_page(at) && size);
  if (is_refused()) return ENOMEM;
  int error = map(at, size, PROT_NONE, ANONYMOUS | MAP_FIXED_NOREPLACE, &p);
  if (error || p == at) return error;
  lm_sys_unmap(p, size);
  return EEXIST;
}

int lm_sys_commit(void *at, size_t size) {
  lm_assert(is_page(at));
  if (is_refused()) return ENOMEM;
  int before = errno;
  return outcome(mprotect(at, size, PROT_READ | PROT_WRITE), before);
}

int lm_sys_make_readable(void *at, size_t size) {
  lm_assert(is_page(at));
  if (is_refused()) return ENOMEM;
  int before = errno;
  return outcome(mprotect(at, size, PROT_READ), before);
}

int lm_sys_decommit(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  return make_reserved(at, size);
}

/* The preload library's madvise asks whose memory it is, which it need not ask of loam itself. */
static int advise(void *at, size_t size, int advice) {
  int before = errno;
  lm_assert(is_page(at));
  return outcome((int)syscall(SYS_madvise, at, size, advice), before);
}

int lm_sys_purge(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  int error = advise(at, size, MADV_DONTNEED);
  /* Locked pages also give EINVAL. Linux 5.18 has an advice that purges those too. */
  return error == EINVAL ? advise(at, size, ADVICE_DONTNEED_LOCKED) : error;
}

int lm_sys_resident(const void *at, size_t size, unsigned char *in) {
  lm_assert(is_page(at) && in);
  if (is_refused()) return ENOMEM;
  int before = errno;
  return outcome(mincore((void *)(uintptr_t)at, size, in), before);
}

int lm_sys_map(size_t size, void **out) {
  lm_assert(out && size);
  if (is_refused()) return ENOMEM;
  return map(NULL, size, PROT_READ | PROT_WRITE, ANONYMOUS, out);
}

int lm_sys_map_readable(size_t size, void **out) {
  lm_assert(out && size);
  if (is_refused()) return ENOMEM;
  return map(NULL, size, PROT_READ, ANONYMOUS, out);
}

int lm_sys_map_wiped(size_t size, void **out) {
  void *at = NULL;
  int error = lm_sys_map(size, &at);
  if (error) return error;
  error = is_refused() ? ENOMEM : advise(at, size, MADV_WIPEONFORK);
  if (error) lm_sys_unmap(at, size);
  else *out = at;
  return error;
}

/* A fixed mapping that finds too few huge pages has already removed part of the reservation. So the
 * pages are mapped elsewhere first and then moved over the reservation. */
int lm_sys_commit_huge(void *at, size_t size, size_t page) {
  lm_assert(lm_is_pow2(page) && ((uintptr_t)at | size) % page == 0);
  if (is_refused()) return ENOMEM;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | __builtin_ctzl(page) << MAP_HUGE_SHIFT;
  void *p = NULL;
  int error = map(NULL, size, PROT_READ | PROT_WRITE, flags, &p);
  if (error) return error;
  int before = errno;
  if (mremap(p, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED) return 0;
  error = outcome(-1, before);
  lm_sys_unmap(p, size);
  make_reserved(at, size);
  return error;
}

int lm_sys_advise_huge(void *at, size_t size, int wanted) {
  if (is_refused()) return ENOMEM;
  return advise(at, size, wanted ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

int lm_sys_prefault(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  return advise(at, size, ADVICE_POPULATE_WRITE);
}

int lm_sys_preread(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  return advise(at, size, ADVICE_POPULATE_READ);
}

int lm_sys_mlock(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  return outcome(mlock(at, size), before);
}

int lm_sys_munlock(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  return outcome(munlock(at, size), before);
}

int lm_sys_collapse(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  return advise(at, size, ADVICE_COLLAPSE);
}

int lm_sys_advise_cold(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  return advise(at, size, ADVICE_COLD);
}

int lm_sys_page_out(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  return advise(at, size, ADVICE_PAGE_OUT);
}

/* Returns whether a range is in one mapping. mremap(2) looks at that before it tries to make the
 * range a page longer. It can do that only if no mapping is behind the range. */
static bool is_one_mapping(char *at, size_t size) {
  int before = errno;
  bool is_longer = mremap(at, size, size + LM_PAGE, 0) != MAP_FAILED;
  bool is_one = is_longer || errno != EFAULT;
  errno = before;
  if (is_longer) lm_sys_unmap(at + size, LM_PAGE);
  return is_one;
}

/* Returns how many bytes of a range are in the mapping of its first page. */
static size_t piece_of(char *at, size_t size) {
  size_t in = LM_PAGE, beyond = size;
  if (is_one_mapping(at, size)) return size;
  while (beyond - in > LM_PAGE) {
    size_t middle = lm_align_down(in + (beyond - in) / 2, LM_PAGE);
    if (is_one_mapping(at, middle)) in = middle;
    else beyond = middle;
  }
  return in;
}

/* REMAP_DONTUNMAP keeps a mapping at `from`, so no mmap of another thread can take that range. */
static int move_piece(char *from, size_t size, char *to) {
  int before = errno, flags = MREMAP_MAYMOVE | MREMAP_FIXED | REMAP_DONTUNMAP;
  return outcome(mremap(from, size, size, flags, to) == MAP_FAILED ? -1 : 0, before);
}

/* One mapping is moved after the other. Linux 6.17 can move several in one call. But if that fails
 * in the middle, as at the limit of mappings, it does not tell which of them it has moved. Older
 * kernels unmap `to` before they find that there are several, and then another thread could map
 * memory there. Linux 6.1 also unmaps `to` when it has no memory. */
int lm_sys_move(void *from, size_t size, void *to) {
  int error = 0;
  lm_assert(is_page(to) && size && size % LM_PAGE == 0);
  if (is_refused()) return ENOMEM;
  for (size_t done = 0, piece; done < size; done += piece) {
    piece = piece_of((char *)from + done, size - done);
    error = move_piece((char *)from + done, piece, (char *)to + done);
    if (!error) continue;
    lm_unpoison(to, done);
    memcpy(from, to, done); /* `from` is accessible and empty there */
    make_reserved(to, size);
    return error;
  }
  make_reserved(from, size); /* if it fails, `from` is empty and accessible, which is harmless */
  return 0;
}

/* The kernel copies the page's mapping, which is not locked, and makes the copy longer. The page
 * itself is of zeros, and REMAP_DONTUNMAP leaves it as such. */
int lm_sys_map_like(void *page, size_t size, void **out) {
  lm_assert(is_page(page) && out && size > LM_PAGE);
  if (is_refused()) return ENOMEM;
  int before = errno;
  void *copy = mremap(page, LM_PAGE, LM_PAGE, MREMAP_MAYMOVE | REMAP_DONTUNMAP, NULL);
  if (copy == MAP_FAILED) return outcome(-1, before);
  void *longer = mremap(copy, LM_PAGE, size, MREMAP_MAYMOVE);
  if (longer != MAP_FAILED) {
    *out = longer;
    return 0;
  }
  int error = outcome(-1, before);
  lm_sys_unmap(copy, LM_PAGE);
  return error;
}

/* ---- Nodes and memory */

enum { MASK_BITS = 64 };

_Static_assert((int)LM_BIND_DEFAULT == (int)MPOL_DEFAULT &&
                   (int)LM_BIND_PREFERRED == (int)MPOL_PREFERRED &&
                   (int)LM_BIND_BIND == (int)MPOL_BIND &&
                   (int)LM_BIND_INTERLEAVE == (int)MPOL_INTERLEAVE &&
                   (int)LM_BIND_LOCAL == (int)MPOL_LOCAL,
               "modes are passed to the kernel as they are");

/* The kernel reads one bit less than the number of bits that it is given. Without
 * MPOL_F_STATIC_NODES it would replace the nodes by others, for good, when a node goes or the
 * cpuset changes. */
static int bind_range(void *at, size_t size, int mode, const uint64_t *nodes, int flags) {
  int before = errno;
  lm_assert(is_page(at) && mode >= 0 && mode < MPOL_F_STATIC_NODES);
  unsigned long bits = nodes ? MASK_BITS + 1 : 0;
  if (nodes) mode |= MPOL_F_STATIC_NODES;
  return outcome(syscall(SYS_mbind, at, size, mode, nodes, bits, flags), before);
}

int lm_sys_bind(void *at, size_t size, int mode, const uint64_t *nodes) {
  if (is_refused()) return ENOMEM;
  return bind_range(at, size, mode, nodes, 0);
}

int lm_sys_rebind(void *at, size_t size, int mode, const uint64_t *nodes) {
  if (is_refused()) return ENOMEM;
  return bind_range(at, size, mode, nodes, MPOL_MF_MOVE);
}

int lm_sys_move_pages(void *const *page, const int *node, int *status, size_t pages) {
  lm_assert(!pages || (page && status));
  if (is_refused()) return ENOMEM;
  int before = errno;
  return outcome(syscall(SYS_move_pages, 0, pages, page, node, status, MPOL_MF_MOVE), before);
}

int lm_sys_pages_of(int pid, void *const *page, int *status, size_t pages) {
  lm_assert(!pages || (page && status));
  if (is_refused()) return ENOMEM;
  int before = errno;
  return outcome(syscall(SYS_move_pages, pid, pages, page, NULL, status, MPOL_MF_MOVE), before);
}

int lm_sys_nodes_allowed(uint64_t *mask) {
  if (is_refused()) return ENOMEM;
  uint64_t bits[1024 / 64] = { 0 }; /* the kernel wants room for all nodes it was built for */
  lm_assert(mask);
  int before = errno;
  int error = outcome(
      syscall(SYS_get_mempolicy, NULL, bits, sizeof bits * 8, NULL, MPOL_F_MEMS_ALLOWED), before);
  if (!error) *mask = bits[0];
  return error;
}

/* The first fields of the kernel's struct rseq. In older headers the struct ends before node_id. */
typedef struct rseq_area {
  uint32_t cpu_id_start;
  int32_t cpu_id; /* negative while the thread is not registered */
  uint64_t rseq_cs;
  uint32_t flags;
  uint32_t node_id; /* Linux 6.3 */
} rseq_area;

_Static_assert(offsetof(rseq_area, node_id) == 5 * sizeof(int) &&
                   offsetof(rseq_area, cpu_id) == sizeof(int),
               "lm_sys_node_fast reads these fields");

_Atomic ptrdiff_t lm_sys_rseq = LM_SYS_RSEQ_UNKNOWN;

/* Returns the offset of the rseq area if the C library has registered one and the kernel keeps the
 * node in it, else LM_SYS_RSEQ_NONE. */
static ptrdiff_t find_rseq(void) {
  size_t needed = offsetof(rseq_area, node_id) + sizeof(uint32_t);
  int before = errno;
  bool has_node = __rseq_size > 0 && getauxval(AUX_RSEQ_FEATURES) >= needed;
  errno = before; /* getauxval sets it where the kernel has no such entry */
  return has_node ? __rseq_offset : LM_SYS_RSEQ_NONE;
}

unsigned lm_sys_node(void) {
  if (atomic_load_explicit(&lm_sys_rseq, memory_order_relaxed) == LM_SYS_RSEQ_UNKNOWN)
    atomic_store_explicit(&lm_sys_rseq, find_rseq(), memory_order_relaxed);
  int fast = lm_sys_node_fast();
  if (fast >= 0) return (unsigned)fast;
  unsigned cpu, node;
  return getcpu(&cpu, &node) == 0 ? node : 0;
}

int lm_sys_memory(uint64_t *total, uint64_t *free) {
  lm_assert(total && free);
  if (is_refused()) return ENOMEM;
  struct sysinfo info;
  int before = errno;
  int error = outcome(sysinfo(&info), before);
  if (error) return error;
  *total = (uint64_t)info.totalram * info.mem_unit;
  *free = (uint64_t)info.freeram * info.mem_unit;
  return 0;
}

/* ---- Threads */

static int membarrier(int command) {
  int before = errno;
  return outcome(syscall(SYS_membarrier, command, 0, 0), before);
}

/* A process registers once, until exec. Registering only when the call says that it is missing is
 * right in a forked child too. */
static int barrier_expedited(void) {
  int error = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  if (error != EPERM) return error;
  error = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  return error ? error : membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

int lm_sys_membarrier(void) {
  if (is_refused()) return ENOMEM;
  if (barrier_expedited() == 0) return 0;
  return membarrier(MEMBARRIER_CMD_GLOBAL) == 0 ? 0 : ENOSYS; /* slow, needs no registration */
}

void lm_sys_wait(_Atomic uint32_t *word, uint32_t value) {
  int before = errno;
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
  errno = before;
}

void lm_sys_wake(_Atomic uint32_t *word) {
  int before = errno;
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
  errno = before;
}

void lm_sys_sleep(int64_t ns) {
  lm_assert(ns >= 0);
  struct timespec time = { ns / 1000000000, ns % 1000000000 };
  int before = errno;
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL);
  errno = before;
}

void lm_sys_wait_a_little(int tries) {
  enum { YIELDS = 16, NAP_STEP_NS = 20000, NAPS_GROW = 50 };
  int naps = tries - YIELDS + 1;
  if (naps > 0) lm_sys_sleep((int64_t)NAP_STEP_NS * (naps < NAPS_GROW ? naps : NAPS_GROW));
  else sched_yield();
}

void lm_sys_end_real_time(void) {
  int before = errno, policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
  if (policy == SCHED_FIFO || policy == SCHED_RR)
    (void)sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
  errno = before;
}

int lm_sys_process_open(int pid, int *out) {
  if (is_refused()) return ENOSYS;
  int before = errno, fd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (fd >= 0) *out = fd;
  return outcome(fd < 0 ? -1 : 0, before);
}

int lm_sys_process_copy(int process, int descriptor, int *out) {
  if (is_refused()) return ENOSYS;
  int before = errno, fd = (int)syscall(SYS_pidfd_getfd, process, descriptor, 0);
  if (fd >= 0) *out = fd;
  return outcome(fd < 0 ? -1 : 0, before);
}

int lm_sys_process_hidden(int *out) {
  if (is_refused()) return EAGAIN;
  int before = errno, pid = (int)syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
  if (pid >= 0) *out = pid;
  return outcome(pid < 0 ? -1 : 0, before);
}

/* Returns a number above all descriptors: the length of the kernel's table of them. */
static int descriptor_end(void) {
  enum { MOST = 1 << 20 }; /* where /proc does not tell */
  char text[LM_SYS_STATUS];
  const char *size = lm_sys_process_field(0, "\nFDSize:", text);
  return size ? (int)strtol(size, NULL, 10) : MOST;
}

void lm_sys_process_close_from(int first) {
  int before = errno;
  bool is_done = !is_refused() && !syscall(SYS_close_range, first, ~0u, 0);
  int end = is_done ? first : descriptor_end();
  for (int fd = first; fd < end; fd++) close(fd);
  errno = before;
}

int lm_sys_thread_id(void) { return (int)syscall(SYS_gettid); }

bool lm_sys_thread_lives(int thread) {
  lm_assert(thread > 0);
  int before = errno;
  return outcome(syscall(SYS_tgkill, getpid(), thread, 0), before) != ESRCH;
}

/* ---- Faults */

/* The function that lm_sys_on_fault was given, and the handler that SIGSEGV had before. Both are
 * written before loam's handler is installed. */
static void (*report_fault)(const void *address);
static struct sigaction fault_before;

/* Treats the signal as the process would without loam. If that is the default action, this restores
 * it, and the instruction faults again when the handler returns. A signal that a process sent must
 * be sent again. */
static void treat_as_before(int number, siginfo_t *info, void *context) {
  if (fault_before.sa_flags & SA_SIGINFO) {
    fault_before.sa_sigaction(number, info, context);
    return;
  }
  if (fault_before.sa_handler != SIG_DFL && fault_before.sa_handler != SIG_IGN) {
    fault_before.sa_handler(number);
    return;
  }
  bool was_sent = info->si_code <= 0;
  if (was_sent && fault_before.sa_handler == SIG_IGN) return;
  sigaction(number, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
  if (was_sent) raise(number); /* pending until the handler returns */
}

static void on_fault(int number, siginfo_t *info, void *context) {
  int before = errno;
  if (info->si_code > 0) report_fault(info->si_addr);
  errno = before;
  treat_as_before(number, info, context);
}

int lm_sys_on_fault(void (*report)(const void *address)) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  if (sigaction(SIGSEGV, NULL, &fault_before)) return outcome(-1, before);
  struct sigaction ours = { .sa_sigaction = on_fault, .sa_mask = fault_before.sa_mask };
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (fault_before.sa_flags & (SA_NODEFER | SA_RESTART));
  lm_assert(report && !report_fault);
  report_fault = report;
  return outcome(sigaction(SIGSEGV, &ours, NULL), before);
}

/* ---- Clocks, random numbers */

static int64_t clock_ns(clockid_t clock) {
  struct timespec now = { 0 };
  clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t lm_sys_unix_ns(void) { return clock_ns(CLOCK_REALTIME); }
int64_t lm_sys_clock_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
int64_t lm_sys_coarse_ns(void) { return clock_ns(CLOCK_MONOTONIC_COARSE); }
int64_t lm_sys_boot_ns(void) { return clock_ns(CLOCK_BOOTTIME); }
int64_t lm_sys_cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

/* Where the kernel has no random number yet: the time and the address of the stack, mixed as in
 * splitmix64 (Steele, Lea, Flood, 2014). */
uint64_t lm_sys_random(void) {
  uint64_t x;
  int before = errno;
  lm_sys_cancel_off();
  bool have = getrandom(&x, sizeof x, GRND_NONBLOCK) == sizeof x;
  lm_sys_cancel_restore();
  errno = before;
  if (have) return x;
  x = (uint64_t)lm_sys_clock_ns() ^ (uintptr_t)&x;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* ---- Cancellation */

static _Thread_local struct {
  uint32_t depth;  /* how many calls of lm_sys_cancel_off have had no lm_sys_cancel_restore yet */
  int state, type; /* what the thread had before depth became 1 */
} cancel_off __attribute__((tls_model("initial-exec")));

/* Changes the type as well as the state: a cancellation that was being sent when the state changes
 * still arrives, and the C library then looks at the type alone. */
void lm_sys_cancel_off(void) {
  if (cancel_off.depth++ > 0) return;
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &cancel_off.type);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_off.state);
}

void lm_sys_cancel_restore(void) {
  int ignored;
  lm_assert(cancel_off.depth > 0);
  if (--cancel_off.depth > 0) return;
  pthread_setcancelstate(cancel_off.state, &ignored);
  pthread_setcanceltype(cancel_off.type, &ignored);
}

/* ---- Environment */

const char *lm_sys_getenv(const char *name) { return secure_getenv(name); }

/* ---- Directories */

int lm_sys_open_below(int root, const char *path) {
  struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW,
                          .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
  int before = errno, fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
  errno = before;
  return fd;
}
