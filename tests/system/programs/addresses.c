/* addresses.c - prints addresses whose owners the test knows, and then waits until it is killed.
 * Each line has a name and an address. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "expect.h"

static char global[64] = "not empty";

static void say(const char *name, const void *at) { printf("%s %p\n", name, at); }

/* Prints the address of a local variable of this thread, and then sleeps in the kernel. */
static void *sleep_in_a_thread(void *unused) {
  char local = 1;
  say("thread", &local);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
  return unused;
}

int main(void) {
  char local = 1;
  pthread_t thread;
  char *small = malloc(48), *freed = malloc(72), *guarded = malloc(1500), *large = malloc(3 << 20);
  char *quarantined = malloc(1600), *null = NULL;
  expect(small && freed && guarded && large && quarantined);
  memset(small, 1, 48);
  memset(large, 1, 3 << 20);
  void *unmapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(unmapped != MAP_FAILED && own != MAP_FAILED);
  say("small", small);
  say("inside", small + 17);
  say("large", large);
  say("large_inside", large + (2 << 20));
  say("guarded", guarded + 1);
  say("guard", guarded + 1600); /* just after the last page of the block */
  say("quarantined", quarantined);
  say("freed", freed);
  say("stack", &local);
  say("global", global);
  say("function", (const void *)(uintptr_t)main);
  say("library", (const void *)(uintptr_t)strlen);
  say("own", own);
  say("unmapped", unmapped);
  say("zero", null);
  free(freed);
  free(quarantined);
  munmap(unmapped, 4096);
  expect(!pthread_create(&thread, NULL, sleep_in_a_thread, NULL));
  for (;;) pause();
}
