/* pool_pair.c - what an allocation and its free cost in the pool alone, and in the C library for
 * comparison, in one run. Nanoseconds a pair; the first byte is written. No policy decides here:
 * decision.c measures decisions. */
#include "bench.h"
#include "heap/pool.h"
#include "heap/tcache_slow.h"

enum { BATCH = 512, REPEATS = 15, TOKEN = 2 };

typedef struct pair {
  lm_thread *t;
  lm_decision entry;
  size_t size;
  void *p[BATCH];
} pair;

static void *take_slow(pair *c) {
  uint8_t hint = c->entry.state % LM_STATE_IDS;
  void *p = lm_tcache_take(c->t, c->entry.bin, TOKEN, &hint);
  c->entry.state = LM_STATE_LIVE + hint;
  return p;
}

static void *take(pair *c) {
  lm_thread_enter(c->t);
  char *p = lm_tcache_take_ready(c->t, &c->entry);
  if (!p) p = take_slow(c);
  lm_thread_leave(c->t);
  *p = 1;
  return p;
}

static void give(pair *c, void *p) {
  lm_thread_enter(c->t);
  lm_object object;
  if (!lm_tcache_give(c->t, p) && lm_pool_free(c->t, p, &object)) abort();
  lm_thread_leave(c->t);
}

/* Prepares the entry as the engine does: it takes an object of the bin before it names the bin. */
static void prepare_entry(pair *c) {
  c->entry.token = TOKEN;
  c->entry.state = LM_STATE_LIVE + lm_state_hint(TOKEN);
  c->entry.bin = lm_pool_bin(lm_strategy_at(0), lm_class_of(c->size));
  lm_thread_enter(c->t);
  void *p = take_slow(c);
  if (!p) abort();
  if (!lm_tcache_name_bin(c->t, c->entry.bin)) exit(1);
  lm_thread_leave(c->t);
  give(c, p);
}

static void *take_libc(pair *c) {
  char *p = malloc(c->size);
  __asm__ volatile("" : "+r"(p)::"memory"); /* else gcc removes the pair */
  *p = 1;
  return p;
}

static void give_libc(pair *c, void *p) {
  (void)c;
  free(p);
}

#define PATTERNS(suffix)                                              \
  static void lifo##suffix(void *ctx, long n) {                       \
    for (pair *c = ctx; n > 0; n--) give##suffix(c, take##suffix(c)); \
  }                                                                   \
  static void batch##suffix(void *ctx, long n) {                      \
    for (pair *c = ctx; n > 0; n -= BATCH) {                          \
      for (int i = 0; i < BATCH; i++) c->p[i] = take##suffix(c);      \
      for (int i = 0; i < BATCH; i++) give##suffix(c, c->p[i]);       \
    }                                                                 \
  }
PATTERNS()
PATTERNS(_libc)

static void row(pair *c) {
  long n = BATCH * (c->size <= 4096 ? 200 : 50);
  prepare_entry(c);
  double ours = bench_best(lifo, c, n, REPEATS), theirs = bench_best(lifo_libc, c, n, REPEATS);
  double ours_batch = bench_best(batch, c, n, REPEATS);
  double theirs_batch = bench_best(batch_libc, c, n, REPEATS);
  printf("%8zu  %7.1f %7.1f %6.2f   %7.1f %7.1f %6.2f\n", c->size, ours, theirs, ours / theirs,
         ours_batch, theirs_batch, ours_batch / theirs_batch);
}

int main(void) {
  static const size_t sizes[] = { 16, 64, 256, 1024, 4096, 16384, 32768 };
  static pair c;
  c.t = lm_thread_get();
  printf("          LIFO                     batch of 512\n");
  printf("    size     loam    libc  ratio      loam    libc  ratio\n");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    c.size = sizes[i];
    row(&c);
  }
  return 0;
}
