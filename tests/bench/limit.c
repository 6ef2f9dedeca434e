/* limit.c - what a strategy's limit costs: pairs of loam_malloc and loam_free, with and without a
 * limit. Nanoseconds a pair. Both kinds of pair take turns, and each figure is the minimum of its
 * rounds.
 *
 *   limit            the table, by size, on one thread and on two
 *   limit WHAT N     N pairs of one kind (free, limited), for a tool that counts instructions:
 *                    valgrind --tool=callgrind limit limited 100000 */
#include "pairs.h"

static const char policy[] = "local free = loam.host { name = 'free' }\n"
                             "local limited = loam.host { name = 'limited', limit = loam.GiB }\n"
                             "return loam.policy { name = 'limit', pick = function(req)\n"
                             "  return req.tag:is('limited') and limited or free end }\n";

static void row(size_t size, int threads) {
  pairs_kind of[2] = { { loam_site_get("limited"), size }, { loam_site_get("free"), size } };
  double least[2];
  pairs_least(of, threads, least);
  printf("%8zu %8d %8.2f %8.2f %8.2f\n", size, threads, least[0], least[1], least[0] - least[1]);
}

int main(int argc, char **argv) {
  static const size_t sizes[] = { 16, 256, 4096, 32768 };
  bench_load("limit", policy);
  if (argc == 3) {
    pairs_kind k = { loam_site_get(argv[1]), 64 };
    pairs_run(&k, atol(argv[2]));
    return 0;
  }
  printf("%8s %8s %8s %8s %8s\n", "size", "threads", "limited", "free", "more");
  for (int threads = 1; threads <= 2; threads++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) row(sizes[i], threads);
  return 0;
}
