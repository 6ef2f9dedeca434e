/* owner.c - what loam_owner costs: ns of a call, with 1 to 100,000 live blocks of 64 KiB. The calls
 * are about one pointer again and again, or about pointers into blocks that are drawn from all.
 * They run on one thread, and on two threads at a time.
 *
 *   owner [--quick]
 *
 * The last line has the published figures of UMF's look-up by pointer. */
#include <pthread.h>
#include <string.h>

#include "bench.h"

enum { BLOCK = 65536, MOST = 100000, DRAWN = 4096 };

typedef struct question {
  const char *about[DRAWN]; /* asked about in turn */
  long calls;
} question;

static char *block[MOST];

static void ask(void *ctx, long calls) {
  question *q = ctx;
  loam_owner_info whose;
  for (long i = 0; i < calls; i++)
    if (loam_owner(q->about[i % DRAWN], &whose) != LOAM_OK) abort();
}

static void *ask_beside(void *ctx) {
  question *q = ctx;
  ask(q, bench_some(q->calls));
  return NULL;
}

/* Draws pointers into the first `blocks` blocks. The two threads use different seeds, so that they
 * ask in different orders. */
static void draw(question *q, long blocks, uint32_t seed) {
  for (int i = 0; i < DRAWN; i++) {
    seed = seed * 1664525 + 1013904223;
    q->about[i] = block[(uint64_t)seed * (uint64_t)blocks >> 32] + (seed >> 8) % BLOCK;
  }
}

static double best_alone(question *q, int repeats) { return bench_best(ask, q, q->calls, repeats); }

static double best_beside(question *q, question *other, int repeats) {
  double best = 1e300;
  long calls = bench_some(q->calls);
  repeats = (int)bench_some(repeats);
  for (int i = 0; i < repeats; i++) {
    pthread_t thread;
    int64_t start = bench_now();
    if (pthread_create(&thread, NULL, ask_beside, other)) abort();
    ask(q, calls);
    pthread_join(thread, NULL);
    double each = (double)(bench_now() - start) / (double)calls;
    if (each < best) best = each;
  }
  return best;
}

static void row(long blocks, int repeats, long calls) {
  static question one, two;
  draw(&one, blocks, 1);
  draw(&two, blocks, 2);
  one.calls = two.calls = calls;
  double drawn = best_alone(&one, repeats), beside = best_beside(&one, &two, repeats);
  for (int i = 0; i < DRAWN; i++) one.about[i] = two.about[i] = block[blocks - 1];
  printf("%10ld%14.1f%14.1f%14.1f%14.1f\n", blocks, best_alone(&one, repeats), drawn,
         best_beside(&one, &two, repeats), beside);
}

int main(int argc, char **argv) {
  int is_quick = argc == 2 && !strcmp(argv[1], "--quick");
  if (argc > 1 && !is_quick) {
    fprintf(stderr, "usage: owner [--quick]\n");
    return 2;
  }
  loam_site *site = loam_site_get("bench.owner");
  printf("ns a loam_owner%13s%14s%28s\n", "one thread", "", "two threads at a time");
  printf("%10s%14s%14s%14s%14s\n", "blocks", "one pointer", "drawn", "one pointer", "drawn");
  for (long blocks = 1, made = 0; blocks <= bench_some(MOST); blocks *= 10) {
    for (; made < blocks; made++)
      if (!(block[made] = loam_malloc(site, BLOCK))) abort();
    row(blocks, is_quick ? 5 : 15, is_quick ? 200000 : 1000000);
  }
  printf("UMF, as published: 14 hot, 58 over 32,000 regions, 34 on two threads\n");
  return 0;
}
