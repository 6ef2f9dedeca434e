/* test_backing.c - pools whose memory is backed by a file. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "engine_fixture.h"
#include "heap/pools.h"
#include "heap/sweep.h"
#include "heap/tcache_slow.h"
#include "os/sys_file.h"

static const char dir[] = "/var/tmp";

static lm_strategy *shared(const char *name) {
  return intern((lm_desc){ .kind = LM_KIND_SHARED }, name);
}

static lm_strategy *file_in(const char *name, const char *where) {
  lm_desc desc = { .kind = LM_KIND_FILE };
  snprintf(desc.dir, sizeof desc.dir, "%s", where);
  return intern(desc, name);
}

static lm_strategy *file(const char *name) { return file_in(name, dir); }

static lm_backing *backing_of(const lm_strategy *s) { return &lm_pool_of(s)->backing; }

/* Returns the bytes of memory or disk that the file of a strategy uses. */
static size_t file_bytes(const lm_strategy *s) {
  struct stat st;
  assert_int_equal(fstat(backing_of(s)->file.fd, &st), 0);
  return (size_t)st.st_blocks * 512;
}

static bool is_all(const char *p, char byte, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (p[i] != byte) return false;
  return true;
}

static const size_t sizes[] = { 1, 100, 5000, 40000, 70000, 3 << 20 };

static void serves_every_size(lm_strategy *s, const char *kind) {
  char *p[LM_COUNT(sizes)];
  CHAIN(s);
  for (int round = 0; round < 3; round++) {
    for (size_t i = 0; i < LM_COUNT(sizes); i++) {
      p[i] = alloc(site, sizes[i], 16, true);
      assert_non_null(p[i]);
      assert_true(is_all(p[i], 0, sizes[i]));
      memset(p[i], 5, sizes[i]);
      assert_string_equal(owner(p[i]).kind, kind);
      assert_ptr_equal(owner(p[i] + sizes[i] - 1).base, p[i]);
    }
    for (size_t i = 0; i < LM_COUNT(sizes); i++) put(p[i]);
    assert_true(lm_pool_is_valid());
    if (round) lm_sweep_trim();
  }
}

static void shared_memory_serves_every_size(void **state) {
  (void)state;
  serves_every_size(shared("every"), "shared");
}

static void files_serve_every_size(void **state) {
  (void)state;
  serves_every_size(file("every"), "file");
}

/* A process that gets a shared block sees whole pages. So no page may contain parts of two
 * blocks. */
static void no_two_blocks_of_shared_memory_have_a_page_in_common(void **state) {
  (void)state;
  CHAIN(shared("alone"));
  char *p = get(10), *q = get(10);
  assert_int_equal((uintptr_t)p % LM_SLOT | (uintptr_t)q % LM_SLOT, 0);
  put(p);
  put(q);
}

static void memory_and_disk_go_back(void **state) {
  (void)state;
  lm_strategy *kinds[] = { shared("back"), file("back") };
  for (size_t i = 0; i < LM_COUNT(kinds); i++) {
    CHAIN(kinds[i]);
    char *p = get(8 << 20);
    memset(p, 1, 8 << 20);
    assert_true(file_bytes(kinds[i]) >= 8 << 20);
    put(p);
    lm_sweep_trim();
    assert_int_equal(file_bytes(kinds[i]), 0);
  }
}

static void a_file_has_its_room_before_it_is_touched(void **state) {
  (void)state;
  lm_strategy *s = file("room");
  CHAIN(s);
  char *p = get(4 << 20);
  assert_true(file_bytes(s) >= 4 << 20);
  put(p);
}

static void a_file_has_no_name(void **state) {
  (void)state;
  struct stat st;
  lm_strategy *s = file("nameless");
  CHAIN(s);
  char *p = get(100);
  assert_int_equal(fstat(backing_of(s)->file.fd, &st), 0);
  assert_int_equal(st.st_nlink, 0);
  put(p);
}

static void a_limit_holds(void **state) {
  (void)state;
  lm_desc desc = { .kind = LM_KIND_SHARED, .limit = 1 << 20 };
  lm_strategy *s = intern(desc, "limited");
  CHAIN(s);
  char *p = get(1 << 19);
  assert_null(get(1 << 20));
  assert_non_null(strstr(loam_error(), "limit"));
  put(p);
  assert_int_equal(used(s), 0);
}

