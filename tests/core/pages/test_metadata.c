/* test_metadata.c - memory for loam's own structures. */
#include <string.h>

#include "pages/metadata.h"
#include "test.h"

static bool is_filled(const void *p, int byte, size_t size) {
  const unsigned char *b = p;
  for (size_t i = 0; i < size; i++)
    if (b[i] != byte) return false;
  return true;
}

static const size_t sizes[] = { 0,
                                1,
                                16,
                                17,
                                100,
                                1000,
                                16384,
                                16385,
                                65536,
                                65536 + 1,
                                1000000,
                                10 * LM_MIB,
                                (SANITIZED ? 30 : 100) * LM_MIB };

/* This test runs first, in a process that has no metadata yet. */
static void first_pieces_of_all_sizes_share_pages(void **state) {
  (void)state;
  enum { SIZES = 20 };
  char *piece[SIZES];
  uintptr_t least = UINTPTR_MAX, most = 0;
  for (size_t i = 0; i < SIZES; i++) {
    piece[i] = lm_metadata_alloc(64 * (i + 1));
    assert_true(lm_metadata_size(piece[i]) >= 64 * (i + 1));
    assert_int_equal((uintptr_t)piece[i] % LM_CACHE_LINE, 0);
    memset(piece[i], 0xa5, lm_metadata_size(piece[i]));
    if ((uintptr_t)piece[i] < least) least = (uintptr_t)piece[i];
    if ((uintptr_t)piece[i] > most) most = (uintptr_t)piece[i];
  }
  assert_true(most - least < 5 * LM_PAGE);
  for (size_t i = 0; i < SIZES; i++) lm_metadata_free(piece[i]);
  assert_true(lm_metadata_is_valid());
  for (size_t i = 0; i < SIZES; i++) {
    assert_true(is_filled(piece[i] = lm_metadata_alloc(64 * (i + 1)), 0, 64 * (i + 1)));
    assert_true((uintptr_t)piece[i] >= least && (uintptr_t)piece[i] <= most);
  }
  for (size_t i = 0; i < SIZES; i++) lm_metadata_free(piece[i]);
}

static void gives_zeroed_memory_of_every_size_twice(void **state) {
  (void)state;
  for (int round = 0; round < 2; round++)
    for (size_t i = 0; i < LM_COUNT(sizes); i++) {
      char *p = lm_metadata_alloc(sizes[i]);
      assert_non_null(p);
      assert_int_equal((uintptr_t)p % 16, 0);
      assert_true(lm_metadata_size(p) >= sizes[i]);
      assert_true(is_filled(p, 0, lm_metadata_size(p)));
      memset(p, 0xa5, lm_metadata_size(p));
      lm_metadata_free(p);
    }
  assert_true(lm_metadata_is_valid());
}

static void reuses_what_was_freed(void **state) {
  (void)state;
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    lm_metadata_free(lm_metadata_alloc(sizes[i]));
    size_t held = lm_metadata_held();
    for (int n = 0; n < 200; n++) lm_metadata_free(lm_metadata_alloc(sizes[i]));
    assert_true(lm_metadata_held() <= held);
  }
}

static void keeps_the_bytes_when_it_grows_and_shrinks(void **state) {
  (void)state;
  char *p = NULL;
  size_t filled = 0;
  const size_t most = (SANITIZED ? 10 : 40) * LM_MIB;
  for (size_t size = 1; size < most; size = size * 5 / 4 + 1) {
    p = lm_metadata_realloc(p, size);
    assert_non_null(p);
    assert_true(is_filled(p, 0x5a, filled));
    memset(p, 0x5a, filled = size);
  }
  for (size_t size = most; size > 0; size /= 3) {
    p = lm_metadata_realloc(p, size);
    assert_true(is_filled(p, 0x5a, size < filled ? size : filled));
  }
  lm_metadata_free(p);
}

static void shrinks_to_a_smaller_block(void **state) {
  (void)state;
  char *p = lm_metadata_alloc(LM_MIB);
  p = lm_metadata_realloc(p, 100);
  assert_true(lm_metadata_size(p) < 1000);
  lm_metadata_free(p);
}

