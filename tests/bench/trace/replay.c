/* replay.c - replays traces of device memory (trace.h) with loam's pools and with models of other
 * allocators, and compares the reserved with the live bytes.
 *
 *   trace [--pool NAME]... [--torch LIBRARY] FILE...
 *       NAME: cache, chunks, driver, none, models; without --pool: all
 *       LIBRARY: replays with PyTorch's own caching allocator too; made of tests/gpu/torch_host.cc
 *
 * Uses the driver that LOAM_CUDA_DRIVER names, else the machine's. On the stand-in (tests/standin),
 * "cache" and "chunks" reserve the bytes that they would reserve of a GPU of that size, unless they
 * would have to wait for work: this is loam's own arithmetic. "driver" and "none" would show how
 * the stand-in counts, so they need an explicit --pool there. Times on the stand-in are times of
 * its bookkeeping. */
#include <string.h>

#include "../../gpu/driver.h"
#include "../bench.h"
#include "../device_allocators.h"
#include "trace.h"

enum { STREAMS = 64 };

static const char *const pools[] = { "cache", "chunks", "driver", "none" };
static driver cu;
static CUstream stream[STREAMS];
static const char *asked[8];
static int asked_count;

static device_allocator torch; /* without a function: there is no library */

static bool is_asked(const char *pool, bool otherwise) {
  for (int i = 0; i < asked_count; i++)
    if (!strcmp(asked[i], pool)) return true;
  return !asked_count && otherwise;
}

static int64_t used(void) {
  size_t left, total;
  if (loam_device_memory(0, &left, &total)) return 0;
  return (int64_t)(total - left);
}

static void load_pool(const char *pool) {
  char text[200];
  loam_device_trim(-1);
  snprintf(text, sizeof text,
           "local d = loam.device { pool = '%s' }\n"
           "return loam.policy { pick = function() return d end }\n",
           pool);
  bench_load("trace", text);
}

/* Plays the trace. Returns false if memory ran out. Raises *most to the most bytes of the device
 * that were in use beyond `before`, read after each allocation. If `most` is NULL, the time is
 * measured, so nothing is read. */
static bool play(const device_allocator *by, const trace *t, void **block, int64_t before,
                 int64_t *most) {
  bool ok = true;
  memset(block, 0, t->blocks * sizeof *block);
  for (size_t i = 0; i < t->events && ok; i++) {
    const trace_event *e = &t->event[i];
    if (!e->size) {
      by->free(block[e->block], stream[e->stream]);
      block[e->block] = NULL;
      continue;
    }
    block[e->block] = by->alloc(e->size, stream[e->stream]);
    ok = block[e->block];
    if (most && used() - before > *most) *most = used() - before;
  }
  return ok;
}

static void end(const device_allocator *by, const trace *t, void **block) {
  for (size_t i = 0; i < t->blocks; i++)
    if (block[i]) by->free(block[i], NULL);
  MUST(cu.CtxSynchronize());
  by->trim();
}

static void row(const char *who, bool ok, const trace *t, int64_t reserved, double ns) {
  printf("  %-42s", who);
  if (!ok) printf("    no memory\n");
  else printf("%9lld MiB  %6.3f", (long long)reserved >> 20, (double)reserved / (double)t->peak);
  if (ok && ns >= 0) printf("  %8.0f ns", ns);
  if (ok) printf("\n");
}

static void through(const device_allocator *by, const trace *t, const char *who, void **block) {
  int64_t most = 0;
  bool ok = play(by, t, block, used(), &most);
  if (!ok && by == &allocator_loam) fprintf(stderr, "%s\n", loam_error());
  end(by, t, block);
  int64_t start = bench_now();
  ok = ok && play(by, t, block, 0, NULL);
  double ns = (double)(bench_now() - start) / (double)t->events;
  end(by, t, block);
  row(who, ok, t, most, ns);
}

static void through_pool(const trace *t, const char *pool, void **block) {
  char who[64];
  load_pool(pool);
  snprintf(who, sizeof who, "loam.device { pool = \"%s\" }", pool);
  through(&allocator_loam, t, who, block);
}

static void through_model(const trace *t, int which, size_t total) {
  size_t most = 0;
  bool ok = true;
  model *m = model_new(which, t->streams, t->blocks, total);
  for (size_t i = 0; i < t->events && ok; i++) {
    const trace_event *e = &t->event[i];
    if (e->size) ok = model_take(m, e->block, e->size, e->stream);
    else model_give(m, e->block);
    if (model_reserved(m) > most) most = model_reserved(m);
  }
  row(model_name(which), ok, t, (int64_t)most, -1);
  model_free(m);
}

static void replay(const trace *t) {
  size_t left, total;
  void **block = calloc(t->blocks + 1, sizeof *block);
  if (!block || loam_device_memory(0, &left, &total)) exit(1);
  for (uint32_t i = 1; i < t->streams; i++)
    if (!stream[i]) MUST(cu.StreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
  printf("%s: %zu events, %u streams, peak live %zu MiB\n  %s\n", t->name, t->events, t->streams,
         t->peak >> 20, t->origin);
  printf("  %-42s%13s  %6s  %11s\n", "", "reserved", "/ live", "an event");
  for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
    if (is_asked(pools[i], i < 2 || !cu.stand_in_write)) through_pool(t, pools[i], block);
  if (torch.alloc) through(&torch, t, "PyTorch's caching allocator itself", block);
  for (int i = 0; i < MODELS; i++)
    if (is_asked("models", true)) through_model(t, i, total);
  printf("\n");
  free(block);
}

int main(int argc, char **argv) {
  trace t;
  const char *library = NULL;
  int first = 1;
  for (; first + 1 < argc && argv[first][0] == '-'; first += 2) {
    if (!strcmp(argv[first], "--torch")) library = argv[first + 1];
    else if (strcmp(argv[first], "--pool") != 0) break;
    else if (asked_count < 8) asked[asked_count++] = argv[first + 1];
  }
  if (first >= argc || argv[first][0] == '-') {
    fprintf(stderr,
            "trace [--pool cache|chunks|driver|none|models]... [--torch LIBRARY] FILE...\n");
    return 2;
  }
  driver_open(&cu, NULL);
  if (library && !allocator_torch(&torch, library)) return 1;
  for (; first < argc; first++) {
    if (!trace_read(&t, argv[first])) return 1;
    if (t.streams > STREAMS) {
      fprintf(stderr, "%s: %u streams, and %d are the most\n", argv[first], t.streams, STREAMS);
      return 1;
    }
    replay(&t);
    trace_finish(&t);
  }
  return 0;
}
