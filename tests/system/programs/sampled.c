/* sampled.c - one function allocates blocks that the program keeps. Another thread frees some of
 * them. Then a second function allocates and frees blocks until the input ends. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEPT = 6000, PASSED = 2000 };
static void *kept[KEPT], *passed[PASSED];

/* The fence keeps the compiler from removing the call of malloc, or from making it a jump. */
__attribute__((noinline)) static void *keeps(size_t size) {
  void *p = malloc(size);
  if (p) memset(p, 1, size);
  __asm__ volatile("" : : "r"(p) : "memory");
  return p;
}

__attribute__((noinline)) static void churns(int pairs) {
  for (int i = 0; i < pairs; i++) {
    void *p = malloc(64);
    __asm__ volatile("" : : "r"(p) : "memory");
    free(p);
  }
}

static void *free_passed(void *arg) {
  (void)arg;
  for (int i = 0; i < PASSED; i++) free(passed[i]);
  return NULL;
}

int main(void) {
  struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
  pthread_t thread;
  for (int i = 0; i < KEPT; i++) kept[i] = keeps(i % 100 ? 200 + (size_t)i % 1500 : 200000);
  for (int i = 0; i < PASSED; i++) passed[i] = keeps(3000);
  if (pthread_create(&thread, NULL, free_passed, NULL)) return 1;
  pthread_join(thread, NULL);
  puts("ready");
  fflush(stdout);
  while (poll(&input, 1, 1) == 0) {
    churns(2000);
    free(kept[0]);
    kept[0] = keeps(1000);
  }
  return 0;
}