static void a_block_grows_and_keeps_what_it_holds(void **state) {
  (void)state;
  lm_strategy *kinds[] = { shared("growing"), file("growing") };
  for (size_t i = 0; i < LM_COUNT(kinds); i++) {
    CHAIN(kinds[i]);
    char *p = get(1000), *other;
    size_t size = 1000;
    memset(p, 3, size);
    for (; size < 4 << 20; size *= 3) {
      other = get(70000);
      p = engine_realloc(NULL, p, size * 3);
      assert_non_null(p);
      assert_true(is_all(p, 3, size));
      memset(p, 3, size * 3);
      put(other);
    }
    put(p);
    assert_true(lm_pool_is_valid());
  }
}

/* ---- refusals of the machine */

static int is_past_the_largest_file(void *s) {
  struct rlimit limit = { 1 << 20, 1 << 20 };
  CHAIN(s);
  if (setrlimit(RLIMIT_FSIZE, &limit)) return 1;
  if (get(8 << 20)) return 2;
  if (!strstr(loam_error(), "ulimit -f")) return 3;
  CHAIN((lm_strategy *)s, host("else"));
  char *p = get(8 << 20);
  return p && !strcmp(owner(p).strategy, "else") ? 0 : 4;
}

static void the_largest_size_of_a_file_is_no_signal(void **state) {
  (void)state;
  assert_int_equal(run_in_child(is_past_the_largest_file, file("longest")), 0);
  assert_int_equal(run_in_child(is_past_the_largest_file, shared("longest")), 0);
}

enum { CANNOT_MOUNT = 77 };

/* Mounts an overlay over a tmpfs of 1 MiB. loam does not recognise an overlay as memory. */
static bool mount_small(const char *where, char *disk, size_t size) {
  char options[300], path[4][80];
  static const char *const names[] = { "low", "up", "work", "disk" };
  if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
      mount("none", where, "tmpfs", 0, "size=1m"))
    return false;
  for (int i = 0; i < 4; i++) {
    snprintf(path[i], sizeof path[i], "%s/%s", where, names[i]);
    if (mkdir(path[i], 0700)) return false;
  }
  snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s,workdir=%s", path[0], path[1],
           path[2]);
  snprintf(disk, size, "%s", path[3]);
  return !mount("none", disk, "overlay", 0, options);
}

static int is_on_a_full_disk(void *unused) {
  (void)unused;
  char where[] = "/tmp/loam-test-XXXXXX", disk[80];
  if (!mkdtemp(where)) return CANNOT_MOUNT;
  if (!mount_small(where, disk, sizeof disk)) {
    umount2(where, MNT_DETACH);
    rmdir(where);
    return CANNOT_MOUNT;
  }
  lm_strategy *s = file_in("full", disk), *other = host("else");
  int result = 0;
  CHAIN(s, other);
  for (int i = 0; i < 40; i++) {
    char *p = get(100000);
    if (!p) result = 1;
    else memset(p, 1, 100000);
  }
  if (s->failed == 0 || other->served_late == 0) result = 2;
  CHAIN(s);
  if (get(1 << 20) || !strstr(loam_error(), "no space is left on its filesystem")) result = 3;
  umount2(disk, MNT_DETACH);
  umount2(where, MNT_DETACH);
  rmdir(where);
  return result;
}

static void a_full_disk_is_noticed_when_a_block_is_requested(void **state) {
  (void)state;
  int status = run_in_child(is_on_a_full_disk, NULL);
  if (status == CANNOT_MOUNT) {
    print_message("not tried: no overlayfs over a tmpfs can be mounted here\n");
    skip();
  }
  assert_int_equal(status, 0);
}

static void a_folder_that_is_gone_is_named_in_the_error(void **state) {
  (void)state;
  CHAIN(file_in("gone", "/nowhere/at/all"));
  assert_null(get(100));
  assert_non_null(strstr(loam_error(), "its folder is not there"));
}

