/* test_device_fork.c - a fork does not wait for driver calls of other threads, nor for threads that
 * wait for such a call: long locks (os/lock.h). Runs on the stand-in for a driver. */
#include "child_tests.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device_pool.h"
#include "device/manager.h"
#include "device/pinned.h"
#include "os/sys.h"

static _Atomic bool is_in_driver, may_end;

/* A call of the driver that lasts until the fork is over, or for 4 seconds. */
static void last_long(void *ctx) {
  (void)ctx;
  is_in_driver = true;
  for (int i = 0; i < 4000 && !may_end; i++) lm_sys_sleep(1000000);
}

static void load(const char *strategy) {
  char text[256];
  snprintf(text, sizeof text,
           "local s = %s return loam.policy { pick = function() return s end }\n", strategy);
  setenv("LOAM_CONTROL", "0", 1);
  ok(loam_policy_load_text("test", text));
}

static void *grow(void *unused) {
  loam_device_free(loam_device_alloc(NULL, 100 * MIB, NULL), NULL);
  return unused;
}

static void *trim(void *unused) {
  (void)loam_device_trim(-1);
  return unused;
}

static void *pin(void *unused) {
  loam_free(loam_pinned_alloc(NULL, 100, 0));
  return unused;
}

static void *start(void *unused) {
  want(loam_device_count() == 1);
  return unused;
}

/* The child has no driver, but it can allocate and free host memory. */
static void be_a_child(void) {
  alarm(10); /* ends a child that waits for a lock which no thread drops */
  loam_free(loam_malloc(NULL, 100));
  loam_free(loam_malloc(NULL, 10 * MIB));
  want(!loam_device_alloc(NULL, MIB, NULL) && says("a fork cannot use the GPU"));
  want(!loam_pinned_alloc(NULL, 100, 0));
  (void)loam_device_trim(-1);
  want(lm_device_pool_is_valid());
  _exit(0);
}

/* Forks while one thread is in the driver, and another thread waits for the lock
 * which that thread holds. */
