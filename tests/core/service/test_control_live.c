/* test_control_live.c - the service thread moves live memory: control.h, rebalance.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control_fixture.h"
#include "move/rebalance.h"
#include "service/control.h"
#include "service/policy.h"

static const char *strategy_of(const void *p) {
  loam_owner_info owner;
  assert_int_equal(loam_owner(p, &owner), LOAM_OK);
  return owner.strategy;
}

static void load_text(const char *text) {
  if (loam_policy_load_text("live.lua", text)) fail_msg("%s", loam_error());
}

static void wait_for(const void *p, const char *strategy) {
  for (int naps = 0; strcmp(strategy_of(p), strategy) != 0 && be_patient(&naps);) continue;
  assert_string_equal(strategy_of(p), strategy);
}

static void live_memory_is_moved_by_request(void **state) {
  (void)state;
  load_text(ALL_OF("here"));
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  char *p = loam_malloc(loam_site_get("moved.by request"), 5 << 20);
  memset(p, 1, 5 << 20);
  load_text(ALL_OF("there"));
  assert_int_equal(ask(getpid(), "rebalance rate=99999999999 tag=moved.by request"), LOAM_OK);
  expect_words("\"ok\":true");
  wait_for(p, "there");
  do assert_int_equal(ask(getpid(), "moved"), LOAM_OK);
  while (strstr(answer, "\"running\":true"));
  expect_words("{\"tag\":\"moved.by request\",\"what\":\"moved\",\"why\":\"\",\"bytes\":5242880");
  assert_int_equal(ask(getpid(), "rebalance speed=3"), LOAM_OK);
  expect_words("\"ok\":false");
  assert_int_equal(ask(getpid(), "demote to=cold"), LOAM_OK);
  expect_words("\"ok\":false");
  assert_int_equal(ask(getpid(), "demote to=node node=63 tag=x"), LOAM_OK);
  expect_words("node 63");
  loam_free(p);
}

static void a_number_that_is_none_moves_nothing(void **state) {
  (void)state;
  static const char *const wrong[] = {
    "demote node= tag=x",    "demote node=1x tag=x",          "demote node=4294967296 tag=x",
    "demote older=-1 tag=x", "demote older=4294967296 tag=x", "rebalance rate=fast"
  };
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  for (size_t i = 0; i < LM_COUNT(wrong); i++) {
    assert_int_equal(ask(getpid(), wrong[i]), LOAM_OK);
    expect_words("rate=, node=, older=");
  }
}

/* Tries until a job runs beside another one. If this test is delayed between two requests, the
 * first job may end before the second request. */
static void begin_job_beside_another(void) {
  for (int naps = 0; be_patient(&naps);) {
    assert_int_equal(ask(getpid(), "move stop"), LOAM_OK);
    assert_int_equal(ask(getpid(), "rebalance rate=1000 tag=slow"), LOAM_OK);
    if (!strstr(answer, "\"running\":true")) continue;
    assert_int_equal(ask(getpid(), "rebalance rate=1000 tag=slow"), LOAM_OK);
    if (strstr(answer, "already")) return;
  }
  expect_words("already");
}

/* The job would take hours. No client asks for its progress, so it must end. */
static void a_job_that_no_client_watches_ends(void **state) {
  (void)state;
  load_text(ALL_OF("slow-before"));
  assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
  char *p[3];
  for (int i = 0; i < 3; i++)
    memset(p[i] = loam_malloc(loam_site_get("slow"), 6 << 20), 1, 6 << 20);
  load_text(ALL_OF("slow-after"));
  begin_job_beside_another();
  loam_progress now = { .running = 1 };
  uint64_t number;
  for (int naps = 0; now.running && be_patient(&naps);) lm_rebalance_get(&now, &number);
  assert_false(now.running);
  for (int i = 0; i < 3; i++) loam_free(p[i]);
}

/* The service thread may be delayed, because the program is stopped or a policy takes long to load.
 * This must not end a job. */