/* The policy still loads when a strategy names such a folder, because the strategy has an
 * or_else. */
static void a_folder_in_memory_is_not_used(void **state) {
  (void)state;
  lm_filesystem fs;
  if (lm_sys_filesystem("/dev/shm", &fs) || !fs.is_memory) {
    print_message("not tried: /dev/shm is not in memory here\n");
    skip();
  }
  lm_strategy *s = file_in("shm", "/dev/shm");
  CHAIN(s, host("disk's"));
  char *p = get(100);
  assert_string_equal(owner(p).strategy, "disk's");
  put(p);
  CHAIN(s);
  assert_null(get(100));
  assert_non_null(strstr(loam_error(), "in memory itself"));
}

static void refusals_of_folders_are_words(void **state) {
  (void)state;
  char words[200];
  assert_null(lm_backing_refusal(dir, words, sizeof words));
  assert_non_null(strstr(lm_backing_refusal("/nowhere", words, sizeof words), "No such file"));
  assert_non_null(lm_backing_refusal("/dev/null", words, sizeof words));
  assert_non_null(lm_backing_refusal("/proc", words, sizeof words));
}

/* ---- descriptors that the host closes */

static int survives_closed_descriptors(void *s) {
  CHAIN(s);
  char *p = get(100000), *q;
  memset(p, 7, 100000);
  for (int fd = 3; fd < 4096; fd++) close(fd);
  int theirs = open("/dev/null", O_RDWR);
  while (theirs >= 0 && theirs < 1000) theirs = dup(theirs);
  q = get(20 << 20);
  if (!q) return 1;
  memset(q, 8, 20 << 20);
  if (!is_all(p, 7, 100000)) return 2;
  put(p);
  put(q);
  lm_sweep_trim();
  return lm_pool_is_valid() ? 0 : 3;
}

static void goes_on_when_the_host_closes_every_descriptor(void **state) {
  (void)state;
  assert_int_equal(run_in_child(survives_closed_descriptors, shared("closed")), 0);
  assert_int_equal(run_in_child(survives_closed_descriptors, file("closed")), 0);
}

/* ---- fork */

enum { BLOCKS = 6 };
static char *block[BLOCKS];
static int to_child[2], to_parent[2];

static void tell(int fd) { assert_int_equal(write(fd, "", 1), 1); }
static void hear(int fd) {
  char byte;
  assert_int_equal(read(fd, &byte, 1), 1);
}

#define check(e) \
  if (!(e)) return __LINE__ % 251 + 1

static int live_as_a_child(void *s) {
  (void)s;
  for (int i = 0; i < BLOCKS; i++) check(is_all(block[i], (char)i, sizes[i]));
  for (int i = 0; i < BLOCKS; i++) memset(block[i], 50 + i, sizes[i]);
  tell(to_parent[1]);
  hear(to_child[0]); /* the parent has written, freed, trimmed and allocated again */
  for (int i = 0; i < BLOCKS; i++) check(is_all(block[i], (char)(50 + i), sizes[i]));
  for (int i = 0; i < BLOCKS; i++) put(block[i]);
  check(lm_pool_is_valid());
  lm_sweep_trim();
  char *p[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    p[i] = alloc(site, sizes[i], 16, true);
    check(p[i] && is_all(p[i], 0, sizes[i]));
    memset(p[i], 90, sizes[i]);
  }
  check(lm_pool_is_valid());
  tell(to_parent[1]);
  hear(to_child[0]);
  for (int i = 0; i < BLOCKS; i++) check(is_all(p[i], 90, sizes[i]));
  return 0;
}

