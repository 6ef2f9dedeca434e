/* large.c - large arrays: they are allocated, written to and freed; they are read at random; one
 * block is allocated again and again.
 *
 *   large PART WAY SIZE_MIB COUNT
 *
 * Prints one figure on standard output. The figure of `cycle` and `reuse` is the ns of a cycle:
 * SIZE_MIB are allocated, a byte of each page is written, and they are freed. `cycle` prints the
 * best of COUNT cycles, `reuse` their mean. The figure of `reads` is the ns of one of COUNT
 * thousand reads of 8 bytes at random places of the block; the address of each depends on the read
 * before. If the way is not possible here, the program prints the reason on standard error, and no
 * figure. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"

enum { PAGE = 4096 };

/* ---- Ways to allocate --------------------------------------------------------------------- */

static size_t size;
static loam_site *site;
static void *(*onnode)(size_t size, int node);
static void (*onnode_free)(void *p, size_t size);
static void *(*kind_malloc)(void *kind, size_t size);
static void (*kind_free)(void *kind, void *p);
static void **kind_default;

static void absent(const char *what) {
  fprintf(stderr, "not measured: %s\n", what);
  exit(0);
}

static void *advised(void *p, int advice) {
  uintptr_t from = ((uintptr_t)p + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
  uintptr_t to = ((uintptr_t)p + size) & ~(uintptr_t)(PAGE - 1);
  if (p) madvise((void *)from, to - from, advice);
  return p;
}

static void *by_malloc(void) { return malloc(size); }
static void *by_malloc_thp(void) { return advised(malloc(size), MADV_HUGEPAGE); }
static void *by_malloc_small(void) { return advised(malloc(size), MADV_NOHUGEPAGE); }

static void *by_memalign(void) {
  void *p = NULL;
  return posix_memalign(&p, 64, size) ? NULL : p;
}
static void *by_memalign_thp(void) { return advised(by_memalign(), MADV_HUGEPAGE); }

static void *by_mmap_with(int flags) {
  int all = MAP_PRIVATE | MAP_ANONYMOUS | flags;
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, all, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}
static void *by_mmap(void) { return by_mmap_with(0); }
static void *by_mmap_thp(void) { return advised(by_mmap(), MADV_HUGEPAGE); }
static void *by_mmap_2mib(void) { return by_mmap_with(MAP_HUGETLB | 21 << 26); }
static void end_mmap(void *p) { munmap(p, size); }

static void *by_numa(void) { return onnode(size, 0); }
static void end_numa(void *p) { onnode_free(p, size); }
static void *by_memkind(void) { return kind_malloc(*kind_default, size); }
static void end_memkind(void *p) { kind_free(*kind_default, p); }
static void *by_loam(void) { return loam_malloc(site, size); }

static const struct way {
  const char *name;
  void *(*make)(void);
  void (*end)(void *p);
  const char *options; /* options of loam.host; NULL: not loam's */
} ways[] = {
  { "malloc", by_malloc, free, NULL },
  { "malloc+4KiB", by_malloc_small, free, NULL },
  { "malloc+thp", by_malloc_thp, free, NULL },
  { "posix_memalign", by_memalign, free, NULL },
  { "posix_memalign+thp", by_memalign_thp, free, NULL },
  { "mmap", by_mmap, end_mmap, NULL },
  { "mmap+thp", by_mmap_thp, end_mmap, NULL },
  { "mmap+2MiB", by_mmap_2mib, end_mmap, NULL },
  { "numa_alloc_onnode", by_numa, end_numa, NULL },
  { "memkind", by_memkind, end_memkind, NULL },
  { "loam", by_loam, loam_free, "" },
  { "loam+4KiB", by_loam, loam_free, "huge = false" },
  { "loam+thp", by_loam, loam_free, "huge = 'thp'" },
  { "loam+2MiB", by_loam, loam_free, "huge = '2MiB'" },
  { "loam+node", by_loam, loam_free, "numa = 0" },
};

static void open_numa(void) {
  void *numa = dlopen("libnuma.so.1", RTLD_NOW);
  int (*available)(void) = numa ? (int (*)(void))dlsym(numa, "numa_available") : NULL;
  if (!available || available() < 0) absent("libnuma serves nothing here");
  onnode = (void *(*)(size_t, int))dlsym(numa, "numa_alloc_onnode");
  onnode_free = (void (*)(void *, size_t))dlsym(numa, "numa_free");
  if (!onnode || !onnode_free) absent("libnuma lacks numa_alloc_onnode");
}

static void open_memkind(void) {
  void *memkind = dlopen("libmemkind.so.0", RTLD_NOW);
  if (!memkind) absent("libmemkind.so.0 is not installed");
  kind_malloc = (void *(*)(void *, size_t))dlsym(memkind, "memkind_malloc");
  kind_free = (void (*)(void *, void *))dlsym(memkind, "memkind_free");
  kind_default = dlsym(memkind, "MEMKIND_DEFAULT");
  if (!kind_malloc || !kind_free || !kind_default) absent("libmemkind lacks what is called");
}

static void open_loam(const char *options) {
  char text[256];
  snprintf(text, sizeof text,
           "local all = loam.host { %s }\n"
           "return loam.policy { name = 'large', pick = function(req) return all end }\n",
           options);
  if (loam_start(NULL) != LOAM_OK) absent(loam_error());
  if (loam_policy_load_text("large", text) != LOAM_OK) absent(loam_error());
  site = loam_site_get("bench.array");
}

static const struct way *open_way(const char *name) {
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    if (strcmp(ways[i].name, name) != 0) continue;
    if (ways[i].options) open_loam(ways[i].options);
    if (ways[i].make == by_numa) open_numa();
    if (ways[i].make == by_memkind) open_memkind();
    return &ways[i];
  }
  fprintf(stderr, "no way %s\n", name);
  exit(2);
}

