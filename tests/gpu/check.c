/* check.c - kernels write and check loam's device, pinned and managed memory.
 *
 *   check [--quick] [KERNELS]
 *
 * Threads allocate and free on random streams. Each new block is filled with its own byte, and
 * checked before it is freed. So the program finds a block that was given out twice, or while
 * earlier work still runs. Without a kernel file it uses the stand-in for the driver. Exit status
 * 0: no fault was found. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "driver.h"
#include "loam.h"

enum { THREADS = 4, STREAMS = 4, BLOCKS = 64, KIB = 1024, MIB = 1024 * 1024 };

static driver cu;
static CUstream streams[STREAMS];
static size_t largest = 32 * MIB;
static unsigned steps = 20000;
static int failures;

static void fail(const char *what, const char *words) {
  fprintf(stderr, "FAILED: %s: %s\n", what, words);
  __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
}

/* xorshift. Each thread has its own state, so a run can be repeated. */
static uint64_t next(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  return *state ^= *state << 17;
}

/* Returns a random size. About one in twenty is below each power of two from 16 on; the rest are
 * below `largest`. */
static size_t random_size(uint64_t *state) {
  size_t top = 16;
  while (top < largest && next(state) % 20) top *= 2;
  return 1 + next(state) % top;
}

/* ---- Blocks on streams */

typedef struct block {
  unsigned char *at;
  size_t size;
  int byte, stream;
} block;

static void make(block *block, loam_site *site, uint64_t *random) {
  block->size = random_size(random);
  block->stream = (int)(next(random) % STREAMS);
  block->byte = (int)(next(random) % 255) + 1;
  block->at = loam_device_alloc(site, block->size, streams[block->stream]);
  if (!block->at) {
    fail("loam_device_alloc", loam_error());
    return;
  }
  if ((uintptr_t)block->at % 256) fail("alignment", "not to 256 bytes");
  loam_owner_info owner;
  if (loam_owner(block->at + block->size / 2, &owner) || owner.base != block->at) {
    fail("loam_owner", "does not know the block");
  }
  driver_write(&cu, streams[block->stream], block->at, block->byte, block->size);
}

/* Checks a block and frees it, on its own stream or on another stream that waits for the first. */
static void end(block *block, uint64_t *random) {
  CUstream from = streams[block->stream], to = from;
  if (!block->at) return;
  driver_check(&cu, from, block->at, block->byte, block->size);
  if (next(random) % 4 == 0) {
    CUevent event;
    to = streams[next(random) % STREAMS];
    MUST(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cu.EventRecord(event, from));
    MUST(cu.StreamWaitEvent(to, event, 0));
    MUST(cu.EventDestroy(event));
    driver_check(&cu, to, block->at, block->byte, block->size);
  }
  loam_device_free(block->at, to);
  block->at = NULL;
}

static void *churn(void *number) {
  uint64_t random = 88172645463325252u + (uintptr_t)number * 7919;
  block blocks[BLOCKS] = { 0 };
  char tag[32];
  snprintf(tag, sizeof tag, "check.thread%d", (int)(uintptr_t)number);
  loam_site *site = loam_site_get(tag);
  MUST(cu.CtxSetCurrent(cu.context));
  for (unsigned i = 0; i < steps; i++) {
    block *block = &blocks[next(&random) % BLOCKS];
    if (block->at) end(block, &random);
    else make(block, site, &random);
  }
  for (int i = 0; i < BLOCKS; i++) end(&blocks[i], &random);
  return NULL;
}

static void run_threads(void) {
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, churn, (void *)i);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void load(const char *text) {
  if (loam_policy_load_text("check", text)) fail("policy", loam_error());
}

static void report(const char *what) {
  unsigned long long wrong = driver_wrong(&cu);
  struct loam_stats stats;
  if (wrong) fail(what, "bytes are wrong");
  if (loam_stats(&stats)) fail(what, loam_error());
  if (stats.live_blocks || stats.bad_frees) fail(what, "blocks are live, or were freed badly");
  printf("  %-34s %s\n", what, failures ? "FAILED" : "ok");
  fflush(stdout);
}

