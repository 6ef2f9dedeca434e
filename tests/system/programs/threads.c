/* threads.c - short-lived threads that free blocks of other threads. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "expect.h"

enum { WORKERS = 4, ROUNDS = 40, BLOCKS = 400, SLOTS = 512 };

static uint32_t *_Atomic slot[SLOTS];

/* Returns a block of `words` words. Each word holds the number of words. */
static uint32_t *make(uint32_t words) {
  uint32_t *block = words % 7 ? malloc(words * 4) : aligned_alloc(64, words * 4);
  expect(block);
  for (uint32_t i = 0; i < words; i++) block[i] = words;
  return block;
}

static void check_and_free(uint32_t *block) {
  if (!block) return;
  uint32_t words = block[0];
  for (uint32_t i = 0; i < words; i++) expect(block[i] == words);
  free(block);
}

static void *work(void *ctx) {
  uint32_t seed = (uint32_t)(uintptr_t)ctx;
  for (int i = 0; i < BLOCKS; i++) {
    seed = seed * 1664525 + 1013904223;
    uint32_t words = 1 + (seed >> 12) % (i % 40 ? 700 : 70000);
    check_and_free(__atomic_exchange_n(&slot[seed >> 23], make(words), __ATOMIC_ACQ_REL));
  }
  return NULL;
}

int main(void) {
  pthread_t thread[WORKERS];
  alarm(300);
  for (int round = 0; round < ROUNDS; round++) {
    for (uintptr_t i = 0; i < WORKERS; i++)
      expect(!pthread_create(&thread[i], NULL, work, (void *)(round * 100 + i)));
    for (int i = 0; i < WORKERS; i++) expect(!pthread_join(thread[i], NULL));
  }
  for (int i = 0; i < SLOTS; i++) check_and_free(slot[i]);
  puts("threads: as it must be");
  return 0;
}
