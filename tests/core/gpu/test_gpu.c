/* test_gpu.c - gpu.h on the stand-in for a driver: how loam finds the driver, its operations,
 * contexts and forks. */
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu/gpu.h"
#include "gpu/gpu_cuda.h"
#include "names.h"
#include "os/error.h"
#include "standin.h"

enum { MIB = 1 << 20 };

static const lm_gpu_ops *gpu;

static void must(CUresult result) { assert_int_equal(result, CUDA_SUCCESS); }

#define good(call) assert_int_equal((call), LM_GPU_OK)

static void assert_words(const char *words) {
  if (!strstr(loam_error(), words)) fail_msg("\"%s\" has no \"%s\"", loam_error(), words);
}

/* Starts with two devices and no current context. */
static int start(void **state) {
  (void)state;
  gpu = lm_gpu();
  return gpu ? 0 : -1;
}

static int end(void **state) {
  (void)state;
  CUcontext left;
  while (cuCtxPopCurrent_v2(&left) == CUDA_SUCCESS) {
  }
  for (int device = 0; device < 2; device++) must(cuDevicePrimaryCtxReset_v2(device));
  if (standin_violations()) print_message("%s\n", standin_violation());
  return (int)standin_violations();
}

static CUcontext make_current(int device) {
  CUcontext context;
  must(cuDevicePrimaryCtxRetain(&context, device));
  must(cuCtxSetCurrent(context));
  return context;
}

static CUcontext current(void) {
  CUcontext context;
  must(cuCtxGetCurrent(&context));
  return context;
}

/* ---- Finding the driver ---- */

/* Runs this program again with `environment`. That process only prints the driver that it found. */
static void assert_finds(const char *environment, const char *words) {
  char command[512], found[1024];
  snprintf(command, sizeof command, "env %s /proc/%d/exe find 2>&1", environment, (int)getpid());
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  size_t n = fread(found, 1, sizeof found - 1, pipe);
  found[n] = 0;
  pclose(pipe);
  if (!strstr(found, words)) fail_msg("%s\nfound: %s\nnot: %s", environment, found, words);
}

static int find(void) {
  const lm_gpu_machine *found = lm_gpu_found();
  assert_true(lm_gpu_machine_is_valid(found));
  printf("%d devices, driver %d: %s\n", found->count, found->driver, lm_gpu_why());
  return !!lm_gpu() != !!found->count;
}

static void finds_the_driver_and_its_devices(void **state) {
  char text[32];
  lm_gpu_info info;
  (void)state;
  assert_int_equal(lm_gpu_count(), 2);
  assert_string_equal(lm_gpu_count_text(lm_gpu_count(), text, sizeof text), "devices 0-1");
  good(gpu->info(1, &info));
  assert_true(info.has_vmm && info.has_pools && info.has_managed);
  assert_int_equal(info.total, 64 * MIB);
  assert_int_equal(info.node, 1);
  assert_int_equal(info.granularity, 2 * MIB);
  assert_true(strlen(info.name) > 0);
  assert_string_equal((char *)info.uuid, "stand-in 1"); /* the older function names the whole GPU */
  assert_true(lm_gpu_has(1));
  assert_false(lm_gpu_has(2));
  assert_words("device 2: this machine has devices 0-1");
}

static void a_device_that_maps_memory_needs_a_power_of_two(void **state) {
  (void)state;
  lm_gpu_cuda_device d = { .granularity = 3 * LM_MIB };
  assert_true(lm_gpu_cuda_is_valid(&d));
  d.has_vmm = true;
  assert_false(lm_gpu_cuda_is_valid(&d));
  d.granularity = 2 * LM_MIB;
  assert_true(lm_gpu_cuda_is_valid(&d));
}