static void gives_back_what_is_free_small_blocks_too(void **state) {
  (void)state;
  enum { N = 5000 };
  static void *p[N];
  lm_metadata_trim();
  size_t before = lm_metadata_held();
  for (int i = 0; i < N; i++) assert_non_null(p[i] = lm_metadata_alloc(300));
  assert_true(lm_metadata_held() > before + LM_MIB);
  for (int i = 0; i < N; i++) lm_metadata_free(p[i]);
  lm_metadata_trim();
  assert_int_equal(lm_metadata_held(), before);
}

static void frees_null(void **state) {
  (void)state;
  lm_metadata_free(NULL);
  assert_int_equal(lm_metadata_size(NULL), 0);
}

enum { THREADS = 4, SLOTS = 64, STEPS = SANITIZED ? 2000 : 20000, CHILDREN = SANITIZED ? 15 : 50 };

static void *churn(void *arg) {
  unsigned char *held[SLOTS] = { 0 };
  uint64_t seed = (uintptr_t)arg + 1;
  for (int i = 0; i < STEPS; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    unsigned at = (unsigned)(seed >> 40) % SLOTS, size = 1 + (unsigned)(seed >> 20) % 3000;
    unsigned char byte = (unsigned char)(at + (uintptr_t)arg * SLOTS);
    if (held[at] && (held[at][0] != byte || held[at][lm_metadata_size(held[at]) - 1] != byte))
      return arg;
    lm_metadata_free(held[at]);
    held[at] = lm_metadata_alloc(size);
    if (!held[at] || !is_filled(held[at], 0, size)) return arg;
    memset(held[at], byte, lm_metadata_size(held[at]));
  }
  for (unsigned at = 0; at < SLOTS; at++) lm_metadata_free(held[at]);
  return NULL;
}

static void serves_many_threads(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, churn, (void *)i);
  for (int i = 0; i < THREADS; i++) {
    void *wrong;
    pthread_join(thread[i], &wrong);
    assert_null(wrong);
  }
  assert_true(lm_metadata_is_valid());
}

static _Atomic bool stop;

static void *churn_until_stopped(void *arg) {
  while (!stop) churn(arg);
  return NULL;
}

static void serves_a_child_forked_amid_use(void **state) {
  (void)state;
  pthread_t thread[2];
  stop = false;
  for (uintptr_t i = 0; i < 2; i++)
    pthread_create(&thread[i], NULL, churn_until_stopped, (void *)i);
  for (int i = 0; i < CHILDREN; i++) {
    pid_t child = fork();
    if (!child) {
      alarm(PATIENCE_S);
      _exit(churn((void *)3) != NULL || !lm_metadata_is_valid());
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
  }
  stop = true;
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
}

static void stays_whole_when_any_system_call_is_refused(void **state) {
  (void)state;
  for (long nth = 1; nth < 8; nth++) {
    lm_sys_refuse(nth);
    char *p = lm_metadata_alloc(300 * LM_MIB),
         *q = lm_metadata_realloc(lm_metadata_alloc(20 * LM_MIB), 500 * LM_MIB);
    lm_metadata_free(p);
    lm_metadata_free(q);
    lm_sys_refuse(0);
    assert_true(lm_metadata_is_valid());
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(first_pieces_of_all_sizes_share_pages),
    cmocka_unit_test(gives_zeroed_memory_of_every_size_twice),
    cmocka_unit_test(reuses_what_was_freed),
    cmocka_unit_test(keeps_the_bytes_when_it_grows_and_shrinks),
    cmocka_unit_test(shrinks_to_a_smaller_block),
    cmocka_unit_test(gives_back_what_is_free_small_blocks_too),
    cmocka_unit_test(frees_null),
    cmocka_unit_test(serves_many_threads),
    cmocka_unit_test(serves_a_child_forked_amid_use),
    cmocka_unit_test(stays_whole_when_any_system_call_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
