/* lock.c - mlockall: what loam has reserved and not used is not locked.
 *
 * loam reserves a terabyte without access. Before it lies a gibibyte of entries that can be read;
 * almost all of them are zeros. The kernel's mlockall counts all of it against RLIMIT_MEMLOCK, and
 * makes a page table entry for each page that can be read. It also fills the board, which is a
 * sparse file. So here the kernel only marks mappings: their pages are locked when they are
 * touched. Then this file has the kernel touch every page of the mappings that hold memory of the
 * program. Where the limit is below the reserved address space, those mappings alone are marked;
 * what loam takes from its range later is not locked then. Where the limit is below that too, only
 * those parts of loam's own mappings are marked that have memory: loam makes more accessible than
 * the program has asked for. */
#define _GNU_SOURCE 1
#include "preload.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE_ROOM = 8192, POPULATE_READ = 22, POPULATE_WRITE = 23 };

/* How mappings are locked. SPARSELY: of loam's mappings, the parts that have memory. MEASURED: they
 * are not locked; their bytes are counted. */
enum { ON_FAULT = 1, SPARSELY = 2, MEASURED = 4 };

/* The mappings that are to be locked. `bytes` counts those that were measured. */
typedef struct order {
  int how;
  size_t bytes;
} order;

/* Parts of mappings have memory if one of their pages has. */
enum { PAGE = 4096, PART_PAGES = 4, PART = PART_PAGES * PAGE };

/* A mapping, as a line of /proc/self/maps has it: "FROM-TO rwxp OFFSET DEVICE INODE PATH". */
typedef struct mapping {
  char *from;
  size_t size;
  const char *access; /* four letters */
} mapping;

static bool read_mapping(char *line, mapping *out) {
  char *end;
  uintptr_t from = strtoull(line, &end, 16), to = *end == '-' ? strtoull(end + 1, &end, 16) : 0;
  out->from = (char *)from;
  out->size = to - from;
  out->access = end + 1;
  return to > from && *end == ' ';
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), n = strlen(end);
  return length >= n && !memcmp(text + length - n, end, n);
}

/* Returns whether a mapping holds memory that the program uses. The kernel's own, such as [vdso],
 * are never paged out. */
static bool is_in_use(const mapping *m, const char *line) {
  if (m->access[0] != 'r' || ends_with(line, ".board") || strstr(line, " [v")) return false;
  return m->access[1] == 'w' || !loam_owns(m->from);
}

/* The linker's names for the zeroed data of this library. A page of the board may be mapped amid
 * them (os/published.h), so they may be several mappings. */
extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));

/* Returns whether a mapping may be much larger than the memory that the program asked for. Such
 * mappings are loam's memory, the zeroed data of this library, and private memory that can only be
 * read. */
static bool is_sparse(const mapping *m, const char *line) {
  if (m->access[3] != 'p' || !strstr(line, " 00:00 0")) return false;
  bool is_own = m->from < _end && m->from + m->size > __bss_start;
  return is_own || m->access[1] != 'w' || loam_owns(m->from);
}

/* Locks a mapping, or a part of one, or measures it. Returns false if the limit does not allow it.
 * A page that cannot be read, such as one past the end of a file, is no failure; mlockall does not
 * fail for it either. */
static bool lock_mapping(const mapping *m, order *o) {
  o->bytes += o->how & MEASURED ? m->size : 0;
  if (o->how & MEASURED) return true;
  if (mlock2(m->from, m->size, MLOCK_ONFAULT)) return false;
  bool is_private = m->access[3] == 'p', can_write = m->access[1] == 'w';
  int advice = is_private && can_write ? POPULATE_WRITE : POPULATE_READ;
  if (!(o->how & ON_FAULT) && madvise(m->from, m->size, advice) && errno == EINVAL)
    (void)mlock(m->from, m->size); /* a kernel before 5.14 */
  return true;
}

/* A mapping begins with parts that all have memory, or that all have none. Returns the bytes of
 * these parts. Sets *has to whether they have memory. */
static size_t measure_parts(const mapping *m, bool *has) {
  size_t size = 0;
  while (size < m->size) {
    unsigned char in[PART_PAGES] = { 0 };
    size_t part = m->size - size < PART ? m->size - size : PART;
    bool has_memory = mincore(m->from + size, part, in) || memchr(in, 1, part / PAGE);
    if (!size) *has = has_memory;
    if (has_memory != *has) break;
    size += part;
  }
  return size;
}

