/* test_last_words.c - loam sends last words when memory runs out. They name the largest tags and
 * strategies, and come once in each generation, but not for a request that could never be
 * served. */
#include "engine/last_words.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "heap/pool.h"
#include "loam.h"
#include "test.h"

enum { BLOCK = 100 << 10, MOST = 100 };

static const char policy[] = "local cache = loam.host { name = 'cache', limit = 4 * loam.MiB }\n"
                             "local rest = loam.host { name = 'rest' }\n"
                             "local own = loam.system { name = 'own', limit = 100000 }\n"
                             "local no = loam.deny {}\n"
                             "return loam.policy { name = 'last', pick = function(req)\n"
                             "  if req.tag:under('cache') then return cache end\n"
                             "  if req.tag:is('own') then return own end\n"
                             "  if req.tag:is('denied') then return no end\n"
                             "  return rest\n"
                             "end }\n";

static void *kept[MOST];
static int n, events;
static char words[1024];

static void on_event(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind != LOAM_EVENT_LAST_WORDS) return;
  events++;
  snprintf(words, sizeof words, "%s", event->message);
  loam_free(loam_malloc(NULL, 1000)); /* a callback may allocate */
}

static int set_up(void **state) {
  (void)state;
  events = n = 0;
  loam_on_event(on_event, NULL);
  return loam_policy_load_text("last", policy);
}

static int tear_down(void **state) {
  (void)state;
  while (n > 0) loam_free(kept[--n]);
  loam_on_event(NULL, NULL);
  return lm_pool_is_valid() ? 0 : -1;
}

/* Allocates under a tag until a request fails; at most `most` blocks. */
static void fill(const char *tag, size_t size, int most) {
  loam_site *site = loam_site_get(tag);
  void *p = NULL;
  for (int i = 0; i < most && n < MOST && (p = loam_malloc(site, size)); i++) kept[n++] = p;
}

static void they_name_the_largest_tags_and_strategies(void **state) {
  (void)state;
  fill("cache.small", BLOCK, 1);
  fill("other", BLOCK, 3);
  fill("cache.large", BLOCK, MOST);
  assert_int_equal(events, 1);
  size_t block = loam_usable_size(kept[0]);
  int large = n - 4;
  char expected[512];
  snprintf(expected, sizeof expected,
           "last words: no memory for size %d under tag 'cache.large'; most is live under "
           "'cache.large' (%zu bytes in %d blocks), 'other' (%zu bytes in 3 blocks), "
           "'cache.small' (%zu bytes in 1 block)",
           BLOCK, large * block, large, 3 * block, block);
  assert_memory_equal(words, expected, strlen(expected));
  snprintf(expected, sizeof expected,
           "; in the strategies 'cache' (%zu bytes in %d blocks), 'rest' (%zu bytes in 3 blocks)",
           (large + 1) * block, large + 1, 3 * block);
  assert_non_null(strstr(words, expected));
}

static void they_say_that_nothing_is_live(void **state) {
  (void)state;
  fill("cache.huge", 8 << 20, 1);
  assert_int_equal(events, 1);
  assert_string_equal(words, "last words: no memory for size 8388608 under tag 'cache.huge'; "
                             "nothing is live");
}

static void they_are_sent_once_a_generation(void **state) {
  (void)state;
  fill("cache", BLOCK, MOST);
  for (int i = 0; i < 3; i++) assert_null(loam_malloc(loam_site_get("cache"), BLOCK));
  assert_int_equal(events, 1);
  assert_int_equal(loam_policy_load_text("last", policy), LOAM_OK);
  for (int i = 0; i < 3; i++) assert_null(loam_malloc(loam_site_get("cache"), BLOCK));
  assert_int_equal(events, 2);
}

/* The function that another thread runs while this thread sends last words. */
static int (*run_in_other_thread)(void);

static void *run_other_thread(void *result) {
  *(int *)result = run_in_other_thread();
  return NULL;
}

static void fail_in_other_thread(void *ctx, const loam_event *event) {
  if (event->kind != LOAM_EVENT_LAST_WORDS) return;
  pthread_t other;
  if (events++) return;
  assert_int_equal(pthread_create(&other, NULL, run_other_thread, ctx), 0);
  pthread_join(other, NULL);
}

