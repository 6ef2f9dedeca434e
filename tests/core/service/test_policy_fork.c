/* test_policy_fork.c - a child that is forked while a thread closes the images of old policies. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#include "os/thread.h"
#include "pages/metadata.h"
#include "script/script.h"
#include "service/policy.h"

/* The image of a policy with many plans, so that it takes long to close. */
static void *many_plans;
static size_t many_plans_size;

static void compile_many_plans(void) {
  enum { PLANS = 40 };
  char text[PLANS * 128];
  size_t n = (size_t)snprintf(text, sizeof text, "local h = {}\n");
  for (int i = 0; i < PLANS; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "h[%d] = loam.host { name = 'h%d' }\n", i, i);
  n += (size_t)snprintf(text + n, sizeof text - n,
                        "return loam.policy { name = 'many', pick = function(req)\n");
  for (int i = 1; i < PLANS; i++)
    n += (size_t)snprintf(text + n, sizeof text - n,
                          "  if req.tag:is('t%d') then return h[%d] end\n", i, i);
  n += (size_t)snprintf(text + n, sizeof text - n, "  return h[0] end }\n");
  lm_script_source source = { "many.lua", text, n, lm_policy_limits(), true };
  assert_int_equal(lm_script_compile(&source, false, &many_plans, &many_plans_size), LOAM_OK);
}

/* Loads the image. The request makes the thread obey it, so that no load waits for this thread. */
static bool loads_many_plans(void) {
  loam_status status = lm_policy_load("many", many_plans, many_plans_size);
  loam_free(loam_malloc(NULL, 100));
  return status == LOAM_OK;
}

static _Atomic bool has_ended;

/* Loads that wait for no grace keep the old images, and later loads close them. */
static void *load_and_close(void *unused) {
  lm_thread_refuse_graces();
  while (!has_ended && loads_many_plans()) continue;
  return unused;
}

static int fork_one_that_loads(void) {
  int pid = fork();
  assert_true(pid >= 0);
  if (pid) return pid;
  bool is_valid = loads_many_plans() && lm_metadata_is_valid() && lm_policy_is_valid();
  _exit(!is_valid);
}

static void a_child_closes_no_old_image_that_its_parent_was_closing(void **state) {
  enum { ROUNDS = SANITIZED ? 5 : 100, CHILDREN = 24 };
  int pid[CHILDREN], status, bad = 0;
  (void)state;
  compile_many_plans();
  pthread_t loader = start_thread(load_and_close, NULL);
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < CHILDREN; i++) pid[i] = fork_one_that_loads();
    for (int i = 0; i < CHILDREN; i++) {
      assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
      bad += status != 0;
    }
  }
  has_ended = true;
  pthread_join(loader, NULL);
  lm_metadata_free(many_plans);
  assert_int_equal(bad, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_child_closes_no_old_image_that_its_parent_was_closing),
  };
  setenv("LOAM_CONTROL", "0", 1); /* the first allocation must not start the socket */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