static void disturb_no_other(lm_strategy *s) {
  CHAIN(s);
  assert_int_equal(pipe(to_child) | pipe(to_parent), 0);
  for (int i = 0; i < BLOCKS; i++) memset(block[i] = get(sizes[i]), i, sizes[i]);
  pid_t pid = fork();
  if (pid == 0) {
    alarm(PATIENCE_S);
    _exit(live_as_a_child(s));
  }
  hear(to_parent[0]);
  for (int i = 0; i < BLOCKS; i++) assert_true(is_all(block[i], (char)i, sizes[i]));
  for (int i = 0; i < BLOCKS; i++) put(block[i]);
  lm_sweep_trim();
  for (int i = 0; i < BLOCKS; i++) memset(block[i] = get(sizes[i]), 70 + i, sizes[i]);
  tell(to_child[1]);
  hear(to_parent[0]);
  for (int i = 0; i < BLOCKS; i++) assert_true(is_all(block[i], (char)(70 + i), sizes[i]));
  for (int i = 0; i < BLOCKS; i++) put(block[i]);
  tell(to_child[1]);
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_true(lm_pool_is_valid());
  for (int i = 0; i < 2; i++) {
    close(to_child[i]);
    close(to_parent[i]);
  }
}

static void parent_and_child_do_not_disturb_each_other_in_shared_memory(void **state) {
  (void)state;
  disturb_no_other(shared("family"));
}

static void parent_and_child_do_not_disturb_each_other_in_a_file(void **state) {
  (void)state;
  disturb_no_other(file("family"));
}

/* A program that becomes a daemon closes all descriptors and forks. */
static int shares_no_store(void *s) {
  CHAIN(s);
  for (int i = 0; i < BLOCKS; i++) memset(block[i] = get(sizes[i]), i, sizes[i]);
  for (int fd = 3; fd < 4096; fd++) close(fd);
  pid_t pid = fork();
  if (!pid) {
    for (int i = 0; i < BLOCKS; i++) check(is_all(block[i], (char)i, sizes[i]));
    for (int i = 0; i < BLOCKS; i++) memset(block[i], 50 + i, sizes[i]);
    for (int i = 0; i < BLOCKS; i++) put(block[i]);
    lm_sweep_trim();
    for (int i = 0; i < BLOCKS; i++) {
      char *p = alloc(site, sizes[i], 16, true);
      check(p && is_all(p, 0, sizes[i]));
    }
    _exit(lm_pool_is_valid() ? 0 : 1);
  }
  int status;
  check(waitpid(pid, &status, 0) == pid && !status);
  for (int i = 0; i < BLOCKS; i++) check(is_all(block[i], (char)i, sizes[i]));
  return 0;
}

static void a_child_without_the_file_has_a_copy(void **state) {
  (void)state;
  assert_int_equal(run_in_child(shares_no_store, shared("daemon")), 0);
  assert_int_equal(run_in_child(shares_no_store, file("daemon")), 0);
}

/* Where no memory of its own is left for a child, the child ends at a store to a block that it has
 * inherited, or gets no memory. It must not write to the memory of its parent. */
