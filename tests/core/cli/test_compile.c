/* test_compile.c - the image of a policy in a file: cli/compile.h. */
#include "folder.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/stat.h>

#include "cli/compile.h"
#include "cli/vet.h"
#include "cli/write_file.h"
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
  assert_int_equal(lm_vet(in, of_text, &needs, NULL), LOAM_OK);
  assert_int_equal(lm_vet(out, of_image, &needs, NULL), LOAM_OK);
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
  assert_int_equal(lm_vet(out, vetted, &needs, NULL), LOAM_OK);
}

enum { REFUSED = 77 }; /* the result where the system allows no such namespaces */

static int write_often(void *letter) {
  enum { ROUNDS = 100, SIZE = 100000 };
  static char bytes[SIZE], got[SIZE + 1];
  memset(bytes, *(char *)letter, SIZE);
  for (int i = 0; i < ROUNDS; i++) {
    CHECK_IN_CHILD(!lm_write_file(out, bytes, SIZE));
    FILE *f = fopen(out, "r");
    CHECK_IN_CHILD(f && fread(got, 1, sizeof got, f) == SIZE && !fclose(f));
    CHECK_IN_CHILD(!memcmp(got, got + 1, SIZE - 1));
  }
  return 0;
}

static int write_as_process_one(void *letter) {
  return unshare(CLONE_NEWUSER | CLONE_NEWPID) ? REFUSED : run_in_child(write_often, letter);
}

static void *write_in_a_namespace(void *letter) {
  return (void *)(intptr_t)run_in_child(write_as_process_one, letter);
}

/* In containers, commands that write one file may have one process id. */
static void writers_with_one_process_id_write_whole_files(void **state) {
  (void)state;
  void *result[2];
  pthread_t other = start_thread(write_in_a_namespace, (char[]){ 'b' });
  result[0] = write_in_a_namespace((char[]){ 'a' });
  pthread_join(other, &result[1]);
  unlink(out);
  if ((intptr_t)result[0] == REFUSED) skip();
  assert_null(result[0]);
  assert_null(result[1]);
  assert_int_equal(number_of_files(), 1);
}

