/* test_ledger.c - counts of blocks, events of blocks, and leak reports: ledger.h. */
#include "block/ledger.h"
#include "engine/block_watch.h"
#include "os/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "duel.h"

static loam_site *here(void) { return loam_site_get("test.ledger"); }

static struct loam_block_stats stats(void) {
  struct loam_block_stats now;
  assert_int_equal(loam_block_stats(&now), LOAM_OK);
  return now;
}

/* ---- Counts */

static void made_and_ended_are_counted_by_kind(void **state) {
  (void)state;
  char memory[10];
  struct loam_block_stats before = stats(), now;
  loam_block *b[] = { NULL,
                      loam_block_new(here(), 10),
                      loam_block_zeroed(here(), 100000),
                      loam_block_wrap(here(), memory, sizeof memory, NULL, NULL),
                      NULL,
                      loam_arena_new(here(), 0, 0) };
  b[LOAM_BLOCK_SLICE] = loam_block_slice(b[1], 0, 5);
  now = stats();
  for (int kind = 1; kind < LM_BLOCK_KINDS; kind++) {
    assert_int_equal(loam_block_kind_of(b[kind]), kind);
    assert_int_equal(now.made[kind] - before.made[kind], 1);
    assert_int_equal(now.ended[kind] - before.ended[kind], 0);
  }
  for (int kind = 1; kind < LM_BLOCK_KINDS; kind++) loam_block_release(b[kind]);
  now = stats();
  for (int kind = 1; kind < LM_BLOCK_KINDS; kind++)
    assert_int_equal(now.ended[kind] - before.ended[kind], 1);
  assert_int_equal(loam_block_stats(NULL), LOAM_EINVAL);
}

static void blocks_that_were_not_made_are_not_counted(void **state) {
  (void)state;
  struct loam_block_stats before = stats();
  assert_null(loam_block_new(here(), SIZE_MAX));
  assert_null(loam_block_slice(NULL, 0, 1));
  struct loam_block_stats now = stats();
  assert_memory_equal(&before, &now, sizeof now);
}

enum { THREADS = 8, TIMES = 5000 };

static void *make_and_end(void *kept) {
  for (int i = 0; i < TIMES; i++) loam_block_release(loam_block_new(here(), 64));
  *(loam_block **)kept = loam_block_new(here(), 64);
  return NULL;
}