static void fork_during(const char *call, void *(*first)(void *), void *(*other)(void *)) {
  int status;
  pthread_t in_driver, waiting;
  is_in_driver = may_end = false;
  standin_call_before(call, last_long, NULL);
  want(!pthread_create(&in_driver, NULL, first, NULL));
  for (int i = 0; i < 2000 && !is_in_driver; i++) lm_sys_sleep(1000000);
  want(is_in_driver);
  want(!pthread_create(&waiting, NULL, other, NULL));
  lm_sys_sleep(20000000);
  int64_t begun = lm_sys_clock_ns();
  pid_t child = fork();
  if (!child) be_a_child();
  want(lm_sys_clock_ns() - begun < 1000000000);
  may_end = true;
  want(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  pthread_join(in_driver, NULL);
  pthread_join(waiting, NULL);
  (void)loam_device_trim(-1);
  want(lm_device_pool_is_valid() && lm_pinned_is_valid());
}

TEST(a_fork_does_not_wait_for_the_start_of_the_driver) { fork_during("cuInit", start, start); }

TEST(a_fork_does_not_wait_for_a_pool_that_grows) {
  load("loam.device {}");
  grow(NULL);
  trim(NULL);
  fork_during("cuMemCreate", grow, grow);
  grow(NULL);
  fork_during("cuMemUnmap", trim, grow);
}

TEST(a_fork_does_not_wait_for_a_pool_that_is_trimmed) {
  load("loam.device {}");
  grow(NULL);
  fork_during("cuCtxSynchronize", trim, trim);
}

TEST(a_fork_does_not_wait_for_memory_to_be_pinned) {
  load("loam.pinned {}");
  pin(NULL);
  trim(NULL);
  fork_during("cuMemHostRegister", pin, pin);
  pin(NULL);
  fork_during("cuMemHostUnregister", trim, pin);
}

/* ---- Pins, handles of other processes, and memory that sleeps */

static void *pin_existing(void *unused) {
  static char memory[8192] __attribute__((aligned(4096)));
  ok(loam_pin(memory, sizeof memory, 0));
  ok(loam_unpin(memory));
  return unused;
}

TEST(a_fork_does_not_wait_for_existing_memory_to_be_pinned) {
  pin_existing(NULL);
  fork_during("cuMemHostRegister", pin_existing, pin_existing);
  fork_during("cuMemHostUnregister", pin_existing, pin_existing);
}

/* No process has made this handle, so it cannot be opened. */
static void *open_handle(void *unused) {
  loam_ipc handle = { .handle = "handle", .size = MIB, .pid = 1 };
  void *there;
  want(loam_ipc_open(&handle, 0, &there) != LOAM_OK);
  return unused;
}

TEST(a_fork_does_not_wait_for_memory_to_be_opened) {
  open_handle(NULL);
  fork_during("cuIpcOpenMemHandle", open_handle, open_handle);
}

static void *put_to_sleep(void *unused) {
  ok(loam_sleep(NULL, NULL, NULL));
  ok(loam_wake(NULL, NULL));
  return unused;
}

TEST(a_fork_does_not_wait_for_memory_that_falls_asleep) {
  load("loam.device { pool = 'sleep' }");
  void *block = loam_device_alloc(NULL, MIB, NULL);
  want(block);
  fork_during("cuMemUnmap", put_to_sleep, put_to_sleep);
  loam_device_free(block, NULL);
}

/* ---- The manager */

static void *ask_manager(void *delay_ns) {
  lm_sys_sleep(*(int64_t *)delay_ns);
  want(!lm_manager(0) && says("LOAM_MANAGER: "));
  return NULL;
}

/* The library is a FIFO. The loader waits in open(2) until this thread opens the FIFO for writing.
 * The loader is locked during that time, so this thread starts the other threads before. */
TEST(a_fork_does_not_wait_for_a_manager_that_is_loaded) {
  int status;
  pthread_t loading, waiting;
  int64_t now = 0, later = 50000000;
  char path[] = "/tmp/loam-fork-XXXXXX", fifo[sizeof path + 8];
  want(mkdtemp(path));
  snprintf(fifo, sizeof fifo, "%s/fifo", path);
  want(!mkfifo(fifo, 0600) && !setenv("LOAM_MANAGER", fifo, 1));
  want(loam_device_count() == 1);
  want(!pthread_create(&waiting, NULL, ask_manager, &later));
  want(!pthread_create(&loading, NULL, ask_manager, &now));
  lm_sys_sleep(100000000);
  int64_t begun = lm_sys_clock_ns();
  pid_t child = fork();
  if (!child) be_a_child();
  want(lm_sys_clock_ns() - begun < 1000000000);
  want(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  int fd = open(fifo, O_WRONLY);
  want(fd >= 0 && !close(fd));
  pthread_join(loading, NULL);
  pthread_join(waiting, NULL);
  want(!unlink(fifo) && !rmdir(path));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_fork_does_not_wait_for_the_start_of_the_driver),
    cmocka_unit_test(a_fork_does_not_wait_for_a_pool_that_grows),
    cmocka_unit_test(a_fork_does_not_wait_for_a_pool_that_is_trimmed),
    cmocka_unit_test(a_fork_does_not_wait_for_memory_to_be_pinned),
    cmocka_unit_test(a_fork_does_not_wait_for_existing_memory_to_be_pinned),
    cmocka_unit_test(a_fork_does_not_wait_for_memory_to_be_opened),
    cmocka_unit_test(a_fork_does_not_wait_for_memory_that_falls_asleep),
    cmocka_unit_test(a_fork_does_not_wait_for_a_manager_that_is_loaded),
  };
  setenv("STANDIN_LOG", "/dev/null", 1);
  return cmocka_run_group_tests_name("device_fork", tests, NULL, NULL);
}