static void a_new_image_has_the_access_rights_of_the_old_one(void **state) {
  (void)state;
  lm_compiled made;
  struct stat st;
  assert_int_equal(lm_compile(in, out, &made), LOAM_OK);
  assert_int_equal(chmod(out, 0600), 0);
  assert_int_equal(lm_compile(in, out, &made), LOAM_OK);
  assert_int_equal(stat(out, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0600);
}

static void a_new_image_has_the_owner_and_the_group_of_the_old_one(void **state) {
  (void)state;
  lm_compiled made;
  struct stat st;
  assert_int_equal(lm_compile(in, out, &made), LOAM_OK);
  if (chmod(out, 0640) || chown(out, 12345, 12346)) skip(); /* only root may change the owner */
  assert_int_equal(lm_compile(in, out, &made), LOAM_OK);
  assert_int_equal(stat(out, &st), 0);
  assert_int_equal(st.st_uid, 12345);
  assert_int_equal(st.st_gid, 12346);
  assert_int_equal(st.st_mode & 0777, 0640);
}

static _Atomic bool has_swapped_enough;

/* Lets p.link name p.open and p.secret in turns. */
static void *swap_links(void *unused) {
  char link[80], next[80];
  snprintf(link, sizeof link, "%s/p.link", folder);
  snprintf(next, sizeof next, "%s/p.next", folder);
  for (unsigned i = 0; !has_swapped_enough; i++)
    if (symlink(i & 1 ? "p.open" : "p.secret", next) || rename(next, link)) abort();
  return unused;
}

static unsigned mode_of(const char *name) {
  char path[80];
  struct stat st;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_int_equal(lstat(path, &st), 0);
  return st.st_mode & 0777;
}

static void a_link_that_changes_gives_a_file_no_rights_of_another(void **state) {
  enum { ROUNDS = 500 };
  static const char *const names[] = { "p.open", "p.secret", "p.link" };
  char path[3][80];
  (void)state;
  for (int i = 0; i < 3; i++) snprintf(path[i], sizeof path[i], "%s/%s", folder, names[i]);
  for (int i = 0; i < 2; i++) write_file(names[i], "old");
  assert_int_equal(chmod(path[0], 0666) | chmod(path[1], 0600) | symlink(names[0], path[2]), 0);
  pthread_t swapper = start_thread(swap_links, NULL);
  for (int i = 0; i < ROUNDS; i++) assert_int_equal(lm_write_file(path[2], "new", 3), LOAM_OK);
  has_swapped_enough = true;
  pthread_join(swapper, NULL);
  assert_int_equal(mode_of(names[0]), 0666);
  assert_int_equal(mode_of(names[1]), 0600);
  for (int i = 0; i < 3; i++) unlink(path[i]);
}

static int replace_as_another_group(void *unused) {
  (void)unused;
  struct stat st;
  CHECK_IN_CHILD(!setgroups(0, NULL) && !setgid(12347) && !setuid(12345));
  CHECK_IN_CHILD(!lm_write_file(out, "new", 3));
  CHECK_IN_CHILD(!stat(out, &st) && st.st_uid == 12345 && st.st_gid == 12347);
  CHECK_IN_CHILD((st.st_mode & 0777) == 0604);
  return 0;
}

static void rights_of_a_group_are_given_to_no_other_group(void **state) {
  (void)state;
  write_file("p.image", "old");
  if (chown(out, 12345, 12346) || chown(folder, 12345, 12346)) skip();
  assert_int_equal(chmod(out, 0664), 0);
  int result = run_in_child(replace_as_another_group, NULL);
  assert_int_equal(chown(folder, 0, 0), 0);
  unlink(out);
  assert_int_equal(result, 0);
}

static void an_image_does_not_replace_its_policy(void **state) {
  (void)state;
  lm_compiled made;
  char link[64], vetted[LM_VET_SIZE];
  snprintf(link, sizeof link, "%s/link.lua", folder);
  assert_int_equal(symlink("p.lua", link), 0);
  assert_int_equal(lm_compile(in, in, &made), LOAM_EIO);
  assert_int_equal(lm_compile(in, link, &made), LOAM_EIO);
  assert_non_null(strstr(loam_error(), "link.lua: the image would replace the policy"));
  assert_int_equal(lm_vet(in, vetted, &needs, NULL), LOAM_OK);
  unlink(link);
  assert_int_equal(lm_compile(in, out, &made), LOAM_OK);
  assert_int_equal(lm_compile(out, out, &made), LOAM_OK);
}

static void standard_output_gets_the_image_alone(void **state) {
  (void)state;
  lm_compiled made;
  char path[64];
  struct stat st;
  snprintf(path, sizeof path, "%s/output", folder);
  int kept = dup(STDOUT_FILENO), fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  assert_true(kept >= 0 && dup2(fd, STDOUT_FILENO) >= 0);
  loam_status status = lm_compile(in, NULL, &made);
  assert_true(dup2(kept, STDOUT_FILENO) >= 0);
  assert_int_equal(status, LOAM_OK);
  assert_int_equal(fstat(fd, &st), 0);
  assert_int_equal(st.st_size, made.bytes);
  close(kept);
  close(fd);
  unlink(path);
}

static void a_link_is_followed(void **state) {
  (void)state;
  lm_compiled made;
  char link[64];
  struct stat st;
  snprintf(link, sizeof link, "%s/link", folder);
  assert_int_equal(lm_compile(in, out, &made), LOAM_OK);
  assert_int_equal(symlink("p.image", link), 0);
  assert_int_equal(lm_compile(in, link, &made), LOAM_OK);
  assert_int_equal(lstat(link, &st), 0);
  assert_true(S_ISLNK(st.st_mode));
  assert_int_equal(number_of_files(), 3);
  unlink(link);
}

static void a_pipe_gets_the_image_and_stays_a_pipe(void **state) {
  (void)state;
  lm_compiled made;
  char pipe[64], begin[8];
  struct stat st;
  snprintf(pipe, sizeof pipe, "%s/pipe", folder);
  assert_int_equal(mkfifo(pipe, 0600), 0);
  int fd = open(pipe, O_RDWR | O_CLOEXEC);
  assert_true(fd >= 0);
  assert_int_equal(lm_compile(in, pipe, &made), LOAM_OK);
  assert_int_equal(lstat(pipe, &st), 0);
  assert_true(S_ISFIFO(st.st_mode));
  assert_int_equal(read(fd, begin, sizeof begin), sizeof begin);
  close(fd);
  unlink(pipe);
  assert_int_equal(lm_compile(in, "/dev/full", &made), LOAM_EIO);
  assert_non_null(strstr(loam_error(), "/dev/full: No space left on device"));
}

static void a_file_can_be_tried_before_it_is_written(void **state) {
  (void)state;
  char path[80];
  struct stat st;
  write_file("p.image", "old");
  assert_int_equal(lm_write_file_try(out), LOAM_OK);
  assert_int_equal(stat(out, &st), 0);
  assert_int_equal(st.st_size, 3);
  unlink(out);
  assert_int_equal(lm_write_file_try(out), LOAM_OK);
  assert_int_equal(stat(out, &st), -1);
  assert_int_equal(lm_write_file_try("/dev/null"), LOAM_OK);
  snprintf(path, sizeof path, "%s/none/p.image", folder);
  assert_int_equal(lm_write_file_try(path), LOAM_EIO);
  assert_non_null(strstr(loam_error(), "none/p.image: No such file or directory"));
  assert_int_equal(lm_write_file_try(folder), LOAM_EIO);
  assert_non_null(strstr(loam_error(), ": Is a directory"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_image_of_a_policy_is_written),
    cmocka_unit_test(an_image_can_be_compiled_and_vetted_as_its_text_can),
    cmocka_unit_test(a_failure_leaves_the_old_image),
    cmocka_unit_test(writers_with_one_process_id_write_whole_files),
    cmocka_unit_test(a_new_image_has_the_access_rights_of_the_old_one),
    cmocka_unit_test(a_new_image_has_the_owner_and_the_group_of_the_old_one),
    cmocka_unit_test(a_link_that_changes_gives_a_file_no_rights_of_another),
    cmocka_unit_test(rights_of_a_group_are_given_to_no_other_group),
    cmocka_unit_test(an_image_does_not_replace_its_policy),
    cmocka_unit_test(standard_output_gets_the_image_alone),
    cmocka_unit_test(a_link_is_followed),
    cmocka_unit_test(a_pipe_gets_the_image_and_stays_a_pipe),
    cmocka_unit_test(a_file_can_be_tried_before_it_is_written),
  };
  return cmocka_run_group_tests(tests, make_files, remove_folder);
}