static void time_in_which_no_client_is_heard_ends_no_job(void **state) {
  (void)state;
  lm_job_order order = { .rate = 1000 };
  loam_progress now;
  uint64_t number;
  load_text(ALL_OF("held-up-before"));
  char *p = loam_malloc(loam_site_get("held up"), 6 << 20);
  memset(p, 1, 6 << 20);
  load_text(ALL_OF("held-up-after"));
  assert_int_equal(lm_rebalance_begin(&order, LM_JOB_SERVICE), LOAM_OK);
  lm_rebalance_keep_alive(true);
  assert_true(lm_rebalance_step(LM_JOB_SERVICE) >= 0);
  usleep(3200000);
  for (int i = 0; i < 4; i++) assert_true(lm_rebalance_step(LM_JOB_SERVICE) >= 0);
  lm_rebalance_get(&now, &number);
  assert_int_equal(now.refused, 0);
  lm_rebalance_cancel();
  while (lm_rebalance_step(LM_JOB_SERVICE) >= 0) continue;
  assert_string_equal(strategy_of(p), "held-up-before");
  loam_free(p);
}

static void a_job_is_ended_by_request_and_by_stopping(void **state) {
  (void)state;
  load_text(ALL_OF("ended-before"));
  char *p = loam_malloc(loam_site_get("ended"), 12 << 20);
  memset(p, 1, 12 << 20);
  for (int round = 0; round < 2; round++) {
    assert_int_equal(lm_control_start(NULL, true), LOAM_OK);
    load_text(ALL_OF("ended-after"));
    assert_int_equal(ask(getpid(), "rebalance rate=1000 tag=ended"), LOAM_OK);
    expect_words("\"running\":true");
    usleep(50000);
    if (round) assert_int_equal(ask(getpid(), "move stop"), LOAM_OK);
    lm_control_stop();
    loam_progress now;
    uint64_t number;
    lm_rebalance_get(&now, &number);
    assert_false(now.running);
    assert_string_equal(strategy_of(p), "ended-before");
    load_text(ALL_OF("ended-before"));
  }
  loam_free(p);
}

#define LIVE(name)                                            \
  "local h = loam.host { name = '" name "' }\n"               \
  "return loam.policy { name = '" name "', apply = 'live',\n" \
  "  pick = function(req) return h end }\n"

static _Atomic int events_of_moves;
static void count_moves(void *ctx, const loam_event *event) {
  (void)ctx;
  events_of_moves += event->kind == LOAM_EVENT_MOVED;
}

static void a_policy_has_live_memory_follow_without_a_socket(void **state) {
  (void)state;
  load_text(ALL_OF("follow-before"));
  char *p = loam_malloc(loam_site_get("follows"), 3 << 20), *q = loam_malloc(NULL, 100);
  memset(p, 1, 3 << 20);
  loam_on_event(count_moves, NULL);
  load_text(LIVE("follow-after"));
  wait_for(p, "follow-after");
  load_text(LIVE("follow-again"));
  load_text(LIVE("follow-last"));
  wait_for(p, "follow-last");
  for (int naps = 0; events_of_moves < 2 && be_patient(&naps);) continue;
  loam_on_event(NULL, NULL);
  assert_true(events_of_moves >= 2);
  loam_free(p);
  loam_free(q);
}

/* A stop by another thread while the service thread loads a policy. */
typedef struct stop_amid_load {
  _Atomic int calls;   /* calls of the callback for a policy that went live */
  _Atomic pid_t tid;   /* the thread that stops */
  _Atomic int stopped; /* lm_control_stop has returned */
  loam_status watched; /* the result of lm_control_watch before the stop returned */
  int failures;        /* events of the service; lm_control_watch reports one */
} stop_amid_load;

static void *stop_control(void *argument) {
  stop_amid_load *s = argument;
  s->tid = gettid();
  lm_control_stop();
  s->stopped = 1;
  return NULL;
}

