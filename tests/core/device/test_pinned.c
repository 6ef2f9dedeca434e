/* test_pinned.c - small objects of pinned memory, on the stand-in for a driver: pinned.h. The
 * stand-in detects work on memory that is not registered, and registered memory that is
 * unmapped. */
#include "child_tests.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device_pool.h"
#include "device/manager.h"
#include "device/pinned.h"
#include "folder.h"
#include "heap/pools.h"
#include "heap/strategy.h"
#include "heap/sweep.h"
#include "os/fork_gate.h"
#include "stream.h"

#define PINNED "local p = loam.pinned { name = 'p' } "
#define HOST "local h = loam.host { name = 'h' } "

static void load(const char *strategies, const char *pick) {
  char text[1024];
  snprintf(text, sizeof text, "%s return loam.policy { pick = function(req) %s end }\n", strategies,
           pick);
  ok(loam_policy_load_text("test", text));
}

static void must(CUresult result) { want(result == CUDA_SUCCESS); }

static loam_owner_info owner_of(const void *p) {
  loam_owner_info owner;
  ok(loam_owner(p, &owner));
  return owner;
}

static bool is_of(const void *p, const char *kind) { return p && !strcmp(owner_of(p).kind, kind); }

static unsigned long registrations(void) { return standin_calls("cuMemHostRegister"); }

/* Makes more ticks than the service thread needs to give back all idle memory. */
static void tick_until_idle(void) {
  for (int i = 0; i < 8; i++) {
    lm_sweep_decay();
    (void)lm_device_pool_decay();
    (void)lm_pinned_decay();
  }
}

/* Trims, and checks that no memory stays registered. */
static void all_goes_back(void) {
  (void)loam_device_trim(-1);
  want(standin_registered() == 0);
  want(lm_pool_is_valid() && lm_device_pool_is_valid() && lm_pinned_is_valid());
}

/* ---- Allocation */

TEST(a_thread_cache_serves_without_a_call_of_the_driver) {
  load(PINNED, "return p");
  loam_site *site = loam_site_get("pinned.pair");
  char *p = loam_malloc(site, 100), *q = loam_pinned_alloc(site, 100, 0);
  loam_owner_info of = owner_of(p + 99), asked = owner_of(q);
  want(is_of(p, "pinned") && is_of(q, "pinned") && of.base == p && of.size == 112);
  want(!strcmp(of.tag, "pinned.pair") && !strcmp(asked.strategy, "p") && of.device == 0);
  want(asked.device == 0 && lm_pool_owns(p) && lm_pool_owns(q));
  unsigned long calls = standin_calls(NULL);
  for (int i = 0; i < 1000; i++) {
    loam_free(p);
    want(loam_malloc(site, 100) == p);
    loam_free(q);
    want(loam_pinned_alloc(site, 100, 0) == q);
  }
  want(standin_calls(NULL) == calls);
  loam_free(p);
  loam_free(q);
  all_goes_back();
}

TEST(every_object_can_be_used_by_the_device_as_a_whole) {
  enum { N = 3000 };
  static char *p[N];
  load(PINNED, "return p");
  CUstream stream = new_stream();
  for (size_t i = 0; i < N; i++) {
    size_t size = 1 + i * 11;
    p[i] = i % 2 ? loam_malloc(NULL, size) : loam_pinned_alloc(NULL, size, LOAM_PINNED_MAPPED);
    want(is_of(p[i], "pinned"));
    CUdeviceptr there;
    must(cuMemHostGetDevicePointer_v2(&there, p[i] + size - 1, 0));
    memset(p[i], (int)i, loam_usable_size(p[i]));
    must(standin_check(stream, (uintptr_t)p[i], (int)(i & 255), loam_usable_size(p[i])));
  }
  must(cuStreamSynchronize(stream));
  want(registrations() > 3 && registrations() < 40); /* regions grow with the pool */
  want(lm_pinned_is_valid());
  for (size_t i = 0; i < N; i++) loam_free(p[i]);
  all_goes_back();
}

/* Returns the entry of the guard slot after the region that contains p. */
static lm_span *guard_behind(const void *p) {
  uint32_t slot = lm_map_slot(p);
  while (lm_map_span(slot)->use != LM_USE_SEAL) slot++;
  return lm_map_span(slot);
}

