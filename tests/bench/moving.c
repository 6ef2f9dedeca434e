/* moving.c - the cost of moving live memory: GB/s of large blocks and of small objects, and the
 * times of a thread that allocates and frees during the moves (p50, p99, p99.9 and the longest
 * operation) and for as long without moves. Memory goes onto huge pages and back and, on a machine
 * with several nodes, also to another node and back. */
#include "background_thread.h"

enum { ROUNDS = 4 };
#define LARGE ((size_t)256 << 20)
#define BLOCK ((size_t)64 << 20)
enum { OBJECTS = 100000, OBJECT = 640 };

static void load(const char *strategy) {
  char text[512];
  snprintf(text, sizeof text,
           "local s = loam.host { %s }\n"
           "return loam.policy { pick = function(req) return s end }\n",
           strategy);
  bench_load("moving.lua", text);
}

static uint64_t moved;
static void note(void *ctx, const loam_placed *row) {
  (void)ctx;
  if (!strcmp(row->what, "moved")) moved += row->bytes;
}

/* Moves the memory of a tag as the policy in force says. Returns how many seconds that took. */
static double rebalance(const char *tag) {
  loam_rebalance_options options = { .size = sizeof options, .tag = tag, .rate = UINT64_MAX };
  int64_t start = bench_now();
  moved = 0;
  if (loam_rebalance(&options, NULL, note, NULL) != LOAM_OK) {
    fprintf(stderr, "%s\n", loam_error());
    exit(1);
  }
  return (double)(bench_now() - start) / 1e9;
}

/* Moves the memory of a tag ROUNDS times: to the strategy `there`, and back to the strategy `back`,
 * which has the memory first. Prints both rates. */
static void move(const char *what, const char *tag, const char *there, const char *back) {
  double seconds[2] = { 0, 0 }, bytes[2] = { 0, 0 };
  for (int i = 0; i < ROUNDS; i++) {
    load(i % 2 ? back : there);
    seconds[i % 2] += rebalance(tag);
    bytes[i % 2] += (double)moved;
  }
  printf("%-40s%6.0f MiB, %6.2f GB/s; back %6.2f GB/s\n", what, bytes[0] / 1048576,
         bytes[0] / seconds[0] / 1e9, bytes[1] / seconds[1] / 1e9);
}

static void make(void) {
  loam_site *large = loam_site_get("large"), *small = loam_site_get("small");
  size_t size = (size_t)bench_some(BLOCK);
  for (size_t i = 0; i < LARGE / BLOCK; i++) memset(loam_malloc(large, size), 1, size);
  for (int i = 0; i < bench_some(OBJECTS); i++) memset(loam_malloc(small, OBJECT), 1, OBJECT);
}

static int nodes(void) {
  FILE *f = fopen("/sys/devices/system/node/node1/meminfo", "r");
  if (f) fclose(f);
  return f ? 2 : 1;
}

static void move_all(void) {
  move("large blocks, onto huge pages", "large", "huge = 'thp'", "huge = false");
  move("small objects, the same", "small", "huge = 'thp'", "huge = false");
  if (nodes() == 1) return;
  move("large blocks, from node 0 to node 1", "large", "numa = 1", "numa = 0");
  move("small objects, the same", "small", "numa = 1", "numa = 0");
}

int main(void) {
  background_thread background;
  background_init(&background, "busy", 64, 200);
  load("huge = false");
  make();
  int64_t start = bench_now();
  background_start(&background);
  move_all();
  int64_t took = bench_now() - start;
  background_end(&background, "meanwhile");
  background_alone(&background, took);
  return 0;
}
