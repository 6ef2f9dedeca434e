/* test_block.c - reference-counted owners of memory: block.h. */
#include "block/block.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

static loam_site *here(void) { return loam_site_get("test.block"); }

/* The live blocks of a tag and their bytes. */
typedef struct live {
  const char *tag;
  uint64_t blocks, bytes;
} live;

static void add_row(void *ctx, const loam_stats_row *row) {
  live *sum = ctx;
  if (strcmp(row->tag, sum->tag) != 0) return;
  sum->blocks += row->live_blocks;
  sum->bytes += row->live_bytes;
}

static live live_under(const char *tag) {
  live sum = { .tag = tag };
  assert_int_equal(loam_stats_by(LOAM_BY_TAG, add_row, &sum), LOAM_OK);
  return sum;
}

/* Fails if a test has left a live block. */
static void expect_nothing_live(void) {
  assert_int_equal(live_under("test.block").blocks, 0);
  assert_int_equal(live_under("loam.block").blocks, 0);
}

/* ---- Kinds */

static void small_data_stand_after_their_header(void **state) {
  (void)state;
  static const size_t sizes[] = { 0, 1, 64, LM_BLOCK_EMBEDDED_MAX };
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    loam_block *b = loam_block_new(here(), sizes[i]);
    assert_int_equal(loam_block_kind_of(b), LOAM_BLOCK_EMBEDDED);
    assert_ptr_equal(loam_block_data(b), b + 1);
    assert_int_equal(loam_block_size(b), sizes[i]);
    assert_int_equal(loam_block_refcount(b), 1);
    assert_string_equal(loam_block_tag(b), "test.block");
    memset(loam_block_data(b), 7, sizes[i]);
    assert_int_equal(live_under("test.block").blocks, 1);
    loam_block_release(b);
    expect_nothing_live();
  }
}

static void large_data_stand_apart_and_are_all_that_the_tag_has(void **state) {
  (void)state;
  static const size_t sizes[] = { LM_BLOCK_EMBEDDED_MAX + 1, 40000, 3 << 20 };
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    loam_block *b = loam_block_new(here(), sizes[i]);
    assert_int_equal(loam_block_kind_of(b), LOAM_BLOCK_OWNED);
    assert_int_equal(loam_block_size(b), sizes[i]);
    memset(loam_block_data(b), 7, sizes[i]);
    loam_owner_info whose;
    assert_int_equal(loam_owner(loam_block_data(b), &whose), LOAM_OK);
    assert_string_equal(whose.tag, "test.block");
    assert_int_equal(live_under("test.block").blocks, 1);
    assert_int_equal(live_under("loam.block").blocks, 1);
    loam_block_release(b);
    expect_nothing_live();
  }
}

static void zeroed_blocks_are_zero(void **state) {
  (void)state;
  static const size_t sizes[] = { 1, 200, 1000, 5000, 100000 };
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    loam_block *b = loam_block_new(here(), sizes[i]);
    memset(loam_block_data(b), 7, sizes[i]);
    loam_block_release(b);
    b = loam_block_zeroed(here(), sizes[i]);
    const char *data = loam_block_data(b);
    for (size_t j = 0; j < sizes[i]; j++) assert_int_equal(data[j], 0);
    loam_block_release(b);
  }
  expect_nothing_live();
}

static void data_are_aligned_as_asked(void **state) {
  (void)state;
  for (size_t alignment = 1; alignment <= 1 << 16; alignment *= 2) {
    for (size_t size = 0; size < 100000; size = size * 3 + 50) {
      loam_block *b = loam_block_aligned(here(), alignment, size);
      assert_int_equal((uintptr_t)loam_block_data(b) % alignment, 0);
      memset(loam_block_data(b), 7, size);
      loam_block_release(b);
    }
  }
  assert_null(loam_block_aligned(here(), 3, 10));
  assert_null(loam_block_aligned(here(), 0, 10));
  expect_nothing_live();
}

static void load_text(const char *text) {
  assert_int_equal(loam_policy_load_text("it.lua", text), LOAM_OK);
}

static void load(const char *strategy) {
  char text[256];
  snprintf(text, sizeof text,
           "local it = %s\nreturn loam.policy { name = 'it', pick = function() return it end }\n",
           strategy);
  load_text(text);
}

static void embedded_data_keep_the_strategys_alignment(void **state) {
  (void)state;
  load("loam.host { align = 64 }");
  for (size_t i = 0; i < 20; i++) {
    loam_block *b = loam_block_new(here(), i * 50);
    assert_int_equal((uintptr_t)loam_block_data(b) % 64, 0);
    loam_block_release(b);
  }
  load("loam.host {}");
}