TEST(a_slot_outside_all_regions_or_in_two_is_found) {
  load(PINNED, "return p");
  char *p = loam_malloc(NULL, 100);
  lm_span *guard = guard_behind(p);
  uint32_t length = guard->prev, first = lm_map_slot_of(guard) - length;
  want(lm_pinned_is_valid());
  guard->prev = lm_map_slot_of(guard) - lm_map_slot(p) - 1; /* p is before the region */
  want(!lm_pinned_is_valid());
  guard->prev = length + first; /* the region begins before the range */
  want(!lm_pinned_is_valid());
  guard->prev = length;
  guard->use = LM_USE_NONE; /* there is no guard slot after p */
  want(!lm_pinned_is_valid());
  guard->use = LM_USE_SEAL;
  lm_pool *pool = lm_pools_at(lm_map_span(lm_map_slot(p))->strategy);
  pool->regions.held++; /* a slot of the pool that is in no region */
  want(!lm_pinned_is_valid());
  pool->regions.held--;
  want(lm_pinned_is_valid());
  loam_free(p);
  all_goes_back();
}

/* Acts like a driver that allocates during a call: takes more blocks than any pool has free. */
typedef struct burst {
  unsigned bursts, calls;
} burst;

static void allocate_much(void *ctx) {
  enum { N = 200 };
  static char *p[N];
  burst *b = ctx;
  unsigned long before = standin_calls(NULL);
  for (int i = 0; i < N; i++) p[i] = loam_malloc(NULL, 30000);
  for (int i = 0; i < N; i++) loam_free(p[i]);
  b->bursts++;
  b->calls += (unsigned)(standin_calls(NULL) - before);
}

/* A driver may hold its own locks when it allocates. If loam called it then, it would wait for
 * itself. */
TEST(a_driver_that_allocates_while_it_is_called_is_not_called) {
  static const char *const in[] = { "cuMemHostRegister", "cuMemHostUnregister", "cuMemGetInfo",
                                    "cuCtxGetDevice",    "cuDeviceTotalMem",    "cuMemUnmap" };
  static char mine[2 * MIB];
  load(PINNED, "return p");
  loam_free(loam_malloc(NULL, 100));
  for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
    burst b = { 0 };
    size_t left, total;
    struct loam_device_info info;
    standin_call_before(in[i], allocate_much, &b);
    void *p = loam_device_alloc(NULL, 100, NULL);
    ok(loam_pin(mine, sizeof mine, 0));
    ok(loam_unpin(mine));
    ok(loam_device_memory(0, &left, &total));
    ok(loam_device_info(0, &info));
    loam_free(p);
    (void)loam_device_trim(-1);
    loam_free(loam_malloc(NULL, 100));
    if (b.bursts != 1 || b.calls) fprintf(stderr, "in %s: %u of %u\n", in[i], b.calls, b.bursts);
    want(b.bursts == 1 && !b.calls);
  }
  all_goes_back();
}

TEST(the_first_region_is_small) {
  load(PINNED, "return p");
  loam_free(loam_malloc(NULL, 64));
  want(registrations() == 1 && standin_registered() == MIB / 2);
  all_goes_back();
}

TEST(large_or_write_combined_blocks_come_from_the_device_pool) {
  load(PINNED, "return p");
  char *large = loam_malloc(NULL, 100000), *fast = loam_pinned_alloc(NULL, 64, 4);
  want(is_of(large, "pinned") && is_of(fast, "pinned") && !lm_pool_owns(large));
  want(!lm_pool_owns(fast));
  char *small = loam_realloc(NULL, large, 100);
  want(is_of(small, "pinned") && lm_pool_owns(small));
  loam_free(small);
  loam_free(fast);
  all_goes_back();
}

TEST(reports_a_wrong_free) {
  struct loam_stats stats;
  load(PINNED, "return p");
  char *p = loam_malloc(NULL, 64);
  loam_free(p);
  loam_free(p);
  p = loam_malloc(NULL, 64);
  loam_free(p + 16);
  loam_device_free(p + 16, NULL);
  loam_device_free(p, NULL);
  loam_device_free(p, NULL);
  ok(loam_stats(&stats));
  want(stats.bad_frees == 4);
  all_goes_back();
}

