/* test_no_host_memory.c - memory of devices, pins and sleep while the host has no memory at all for
 * what loam has to note. */
#include <stdlib.h>

#include "api/pin.h"
#include "child_tests.h"
#include "os/sys.h"
#include "pages/metadata.h"

enum { SIZE = 64 << 10, PAGE = 4096, MOST = 1 << 20 };

/* A request until there is no more memory: returns NULL then. */
typedef void *request(void);

static void begin(const char *strategy) {
  char text[200];
  CUcontext context;
  snprintf(text, sizeof text, "local d = %s return loam.policy { pick = function() return d end }",
           strategy);
  ok(loam_policy_load_text("test", text));
  want(loam_device_count() == 1);
  want(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

static void *of_device(void) { return loam_device_alloc(NULL, SIZE, NULL); }
static void *managed(void) { return loam_managed_alloc(NULL, SIZE); }
static void *pinned(void) { return loam_pinned_alloc(NULL, SIZE, 0); }
static void *small_pinned(void) { return loam_pinned_alloc(NULL, PAGE, 0); }

/* Takes the memory that loam has left for what it notes, but for pieces smaller than `least`. */
static void use_up(size_t least) {
  lm_sys_refuse_from(1);
  for (size_t size = PAGE; size >= least; size /= 2)
    while (lm_metadata_alloc(size)) continue;
}

/* Allocates while the system refuses all memory, until a request fails. Then frees all, and looks
 * whether all is as before. */
static void run_out(const char *strategy, request *take) {
  static void *block[MOST];
  size_t n = 0;
  begin(strategy);
  loam_free(take());
  lm_sys_refuse_from(1);
  if (THREAD_SANITIZED) use_up(PAGE); /* else this takes two minutes */
  while (n < MOST && (block[n] = take())) n++;
  want(n < MOST && *loam_error());
  (void)loam_sleep(NULL, "discard", NULL);
  (void)loam_wake(NULL, NULL);
  while (n) loam_free(block[--n]);
  (void)loam_device_trim(-1);
  lm_sys_refuse_from(0);
  /* For some milliseconds after a refusal, pinned.c refuses requests without asking the driver. */
  for (int tries = 0; !(block[0] = take()) && tries < 100; tries++) lm_sys_sleep(10000000);
  want(loam_owns(block[0]));
  loam_free(block[0]);
  (void)loam_device_trim(-1);
  want(standin_blocks() == 0 && standin_used(0) == 0);
}

TEST(memory_in_pieces_of_its_own) { run_out("loam.device { pool = 'none' }", of_device); }
TEST(memory_of_the_drivers_pool) { run_out("loam.device { pool = 'driver' }", of_device); }
TEST(memory_in_chunks) { run_out("loam.device { pool = 'chunks' }", of_device); }
TEST(memory_that_is_mapped) { run_out("loam.device { pool = 'cache' }", of_device); }
TEST(memory_that_can_sleep) { run_out("loam.device { pool = 'sleep' }", of_device); }
TEST(managed_memory) { run_out("loam.managed {}", managed); }
TEST(pinned_memory) { run_out("loam.pinned {}", pinned); }
TEST(small_pinned_memory) { run_out("loam.pinned {}", small_pinned); }
TEST(write_combined_memory) { run_out("loam.pinned { write_combined = true }", pinned); }

TEST(pins) {
  static char range[2 * PAGE] __attribute__((aligned(PAGE)));
  begin("loam.pinned {}");
  ok(loam_pin(range, PAGE, 0));
  use_up(16);
  want(loam_pin(range + PAGE, PAGE, 0) == LOAM_ENOMEM &&
       says("no memory for the entry of the pin"));
  ok(loam_pin(range, PAGE, 0)); /* the range is pinned already */
  want(lm_pin_is_valid() && standin_registered() == PAGE);
  ok(loam_unpin(range));
  ok(loam_unpin(range));
  want(standin_registered() == 0);
  lm_sys_refuse_from(0);
  ok(loam_pin(range + PAGE, PAGE, 0));
  ok(loam_unpin(range + PAGE));
}

TEST(memory_that_falls_asleep) {
  begin("loam.device { pool = 'sleep' }");
  void *at = of_device();
  want(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)at, 7, SIZE) == CUDA_SUCCESS);
  use_up(16);
  want(loam_sleep(NULL, "/tmp", NULL) == LOAM_ENOMEM && says("no memory to describe a file"));
  (void)loam_sleep(NULL, NULL, NULL);
  ok(loam_wake(NULL, NULL));
  lm_sys_refuse_from(0);
  char byte = 0;
  want(cuMemcpyDtoH_v2(&byte, (CUdeviceptr)(uintptr_t)at, 1) == CUDA_SUCCESS && byte == 7);
  loam_free(at);
}

/* The host must not reset the device while loam has blocks there. */
TEST(a_reset) {
  begin("loam.device { pool = 'none' }");
  void *at = of_device();
  use_up(16);
  want(loam_device_reset(0) == LOAM_ENOMEM &&
       says("device 0: no memory for a list of its 1 blocks"));
  want(loam_owns(at));
  lm_sys_refuse_from(0);
  ok(loam_device_reset(0));
  want(!loam_owns(at) && standin_blocks() == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(memory_in_pieces_of_its_own),
    cmocka_unit_test(memory_of_the_drivers_pool),
    cmocka_unit_test(memory_in_chunks),
    cmocka_unit_test(memory_that_is_mapped),
    cmocka_unit_test(memory_that_can_sleep),
    cmocka_unit_test(managed_memory),
    cmocka_unit_test(pinned_memory),
    cmocka_unit_test(small_pinned_memory),
    cmocka_unit_test(write_combined_memory),
    cmocka_unit_test(pins),
    cmocka_unit_test(memory_that_falls_asleep),
    cmocka_unit_test(a_reset),
  };
  setenv("STANDIN_MEMORY", "64G", 1);
  setenv("LOAM_CONTROL", "0", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
