/* block.c - what reference counts cost: a retain and release compared with a bare atomic pair, and
 * a block of 64 bytes compared with one allocation of equal total size. The program also shows what
 * an arena saves: a thousand pieces of 40 bytes that end together. Nanoseconds a pair. The two
 * sides of a row take turns.
 *
 *   block            the table
 *   block WHAT N     N pairs of one kind (bare, retain, block, loam, libc), for a tool that counts
 *                    instructions */
#include "bench.h"

#include <stdatomic.h>
#include <string.h>

enum { ROUNDS = 40, PAIRS = 200000, HEADER = 64, DATA = 64, PIECES = 1000, PIECE = 40 };

static loam_block *shared;
static loam_site *site;
static _Atomic uint64_t bare = 1;

static void keep(void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

static void count_bare(void *ctx, long n) {
  (void)ctx;
  for (; n > 0; n--) {
    atomic_fetch_add_explicit(&bare, 1, memory_order_relaxed);
    keep(&bare);
    if (atomic_fetch_sub_explicit(&bare, 1, memory_order_acq_rel) == 1) abort();
  }
}

static void count_block(void *ctx, long n) {
  (void)ctx;
  for (; n > 0; n--) {
    loam_block_retain(shared);
    loam_block_release(shared);
  }
}

static void make_block(void *ctx, long n) {
  (void)ctx;
  for (; n > 0; n--) {
    loam_block *b = loam_block_new(site, DATA);
    keep(b);
    loam_block_release(b);
  }
}

static void make_loam(void *ctx, long n) {
  (void)ctx;
  for (; n > 0; n--) {
    void *p = loam_malloc(site, HEADER + DATA);
    keep(p);
    loam_free(p);
  }
}

static void make_libc(void *ctx, long n) {
  (void)ctx;
  for (; n > 0; n--) {
    void *p = malloc(HEADER + DATA);
    keep(p);
    free(p);
  }
}

static void fill_arena(int flags, long n) {
  for (; n > 0; n -= PIECES) {
    loam_block *arena = loam_arena_new(site, flags, 0);
    for (int i = 0; i < PIECES; i++) keep(loam_arena_alloc(arena, 8, PIECE));
    loam_block_release(arena);
  }
}

static void fill_plain(void *ctx, long n) {
  (void)ctx;
  fill_arena(0, n);
}

static void fill_resizable(void *ctx, long n) {
  (void)ctx;
  fill_arena(LOAM_ARENA_RESIZABLE, n);
}

static void fill_one_by_one(void *ctx, long n) {
  static void *p[PIECES];
  (void)ctx;
  for (; n > 0; n -= PIECES) {
    for (int i = 0; i < PIECES; i++) keep(p[i] = loam_malloc(site, PIECE));
    for (int i = 0; i < PIECES; i++) loam_free(p[i]);
  }
}

static const struct {
  const char *name;
  void (*run)(void *ctx, long n);
} all[] = { { "bare", count_bare },
            { "retain", count_block },
            { "block", make_block },
            { "loam", make_loam },
            { "libc", make_libc } };

static void row(const char *what, void (*ours)(void *, long), void (*theirs)(void *, long)) {
  double a = 1e300, b = 1e300;
  for (int i = 0; i < bench_some(ROUNDS); i++) {
    double one = bench_once(ours, NULL, PAIRS), other = bench_once(theirs, NULL, PAIRS);
    if (one < a) a = one;
    if (other < b) b = other;
  }
  printf("%-52s %6.2f %6.2f %6.2f\n", what, a, b, a / b);
}

static int run_one(const char *name, long n) {
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (strcmp(all[i].name, name) != 0) continue;
    all[i].run(NULL, n);
    return 0;
  }
  fprintf(stderr, "block: \"%s\": it is bare, retain, block, loam or libc\n", name);
  return 2;
}

int main(int argc, char **argv) {
  site = loam_site_get("bench.block");
  shared = loam_block_new(site, DATA);
  if (argc == 3) return run_one(argv[1], atol(argv[2]));
  printf("%-52s %6s %6s %6s\n", "ns a pair", "ours", "theirs", "ratio");
  row("retain and release, a bare atomic pair", count_block, count_bare);
  row("block of 64 bytes, loam_malloc of 128", make_block, make_loam);
  row("block of 64 bytes, the C library's malloc of 128", make_block, make_libc);
  row("a piece of a plain arena, loam_malloc", fill_plain, fill_one_by_one);
  row("a piece of a resizable arena, loam_malloc", fill_resizable, fill_one_by_one);
  return 0;
}
