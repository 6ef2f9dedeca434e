/* device.c - loam's own pool of device memory on a driver that only hands out addresses
 * (fake_driver.h): what the pool itself costs, and how much more memory it reserves than is live.
 * PyTorch's caching allocator can be measured for comparison.
 *
 *   device                     everything
 *   device pair SIZE N         allocates and frees N times, for callgrind or perf
 *   device pinned SIZE N       like pair, for pinned memory, which a host pool has
 *   device combined SIZE N     like pair, for write-combined pinned memory, which the device's pool
 *                              has
 *   device torch FILE          everything about device memory, with PyTorch's allocator in FILE: a
 *                              library made of tests/gpu/torch_host.cc
 *   device torch FILE SIZE N   like pair, with PyTorch's allocator
 *
 * The trace is invented: the training of a model. Weights stay. Activations have sizes that differ
 * from step to step (sequences of different lengths), and are freed in reverse order. There are
 * also workspaces and gradients. */
#include <string.h>

#include "device_allocators.h"
#include "fake_driver.h"

/* ---- The allocator */

static device_allocator who; /* main sets it */

/* ---- Time */

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint64_t random_state = 88172645463325252u;

static uint64_t draw(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

static void pairs(size_t size, long n) {
  for (long i = 0; i < n; i++) who.free(who.alloc(size, NULL), NULL);
}

static void pinned(size_t size, long n) {
  for (long i = 0; i < n; i++) loam_free(loam_pinned_alloc(NULL, size, 0));
}

static void combined(size_t size, long n) {
  for (long i = 0; i < n; i++) loam_free(loam_pinned_alloc(NULL, size, LOAM_PINNED_WRITE_COMBINED));
}

static double time_of(void (*act)(size_t size, long n), size_t size) {
  long n = bench_some(200000);
  act(size, bench_some(1000));
  double begun = now_ns();
  act(size, n);
  return (now_ns() - begun) / (double)n;
}

static void time_pairs(size_t size) {
  printf("pair of %10zu bytes      %6.1f ns\n", size, time_of(pairs, size));
}

static void time_pinned(size_t size) {
  printf("pinned, %10zu bytes      %6.1f ns, of the device's pool %6.1f\n", size,
         time_of(pinned, size), time_of(combined, size));
}

/* Allocates random sizes and frees at random, as RMM's benchmark does, with at most `in_all` live
 * bytes. */
static void time_random(size_t most, size_t in_all) {
  enum { SLOTS = 1000 };
  static void *at[SLOTS];
  static size_t size[SLOTS];
  size_t live = 0, peak = 0, before = calls;
  long done = 0;
  peak_mapped = mapped;
  double begun = now_ns();
  for (long i = 0; i < bench_some(200000); i++) {
    size_t s = draw() % SLOTS;
    if (at[s]) {
      who.free(at[s], NULL);
      at[s] = NULL;
      live -= size[s];
    } else {
      size[s] = 1 + draw() % most;
      if (live + size[s] > in_all) continue;
      at[s] = who.alloc(size[s], NULL);
      live += size[s];
      if (live > peak) peak = live;
      done++;
    }
  }
  double spent = now_ns() - begun;
  for (int i = 0; i < SLOTS; i++)
    if (at[i]) who.free(at[i], NULL);
  memset(at, 0, sizeof at);
  printf("random up to %7zu KiB    %6.1f ns a pair, reserved %.3f of the peak, %zu calls of the "
         "driver in %ld\n",
         most >> 10, spent / (double)done, (double)peak_mapped / (double)peak, calls - before,
         done);
}

/* ---- A model's training */

enum { LAYERS = 32, STEPS = 60, PER_LAYER = 8 };

static size_t live_bytes, peak_live;

static void *take(size_t size) {
  void *p = who.alloc(size, NULL);
  live_bytes += size;
  if (live_bytes > peak_live) peak_live = live_bytes;
  return p;
}

static void give(void *p, size_t size) {
  live_bytes -= size;
  who.free(p, NULL);
}

static void step(size_t hidden, size_t tokens) {
  static void *kept[LAYERS][PER_LAYER];
  size_t sizes[PER_LAYER];
  for (int k = 0; k < PER_LAYER; k++) sizes[k] = tokens * hidden * 2 * (size_t)(k % 4 + 1) / 2;
  for (int layer = 0; layer < LAYERS; layer++)
    for (int k = 0; k < PER_LAYER; k++) {
      size_t work = tokens * 4 * (1 + draw() % 2048);
      void *workspace = take(work);
      kept[layer][k] = take(sizes[k]);
      give(workspace, work);
    }
  for (int layer = LAYERS; layer-- > 0;)
    for (int k = PER_LAYER; k-- > 0;) {
      void *gradient = take(sizes[k]);
      give(kept[layer][k], sizes[k]);
      give(gradient, sizes[k]);
    }
}

static void train(void) {
  enum { HIDDEN = 4096 };
  void *weights[LAYERS][3];
  size_t bytes = (size_t)HIDDEN * HIDDEN * 2 * 3;
  calls = 0;
  peak_mapped = mapped;
  for (int layer = 0; layer < LAYERS; layer++)
    for (int k = 0; k < 3; k++) weights[layer][k] = take(bytes);
  size_t before = 0;
  int steps = (int)bench_some(STEPS);
  for (int i = 0; i < steps; i++) {
    if (i == steps / 2) before = calls;
    step(HIDDEN, 512 + draw() % 3584);
  }
  printf("training: peak live %zu MiB, reserved %zu MiB (%.3f of it), %zu calls of the driver, "
         "%zu of them in the second half\n",
         peak_live >> 20, peak_mapped >> 20, (double)peak_mapped / (double)peak_live, calls,
         calls - before);
  for (int layer = 0; layer < LAYERS; layer++)
    for (int k = 0; k < 3; k++) give(weights[layer][k], bytes);
}

static void (*act_of(const char *name))(size_t size, long n) {
  if (!strcmp(name, "pinned")) return pinned;
  return strcmp(name, "combined") != 0 ? pairs : combined;
}

static void all_of_devices(void) {
  for (size_t size = 256; size <= LM_GIB; size *= 8) time_pairs(size);
  time_pairs(LM_GIB);
}

static void all_of_mixes(void) {
  who.trim();
  time_random(LM_MIB, LM_GIB);
  who.trim();
  time_random(64 * LM_MIB, 16 * LM_GIB);
  who.trim();
  train();
}

int main(int argc, char **argv) {
  bench_load("device", "local d = loam.device {}\n"
                       "return loam.policy { pick = function(req) return d end }\n");
  who = allocator_loam;
  bool torch = argc > 2 && !strcmp(argv[1], "torch");
  if (torch && !allocator_torch(&who, argv[2])) return 1;
  if (argc >= 4) {
    act_of(argv[1])((size_t)atoll(argv[argc - 2]), atol(argv[argc - 1]));
    return 0;
  }
  all_of_devices();
  for (size_t size = 64; size <= LM_MIB && !torch; size *= 16) time_pinned(size);
  all_of_mixes();
  return 0;
}