static void says_why_there_is_no_driver(void **state) {
  (void)state;
  assert_finds("LOAM_CUDA_DRIVER=/nowhere/libcuda.so.1", "there is no driver: /nowhere/libcuda.so");
  assert_finds("LOAM_CUDA_DRIVER=libm.so.6", "libm.so.6 does not tell its version");
  assert_finds("STANDIN_VERSION=11010",
               "is a driver of CUDA 11.1: loam, built with the toolkit of");
  assert_finds("STANDIN_VERSION=11010", "needs 11.2 or newer");
  assert_finds("STANDIN_DEVICES=0", "finds no device");
  assert_finds("STANDIN_INIT=999", "does not start: CUDA_ERROR_UNKNOWN (999)");
  assert_finds("STANDIN_INIT=3", "in a fork of a process that used the GPU it never does");
  assert_finds("STANDIN_VERSION=11040", "2 devices, driver 11040");
  assert_finds("STANDIN_LACKS=vmm,pools", "2 devices");
}

/* ---- Contexts ---- */

static void uses_the_current_context_of_the_device(void **state) {
  CUcontext mine;
  lm_devptr at;
  (void)state;
  must(cuCtxCreate_v2(&mine, 0, 1));
  unsigned long pushes = standin_calls("cuCtxPushCurrent");
  unsigned long retains = standin_calls("cuDevicePrimaryCtxRetain");
  assert_int_equal(gpu->current(), 1);
  good(gpu->alloc(1, 1000, &at));
  assert_int_equal(standin_calls("cuCtxPushCurrent"), pushes);
  assert_int_equal(standin_calls("cuDevicePrimaryCtxRetain"), retains);
  assert_ptr_equal(current(), mine);
  good(gpu->release(1, at));
  must(cuCtxDestroy_v2(mine));
}

static void else_uses_the_primary_context_and_restores_the_current_one(void **state) {
  unsigned long resets = standin_calls("cuDevicePrimaryCtxReset");
  lm_devptr here, there;
  (void)state;
  assert_int_equal(gpu->current(), -1);
  good(gpu->alloc(0, 1000, &here));
  assert_null(current());
  CUcontext mine = make_current(0);
  good(gpu->alloc(1, 1000, &there));
  assert_ptr_equal(current(), mine);
  assert_true(standin_used(0) && standin_used(1));
  must(cuCtxSetCurrent(NULL));
  good(gpu->release(0, here));
  good(gpu->release(1, there));
  assert_int_equal(standin_used(0) + standin_used(1), 0);
  assert_int_equal(standin_calls("cuDevicePrimaryCtxReset"), resets);
}

static void retains_a_primary_context_again_that_the_host_has_reset(void **state) {
  lm_devptr before, at;
  (void)state;
  good(gpu->alloc(0, 1000, &before));
  must(cuDevicePrimaryCtxReset_v2(0));
  assert_int_equal(gpu->release(0, before), LM_GPU_GONE);
  standin_forgive(); /* the stand-in reports that free as misuse */
  good(gpu->alloc(0, 1000, &at));
  good(gpu->release(0, at));
}

/* The stand-in acts like a driver that frees nothing without a current context. */
static void frees_objects_in_any_context(void **state) {
  lm_devptr at, managed;
  lm_gpu_event event;
  void *host;
  (void)state;
  good(gpu->alloc(0, 1000, &at));
  good(gpu->managed_alloc(0, 1000, &managed));
  good(gpu->host_alloc(0, 1000, 0, &host));
  good(gpu->event_create(0, &event));
  standin_fail("cuMemFree", 1, 1, CUDA_ERROR_INVALID_CONTEXT);
  good(gpu->release(0, at));
  standin_fail("cuMemFree", 1, 1, CUDA_ERROR_INVALID_CONTEXT);
  good(gpu->release(0, managed));
  standin_fail("cuMemFreeHost", 1, 1, CUDA_ERROR_INVALID_CONTEXT);
  good(gpu->host_free(host));
  standin_fail("cuEventDestroy", 1, 1, CUDA_ERROR_INVALID_CONTEXT);
  good(gpu->event_destroy(event));
  standin_fail(NULL, 0, 0, CUDA_SUCCESS);
  assert_null(current());
  assert_int_equal(standin_blocks(), 0);
}

static void distinguishes_memory_that_ended_with_a_context_from_a_failure(void **state) {
  CUcontext mine;
  lm_devptr at;
  lm_gpu_event event;
  (void)state;
  must(cuCtxCreate_v2(&mine, 0, 0));
  good(gpu->alloc(0, 1000, &at));
  good(gpu->event_create(0, &event));
  must(cuCtxDestroy_v2(mine));
  assert_int_equal(gpu->release(0, at), LM_GPU_GONE);
  assert_int_equal(gpu->event_destroy(event), LM_GPU_GONE);
  standin_forgive();
}