static void a_scope_names_what_brings_no_site(void **state) {
  (void)state;
  loam_scope_enter(loam_site_get("test.scope"));
  loam_block *b = loam_block_new(NULL, 10), *large = loam_block_new(NULL, 5000);
  loam_block *wrapped = loam_block_wrap(NULL, NULL, 0, NULL, NULL);
  loam_scope_leave();
  assert_string_equal(loam_block_tag(b), "test.scope");
  assert_string_equal(loam_block_tag(large), "test.scope");
  assert_string_equal(loam_block_tag(wrapped), "test.scope");
  loam_block *other = loam_block_new(NULL, 10);
  assert_string_equal(loam_block_tag(other), "");
  loam_block_release(b);
  loam_block_release(large);
  loam_block_release(wrapped);
  loam_block_release(other);
  expect_nothing_live();
}

/* ---- External memory */

typedef struct ended {
  unsigned n;
  void *ptr;
  size_t size;
} ended;

static void note_end(void *ptr, size_t size, void *ctx) {
  ended *log = ctx;
  log->n++;
  log->ptr = ptr;
  log->size = size;
  loam_free(loam_malloc(here(), 100)); /* a destructor may call loam */
}

static void a_wrapped_block_calls_its_destructor_once(void **state) {
  (void)state;
  char memory[100];
  ended log = { 0 };
  loam_block *b = loam_block_wrap(here(), memory, sizeof memory, note_end, &log);
  assert_int_equal(loam_block_kind_of(b), LOAM_BLOCK_EXTERNAL);
  assert_ptr_equal(loam_block_data(b), memory);
  assert_ptr_equal(loam_block_retain(b), b);
  loam_block_release(b);
  assert_int_equal(log.n, 0);
  loam_block_release(b);
  assert_int_equal(log.n, 1);
  assert_ptr_equal(log.ptr, memory);
  assert_int_equal(log.size, sizeof memory);
  b = loam_block_wrap(here(), memory, 10, NULL, NULL);
  loam_block_release(b);
  expect_nothing_live();
}

/* ---- Slices */

static void a_slice_keeps_its_parent_alive(void **state) {
  (void)state;
  char memory[100];
  ended log = { 0 };
  loam_block *b = loam_block_wrap(here(), memory, sizeof memory, note_end, &log);
  loam_block *part = loam_block_slice(b, 10, 50), *part_of_it = loam_block_slice(part, 5, 45);
  assert_int_equal(loam_block_kind_of(part), LOAM_BLOCK_SLICE);
  assert_ptr_equal(loam_block_data(part), memory + 10);
  assert_ptr_equal(loam_block_data(part_of_it), memory + 15);
  assert_int_equal(loam_block_size(part_of_it), 45);
  assert_string_equal(loam_block_tag(part_of_it), "test.block");
  assert_int_equal(loam_block_refcount(b), 3);
  loam_block_release(b);
  loam_block_release(part);
  assert_int_equal(log.n, 0);
  loam_block_release(part_of_it);
  assert_int_equal(log.n, 1);
  expect_nothing_live();
}

static void a_slice_of_a_slice_does_not_keep_the_slice(void **state) {
  (void)state;
  loam_block *b = loam_block_new(here(), 100), *part = loam_block_slice(b, 0, 100);
  for (int i = 0; i < 1000; i++) {
    loam_block *next = loam_block_slice(part, 0, 100);
    loam_block_release(part);
    part = next;
  }
  assert_int_equal(live_under("loam.block").blocks, 1);
  assert_int_equal(loam_block_refcount(b), 2);
  loam_block_release(part);
  loam_block_release(b);
  expect_nothing_live();
}

static void every_kind_of_block_keeps_its_law(void **state) {
  (void)state;
  loam_block *b[] = { loam_block_new(here(), 100), loam_block_new(here(), 5000),
                      loam_block_wrap(here(), NULL, 0, NULL, NULL), NULL,
                      loam_arena_new(here(), 0, 0) };
  b[3] = loam_block_slice(b[0], 20, 80);
  for (size_t i = 0; i < LM_COUNT(b); i++) {
    assert_int_equal(loam_block_kind_of(b[i]), i + 1);
    assert_true(lm_block_is_valid(b[i]));
  }
  b[3]->size++; /* now it extends beyond its parent */
  assert_false(lm_block_is_valid(b[3]));
  b[3]->size--;
  for (size_t i = 0; i < LM_COUNT(b); i++) loam_block_release(b[i]);
  expect_nothing_live();
}

