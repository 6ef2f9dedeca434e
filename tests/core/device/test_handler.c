/* test_handler.c - the registry of NEP 49 tables: handler.h. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/handler.h"
#include "os/error.h"
#include "pages/metadata.h"

static void *some_malloc(void *ctx, size_t size) {
  (void)ctx;
  return malloc(size);
}
static void *some_calloc(void *ctx, size_t count, size_t size) {
  (void)ctx;
  return calloc(count, size);
}
static void *some_realloc(void *ctx, void *ptr, size_t size) {
  (void)ctx;
  return realloc(ptr, size);
}
static void some_free(void *ctx, void *ptr, size_t size) {
  (void)ctx;
  (void)size;
  free(ptr);
}

static loam_handler named(const char *name) {
  loam_handler h = { .version = 1,
                     .allocator = { NULL, some_malloc, some_calloc, some_realloc, some_free } };
  snprintf(h.name, sizeof h.name, "%s", name);
  return h;
}

static void a_handler_is_found_by_its_name(void **state) {
  (void)state;
  static loam_handler one, two;
  one = named("one");
  two = named("two");
  assert_null(lm_handler_find("one"));
  assert_int_equal(loam_handler_register(&one), LOAM_OK);
  assert_int_equal(loam_handler_register(&two), LOAM_OK);
  assert_ptr_equal(lm_handler_find("one"), &one);
  assert_ptr_equal(lm_handler_find("two"), &two);
  assert_null(lm_handler_find("three"));
  assert_null(lm_handler_find(""));
}

static void a_second_handler_of_a_name_replaces_the_first(void **state) {
  (void)state;
  static loam_handler first, second;
  first = named("replaced");
  second = named("replaced");
  assert_int_equal(loam_handler_register(&first), LOAM_OK);
  assert_int_equal(loam_handler_register(&second), LOAM_OK);
  assert_ptr_equal(lm_handler_find("replaced"), &second);
}

static void replacing_takes_no_memory(void **state) {
  (void)state;
  static loam_handler h;
  h = named("again and again");
  assert_int_equal(loam_handler_register(&h), LOAM_OK);
  size_t held = lm_metadata_held();
  for (int i = 0; i < 10000; i++) assert_int_equal(loam_handler_register(&h), LOAM_OK);
  assert_int_equal(lm_metadata_held(), held);
}

static void names_are_kept_though_the_host_changes_them(void **state) {
  (void)state;
  static loam_handler h;
  h = named("before");
  assert_int_equal(loam_handler_register(&h), LOAM_OK);
  strcpy(h.name, "after");
  assert_ptr_equal(lm_handler_find("before"), &h);
  assert_null(lm_handler_find("after"));
}

static void expect_refused(const loam_handler *h, const char *words) {
  assert_int_equal(loam_handler_register(h), LOAM_EINVAL);
  assert_string_equal(loam_error(), words);
}

static void refuses_an_incomplete_handler_in_words(void **state) {
  (void)state;
  loam_handler h = named("");
  expect_refused(NULL, "the handler is NULL");
  expect_refused(&h, "the handler's name is empty");
  h = named("old");
  h.version = 0;
  expect_refused(&h, "handler \"old\": version 0; the first is 1");
  h = named("part\n");
  h.allocator.free = NULL;
  expect_refused(&h, "handler \"part\\x0A\": its free is NULL");
  h.allocator.realloc = NULL;
  expect_refused(&h, "handler \"part\\x0A\": its realloc is NULL");
  h.allocator.calloc = NULL;
  expect_refused(&h, "handler \"part\\x0A\": its calloc is NULL");
  h.allocator.malloc = NULL;
  expect_refused(&h, "handler \"part\\x0A\": its malloc is NULL");
  memset(h.name, 'x', sizeof h.name);
  expect_refused(&h, "the handler's name is not terminated within its 127 bytes");
  assert_null(lm_handler_find("old"));
}

static void a_later_version_is_read_as_the_first(void **state) {
  (void)state;
  static struct {
    loam_handler first;
    void *appended;
  } h;
  h.first = named("later");
  h.first.version = 2;
  assert_int_equal(loam_handler_register(&h.first), LOAM_OK);
  assert_ptr_equal(lm_handler_find("later"), &h.first);
}

static void the_longest_name_is_a_name(void **state) {
  (void)state;
  static loam_handler h;
  h = named("");
  memset(h.name, 'x', sizeof h.name - 1);
  assert_int_equal(loam_handler_register(&h), LOAM_OK);
  assert_ptr_equal(lm_handler_find(h.name), &h);
}

static void register_a_new_one(bool refused) {
  static loam_handler handler[64];
  static int n;
  loam_handler *h = &handler[n];
  char name[32];
  snprintf(name, sizeof name, "refused-%d", n++);
  *h = named(name);
  loam_status status = loam_handler_register(h);
  if (status) {
    assert_true(refused);
    assert_int_equal(status, LOAM_ENOMEM);
  }
  assert_ptr_equal(lm_handler_find(name), status ? NULL : h);
}

static void without_memory_registration_fails_and_changes_nothing(void **state) {
  (void)state;
  refuse_each(register_a_new_one);
}

/* ---- Threads */