static void recognizes_a_sticky_error(void **state) {
  lm_devptr at;
  (void)state;
  make_current(0);
  standin_break(0, CUDA_ERROR_ILLEGAL_ADDRESS);
  assert_int_equal(gpu->alloc(0, 1000, &at), LM_GPU_BROKEN);
  assert_words("device 0: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  assert_int_equal(gpu->synchronize(0), LM_GPU_BROKEN);
  good(gpu->alloc(1, 1000, &at));
  good(gpu->release(1, at));
}

static void refuses_a_device_that_is_not_there(void **state) {
  size_t free, total;
  lm_devptr at;
  (void)state;
  assert_int_equal(gpu->alloc(2, 1000, &at), LM_GPU_FAILED);
  assert_words("device 2: this machine has devices 0-1");
  assert_int_equal(gpu->memory(-1, &free, &total), LM_GPU_FAILED);
}

/* ---- Operations ---- */

/* Calls each operation once, in an order in which all can succeed. Keeps the words of the first
 * failure, and frees everything that it made. */
typedef struct walk {
  int ok, failed;
} walk;

static bool counts(walk *w, lm_gpu_result result) {
  if (result == LM_GPU_OK || result == LM_GPU_BUSY) w->ok++;
  else w->failed++;
  return result == LM_GPU_OK;
}

static void walk_memory(walk *w) {
  size_t free, total;
  lm_devptr at, there;
  void *host;
  counts(w, gpu->memory(0, &free, &total));
  if (counts(w, gpu->alloc(0, 4096, &at))) {
    counts(w, gpu->fill(0, at, 7, 4096, NULL));
    counts(w, gpu->synchronize(0));
    counts(w, gpu->release(0, at));
  }
  if (counts(w, gpu->managed_alloc(0, 4096, &at))) {
    counts(w, gpu->managed_prefer(at, 4096, -1));
    counts(w, gpu->managed_prefer(at, 4096, 1));
    counts(w, gpu->release(0, at));
  }
  if (counts(w, gpu->host_alloc(0, 4096, LM_GPU_MAPPED | LM_GPU_PORTABLE, &host))) {
    counts(w, gpu->host_address(0, host, &there));
    counts(w, gpu->host_free(host));
  }
}

static void walk_order(walk *w) {
  lm_gpu_event event;
  lm_devptr at;
  if (counts(w, gpu->event_create(0, &event))) {
    counts(w, gpu->event_record(event, 0, NULL));
    counts(w, gpu->stream_wait(0, NULL, event));
    counts(w, gpu->event_query(event));
    counts(w, gpu->event_wait(event));
    counts(w, gpu->stream_query(0, NULL));
    counts(w, gpu->event_destroy(event));
  }
  if (counts(w, gpu->pool_alloc(0, 4096, 1 << 20, NULL, &at)))
    counts(w, gpu->pool_free(0, at, NULL));
  counts(w, gpu->synchronize(0));
  counts(w, gpu->pool_trim(0, 0));
}

static void walk_ranges(walk *w) {
  uint64_t handle;
  lm_devptr at;
  if (!counts(w, gpu->reserve(0, 4 * MIB, &at))) return;
  if (counts(w, gpu->map(0, at + 2 * MIB, 2 * MIB, &handle))) {
    counts(w, gpu->fill(0, at + 2 * MIB, 7, 4096, NULL));
    counts(w, gpu->synchronize(0));
    if (!counts(w, gpu->unmap(at + 2 * MIB, 2 * MIB, handle))) return;
  }
  counts(w, gpu->unreserve(at, 4 * MIB));
}

static walk walk_all(void) {
  walk w = { 0, 0 };
  walk_memory(&w);
  walk_order(&w);
  walk_ranges(&w);
  return w;
}

static void has_all_operations_of_a_driver(void **state) {
  (void)state;
  walk w = walk_all();
  assert_int_equal(w.failed, 0);
  assert_true(w.ok > 25);
  assert_null(current());
  assert_int_equal(standin_blocks(), 0);
  assert_int_equal(standin_used(0), 0);
}

/* The nth call of the driver fails. Only an object whose free failed may stay. */
static void sets_error_words_whichever_call_fails(void **state) {
  unsigned nth = 1;
  (void)state;
  walk_all(); /* makes the objects that stay as long as the process */
  for (bool reached = true; reached; nth++) {
    unsigned long before = standin_calls(NULL);
    lm_error(LOAM_OK, "%s", "");
    standin_fail(NULL, nth, 1, CUDA_ERROR_OUT_OF_MEMORY);
    walk w = walk_all();
    standin_fail(NULL, 0, 0, CUDA_SUCCESS);
    reached = standin_calls(NULL) - before >= nth;
    assert_true(w.failed <= 1);
    if (w.failed) assert_words("CUDA_ERROR_OUT_OF_MEMORY (2)");
    assert_null(current());
  }
  assert_true(nth > 50);
}

static void copies_between_devices_and_host(void **state) {
  char to[256] = { 0 };
  lm_devptr a, b;
  (void)state;
  good(gpu->alloc(0, 256, &a));
  good(gpu->alloc(1, 256, &b));
  good(gpu->fill(0, a, 42, 256, NULL));
  good(gpu->synchronize(0));
  good(gpu->copy(1, b, a, 256, NULL));
  good(gpu->copy(1, (uintptr_t)to, b, 256, NULL));
  good(gpu->synchronize(1));
  assert_int_equal(to[255], 42);
  good(gpu->release(0, a));
  good(gpu->release(1, b));
}

static void registers_memory_of_the_host(void **state) {
  lm_devptr there;
  void *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  (void)state;
  good(gpu->host_register(0, at, 8192, LM_GPU_MAPPED));
  good(gpu->host_address(0, at, &there));
  assert_int_equal(gpu->host_register(0, at, 8192, 0), LM_GPU_FAILED);
  assert_words("(712)");
  good(gpu->host_unregister(at));
  munmap(at, 8192);
}

static void makes_a_driver_pool_for_each_threshold(void **state) {
  lm_devptr a, b, c;
  (void)state;
  unsigned long before = standin_calls("cuMemPoolCreate");
  good(gpu->pool_alloc(1, 4096, 12345, NULL, &a));
  good(gpu->pool_alloc(1, 4096, 12345, NULL, &b));
  assert_int_equal(standin_calls("cuMemPoolCreate"), before + 1);
  good(gpu->pool_alloc(1, 4096, 54321, NULL, &c));
  assert_int_equal(standin_calls("cuMemPoolCreate"), before + 2);
  good(gpu->pool_free(1, a, NULL));
  good(gpu->pool_free(1, b, NULL));
  good(gpu->pool_free(1, c, NULL));
  good(gpu->synchronize(1));
  good(gpu->pool_trim(1, 0));
  assert_int_equal(standin_used(1), 0);
}

/* ---- Gauges ---- */

static void knows_the_current_device_of_a_thread(void **state) {
  (void)state;
  assert_int_equal(lm_gpu_current(), -1);
  make_current(1);
  assert_int_equal(lm_gpu_current(), 1);
}

static bool becomes(uint64_t (*read)(unsigned), unsigned device, uint64_t least, uint64_t most) {
  uint64_t now = read(device);
  for (int naps = 0; (now < least || now > most) && be_patient(&naps);) now = read(device);
  return now >= least && now <= most;
}

static void reads_free_memory_in_a_thread_of_its_own(void **state) {
  lm_devptr at;
  (void)state;
  assert_int_equal(lm_gpu_free(1), 0);
  lm_gpu_watch(1);
  assert_true(becomes(lm_gpu_free, 1, 60 * MIB, 64 * MIB));
  good(gpu->alloc(1, 32 * MIB, &at));
  assert_true(becomes(lm_gpu_free, 1, 28 * MIB, 32 * MIB));
  unsigned long calls = standin_calls("cuMemGetInfo");
  enum { READS = 1000000 }; /* the reader's thread may read once a period in this time */
  for (int i = 0; i < READS; i++) lm_gpu_free(1);
  assert_true(standin_calls("cuMemGetInfo") < calls + READS / 10);
  assert_int_equal(lm_gpu_free(0), 0);
  assert_int_equal(lm_gpu_free(1000), 0);
  good(gpu->release(1, at));
}

/* ---- Fork ---- */

static int try_in_child(void *at) {
  size_t free, total;
  lm_devptr got;
  unsigned long calls = standin_calls(NULL);
  if (lm_gpu() || lm_gpu_started() || lm_gpu_count() || lm_gpu_current() != -1) return 1;
  if (!strstr(lm_gpu_why(), "a fork cannot use the GPU")) return 2;
  if (gpu->alloc(0, 4096, &got) != LM_GPU_FORKED) return 3;
  if (!strstr(loam_error(), "a fork cannot use the GPU")) return 4;
  if (gpu->release(0, *(lm_devptr *)at) != LM_GPU_FORKED) return 5;
  if (gpu->memory(0, &free, &total) != LM_GPU_FORKED) return 6;
  lm_gpu_watch(0);
  return standin_calls(NULL) == calls ? 0 : 7;
}

static void a_forked_child_never_calls_the_driver(void **state) {
  lm_devptr at;
  (void)state;
  good(gpu->alloc(0, 4096, &at));
  assert_int_equal(run_in_child(try_in_child, &at), 0);
  good(gpu->release(0, at));
}

static void a_machine_with_a_wrong_count_is_not_valid(void **state) {
  (void)state;
  lm_gpu_machine machine = { .count = 1 };
  assert_false(lm_gpu_machine_is_valid(&machine));
  machine.count = 0;
  assert_true(lm_gpu_machine_is_valid(&machine));
  machine.ops = (const lm_gpu_ops *)(const void *)&machine; /* not NULL, as for any driver */
  assert_false(lm_gpu_machine_is_valid(&machine));
  machine.count = LM_DEVICES_MAX + 1;
  assert_false(lm_gpu_machine_is_valid(&machine));
  machine.count = LM_DEVICES_MAX;
  assert_true(lm_gpu_machine_is_valid(&machine));
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(finds_the_driver_and_its_devices, start, end),
    cmocka_unit_test_setup_teardown(a_device_that_maps_memory_needs_a_power_of_two, start, end),
    cmocka_unit_test_setup_teardown(says_why_there_is_no_driver, start, end),
    cmocka_unit_test_setup_teardown(uses_the_current_context_of_the_device, start, end),
    cmocka_unit_test_setup_teardown(else_uses_the_primary_context_and_restores_the_current_one,
                                    start, end),
    cmocka_unit_test_setup_teardown(retains_a_primary_context_again_that_the_host_has_reset, start,
                                    end),
    cmocka_unit_test_setup_teardown(frees_objects_in_any_context, start, end),
    cmocka_unit_test_setup_teardown(distinguishes_memory_that_ended_with_a_context_from_a_failure,
                                    start, end),
    cmocka_unit_test_setup_teardown(recognizes_a_sticky_error, start, end),
    cmocka_unit_test_setup_teardown(refuses_a_device_that_is_not_there, start, end),
    cmocka_unit_test_setup_teardown(has_all_operations_of_a_driver, start, end),
    cmocka_unit_test_setup_teardown(copies_between_devices_and_host, start, end),
    cmocka_unit_test_setup_teardown(registers_memory_of_the_host, start, end),
    cmocka_unit_test_setup_teardown(makes_a_driver_pool_for_each_threshold, start, end),
    cmocka_unit_test_setup_teardown(knows_the_current_device_of_a_thread, start, end),
    cmocka_unit_test_setup_teardown(reads_free_memory_in_a_thread_of_its_own, start, end),
    cmocka_unit_test_setup_teardown(a_forked_child_never_calls_the_driver, start, end),
    cmocka_unit_test_setup_teardown(sets_error_words_whichever_call_fails, start, end),
    cmocka_unit_test(a_machine_with_a_wrong_count_is_not_valid),
  };
  setenv("STANDIN_DEVICES", "2", 0);
  setenv("STANDIN_MEMORY", "64M", 0);
  setenv("STANDIN_NODES", "0,1", 0);
  if (argc > 1 && !strcmp(argv[1], "find")) return find();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
