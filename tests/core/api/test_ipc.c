/* test_ipc.c - the IPC entries of loam's manager table (NBEP 7), and memory of another process
 * while the driver or the system refuses calls. */
#include <stdlib.h>

#include "api/ipc.h"
#include "child_tests.h"
#include "os/sys.h"
#include "own_folder.h"

enum { SIZE = 5 * MIB };

static const loam_manager *emm;

static const char CACHE[] = "local d = loam.device { pool = 'cache' }\n"
                            "return loam.policy { pick = function() return d end }\n";

static void begin(const char *policy) {
  emm = loam_manager_get();
  if (policy) ok(loam_policy_load_text("test", policy));
  ok(emm->initialize(emm->ctx, 0));
}

static void make_current(void) {
  CUcontext context;
  want(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

static char byte_at(const char *at) {
  char byte;
  want(cuMemcpyDtoH_v2(&byte, (CUdeviceptr)(uintptr_t)at, 1) == CUDA_SUCCESS);
  return byte;
}

static void *open_handle(const loam_ipc *handle) {
  void *at;
  ok(emm->open_ipc_handle(emm->ctx, 0, handle, &at));
  return at;
}

static void close_handle(void *at) { emm->close_ipc_handle(emm->ctx, 0, at); }

/* ---- Another process: it was forked before its parent started the driver */

/* Runs `receiver` in a child, with a handle of SIZE bytes of this process, which are all 7. */
static void share(int (*receiver)(void *handle)) {
  int there[2], status;
  loam_ipc handle;
  want(!pipe(there));
  pid_t pid = fork();
  if (pid == 0) {
    alarm(PATIENCE_S);
    want(read(there[0], &handle, sizeof handle) == sizeof handle);
    begin(NULL);
    _exit(receiver(&handle) || standin_violations());
  }
  begin(NULL);
  make_current();
  void *at;
  ok(emm->memalloc(emm->ctx, 0, SIZE, &at));
  want(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)at, 7, SIZE) == CUDA_SUCCESS);
  ok(emm->get_ipc_handle(emm->ctx, 0, at, &handle));
  want(loam_ipc_is_plain(&handle) && write(there[1], &handle, sizeof handle) == sizeof handle);
  want(waitpid(pid, &status, 0) == pid && status == 0);
  emm->memfree(emm->ctx, 0, at, SIZE);
}

static int open_twice(void *handle) {
  char *first = open_handle(handle), *second = open_handle(handle);
  want(first == second && lm_ipc_is_valid());
  make_current();
  want(byte_at(first) == 7 && byte_at(first + SIZE - 1) == 7);
  close_handle(first);
  want(byte_at(first) == 7); /* one open is left */
  close_handle(second);
  want(standin_blocks() == 0);
  close_handle(second); /* ignored, like the free of a block that a reset has ended */
  want(loam_ipc_close(second) == LOAM_EBADPTR && lm_ipc_is_valid());
  return 0;
}

TEST(the_table_opens_and_closes_memory_of_another_process) { share(open_twice); }

static int reset_between(void *handle) {
  char *first = open_handle(handle);
  ok(emm->reset(emm->ctx, 0));
  want(standin_blocks() == 0);
  ok(emm->initialize(emm->ctx, 0));
  char *second = open_handle(handle);
  make_current();
  close_handle(first); /* the reset has closed it */
  want(byte_at(second) == 7);
  close_handle(second);
  want(standin_blocks() == 0 && lm_ipc_is_valid());
  return 0;
}

TEST(a_reset_by_the_table_closes_what_the_table_has_opened) { share(reset_between); }

/* Opens, reads a copy and closes again. Returns whether nothing failed. */
static bool use(const loam_ipc *handle) {
  void *at, *copy;
  loam_status status = emm->open_ipc_handle(emm->ctx, 0, handle, &at);
  want(status == LOAM_OK || *loam_error());
  if (status == LOAM_OK) close_handle(at);
  loam_status copied = loam_ipc_open_staged(handle, 0, &copy);
  want(copied == LOAM_OK || *loam_error());
  if (copied == LOAM_OK) loam_device_free(copy, NULL);
  (void)loam_device_trim(-1);
  want(lm_ipc_is_valid());
  return status == LOAM_OK && copied == LOAM_OK;
}