TEST(each_request_is_decided_by_the_live_policy) {
  load("local a, b = loam.pinned { name = 'a' }, loam.pinned { name = 'b' } ",
       "return req.size > 100 and b or a");
  for (int i = 0; i < 200; i++) {
    size_t size = 90 + (size_t)(i * 7) % 20; /* above and below 100 bytes, in one size class */
    void *p = i % 3 ? loam_pinned_alloc(NULL, size, 0) : loam_malloc(NULL, size);
    want(!strcmp(owner_of(p).strategy, size > 100 ? "b" : "a"));
    loam_free(p);
  }
  load(HOST, "return h");
  for (int i = 0; i < 10; i++) {
    void *p = loam_pinned_alloc(NULL, 100, 0), *q = loam_pinned_alloc(NULL, 100, 1);
    want(!strcmp(owner_of(p).strategy, "pinned") && is_of(q, "pinned"));
    loam_free(p);
    loam_free(q);
  }
  load("local d = loam.deny {} ", "return d");
  want(!loam_pinned_alloc(NULL, 100, 0) && says("the policy denies it"));
  all_goes_back();
}

TEST(a_limit_holds) {
  enum { N = 2000 };
  static void *p[N];
  int made = 0;
  load("local p = loam.pinned { name = 'p', limit = 256 * loam.KiB } " HOST, "return p:or_else(h)");
  for (int i = 0; i < N; i++)
    want((p[i] = i % 2 ? loam_malloc(NULL, 1000) : loam_malloc(NULL, 10)));
  size_t bytes = 0;
  for (int i = 0; i < N; i++)
    if (is_of(p[i], "pinned")) bytes += loam_usable_size(p[i]), made++;
  want(bytes <= 256 * 1024 && bytes > 250 * 1024 && made < N);
  for (int i = 0; i < N; i++) loam_free(p[i]);
  want(is_of(p[0] = loam_malloc(NULL, 10), "pinned"));
  loam_free(p[0]);
  all_goes_back();
}

/* This test makes no tick and no trim. */
TEST(a_load_ends_regions_that_no_policy_names) {
  char strategies[100];
  for (int i = 0; i < 20; i++) {
    snprintf(strategies, sizeof strategies, "local p = loam.pinned { name = 'p%d' }", i);
    load(strategies, "return p");
    void *p = loam_malloc(NULL, 1000);
    want(is_of(p, "pinned"));
    loam_free(p);
  }
  want(standin_registered() > 0);
  load(HOST, "return h");
  want(standin_registered() == 0);
  all_goes_back();
}

TEST(pinned_requests_stay_pinned_when_reallocated) {
  load(PINNED HOST, "return h");
  char *asked = loam_pinned_alloc(NULL, 100, 0);
  load(PINNED HOST, "return p");
  char *decided = loam_malloc(NULL, 100);
  memset(asked, 1, 100);
  memset(decided, 2, 100);
  load(PINNED HOST, "return h");
  for (size_t size = 50; size < 200000; size *= 7) {
    loam_free(loam_malloc(NULL, size)); /* fills the decision cache */
    asked = loam_realloc(NULL, asked, size);
    want(is_of(asked, "pinned") && asked[40] == 1);
  }
  decided = loam_realloc(NULL, decided, 1000);
  want(is_of(decided, "host") && decided[99] == 2);
  loam_free(asked);
  loam_free(decided);
  all_goes_back();
}

static void *grow(void *p) { return loam_realloc(NULL, p, 3000); }

/* Spare memory is not pinned, so the realloc of a pinned request waits for a fork. */
TEST(pinned_requests_stay_pinned_when_reallocated_amid_a_fork) {
  pthread_t thread;
  void *grown;
  load(PINNED HOST, "return h");
  char *p = loam_pinned_alloc(NULL, 100, 0);
  memset(p, 1, 100);
  lm_fork_gate_close(false);
  want(!pthread_create(&thread, NULL, grow, p));
  lm_sys_sleep(200000000);
  lm_fork_gate_open();
  want(!pthread_join(thread, &grown));
  want(is_of(grown, "pinned") && ((char *)grown)[99] == 1);
  loam_free(grown);
  all_goes_back();
}

/* Each request is made several times, so that a kept decision serves it if possible. */
TEST(no_flag_of_pinned_memory_is_taken_for_an_alignment) {
  loam_site *s = loam_site_get("flags");
  load("local h = loam.host {} ", "return h");
  for (unsigned flags = 0; flags < 8; flags++)
    for (int i = 0; i < 3; i++) {
      void *aligned = loam_aligned_alloc(s, 64, 16), *pinned = loam_pinned_alloc(s, 64, flags);
      want(is_of(aligned, "host") && is_of(pinned, "pinned"));
      loam_free(pinned);
      loam_free(aligned);
    }
  all_goes_back();
}

