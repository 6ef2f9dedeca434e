/* test_image_cache.c - images of policies that `loam run` keeps: cli/image_cache.h. */
#include "folder.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/image_cache.h"
#include "cli/vet.h"
#include "script/policy_file.h"
#include "script/policy_open.h"
#include "service/policy.h"

static const char *const one =
    "local s = loam.host { name = 'one' }\n"
    "return loam.policy { name = 'one', pick = function() return s end }\n";
static const char *const asks = "local s = loam.host { name = 'asks' }\n"
                                "local n = #loam.nodes()\n"
                                "return loam.policy { pick = function() return s end }\n";

static const char files[] = "local f = loam.file { name = 'f', dir = '/nosuch' }\n"
                            "local s = loam.host { name = 's' }\n"
                            "return loam.policy { pick = function() return f:or_else(s) end }\n";

static char policy[64], control[64], place[PATH_MAX];

static int make_files(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return -1;
  snprintf(policy, sizeof policy, "%s/p.lua", folder);
  snprintf(control, sizeof control, "%s/control", folder);
  snprintf(place, sizeof place, "%s/kept-%u.image", control,
           (unsigned)(lm_policy_file_hash(one, strlen(one)) % LM_IMAGE_CACHE_PLACES));
  return setenv("LOAM_CONTROL_DIR", control, 1);
}

/* Each test begins without a kept image. */
static int forget(void **state) {
  (void)state;
  unlink(place);
  return 0;
}

static void vet(const char *text) {
  static char vetted[LM_VET_SIZE];
  lm_vet_needs needs;
  write_file("p.lua", text);
  if (lm_vet(policy, vetted, &needs, NULL)) fail_msg("%s", loam_error());
}

static bool is_kept(const char *text) {
  lm_policy_image *image;
  if (!lm_image_cache_find(text, strlen(text), &image)) return false;
  lm_policy_image_close(image);
  return true;
}

/* Changes one byte of the kept file. */
static void damage(off_t at) {
  char byte;
  int fd = open(place, O_RDWR);
  assert_true(fd >= 0);
  assert_int_equal(pread(fd, &byte, 1, at), 1);
  byte ^= 1;
  assert_int_equal(pwrite(fd, &byte, 1, at), 1);
  close(fd);
}

static void a_policy_is_compiled_once(void **state) {
  (void)state;
  assert_false(is_kept(one));
  vet(one);
  assert_true(is_kept(one));
  struct stat before, after;
  assert_int_equal(stat(place, &before), 0);
  vet(one);
  assert_int_equal(stat(place, &after), 0);
  assert_true(before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
              before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
}

static void another_text_finds_nothing(void **state) {
  (void)state;
  vet(one);
  char other[256];
  snprintf(other, sizeof other, "%s ", one);
  assert_false(is_kept(other));
  /* An image of another text may be in the place, by accident or on purpose. */
  char *bytes;
  size_t size;
  assert_int_equal(lm_policy_file_read(place, LM_READ_TO_FOLLOW, &bytes, &size), LOAM_OK);
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/kept-%u.image", control,
           (unsigned)(lm_policy_file_hash(other, strlen(other)) % LM_IMAGE_CACHE_PLACES));
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  fclose(file);
  assert_false(is_kept(other));
  unlink(path);
}

static void a_damaged_image_is_not_used(void **state) {
  (void)state;
  struct stat st;
  vet(one);
  assert_int_equal(stat(place, &st), 0);
  for (off_t at = 0; at < st.st_size; at += 61) {
    damage(at);
    assert_false(is_kept(one));
    damage(at);
  }
  assert_true(is_kept(one));
  assert_int_equal(truncate(place, st.st_size - 1), 0);
  assert_false(is_kept(one));
}

static void an_image_that_others_can_write_is_not_used(void **state) {
  (void)state;
  vet(one);
  assert_int_equal(chmod(place, 0622), 0);
  assert_false(is_kept(one));
  assert_int_equal(chmod(place, 0600), 0);
  assert_true(is_kept(one));
  assert_int_equal(chmod(control, 0777), 0);
  assert_false(is_kept(one));
  assert_int_equal(chmod(control, 01777), 0);
  assert_false(is_kept(one));
  assert_int_equal(chmod(control, 0700), 0);
  assert_true(is_kept(one));
}

static void an_image_older_than_the_command_is_not_used(void **state) {
  (void)state;
  const struct timespec old[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
  vet(one);
  assert_int_equal(utimensat(AT_FDCWD, place, old, 0), 0);
  assert_false(is_kept(one));
}

static void a_policy_that_asks_about_the_machine_is_compiled_each_time(void **state) {
  (void)state;
  vet(asks);
  assert_false(is_kept(asks));
  vet(files);
  assert_false(is_kept(files));
}

static void a_large_image_is_not_kept(void **state) {
  static char large[LM_IMAGE_CACHE_BYTES_MAX + 1];
  (void)state;
  int n = snprintf(large, sizeof large, "%s-- ", one);
  memset(large + n, 'x', sizeof large - 1 - (size_t)n);
  large[sizeof large - 2] = '\n';
  vet(large);
  assert_false(is_kept(large));
  strcpy(large + LM_IMAGE_CACHE_BYTES_MAX / 2, "\n");
  vet(large);
  assert_true(is_kept(large));
}

static void nothing_is_kept_where_the_user_wants_no_folder(void **state) {
  (void)state;
  setenv("LOAM_CONTROL", "0", 1);
  vet(one);
  unsetenv("LOAM_CONTROL");
  assert_false(is_kept(one));
}

/* The kept file is a link to a file outside its folder. That file must not change. */
static void an_image_is_not_written_through_a_link(void **state) {
  (void)state;
  char target[64];
  struct stat st;
  write_file("target", "mine");
  snprintf(target, sizeof target, "%s/target", folder);
  assert_int_equal(symlink(target, place), 0);
  vet(one);
  assert_int_equal(stat(target, &st), 0);
  assert_int_equal(st.st_size, 4);
  assert_false(is_kept(one));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(a_policy_is_compiled_once, forget),
    cmocka_unit_test_setup(another_text_finds_nothing, forget),
    cmocka_unit_test_setup(a_damaged_image_is_not_used, forget),
    cmocka_unit_test_setup(an_image_that_others_can_write_is_not_used, forget),
    cmocka_unit_test_setup(an_image_older_than_the_command_is_not_used, forget),
    cmocka_unit_test_setup(a_policy_that_asks_about_the_machine_is_compiled_each_time, forget),
    cmocka_unit_test_setup(a_large_image_is_not_kept, forget),
    cmocka_unit_test_setup(nothing_is_kept_where_the_user_wants_no_folder, forget),
    cmocka_unit_test_setup(an_image_is_not_written_through_a_link, forget),
  };
  return cmocka_run_group_tests(tests, make_files, remove_folder);
}
