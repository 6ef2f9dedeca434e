/* gauge - what it costs that a plan reads a gauge: a pair of loam_malloc and loam_free under
 * `if GAUGE then return a else return b end`, beside `return a`. Nanoseconds a pair; the two of a
 * row take turns, and each is the minimum of its rounds.
 *
 *   gauge            the table, by gauge and by size, on one thread and on two
 *   gauge WHAT N     N pairs of 100 bytes of one row (none, node, free, live, both, deep), for a
 *                    tool that counts instructions: valgrind --tool=callgrind gauge live 100000 */
#include "pairs.h"

/* None of the conditions changes while it is measured. `deep` has the gauge behind sizes. */
static const char policy[] =
    "local a = loam.host { name = 'a' }\n"
    "local b = loam.host { name = 'b' }\n"
    "local function steps(req)\n"
    "  for size = 256, 32768, 256 do\n"
    "    if req.size == size then return b end\n"
    "  end\n"
    "end\n"
    "return loam.policy { name = 'gauge', pick = function(req)\n"
    "  if req.tag:is 'node' then if req.node == 0 then return a else return b end end\n"
    "  if req.tag:is 'free' then\n"
    "    if loam.node(0).free > loam.MiB then return a else return b end\n"
    "  end\n"
    "  if req.tag:is 'live' then if req.live < loam.MiB then return a else return b end end\n"
    "  if req.tag:is 'both' then\n"
    "    if req.node == 0 and req.live < loam.MiB then return a else return b end\n"
    "  end\n"
    "  if req.tag:is 'deep' then\n"
    "    local step = steps(req)\n"
    "    if step then return step end\n"
    "    if req.node == 0 then return a else return b end\n"
    "  end\n"
    "  return a\n"
    "end }\n";

static void row(const char *what, size_t size, int threads) {
  pairs_kind of[2] = { { loam_site_get(what), size }, { loam_site_get("none"), size } };
  double least[2];
  pairs_run(&of[0], bench_some(PAIRS_EACH));
  nanosleep(&(struct timespec){ 0, bench_some(300000000) }, NULL); /* by then free memory is kept */
  pairs_least(of, threads, least);
  printf("%8s %8zu %8d %8.2f %8.2f %+8.2f %8.2f\n", what, size, threads, least[0], least[1],
         least[0] - least[1], least[0] / least[1]);
}

int main(int argc, char **argv) {
  static const char *const gauges[] = { "node", "free", "live", "both", "deep" };
  static const size_t sizes[] = { 16, 100, 4000, 32000 };
  loam_config config = { .size = sizeof config, .step_ms = 60000 }; /* such a tool takes its time */
  if (loam_start(&config)) abort();
  bench_load("gauge", policy);
  if (argc == 3) {
    pairs_kind k = { loam_site_get(argv[1]), 100 };
    pairs_run(&k, atol(argv[2]));
    return 0;
  }
  printf("%8s %8s %8s %8s %8s %8s %8s\n", "gauge", "size", "threads", "with", "without", "more",
         "ratio");
  for (int threads = 1; threads <= 2; threads++)
    for (size_t g = 0; g < sizeof gauges / sizeof *gauges; g++)
      for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) row(gauges[g], sizes[i], threads);
  return 0;
}