TEST(write_combined_blocks_stay_so_when_reallocated) {
  enum { FLAGS = LOAM_PINNED_WRITE_COMBINED | LOAM_PINNED_PORTABLE };
  load(HOST, "return h");
  char *p = loam_pinned_alloc(NULL, MIB, FLAGS);
  unsigned long made = standin_calls("cuMemHostAlloc");
  memset(p, 1, MIB);
  p = loam_realloc(NULL, p, 8 * MIB);
  want(standin_calls("cuMemHostAlloc") == made + 1 && registrations() == 0);
  want(is_of(p, "pinned") && p[MIB - 1] == 1);
  loam_free(p);
  all_goes_back();
}

TEST(figures_count_pinned_memory) {
  load(PINNED, "return p");
  struct loam_stats before, after;
  ok(loam_stats(&before));
  void *p = loam_pinned_alloc(loam_site_get("pinned.figures"), 1024, 0);
  ok(loam_stats(&after));
  want(after.live_bytes - before.live_bytes == loam_usable_size(p));
  want(after.live_blocks - before.live_blocks == 1);
  loam_free(p);
  all_goes_back();
}

/* ---- Streams */

TEST(memory_that_a_stream_reads_is_not_reused_before_that_ends) {
  load(PINNED, "return p");
  CUstream stream = new_stream();
  char *p = loam_pinned_alloc(NULL, 1000, 0);
  memset(p, 1, 1000);
  standin_hold();
  must(standin_check(stream, (uintptr_t)p, 1, 1000));
  loam_device_free(p, stream);
  loam_owner_info owner;
  want(loam_owner(p, &owner) == LOAM_EBADPTR);
  static char *q[2000];
  for (int i = 0; i < 2000; i++) {
    want((q[i] = loam_pinned_alloc(NULL, 1000, 0)) != p);
    memset(q[i], 2, 1000);
  }
  tick_until_idle();
  standin_release();
  loam_device_free(q[0], stream); /* a free on the stream, which records an event */
  tick_until_idle();
  bool is_back = false;
  for (int i = 1; i < 2000; i++) loam_free(q[i]);
  for (int i = 0; i < 2000; i++) is_back |= (q[i] = loam_pinned_alloc(NULL, 1000, 0)) == p;
  want(is_back);
  for (int i = 0; i < 2000; i++) loam_free(q[i]);
  all_goes_back();
}

TEST(a_loop_over_streams_does_not_grow) {
  load(PINNED, "return p");
  CUstream stream[3] = { new_stream(), new_stream(), NULL };
  for (int i = 0; i < 30000; i++) {
    char *p = loam_pinned_alloc(NULL, 1000, 0);
    memset(p, i, 1000);
    must(standin_check(stream[i % 3], (uintptr_t)p, i & 255, 1000));
    loam_device_free(p, stream[i % 3]);
    if (i % 64 == 0) must(cuCtxSynchronize());
  }
  want(standin_registered() <= 4 * MIB);
  all_goes_back();
}

/* A kernel on stream `one` still writes the block when the block is freed, and later when it is
 * reallocated. */
TEST(a_block_asked_for_as_device_memory_keeps_its_stream) {
  enum { SIZE = 1000 };
  load("local p = loam.pinned { name = 'p', mapped = true } ", "return p");
  CUstream one = new_stream(), other = new_stream();
  char *p = loam_device_alloc(NULL, SIZE, one);
  want(is_of(p, "pinned") && owner_of(p).stream == one && owner_of(p + SIZE - 1).base == p);
  standin_hold();
  must(standin_write(one, (uintptr_t)p, 1, SIZE));
  loam_free(p);
  char *for_other = loam_device_alloc(NULL, SIZE, other);
  char *for_host = loam_pinned_alloc(NULL, 100000, LOAM_PINNED_MAPPED);
  want(for_other != p && owner_of(for_other).stream == other && !owner_of(for_host).stream);
  want(loam_device_alloc(NULL, SIZE, one) == p);
  must(standin_write(other, (uintptr_t)for_other, 2, SIZE));
  must(standin_write(one, (uintptr_t)p, 3, SIZE));
  char *moved = loam_realloc(NULL, p, 100 * SIZE);
  want(moved && owner_of(moved).stream == one);
  must(standin_check(one, (uintptr_t)moved, 3, SIZE));
  standin_release();
  must(cuCtxSynchronize());
  loam_free(moved);
  loam_free(for_other);
  loam_free(for_host);
  all_goes_back();
}

