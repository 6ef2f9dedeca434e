/* test_frugal.c - how much memory a process keeps: after a peak, over time, and with many tags and
 * strategies.
 *
 * The bounds are wide: they detect a leak, or a cache that grows without end, but no small
 * regression. tests/bench/frugal measures the exact figures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chance.h"
#include "loam.h"
#include "test.h"

enum { BLOCKS = 50000, TAGS = 1000, STRATEGIES = 20, SMALL_MOST = 2048 };

static char *block[BLOCKS];
static size_t size_of[BLOCKS];

static uint64_t seed = 11;

static char *touched(loam_site *site, size_t size) {
  char *p = loam_malloc(site, size);
  assert_non_null(p);
  return memset(p, 1, size);
}

/* Waits until at most `most` bytes are resident, or until patience ends. Returns the resident
 * bytes. */
static size_t resident_soon(size_t most) {
  size_t now = resident();
  for (int naps = 0; now > most && be_patient(&naps);) now = resident();
  return now;
}

static void in_bounds(const char *what, size_t now, size_t most) {
  if (now > most) fail_msg("%s: %zu KiB resident, at most %zu wanted", what, now >> 10, most >> 10);
}

/* ---- after a peak */

/* One of 8 runs of RUN blocks stays live. The spans between two live runs become free.
 * rise_and_fall returns the live bytes. */
enum { RUN = 1000 };

static size_t rise_and_fall(void) {
  size_t live = 0;
  for (int i = 0; i < BLOCKS; i++) {
    size_of[i] = i % 500 ? 1 + chance(&seed, SMALL_MOST) : LM_MIB / 2;
    block[i] = touched(NULL, size_of[i]);
  }
  for (int i = 0; i < BLOCKS; i++) {
    if (i / RUN % 8 == 0) live += size_of[i];
    else loam_free(block[i]);
  }
  return live;
}

static void free_the_rest(void) {
  for (int i = 0; i < BLOCKS; i++)
    if (i / RUN % 8 == 0) loam_free(block[i]);
}

static void memory_falls_to_what_lives_without_a_call(void **state) {
  (void)state;
  skip_if_sanitized();
  size_t before = resident();
  for (int i = 0; i < 3; i++) {
    size_t live = rise_and_fall(), most = before + live + live / 10 + 12 * LM_MIB;
    in_bounds("after a peak", resident_soon(most), most);
    free_the_rest();
    most = before + 12 * LM_MIB;
    in_bounds("after all was freed", resident_soon(most), most);
  }
}

static void memory_falls_to_what_lives_at_once_when_asked(void **state) {
  (void)state;
  skip_if_sanitized();
  size_t before = resident(), live = rise_and_fall();
  loam_trim();
  in_bounds("after a trim", resident(), before + live + live / 10 + 12 * LM_MIB);
  free_the_rest();
  loam_trim();
  in_bounds("after a trim of all", resident(), before + 12 * LM_MIB);
}

/* ---- over time */

static void play_phase(int phase) {
  enum { SLOTS = 2000 };
  for (int i = 0; i < 20000; i++) {
    uint32_t at = chance(&seed, SLOTS);
    loam_free(block[at]);
    block[at] = touched(NULL, phase % 3 == 0 ? 1 + chance(&seed, 512)
                              : phase % 3 == 1
                                  ? 2048 + chance(&seed, 20000)
                                  : 1 + chance(&seed, chance(&seed, 10) ? 3000 : 100000));
  }
  for (int at = 0; at < SLOTS; at++) {
    loam_free(block[at]);
    block[at] = NULL;
  }
  if (phase % 2) loam_trim(); /* so that spans are given back and made again */
}

static uint64_t metadata(void) {
  struct loam_stats stats;
  assert_int_equal(loam_stats(&stats), LOAM_OK);
  return stats.metadata_bytes;
}

static void *play_phases(void *number) {
  static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&turn);
  for (int phase = 0; phase < 6; phase++) play_phase(phase + (int)(uintptr_t)number);
  pthread_mutex_unlock(&turn);
  return NULL;
}

static void sizes_that_change_let_nothing_grow(void **state) {
  (void)state;
  skip_if_sanitized();
  memset(block, 0, sizeof block);
  for (int phase = 0; phase < 12; phase++) play_phase(phase);
  size_t first = resident();
  uint64_t records = metadata();
  for (int phase = 0; phase < 48; phase++) play_phase(phase);
  for (uintptr_t i = 0; i < 4; i++) pthread_join(start_thread(play_phases, (void *)i), NULL);
  size_t most = first + first / 10 + 12 * LM_MIB;
  in_bounds("a soak", resident_soon(most), most);
  assert_true(metadata() <= records + records / 10 + LM_MIB);
}