/* The calls that give something back may be refused too: then one block stays. */
static int refuse_driver(void *handle) {
  unsigned failures = 0, nth = 1;
  want(use(handle));
  for (bool is_reached = true; is_reached; nth++) {
    unsigned long calls = standin_calls(NULL);
    unsigned blocks = standin_blocks();
    standin_fail(NULL, nth, 1, CUDA_ERROR_OUT_OF_MEMORY);
    failures += !use(handle);
    standin_fail(NULL, 0, 0, CUDA_SUCCESS);
    is_reached = standin_calls(NULL) - calls >= nth;
    want(use(handle) && standin_blocks() <= blocks + 1);
  }
  want(failures > 3);
  return 0;
}

TEST(nothing_is_lost_whichever_call_of_the_driver_fails) { share(refuse_driver); }

/* Mapped memory goes through the owner's control socket. A process may open its own. */
static void *cache_block(loam_ipc *handle) {
  want(!setenv("LOAM_CONTROL", "1", 1));
  begin(CACHE);
  make_current();
  void *at = loam_device_alloc(NULL, SIZE, NULL);
  ok(emm->get_ipc_handle(emm->ctx, 0, at, handle));
  want(!loam_ipc_is_plain(handle));
  return at;
}

TEST(mapped_memory_is_opened_whole_or_not_at_all) {
  loam_ipc handle;
  void *at = cache_block(&handle), *there;
  static const char *const calls[] = { "cuMemAddressReserve", "cuMemImportFromShareableHandle",
                                       "cuMemMap", "cuMemSetAccess",
                                       "cuMemExportToShareableHandle" };
  unsigned blocks = standin_blocks(), handles = standin_handles();
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    standin_fail(calls[i], 1, 1, CUDA_ERROR_OUT_OF_MEMORY);
    want(emm->open_ipc_handle(emm->ctx, 0, &handle, &there) != LOAM_OK);
    want(says("CUDA_ERROR_OUT_OF_MEMORY"));
    standin_fail(NULL, 0, 0, CUDA_SUCCESS);
    want(standin_blocks() == blocks && standin_handles() == handles && lm_ipc_is_valid());
  }
  there = open_handle(&handle);
  close_handle(there);
  want(standin_blocks() == blocks && standin_handles() == handles);
  loam_device_free(at, NULL);
}

TEST(the_table_says_what_it_cannot_share_or_open) {
  loam_ipc handle, wrong = { .pid = 1 };
  void *at, *there = NULL;
  begin(NULL);
  want(emm->get_ipc_handle(emm->ctx, 0, &handle, &handle) == LOAM_EBADPTR);
  for (size_t size = 4096; size <= MIB;
       size *= 256) { /* of a pool of small blocks, and a large one */
    ok(emm->memhostalloc(emm->ctx, 0, size, 0, &at));
    want(emm->get_ipc_handle(emm->ctx, 0, at, &handle) == LOAM_EINVAL);
    want(says("memory of the host, not of a device"));
    emm->memhostfree(emm->ctx, 0, at, size);
  }
  want(emm->open_ipc_handle(emm->ctx, 0, NULL, &there) == LOAM_EINVAL);
  want(emm->open_ipc_handle(emm->ctx, 7, &wrong, &there) == LOAM_EINVAL && says("device 7"));
  want(emm->open_ipc_handle(emm->ctx, 0, &wrong, &there) != LOAM_OK && says("cuIpcOpenMemHandle"));
  want(!there && lm_ipc_is_valid());
  close_handle(&handle);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_table_opens_and_closes_memory_of_another_process),
    cmocka_unit_test(a_reset_by_the_table_closes_what_the_table_has_opened),
    cmocka_unit_test(nothing_is_lost_whichever_call_of_the_driver_fails),
    cmocka_unit_test(mapped_memory_is_opened_whole_or_not_at_all),
    cmocka_unit_test(the_table_says_what_it_cannot_share_or_open),
  };
  setenv("STANDIN_DEVICES", "2", 0);
  setenv("STANDIN_MEMORY", "64M", 0);
  if (!make_own_folder()) return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return !remove_own_folder() || failed;
}