static int spares_the_parent(void *s) {
  struct rlimit none = { LM_PAGE, RLIM_INFINITY };
  int status;
  CHAIN(s);
  for (int i = 0; i < BLOCKS; i++) memset(block[i] = get(sizes[i]), i, sizes[i]);
  check(!setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }) && !setrlimit(RLIMIT_DATA, &none));
  for (int i = -1; i < BLOCKS; i++) {
    pid_t pid = fork();
    if (!pid) signal(SIGSEGV, SIG_DFL);
    if (!pid && i >= 0) {
      if (!is_all(block[i], (char)i, sizes[i])) _exit(1);
      memset(block[i], 50, sizes[i]);
      _exit(0);
    }
    for (int j = 0; !pid && j < 1000; j++) {
      char *p = alloc(site, 100, 16, false);
      if (p) memset(p, 60, 100);
    }
    if (!pid) _exit(lm_pool_is_valid() ? 0 : 1);
    check(waitpid(pid, &status, 0) == pid);
    check(!status || (i >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
    for (int j = 0; j < BLOCKS; j++) check(is_all(block[j], (char)j, sizes[j]));
  }
  return 0;
}

static void a_child_that_gets_no_memory_leaves_its_parent_alone(void **state) {
  (void)state;
  skip_if_sanitized(); /* the sanitizer itself needs memory */
  assert_int_equal(run_in_child(spares_the_parent, shared("poor")), 0);
  assert_int_equal(run_in_child(spares_the_parent, file("poor")), 0);
}

static int is_parent_again(void *s) {
  char *own[BLOCKS];
  CHAIN(s);
  for (int i = 0; i < BLOCKS; i++) memset(own[i] = get(sizes[i]), 20 + i, sizes[i]);
  for (int i = 0; i < BLOCKS; i++) *block[i] = (char)(40 + i);
  pid_t pid = fork();
  for (int i = 0; i < BLOCKS; i++) {
    check(*block[i] == 40 + i && is_all(block[i] + 1, (char)i, sizes[i] - 1));
    check(is_all(own[i], (char)(20 + i), sizes[i]));
    if (!pid) memset(block[i], 60, sizes[i]);
    if (!pid) memset(own[i], 60, sizes[i]);
  }
  if (!pid) _exit(0);
  int status;
  check(waitpid(pid, &status, 0) == pid && !status);
  for (int i = 0; i < BLOCKS; i++)
    check(is_all(block[i] + 1, (char)i, sizes[i] - 1) && is_all(own[i], (char)(20 + i), sizes[i]));
  return 0;
}

static void grandchildren_have(lm_strategy *s) {
  CHAIN(s);
  for (int i = 0; i < BLOCKS; i++) memset(block[i] = get(sizes[i]), i, sizes[i]);
  assert_int_equal(run_in_child(is_parent_again, s), 0);
  for (int i = 0; i < BLOCKS; i++) assert_true(is_all(block[i], (char)i, sizes[i]));
  for (int i = 0; i < BLOCKS; i++) put(block[i]);
}

static void a_grandchild_has_what_its_parent_has_inherited(void **state) {
  (void)state;
  grandchildren_have(shared("grand"));
  grandchildren_have(file("grand"));
}

static int has_a_file_of_its_own(void *s) {
  char *p = get(100000);
  check(p);
  return file_bytes(s) ? 0 : 1;
}

static void a_child_allocates_in_a_file_of_its_own(void **state) {
  (void)state;
  lm_strategy *s = file("own");
  CHAIN(s);
  char *p = get(100000);
  size_t before = file_bytes(s);
  assert_int_equal(run_in_child(has_a_file_of_its_own, s), 0);
  assert_int_equal(file_bytes(s), before);
  put(p);
}

static void a_lost_file_without_a_file_breaks_the_law(void **state) {
  (void)state;
  lm_backing b = { 0 };
  lm_backing_init(&b, dir);
  assert_true(lm_backing_is_valid(&b));
  b.lost = true;
  assert_false(lm_backing_is_valid(&b));
  b.lost = false;
  lm_strategy *s = file("law");
  CHAIN(s);
  char *p = get(100000);
  assert_true(lm_backing_is_valid(backing_of(s)));
  put(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(shared_memory_serves_every_size),
    cmocka_unit_test(files_serve_every_size),
    cmocka_unit_test(no_two_blocks_of_shared_memory_have_a_page_in_common),
    cmocka_unit_test(memory_and_disk_go_back),
    cmocka_unit_test(a_file_has_its_room_before_it_is_touched),
    cmocka_unit_test(a_file_has_no_name),
    cmocka_unit_test(a_limit_holds),
    cmocka_unit_test(a_block_grows_and_keeps_what_it_holds),
    cmocka_unit_test(the_largest_size_of_a_file_is_no_signal),
    cmocka_unit_test(a_full_disk_is_noticed_when_a_block_is_requested),
    cmocka_unit_test(a_folder_that_is_gone_is_named_in_the_error),
    cmocka_unit_test(a_folder_in_memory_is_not_used),
    cmocka_unit_test(refusals_of_folders_are_words),
    cmocka_unit_test(goes_on_when_the_host_closes_every_descriptor),
    cmocka_unit_test(parent_and_child_do_not_disturb_each_other_in_shared_memory),
    cmocka_unit_test(parent_and_child_do_not_disturb_each_other_in_a_file),
    cmocka_unit_test(a_child_without_the_file_has_a_copy),
    cmocka_unit_test(a_child_that_gets_no_memory_leaves_its_parent_alone),
    cmocka_unit_test(a_grandchild_has_what_its_parent_has_inherited),
    cmocka_unit_test(a_child_allocates_in_a_file_of_its_own),
    cmocka_unit_test(a_lost_file_without_a_file_breaks_the_law),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}
