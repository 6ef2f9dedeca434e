/* test_slab.c - pieces of memory of one size. */
#include <string.h>

#include "pages/metadata.h"
#include "pages/slab.h"
#include "test.h"

enum { SIZE = 4096, MANY = 100 };

static lm_regions regions;

static int start(void **state) {
  (void)state;
  lm_metadata_start();
  lm_regions_init(&regions, &(lm_preparation){ 0 });
  return 0;
}

static void pieces_are_apart_and_aligned(void **state) {
  (void)state;
  static lm_slab slab;
  static char *piece[MANY];
  bool clean;
  for (int i = 0; i < MANY; i++) {
    piece[i] = lm_slab_take(&slab, &regions, SIZE, &clean);
    assert_non_null(piece[i]);
    assert_int_equal((uintptr_t)piece[i] % 16, 0);
    memset(piece[i], i, SIZE);
  }
  assert_true(lm_slab_is_valid(&slab));
  for (int i = 0; i < MANY; i++) {
    assert_int_equal(piece[i][0], i);
    assert_int_equal(piece[i][SIZE - 1], i);
    lm_slab_put(&slab, &regions, piece[i]);
    assert_true(lm_slab_is_valid(&slab));
  }
  assert_null(slab.first);
}

static void pieces_of_a_zeroed_slab_are_zero(void **state) {
  (void)state;
  static lm_slab slab = { .zeroed = true };
  bool clean;
  for (int round = 0; round < 3; round++) {
    uint64_t *piece = lm_slab_take(&slab, &regions, SIZE, &clean);
    assert_true(clean);
    for (size_t i = 0; i < SIZE / sizeof *piece; i++) assert_int_equal(piece[i], 0);
    memset(piece, 7, SIZE);
    lm_slab_clear(piece, SIZE);
    lm_slab_put(&slab, &regions, piece);
  }
  assert_non_null(slab.first); /* the last chunk is kept */
  assert_true(lm_slab_is_valid(&slab));
}

static void a_piece_that_is_lost_breaks_the_law(void **state) {
  (void)state;
  static lm_slab slab;
  bool clean;
  char *kept = lm_slab_take(&slab, &regions, SIZE, &clean);
  char *lost = lm_slab_take(&slab, &regions, SIZE, &clean), *none = NULL, *link;
  lm_slab_put(&slab, &regions, lost);
  char *other = lm_slab_take(&slab, &regions, SIZE, &clean);
  char *third = lm_slab_take(&slab, &regions, SIZE, &clean);
  lm_slab_put(&slab, &regions, other);
  lm_slab_put(&slab, &regions, third);
  assert_true(lm_slab_is_valid(&slab));
  /* The last word of `third` links it to the next unused piece. */
  memcpy(&link, third + SIZE - sizeof link, sizeof link);
  memcpy(third + SIZE - sizeof link, &none, sizeof none);
  assert_false(lm_slab_is_valid(&slab));
  memcpy(third + SIZE - sizeof link, &link, sizeof link);
  assert_true(lm_slab_is_valid(&slab));
  lm_slab_put(&slab, &regions, kept);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(pieces_are_apart_and_aligned),
    cmocka_unit_test(pieces_of_a_zeroed_slab_are_zero),
    cmocka_unit_test(a_piece_that_is_lost_breaks_the_law),
  };
  return cmocka_run_group_tests(tests, start, NULL);
}
