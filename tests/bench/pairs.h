/* pairs.h - compares pairs of a loam_malloc and its loam_free under two tags: how much more the
 * pair of one tag costs. The tags take turns, and each figure is the minimum of its rounds. */
#ifndef PAIRS_H
#define PAIRS_H

#include <pthread.h>

#include "bench.h"

enum { PAIRS_ROUNDS = 30, PAIRS_EACH = 100000 };

typedef struct pairs_kind {
  loam_site *site;
  size_t size;
} pairs_kind;

static inline void pairs_run(void *ctx, long n) {
  pairs_kind k = *(pairs_kind *)ctx;
  for (; n > 0; n--) {
    char *volatile p = loam_malloc(k.site, k.size);
    *p = 1;
    loam_free(p);
  }
}

static inline void *pairs_beside(void *ctx) {
  pairs_run(ctx, bench_some(PAIRS_EACH));
  return NULL;
}

/* Returns the nanoseconds of a pair. Two threads do their pairs at the same time, and the figure is
 * that of one thread. */
static inline double pairs_once(pairs_kind *k, int threads) {
  pthread_t other;
  if (threads == 1) return bench_once(pairs_run, k, PAIRS_EACH);
  int64_t start = bench_now();
  if (pthread_create(&other, NULL, pairs_beside, k)) abort();
  pairs_run(k, bench_some(PAIRS_EACH));
  pthread_join(other, NULL);
  return (double)(bench_now() - start) / (double)bench_some(PAIRS_EACH);
}

static inline void pairs_least(pairs_kind of[2], int threads, double least[2]) {
  least[0] = least[1] = 1e300;
  for (int i = 0; i < 2 * bench_some(PAIRS_ROUNDS); i++) {
    double ns = pairs_once(&of[i % 2], threads);
    if (ns < least[i % 2]) least[i % 2] = ns;
  }
}

#endif
