/* cancelled.c - threads that are cancelled at any instruction, mostly in the middle of malloc and
 * free. One more thread has a pending cancellation while it allocates: a system call that is a
 * cancellation point would end it too early, so loam must make no such call. */
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "expect.h"

enum { CANCELLED = 300, PEAKS = 5, BLOCKS = 20000, LARGE = 20 << 20 };

static void *allocate(void *begun) {
  void *slot[32] = { NULL };
  uint32_t seed = (uint32_t)(uintptr_t)begun;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  __atomic_store_n((int *)begun, 1, __ATOMIC_RELEASE);
  while (begun) {
    seed = seed * 1664525 + 1013904223;
    void **p = &slot[seed >> 27];
    size_t size = (seed >> 5) % (seed % 50 ? 3000 : 300000);
    if (seed & 64) {
      *p = realloc(*p, size + 1);
    } else {
      free(*p);
      *p = seed & 128 ? calloc(1, size) : malloc(size);
    }
  }
  return NULL;
}

/* Allocates and frees much with a cancellation pending, in peaks, so that there is free memory to
 * give back to the system. The first calls of mallinfo2 and malloc_trim start the C library's
 * allocator, which makes system calls. */
static void *allocate_all_the_same(void *over) {
  static void *block[BLOCKS];
  pthread_cancel(pthread_self());
  expect(mallinfo2().arena > 0 && malloc_trim(0) >= 0);
  malloc_stats();
  for (int peak = 0; peak < PEAKS; peak++) {
    for (int i = 0; i < BLOCKS; i++) block[i] = kept(calloc(1, (size_t)i % 2000));
    free(kept(realloc(kept(malloc(LARGE)), 2 * (size_t)LARGE)));
    for (int i = 0; i < BLOCKS; i++) free(block[i]);
  }
  __atomic_store_n((int *)over, 1, __ATOMIC_RELEASE);
  pthread_testcancel();
  return NULL;
}

static void go_on(void) {
  char *p[50];
  for (int i = 0; i < 50; i++) {
    p[i] = kept(malloc((size_t)i * i * 100 + 1));
    expect(p[i]);
    memset(p[i], i, (size_t)i * i * 100 + 1);
  }
  for (int i = 0; i < 50; i++) {
    expect(p[i][0] == i && p[i][i * i * 100] == i);
    free(p[i]);
  }
}

/* Runs before the other threads. So these peaks are the first that leave memory to give back, and
 * this thread must start that work. */
static void cancel_one_that_goes_on(void) {
  pthread_t thread;
  int over = 0;
  void *end;
  expect(!pthread_create(&thread, NULL, allocate_all_the_same, &over));
  expect(!pthread_join(thread, &end) && over && end == PTHREAD_CANCELED);
}

int main(void) {
  alarm(300); /* ends the program if it waits for a lock that a cancelled thread holds */
  cancel_one_that_goes_on();
  for (int i = 0; i < CANCELLED; i++) {
    pthread_t thread;
    int begun = 0;
    expect(!pthread_create(&thread, NULL, allocate, &begun));
    while (!__atomic_load_n(&begun, __ATOMIC_ACQUIRE)) sched_yield();
    nanosleep(&(struct timespec){ 0, i * 7919 % 100000 }, NULL);
    expect(!pthread_cancel(thread) && !pthread_join(thread, NULL));
    go_on();
  }
  puts("cancelled: as it must be");
  return 0;
}
