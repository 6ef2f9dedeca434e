/* shallow.c - threads with the smallest possible stack allocate. Some of their requests fail. */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "expect.h"

enum { THREADS = 60, REQUESTS = 60 };

/* Requests blocks of all sizes up to 200,000 bytes, with each function of the malloc family. */
static void *use(void *ctx) {
  void *block[REQUESTS];
  size_t seed = *(size_t *)ctx;
  for (size_t i = 0; i < REQUESTS; i++) {
    size_t size = 1 + i * 7919 * seed % 200000;
    void *cleared = calloc(1, size / 2), *grown = realloc(cleared, size);
    free(grown ? grown : cleared);
    free(aligned_alloc(4096, 8192));
    block[i] = malloc(size);
    if (block[i]) *(char *)block[i] = 1;
  }
  for (size_t i = 0; i < REQUESTS; i++) free(block[i]);
  return ctx;
}

int main(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  expect(!pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN));
  for (size_t i = 1; i <= THREADS; i++) {
    pthread_t thread;
    expect(!pthread_create(&thread, &attributes, use, &i));
    expect(!pthread_join(thread, NULL));
  }
  puts("shallow: as it must be");
  return 0;
}
