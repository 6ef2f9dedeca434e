/* frugal.c - memory that a process keeps at a peak, after it, and over time, under whichever malloc
 * it has. tests/bench/frugal runs it.
 *
 *   frugal serves            prints the file that has the malloc of this process
 *   frugal SCENE [MINUTES]   plays a scene; prints lines of name, tab, figure: MiB resident beyond
 *                            the start, unless the name says otherwise
 *
 * Scenes: peak (200 MiB of small and large blocks, all freed), rest (like peak, but one block in
 * ten stays), objects (a million of 64 bytes), idle (a hundred threads that used some blocks and
 * wait), tags (only under loam: 1,000 tags by 20 strategies, a small block of each), soak (sizes
 * that change; MINUTES, 1 by default, a line every five seconds). */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

enum { PAGE = 4096, SMALL = 100000, SMALL_MOST = 2048, LARGE = 100, LARGE_SIZE = 1 << 20 };
enum { BLOCKS = SMALL + LARGE, OBJECTS = 1000000, OBJECT = 64, TAGS = 1000, STRATEGIES = 20 };
enum { SLOTS = 20000, STEP_S = 5, THREADS = 100, USED = 200, USED_MOST = 1000 };

static char *block[BLOCKS], *object[OBJECTS];
static size_t size_of[BLOCKS];
static uint32_t seed = 2463534242;
static double before;

static uint32_t draw(uint32_t n) {
  seed ^= seed << 13;
  seed ^= seed >> 17;
  seed ^= seed << 5;
  return (uint32_t)((uint64_t)seed * n >> 32);
}

/* Returns the resident MiB of the whole process. */
static double resident(void) {
  long total, pages;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &total, &pages) != 2) abort();
  fclose(file);
  return (double)pages * PAGE / 1048576;
}

static void tell(const char *what, double figure) { printf("%s\t%.1f\n", what, figure); }
static void tell_resident(const char *what) { tell(what, resident() - before); }

/* Gives memory back to the system, by the call that the allocator has for it, if any. */
static void trim(void) {
  void *call;
  if ((call = dlsym(RTLD_DEFAULT, "loam_trim"))) ((size_t(*)(void))call)();
  else if ((call = dlsym(RTLD_DEFAULT, "mi_collect"))) ((void (*)(int))call)(1);
  else if ((call = dlsym(RTLD_DEFAULT, "MallocExtension_ReleaseFreeMemory")))
    ((void (*)(void))call)();
  else if ((call = dlsym(RTLD_DEFAULT, "mallctl")))
    ((int (*)(const char *, void *, size_t *, void *, size_t))call)("arena.4096.purge", NULL, NULL,
                                                                    NULL, 0);
  else if ((call = dlsym(RTLD_DEFAULT, "malloc_trim"))) ((int (*)(size_t))call)(0);
}

static char *touched(size_t size) {
  char *p = malloc(size);
  if (!p) abort();
  return memset(p, 1, size);
}

/* ---- scenes */

static void rise(void) {
  for (int i = 0; i < BLOCKS; i++) {
    size_of[i] = i < SMALL ? 1 + draw(SMALL_MOST) : LARGE_SIZE;
    block[i] = touched(size_of[i]);
  }
}

/* Frees all blocks but one in `kept`, in random order; with 0, all of them. Returns the MiB that
 * stay. */
static double fall(uint32_t kept) {
  double left = 0;
  for (uint32_t i = BLOCKS - 1; i > 0; i--) {
    uint32_t other = draw(i + 1);
    char *p = block[i];
    size_t size = size_of[i];
    block[i] = block[other];
    size_of[i] = size_of[other];
    block[other] = p;
    size_of[other] = size;
  }
  for (uint32_t i = 0; i < BLOCKS; i++)
    if (kept && i % kept == 0) left += (double)size_of[i] / 1048576;
    else free(block[i]);
  return left;
}

/* Takes and frees some blocks of many sizes, now more and now fewer. */
static void rise_a_little(void) {
  uint32_t n = 1 + draw(100);
  for (uint32_t i = 0; i < n; i++) block[i] = touched(1 + draw(draw(10) ? SMALL_MOST : 100000));
  for (uint32_t i = 0; i < n; i++) free(block[i]);
}

static void play_peak(uint32_t kept) {
  rise();
  tell_resident("at the peak");
  double left = fall(kept);
  tell("live afterwards", left);
  tell_resident("resident at once");
  sleep(1);
  tell_resident("after a second");
  trim();
  tell_resident("after a trim");
}

/* Returns the MiB of loam's own records, or 0 under another malloc. */
static double metadata(void) {
  struct loam_stats stats = { 0 };
  void *ask = dlsym(RTLD_DEFAULT, "loam_stats");
  if (ask) ((loam_status(*)(struct loam_stats *))ask)(&stats);
  return (double)stats.metadata_bytes / 1048576;
}

