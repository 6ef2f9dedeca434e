/* test_standin.c - the stand-in for a CUDA driver acts like a driver and reports misuse. */
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "names.h"
#include "standin.h"

enum { MIB = 1 << 20 };

static CUcontext context;

static void must(CUresult result) { assert_int_equal(result, CUDA_SUCCESS); }

static int start(void **state) {
  (void)state;
  standin_reset();
  must(cuInit(0));
  must(cuDevicePrimaryCtxRetain(&context, 0));
  must(cuCtxSetCurrent(context));
  return 0;
}

/* Ends a test. Checks that the stand-in reported only the misuse that the test provoked. */
static int end(void **state) {
  (void)state;
  if (standin_violations()) print_message("%s\n", standin_violation());
  return (int)standin_violations();
}

static void expect_violation(const char *words) {
  assert_int_equal(standin_violations(), 1);
  if (!strstr(standin_violation(), words)) fail_msg("%s", standin_violation());
  standin_forgive();
}

static CUdeviceptr allocate(size_t size) {
  CUdeviceptr at;
  must(cuMemAlloc_v2(&at, size));
  return at;
}

static CUstream make_stream(void) {
  CUstream stream;
  must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

static CUevent record_on(CUstream stream) {
  CUevent event;
  must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  must(cuEventRecord(event, stream));
  return event;
}

/* ---- Memory ---- */

static void aligns_to_256_bytes_and_no_more(void **state) {
  (void)state;
  CUdeviceptr at = allocate(100);
  assert_int_equal(at % 256, 0);
  assert_int_not_equal(at % 512, 0);
  must(cuMemFree_v2(at));
}

static void copies_there_and_back(void **state) {
  (void)state;
  char from[1000], to[1000] = "";
  memset(from, 7, sizeof from);
  CUdeviceptr at = allocate(sizeof from);
  must(cuMemcpyHtoD_v2(at, from, sizeof from));
  must(cuMemcpyDtoH_v2(to, at, sizeof to));
  assert_memory_equal(from, to, sizeof from);
  assert_int_equal(cuMemcpyDtoH_v2(to, at + 1, sizeof to), CUDA_ERROR_INVALID_VALUE);
  expect_violation("not all allocated");
  must(cuMemFree_v2(at));
}

static void has_so_much_memory(void **state) {
  (void)state;
  CUdeviceptr at;
  standin_limit(0, 4 * MIB);
  assert_int_equal(cuMemAlloc_v2(&at, 5 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
  at = allocate(3 * MIB);
  size_t free_bytes, total;
  must(cuMemGetInfo_v2(&free_bytes, &total));
  assert_int_equal(total, 4 * MIB);
  assert_int_equal(free_bytes, MIB);
  must(cuMemFree_v2(at));
  assert_int_equal(standin_used(0), 0);
}

static void reports_wrong_frees(void **state) {
  (void)state;
  CUdeviceptr at = allocate(1000);
  assert_int_equal(cuMemFree_v2(at + 256), CUDA_ERROR_INVALID_VALUE);
  expect_violation("inside a block");
  assert_int_equal(cuMemFreeHost((void *)(uintptr_t)at), CUDA_ERROR_INVALID_VALUE);
  expect_violation("another kind");
  must(cuMemFree_v2(at));
  assert_int_equal(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
  expect_violation("not allocated");
}

static void frees_without_a_context(void **state) {
  (void)state;
  CUdeviceptr at = allocate(1000);
  void *host;
  must(cuMemHostAlloc(&host, 1000, CU_MEMHOSTALLOC_PORTABLE));
  must(cuCtxSetCurrent(NULL));
  CUdeviceptr other;
  assert_int_equal(cuMemAlloc_v2(&other, 1), CUDA_ERROR_INVALID_CONTEXT);
  must(cuMemFree_v2(at));
  must(cuMemFreeHost(host));
  assert_int_equal(standin_blocks(), 0);
}

static void registers_memory_once_and_while_it_is_there(void **state) {
  (void)state;
  void *at = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(cuMemHostRegister_v2(at, MIB, 0));
  assert_int_equal(cuMemHostRegister_v2(at, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  must(cuMemHostUnregister(at));
  assert_int_equal(cuMemHostUnregister(at), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  expect_violation("nothing is registered");
  must(cuMemHostRegister_v2(at, MIB, 0));
  munmap(at, MIB);
  must(cuMemHostUnregister(at));
  expect_violation("unmapped while");
}

static void knows_its_pointers(void **state) {
  (void)state;
  CUdeviceptr at = allocate(1000), base;
  size_t size;
  unsigned type;
  must(cuMemGetAddressRange_v2(&base, &size, at + 999));
  assert_int_equal(base, at);
  assert_int_equal(size, 1000);
  must(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 1));
  assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
  assert_int_equal(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 1000),
                   CUDA_ERROR_INVALID_VALUE);
  must(cuMemFree_v2(at));
}

/* ---- Order ---- */

static void work_waits_while_it_is_held(void **state) {
  (void)state;
  CUdeviceptr at = allocate(100);
  CUstream stream = make_stream();
  standin_hold();
  must(standin_write(stream, at, 5, 100));
  CUevent event = record_on(stream);
  assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  assert_int_not_equal(*(char *)(uintptr_t)at, 5);
  standin_release();
  must(cuEventQuery(event));
  assert_int_equal(*(char *)(uintptr_t)at, 5);
  must(cuEventDestroy_v2(event));
  must(cuStreamDestroy_v2(stream));
  must(cuMemFree_v2(at));
}

static void work_is_late_by_so_many_calls(void **state) {
  (void)state;
  CUdeviceptr at = allocate(100);
  CUstream stream = make_stream();
  standin_delay(3);
  must(standin_write(stream, at, 5, 100));
  assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  must(cuStreamQuery(stream));
  must(cuStreamDestroy_v2(stream));
  must(cuMemFree_v2(at));
}

static void a_free_waits_for_pending_work(void **state) {
  (void)state;
  CUdeviceptr at = allocate(100);
  CUstream stream = make_stream();
  standin_hold();
  must(standin_write(stream, at, 5, 100));
  must(cuMemFree_v2(at));
  assert_int_equal(standin_pending(stream), 0);
  assert_int_equal(standin_late_frees(), 1);
}

static void reports_a_free_under_pending_work_if_strict(void **state) {
  (void)state;
  standin_strict(true);
  CUdeviceptr at = allocate(100);
  CUstream stream = make_stream();
  standin_hold();
  must(standin_write(stream, at, 5, 100));
  must(cuMemFree_v2(at));
  expect_violation("pending work uses");
  must(standin_write(stream, allocate(100), 5, 100));
  must(cuStreamSynchronize(stream));
}

static void reports_work_in_no_order(void **state) {
  (void)state;
  CUdeviceptr at = allocate(100);
  CUstream one = make_stream(), other = make_stream();
  must(standin_write(one, at, 1, 100));
  must(standin_write(other, at + 99, 2, 1));
  expect_violation("nothing puts them in order");
  CUevent event = record_on(other);
  must(cuStreamWaitEvent(one, event, 0));
  must(standin_write(one, at, 3, 100));
  must(cuStreamSynchronize(one));
  must(standin_check(other, at, 3, 100));
  must(cuStreamSynchronize(other));
  must(cuMemFree_v2(at));
}

static void runs_work_in_order_of_events(void **state) {
  (void)state;
  CUdeviceptr at = allocate(100);
  CUstream one = make_stream(), other = make_stream();
  standin_hold();
  must(standin_write(one, at, 1, 100));
  must(cuStreamWaitEvent(other, record_on(one), 0));
  must(standin_check(other, at, 1, 100));
  assert_true(standin_step(other));
  assert_int_equal(standin_pending(one), 0);
  must(cuCtxSynchronize());
}

static void the_default_stream_waits_for_the_others(void **state) {
  (void)state;
  CUdeviceptr at = allocate(100);
  CUstream stream;
  must(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  standin_hold();
  must(standin_write(stream, at, 1, 100));
  must(standin_check(NULL, at, 1, 100));
  must(standin_write(stream, at, 2, 100));
  must(cuStreamSynchronize(stream));
  assert_int_equal(standin_pending(NULL), 0);
}

static void reports_handles_that_are_gone(void **state) {
  (void)state;
  CUstream stream = make_stream();
  CUevent event = record_on(stream);
  must(cuEventDestroy_v2(event));
  assert_int_equal(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  expect_violation("after it was destroyed");
  must(cuStreamDestroy_v2(stream));
  assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  expect_violation("after it was destroyed");
}

static void note(void *data) {
  assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_NOT_PERMITTED);
  *(int *)data = 1;
}

static void calls_the_host_in_order(void **state) {
  (void)state;
  int called = 0;
  CUstream stream = make_stream();
  must(cuLaunchHostFunc(stream, note, &called));
  must(cuStreamSynchronize(stream));
  assert_int_equal(called, 1);
}

/* ---- Ranges and pools ---- */

static const CUmemAllocationProp on_device = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                               .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
static const CUmemAccessDesc writable = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
                                          CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

static void maps_memory_to_a_range(void **state) {
  (void)state;
  enum { STEP = 2 * MIB };
  CUdeviceptr at;
  CUmemGenericAllocationHandle piece[2];
  must(cuMemAddressReserve(&at, 4 * STEP, 0, 0, 0));
  for (int i = 0; i < 2; i++) {
    must(cuMemCreate(&piece[i], STEP, &on_device, 0));
    must(cuMemMap(at + (size_t)i * STEP, STEP, 0, piece[i], 0));
  }
  assert_int_equal(standin_write(NULL, at, 1, STEP), CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_violation("not all allocated");
  must(cuMemSetAccess(at, 2 * STEP, &writable, 1));
  must(standin_write(NULL, at, 1, 2 * STEP));
  assert_int_equal(cuMemAddressFree(at, 4 * STEP), CUDA_ERROR_INVALID_VALUE);
  expect_violation("memory is mapped");
  must(cuMemRelease(piece[0]));
  assert_int_equal(standin_used(0), 2 * STEP);
  must(cuMemUnmap(at, 2 * STEP));
  assert_int_equal(standin_used(0), STEP);
  must(cuMemRelease(piece[1]));
  must(cuMemAddressFree(at, 4 * STEP));
  assert_int_equal(standin_used(0), 0);
}

static void reports_a_copy_of_addresses_without_memory(void **state) {
  (void)state;
  CUdeviceptr at;
  char host[100] = "";
  must(cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
  assert_int_equal(cuMemcpyAsync((uintptr_t)host, at, 100, NULL), CUDA_ERROR_INVALID_VALUE);
  expect_violation("where no memory is mapped");
  assert_int_equal(cuMemcpy(at + MIB, (uintptr_t)host, 100), CUDA_ERROR_INVALID_VALUE);
  expect_violation("where no memory is mapped");
  must(cuMemAddressFree(at, 2 * MIB));
}

static void reports_an_unmap_under_pending_work(void **state) {
  (void)state;
  CUdeviceptr at;
  CUmemGenericAllocationHandle piece;
  must(cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
  must(cuMemCreate(&piece, 2 * MIB, &on_device, 0));
  must(cuMemMap(at, 2 * MIB, 0, piece, 0));
  must(cuMemSetAccess(at, 2 * MIB, &writable, 1));
  standin_hold();
  must(standin_write(NULL, at, 1, 100));
  must(cuMemUnmap(at, 2 * MIB));
  expect_violation("pending work uses");
  must(cuMemRelease(piece));
  must(cuMemAddressFree(at, 2 * MIB));
}

static void exports_what_was_made_for_it(void **state) {
  (void)state;
  const CUmemAllocationHandleType by = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemAllocationProp properties = on_device;
  CUmemGenericAllocationHandle piece, again;
  CUdeviceptr at;
  int fd;
  must(cuMemCreate(&piece, 2 * MIB, &properties, 0));
  assert_int_equal(cuMemExportToShareableHandle(&fd, piece, by, 0), CUDA_ERROR_INVALID_VALUE);
  must(cuMemRelease(piece));
  properties.requestedHandleTypes = by;
  must(cuMemCreate(&piece, 2 * MIB, &properties, 0));
  must(cuMemExportToShareableHandle(&fd, piece, by, 0));
  must(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, by));
  close(fd);
  assert_int_equal(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, by),
                   CUDA_ERROR_INVALID_VALUE);
  must(cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
  must(cuMemMap(at, 2 * MIB, 0, piece, 0));
  must(cuMemMap(at + 2 * MIB, 2 * MIB, 0, again, 0));
  must(cuMemSetAccess(at, 4 * MIB, &writable, 1));
  must(cuMemsetD8_v2(at, 7, 2 * MIB));
  must(standin_check(NULL, at + 2 * MIB, 7, 2 * MIB));
  must(cuCtxSynchronize());
  must(cuMemUnmap(at, 4 * MIB));
  must(cuMemRelease(again));
  must(cuMemRelease(piece));
  must(cuMemAddressFree(at, 4 * MIB));
  assert_int_equal(standin_used(0), 0);
}

static void pools_keep_what_their_threshold_says(void **state) {
  (void)state;
  CUmemoryPool pool;
  CUdeviceptr at, again;
  CUstream stream = make_stream();
  must(cuDeviceGetDefaultMemPool(&pool, 0));
  must(cuMemAllocFromPoolAsync(&at, 1000, pool, stream));
  must(cuMemFreeAsync(at, stream));
  must(cuMemAllocFromPoolAsync(&again, 1000, pool, stream));
  assert_int_equal(at, again);
  must(cuMemFreeAsync(again, stream));
  assert_int_equal(cuMemFreeAsync(again, stream), CUDA_ERROR_INVALID_VALUE);
  expect_violation("no live block");
  assert_int_equal(standin_used(0), 1024);
  must(cuStreamSynchronize(stream));
  assert_int_equal(standin_used(0), 0);
  uint64_t threshold = UINT64_MAX;
  must(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  must(cuMemAllocFromPoolAsync(&at, 1000, pool, stream));
  must(cuMemFreeAsync(at, stream));
  must(cuStreamSynchronize(stream));
  assert_int_equal(standin_used(0), 1024);
  must(cuMemPoolTrimTo(pool, 0));
  assert_int_equal(standin_used(0), 0);
}

/* The driver may return the addresses again, and the host may then use them on another stream. */
static void pools_forget_what_they_give_back(void **state) {
  (void)state;
  CUmemoryPool pool;
  CUdeviceptr at;
  CUstream one = make_stream(), other = make_stream();
  must(cuDeviceGetDefaultMemPool(&pool, 0));
  for (int i = 0; i < 8; i++) {
    must(cuMemAllocFromPoolAsync(&at, 1000, pool, i % 2 ? one : other));
    must(cuMemFreeAsync(at, i % 2 ? one : other));
    must(cuMemPoolTrimTo(pool, 0));
  }
  assert_int_equal(standin_violations(), 0);
}

static void pools_reuse_on_another_stream_only_in_order(void **state) {
  (void)state;
  CUdeviceptr at, other;
  CUstream stream = make_stream(), another = make_stream();
  standin_hold();
  must(cuMemAllocAsync(&at, 1000, stream));
  must(standin_write(stream, at, 1, 1000));
  must(cuMemFreeAsync(at, stream));
  must(cuMemAllocAsync(&other, 1000, another));
  assert_int_not_equal(at, other);
  must(cuCtxSynchronize());
}

/* ---- Contexts and faults ---- */

static void a_context_takes_its_memory_with_it(void **state) {
  (void)state;
  CUcontext made;
  must(cuCtxCreate_v2(&made, 0, 0));
  CUdeviceptr at = allocate(1000);
  CUstream stream = make_stream();
  must(cuCtxDestroy_v2(made));
  assert_int_equal(standin_used(0), 0);
  assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  assert_int_equal(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
}

static void the_primary_context_is_counted(void **state) {
  (void)state;
  CUcontext again;
  unsigned flags;
  int active;
  must(cuDevicePrimaryCtxRetain(&again, 0));
  assert_ptr_equal(again, context);
  must(cuDevicePrimaryCtxRelease_v2(0));
  must(cuDevicePrimaryCtxRelease_v2(0));
  must(cuDevicePrimaryCtxGetState(0, &flags, &active));
  assert_false(active);
  assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  expect_violation("not retained");
}

static void fails_the_call_it_is_told_to(void **state) {
  (void)state;
  CUdeviceptr at;
  standin_fail("cuMemAlloc", 2, 1, CUDA_ERROR_OUT_OF_MEMORY);
  at = allocate(10);
  CUdeviceptr other;
  assert_int_equal(cuMemAlloc_v2(&other, 10), CUDA_ERROR_OUT_OF_MEMORY);
  must(cuMemAlloc_v2(&other, 10));
  must(cuMemFree_v2(at));
  must(cuMemFree_v2(other));
  assert_int_equal(standin_calls("cuMemAlloc"), 3);
}

static void stays_broken_until_the_context_goes(void **state) {
  (void)state;
  CUdeviceptr at = allocate(10), other;
  standin_break(0, CUDA_ERROR_ILLEGAL_ADDRESS);
  assert_int_equal(cuMemAlloc_v2(&other, 10), CUDA_ERROR_ILLEGAL_ADDRESS);
  assert_int_equal(cuMemFree_v2(at), CUDA_ERROR_ILLEGAL_ADDRESS);
  must(cuDevicePrimaryCtxReset_v2(0));
  must(cuDevicePrimaryCtxRetain(&context, 0));
  must(cuCtxSetCurrent(context));
  must(cuMemFree_v2(allocate(10)));
}

static void finds_functions_by_version(void **state) {
  (void)state;
  void *function;
  CUdriverProcAddressQueryResult found;
  must(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &found));
  assert_ptr_equal(function, cuMemAlloc_v2);
  must(cuGetProcAddress_v2("cuMemAdvise", &function, 12000, 0, &found));
  assert_ptr_equal(function, cuMemAdvise);
  standin_version(10000);
  must(cuGetProcAddress_v2("cuMemMap", &function, 12000, 0, &found));
  assert_null(function);
  assert_int_equal(found, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

/* ---- Other processes ---- */

static void refuses_a_forked_child(void **state) {
  (void)state;
  pid_t child = fork();
  if (child == 0) {
    int count;
    setenv("STANDIN_LOG", "/dev/null", 1);
    _exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED && standin_violations() ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

/* Runs this program again in a new process, because a process that was forked after cuInit cannot
 * use the driver. */
static int read_elsewhere(int argc, char **argv) {
  CUipcMemHandle handle;
  CUdeviceptr at;
  (void)argc;
  for (int i = 0; i < CU_IPC_HANDLE_SIZE; i++) {
    unsigned byte;
    sscanf(argv[2] + 2 * i, "%2x", &byte);
    handle.reserved[i] = (char)byte;
  }
  must(cuInit(0));
  must(cuDevicePrimaryCtxRetain(&context, 0));
  must(cuCtxSetCurrent(context));
  must(cuIpcOpenMemHandle_v2(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  must(standin_check(NULL, at, 9, 1000));
  must(standin_write(NULL, at, 10, 1000));
  must(cuIpcCloseMemHandle(at));
  return (int)standin_violations();
}

static void shares_memory_with_another_process(void **state) {
  (void)state;
  CUdeviceptr at = allocate(1000), other;
  CUipcMemHandle handle;
  char command[400] = "exec /proc/self/exe --read ", program[200] = "";
  assert_true(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
  must(standin_write(NULL, at, 9, 1000));
  must(cuIpcGetMemHandle(&handle, at));
  int length = snprintf(command, sizeof command, "exec '%s' --read ", program);
  for (int i = 0; i < CU_IPC_HANDLE_SIZE; i++) {
    length += snprintf(command + length, sizeof command - (size_t)length, "%02x",
                       (unsigned char)handle.reserved[i]);
  }
  assert_int_equal(system(command), 0);
  must(cuCtxSynchronize());
  must(standin_check(NULL, at, 10, 1000));
  assert_int_equal(cuIpcOpenMemHandle_v2(&other, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                   CUDA_ERROR_INVALID_CONTEXT);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--read") == 0) return read_elsewhere(argc, argv);
  setenv("STANDIN_LOG", "/dev/null", 0);
  const struct CMUnitTest tests[] = {
    CASE(aligns_to_256_bytes_and_no_more),
    CASE(copies_there_and_back),
    CASE(has_so_much_memory),
    CASE(reports_wrong_frees),
    CASE(frees_without_a_context),
    CASE(registers_memory_once_and_while_it_is_there),
    CASE(knows_its_pointers),
    CASE(work_waits_while_it_is_held),
    CASE(work_is_late_by_so_many_calls),
    CASE(a_free_waits_for_pending_work),
    CASE(reports_a_free_under_pending_work_if_strict),
    CASE(reports_work_in_no_order),
    CASE(runs_work_in_order_of_events),
    CASE(the_default_stream_waits_for_the_others),
    CASE(reports_handles_that_are_gone),
    CASE(calls_the_host_in_order),
    CASE(maps_memory_to_a_range),
    CASE(reports_a_copy_of_addresses_without_memory),
    CASE(reports_an_unmap_under_pending_work),
    CASE(exports_what_was_made_for_it),
    CASE(pools_keep_what_their_threshold_says),
    CASE(pools_forget_what_they_give_back),
    CASE(pools_reuse_on_another_stream_only_in_order),
    CASE(a_context_takes_its_memory_with_it),
    CASE(the_primary_context_is_counted),
    CASE(fails_the_call_it_is_told_to),
    CASE(stays_broken_until_the_context_goes),
    CASE(finds_functions_by_version),
    CASE(refuses_a_forked_child),
    CASE(shares_memory_with_another_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