static void a_slice_beyond_its_parent_is_refused(void **state) {
  (void)state;
  loam_block *b = loam_block_new(here(), 100);
  static const size_t wrong[][2] = {
    { 0, 101 }, { 101, 0 }, { 50, 51 }, { SIZE_MAX, 2 }, { 2, SIZE_MAX }
  };
  for (size_t i = 0; i < LM_COUNT(wrong); i++)
    assert_null(loam_block_slice(b, wrong[i][0], wrong[i][1]));
  assert_null(loam_block_slice(b, 50, 51));
  assert_string_equal(loam_error(), "a slice of 51 bytes from 50 on: the block has 100");
  assert_null(loam_block_slice(NULL, 0, 0));
  assert_string_equal(loam_error(), "a slice of a block that is NULL");
  loam_block *empty = loam_block_slice(b, 100, 0);
  assert_int_equal(loam_block_size(empty), 0);
  loam_block_release(empty);
  assert_int_equal(loam_block_refcount(b), 1);
  loam_block_release(b);
}

/* ---- Requests that are refused */

static void null_is_nothing(void **state) {
  (void)state;
  assert_null(loam_block_retain(NULL));
  loam_block_release(NULL);
  assert_null(loam_block_data(NULL));
  assert_int_equal(loam_block_size(NULL), 0);
  assert_int_equal(loam_block_refcount(NULL), 0);
  assert_int_equal(loam_block_kind_of(NULL), 0);
  assert_string_equal(loam_block_tag(NULL), "");
}

static void a_block_beyond_the_address_space_is_null(void **state) {
  (void)state;
  assert_null(loam_block_new(here(), SIZE_MAX));
  assert_null(loam_block_new(here(), SIZE_MAX - 32));
  assert_null(loam_block_zeroed(here(), SIZE_MAX));
  assert_null(loam_block_aligned(here(), 16, SIZE_MAX));
  expect_nothing_live();
}

static char words_of_event[400];
static void note_event(void *ctx, const loam_event *event) {
  ended *log = ctx;
  assert_int_equal(event->kind, LOAM_EVENT_BAD_FREE);
  snprintf(words_of_event, sizeof words_of_event, "%s", event->message);
  log->n++;
  log->ptr = (void *)event->pointer;
}

/* Fails unless the last event has these words. */
static void LM_PRINTF(1, 2) expect_event(const char *format, ...) {
  char expected[200];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(expected, sizeof expected, format, arguments);
  va_end(arguments);
  if (!strstr(words_of_event, expected)) fail_msg("no \"%s\": %s", expected, words_of_event);
}

static void one_release_too_many_is_an_event_and_does_nothing(void **state) {
  (void)state;
  skip_if_poisoned();
  ended log = { 0 };
  struct loam_stats before, after;
  loam_stats(&before);
  loam_on_event(note_event, &log);
  loam_block *b = loam_block_new(here(), 100);
  loam_block_release(b);
  loam_block_release(b);
  loam_block_release(b);
  assert_int_equal(log.n, 2);
  assert_ptr_equal(log.ptr, b);
  expect_event("release after the end of %p, a freed block of ", (void *)b);
  expect_event("bytes of tag 'test.block' and strategy ");
  loam_block_retain(b);
  assert_int_equal(log.n, 3);
  expect_event("retain after the end of %p, a freed block of ", (void *)b);
  loam_on_event(NULL, NULL);
  loam_stats(&after);
  assert_int_equal(after.bad_frees - before.bad_frees, 3);
  expect_nothing_live();
}

static void a_block_with_too_many_owners_never_ends(void **state) {
  (void)state;
  loam_block *b = loam_block_new(here(), 100);
  atomic_store(&b->references, INT32_MAX);
  loam_block_retain(b);
  loam_block_retain(b);
  for (int i = 0; i < 100; i++) loam_block_release(b);
  assert_true(loam_block_refcount(b) > INT32_MAX);
  assert_int_equal(live_under("test.block").blocks, 1);
  loam_free(b);
}

/* ---- No memory */

