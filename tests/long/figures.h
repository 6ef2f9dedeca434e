/* figures.h - helpers of the long-running programs: resident memory, processor time, memory for
 * their own notes, and the count of faults. */
#ifndef FIGURES_H
#define FIGURES_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "loam.h"

/* The number of faults. Any thread may add to it. */
static atomic_int faults;

/* Prints a fault in one line on standard error, and counts it. Prints only the first 20 faults, so
 * that a fault in each block does not fill the disk. Any thread may call it. */
__attribute__((format(printf, 1, 2))) static inline void fault(const char *format, ...) {
  if (atomic_fetch_add(&faults, 1) >= 20) return;
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  fprintf(stderr, "fault: %s\n", line);
}

/* Counts a fault if the figure named `what` is not the expected one. */
static inline void expect(const char *what, uint64_t got, uint64_t wanted) {
  if (got != wanted)
    fault("%s: %llu, expected %llu", what, (unsigned long long)got, (unsigned long long)wanted);
}

/* Ends the program because it cannot do its work, which says nothing about loam. */
__attribute__((noreturn)) static inline void give_up(const char *what) {
  perror(what);
  exit(2);
}

/* Returns `size` zero bytes that no allocator counts. Every page has its memory already, so that
 * the notes of the program do not show as growth. The memory is never given back. */
static inline void *notes(size_t size) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (p == MAP_FAILED) give_up("mmap");
  return p;
}

/* Returns the resident bytes of this process, from /proc/self/statm. */
static inline int64_t resident(void) {
  long pages = 0;
  FILE *f = fopen("/proc/self/statm", "re");
  if (!f || fscanf(f, "%*s %ld", &pages) != 1) give_up("/proc/self/statm");
  fclose(f);
  return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

/* Returns the figures of loam. */
static inline struct loam_stats figures(void) {
  struct loam_stats s;
  if (loam_stats(&s) != LOAM_OK) give_up("loam_stats");
  return s;
}

/* Returns processor time in seconds. CLOCK_PROCESS_CPUTIME_ID gives the time of this process, and
 * CLOCK_THREAD_CPUTIME_ID the time of the calling thread. */
static inline double processor_time(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Returns a number that depends on `i` alone and looks random (the last step of splitmix64). */
static inline uint64_t scatter(uint64_t i) {
  i = (i + 1) * 0x9e3779b97f4a7c15;
  i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9;
  i = (i ^ i >> 27) * 0x94d049bb133111eb;
  return i ^ i >> 31;
}

#endif
