/* test_move_report.c - the report of a job, and the laws of the structs of this folder. */
#include "move/move_report.h"

#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "move/migrate.h"
#include "move/redecide.h"
#include "move/survey.h"
#include "test.h"

static lm_token token_of(const char *tag, int line) {
  loam_site *site = lm_site_get(&(loam_where){ tag, "", "", "", line });
  assert_non_null(site);
  return lm_site_token(site, 0);
}

/* The sums of all rows of a report. */
typedef struct sums {
  uint32_t rows;
  uint64_t bytes, blocks;
} sums;

static void add_row(void *ctx, const loam_placed *row) {
  sums *s = ctx;
  s->rows++;
  s->bytes += row->bytes;
  s->blocks += row->blocks;
}

static sums sums_of(const lm_move_report *report) {
  sums s = { 0 };
  lm_move_report_each(report, add_row, &s);
  return s;
}

static void sites_of_one_tag_share_a_row(void **state) {
  (void)state;
  lm_move_report report = { 0 };
  assert_true(lm_move_report_is_valid(&report));
  lm_move_report_add(&report, token_of("a", 1), lm_move_report_moved, "", 100);
  lm_move_report_add(&report, token_of("a", 2), lm_move_report_moved, "", 20);
  lm_move_report_add(&report, token_of("a", 2), lm_move_report_right, "", 3);
  lm_move_report_add(&report, token_of("b", 1), lm_move_report_moved, "", 4);
  assert_true(lm_move_report_is_valid(&report));
  sums s = sums_of(&report);
  assert_int_equal(s.rows, 3);
  assert_int_equal(s.bytes, 127);
  assert_int_equal(s.blocks, 4);
  assert_int_equal(report.moved, 124);
  assert_int_equal(report.right, 3);
  lm_move_report_clear(&report);
  assert_int_equal(sums_of(&report).rows, 0);
}

static void a_report_grows_and_can_be_copied(void **state) {
  (void)state;
  enum { TAGS = 500 };
  char tag[16];
  lm_move_report report = { 0 }, copy;
  for (int i = 0; i < TAGS; i++) {
    snprintf(tag, sizeof tag, "t%d", i);
    lm_move_report_add(&report, token_of(tag, 0), lm_move_report_refused, "no room", 10);
    assert_true(lm_move_report_is_valid(&report));
  }
  lm_move_report_copy(&copy, &report);
  lm_move_report_clear(&report);
  assert_true(lm_move_report_is_valid(&copy));
  assert_int_equal(sums_of(&copy).rows, TAGS);
  assert_int_equal(copy.refused, 10 * TAGS);
  lm_move_report_clear(&copy);
}

static void reserved_rows_take_no_memory(void **state) {
  (void)state;
  lm_move_report report = { 0 };
  lm_move_report_reserve(&report, 200);
  const lm_move_report_row *row = report.row;
  char tag[16];
  for (int i = 0; i < 200; i++) {
    snprintf(tag, sizeof tag, "r%d", i);
    lm_move_report_add(&report, token_of(tag, 0), lm_move_report_right, "", 1);
  }
  assert_ptr_equal(report.row, row);
  lm_move_report_clear(&report);
}

static void a_block_without_a_tag_is_in_the_sums_only(void **state) {
  (void)state;
  lm_move_report report = { 0 };
  for (int i = 0; i < 1000; i++)
    lm_move_report_add(&report, LM_TOKEN_NONE, lm_move_report_refused, "no tag", 5);
  assert_true(lm_move_report_is_valid(&report));
  assert_int_equal(report.n, 0);
  assert_int_equal(report.refused, 5000);
  lm_move_report_clear(&report);
}

static void a_report_that_breaks_its_law_is_found(void **state) {
  (void)state;
  lm_move_report report = { 0 };
  lm_move_report_add(&report, token_of("broken", 0), lm_move_report_moved, "", 9);
  report.n++;
  assert_false(lm_move_report_is_valid(&report));
  report.n--;
  report.moved--;
  assert_false(lm_move_report_is_valid(&report));
  report.moved++;
  assert_true(lm_move_report_is_valid(&report));
  lm_move_report_clear(&report);
}

static void laws_of_a_migration(void **state) {
  (void)state;
  lm_strategy *s = lm_strategy_at(0);
  lm_migration m = { .slots = 2, .from = s };
  assert_true(lm_migration_is_valid(&m));
  m.done = 2 * LM_SLOT + 1;
  assert_false(lm_migration_is_valid(&m));
  m.done = 2 * LM_SLOT;
  m.adopted = true;
  assert_false(lm_migration_is_valid(&m));
  m.accepted = true;
  m.to = s;
  assert_true(lm_migration_is_valid(&m));
  m.keeps_strategy = true;
  assert_false(lm_migration_is_valid(&m));
}

static void laws_of_a_survey(void **state) {
  (void)state;
  lm_strategy *s = lm_strategy_at(0);
  lm_survey survey = { .objects = 3, .movers = 1, .others = 2, .right = 1, .to = s, .kept = s };
  assert_true(lm_survey_is_valid(&survey));
  survey.others = 1;
  assert_false(lm_survey_is_valid(&survey));
  survey.others = 2;
  survey.differ = true;
  assert_false(lm_survey_is_valid(&survey));
}

static void laws_of_a_redecision(void **state) {
  (void)state;
  lm_strategy *s = lm_strategy_at(0);
  assert_true(lm_redecision_is_valid(&(lm_redecision){ LM_REDECIDE_RIGHT, s, NULL }));
  assert_true(lm_redecision_is_valid(&(lm_redecision){ LM_REDECIDE_REFUSED, NULL, "no" }));
  assert_false(lm_redecision_is_valid(&(lm_redecision){ LM_REDECIDE_REFUSED, s, NULL }));
  assert_false(lm_redecision_is_valid(&(lm_redecision){ LM_REDECIDE_OTHER, NULL, NULL }));
}

static int set_up(void **state) {
  (void)state;
  lm_engine_start();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(sites_of_one_tag_share_a_row),
    cmocka_unit_test(a_report_grows_and_can_be_copied),
    cmocka_unit_test(reserved_rows_take_no_memory),
    cmocka_unit_test(a_block_without_a_tag_is_in_the_sums_only),
    cmocka_unit_test(a_report_that_breaks_its_law_is_found),
    cmocka_unit_test(laws_of_a_migration),
    cmocka_unit_test(laws_of_a_survey),
    cmocka_unit_test(laws_of_a_redecision),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}
