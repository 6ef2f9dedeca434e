/* cancelled.c - threads that are cancelled at any instruction, mostly amid malloc and free. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "expect.h"

enum { CANCELLED = 300 };

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

int main(void) {
  alarm(300); /* a lock that a dead thread holds */
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