static int fail_in_a_new_generation(void) {
  return loam_policy_load_text("last", policy) || loam_malloc(loam_site_get("cache"), BLOCK);
}

static void a_thread_at_work_does_not_use_up_the_turn_of_another(void **state) {
  (void)state;
  int result = -1;
  run_in_other_thread = fail_in_a_new_generation;
  loam_on_event(fail_in_other_thread, &result);
  fill("cache", BLOCK, MOST);
  assert_int_equal(result, 0);
  assert_int_equal(events, 1);
  assert_null(loam_malloc(loam_site_get("cache"), BLOCK));
  assert_int_equal(events, 2);
}

static int last_words_are_sent(void *argument) {
  (void)argument;
  loam_on_event(on_event, NULL);
  events = 0;
  return fail_in_a_new_generation() ? 2 : events != 1;
}
static int fail_in_a_child(void) { return run_in_child(last_words_are_sent, NULL); }

static void a_child_that_is_forked_amid_last_words_has_its_own(void **state) {
  (void)state;
  int result = -1;
  run_in_other_thread = fail_in_a_child;
  loam_on_event(fail_in_other_thread, &result);
  fill("cache", BLOCK, MOST);
  assert_int_equal(result, 0);
}

enum { REFUSED = 77 }; /* the result where the system allows no such namespaces */

static int fail_in_a_namespace(void) {
  return unshare(CLONE_NEWPID) ? REFUSED : run_in_child(last_words_are_sent, NULL);
}

static int fork_amid_last_words(void *unused) {
  (void)unused;
  int result = -1;
  run_in_other_thread = fail_in_a_namespace;
  loam_on_event(fail_in_other_thread, &result);
  fill("cache", BLOCK, MOST);
  return result;
}

/* Both are process 1 of a PID namespace. */
static int fork_with_one_id(void *unused) {
  (void)unused;
  if (unshare(CLONE_NEWUSER | CLONE_NEWPID)) return REFUSED;
  return run_in_child(fork_amid_last_words, NULL);
}

static void a_child_with_its_parents_process_id_has_its_own_too(void **state) {
  (void)state;
  int result = run_in_child(fork_with_one_id, NULL);
  if (result == REFUSED) print_message("not tried: there can be no PID namespace here\n");
  if (result == REFUSED) skip();
  assert_int_equal(result, 0);
}

static void memory_of_the_system_counts(void **state) {
  (void)state;
  fill("own", 30000, MOST);
  assert_int_equal(events, 1);
  assert_non_null(strstr(words, "most is live under 'own' ("));
  assert_non_null(strstr(words, "; in the strategies 'own' ("));
}

static void a_request_that_no_machine_can_serve_has_none(void **state) {
  (void)state;
  fill("other", BLOCK, 3);
  assert_null(loam_malloc(loam_site_get("other"), (size_t)1 << 46));
  assert_null(loam_malloc(loam_site_get("denied"), 100));
  assert_int_equal(events, 0);
}

static void many_tags_are_cut_to_five(void **state) {
  char tag[24];
  (void)state;
  for (int i = 0; i < 20; i++) {
    snprintf(tag, sizeof tag, "many.%d", i);
    fill(tag, 2000 + 100 * (size_t)i, 1);
  }
  fill("cache", BLOCK, MOST);
  assert_int_equal(events, 1);
  assert_non_null(strstr(words, "'many.19' ("));
  assert_non_null(strstr(words, "'many.16' ("));
  assert_null(strstr(words, "'many.15' ("));
}

int main(void) {
  /* without a board: `loam` would take that of a child in a namespace for that of process 1 */
  if (loam_start(&(loam_config){ .size = sizeof(loam_config), .control = -1 })) return 1;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
    TEST(they_name_the_largest_tags_and_strategies),
    TEST(they_say_that_nothing_is_live),
    TEST(they_are_sent_once_a_generation),
    TEST(a_thread_at_work_does_not_use_up_the_turn_of_another),
    TEST(a_child_that_is_forked_amid_last_words_has_its_own),
    TEST(a_child_with_its_parents_process_id_has_its_own_too),
    TEST(memory_of_the_system_counts),
    TEST(a_request_that_no_machine_can_serve_has_none),
    TEST(many_tags_are_cut_to_five),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