enum { THREADS = 3, TIMES = 200 };
static loam_handler shared[THREADS];

static bool is_shared(const loam_handler *h) { return !h || (h >= shared && h < shared + THREADS); }

static void *register_often(void *handler) {
  for (int i = 0; i < TIMES; i++) {
    if (loam_handler_register(handler)) return (void *)1;
    const loam_handler *h = lm_handler_find("shared");
    if (!h || !is_shared(h)) return (void *)1;
  }
  return NULL;
}

static void threads_that_register_one_name_leave_one_handler(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  for (int i = 0; i < THREADS; i++) {
    shared[i] = named("shared");
    thread[i] = start_thread(register_often, &shared[i]);
  }
  for (int i = 0; i < 1000; i++) assert_true(is_shared(lm_handler_find("shared")));
  for (int i = 0; i < THREADS; i++) {
    void *wrong;
    pthread_join(thread[i], &wrong);
    assert_null(wrong);
  }
  assert_non_null(lm_handler_find("shared"));
  assert_true(lm_handler_is_valid());
}

/* ---- The host's own allocator */

static void *own_malloc(size_t size) { return malloc(size); }

static void the_system_is_the_c_library_until_the_host_sets_it(void **state) {
  (void)state;
  const loam_system *system = lm_handler_system();
  void *p = system->aligned_alloc(256, 512);
  assert_int_equal((uintptr_t)p % 256, 0);
  assert_true(system->usable_size(p) >= 512);
  p = system->realloc(p, 1024);
  assert_non_null(p);
  system->free(p);
  loam_system own = *system;
  own.malloc = own_malloc;
  lm_handler_set_system(&own);
  memset(&own, 0, sizeof own); /* loam has copied the table */
  assert_ptr_equal(lm_handler_system()->malloc, own_malloc);
  lm_handler_set_system(NULL);
  assert_ptr_equal(lm_handler_system(), system);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_handler_is_found_by_its_name),
    cmocka_unit_test(a_second_handler_of_a_name_replaces_the_first),
    cmocka_unit_test(replacing_takes_no_memory),
    cmocka_unit_test(names_are_kept_though_the_host_changes_them),
    cmocka_unit_test(refuses_an_incomplete_handler_in_words),
    cmocka_unit_test(a_later_version_is_read_as_the_first),
    cmocka_unit_test(the_longest_name_is_a_name),
    cmocka_unit_test(without_memory_registration_fails_and_changes_nothing),
    cmocka_unit_test(threads_that_register_one_name_leave_one_handler),
    cmocka_unit_test(the_system_is_the_c_library_until_the_host_sets_it),
  };
  return cmocka_run_group_tests_name("handler", tests, NULL, NULL);
}