TEST(memory_that_the_host_freed_serves_every_stream) {
  load("local p = loam.pinned { name = 'p', mapped = true } ", "return p");
  char *p = loam_pinned_alloc(NULL, 2 * MIB, 0);
  loam_free(p);
  want(loam_device_alloc(NULL, 2 * MIB, new_stream()) == p);
  loam_free(p);
  all_goes_back();
}

/* ---- Memory goes back */

TEST(returns_idle_regions_by_itself) {
  load(PINNED, "return p");
  static void *p[5000];
  for (int i = 0; i < 5000; i++) p[i] = loam_malloc(NULL, 2000);
  want(standin_registered() > 8 * MIB);
  for (int i = 1; i < 5000; i++) loam_free(p[i]);
  standin_hold(); /* no stream uses the memory */
  tick_until_idle();
  want(standin_registered() <= MIB);
  loam_free(p[0]);
  tick_until_idle();
  want(standin_registered() == 0);
  standin_release();
  all_goes_back();
}

static bool is_resident(void *at) {
  unsigned char in = 0;
  return mincore((void *)lm_align_down((uintptr_t)at, LM_PAGE), LM_PAGE, &in) == 0 && in & 1;
}

TEST(pages_of_registered_memory_stay) {
  static char *p[256];
  load(PINNED, "return p");
  for (int i = 0; i < 256; i++) memset(p[i] = loam_malloc(NULL, LM_PAGE), 1, LM_PAGE);
  for (int i = 0; i < 256; i++)
    if (i % 16) loam_free(p[i]);
  tick_until_idle();
  (void)loam_trim();
  for (int i = 0; i < 256; i++) want(is_resident(p[i]));
  for (int i = 0; i < 256; i += 16) loam_free(p[i]);
  all_goes_back();
}

TEST(a_move_leaves_pinned_memory_where_it_is) {
  static char *p[100];
  load(PINNED HOST, "return p");
  for (int i = 0; i < 100; i++)
    p[i] = i % 2 ? loam_malloc(NULL, 300) : loam_pinned_alloc(NULL, 300, 0);
  for (int i = 0; i < 100; i++) memset(p[i], i, 300);
  load(PINNED HOST, "return h");
  ok(loam_rebalance(NULL, NULL, NULL, NULL));
  for (int i = 0; i < 100; i++) want(is_of(p[i], "pinned") && p[i][299] == i);
  for (int i = 0; i < 100; i++) loam_free(p[i]);
  all_goes_back();
}

TEST(keeps_as_much_as_loam_device_keep_says) {
  load(PINNED, "return p");
  static void *p[5000];
  loam_device_keep(3 * MIB);
  for (int i = 0; i < 5000; i++) p[i] = loam_malloc(NULL, 2000);
  for (int i = 0; i < 5000; i++) loam_free(p[i]);
  tick_until_idle();
  want(standin_registered() >= 3 * MIB && standin_registered() < 8 * MIB);
  loam_device_keep(0);
  tick_until_idle();
  want(standin_registered() == 0);
  all_goes_back();
}

TEST(ends_a_strategy_that_no_policy_names) {
  lm_strategy *s;
  load(PINNED, "return p");
  loam_free(loam_malloc(NULL, 64));
  lm_desc desc = { .name = "p", .kind = LM_KIND_PINNED };
  ok(lm_strategy_intern(&desc, &s));
  want(s->pool && s->twins);
  load(HOST, "return h");
  tick_until_idle();
  want(standin_registered() == 0);
  load(HOST, "return h");
  tick_until_idle();
  load(HOST, "return h");
  want(!s->pool);
  load(PINNED, "return p");
  void *p = loam_malloc(NULL, 64);
  want(is_of(p, "pinned") && s->pool);
  loam_free(p);
  all_goes_back();
}

/* ---- Refusals */

TEST(or_else_serves_when_the_driver_fails_and_has_its_words) {
  load(PINNED HOST, "if req.tag:is'strict' then return p end return p:or_else(h)");
  loam_site *strict = loam_site_get("strict");
  lm_pool_figures before, after;
  lm_pool_figures_get(&before);
  standin_fail("cuMemHostRegister", 1, 1000, CUDA_ERROR_OUT_OF_MEMORY);
  want(!loam_malloc(strict, 64) && says("cuMemHostRegister of ") && says("strategy 'p'"));
  lm_pool_figures_get(&after);
  want(after.regions == before.regions);
  void *p = loam_malloc(NULL, 64);
  want(is_of(p, "host"));
  want(!loam_pinned_alloc(strict, 64, 0) && says("cuMemHostRegister of "));
  standin_fail(NULL, 0, 0, CUDA_SUCCESS);
  lm_sys_sleep(20000000); /* for 10 ms after a failure loam does not ask the driver again */
  loam_free(p);
  want(is_of(p = loam_malloc(NULL, 64), "pinned"));
  loam_free(p);
  all_goes_back();
}