/* ---- Parts -------------------------------------------------------------------------------- */

static char *made(const struct way *way) {
  char *p = way->make();
  if (!p) absent("there is no such memory, or not enough");
  return p;
}

static void cycle(const struct way *way) {
  char *p = made(way);
  for (size_t i = 0; i < size; i += PAGE) *(volatile char *)(p + i) = 1;
  way->end(p);
}

/* Returns the best of `count` cycles. A cycle before them is not counted: it finds no memory that
 * another one left. */
static double cycles(const struct way *way, long count) {
  double best = 1e300;
  cycle(way);
  for (long i = 0; i < count; i++) {
    int64_t start = bench_now();
    cycle(way);
    double each = (double)(bench_now() - start);
    if (each < best) best = each;
  }
  return best;
}

static double reuse(const struct way *way, long count) {
  cycle(way);
  int64_t start = bench_now();
  for (long i = 0; i < count; i++) cycle(way);
  return (double)(bench_now() - start) / (double)count;
}

/* The block holds zeros. Each read adds its value to the next address, so that the next read waits
 * for it. */
static double reads_once(const uint64_t *block, uint64_t words, long thousands, uint64_t *x) {
  int64_t start = bench_now();
  for (long i = 0; i < thousands * 1000; i++) {
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    *x += block[(uint64_t)(((unsigned __int128)*x * words) >> 64)];
  }
  return (double)(bench_now() - start) / (double)(thousands * 1000);
}

static double reads(const struct way *way, long thousands) {
  uint64_t *block = (uint64_t *)made(way), x = 1;
  double best = 1e300;
  memset(block, 0, size);
  for (int round = 0; round < 4; round++) {
    double each = reads_once(block, size / sizeof *block, thousands, &x);
    if (each < best) best = each;
  }
  if (x == 0) puts(""); /* else the compiler removes the reads */
  way->end(block);
  return best;
}

int main(int argc, char **argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: large cycle|reuse|reads WAY SIZE_MIB COUNT\n");
    return 2;
  }
  long count = strtol(argv[4], NULL, 10);
  size = strtoul(argv[3], NULL, 10) << 20;
  const struct way *way = open_way(argv[2]);
  double figure = 0;
  if (!strcmp(argv[1], "cycle")) figure = cycles(way, count);
  else if (!strcmp(argv[1], "reuse")) figure = reuse(way, count);
  else if (!strcmp(argv[1], "reads")) figure = reads(way, count);
  else return 2;
  printf("%.2f\n", figure);
  return 0;
}
