/* test_vet.c - the check of a policy for a program that the command starts: cli/vet.h. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "carried.h"
#include "cli/vet.h"
#include "script/policy_file.h"

static lm_vet_needs needs;

static const lm_script_limits limits = { .max_leaves = 100,
                                         .step_ms = 200,
                                         .step_bytes = 4 * LM_MIB };

static const char *const two = "local s = loam.host { name = 'small' }\n"
                               "local l = loam.host { name = 'large', align = 64 }\n"
                               "return loam.policy {\n"
                               "  name = 'two',\n"
                               "  pick = function(req)\n"
                               "    if req.size >= 4096 then return l:or_else(s) end\n"
                               "    return s\n"
                               "  end,\n"
                               "}\n";

static char carried[LM_IMAGE_TEXT_SIZE];

static loam_status vet(const char *text) {
  lm_script_source source = { "test.lua", text, strlen(text), &limits, .is_host = false };
  return carried_write(&source, carried);
}

/* Opens the image in `carried`. */
static lm_policy_image *carried_image(const char *text) {
  lm_policy_image *policy;
  size_t size;
  void *bytes = lm_image_text_read(carried, text, strlen(text), &size);
  assert_non_null(bytes);
  if (lm_policy_image_open(bytes, size, false, &policy)) fail_msg("%s", loam_error());
  return policy;
}

static void the_image_is_carried(void **state) {
  (void)state;
  assert_int_equal(vet(two), LOAM_OK);
  lm_policy_image *policy = carried_image(two);
  assert_string_equal(lm_policy_image_name(policy), "two");
  assert_false(lm_policy_image_applies_live(policy));
  assert_true(lm_policy_image_hash(policy) == lm_policy_file_hash(two, strlen(two)));
  lm_policy_image_close(policy);
}

static void a_handler_of_the_program_is_accepted(void **state) {
  (void)state;
  const char *text = "local h = loam.handler 'of.the.program'\n"
                     "return loam.policy { pick = function(req) return h end }\n";
  assert_int_equal(vet(text), LOAM_OK);
  lm_policy_image_close(carried_image(text));
}

static void a_large_image_is_not_carried(void **state) {
  (void)state;
  assert_int_equal(vet("local t = {}\n"
                       "for i = 1, 60 do t[i] = loam.host { name = ('x'):rep(50) .. i } end\n"
                       "return loam.policy { pick = function(req)\n"
                       "  for i = 1, 59 do if req.size < i then return t[i] end end\n"
                       "  return t[60] end }\n"),
                   LOAM_OK);
  assert_string_equal(carried, "");
}

static void a_failing_test_of_the_policy_is_reported(void **state) {
  (void)state;
  assert_int_equal(vet("local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
                       "return loam.policy { pick = function(req) return a end,\n"
                       "  tests = { { size = 1, expect = b } } }\n"),
                   LOAM_EPOLICY);
  assert_non_null(strstr(loam_error(), "test.lua:3: test: test 1"));
}

static void a_file_gives_its_hash_and_its_image(void **state) {
  static char vetted[LM_VET_SIZE], expected[LM_VET_SIZE];
  char path[] = "/tmp/loam-vet-XXXXXX";
  int fd = mkstemp(path);
  (void)state;
  assert_true(fd >= 0);
  assert_int_equal(write(fd, two, strlen(two)), strlen(two));
  close(fd);
  loam_status status = lm_vet(path, vetted, &needs, NULL);
  unlink(path);
  if (status != LOAM_OK) fail_msg("%s", loam_error());
  assert_int_equal(vet(two), LOAM_OK);
  snprintf(expected, sizeof expected, "%016llx:%s",
           (unsigned long long)lm_policy_file_hash(two, strlen(two)), carried);
  assert_string_equal(vetted, expected);
  assert_int_equal(lm_vet("/nowhere/policy.lua", vetted, &needs, NULL), LOAM_EIO);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_image_is_carried),
    cmocka_unit_test(a_handler_of_the_program_is_accepted),
    cmocka_unit_test(a_large_image_is_not_carried),
    cmocka_unit_test(a_failing_test_of_the_policy_is_reported),
    cmocka_unit_test(a_file_gives_its_hash_and_its_image),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