static void counts_outlive_their_threads(void **state) {
  (void)state;
  loam_block *kept[THREADS];
  pthread_t thread[THREADS];
  struct loam_block_stats before = stats(), now;
  for (int i = 0; i < THREADS; i++) thread[i] = start_thread(make_and_end, &kept[i]);
  for (int i = 0; i < 100; i++) {
    now = stats();
    assert_true(now.ended[1] >= before.ended[1]);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  now = stats();
  assert_int_equal(now.made[1] - before.made[1], THREADS * (TIMES + 1));
  assert_int_equal(now.ended[1] - before.ended[1], THREADS * TIMES);
  for (int i = 0; i < THREADS; i++) loam_block_release(kept[i]);
  now = stats();
  assert_int_equal(now.ended[1] - before.ended[1], THREADS * (TIMES + 1));
  assert_true(lm_ledger_is_valid());
}

static void more_blocks_that_ended_than_were_made_are_not_valid(void **state) {
  (void)state;
  lm_block_tally *tally = &lm_thread_get()->blocks;
  uint64_t before = tally->ended[0];
  assert_true(lm_ledger_is_valid());
  tally->ended[0] = stats().made[0] + 1;
  assert_false(lm_ledger_is_valid());
  tally->ended[0] = before;
  assert_true(lm_ledger_is_valid());
}

/* ---- Events */

typedef struct event_log {
  char text[256];
  const loam_block *of; /* the block whose events are logged; NULL: every block */
} event_log;

static void note(void *ctx, loam_block_verb verb, const loam_block *b, size_t references) {
  static const char *const verbs[] = { "", "made", "retained", "released", "ended" };
  event_log *log = ctx;
  if (log->of && b != log->of) return;
  size_t used = strlen(log->text);
  snprintf(log->text + used, sizeof log->text - used, "%s %zu of %s; ", verbs[verb], references,
           loam_block_tag(b));
  loam_block_release(loam_block_new(here(), 10)); /* no event inside the callback */
}

static void each_event_of_a_block_is_reported(void **state) {
  (void)state;
  event_log log = { "", NULL };
  loam_block_hook before = loam_on_block(note, &log);
  assert_true(!before.callback);
  loam_block *b = loam_block_new(here(), 10);
  loam_block_retain(b);
  loam_block_release(b);
  loam_block_release(b);
  assert_string_equal(log.text, "made 1 of test.ledger; retained 2 of test.ledger; "
                                "released 1 of test.ledger; released 0 of test.ledger; "
                                "ended 0 of test.ledger; ");
  before = loam_on_block(NULL, NULL);
  assert_true(before.callback == note && before.ctx == &log);
  b = loam_block_new(here(), 10);
  loam_block_release(b);
  assert_null(strstr(log.text, "made 1 of test.ledger; made"));
}

static void a_slice_reports_a_retain_of_its_parent(void **state) {
  (void)state;
  loam_block *b = loam_block_new(here(), 10);
  event_log log = { "", b };
  loam_on_block(note, &log);
  loam_block *part = loam_block_slice(b, 1, 1);
  loam_block_release(b);
  loam_block_release(part);
  loam_on_block(NULL, NULL);
  assert_string_equal(log.text, "retained 2 of test.ledger; released 1 of test.ledger; "
                                "released 0 of test.ledger; ended 0 of test.ledger; ");
}

/* ---- Leaks */

static void add_words(void *ctx, const char *tag, uint64_t blocks, uint64_t bytes) {
  char *text = ctx;
  sprintf(text + strlen(text), "%s: %d blocks, %d bytes; ", tag, (int)blocks, (int)bytes);
}

static void leaks_are_known_only_if_requested(void **state) {
  (void)state;
  char text[100] = "";
  assert_int_equal(loam_block_leaks(add_words, text), LOAM_ESTATE);
  assert_string_equal(loam_error(),
                      "blocks are not listed: loam_config.leaks and LOAM_LEAKS are 0");
  assert_int_equal(loam_block_leaks(NULL, text), LOAM_EINVAL);
}

/* Runs in a child process, which reports its leaks at exit. `step` selects the blocks that leak. */
static int leak_blocks(void *step) {
  static char text[200];
  loam_block *before = loam_block_new(here(), 10);
  loam_stop();
  if (loam_start(&(loam_config){ .size = sizeof(loam_config), .control = -1, .leaks = 1 }))
    return 1;
  loam_block *a = loam_block_new(loam_site_get("test.a"), 100);
  loam_block *b = loam_block_new(loam_site_get("test.b"), 5000), *part = loam_block_slice(b, 0, 10);
  loam_block *c = loam_block_new(loam_site_get("test.c"), 100);
  loam_block_release(c);
  loam_block_release(before);
  if (loam_block_leaks(add_words, text)) return 2;
  if (strcmp(text, "test.a: 1 blocks, 100 bytes; test.b: 2 blocks, 5000 bytes; ")) return 3;
  if (*(int *)step == 1) loam_block_release(a);
  if (*(int *)step == 2) {
    loam_block_release(a);
    loam_block_release(b);
    loam_block_release(part);
  }
  exit(0);
}

static void tell_leak(void *ctx, const loam_event *event) {
  (void)ctx;
  dprintf(STDERR_FILENO, "event %d: %s\n", (int)event->kind, event->message);
}

static int leak_blocks_with_a_callback(void *step) {
  loam_on_event(tell_leak, NULL);
  return leak_blocks(step);
}

/* Runs `body` in a child process. Compares the child's standard error with `words`. */
static void expect_output(int (*body)(void *), int step, const char *words) {
  int ends[2], saved = dup(STDERR_FILENO);
  char said[1000];
  assert_int_equal(pipe(ends), 0);
  dup2(ends[1], STDERR_FILENO);
  int status = run_in_child(body, &step);
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(ends[1]);
  ssize_t n = read(ends[0], said, sizeof said - 1);
  close(ends[0]);
  assert_true(n >= 0);
  said[n] = 0;
  assert_int_equal(status, 0);
  assert_string_equal(said, words);
}

static void leaks_are_reported_by_tag_at_exit(void **state) {
  (void)state;
  skip_if_sanitized(); /* a sanitizer would report the leaks too */
  expect_output(leak_blocks, 0,
                "loam: never released: 1 block of tag \"test.a\", 100 bytes\n"
                "loam: never released: 2 blocks of tag \"test.b\", 5000 bytes\n");
  expect_output(leak_blocks, 1, "loam: never released: 2 blocks of tag \"test.b\", 5000 bytes\n");
  expect_output(leak_blocks, 2, "");
  expect_output(leak_blocks_with_a_callback, 1,
                "event 8: never released: 2 blocks of tag \"test.b\", 5000 bytes\n");
}

/* ---- Threads, forks and callbacks together */

static _Atomic long events_made, events_ended;
static _Atomic bool enough;

static void count_events(void *ctx, loam_block_verb verb, const loam_block *b, size_t references) {
  (void)ctx;
  (void)b;
  (void)references;
  if (verb == LOAM_BLOCK_MADE) events_made++;
  if (verb == LOAM_BLOCK_ENDED) events_ended++;
}

static void *live_with_blocks(void *shared) {
  for (int i = 0; !enough; i++) {
    loam_block *own = loam_block_new(here(), (size_t)i % 3000);
    loam_block *part = loam_block_slice(i % 2 ? own : shared, 0, 0);
    loam_block_release(own);
    loam_block_release(part);
  }
  loam_block_release(shared);
  return NULL;
}

static void add_blocks(void *ctx, const char *tag, uint64_t blocks, uint64_t bytes) {
  (void)bytes;
  if (strcmp(tag, "test.ledger") == 0) *(uint64_t *)ctx += blocks;
}

/* Runs in a child process that was forked while other threads made and ended blocks. */
static int go_on_in_child(void *shared) {
  uint64_t listed = 0;
  loam_block *b = loam_block_slice(shared, 0, 0);
  loam_block_release(b);
  if (!b || loam_block_leaks(add_blocks, &listed)) return 1;
  return listed ? 0 : 2;
}

static void threads_forks_and_hooks_leave_the_list_whole(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  loam_stop();
  assert_int_equal(
      loam_start(&(loam_config){ .size = sizeof(loam_config), .control = -1, .leaks = 1 }),
      LOAM_OK);
  loam_block *shared = loam_block_new(here(), 10);
  for (int i = 0; i < THREADS; i++)
    thread[i] = start_thread(live_with_blocks, loam_block_retain(shared));
  for (int i = 0; i < 20; i++) {
    loam_on_block(i % 2 ? NULL : count_events, NULL);
    assert_int_equal(run_in_child(go_on_in_child, shared), 0);
  }
  loam_on_block(count_events, NULL);
  enough = true;
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  loam_block_release(loam_block_new(here(), 10));
  loam_on_block(NULL, NULL);
  assert_true(events_made > 0 && events_ended > 0);
  uint64_t listed = 0;
  assert_int_equal(loam_block_leaks(add_blocks, &listed), LOAM_OK);
  assert_int_equal(listed, 1);
  assert_true(lm_ledger_is_valid());
  assert_int_equal(loam_block_refcount(shared), 1);
  loam_block_release(shared);
  listed = 0;
  assert_int_equal(loam_block_leaks(add_blocks, &listed), LOAM_OK);
  assert_int_equal(listed, 0);
}

/* ---- Two threads set callbacks at one time */

static void ignore(void *ctx, loam_block_verb verb, const loam_block *b, size_t references) {
  (void)ctx;
  (void)verb;
  (void)b;
  (void)references;
}

static void set_hook(void) { loam_on_block(ignore, NULL); }
static void remove_hook(void) { loam_on_block(NULL, NULL); }

static bool is_slow_while_watched(void) {
  return lm_block_watch_is_on() == !!(lm_thread_self->slow_reasons & LM_SLOW_LISTING);
}

static void threads_take_the_slow_path_exactly_while_blocks_are_watched(void **state) {
  (void)state;
  lm_thread_get();
  assert_int_equal(duel_count_wrong(50000, set_hook, remove_hook, is_slow_while_watched), 0);
  remove_hook();
}

int main(void) {
  setenv("LOAM_CONTROL", "0", 1);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(made_and_ended_are_counted_by_kind),
    cmocka_unit_test(blocks_that_were_not_made_are_not_counted),
    cmocka_unit_test(counts_outlive_their_threads),
    cmocka_unit_test(more_blocks_that_ended_than_were_made_are_not_valid),
    cmocka_unit_test(each_event_of_a_block_is_reported),
    cmocka_unit_test(a_slice_reports_a_retain_of_its_parent),
    cmocka_unit_test(threads_take_the_slow_path_exactly_while_blocks_are_watched),
    cmocka_unit_test(leaks_are_known_only_if_requested),
    cmocka_unit_test(leaks_are_reported_by_tag_at_exit),
    cmocka_unit_test(threads_forks_and_hooks_leave_the_list_whole), /* last: it lists blocks */
  };
  return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
