/* test_guarded.c - guarded blocks: which accesses fault, what a free finds beside a block, and how
 * long freed blocks stay in quarantine. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "chance.h"
#include "heap/pool.h"
#include "heap/tcache_slow.h"
#include "os/decay.h"
#include "pool_fixture.h"
#include "test.h"

static uint64_t seed = 3;

/* Returns whether a child that writes one byte at p ends by a fault. AddressSanitizer may end it
 * first, where loam has poisoned the byte. */
static bool faults(volatile char *p) {
  pid_t child = fork();
  if (!child) {
    signal(SIGSEGV, SIG_DFL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
    *p = 1;
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  bool is_signal = WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
  return is_signal || (POISONED && status);
}

static void a_guarded_block_ends_at_a_fault(void **state) {
  (void)state;
  static const size_t sizes[] = { 0, 1, 16, 100, 4096, 61440, 61441, 100000, 3 * LM_MIB };
  lm_strategy *s = intern((lm_desc){ .guard = 1 });
  for (size_t align = 16; align <= 4 * LM_MIB; align *= 8)
    for (size_t i = 0; i < LM_COUNT(sizes); i++) {
      char *p = take(s, sizes[i], align);
      lm_object o;
      assert_non_null(p);
      assert_int_equal((uintptr_t)p % align, 0);
      assert_true(lm_pool_find(p, &o) && o.base == p && o.size >= sizes[i]);
      size_t most = sizes[i] == 1 && align >= LM_SLOT ? 2 : sizes[i];
      size_t end = lm_align_up(sizes[i], align);
      assert_int_equal(o.size, most);
      if (sizes[i]) memset(p, 1, o.size);
      if (align == 16 && sizes[i]) assert_true(faults(p + end) && !faults(p + end - 1));
      if (align == 16 && !sizes[i]) assert_true(faults(p) && faults(p + 15));
      assert_int_equal(release(p), LM_FREE_DONE);
      assert_int_equal(release(p), LM_FREE_DOUBLE);
      if (align == 16) assert_true(faults(p));
    }
}

/* Frees a guarded block after a write to its byte `at`. Returns the damage that the free has
 * found. */
static const char *damage_of(char *p, ptrdiff_t at) {
  lm_object o;
  p[at] ^= 'A';
  assert_int_equal(lm_pool_free(t, p, &o), LM_FREE_DONE);
  return o.damage;
}

static void finds_a_write_beside_a_guarded_block_when_it_is_freed(void **state) {
  (void)state;
  skip_if_poisoned();
  static const size_t sizes[] = { 1, 8, 15, 100, 4095, 4097, 61441, 100000 };
  lm_strategy *s = intern((lm_desc){ .guard = 1, .name = "edges" });
  for (size_t align = 16; align <= LM_MIB; align *= 16)
    for (size_t i = 0; i < LM_COUNT(sizes); i++) {
      char *p = take(s, sizes[i], align);
      lm_object o;
      assert_true(lm_pool_find(p, &o));
      ptrdiff_t size = (ptrdiff_t)o.size, before = (uintptr_t)p % LM_PAGE;
      ptrdiff_t behind = (ptrdiff_t)(-((uintptr_t)p + (size_t)size) % LM_PAGE);
      for (ptrdiff_t b = 0; b < size; b++) assert_int_equal(p[b], 0);
      assert_null(damage_of(p, 0));
      for (ptrdiff_t b = 0; b < behind; b = 2 * b + 1) {
        p = take(s, sizes[i], align);
        assert_ptr_equal(damage_of(p, size + b), p + size + b);
      }
      for (ptrdiff_t b = 1; b <= before; b *= 2) {
        p = take(s, sizes[i], align);
        assert_ptr_equal(damage_of(p, -b), p - b);
      }
    }
}

static void guards_one_in_n(void **state) {
  (void)state;
  enum { N = 1000, EVERY = 10 };
  lm_strategy *s = intern((lm_desc){ .guard = EVERY });
  static char *p[N];
  int guarded = 0;
  for (int i = 0; i < N; i++) {
    p[i] = take(s, 64, 16);
    guarded += (uintptr_t)(p[i] + 64) % LM_PAGE == 0 && !lm_tcache_give(t, p[i]);
  }
  assert_int_equal(guarded, N / EVERY);
}

static void keeps_freed_guarded_blocks_for_a_bounded_while(void **state) {
  (void)state;
  lm_strategy *s = intern((lm_desc){ .guard = 1, .name = "quarantine" });
  lm_pool_figures first, before, after;
  lm_pool_figures_get(&first);
  for (int i = 0; i < 5000; i++)
    assert_int_equal(release(take(s, chance(&seed, 200000), 16)), LM_FREE_DONE);
  lm_pool_figures_get(&before);
  for (int i = 0; i < 5000; i++)
    assert_int_equal(release(take(s, chance(&seed, 200000), 16)), LM_FREE_DONE);
  lm_pool_figures_get(&after);
  assert_true(after.regions < before.regions + 16 * LM_MIB);
  assert_true(after.regions < first.regions + 300 * LM_MIB);
  assert_int_equal(release(take(s, 400 * LM_MIB, 16)), LM_FREE_DONE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, check_laws)

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(a_guarded_block_ends_at_a_fault),
    TEST(finds_a_write_beside_a_guarded_block_when_it_is_freed),
    TEST(guards_one_in_n),
    TEST(keeps_freed_guarded_blocks_for_a_bounded_while),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
