/* sys_linux.c - the operating system, for Linux on x86-64 and arm64. */
#define _GNU_SOURCE 1
#include "os/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "os/descriptor.h"
#include "os/outcome.h"

/* Constants younger than some headers that this is built with. */
enum {
  ADVICE_POPULATE_WRITE = 23,  /* MADV_POPULATE_WRITE */
  ADVICE_DONTNEED_LOCKED = 24, /* MADV_DONTNEED_LOCKED */
  REMAP_DONTUNMAP = 4,         /* MREMAP_DONTUNMAP */
  AUX_RSEQ_FEATURES = 27,      /* AT_RSEQ_FEATURE_SIZE */
  POLICY_MEMS_ALLOWED = 4,     /* MPOL_F_MEMS_ALLOWED */
  POLICY_STATIC = 1 << 15,     /* MPOL_F_STATIC_NODES */
  ADVICE_COLD = 20,            /* MADV_COLD */
  ADVICE_PAGE_OUT = 21,        /* MADV_PAGEOUT */
  ADVICE_COLLAPSE = 25,        /* MADV_COLLAPSE */
  POLICY_MOVE = 2              /* MPOL_MF_MOVE */
};

/* ---- Refusals, for tests */

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

static int map(void *at, size_t size, int access, int flags, void **out) {
  int before = errno;
  void *p = mmap(at, size, access, flags, -1, 0);
  if (p == MAP_FAILED) return outcome(-1, before);
  *out = p;
  return 0;
}

static void unmap(void *at, size_t size) {
  if (size == 0) return;
  int before = errno;
  munmap(at, size); /* fails only for want of kernel memory; then the range stays, unused */
  errno = before;
}

/* Replaces whatever is there in one step: no moment in which another mapping could slip in. It also
 * forgets the old mapping's node policy, advice and locks, which mprotect would keep. */
static int make_reserved(void *at, size_t size) {
  void *same;
  return map(at, size, PROT_NONE, ANONYMOUS | MAP_FIXED, &same);
}

int lm_sys_reserve(size_t size, size_t align, void **out) {
  lm_assert(lm_is_pow2(align) && align >= LM_PAGE);
  if (is_refused()) return ENOMEM;
  size_t slack = align - LM_PAGE;
  if (size > SIZE_MAX - slack) return ENOMEM;
  void *p = NULL;
  int error = map(NULL, size + slack, PROT_NONE, ANONYMOUS, &p);
  if (error) return error;
  uintptr_t start = lm_align_up((uintptr_t)p, align);
  size_t head = start - (uintptr_t)p;
  unmap(p, head);
  unmap((void *)(start + size), slack - head);
  *out = (void *)start;
  return 0;
}

int lm_sys_protect(void *at, size_t size, bool access) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  return outcome(mprotect(at, size, access ? PROT_READ | PROT_WRITE : PROT_NONE), before);
}

int lm_sys_commit(void *at, size_t size) { return lm_sys_protect(at, size, true); }

int lm_sys_make_readable(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  return outcome(mprotect(at, size, PROT_READ), before);
}

int lm_sys_decommit(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  return make_reserved(at, size);
}

static int advise(void *at, size_t size, int advice) {
  int before = errno;
  return outcome(madvise(at, size, advice), before);
}

int lm_sys_purge(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  int error = advise(at, size, MADV_DONTNEED);
  /* EINVAL is also what locked pages answer; Linux 5.18 has a word for those. */
  return error == EINVAL ? advise(at, size, ADVICE_DONTNEED_LOCKED) : error;
}

int lm_sys_resident(const void *at, size_t size, unsigned char *in) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  return outcome(mincore((void *)(uintptr_t)at, size, in), before);
}

int lm_sys_evict_file(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  return advise(at, size, MADV_DONTNEED);
}

int lm_sys_map(size_t size, void **out) {
  if (is_refused()) return ENOMEM;
  return map(NULL, size, PROT_READ | PROT_WRITE, ANONYMOUS, out);
}

void lm_sys_unmap(void *at, size_t size) { unmap(at, size); }

/* A fixed mapping that finds too few pages in the pool has already torn a hole into the
 * reservation. So the pages are had elsewhere first, then moved over it. */
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
  unmap(p, size);
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

/* DONTUNMAP, so that `from` is never a hole that another thread's mmap could fall into. */
int lm_sys_move(void *from, size_t size, void *to) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  int flags = MREMAP_MAYMOVE | MREMAP_FIXED | REMAP_DONTUNMAP;
  if (mremap(from, size, size, flags, to) == MAP_FAILED) return outcome(-1, before);
  make_reserved(from, size); /* a failure leaves it empty and accessible, which is harmless */
  return 0;
}