/* Locks the parts of a mapping that have memory. */
static bool lock_parts(mapping m, order *o) {
  bool has = false;
  for (char *end = m.from + m.size; m.from < end; m.from += m.size) {
    m.size = (size_t)(end - m.from);
    m.size = measure_parts(&m, &has);
    if (has && !lock_mapping(&m, o)) return false;
  }
  return true;
}

/* Locks all mappings of the lines in `text`, and moves an incomplete line to its beginning. Returns
 * the length of that line; -1: the limit does not allow a mapping. */
static ssize_t lock_lines(char *text, size_t length, order *o) {
  char *line = text, *end;
  while ((end = memchr(line, '\n', length)) != NULL) {
    mapping m;
    *end = 0;
    bool is_used = read_mapping(line, &m) && is_in_use(&m, line);
    bool is_part = is_used && o->how & SPARSELY && is_sparse(&m, line);
    if (is_used && !(is_part ? lock_parts(m, o) : lock_mapping(&m, o))) return -1;
    length -= (size_t)(end + 1 - line);
    line = end + 1;
  }
  memmove(text, line, length);
  return (ssize_t)length;
}

/* Locks what the program uses, or measures it. Returns false if the limit does not allow it, or if
 * the list of mappings cannot be read. */
static bool serve_order(order *o) {
  char text[LINE_ROOM];
  ssize_t left = 0, n = 0;
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  while (left >= 0 && left < LINE_ROOM &&
         (n = read(fd, text + left, (size_t)(LINE_ROOM - left))) > 0)
    left = lock_lines(text, (size_t)(left + n), o);
  close(fd);
  return left == 0 && n == 0;
}

static bool lock_used(int how) { return serve_order(&(order){ how, 0 }); }

/* Returns whether the process has the right to lock memory beyond its limit. */
static bool is_unlimited(void) {
  struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
  struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };
  return !syscall(SYS_capget, &header, data) && data[0].effective & 1u << CAP_IPC_LOCK;
}

/* Returns whether the limit allows to lock what the program uses. Locks nothing. */
static bool fits_limit(int how) {
  struct rlimit limit;
  order o = { how | MEASURED, 0 };
  if (is_unlimited()) return true;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) || !serve_order(&o)) return false;
  return limit.rlim_cur == RLIM_INFINITY || o.bytes <= limit.rlim_cur;
}

static int kernel_mlockall(int flags) { return (int)syscall(SYS_mlockall, flags); }

static int refuse(void) {
  errno = ENOMEM;
  return -1;
}

/* Serves a call that the kernel has refused, because the limit is below the reserved address space.
 * The kernel does not compare MCL_FUTURE alone with the limit. What is above the limit is refused
 * before anything is locked: like the kernel's, a call that fails leaves earlier locks alone. */
static int lock_within_limit(int flags) {
  int future = flags & ~MCL_CURRENT, how = flags & MCL_ONFAULT ? ON_FAULT : 0;
  if (!fits_limit(SPARSELY)) return refuse();
  bool fits_whole = fits_limit(0);
  if (future & MCL_FUTURE && kernel_mlockall(future)) return -1;
  if (fits_whole) {
    /* Tried without touching a page first: a page that was touched counts as used, also if the lock
     * fails. */
    if (lock_used(ON_FAULT) && (how & ON_FAULT || lock_used(how))) return 0;
    munlockall();
    if (future & MCL_FUTURE) (void)kernel_mlockall(future);
  }
  if (lock_used(how | SPARSELY)) return 0;
  munlockall();
  return refuse();
}

/* Serves a call that has MCL_CURRENT. */
static int lock_all(int flags) {
  if (kernel_mlockall(flags | MCL_ONFAULT)) return errno == ENOMEM ? lock_within_limit(flags) : -1;
  (void)lock_used(flags & MCL_ONFAULT ? ON_FAULT : 0);
  /* This changes later mappings only: they get their pages when they are made. */
  if (flags & MCL_FUTURE && !(flags & MCL_ONFAULT)) (void)kernel_mlockall(MCL_FUTURE);
  return 0;
}

PRELOAD_API int mlockall(int flags) {
  int before = errno;
  if (!(flags & MCL_CURRENT)) return kernel_mlockall(flags);
  if (lock_all(flags)) return -1;
  errno = before;
  return 0;
}
