/* plugin.c - a library whose constructor waits for a thread that allocates. */
#include <pthread.h>
#include <string.h>

#include "expect.h"

static void *own;

static void *work(void *ctx) {
  own = kept(malloc(333));
  return ctx;
}

__attribute__((constructor)) static void open_plugin(void) {
  pthread_t thread;
  expect(!pthread_create(&thread, NULL, work, NULL));
  expect(!pthread_join(thread, NULL));
}

__attribute__((destructor)) static void close_plugin(void) { free(own); }

char *plugin_make(size_t size);
char *plugin_make(size_t size) {
  char *block = malloc(size);
  expect(block);
  memset(block, 'x', size - 1);
  block[size - 1] = 0;
  return block;
}