/* Returns whether a thread of this process sleeps, because it waits for a lock or for the end of a
 * thread. */
static bool is_thread_asleep(pid_t tid) {
  char path[64], state = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
  FILE *f = fopen(path, "r");
  if (!f) return false;
  if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 0;
  fclose(f);
  return state == 'S';
}

/* Runs in the service thread. Returns when the other thread waits for the end of the service
 * thread. A thread that slept at 20 checks in a row does not wait for the service lock, which is
 * held for a short time only. */
static void stop_elsewhere(void *ctx, const loam_event *event) {
  stop_amid_load *s = ctx;
  s->failures += event->kind == LOAM_EVENT_CONTROL;
  if (event->kind != LOAM_EVENT_POLICY_LIVE || s->calls++) return;
  pthread_detach(start_thread(stop_control, s));
  for (int naps = 0, asleep = 0; asleep < 20 && be_patient(&naps);)
    asleep = s->tid && is_thread_asleep(s->tid) ? asleep + 1 : 0;
  s->watched = lm_control_watch(file);
}

static void a_stop_ends_a_service_that_loads_a_policy_for_live_memory(void **state) {
  (void)state;
  static stop_amid_load s;
  save(LIVE("stop-amid"));
  loam_on_event(stop_elsewhere, &s);
  assert_int_equal(lm_control_watch(file), LOAM_OK);
  for (int naps = 0; !s.stopped && be_patient(&naps);) continue;
  loam_on_event(NULL, NULL);
  assert_int_equal(s.stopped, 1);
  assert_int_equal(s.watched, LOAM_ESTATE);
  assert_int_equal(s.failures, 1); /* the policy for live memory is not counted as a failure */
  assert_false(lm_policy_is_watched());
  assert_int_equal(lm_control_watch(file), LOAM_OK); /* a later start works as before */
}

/* The job would take hours. The new policy ends a job that the older policy began (`applies`), but
 * not one that a person began. */
static void a_policy_that_leaves_what_lives_ends_what_another_began(void **state) {
  (void)state;
  load_text(ALL_OF("leave-before"));
  char *p = loam_malloc(loam_site_get("left"), 12 << 20);
  memset(p, 1, 12 << 20);
  load_text(LIVE("leave-after"));
  wait_for(p, "leave-after"); /* now the service thread begins no other job */
  lm_control_stop();
  for (int applies = 0; applies < 2; applies++) {
    lm_job_order order = { .rate = 1000, .applies = applies };
    load_text(ALL_OF("leave-later"));
    assert_int_equal(lm_rebalance_begin(&order, LM_JOB_SERVICE), LOAM_OK);
    for (int i = 0; i < 4; i++) assert_true(lm_rebalance_step(LM_JOB_SERVICE) >= 0);
    load_text(ALL_OF("leave-last"));
    int64_t wait = 0;
    for (int i = 0; i < 100 && wait >= 0; i++) wait = lm_rebalance_step(LM_JOB_SERVICE);
    assert_int_equal(wait < 0, applies);
    lm_rebalance_cancel();
    while (lm_rebalance_step(LM_JOB_SERVICE) >= 0) continue;
    assert_string_equal(strategy_of(p), "leave-after");
  }
  loam_free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(live_memory_is_moved_by_request),
    TEST(a_number_that_is_none_moves_nothing),
    TEST(a_job_that_no_client_watches_ends),
    TEST(time_in_which_no_client_is_heard_ends_no_job),
    TEST(a_job_is_ended_by_request_and_by_stopping),
    TEST(a_policy_has_live_memory_follow_without_a_socket),
    TEST(a_stop_ends_a_service_that_loads_a_policy_for_live_memory),
    TEST(a_policy_that_leaves_what_lives_ends_what_another_began),
  };
  setenv("LOAM_CONTROL", "0", 1); /* the first allocation must not start the socket */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
