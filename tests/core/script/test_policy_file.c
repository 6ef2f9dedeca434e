/* test_policy_file.c - which users may be able to change a policy file that is loaded:
 * policy_file.h. */
#include "folder.h"

#include <sched.h>

#include "os/error.h"
#include "pages/metadata.h"
#include "script/policy_file.h"

enum { STRANGER = 65533, USER = 65534 };

/* Returns the path of a file in the test's folder. The text is valid until the eighth call after
 * this one. */
static const char *in_folder(const char *name) {
  static char path[8][128];
  static int turn;
  char *p = path[turn++ & 7];
  snprintf(p, sizeof path[0], "%s/%s", folder, name);
  return p;
}

static void run(const char *command) {
  char text[512];
  snprintf(text, sizeof text, "cd %s && %s", folder, command);
  if (system(text)) fail_msg("%s", text);
}

static int make_file(void **state) {
  (void)state;
  strcpy(folder, "/tmp/loam-test-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  run("chmod 755 . && mkdir -m 755 in && echo policy > in/p.lua && chmod 644 in/p.lua");
  return 0;
}

static loam_status read_it(const char *name, lm_reading reading) {
  char *text = NULL;
  size_t length;
  loam_status status = lm_policy_file_read(in_folder(name), reading, &text, &length);
  lm_metadata_free(text);
  return status;
}

static void accepts(const char *name) {
  loam_status status = read_it(name, LM_READ_TO_FOLLOW);
  if (status != LOAM_OK) fail_msg("%s: %s", name, loam_error());
}

/* Checks that the file cannot be read to be followed. The error must begin with the path `at`, and
 * contain the mode and the command that corrects it. */
static void refuses(const char *name, const char *at, const char *mode, const char *cure) {
  assert_int_equal(read_it(name, LM_READ_TO_FOLLOW), LOAM_EIO);
  const char *path = in_folder(at);
  bool is_reported = !strncmp(loam_error(), path, strlen(path)) && strstr(loam_error(), mode) &&
                     strstr(loam_error(), cure) && !strchr(loam_error(), '\n');
  if (!is_reported) fail_msg("expected %s, %s and %s in: %s", path, mode, cure, loam_error());
}

static void need_root(void) {
  if (geteuid() == 0) return;
  print_message("not tried: only root can give files away\n");
  skip();
}

/* ---- a followed file */

static void a_file_that_others_can_write_is_not_followed(void **state) {
  (void)state;
  accepts("in/p.lua");
  run("chmod 646 in/p.lua");
  refuses("in/p.lua", "in/p.lua", "mode 0646", "chmod go-w /");
  assert_int_equal(read_it("in/p.lua", LM_READ_TO_INSPECT), LOAM_OK);
  run("chmod go-w in/p.lua");
  accepts("in/p.lua");
  run("chmod 400 in/p.lua");
  accepts("in/p.lua");
}

static void a_folder_that_others_can_write_holds_no_followed_file(void **state) {
  (void)state;
  run("chmod 757 in");
  refuses("in/p.lua", "in: ", "mode 0757", "chmod go-w /");
  run("chmod 1777 in");
  accepts("in/p.lua");
  run("chmod 755 in && chmod 777 .");
  accepts("in/p.lua");
}

/* ---- links */

static void the_folder_of_a_links_target_is_looked_at(void **state) {
  (void)state;
  run("mkdir -m 755 far links && mv in/p.lua far && ln -s ../links/p.lua in/p.lua && "
      "ln -s ../far/p.lua links/p.lua");
  accepts("in/p.lua");
  run("chmod 777 far");
  refuses("in/p.lua", "in/../links/../far: ", "mode 0777", "chmod go-w /");
  run("chmod 755 far && chmod 777 links");
  refuses("in/p.lua", "in/../links: ", "mode 0777", "chmod go-w /");
  run("chmod 755 links && chmod 777 in");
  refuses("in/p.lua", "in: ", "mode 0777", "chmod go-w /");
}

static void a_mounted_config_map_is_followed(void **state) {
  (void)state;
  run("mkdir in/..1 && mv in/p.lua in/..1 && ln -s ..1 in/..data && ln -s ..data/p.lua in/p.lua");
  accepts("in/p.lua");
  run("chmod 777 in/..1");
  refuses("in/p.lua", "in/..data: ", "mode 0777", "chmod go-w /");
}

static void a_folder_that_is_mounted_read_only_is_followed(void **state) {
  (void)state;
  need_root();
  run("chmod 777 in");
  refuses("in/p.lua", "in: ", "mode 0777", "chmod go-w /");
  if (system("unshare -m true 2> /dev/null")) {
    print_message("not tried: mount namespaces are refused\n");
    skip();
  }
  if (unshare(CLONE_NEWNS)) fail_msg("unshare: %s", strerror(errno));
  run("mount --make-rprivate / && mount --bind in in && mount -o remount,bind,ro in");
  accepts("in/p.lua");
  run("umount in");
}

/* ---- owners */

static void a_strangers_file_is_not_followed(void **state) {
  (void)state;
  need_root();
  assert_int_equal(chown(in_folder("in/p.lua"), STRANGER, STRANGER), 0);
  refuses("in/p.lua", "in/p.lua", "user 65533 (mode 0644)", "chown 0 /");
}

static void a_strangers_folder_holds_no_followed_file(void **state) {
  (void)state;
  need_root();
  run("chmod 1777 in");
  assert_int_equal(chown(in_folder("in"), STRANGER, STRANGER), 0);
  refuses("in/p.lua", "in: ", "user 65533 (mode 1777)", "chown 0 /");
}

static void root_loads_no_file_that_others_can_write(void **state) {
  (void)state;
  need_root();
  run("chmod 666 in/p.lua");
  assert_int_equal(read_it("in/p.lua", LM_READ_TO_LOAD), LOAM_EIO);
  assert_non_null(strstr(loam_error(), "chmod go-w"));
  run("chmod 644 in/p.lua && chmod 777 in");
  assert_int_equal(read_it("in/p.lua", LM_READ_TO_LOAD), LOAM_EIO);
  run("chmod 755 in && chown 65533 in/p.lua");
  assert_int_equal(read_it("in/p.lua", LM_READ_TO_LOAD), LOAM_EIO);
  assert_int_equal(read_it("in/p.lua", LM_READ_TO_INSPECT), LOAM_OK);
}

static void root_does_not_keep_what_its_group_can_write(void **state) {
  (void)state;
  need_root();
  run("chmod 664 in/p.lua");
  refuses("in/p.lua", "in/p.lua", "mode 0664", "chmod go-w /");
}

static void a_strangers_link_is_not_followed(void **state) {
  (void)state;
  need_root();
  run("chmod 1777 in && mkdir -m 755 far && mv in/p.lua far && ln -s ../far/p.lua in/p.lua");
  accepts("in/p.lua");
  assert_int_equal(lchown(in_folder("in/p.lua"), STRANGER, STRANGER), 0);
  assert_int_equal(read_it("in/p.lua", LM_READ_TO_FOLLOW), LOAM_EIO);
  /* If fs.protected_symlinks is 1, the kernel refuses the link before loam sees it. */
  if (!strstr(loam_error(), "Permission denied"))
    refuses("in/p.lua", "in/p.lua", "user 65533", "chown -h 0 /");
}

/* ---- a user other than root */

static loam_status as_user(gid_t group, lm_reading reading) {
  assert_int_equal(setegid(group), 0);
  assert_int_equal(seteuid(USER), 0);
  loam_status status = read_it("in/p.lua", reading);
  assert_int_equal(seteuid(0), 0);
  assert_int_equal(setegid(0), 0);
  return status;
}

static void a_user_loads_any_file_and_follows_their_own(void **state) {
  (void)state;
  need_root();
  assert_int_equal(as_user(USER, LM_READ_TO_FOLLOW), LOAM_OK); /* root owns the file */
  assert_int_equal(chown(in_folder("in/p.lua"), USER, USER), 0);
  assert_int_equal(as_user(USER, LM_READ_TO_FOLLOW), LOAM_OK);
  assert_int_equal(chown(in_folder("in/p.lua"), STRANGER, USER), 0);
  assert_int_equal(as_user(USER, LM_READ_TO_FOLLOW), LOAM_EIO);
  assert_int_equal(as_user(USER, LM_READ_TO_LOAD), LOAM_OK);
  run("chmod 666 in/p.lua");
  assert_int_equal(as_user(USER, LM_READ_TO_LOAD), LOAM_OK);
}

static void a_users_private_group_may_write(void **state) {
  (void)state;
  need_root();
  run("chown 65534:65534 in in/p.lua && chmod 775 in && chmod 664 in/p.lua");
  assert_int_equal(as_user(USER, LM_READ_TO_FOLLOW), LOAM_OK);
  assert_int_equal(as_user(STRANGER, LM_READ_TO_FOLLOW),
                   LOAM_EIO); /* the process is not in this group */
  run("chmod 666 in/p.lua");
  assert_int_equal(as_user(USER, LM_READ_TO_FOLLOW), LOAM_EIO);
  run("chown 65534:65533 in/p.lua && chmod 664 in/p.lua");
  assert_int_equal(as_user(USER, LM_READ_TO_FOLLOW), LOAM_EIO);
  assert_int_equal(as_user(STRANGER, LM_READ_TO_FOLLOW), LOAM_EIO); /* a group of several users */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_file, remove_folder)

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(a_file_that_others_can_write_is_not_followed),
    TEST(a_folder_that_others_can_write_holds_no_followed_file),
    TEST(the_folder_of_a_links_target_is_looked_at),
    TEST(a_mounted_config_map_is_followed),
    TEST(a_folder_that_is_mounted_read_only_is_followed),
    TEST(a_strangers_file_is_not_followed),
    TEST(a_strangers_folder_holds_no_followed_file),
    TEST(a_strangers_link_is_not_followed),
    TEST(root_loads_no_file_that_others_can_write),
    TEST(root_does_not_keep_what_its_group_can_write),
    TEST(a_user_loads_any_file_and_follows_their_own),
    TEST(a_users_private_group_may_write),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