TEST(registers_less_where_memory_is_short) {
  static void *p[8000];
  load(PINNED HOST, "return p:or_else(h)");
  standin_lockable(5 * MIB);
  int pinned = 0;
  for (int i = 0; i < 8000; i++) pinned += is_of(p[i] = loam_malloc(NULL, 1024), "pinned");
  want(standin_registered() <= 5 * MIB && pinned > 4 * 1024 && pinned <= 5 * 1024);
  for (int i = 0; i < 8000; i++) loam_free(p[i]);
  all_goes_back();
}

/* Allocates, frees and trims through all code of pinned memory. Returns whether all allocations
 * succeeded. In the tests below each call fails once; after that all allocations must succeed
 * again. */
static bool go_through(CUstream stream) {
  static void *p[400];
  bool all = true;
  for (int i = 0; i < 400; i++)
    all &= (p[i] = i % 2 ? loam_malloc(NULL, 3000) : loam_pinned_alloc(NULL, 3000, 0)) != NULL;
  for (int i = 0; i < 400; i++)
    if (i % 4 == 1) loam_device_free(p[i], stream);
    else loam_free(p[i]);
  tick_until_idle();
  (void)loam_device_trim(-1);
  want(lm_pool_is_valid() && lm_device_pool_is_valid());
  return all;
}

TEST(nothing_is_lost_whichever_call_of_the_driver_fails) {
  load(PINNED HOST, "return p:or_else(h)");
  CUstream stream = new_stream();
  want(go_through(stream));
  for (unsigned nth = 1;; nth++) {
    unsigned long before = standin_calls(NULL);
    standin_fail(NULL, nth, 1, CUDA_ERROR_OUT_OF_MEMORY);
    (void)go_through(stream);
    bool was_last = standin_calls(NULL) - before < nth;
    standin_fail(NULL, 0, 0, CUDA_SUCCESS);
    lm_sys_sleep(12000000);
    want(go_through(stream));
    if (was_last) break;
    want(nth < 300);
  }
}

TEST(nothing_is_lost_whichever_system_call_fails) {
  load(PINNED HOST, "return p:or_else(h)");
  CUstream stream = new_stream();
  want(go_through(stream));
  for (long nth = 1;; nth++) {
    long before = lm_sys_calls();
    lm_sys_refuse(nth);
    (void)go_through(stream);
    lm_sys_refuse(0);
    bool was_last = lm_sys_calls() - before < nth;
    lm_sys_sleep(12000000);
    want(go_through(stream));
    if (was_last) break;
    want(nth < 1000);
  }
  want(standin_registered() == 0);
}

/* ---- Forks, contexts, devices, managers */

static int in_child(void *kept) {
  char *p = kept;
  want(p[0] == 7 && is_of(p, "pinned"));
  want(!loam_pinned_alloc(NULL, 64, 0) && says("a fork cannot use the GPU"));
  void *q = loam_malloc(NULL, 64);
  want(is_of(q, "host"));
  loam_free(q);
  loam_free(p);
  want(is_of(q = loam_malloc(NULL, 64), "host")); /* not the block that was freed above */
  loam_device_free(q, NULL);
  char *other = loam_pinned_alloc(NULL, 64, 0);
  want(!other);
  (void)loam_trim();
  (void)loam_device_trim(-1);
  want(lm_pool_is_valid());
  return 0;
}