/* ---- tags and strategies */

static void load_many_strategies(const char *name) {
  static char text[8192];
  int used = snprintf(text, sizeof text,
                      "local s = {}\nfor i = 1, %d do s[i] = loam.host { name = '%s' .. i } end\n"
                      "return loam.policy { name = '%s', pick = function(req)\n",
                      STRATEGIES, name, name);
  for (int i = 1; i < STRATEGIES; i++)
    used += snprintf(text + used, sizeof text - (size_t)used,
                     "  if req.size <= %d then return s[%d] end\n", i * 16, i);
  snprintf(text + used, sizeof text - (size_t)used, "  return s[%d]\nend }\n", STRATEGIES);
  assert_int_equal(loam_policy_load_text(name, text), LOAM_OK);
}

static void tags_and_strategies_do_not_multiply(void **state) {
  static char *small[TAGS][STRATEGIES];
  char name[32];
  (void)state;
  skip_if_sanitized();
  size_t before = resident();
  load_many_strategies("many");
  for (int tag = 0; tag < TAGS; tag++) {
    snprintf(name, sizeof name, "tag.%d", tag);
    for (int i = 0; i < STRATEGIES; i++)
      small[tag][i] = touched(loam_site_get(name), (size_t)(i + 1) * 16);
  }
  loam_owner_info first, last;
  assert_int_equal(loam_owner(small[7][0], &first), LOAM_OK);
  assert_int_equal(loam_owner(small[TAGS - 1][STRATEGIES - 1], &last), LOAM_OK);
  assert_string_equal(first.strategy, "many1");
  assert_string_equal(last.strategy, "many20");
  in_bounds("1,000 tags by 20 strategies", resident(), before + 64 * LM_MIB);
  for (int tag = 0; tag < TAGS; tag++)
    for (int i = 0; i < STRATEGIES; i++) loam_free(small[tag][i]);
}

/* loam keeps one byte for each small object, and some metadata for each span. */
static void records_of_small_objects_are_few(void **state) {
  enum { OBJECTS = 1000000, SIZE = 64 };
  (void)state;
  char **object = calloc(OBJECTS, sizeof *object);
  assert_non_null(object);
  loam_trim(); /* else records of earlier tests might be freed during this test */
  uint64_t before = metadata();
  for (int i = 0; i < OBJECTS; i++) object[i] = touched(NULL, SIZE);
  assert_true(metadata() <= before + OBJECTS * SIZE * 3 / 100);
  for (int i = 0; i < OBJECTS; i++) loam_free(object[i]);
  free(object);
}

static uint64_t in_regions(void) {
  struct loam_stats stats;
  assert_int_equal(loam_stats(&stats), LOAM_OK);
  return stats.region_bytes;
}

/* Each round loads a policy with 20 new strategies, and allocates and frees under each of them. The
 * strategies of the round before are then unused. */
static void an_unused_strategy_gives_its_regions_back(void **state) {
  char name[32];
  (void)state;
  load_many_strategies("zeroth");
  uint64_t before = in_regions();
  for (int round = 0; round < 5; round++) {
    char *p[STRATEGIES];
    snprintf(name, sizeof name, "round%d.", round);
    load_many_strategies(name);
    for (int i = 0; i < STRATEGIES; i++) p[i] = touched(NULL, (size_t)(i + 1) * 16);
    for (int i = 0; i < STRATEGIES; i++) loam_free(p[i]);
  }
  load_many_strategies("last");
  assert_true(in_regions() <= before + 4 * LM_MIB);
}

/* The tests run with a service thread, which gives idle memory back without a call. */
static char folder[] = "/tmp/loam-test-XXXXXX";

static int start(void **state) {
  (void)state;
  loam_config config = { .size = sizeof config, .control = 1, .control_dir = mkdtemp(folder) };
  return loam_start(&config);
}

static int stop(void **state) {
  (void)state;
  loam_stop();
  return rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(tags_and_strategies_do_not_multiply),
    cmocka_unit_test(an_unused_strategy_gives_its_regions_back),
    cmocka_unit_test(records_of_small_objects_are_few),
    cmocka_unit_test(memory_falls_to_what_lives_without_a_call),
    cmocka_unit_test(memory_falls_to_what_lives_at_once_when_asked),
    cmocka_unit_test(sizes_that_change_let_nothing_grow),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
