/* recorder.c - a manager that records as a trace (trace.h) what loam asks for.
 *
 *   LOAM_MANAGER=librecorder.so TRACE_FILE=out.trace program
 *
 * Under a policy of loam.device { pool = "none" } the trace has each allocation that the program
 * asks for. With another pool it has those that the pool asks of the driver. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "loam.h"

static const loam_manager *driver;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *file;
static void *stream[64]; /* in the order of their first use; 0: the default stream */
static int streams = 1;

static int number_of_locked(void *handle) {
  int i = 0;
  while (i < streams && stream[i] != handle) i++;
  if (i == streams && streams < 64) stream[streams++] = handle;
  return i < 64 ? i : 0;
}

/* An address identifies a block, because two live blocks never have one address. */
static void note_alloc(const void *at, size_t size, void *handle) {
  pthread_mutex_lock(&lock);
  if (file) fprintf(file, "alloc %zu %zu %d\n", (size_t)at, size, number_of_locked(handle));
  pthread_mutex_unlock(&lock);
}

/* Notes a free before the driver frees the block. After that, another thread could get the address
 * and note it first. */
static void note_free(const void *at) {
  pthread_mutex_lock(&lock);
  if (file) fprintf(file, "free %zu\n", (size_t)at);
  pthread_mutex_unlock(&lock);
}

static loam_status memalloc(void *ctx, int device, size_t size, void **out) {
  (void)ctx;
  loam_status status = driver->memalloc(driver->ctx, device, size, out);
  if (status == LOAM_OK) note_alloc(*out, size, NULL);
  return status;
}

static void memfree(void *ctx, int device, void *ptr, size_t size) {
  (void)ctx;
  note_free(ptr);
  driver->memfree(driver->ctx, device, ptr, size);
}

static loam_status memalloc_async(void *ctx, int device, size_t size, void *on, void **out) {
  (void)ctx;
  loam_status status = driver->memalloc_async(driver->ctx, device, size, on, out);
  if (status == LOAM_OK) note_alloc(*out, size, on);
  return status;
}

static void memfree_async(void *ctx, int device, void *ptr, size_t size, void *on) {
  (void)ctx;
  note_free(ptr);
  driver->memfree_async(driver->ctx, device, ptr, size, on);
}

static void end(void) {
  pthread_mutex_lock(&lock);
  if (file) fclose(file);
  file = NULL;
  pthread_mutex_unlock(&lock);
}

static const loam_manager recorder = {
  .size = sizeof recorder,
  .interface_version = 1,
  .name = "recorder",
  .memalloc = memalloc,
  .memfree = memfree,
  .memalloc_async = memalloc_async,
  .memfree_async = memfree_async,
};

const loam_manager *loam_manager_plugin(const loam_manager *given);
const loam_manager *loam_manager_plugin(const loam_manager *given) {
  const char *path = getenv("TRACE_FILE");
  file = fopen(path ? path : "loam.trace", "w");
  if (!file) {
    perror(path ? path : "loam.trace");
    return NULL;
  }
  fprintf(file, "# recorded by loam's manager \"recorder\"\n");
  driver = given;
  atexit(end);
  return &recorder;
}