TEST(a_forked_child_gets_no_pinned_memory_and_calls_no_driver) {
  load(PINNED HOST, "return p:or_else(h)");
  char *p = loam_malloc(NULL, 64), *q = loam_malloc(NULL, 64);
  p[0] = 7;
  loam_free(q); /* the block is in the thread cache now */
  int status;
  pid_t child = fork();
  if (!child) _exit(in_child(p));
  want(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
  want(p[0] == 7 && loam_malloc(NULL, 64) == q);
  loam_free(p);
  loam_free(q);
  all_goes_back();
}

TEST(a_reset_ends_the_regions_of_the_device) {
  load(PINNED, "return p");
  loam_owner_info owner;
  void *small = loam_malloc(NULL, 64), *asked = loam_pinned_alloc(NULL, 64, 0);
  ok(loam_device_reset(0));
  want(loam_owner(small, &owner) == LOAM_EBADPTR && loam_owner(asked, &owner) == LOAM_EBADPTR);
  want(standin_registered() == 0);
  must(cuDevicePrimaryCtxReset_v2(0));
  void *p = loam_malloc(NULL, 64);
  want(is_of(p, "pinned"));
  loam_free(p);
  all_goes_back();
}

TEST(memory_outlives_the_context_that_it_was_pinned_in) {
  load(PINNED, "return p");
  char *p = loam_malloc(NULL, 64), *q = loam_pinned_alloc(NULL, 64, 0);
  p[0] = 5, q[0] = 6;
  must(cuDevicePrimaryCtxReset_v2(0)); /* the host resets the context without a call of loam */
  want(p[0] == 5 && q[0] == 6 && is_of(p, "pinned"));
  loam_free(p);
  loam_free(q);
  all_goes_back();
  want(is_of(p = loam_malloc(NULL, 64), "pinned") && standin_registered());
  loam_free(p);
  all_goes_back();
}

TEST(knows_the_device_that_memory_is_pinned_for) {
  setenv("STANDIN_DEVICES", "2", 1);
  load(PINNED, "return p");
  CUcontext one;
  must(cuDevicePrimaryCtxRetain(&one, 1));
  must(cuCtxSetCurrent(one));
  void *p = loam_malloc(NULL, 64);
  want(owner_of(p).device == 1);
  ok(loam_device_reset(0));
  want(owner_of(p).device == 1);
  loam_free(p);
  all_goes_back();
}

static uint32_t pool_of(const void *p) {
  lm_object object;
  want(lm_pool_find(p, &object));
  return object.strategy;
}

TEST(devices_on_several_nodes_have_pools_of_their_own) {
  CUcontext context[2];
  void *p[2][100];
  setenv("STANDIN_DEVICES", "2", 1);
  setenv("STANDIN_NODES", "0,1", 1);
  want(mkdtemp(folder) != NULL);
  write_two_nodes();
  lm_numa_pretend(folder, UINT64_MAX);
  load(PINNED, "return p");
  for (int i = 0; i < 2; i++) must(cuDevicePrimaryCtxRetain(&context[i], i));
  for (int i = 0; i < 200; i++) {
    must(cuCtxSetCurrent(context[i % 2]));
    p[i % 2][i / 2] = i % 3 ? loam_malloc(NULL, 64) : loam_pinned_alloc(NULL, 64, 0);
    loam_owner_info owner = owner_of(p[i % 2][i / 2]);
    want(owner.device == i % 2 && !strcmp(owner.strategy, "p"));
  }
  want(pool_of(p[0][1]) != pool_of(p[1][1]));
  for (int i = 0; i < 200; i++) loam_free(p[i % 2][i / 2]);
  all_goes_back();
  want(remove_folder(NULL) == 0);
}

static int hosts;

static loam_status host_alloc(void *ctx, int device, size_t size, unsigned flags, void **out) {
  (void)ctx, (void)device, (void)flags;
  hosts++;
  return (*out = aligned_alloc(4096, lm_align_up(size, 4096))) ? LOAM_OK : LOAM_ENOMEM;
}

static void host_free(void *ctx, int device, void *at, size_t size) {
  (void)ctx, (void)device, (void)size;
  hosts--;
  free(at);
}

TEST(a_manager_of_the_host_allocates_all_pinned_memory) {
  static const loam_manager mine = { .size = sizeof mine,
                                     .interface_version = 1,
                                     .name = "mine",
                                     .memhostalloc = host_alloc,
                                     .memhostfree = host_free };
  load(PINNED, "return p");
  ok(loam_manager_set(&mine));
  void *p = loam_malloc(NULL, 64), *q = loam_pinned_alloc(NULL, 64, 0);
  want(is_of(p, "pinned") && is_of(q, "pinned") && hosts == 1 && registrations() == 0);
  want(!lm_pool_owns(p) && !lm_pool_owns(q));
  loam_free(p);
  loam_free(q);
  all_goes_back();
  want(hosts == 0);
}

/* ---- Threads */

enum { THREADS = 4, SHARED = 256, ROUNDS = 6000 };

static _Atomic(char *) shared[SHARED];

static void *work(void *seed) {
  uint64_t random = (uintptr_t)seed;
  for (int i = 0; i < ROUNDS; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    size_t size = 16 + (random >> 33) % 2000;
    char *p = random & 1 << 20 ? loam_malloc(NULL, size) : loam_pinned_alloc(NULL, size, 0);
    if (p) p[0] = p[size - 1] = (char)size;
    char *old = atomic_exchange(&shared[(random >> 40) % SHARED], p);
    if (random & 1 << 21) loam_device_free(old, NULL);
    else loam_free(old);
  }
  return NULL;
}

TEST(threads_allocate_while_regions_are_returned) {
  pthread_t thread[THREADS];
  load(PINNED HOST, "return p:or_else(h)");
  for (uintptr_t i = 0; i < THREADS; i++)
    want(!pthread_create(&thread[i], NULL, work, (void *)(i + 1)));
  for (int i = 0; i < 30; i++) {
    if (i % 3) tick_until_idle();
    else (void)loam_device_trim(-1);
    if (i == 10) load(HOST, "return h");
    if (i == 20) load(PINNED HOST, "return p:or_else(h)");
  }
  for (int i = 0; i < THREADS; i++) want(!pthread_join(thread[i], NULL));
  for (int i = 0; i < SHARED; i++) loam_free(shared[i]);
  must(cuStreamSynchronize(new_stream()));
  must(cuCtxSynchronize());
  tick_until_idle();
  all_goes_back();
}

int main(void) {
  setenv("LOAM_CONTROL", "0", 1); /* these tests call the ticks themselves */
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_thread_cache_serves_without_a_call_of_the_driver),
    cmocka_unit_test(a_slot_outside_all_regions_or_in_two_is_found),
    cmocka_unit_test(every_object_can_be_used_by_the_device_as_a_whole),
    cmocka_unit_test(a_driver_that_allocates_while_it_is_called_is_not_called),
    cmocka_unit_test(the_first_region_is_small),
    cmocka_unit_test(large_or_write_combined_blocks_come_from_the_device_pool),
    cmocka_unit_test(reports_a_wrong_free),
    cmocka_unit_test(each_request_is_decided_by_the_live_policy),
    cmocka_unit_test(a_limit_holds),
    cmocka_unit_test(a_load_ends_regions_that_no_policy_names),
    cmocka_unit_test(pinned_requests_stay_pinned_when_reallocated),
    cmocka_unit_test(pinned_requests_stay_pinned_when_reallocated_amid_a_fork),
    cmocka_unit_test(no_flag_of_pinned_memory_is_taken_for_an_alignment),
    cmocka_unit_test(write_combined_blocks_stay_so_when_reallocated),
    cmocka_unit_test(figures_count_pinned_memory),
    cmocka_unit_test(memory_that_a_stream_reads_is_not_reused_before_that_ends),
    cmocka_unit_test(a_loop_over_streams_does_not_grow),
    cmocka_unit_test(a_block_asked_for_as_device_memory_keeps_its_stream),
    cmocka_unit_test(memory_that_the_host_freed_serves_every_stream),
    cmocka_unit_test(returns_idle_regions_by_itself),
    cmocka_unit_test(pages_of_registered_memory_stay),
    cmocka_unit_test(a_move_leaves_pinned_memory_where_it_is),
    cmocka_unit_test(keeps_as_much_as_loam_device_keep_says),
    cmocka_unit_test(ends_a_strategy_that_no_policy_names),
    cmocka_unit_test(or_else_serves_when_the_driver_fails_and_has_its_words),
    cmocka_unit_test(registers_less_where_memory_is_short),
    cmocka_unit_test(nothing_is_lost_whichever_call_of_the_driver_fails),
    cmocka_unit_test(nothing_is_lost_whichever_system_call_fails),
    cmocka_unit_test(a_forked_child_gets_no_pinned_memory_and_calls_no_driver),
    cmocka_unit_test(a_reset_ends_the_regions_of_the_device),
    cmocka_unit_test(memory_outlives_the_context_that_it_was_pinned_in),
    cmocka_unit_test(knows_the_device_that_memory_is_pinned_for),
    cmocka_unit_test(devices_on_several_nodes_have_pools_of_their_own),
    cmocka_unit_test(a_manager_of_the_host_allocates_all_pinned_memory),
    cmocka_unit_test(threads_allocate_while_regions_are_returned),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
