/* figures.c - the C library's functions that report memory and give it back: mallinfo, malloc_trim
 * and so on. They cover loam's pools and the next allocator, which has the blocks from before loam
 * was awake and those of loam.system. The format is glibc's, with all arenas as one. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "preload.h"

#define CALLER __builtin_return_address(0)

typedef struct mallinfo2 figures;

/* Adds up live blocks in loam's own pools. */
static void add_live(void *ctx, const loam_stats_row *row) {
  static const char *const apart[] = { "system", "handler", "device", "managed" };
  for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
    if (!strcmp(row->kind, apart[i])) return;
  *(size_t *)ctx += row->live_bytes;
}

/* The first call of a function of the next allocator starts it, and glibc's then asks for random
 * bytes, which is a cancellation point. Without loam the first malloc has started it long before,
 * so mallinfo2 and malloc_trim are no cancellation points. The two functions below keep that
 * true. */
static figures figures_of_next(void) {
  figures (*next)(void), all = { 0 };
  int cancelled;
  if (!next_find(&next, "mallinfo2")) return all;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
  all = next();
  pthread_setcancelstate(cancelled, NULL);
  return all;
}

static int trim_next(size_t pad) {
  int (*next)(size_t), cancelled;
  if (!next_find(&next, "malloc_trim")) return 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
  int given = next(pad);
  pthread_setcancelstate(cancelled, NULL);
  return given;
}

static figures figures_of_all(const void *caller) {
  figures all = figures_of_next();
  struct loam_stats stats;
  size_t live = 0;
  if (!host_is_awake(caller) || loam_stats_by(LOAM_BY_STRATEGY, add_live, &live) ||
      loam_stats(&stats))
    return all;
  size_t held = stats.region_bytes > live ? stats.region_bytes : live;
  all.arena += held;
  all.uordblks += live;
  all.fordblks += held - live;
  return all;
}

static uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int trim_all(size_t pad, const void *caller) {
  bool given = host_is_awake(caller) && loam_trim() > 0;
  return trim_next(pad) || given;
}

/* Returns 1 if memory was given back. Some programs call this at every other free and soon touch
 * the memory again. They spend at most one part in TRIM_PART of their time in it: other calls do
 * nothing, and the memory goes back within a second without a call. */
PRELOAD_API int malloc_trim(size_t pad) {
  enum { TRIM_PART = 50, SECOND_NS = 1000000000 };
  static _Atomic uint64_t due;
  uint64_t begun = clock_ns(), next = atomic_load_explicit(&due, memory_order_relaxed);
  /* One thread at a time. The next trim is due in a second at the latest, however long this
   * takes. */
  if (begun < next || !atomic_compare_exchange_strong(&due, &next, begun + SECOND_NS)) return 0;
  int given = trim_all(pad, CALLER);
  uint64_t ended = clock_ns(), rest = (ended - begun) * TRIM_PART;
  atomic_store(&due, ended + (rest < SECOND_NS ? rest : SECOND_NS));
  return given;
}

PRELOAD_API struct mallinfo2 mallinfo2(void) { return figures_of_all(CALLER); }

/* Like mallinfo2, but the numbers are ints and wrap around. */
PRELOAD_API struct mallinfo mallinfo(void) {
  figures all = figures_of_all(CALLER);
  return (struct mallinfo){
    .arena = (int)all.arena,
    .ordblks = (int)all.ordblks,
    .smblks = (int)all.smblks,
    .hblks = (int)all.hblks,
    .hblkhd = (int)all.hblkhd,
    .fsmblks = (int)all.fsmblks,
    .uordblks = (int)all.uordblks,
    .fordblks = (int)all.fordblks,
    .keepcost = (int)all.keepcost,
  };
}

/* As in glibc, this is no cancellation point, though fprintf is one. */
PRELOAD_API void malloc_stats(void) {
  int cancelled;
  figures all = figures_of_all(CALLER);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
  fprintf(stderr,
          "Total (incl. mmap):\nsystem bytes     = %10zu\nin use bytes     = %10zu\n"
          "max mmap regions = %10zu\nmax mmap bytes   = %10zu\n",
          all.arena + all.hblkhd, all.uordblks + all.hblkhd, all.hblks, all.hblkhd);
  pthread_setcancelstate(cancelled, NULL);
}

PRELOAD_API int malloc_info(int options, FILE *file) {
  if (options) return EINVAL;
  figures all = figures_of_all(CALLER);
  fprintf(file,
          "<malloc version=\"1\">\n<total type=\"fast\" count=\"0\" size=\"0\"/>\n"
          "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n"
          "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n"
          "<system type=\"current\" size=\"%zu\"/>\n<system type=\"max\" size=\"%zu\"/>\n"
          "<aspace type=\"total\" size=\"%zu\"/>\n<aspace type=\"mprotect\" "
          "size=\"%zu\"/>\n</malloc>\n",
          all.ordblks, all.fordblks, all.hblks, all.hblkhd, all.arena, all.arena, all.arena,
          all.arena);
  return 0;
}
