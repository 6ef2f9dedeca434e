/* busy.c - four threads allocate, write and free until standard input ends. Then it prints how many
 * requests were served, how many failed, and how many blocks lost their contents. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, KEPT = 256 };

static _Atomic int is_over;
static _Atomic long served, failed, spoilt;

static size_t size_of(unsigned seed) {
  return seed % 97 == 0 ? seed % (3u << 20) : seed >> 7 & 8191;
}

/* Fills each new block with the number of its slot, and checks that number before it frees the
 * block. */
static void replace(unsigned char **kept, size_t *sizes, unsigned slot, size_t size) {
  unsigned char *p = kept[slot], mark = (unsigned char)slot;
  size_t old = sizes[slot];
  if (old && (p[0] != mark || p[old - 1] != mark)) atomic_fetch_add(&spoilt, 1);
  free(p);
  p = kept[slot] = malloc(size);
  if (!p) atomic_fetch_add(&failed, 1);
  sizes[slot] = p ? size : 0;
  if (p) memset(p, mark, size);
  atomic_fetch_add(&served, 1);
}

static void *work(void *argument) {
  unsigned char *kept[KEPT] = { 0 };
  size_t sizes[KEPT] = { 0 };
  unsigned seed = (unsigned)(size_t)argument;
  while (!atomic_load(&is_over)) {
    seed = seed * 1664525 + 1013904223;
    replace(kept, sizes, seed >> 24, size_of(seed));
    if (seed % 64 == 0) usleep(50); /* leaves time to other processes */
  }
  for (int i = 0; i < KEPT; i++) free(kept[i]);
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  char byte;
  for (size_t i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, work, (void *)(i + 1))) return 3;
  printf("running\n");
  fflush(stdout);
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  atomic_store(&is_over, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  printf("%ld served, %ld failed, %ld spoilt\n", served, failed, spoilt);
  return failed || spoilt || !served;
}
