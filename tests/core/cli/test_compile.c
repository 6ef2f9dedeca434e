/* test_compile.c - the image of a policy in a file: cli/compile.h. */
#include "folder.h"

#include <fcntl.h>

#include "cli/compile.h"
#include "cli/vet.h"
#include "pages/metadata.h"
#include "script/policy_file.h"
#include "script/policy_open.h"

static lm_vet_needs needs;

static const char *const two = "local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
                               "return loam.policy { name = 'two', pick = function(req)\n"
                               "  return req.tag:is 'x' and a or b end,\n"
                               "  tests = { { tag = 'x', size = 1, expect = a } } }\n";

static char in[64], out[64];

static int make_files(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return -1;
  snprintf(in, sizeof in, "%s/p.lua", folder);
  snprintf(out, sizeof out, "%s/p.image", folder);
  write_file("p.lua", two);
  return 0;
}

static int number_of_files(void) {
  char command[128], line[32] = "";
  snprintf(command, sizeof command, "ls -A %s | wc -l", folder);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  assert_non_null(fgets(line, sizeof line, pipe));
  pclose(pipe);
  return atoi(line);
}

static void an_image_of_a_policy_is_written(void **state) {
  (void)state;
  lm_compiled made;
  lm_policy_image *policy;
  char *bytes;
  size_t size;
  if (lm_compile(in, out, &made)) fail_msg("%s", loam_error());
  assert_int_equal(lm_policy_file_read(out, LM_READ_TO_LOAD, &bytes, &size), LOAM_OK);
  assert_int_equal(size, made.bytes);
  assert_int_equal(made.plans, 2);
  assert_int_equal(lm_policy_image_open(bytes, size, true, &policy), LOAM_OK);
  assert_string_equal(lm_policy_image_name(policy), "two");
  lm_policy_image_close(policy);
  assert_int_equal(number_of_files(), 2);
}

static void an_image_can_be_compiled_and_vetted_as_its_text_can(void **state) {
  (void)state;
  lm_compiled made, again;
  char other[80], of_text[LM_VET_SIZE], of_image[LM_VET_SIZE];
  snprintf(other, sizeof other, "%s.again", out);
  assert_int_equal(lm_compile(in, out, &made), LOAM_OK);
  assert_int_equal(lm_compile(out, other, &again), LOAM_OK);
  assert_int_equal(again.bytes, made.bytes);
  assert_int_equal(lm_vet(in, of_text, &needs), LOAM_OK);
  assert_int_equal(lm_vet(out, of_image, &needs), LOAM_OK);
  assert_string_equal(of_text, of_image);
  unlink(other);
}

static void a_failure_leaves_the_old_image(void **state) {
  (void)state;
  lm_compiled made;
  assert_int_equal(lm_compile(in, out, &made), LOAM_OK);
  write_file("q.lua", "return 1\n");
  char path[80];
  snprintf(path, sizeof path, "%s/q.lua", folder);
  assert_int_equal(lm_compile(path, out, &made), LOAM_EPOLICY);
  assert_non_null(strstr(loam_error(), "q.lua:1"));
  write_file("q.lua", "local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
                      "return loam.policy { pick = function(req) return a end,\n"
                      "  tests = { { size = 1, expect = b } } }\n");
  assert_int_equal(lm_compile(path, out, &made), LOAM_EPOLICY);
  unlink(path);
  assert_int_equal(lm_compile(path, out, &made), LOAM_EIO);
  assert_int_equal(lm_compile(in, folder, &made), LOAM_EIO);
  assert_int_equal(lm_compile(in, "/nowhere/image", &made), LOAM_EIO);
  assert_non_null(strstr(loam_error(), "/nowhere/image"));
  assert_int_equal(number_of_files(), 2);
  char vetted[LM_VET_SIZE];
  assert_int_equal(lm_vet(out, vetted, &needs), LOAM_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_image_of_a_policy_is_written),
    cmocka_unit_test(an_image_can_be_compiled_and_vetted_as_its_text_can),
    cmocka_unit_test(a_failure_leaves_the_old_image),
  };
  return cmocka_run_group_tests(tests, make_files, remove_folder);
}