/* ---- Nodes and memory */

/* The kernel reads one bit less than it is told of. Nodes are always those that were named: without
 * that flag it puts others in their place when one goes or the cpuset changes, and leaves it so. */
static int bind_range(void *at, size_t size, int mode, const uint64_t *mask, unsigned mask_bits,
                      int flags) {
  int before = errno;
  unsigned long bits = mask ? mask_bits + 1 : 0;
  if (mask) mode |= POLICY_STATIC;
  return outcome(syscall(SYS_mbind, at, size, mode, mask, bits, flags), before);
}

int lm_sys_bind(void *at, size_t size, int mode, const uint64_t *mask, unsigned mask_bits) {
  if (is_refused()) return ENOMEM;
  return bind_range(at, size, mode, mask, mask_bits, 0);
}

int lm_sys_rebind(void *at, size_t size, int mode, const uint64_t *mask, unsigned mask_bits) {
  if (is_refused()) return ENOMEM;
  return bind_range(at, size, mode, mask, mask_bits, POLICY_MOVE);
}

int lm_sys_move_pages(void *const *page, const int *node, int *status, size_t pages) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  return outcome(syscall(SYS_move_pages, 0, pages, page, node, status, POLICY_MOVE), before);
}

int lm_sys_nodes_allowed(uint64_t *mask) {
  if (is_refused()) return ENOMEM;
  uint64_t bits[1024 / 64] = { 0 }; /* at least as many as the kernel was built for */
  int before = errno;
  int error = outcome(
      syscall(SYS_get_mempolicy, NULL, bits, sizeof bits * 8, NULL, POLICY_MEMS_ALLOWED), before);
  if (!error) *mask = bits[0];
  return error;
}

/* The head of the kernel's struct rseq, of which older headers end before node_id. */
typedef struct rseq_area {
  uint32_t cpu_id_start;
  int32_t cpu_id; /* negative where the thread is not registered */
  uint64_t rseq_cs;
  uint32_t flags;
  uint32_t node_id; /* Linux 6.3 */
} rseq_area;

_Static_assert(offsetof(rseq_area, node_id) == 5 * sizeof(int) &&
                   offsetof(rseq_area, cpu_id) == sizeof(int),
               "lm_sys_node_fast knows where these are");

_Atomic ptrdiff_t lm_sys_rseq = LM_SYS_RSEQ_UNKNOWN;

static ptrdiff_t find_rseq(void) {
  size_t needed = offsetof(rseq_area, node_id) + sizeof(uint32_t);
  bool told = __rseq_size > 0 && getauxval(AUX_RSEQ_FEATURES) >= needed;
  return told ? __rseq_offset : LM_SYS_RSEQ_NONE;
}

unsigned lm_sys_node(void) {
  if (atomic_load_explicit(&lm_sys_rseq, memory_order_relaxed) == LM_SYS_RSEQ_UNKNOWN)
    atomic_store_explicit(&lm_sys_rseq, find_rseq(), memory_order_relaxed);
  int at_once = lm_sys_node_fast();
  if (at_once >= 0) return (unsigned)at_once;
  unsigned cpu, node;
  return getcpu(&cpu, &node) == 0 ? node : 0;
}