static void play_objects(void) {
  memset(object, 1, sizeof object);
  before = resident();
  double records = metadata(), live = (double)OBJECTS * OBJECT / 1048576;
  for (int i = 0; i < OBJECTS; i++) object[i] = touched(OBJECT);
  tell_resident("resident");
  tell("beyond what is live, %", (resident() - before - live) / live * 100);
  if (records > 0) tell("metadata of loam, %", (metadata() - records) / live * 100);
}

static pthread_barrier_t all_sit;

/* Takes blocks of 8 bytes to USED_MOST, frees them and waits for the end of the process. */
static void *use_and_sit(void *number) {
  char *used[USED];
  uint32_t random = (uint32_t)(uintptr_t)number;
  for (int i = 0; i < USED; i++) {
    random = random * 1103515245 + 12345;
    used[i] = touched(8 + (random >> 16) % (USED_MOST - 7));
  }
  for (int i = 0; i < USED; i++) free(used[i]);
  pthread_barrier_wait(&all_sit);
  pause();
  return NULL;
}

/* The stack of a thread is part of what the thread holds: about 13 KiB. */
static void play_idle(void) {
  pthread_t thread;
  pthread_barrier_init(&all_sit, NULL, THREADS + 1);
  for (uintptr_t i = 0; i < THREADS; i++)
    if (pthread_create(&thread, NULL, use_and_sit, (void *)i)) abort();
  pthread_barrier_wait(&all_sit);
  tell("KiB of each thread", (resident() - before) * 1024 / THREADS);
  for (int i = 0; i < 300; i++) {
    rise_a_little();
    usleep(10000);
  }
  tell("after 3 s of other work", (resident() - before) * 1024 / THREADS);
}

/* The policy, which tests/bench/frugal writes, has a strategy for each 16 bytes. */
static void play_tags(void) {
  char name[32];
  loam_site *(*site_get)(const char *) = (loam_site * (*)(const char *))
      dlsym(RTLD_DEFAULT, "loam_site_get");
  void *(*allocate)(loam_site *, size_t) = (void *(*)(loam_site *, size_t))dlsym(RTLD_DEFAULT,
                                                                                 "loam_malloc");
  if (!site_get || !allocate) return;
  for (int tag = 0; tag < TAGS; tag++) {
    snprintf(name, sizeof name, "tag.%d", tag);
    loam_site *site = site_get(name);
    for (size_t i = 1; i <= STRATEGIES; i++) memset(allocate(site, i * 16), 1, i * 16);
  }
  tell_resident("resident");
}

/* Draws a size. Phases of small blocks, of large ones and of both take turns, so that memory that
 * fits one phase is in the way of the next. */
static size_t size_in(int phase) {
  if (phase % 3 == 0) return 1 + draw(512);
  if (phase % 3 == 1) return 4096 + draw(60000);
  return draw(10) ? 1 + draw(2048) : 1 + draw(200000);
}

static void play_soak(int minutes) {
  int64_t start = bench_now(), told = start, end = start + minutes * (int64_t)60000000000;
  for (int phase = 0; bench_now() < end; phase++) {
    uint32_t slots = phase % 3 == 1 ? SLOTS / 20 : SLOTS;
    for (int i = 0; i < 200000; i++) {
      uint32_t at = draw(slots);
      free(block[at]);
      block[at] = touched(size_in(phase));
    }
    for (uint32_t at = 0; at < SLOTS; at++) {
      free(block[at]);
      block[at] = NULL;
    }
    if (phase % 3 != 2 || bench_now() - told < STEP_S * (int64_t)1000000000) continue;
    told = bench_now();
    printf("%.0f s\t%.1f\n", (double)(told - start) / 1e9, resident() - before);
    fflush(stdout);
  }
}

static int print_server(void) {
  Dl_info whose;
  if (!dladdr((void *)malloc, &whose)) return 1;
  puts(whose.dli_fname);
  return 0;
}

int main(int argc, char **argv) {
  const char *scene = argc > 1 ? argv[1] : "";
  free(malloc(1));
  before = resident();
  if (!strcmp(scene, "serves")) return print_server();
  if (!strcmp(scene, "peak")) play_peak(0);
  else if (!strcmp(scene, "rest")) play_peak(10);
  else if (!strcmp(scene, "objects")) play_objects();
  else if (!strcmp(scene, "idle")) play_idle();
  else if (!strcmp(scene, "tags")) play_tags();
  else if (!strcmp(scene, "soak")) play_soak(argc > 2 ? atoi(argv[2]) : 1);
  else return fputs("usage: frugal serves | SCENE [MINUTES]\n", stderr), 2;
  return 0;
}
