/* late.c - allocates and frees after main: in an atexit handler, in destructors of threads, and in
 * a destructor of the program. */
#include <pthread.h>
#include <string.h>

#include "expect.h"

static char *from_main;
static pthread_key_t key;
static int ended;

static void use_memory(void) {
  for (size_t size = 1; size < 1 << 22; size *= 3) {
    char *p = kept(malloc(size));
    expect(p);
    memset(p, 1, size);
    free(p);
  }
}

/* A destructor that sets its own key again, so that it also runs after the destructor that the
 * allocator has for this thread. */
static void end_thread(void *rounds) {
  use_memory();
  if ((size_t)rounds > 1) pthread_setspecific(key, (char *)rounds - 1);
  __atomic_add_fetch(&ended, 1, __ATOMIC_RELAXED);
}

static void *work(void *ctx) {
  pthread_setspecific(key, (void *)4);
  use_memory();
  return ctx;
}

static void at_exit(void) { from_main = realloc(from_main, 100000); }

__attribute__((destructor(101))) static void destruct(void) {
  expect(from_main && !strcmp(from_main, "from main"));
  free(from_main);
  use_memory();
}

int main(void) {
  pthread_t thread;
  from_main = strcpy(kept(malloc(20)), "from main");
  expect(!pthread_key_create(&key, end_thread));
  for (int i = 0; i < 20; i++) {
    expect(!pthread_create(&thread, NULL, work, NULL));
    expect(!pthread_join(thread, NULL));
  }
  expect(ended == 20 * 4);
  expect(!atexit(at_exit));
  puts("late: as it must be");
  return 0;
}