int lm_sys_memory(uint64_t *total, uint64_t *free) {
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

/* Registration is the process's and lasts until exec; asking for it only when it turns out to be
 * missing is right in a forked child too. */
static int barrier_expedited(void) {
  int error = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  if (error != EPERM) return error;
  error = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  return error ? error : membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

int lm_sys_membarrier(void) {
  if (is_refused()) return ENOMEM;
  if (barrier_expedited() == 0) return 0;
  return membarrier(MEMBARRIER_CMD_GLOBAL) == 0 ? 0 : ENOSYS; /* slow, needs nothing */
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

void lm_sys_yield(void) { sched_yield(); }

void lm_sys_sleep(int64_t ns) {
  struct timespec time = { ns / 1000000000, ns % 1000000000 };
  int before = errno;
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL);
  errno = before;
}

int lm_sys_thread_id(void) { return (int)syscall(SYS_gettid); }

bool lm_sys_thread_lives(int thread) {
  int before = errno;
  return outcome(syscall(SYS_tgkill, getpid(), thread, 0), before) != ESRCH;
}

/* ---- Faults */

/* Written before the handler is there. */
static void (*fault_tell)(const void *address);
static struct sigaction fault_before;

/* As it would have gone without us. Back in the program the instruction faults again, now for the
 * default; a signal that somebody sent has to be sent again. */
static void pass_on(int number, siginfo_t *info, void *context) {
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
  if (info->si_code > 0) fault_tell(info->si_addr);
  errno = before;
  pass_on(number, info, context);
}

int lm_sys_on_fault(void (*tell)(const void *address)) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  if (sigaction(SIGSEGV, NULL, &fault_before)) return outcome(-1, before);
  struct sigaction ours = { .sa_sigaction = on_fault, .sa_mask = fault_before.sa_mask };
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (fault_before.sa_flags & (SA_NODEFER | SA_RESTART));
  fault_tell = tell;
  return outcome(sigaction(SIGSEGV, &ours, NULL), before);
}

/* ---- Clocks, chance, small files */

static int64_t clock_ns(clockid_t clock) {
  struct timespec now = { 0 };
  clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t lm_sys_unix_ns(void) { return clock_ns(CLOCK_REALTIME); }
int64_t lm_sys_clock_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
int64_t lm_sys_coarse_ns(void) { return clock_ns(CLOCK_MONOTONIC_COARSE); }
int64_t lm_sys_cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

/* Without the kernel's numbers, the time and the place of the stack through splitmix64's mixer. */
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

static _Thread_local struct {
  uint32_t depth;
  int state, type; /* as they were */
} calm __attribute__((tls_model("initial-exec")));

/* The type as well: a cancellation that was on its way when the state is changed arrives all the
 * same, and the C library then looks at the type alone. */
void lm_sys_cancel_off(void) {
  if (calm.depth++ > 0) return;
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &calm.type);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &calm.state);
}

void lm_sys_cancel_restore(void) {
  int same;
  if (--calm.depth > 0) return;
  pthread_setcancelstate(calm.state, &same);
  pthread_setcanceltype(calm.type, &same);
}

const char *lm_sys_getenv(const char *name) { return secure_getenv(name); }

/* Not read: where the host has put a pipe of its own at the number, nothing is taken out of it. */
static ssize_t read_some(int fd, char *buffer, size_t size, size_t offset) {
  ssize_t n;
  do n = pread(fd, buffer, size, (off_t)offset);
  while (n < 0 && errno == EINTR);
  return n;
}

static int read_all(int fd, char *buffer, size_t size, size_t *out) {
  size_t used = 0;
  ssize_t n = 1;
  while (used < size && n > 0) {
    n = read_some(fd, buffer + used, size - used, used);
    if (n < 0) return errno;
    used += (size_t)n;
  }
  *out = used;
  return 0;
}

static int read_file(const char *path, char *buffer, size_t size, size_t *out) {
  int before = errno;
  lm_descriptor file = lm_descriptor_keep_here(open(path, O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return outcome(-1, before);
  int error = read_all(file.fd, buffer, size - 1, out);
  buffer[error ? 0 : *out] = 0;
  lm_descriptor_close(&file);
  errno = before;
  return error;
}

int lm_sys_read_file(const char *path, char *buffer, size_t size, size_t *out) {
  if (is_refused()) return ENOMEM;
  lm_sys_cancel_off();
  int error = read_file(path, buffer, size, out);
  lm_sys_cancel_restore();
  return error;
}

/* Tells the whole lines of a piece; what is left of it goes to the front. Its length. */
static size_t tell_lines(char *text, size_t length, size_t most,
                         void (*tell)(void *ctx, const char *line), void *ctx) {
  size_t from = 0;
  for (size_t at = 0; at < length; at++) {
    if (text[at] != '\n' && at - from < most) continue;
    text[at] = 0;
    tell(ctx, text + from);
    from = at + 1;
  }
  for (size_t at = from; at < length; at++) text[at - from] = text[at];
  return length - from;
}

static int each_line(const char *path, void (*tell)(void *ctx, const char *line), void *ctx) {
  char text[4096];
  int before = errno;
  lm_descriptor file = lm_descriptor_keep(open(path, O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return outcome(-1, before);
  size_t left = 0, done = 0;
  ssize_t n;
  for (; (n = read_some(file.fd, text + left, sizeof text - left, done)) > 0; done += (size_t)n)
    left = tell_lines(text, left + (size_t)n, 511, tell, ctx);
  int error = n < 0 ? errno : 0;
  lm_descriptor_close(&file);
  errno = before;
  return error;
}

int lm_sys_each_line(const char *path, void (*tell)(void *ctx, const char *line), void *ctx) {
  if (is_refused()) return ENOMEM;
  lm_sys_cancel_off();
  int error = each_line(path, tell, ctx);
  lm_sys_cancel_restore();
  return error;
}
