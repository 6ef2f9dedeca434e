/* limit - what a strategy's limit costs: a pair of loam_malloc and loam_free with and without one.
 * Nanoseconds a pair; the two of a row take turns, and each is the minimum of its rounds.
 *
 *   limit            the table, by size, on one thread and on two
 *   limit WHAT N     N pairs of one of them (free, limited), for a tool that counts instructions:
 *                    valgrind --tool=callgrind limit limited 100000 */
#include "bench.h"

#include <pthread.h>
#include <string.h>

enum { ROUNDS = 30, PAIRS = 100000 };

static const char policy[] = "local free = loam.host { name = 'free' }\n"
                             "local limited = loam.host { name = 'limited', limit = loam.GiB }\n"
                             "return loam.policy { name = 'limit', pick = function(req)\n"
                             "  return req.tag:is('limited') and limited or free end }\n";

typedef struct kind {
  loam_site *site;
  size_t size;
} kind;

static void pairs(void *ctx, long n) {
  kind k = *(kind *)ctx;
  for (; n > 0; n--) {
    char *volatile p = loam_malloc(k.site, k.size);
    *p = 1;
    loam_free(p);
  }
}

static void *pairs_beside(void *ctx) {
  pairs(ctx, PAIRS);
  return NULL;
}

/* `ns` a pair of each of two threads that do the same at once. */
static double once(kind *k, int threads) {
  pthread_t other;
  if (threads == 1) return bench_once(pairs, k, PAIRS);
  int64_t start = bench_now();
  if (pthread_create(&other, NULL, pairs_beside, k)) abort();
  pairs(k, PAIRS);
  pthread_join(other, NULL);
  return (double)(bench_now() - start) / PAIRS;
}

static void row(size_t size, int threads) {
  kind with = { loam_site_get("limited"), size }, without = { loam_site_get("free"), size };
  double a = 1e300, b = 1e300;
  for (int i = 0; i < ROUNDS; i++) {
    double one = once(&with, threads), other = once(&without, threads);
    if (one < a) a = one;
    if (other < b) b = other;
  }
  printf("%8zu %8d %8.2f %8.2f %8.2f\n", size, threads, a, b, a - b);
}

int main(int argc, char **argv) {
  static const size_t sizes[] = { 16, 256, 4096, 32768 };
  bench_load("limit", policy);
  if (argc == 3) {
    kind k = { loam_site_get(argv[1]), 64 };
    pairs(&k, atol(argv[2]));
    return 0;
  }
  printf("%8s %8s %8s %8s %8s\n", "size", "threads", "limited", "free", "more");
  for (int threads = 1; threads <= 2; threads++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) row(sizes[i], threads);
  return 0;
}
