/* test_token_ids.c - the ids of common tokens of old generations are used again (token_ids.h). */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "cell_of.h"
#include "heap/pool.h"
#include "loam.h"
#include "plan/site.h"
#include "test.h"

enum { SITES = 6, RELOADS = 100, KEPT = RELOADS / 10, SIZE = 100 };

static loam_site *site[SITES];
static char words[4096];

static void note_words(void *ctx, const loam_event *event) {
  (void)ctx;
  snprintf(words, sizeof words, "%s", event->message);
}

static uint64_t generation(void) {
  struct loam_policy_info info;
  assert_int_equal(loam_policy_info(&info), LOAM_OK);
  return info.generation;
}

/* Loads a policy that differs from all before. */
static void reload(void) {
  static int n;
  char text[256];
  snprintf(text, sizeof text,
           "local h = loam.host { name = 'h' }\n"
           "return loam.policy { name = 'n%d', pick = function(req) return h end }\n",
           ++n);
  if (loam_policy_load_text("reuse", text)) fail_msg("%s", loam_error());
}

static loam_site *site_of(int i) {
  char tag[32];
  snprintf(tag, sizeof tag, "reuse.%d", i);
  return loam_site_get(tag);
}

static lm_state state_of(const void *p) { return atomic_load(cell_of(p)); }

static uint64_t used; /* a bit for each id that is_cheap has seen */

/* Returns whether the token of a block of the site is common, so that a request need not look for
 * it in the span. */
static bool is_cheap(loam_site *s) {
  char *p = loam_malloc(s, SIZE);
  assert_non_null(p);
  lm_state state = state_of(p);
  loam_free(p);
  used |= (uint64_t)1 << state % LM_STATE_IDS;
  return state > LM_STATE_LIVE && state <= LM_STATE_COMMON_LAST;
}

static void expect_owner(const void *p, const char *tag, uint64_t born) {
  loam_owner_info owner;
  assert_int_equal(loam_owner(p, &owner), LOAM_OK);
  assert_string_equal(owner.tag, tag);
  assert_int_equal(owner.generation, born);
}

static void a_pair_is_common_after_any_number_of_reloads(void **state) {
  (void)state;
  static void *kept[KEPT];
  static uint64_t born[KEPT];
  for (int i = 0; i < SITES; i++) site[i] = site_of(i);
  for (int n = 0; n < RELOADS; n++) {
    reload();
    assert_false(lm_state_vacant_ids() & used); /* a thread could use such an id until the swap */
    used = 0;
    for (int i = 0; i < SITES; i++) assert_true(is_cheap(site[i]));
    if (n % 10 == 0) {
      kept[n / 10] = loam_malloc(site[0], SIZE);
      born[n / 10] = generation();
    }
  }
  for (int i = 0; i < KEPT; i++) {
    expect_owner(kept[i], "reuse.0", born[i]);
    loam_free(kept[i]);
  }
  assert_true(lm_pool_is_valid());
}

/* A second free of each dead object is reported, and the report names no tag of a later block.
 * Later blocks have other sizes, so the spans of the dead objects stay. */
static void a_late_double_free_names_no_other_tag(void **state) {
  (void)state;
  skip_if_poisoned();
  enum { DEAD = 40, DEAD_SIZE = 2000 };
  static char *dead[DEAD];
  for (int i = 0; i < DEAD; i++) dead[i] = loam_malloc(site_of(1000), DEAD_SIZE);
  for (int i = 0; i < DEAD; i++) loam_free(dead[i]);
  for (int n = 0; n < RELOADS; n++) {
    reload();
    for (int i = 0; i < SITES; i++) assert_true(is_cheap(site_of(i)));
  }
  loam_on_event(note_words, NULL);
  for (int i = 0; i < DEAD; i++) {
    *words = 0;
    loam_free(dead[i]);
    assert_non_null(strstr(words, "double free"));
    assert_null(strstr(words, "reuse."));
  }
  loam_on_event(NULL, NULL);
  assert_true(lm_pool_is_valid());
}

static _Atomic bool is_over;
static _Atomic long wrong;

static bool is_owned(const void *p, const loam_site *s) {
  loam_owner_info owner;
  return loam_owner(p, &owner) == LOAM_OK && !strcmp(owner.tag, s->where.tag);
}

/* Thread 1 has 64 blocks at a time, thread 2 has two, and thread 3 has one. */
static void *churn(void *number) {
  enum { BLOCKS = 64 };
  struct {
    char *p;
    loam_site *s;
  } block[BLOCKS] = { 0 };
  unsigned seed = (unsigned)(uintptr_t)number, blocks = seed == 1 ? BLOCKS : 4 - seed;
  while (!atomic_load(&is_over)) {
    seed = seed * 1664525 + 1013904223;
    unsigned i = (seed >> 24) % blocks;
    if (block[i].p && !is_owned(block[i].p, block[i].s)) atomic_fetch_add(&wrong, 1);
    loam_free(block[i].p);
    block[i].s = site[seed >> 16 & 1023 ? (seed >> 8) % SITES : 0];
    block[i].p = loam_malloc(block[i].s, 16 + (seed >> 12) % 500);
    if (!is_owned(block[i].p, block[i].s)) atomic_fetch_add(&wrong, 1);
  }
  for (int i = 0; i < BLOCKS; i++) loam_free(block[i].p);
  return NULL;
}

static void threads_that_allocate_meanwhile_have_what_is_theirs(void **state) {
  (void)state;
  enum { THREADS = 3 };
  pthread_t thread[THREADS];
  atomic_store(&is_over, false);
  for (int i = 0; i < SITES; i++) site[i] = site_of(i);
  for (uintptr_t i = 0; i < THREADS; i++) thread[i] = start_thread(churn, (void *)(i + 1));
  for (int n = 0; n < (SANITIZED ? RELOADS / 2 : RELOADS); n++) reload();
  assert_true(lm_pool_is_valid());
  for (int n = 0; n < RELOADS / 4; n++) reload();
  atomic_store(&is_over, true);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  assert_int_equal(atomic_load(&wrong), 0);
  assert_true(lm_pool_is_valid());
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_pair_is_common_after_any_number_of_reloads),
    cmocka_unit_test(a_late_double_free_names_no_other_tag),
    cmocka_unit_test(threads_that_allocate_meanwhile_have_what_is_theirs),
  };
  setenv("LOAM_CONTROL", "0", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
