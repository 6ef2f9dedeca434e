/* test_nrt.c - the function table of Numba's runtime: loam_nrt_api. */
#include "loam.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"

/* Compares the layout of loam's table with Numba's header, if that is installed. If they differ,
 * this file does not compile. */
#if __has_include(<numba/core/runtime/nrt_external.h>)
#include <numba/core/runtime/nrt_external.h>
#define SAME(ours, theirs)                                                                  \
  _Static_assert(offsetof(loam_nrt, ours) == offsetof(NRT_api_functions, theirs) &&         \
                     sizeof((loam_nrt *)0)->ours == sizeof((NRT_api_functions *)0)->theirs, \
                 #ours)
SAME(allocate, allocate);
SAME(allocate_external, allocate_external);
SAME(manage_memory, manage_memory);
SAME(acquire, acquire);
SAME(release, release);
SAME(get_data, get_data);
_Static_assert(sizeof(loam_nrt_allocator) == sizeof(NRT_ExternalAllocator), "allocator");
#endif
_Static_assert(sizeof(loam_nrt) == 6 * sizeof(void *), "six functions and nothing else");
_Static_assert(offsetof(loam_nrt_allocator, opaque_data) == 3 * sizeof(void *), "after three");

static uint64_t live_blocks(void) {
  struct loam_stats now;
  loam_stats(&now);
  return now.live_blocks;
}

static void a_block_is_allocated_acquired_and_released(void **state) {
  (void)state;
  const loam_nrt *nrt = loam_nrt_api();
  uint64_t before = live_blocks();
  loam_scope_enter(loam_site_get("test.nrt"));
  loam_block *b = nrt->allocate(100);
  loam_scope_leave();
  assert_string_equal(loam_block_tag(b), "test.nrt");
  memset(nrt->get_data(b), 1, 100);
  assert_ptr_equal(nrt->get_data(b), loam_block_data(b));
  nrt->acquire(b);
  assert_int_equal(loam_block_refcount(b), 2);
  nrt->release(b);
  nrt->release(b);
  assert_int_equal(live_blocks(), before);
}

/* ---- An external allocator of a host */

typedef struct counter {
  int live, calls;
  bool refuses;
} counter;

static void *count_malloc(size_t size, void *opaque) {
  counter *c = opaque;
  c->calls++;
  if (c->refuses) return NULL;
  c->live++;
  return aligned_alloc(64, (size + 63) / 64 * 64);
}

static void count_free(void *ptr, void *opaque) {
  counter *c = opaque;
  c->live--;
  free(ptr);
}

static void an_external_allocator_is_asked_once_and_given_back_once(void **state) {
  (void)state;
  const loam_nrt *nrt = loam_nrt_api();
  counter c = { 0 };
  loam_nrt_allocator a = { count_malloc, NULL, count_free, &c };
  loam_block *b = nrt->allocate_external(100, &a);
  assert_int_equal(c.live, 1);
  assert_int_equal(c.calls, 1);
  assert_int_equal((uintptr_t)nrt->get_data(b) % 64, 0); /* the alignment of the allocator */
  assert_int_equal(loam_block_size(b), 100);
  assert_int_equal(loam_block_kind_of(b), LOAM_BLOCK_EXTERNAL);
  nrt->acquire(b);
  nrt->release(b);
  assert_int_equal(c.live, 1);
  nrt->release(b);
  assert_int_equal(c.live, 0);
}

static void its_null_is_passed_on(void **state) {
  (void)state;
  counter c = { .refuses = true };
  loam_nrt_allocator a = { count_malloc, NULL, count_free, &c };
  uint64_t before = live_blocks();
  assert_null(loam_nrt_api()->allocate_external(100, &a));
  assert_int_equal(c.calls, 1);
  assert_int_equal(live_blocks(), before);
}

static void without_an_allocator_it_is_loams(void **state) {
  (void)state;
  loam_block *b = loam_nrt_api()->allocate_external(100, NULL);
  assert_int_equal(loam_block_kind_of(b), LOAM_BLOCK_EMBEDDED);
  loam_block_release(b);
}

/* ---- Managed memory */

static void *ended;
static void note_end(void *data) { ended = data; }

static void managed_memory_is_ended_by_its_destructor(void **state) {
  (void)state;
  const loam_nrt *nrt = loam_nrt_api();
  char memory[10];
  loam_block *b = nrt->manage_memory(memory, note_end);
  assert_ptr_equal(nrt->get_data(b), memory);
  nrt->release(b);
  assert_ptr_equal(ended, memory);
  ended = NULL;
  nrt->release(nrt->manage_memory(memory, NULL));
  assert_null(ended);
}

/* ---- No memory */

static void make_each(bool refused) {
  static counter c;
  char memory[10];
  const loam_nrt *nrt = loam_nrt_api();
  loam_nrt_allocator a = { count_malloc, NULL, count_free, &c };
  loam_block *b[] = { nrt->allocate(100), nrt->allocate(100000), nrt->allocate_external(10, &a),
                      nrt->manage_memory(memory, note_end) };
  ended = NULL;
  for (size_t i = 0; i < LM_COUNT(b); i++) {
    assert_true(b[i] || refused);
    nrt->release(b[i]);
  }
  assert_int_equal(c.live, 0);
  assert_int_equal(ended != NULL, b[3] != NULL);
  (void)loam_trim();
}

static void want_of_memory_is_null_and_leaves_nothing(void **state) {
  (void)state;
  uint64_t before = live_blocks();
  assert_true(refuse_each(make_each) > 0);
  assert_int_equal(live_blocks(), before);
}

/* The policy denies headers. The data of a block are allocated before its header. */
static void without_a_header_nothing_is_kept(void **state) {
  (void)state;
  counter c = { 0 };
  loam_nrt_allocator a = { count_malloc, NULL, count_free, &c };
  assert_int_equal(
      loam_policy_load_text("deny.lua", "local deny, host = loam.deny {}, loam.host {}\n"
                                        "return loam.policy { name = 'deny', pick = function(req)\n"
                                        "  return req.tag:under('loam.block') and deny or host\n"
                                        "end }\n"),
      LOAM_OK);
  ended = NULL;
  assert_null(loam_nrt_api()->allocate_external(100, &a));
  assert_null(loam_nrt_api()->manage_memory(&c, note_end));
  assert_null(ended);
  assert_int_equal(c.calls, 1);
  assert_int_equal(c.live, 0);
  assert_int_equal(loam_policy_load_text("back.lua",
                                         "local host = loam.host {}\n"
                                         "return loam.policy { name = 'back', pick = function()\n"
                                         "  return host\n"
                                         "end }\n"),
                   LOAM_OK);
}

/* ---- Threads */

enum { THREADS = 8, TIMES = 20000 };

static void *take_part(void *block) {
  const loam_nrt *nrt = loam_nrt_api();
  for (int i = 0; i < TIMES; i++) {
    nrt->acquire(block);
    nrt->release(block);
  }
  nrt->release(block);
  return NULL;
}

static void eight_threads_end_external_memory_once(void **state) {
  (void)state;
  counter c = { 0 };
  pthread_t thread[THREADS];
  loam_nrt_allocator a = { count_malloc, NULL, count_free, &c };
  loam_block *b = loam_nrt_api()->allocate_external(100, &a);
  for (int i = 0; i < THREADS; i++) {
    loam_nrt_api()->acquire(b);
    thread[i] = start_thread(take_part, b);
  }
  loam_block_release(b);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  assert_int_equal(c.live, 0);
}

int main(void) {
  setenv("LOAM_CONTROL", "0", 1);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_block_is_allocated_acquired_and_released),
    cmocka_unit_test(an_external_allocator_is_asked_once_and_given_back_once),
    cmocka_unit_test(its_null_is_passed_on),
    cmocka_unit_test(without_an_allocator_it_is_loams),
    cmocka_unit_test(managed_memory_is_ended_by_its_destructor),
    cmocka_unit_test(want_of_memory_is_null_and_leaves_nothing),
    cmocka_unit_test(without_a_header_nothing_is_kept),
    cmocka_unit_test(eight_threads_end_external_memory_once),
  };
  return cmocka_run_group_tests_name("nrt", tests, NULL, NULL);
}