static void every_pool(void) {
  static const char *const kinds[] = {
    "loam.device { pool = \"cache\" }",  "loam.device { pool = \"chunks\" }",
    "loam.device { pool = \"driver\" }", "loam.device { pool = \"none\" }",
    "loam.device { pool = \"sleep\" }",  "loam.managed {}",
    "loam.pinned { mapped = true }"
  };
  unsigned all = steps;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    char text[200];
    snprintf(text, sizeof text,
             "local kind = %s\nreturn loam.policy { pick = function() return kind end }\n",
             kinds[i]);
    /* kinds from 3 on call the driver at each step, which takes long */
    if (i >= 3) steps = all / 10;
    if (i == 5) largest = largest < MIB ? largest : MIB;
    load(text);
    run_threads();
    report(kinds[i]);
  }
  steps = all;
}

/* ---- Other checks */

/* Changes the policy while blocks are live. Each block returns to the strategy that made it. */
static void reload_under_blocks(void) {
  static const char *const kinds[] = { "loam.device { pool = \"cache\" }", "loam.managed {}",
                                       "loam.device { pool = \"driver\" }" };
  uint64_t random = 42;
  block blocks[BLOCKS] = { 0 };
  for (int i = 0; i < BLOCKS; i++) {
    char text[200];
    snprintf(text, sizeof text,
             "local kind = %s\nreturn loam.policy { pick = function() return kind end }\n",
             kinds[i % 3]);
    load(text);
    make(&blocks[i], loam_site_get("check.reload"), &random);
  }
  for (int i = 0; i < BLOCKS; i++) end(&blocks[i], &random);
  report("policies that change");
}

/* Allocates until there is no more memory, frees all, and then gets most of it in one piece. */
static void run_out(void) {
  enum { MOST = 4096 };
  static void *held[MOST];
  size_t left, total;
  loam_site *site = loam_site_get("check.out");
  load("local d = loam.device {}\nreturn loam.policy { pick = function() return d end }\n");
  loam_device_trim(-1);
  if (loam_device_memory(0, &left, &total)) fail("loam_device_memory", loam_error());
  size_t piece = left / 32;
  int count = 0;
  while (count < MOST && (held[count] = loam_device_alloc(site, piece, NULL))) {
    driver_write(&cu, NULL, held[count], count % 255 + 1, piece);
    count++;
  }
  if (count < 24) fail("run out", "most of the memory is not to be had");
  for (int i = 0; i < count; i++) {
    driver_check(&cu, NULL, held[i], i % 255 + 1, piece);
    loam_device_free(held[i], NULL);
  }
  void *whole = loam_device_alloc(site, left / 4 * 3, NULL);
  if (!whole) fail("three quarters in one piece", loam_error());
  loam_device_free(whole, NULL);
  report("out of memory");
}

/* Copies to the device and back through pinned memory. */
static void copy_by_pinned(void) {
  enum { SIZE = MIB };
  loam_site *site = loam_site_get("check.pinned");
  load("local d, p = loam.device {}, loam.pinned {}\nreturn loam.policy { pick = function(req)\n"
       "  if req.tag:is(\"check.pinned\") then return p:or_else(d) end\n  return d\nend }\n");
  unsigned char *from = loam_pinned_alloc(site, SIZE, 0), *to = loam_pinned_alloc(site, SIZE, 0);
  void *there = loam_device_alloc(loam_site_get("check.copy"), SIZE, streams[0]);
  if (!from || !to || !there) {
    fail("pinned memory", loam_error());
    return;
  }
  for (size_t i = 0; i < SIZE; i++) from[i] = (unsigned char)(i * 31);
  memset(to, 0, SIZE);
  MUST(cu.MemcpyHtoDAsync((uintptr_t)there, from, SIZE, streams[0]));
  MUST(cu.MemcpyDtoHAsync(to, (uintptr_t)there, SIZE, streams[0]));
  MUST(cu.StreamSynchronize(streams[0]));
  if (memcmp(from, to, SIZE) != 0) fail("pinned memory", "came back otherwise");
  loam_device_free(there, streams[0]);
  loam_free(from);
  loam_free(to);
  report("copies by pinned memory");
}

int main(int argc, char **argv) {
  const char *kernels = NULL;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--quick") == 0) steps = 1000;
    else kernels = argv[i];
  }
  driver_open(&cu, kernels);
  if (cu.stand_in_write) {
    steps /= 5;
    largest = 256 * KIB;
  } else if (!kernels) {
    fprintf(stderr, "check: with a real driver it needs the file of kernels\n");
    return 2;
  }
  for (int i = 0; i < STREAMS; i++) MUST(cu.StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
  every_pool();
  reload_under_blocks();
  copy_by_pinned();
  run_out();
  return failures ? 1 : 0;
}