static void make_each(bool refused) {
  ended log = { 0 };
  char memory[10];
  loam_block *b[] = { loam_block_new(here(), 100), loam_block_new(here(), 100000),
                      loam_block_zeroed(here(), 5 << 20), loam_block_aligned(here(), 4096, 4096),
                      loam_block_wrap(here(), memory, sizeof memory, note_end, &log) };
  loam_block *part = b[0] ? loam_block_slice(b[0], 10, 10) : NULL;
  for (size_t i = 0; i < LM_COUNT(b); i++) {
    assert_true(b[i] || refused);
    if (b[i] && b[i]->data != memory) memset(b[i]->data, 1, b[i]->size);
    loam_block_release(b[i]);
  }
  assert_int_equal(log.n, b[4] != NULL);
  assert_true(part || refused);
  loam_block_release(part);
  (void)loam_trim(); /* so that every attempt needs memory from the system */
}

static void without_memory_the_result_is_null(void **state) {
  (void)state;
  assert_true(refuse_each(make_each) > 0);
  expect_nothing_live();
}

/* The policy denies headers. If a block's data are separate, they are allocated before the
 * header. */
static void without_a_header_nothing_is_kept(void **state) {
  (void)state;
  ended log = { 0 };
  char memory[10];
  load_text("local deny, host = loam.deny {}, loam.host {}\n"
            "return loam.policy { name = 'deny', pick = function(req)\n"
            "  return req.tag:under('loam.block') and deny or host\n"
            "end }\n");
  loam_block *small = loam_block_new(here(), 100);
  assert_null(loam_block_new(here(), 100000));
  assert_null(loam_block_wrap(here(), memory, sizeof memory, note_end, &log));
  assert_null(loam_block_slice(small, 0, 1));
  assert_null(loam_arena_new(here(), 0, 0));
  assert_int_equal(log.n, 0);
  assert_int_equal(loam_block_refcount(small), 1);
  loam_block_release(small);
  load("loam.host {}");
  expect_nothing_live();
}

/* ---- Threads */

enum { THREADS = 8, TIMES = 20000 };

static void count_end(void *ptr, size_t size, void *ctx) {
  (void)ctx;
  assert_int_equal(*(long *)ptr, THREADS); /* the destructor sees the writes of all owners */
  *(long *)ptr = (long)size;
}

typedef struct share {
  loam_block *block;
  long *plain; /* the last owner reads it without a lock */
} share;

static void *own_a_while(void *argument) {
  share *s = argument;
  for (int i = 0; i < TIMES; i++) {
    loam_block *part = loam_block_slice(s->block, (size_t)i % 8, 0);
    loam_block_retain(s->block);
    loam_block_release(part);
    loam_block_release(s->block);
  }
  __atomic_add_fetch(s->plain, 1, __ATOMIC_RELAXED);
  loam_block_release(s->block);
  return NULL;
}

static void eight_threads_count_to_the_end_exactly(void **state) {
  (void)state;
  long owners = 0;
  pthread_t thread[THREADS];
  share s = { loam_block_wrap(here(), &owners, sizeof owners, count_end, NULL), &owners };
  for (int i = 0; i < THREADS; i++) {
    loam_block_retain(s.block);
    thread[i] = start_thread(own_a_while, &s);
  }
  loam_block_release(s.block);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  assert_int_equal(owners, sizeof owners);
  expect_nothing_live();
}

int main(void) {
  setenv("LOAM_CONTROL", "0", 1);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(small_data_stand_after_their_header),
    cmocka_unit_test(large_data_stand_apart_and_are_all_that_the_tag_has),
    cmocka_unit_test(zeroed_blocks_are_zero),
    cmocka_unit_test(data_are_aligned_as_asked),
    cmocka_unit_test(embedded_data_keep_the_strategys_alignment),
    cmocka_unit_test(a_scope_names_what_brings_no_site),
    cmocka_unit_test(a_wrapped_block_calls_its_destructor_once),
    cmocka_unit_test(a_slice_keeps_its_parent_alive),
    cmocka_unit_test(a_slice_of_a_slice_does_not_keep_the_slice),
    cmocka_unit_test(every_kind_of_block_keeps_its_law),
    cmocka_unit_test(a_slice_beyond_its_parent_is_refused),
    cmocka_unit_test(null_is_nothing),
    cmocka_unit_test(a_block_beyond_the_address_space_is_null),
    cmocka_unit_test(one_release_too_many_is_an_event_and_does_nothing),
    cmocka_unit_test(a_block_with_too_many_owners_never_ends),
    cmocka_unit_test(without_memory_the_result_is_null),
    cmocka_unit_test(without_a_header_nothing_is_kept),
    cmocka_unit_test(eight_threads_count_to_the_end_exactly),
  };
  return cmocka_run_group_tests_name("block", tests, NULL, NULL);
}
