/* gauge.c - what a plan's gauges cost, for each way to allocate. A block is allocated and freed
 * under `if GAUGE then return a else return b end`, and for comparison under `return a`.
 *
 *   gauge [WAY]         nanoseconds. The first column is `return a`, and each other column is the
 *                       difference that a gauge makes. All columns of a row take turns, in short
 *                       rounds. A figure is the least of its rounds.
 *   gauge counts        runs each way and gauge once, after a warm-up, for tests/bench/gauge_counts
 *   gauge WAY GAUGE N   N blocks of one way and gauge, for a profiler */
#include <string.h>

#include "bench.h"

/* No condition changes its value during a measurement. Under `cut`, a threshold divides a size
 * class. Each tag has memory of its own, so that no row finds memory that another row left. */
static const char policy[] =
    "local own = {}\n"
    "local gauges = { 'none', 'node', 'free', 'live', 'two', 'both', 'deep', 'room', 'sum', 'more' "
    "}\n"
    "for _, gauge in ipairs(gauges) do\n"
    "  own['plain.' .. gauge] = loam.host { name = 'plain.' .. gauge }\n"
    "  own['cut.' .. gauge] = loam.host { name = 'cut.' .. gauge }\n"
    "end\n"
    "local b = loam.host { name = 'b' }\n"
    "local function steps(req)\n"
    "  for size = 256, 32768, 256 do\n"
    "    if req.size == size then return b end\n"
    "  end\n"
    "end\n"
    "return loam.policy { name = 'gauge', pick = function(req)\n"
    "  local gauge, a = req.tag:part(2), own[req.tag]\n"
    "  if not a then return b end\n"
    "  if req.tag:under 'cut' and req.size < 201 then return b end\n"
    "  if gauge == 'deep' then\n"
    "    local step = steps(req)\n"
    "    if step then return step end\n"
    "  end\n"
    "  if gauge == 'node' or gauge == 'deep' then\n"
    "    if req.node == 0 then return a else return b end\n"
    "  elseif gauge == 'free' then\n"
    "    if loam.node(0).free > loam.MiB then return a else return b end\n"
    "  elseif gauge == 'live' then\n"
    "    if req.live < loam.GiB then return a else return b end\n"
    "  elseif gauge == 'two' then\n"
    "    if req.node == 0 and loam.node(0).free > loam.MiB then return a else return b end\n"
    "  elseif gauge == 'both' then\n"
    "    if req.node == 0 and req.live < loam.GiB then return a else return b end\n"
    "  elseif gauge == 'room' then\n"
    "    if loam.node(0).free - req.size > loam.MiB then return a else return b end\n"
    "  elseif gauge == 'sum' then\n"
    "    if req.live + req.size < loam.GiB then return a else return b end\n"
    "  elseif gauge == 'more' then\n"
    "    if loam.node(0).free > req.live then return a else return b end\n"
    "  end\n"
    "  return a\n"
    "end }\n";

static const char *const gauges[] = { "none", "node", "free", "live", "two",
                                      "both", "deep", "room", "sum",  "more" };
enum { GAUGES = sizeof gauges / sizeof *gauges, ROUNDS = 40, EACH = 10000 };

typedef struct way {
  const char *name;
  void (*run)(void *site, long n);
  const char *tag;
} way;

static void end(char *volatile p) {
  *p = 1;
  loam_free(p);
}

#define WAY(name, make)                  \
  static void name(void *site, long n) { \
    for (; n > 0; n--) end(make);        \
  }

static loam_site *missing;
static void *missed(size_t size, const void *code) { return loam_code_learn(size, code, missing); }
static void *by_code(loam_site *site, size_t size) {
  missing = site;
  return loam_code_malloc(size, site, missed);
}

WAY(small, loam_malloc(site, 64))
WAY(code, by_code(site, 64))
WAY(cut, loam_malloc(site, 220))
WAY(unit, loam_malloc(site, 203))
WAY(large, loam_malloc(site, 100000))
WAY(zeroed, loam_calloc(site, 1, 64))
WAY(aligned, loam_aligned_alloc(site, 256, 200))
WAY(grown, loam_realloc(site, loam_malloc(site, 64), 200))
WAY(kept, loam_realloc(site, loam_malloc(site, 200), 210))

static const way ways[] = {
  { "malloc", small, "plain" },    { "code", code, "plain" },     { "cut", cut, "cut" },
  { "in-16", unit, "cut" },        { "large", large, "plain" },   { "calloc", zeroed, "plain" },
  { "aligned", aligned, "plain" }, { "realloc", grown, "plain" }, { "in-place", kept, "plain" },
};
enum { WAYS = sizeof ways / sizeof *ways };

static loam_site *site_of(const way *w, const char *gauge) {
  char tag[64];
  snprintf(tag, sizeof tag, "%s.%s", w->tag, gauge);
  return loam_site_get(tag);
}

static void row(const way *w) {
  double least[GAUGES];
  for (int g = 0; g < GAUGES; g++) least[g] = 1e300;
  for (int i = 0; i < bench_some(ROUNDS); i++) {
    for (int g = 0; g < GAUGES; g++) {
      loam_site *site = site_of(w, gauges[g]);
      w->run(site, 100);
      double ns = bench_once(w->run, site, EACH);
      if (ns < least[g]) least[g] = ns;
    }
  }
  printf("%-9s %8.2f", w->name, least[0]);
  for (int g = 1; g < GAUGES; g++) printf(" %+8.2f", least[g] - least[0]);
  printf("\n");
}

/* callgrind finds this function by its name. */
__attribute__((noipa)) void gauge_counted(const way *w, loam_site *site, long n);
void gauge_counted(const way *w, loam_site *site, long n) { w->run(site, n); }

static void count_all(void) {
  for (int i = 0; i < WAYS; i++)
    for (int g = 0; g < GAUGES; g++) {
      loam_site *site = site_of(&ways[i], gauges[g]);
      ways[i].run(site, 1000);
      gauge_counted(&ways[i], site, 1000);
    }
}

static const way *way_called(const char *name) {
  for (int i = 0; i < WAYS; i++)
    if (!strcmp(ways[i].name, name)) return &ways[i];
  fprintf(stderr, "gauge: no way is called %s\n", name);
  exit(2);
}

/* Allocates for more than half a second. By then loam keeps free memory for each tag, and keeps the
 * gauge of the nodes' free memory up to date. */
static void warm_up(void) {
  for (int i = 0; i < 12; i++) {
    for (int g = 0; g < GAUGES; g++) ways[0].run(site_of(&ways[0], gauges[g]), 1000);
    nanosleep(&(struct timespec){ 0, bench_some(50000000) }, NULL);
  }
}

int main(int argc, char **argv) {
  loam_config config = { .size = sizeof config, .step_ms = 60000 }; /* valgrind is slow */
  if (loam_start(&config)) abort();
  bench_load("gauge", policy);
  warm_up();
  if (argc == 2 && !strcmp(argv[1], "counts")) return count_all(), 0;
  const way *one = argc > 1 ? way_called(argv[1]) : NULL;
  if (argc == 4) return one->run(site_of(one, argv[2]), atol(argv[3])), 0;
  printf("%-9s", "");
  for (int g = 0; g < GAUGES; g++) printf(" %8s", gauges[g]);
  printf("\n");
  for (int i = 0; i < WAYS; i++)
    if (!one || one == &ways[i]) row(&ways[i]);
  return 0;
}
