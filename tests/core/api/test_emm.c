/* test_emm.c - loam as an external memory manager (NBEP 7) under a policy; device memory that
 * processes share; the end of contexts, devices and processes. */
#include <stdlib.h>
#include <sys/mman.h>

#include "api/ipc.h"
#include "api/pin.h"
#include "child_tests.h"
#include "os/error.h"
#include "own_folder.h"

static const loam_manager *emm;

/* Every test has two strategies: `plain` requests memory from the driver each time, and `deny`
 * refuses. */
static void load(const char *strategies, const char *pick) {
  char text[1024];
  snprintf(text, sizeof text,
           "local plain, deny = loam.device { name = 'plain', pool = 'none' }, loam.deny {} %s "
           "return loam.policy { pick = function(req) %s end }\n",
           strategies, pick);
  ok(loam_policy_load_text("test", text));
}

/* Starts a service thread, which calls the driver too. Most tests run without one. */
static void serve(void) { want(!setenv("LOAM_CONTROL", "1", 1)); }

/* Loads a policy, unless `pick` is NULL, and initializes device 0. */
static void begin(const char *strategies, const char *pick) {
  emm = loam_manager_get();
  if (pick) load(strategies, pick);
  ok(emm->initialize(emm->ctx, 0));
}

static void *device_alloc(int device, size_t size) {
  void *at = NULL;
  ok(emm->memalloc(emm->ctx, device, size, &at));
  return at;
}

static void device_free(int device, void *at, size_t size) {
  emm->memfree(emm->ctx, device, at, size);
}

/* ---- NBEP 7 */

TEST(serves_all_that_nbep_7_asks) {
  loam_owner_info owner;
  size_t free, total;
  void *at, *host = mmap(NULL, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  begin("", NULL);
  want(emm->interface_version == 1 && emm->size == sizeof *emm);
  ok(emm->initialize(emm->ctx, 0)); /* a second call succeeds too */
  at = device_alloc(1, 1000);
  ok(loam_owner(at, &owner));
  want(owner.device == 1 && owner.size >= 1000 && !strcmp(owner.kind, "device"));
  device_free(1, at, 1000);
  ok(emm->memhostalloc(emm->ctx, 0, 4096, LOAM_PINNED_MAPPED | LOAM_PINNED_PORTABLE, &at));
  memset(at, 1, 4096);
  emm->memhostfree(emm->ctx, 0, at, 4096);
  ok(emm->memhostalloc(emm->ctx, 0, 4096, LOAM_PINNED_WRITE_COMBINED, &at));
  emm->memhostfree(emm->ctx, 0, at, 4096);
  ok(emm->mempin(emm->ctx, 1, host, 4096, LOAM_PINNED_MAPPED));
  want(lm_pin_is_valid());
  emm->memunpin(emm->ctx, 1, host, 4096);
  want(lm_pin_is_valid());
  ok(emm->get_memory_info(emm->ctx, 1, &free, &total));
  want(free <= total && total == 64 * MIB);
  ok(emm->memalloc_managed(emm->ctx, 1, 4096, &at));
  memset(at, 1, 4096);
  emm->memfree_managed(emm->ctx, 1, at, 4096);
  emm->defer_enter(emm->ctx);
  emm->defer_enter(emm->ctx);
  emm->defer_leave(emm->ctx);
  emm->defer_leave(emm->ctx);
  ok(emm->reset(emm->ctx, 0));
  ok(emm->reset(emm->ctx, 1));
  want(emm->memalloc(emm->ctx, 2, 64, &at) == LOAM_EINVAL);
  want(says("device 2: this machine has devices 0-1"));
}

TEST(serves_under_the_policy_and_the_scope) {
  loam_owner_info owner;
  begin("", "if req.tag:under 'numba' and req.device == 1 then return plain end return deny");
  loam_scope_enter(loam_site_get("numba.arrays"));
  void *at = device_alloc(1, 4096), *none;
  ok(loam_owner(at, &owner));
  want(!strcmp(owner.strategy, "plain") && !strcmp(owner.tag, "numba.arrays"));
  want(emm->memalloc(emm->ctx, 0, 4096, &none) == LOAM_ENOMEM);
  loam_scope_leave();
  device_free(1, at, 4096);
}

/* Work on a stream that loam does not know may still use the memory. */
TEST(gives_nothing_back_that_work_may_use) {
  CUcontext context;
  CUstream stream;
  begin("local d = loam.device { pool = 'driver' }", "return d");
  want(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  want(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  standin_hold();
  for (int i = 0; i < 25; i++) {
    void *at = device_alloc(0, MIB);
    want(standin_write(stream, (CUdeviceptr)(uintptr_t)at, 7, MIB) == CUDA_SUCCESS);
    device_free(0, at, MIB);
  }
  standin_release();
}

/* A graph that is being captured uses the memory later, at each launch. */
TEST(a_free_in_a_capture_stays_pending) {
  CUcontext context;
  CUstream stream;
  CUgraph graph;
  void *at[24];
  begin("", "return plain");
  want(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  want(cuStreamCreate(&stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
  for (int i = 0; i < 24; i++) at[i] = device_alloc(0, MIB);
  want(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  for (int i = 0; i < 24; i++) device_free(0, at[i], MIB);
  (void)loam_device_trim(0);
  want(loam_device_reset(0) == LOAM_ESTATE && says("while a stream is captured"));
  want(emm->reset(emm->ctx, 0) == LOAM_ESTATE);
  want(standin_used(0) == 24 * MIB);
  want(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  (void)loam_device_trim(0);
  want(standin_used(0) == 0);
  want(loam_device_trim(32) == 0 && loam_device_trim(1 << 20) == 0);
}

TEST(what_is_pending_goes_when_memory_is_wanted) {
  begin("", "return plain");
  for (int i = 0; i < 4; i++) device_free(0, device_alloc(0, 3 * MIB), 3 * MIB);
  want(standin_used(0) == 12 * MIB);
  void *at = device_alloc(0, 60 * MIB);
  device_free(0, at, 60 * MIB);
}

/* A free on a stream waits for work of that stream alone. */
TEST(allocates_and_frees_in_the_order_of_a_stream) {
  CUcontext context;
  CUstream stream;
  void *at;
  begin("local d = loam.device { pool = 'driver' }", "return d");
  want(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  want(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  standin_hold();
  ok(emm->memalloc_async(emm->ctx, 0, MIB, stream, &at));
  want(standin_write(stream, (CUdeviceptr)(uintptr_t)at, 7, MIB) == CUDA_SUCCESS);
  emm->memfree_async(emm->ctx, 0, at, MIB, stream);
  standin_release();
  want(cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

/* A host of memalloc_async passes no handles on, so its memory may be mapped, and nothing is lost
 * between chunks. A host of NBEP 7 shares memory of memalloc by handles of the driver, so that
 * memory comes from cuMemAlloc. */
TEST(memory_of_a_stream_is_mapped_and_that_of_nbep_7_is_not) {
  void *at;
  begin("", NULL);
  unsigned long before = standin_calls("cuMemAlloc");
  ok(emm->memalloc_async(emm->ctx, 1, MIB, NULL, &at));
  want(standin_calls("cuMemAlloc") == before);
  emm->memfree_async(emm->ctx, 1, at, MIB, NULL);
  device_free(1, device_alloc(1, MIB), MIB);
  want(standin_calls("cuMemAlloc") == before + 1);
}

TEST(a_reset_ends_all_and_what_was_may_still_be_freed) {
  begin("", NULL);
  void *at[50];
  ok(emm->reset(emm->ctx, 0)); /* a reset before any other call */
  for (int i = 0; i < 50; i++) at[i] = device_alloc(i & 1, (size_t)4096 << (i % 5));
  for (int i = 0; i < 5; i++) device_free(0, device_alloc(0, 4096), 4096); /* these stay pending */
  ok(emm->reset(emm->ctx, 0));
  want(standin_used(0) == 0 && standin_used(1) > 0);
  for (int i = 0; i < 50; i++) want(!!loam_owns(at[i]) == (i & 1));
  want(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS);
  for (int i = 0; i < 50; i++) device_free(i & 1, at[i], 0);
  for (int i = 0; i < 50; i++) device_free(0, device_alloc(0, 4096), 4096);
  struct loam_stats stats;
  ok(loam_stats(&stats));
  want(stats.bad_frees == 0);
  device_free(0, device_alloc(0, 4096), 4096);
  ok(emm->reset(emm->ctx, 1));
  want(standin_used(1) == 0);
}

TEST(each_block_goes_back_to_who_made_it_whatever_the_policy_is_then) {
  static const char *const pools[] = { "cache", "driver", "none" };
  char text[256];
  void *at[30];
  begin("", NULL);
  for (int i = 0; i < 30; i++) {
    snprintf(text, sizeof text, "local d = loam.device { pool = '%s' }", pools[i % 3]);
    load(text, "return d");
    at[i] = device_alloc(0, 100000);
  }
  load("", "return deny");
  for (int i = 0; i < 30; i++) device_free(0, at[i], 100000);
  ok(emm->reset(emm->ctx, 0));
  want(standin_used(0) == 0);
}

TEST(loam_is_not_its_own_manager) {
  begin("", NULL);
  want(loam_manager_set(emm) == LOAM_EINVAL && says("has its memory from the one that is set"));
}

/* ---- Gauges */

TEST(a_policy_reads_what_a_device_has_free) {
  loam_owner_info owner;
  begin("local d = loam.device { name = 'd', id = 1, pool = 'none' }",
        "if loam.device(1).free > 40 * loam.MiB and loam.device(0).free * 2 > req.size "
        "then return d end return deny");
  void *at = device_alloc(0, 32 * MIB), *more = NULL;
  ok(loam_owner(at, &owner));
  want(owner.device == 1);
  for (int naps = 0; (more = loam_device_alloc(NULL, 64, NULL)) && be_patient(&naps);)
    loam_device_free(more, NULL);
  want(!more); /* device 1 has too little free memory now */
}

/* ---- IPC */

typedef struct letter {
  loam_ipc first, second;
} letter;

enum { LARGE = 40 * MIB }; /* has several pieces of memory if it is mapped */

static void copy_out(void *to, void *from, size_t size) {
  want(cuMemcpyDtoH_v2(to, (CUdeviceptr)(uintptr_t)from, size) == CUDA_SUCCESS);
}

/* Runs in a child that was forked before its parent started the driver: so the child can start the
 * driver itself. */
static void receive(int in, int out) {
  letter l;
  char byte = 0, *first, *second, *again;
  CUcontext context;
  want(read(in, &l, sizeof l) == sizeof l);
  ok(loam_ipc_open(&l.first, 0, (void **)&first));
  ok(loam_ipc_open(&l.second, 0, (void **)&second));
  ok(loam_ipc_open(&l.first, 0, (void **)&again));
  want(again == first && lm_ipc_is_valid());
  want(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  copy_out(&byte, first, 1);
  want(byte == 5);
  copy_out(&byte, first + l.first.size - 1, 1);
  want(byte == 5);
  copy_out(&byte, second + l.second.size - 1, 1);
  want(byte == 6);
  want(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)first, 9, 1) == CUDA_SUCCESS);
  ok(loam_ipc_close(first));
  ok(loam_ipc_close(second));
  want(lm_ipc_is_valid());
  copy_out(&byte, again, 1);
  want(byte == 9);
  ok(loam_ipc_close(again));
  want(loam_ipc_close(again) == LOAM_EBADPTR && says("no memory of another process"));
  want(standin_violations() == 0);
  want(write(out, "y", 1) == 1);
}

static const char MAPPED[] = "local cache = loam.device { pool = 'cache' }";

/* Forks a child that runs `receiver` with the reading end of `there` and the writing end of `back`.
 * After the fork, starts loam in this process and makes the context of device 0 current. */
static pid_t begin_with_receiver(void (*receiver)(int in, int out), int there[2], int back[2],
                                 const char *strategies, const char *pick) {
  want(!pipe(there) && !pipe(back));
  pid_t pid = fork();
  if (pid == 0) {
    alarm(PATIENCE_S);
    close(there[1]);
    receiver(there[0], back[1]);
    _exit(0);
  }
  close(back[1]);
  begin(strategies, pick);
  CUcontext context;
  want(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  return pid;
}

static void share(const char *strategies, const char *pick) {
  int there[2], back[2];
  letter l;
  char answer = 0;
  pid_t pid = begin_with_receiver(receive, there, back, strategies, pick);
  /* so that a and b do not begin at the start of a piece */
  void *before[] = { device_alloc(0, 3 * MIB), device_alloc(0, 5000) };
  char *a = device_alloc(0, LARGE), *b = device_alloc(0, 5000);
  want(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)a, 5, LARGE) == CUDA_SUCCESS);
  want(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)b, 6, 5000) == CUDA_SUCCESS);
  ok(loam_ipc_get(a + 500, &l.first)); /* inside a block */
  want(loam_ipc_is_plain(&l.first) == (strategies != MAPPED));
  want(l.first.size >= LARGE - 500 && l.first.size < LARGE + 4096);
  l.first.size = LARGE - 500;
  ok(emm->get_ipc_handle(emm->ctx, 0, b, &l.second));
  l.second.size = 5000;
  want(write(there[1], &l, sizeof l) == sizeof l);
  want(read(back[0], &answer, 1) == 1);
  int status;
  want(waitpid(pid, &status, 0) == pid && status == 0);
  copy_out(&answer, a + 500, 1);
  want(answer == 9);
  device_free(0, a, LARGE);
  device_free(0, b, 5000);
  device_free(0, before[0], 3 * MIB);
  device_free(0, before[1], 5000);
}

TEST(another_process_uses_what_is_shared_with_it) { share("", NULL); }
TEST(and_what_the_driver_made_whole) { share("", "return plain"); }

/* Mapped memory consists of several pieces. Each piece is shared by a file descriptor. */
TEST(and_what_is_mapped_to_a_range_of_addresses) {
  serve();
  share(MAPPED, "return cache");
}

/* A host of NBEP 7 can also share memory that loam_device_alloc has allocated. */
TEST(and_what_was_allocated_by_other_functions) {
  loam_ipc handle;
  serve();
  begin("", NULL);
  void *at = loam_device_alloc(NULL, 5000, NULL);
  ok(emm->get_ipc_handle(emm->ctx, 0, at, &handle));
  loam_device_free(at, NULL);
}

/* Memory of NBEP 7's memalloc has handles of the driver, which other libraries can open too. */
TEST(its_handles_are_the_drivers_own) {
  loam_ipc handle;
  CUipcMemHandle whole;
  begin("", NULL);
  char *at = device_alloc(0, 100000), *next = device_alloc(0, 100000);
  ok(emm->get_ipc_handle(emm->ctx, 0, next, &handle));
  want(handle.offset >= 100000 && at);
  want(cuIpcGetMemHandle(&whole, (CUdeviceptr)(uintptr_t)at) == CUDA_SUCCESS);
  want(!memcmp(&whole, handle.handle, sizeof whole));
  device_free(0, at, 100000);
  (void)loam_device_trim(-1); /* the chunk stays as long as there is a block in it */
  want(cuIpcGetMemHandle(&whole, (CUdeviceptr)(uintptr_t)next) == CUDA_SUCCESS);
  device_free(0, next, 100000);
  want(loam_device_trim(-1) > 0);
  want(cuIpcGetMemHandle(&whole, (CUdeviceptr)(uintptr_t)next) != CUDA_SUCCESS);
}

/* ---- Devices that have other numbers in another process */

/* Runs in a child whose device 1 is the parent's device 0. Its device 0 cannot access memory of its
 * device 1. */
static void receive_on_another_device(int in, int out) {
  loam_ipc handle, unnamed;
  loam_owner_info owner;
  char *there, *copy, byte = 0;
  want(!setenv("STANDIN_NUMBERS", "1,0", 1) && !setenv("STANDIN_LACKS", "peers", 1));
  want(read(in, &handle, sizeof handle) == sizeof handle);
  want(handle.device == 0 && loam_ipc_device(&handle) == 1 && loam_ipc_device(NULL) == -1);
  unnamed = handle;
  memset(unnamed.uuid, 0, sizeof unnamed.uuid);
  want(loam_ipc_device(&unnamed) == 0);
  /* The stand-in refuses to open its own handles without peer access. Handles of mapped memory are
   * loam's. */
  if (loam_ipc_is_plain(&handle))
    want(loam_ipc_open(&handle, 0, (void **)&there) != LOAM_OK && says("PEER_ACCESS_UNSUPPORTED"));
  ok(loam_ipc_open(&handle, 1, (void **)&there));
  ok(loam_ipc_open_staged(&handle, 0, (void **)&copy));
  ok(loam_owner(copy, &owner));
  want(owner.device == 0 && !strcmp(owner.kind, "device") && owner.size >= handle.size);
  CUcontext context;
  want(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  copy_out(&byte, there + handle.size - 1, 1);
  want(byte == 7);
  ok(loam_ipc_close(there));
  for (size_t i = 0; i < handle.size; i += handle.size - 1) {
    copy_out(&byte, copy + i, 1);
    want(byte == 7);
  }
  loam_device_free(copy, NULL);
  memset(unnamed.uuid, 9, sizeof unnamed.uuid);
  want(loam_ipc_device(&unnamed) == -1);
  want(loam_ipc_open_staged(&unnamed, 0, (void **)&copy) == LOAM_EUNSUPPORTED);
  want(says("device 0 of process") && says("CUDA_VISIBLE_DEVICES"));
  want(lm_ipc_is_valid() && standin_violations() == 0);
  want(write(out, "y", 1) == 1);
}

static void share_with_other_numbers(const char *strategies, const char *pick) {
  int there[2], back[2], status;
  loam_ipc handle;
  char answer = 0;
  pid_t pid = begin_with_receiver(receive_on_another_device, there, back, strategies, pick);
  char *at = device_alloc(0, 5000);
  want(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)at, 7, 5000) == CUDA_SUCCESS);
  ok(loam_ipc_get(at, &handle));
  handle.size = 5000;
  want(write(there[1], &handle, sizeof handle) == sizeof handle);
  want(read(back[0], &answer, 1) == 1);
  want(waitpid(pid, &status, 0) == pid && status == 0);
  device_free(0, at, 5000);
}

TEST(a_handle_names_its_device_in_every_process) { share_with_other_numbers("", NULL); }
TEST(so_does_a_handle_of_mapped_memory) {
  serve();
  share_with_other_numbers(MAPPED, "return cache");
}

/* ---- Handles of memory that is gone */

static void *keep_asking(void *handle) {
  void *at;
  return loam_ipc_open(handle, 0, &at) ? NULL : at;
}

/* A process may open its own memory: it gets the memory at a second address. */
TEST(a_handle_is_dead_when_its_block_is_freed) {
  loam_ipc handle, wrong;
  void *there, *again;
  char byte;
  serve();
  begin(MAPPED, "return cache");
  char *at = device_alloc(0, 3 * MIB);
  want(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)at, 5, 3 * MIB) != CUDA_SUCCESS); /* no context yet */
  ok(loam_ipc_get(at + MIB, &handle));
  want(!loam_ipc_is_plain(&handle) && !loam_ipc_is_plain(NULL));
  ok(loam_ipc_open(&handle, 0, &there));
  want(there != at + MIB);
  memset(at + MIB, 7, 1); /* the memory of the stand-in is host memory */
  memcpy(&byte, there, 1);
  want(byte == 7);
  wrong = handle;
  wrong.handle[24]++; /* the key */
  want(loam_ipc_open(&wrong, 0, &again) == LOAM_EBADPTR && says("its owner has freed it"));
  device_free(0, at, 3 * MIB);
  (void)loam_device_trim(-1);
  memcpy(&byte, there, 1); /* the memory stays until it is closed */
  ok(loam_ipc_close(there));
  want(keep_asking(&handle) == NULL && says("its owner has freed it"));
  at = device_alloc(0, 3 * MIB);
  want(keep_asking(&handle) == NULL && says("its owner has freed it"));
  device_free(0, at, 3 * MIB);
}

TEST(an_owner_that_ends_takes_its_handles_along) {
  int pipes[2];
  loam_ipc handle;
  want(!pipe(pipes));
  pid_t pid = fork();
  if (pid == 0) {
    serve();
    begin(MAPPED, "return cache");
    ok(loam_ipc_get(device_alloc(0, 5000), &handle));
    want(write(pipes[1], &handle, sizeof handle) == sizeof handle);
    _exit(0);
  }
  int status;
  want(waitpid(pid, &status, 0) == pid && status == 0);
  want(read(pipes[0], &handle, sizeof handle) == sizeof handle);
  begin("", NULL);
  want(keep_asking(&handle) == NULL && says("cannot be asked by this user"));
  want(standin_handles() == 0);
}

TEST(what_the_driver_cannot_share_is_refused_with_what_to_do) {
  loam_ipc handle;
  want(!setenv("STANDIN_LACKS", "exports", 1));
  begin("local a, b = loam.device { pool = 'cache' }, loam.device { pool = 'driver' }",
        "return req.size > 5000 and a or b");
  for (size_t size = 1000; size <= 100000; size *= 10) {
    void *at = device_alloc(0, size);
    loam_status status = loam_ipc_get(at, &handle);
    want(status == LOAM_EUNSUPPORTED && says("pool = \"chunks\""));
    device_free(0, at, size);
  }
}

TEST(what_others_would_ask_for_needs_a_control_socket) {
  loam_ipc handle;
  begin(MAPPED, "return cache");
  void *at = device_alloc(0, 1000);
  want(loam_ipc_get(at, &handle) == LOAM_ESTATE && says("no control socket"));
  device_free(0, at, 1000);
}

TEST(memory_of_the_host_is_not_shared) {
  loam_ipc handle;
  char here;
  void *at = loam_malloc(NULL, 100);
  want(loam_ipc_get(at, &handle) == LOAM_EINVAL && says("memory of the host, not of a device"));
  want(loam_ipc_get(&here, &handle) == LOAM_EBADPTR);
  want(loam_ipc_get(at, NULL) == LOAM_EINVAL);
  loam_free(at);
}

TEST(a_device_that_is_absent_opens_no_handle) {
  void *at;
  want(loam_ipc_open(&(loam_ipc){ .size = 1 }, 7, &at) == LOAM_EINVAL && says("device 7: this"));
}

/* ---- Idle memory */

TEST(the_service_thread_gives_back_what_is_idle) {
  struct loam_device_info info;
  serve();
  begin("", NULL);
  void *at = loam_device_alloc(NULL, 20 * MIB, NULL), *host;
  want(at);
  ok(emm->memhostalloc(emm->ctx, 0, MIB, 0, &host));
  loam_device_free(at, NULL);
  emm->memhostfree(emm->ctx, 0, host, MIB);
  loam_defer_limit(0, 0);
  loam_defer_enter();
  ok(loam_defer_leave());
  do {
    usleep(20000);
    ok(loam_device_info(0, &info));
  } while (info.reserved ||
           standin_calls("cuMemHostUnregister") < standin_calls("cuMemHostRegister"));
}

/* ---- Ends */

TEST(a_context_may_end_under_live_blocks) {
  CUcontext mine;
  void *at[12];
  begin("", "return plain");
  want(cuCtxCreate_v2(&mine, 0, 0) == CUDA_SUCCESS);
  for (int i = 0; i < 12; i++) at[i] = device_alloc(0, 4096);
  want(cuCtxDestroy_v2(mine) == CUDA_SUCCESS);
  for (int i = 0; i < 12; i++) device_free(0, at[i], 4096);
  (void)loam_device_trim(0);
  standin_forgive(); /* the stand-in objects to those frees; a driver does not */
  device_free(0, device_alloc(0, 4096), 4096);
  struct loam_stats stats;
  ok(loam_stats(&stats));
  want(stats.bad_frees == 0);
}

/* The pool has live, free and pending memory of a context when that context ends. loam must not
 * crash, and must not count bad frees. */
static int end_context_of_pool(void *pool) {
  char text[100];
  CUcontext mine;
  void *at[6];
  snprintf(text, sizeof text, "local d = loam.device { pool = '%s' }", (char *)pool);
  begin(text, "return d");
  want(cuCtxCreate_v2(&mine, 0, 0) == CUDA_SUCCESS);
  for (int i = 0; i < 6; i++) at[i] = device_alloc(0, (size_t)100000 * (size_t)(i + 1));
  loam_device_free(at[0], NULL);
  device_free(0, at[1], 200000);
  want(cuCtxDestroy_v2(mine) == CUDA_SUCCESS);
  loam_device_free(at[2], NULL);
  loam_free(at[3]);
  device_free(0, at[4], 500000);
  ok(loam_device_reset(0)); /* frees at[5], after its context has ended */
  standin_forgive();        /* the stand-in objects to those frees; a driver does not */
  device_free(0, device_alloc(0, 100000), 100000);
  struct loam_stats stats;
  ok(loam_stats(&stats));
  want(stats.bad_frees == 0 && stats.live_blocks == 1);
  ok(loam_device_reset(0));
  want(standin_used(0) == 0 && standin_violations() == 0);
  return 0;
}

static void a_context_may_end_under_what_a_pool_has(void **state) {
  (void)state;
  assert_int_equal(run_in_child(end_context_of_pool, (char[]){ "cache" }), 0);
  assert_int_equal(run_in_child(end_context_of_pool, (char[]){ "chunks" }), 0);
  assert_int_equal(run_in_child(end_context_of_pool, (char[]){ "driver" }), 0);
}

static void want_usable(void *at) {
  want(cuMemsetD8_v2((CUdeviceptr)(uintptr_t)at, 5, 4096) == CUDA_SUCCESS);
}

/* Two contexts of one device: the first ends, and the second goes on. */
static int end_one_of_two_contexts(void *pool) {
  char text[100];
  CUcontext one, two;
  snprintf(text, sizeof text, "local d = loam.device { pool = '%s' }", (char *)pool);
  begin(text, "return d");
  want(cuCtxCreate_v2(&one, 0, 0) == CUDA_SUCCESS);
  void *first = device_alloc(0, 4096), *freed = device_alloc(0, 4096);
  loam_device_free(freed, NULL);
  want(cuCtxCreate_v2(&two, 0, 0) == CUDA_SUCCESS);
  void *second = device_alloc(0, 4096);
  want(cuCtxDestroy_v2(one) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(two) == CUDA_SUCCESS);
  want_usable(second);
  void *third = device_alloc(0, 4096);
  want_usable(third);
  device_free(0, first, 4096);
  device_free(0, second, 4096);
  device_free(0, third, 4096);
  (void)loam_device_trim(0);
  standin_forgive(); /* the stand-in objects to frees of `first`; a driver does not */
  want(standin_used(0) == 0);
  return 0;
}

static void a_context_takes_no_memory_of_another_with_it(void **state) {
  (void)state;
  assert_int_equal(run_in_child(end_one_of_two_contexts, (char[]){ "cache" }), 0);
  assert_int_equal(run_in_child(end_one_of_two_contexts, (char[]){ "chunks" }), 0);
  assert_int_equal(run_in_child(end_one_of_two_contexts, (char[]){ "none" }), 0);
  setenv("STANDIN_LACKS", "vmm", 1);
  assert_int_equal(run_in_child(end_one_of_two_contexts, (char[]){ "cache" }), 0);
  unsetenv("STANDIN_LACKS");
}

/* NBEP 7: a reset ends the memory of the current context. */
static int reset_one_of_two_contexts(void *pool) {
  char text[100];
  CUcontext one, two;
  loam_owner_info owner;
  snprintf(text, sizeof text, "local d = loam.device { pool = '%s' }", (char *)pool);
  begin(text, "return d");
  want(cuCtxCreate_v2(&one, 0, 0) == CUDA_SUCCESS);
  void *first = device_alloc(0, 4096);
  want(cuCtxCreate_v2(&two, 0, 0) == CUDA_SUCCESS);
  void *second = device_alloc(0, 4096), *large = device_alloc(0, 3 * MIB);
  ok(emm->reset(emm->ctx, 0));
  want(loam_owner(first, &owner) == LOAM_OK);
  want(loam_owner(second, &owner) != LOAM_OK && loam_owner(large, &owner) != LOAM_OK);
  want(cuCtxDestroy_v2(two) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(one) == CUDA_SUCCESS);
  want_usable(first);
  void *third = device_alloc(0, 4096);
  want_usable(third);
  device_free(0, second, 4096); /* a reset has already freed it */
  ok(emm->reset(emm->ctx, 0));
  want(loam_owner(first, &owner) != LOAM_OK && standin_used(0) == 0);
  return 0;
}

static void a_reset_ends_the_memory_of_its_context_alone(void **state) {
  (void)state;
  assert_int_equal(run_in_child(reset_one_of_two_contexts, (char[]){ "cache" }), 0);
  assert_int_equal(run_in_child(reset_one_of_two_contexts, (char[]){ "chunks" }), 0);
  assert_int_equal(run_in_child(reset_one_of_two_contexts, (char[]){ "none" }), 0);
  assert_int_equal(run_in_child(reset_one_of_two_contexts, (char[]){ "driver" }), 0);
  assert_int_equal(run_in_child(reset_one_of_two_contexts, (char[]){ "sleep" }), 0);
}

TEST(a_reset_of_a_context_spares_the_primary_one) {
  CUcontext two;
  loam_owner_info owner;
  begin("local d = loam.device { pool = 'cache' }", "return d");
  void *first = loam_device_alloc(NULL, 4096, NULL); /* no context is current */
  want(cuCtxCreate_v2(&two, 0, 0) == CUDA_SUCCESS);
  void *second = device_alloc(0, 4096);
  ok(emm->reset(emm->ctx, 0));
  want(loam_owner(first, &owner) == LOAM_OK && loam_owner(second, &owner) != LOAM_OK);
  want(cuCtxDestroy_v2(two) == CUDA_SUCCESS);
  device_free(0, first, 4096);
  ok(emm->reset(emm->ctx, 0));
  want(standin_used(0) == 0);
}

TEST(a_broken_device_fails_in_words_and_the_other_serves) {
  void *at, *before;
  begin("", "return plain");
  before = device_alloc(0, 4096);
  standin_break(0, CUDA_ERROR_LAUNCH_FAILED);
  want(emm->memalloc(emm->ctx, 0, 4096, &at) != LOAM_OK && says("CUDA_ERROR_LAUNCH_FAILED (719)"));
  device_free(1, device_alloc(1, 4096), 4096);
  device_free(0, before, 4096);
  (void)loam_device_trim(-1);
  ok(loam_device_reset(0));
  want(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS); /* a host has to reset a broken context */
  device_free(0, device_alloc(0, 4096), 4096);
}

TEST(memory_runs_out_and_or_else_goes_on) {
  begin("local m = loam.managed { name = 'm' }", "return plain:or_else(m)");
  loam_owner_info owner;
  void *at[40];
  standin_limit(0, 10 * MIB);
  for (int i = 0; i < 12; i++) at[i] = device_alloc(0, MIB);
  ok(loam_owner(at[11], &owner));
  want(!strcmp(owner.strategy, "m"));
  for (int i = 0; i < 12; i++) device_free(0, at[i], MIB);
}

/* Runs in a child: every request for device memory fails with the right words, and no driver is
 * called. */
static int use_in_child(void *arg) {
  void *at, *before = *(void **)arg;
  loam_ipc handle;
  unsigned long calls = standin_calls(NULL);
  if (loam_device_alloc(NULL, 64, NULL)) return 1;
  if (!says("a fork cannot use the GPU")) return 2;
  if (loam_device_count() || !says("a fork cannot use the GPU")) return 3;
  if (emm->memalloc(emm->ctx, 0, 64, &at) == LOAM_OK) return 4;
  if (loam_ipc_get(before, &handle) == LOAM_OK) return 5;
  loam_device_free(before, NULL);
  (void)loam_device_trim(-1);
  if (loam_device_reset(0) == LOAM_OK) return 6;
  void *host = loam_malloc(NULL, 1000); /* host memory still works */
  if (!host) return 7;
  loam_free(host);
  return standin_calls(NULL) == calls ? 0 : 8;
}

TEST(a_fork_uses_the_host_alone) {
  begin(MAPPED, "if req.size > 4096 then return cache end return plain");
  for (size_t size = 4096; size <= 8192; size *= 2) {
    void *at = device_alloc(0, size);
    want(run_in_child(use_in_child, &at) == 0);
    device_free(0, at, size);
  }
}

/* ---- Exit */

static void *kept[4];

static void free_one(int i) {
  if (kept[i]) loam_device_free(kept[i], NULL);
}
static void free_first(void) { free_one(0); }
static void free_second(void) { free_one(1); }
__attribute__((destructor)) static void free_third(void) { free_one(2); }

static int leave_early(void *pool) {
  char text[200];
  snprintf(text, sizeof text, "local d = loam.device { pool = '%s' }", (char *)pool);
  atexit(
      free_first); /* runs after every atexit function that is registered later, the driver's too */
  begin(text, "if loam.device(0).free > 1 then return d end return deny");
  atexit(free_second);
  for (int i = 0; i < 4; i++) kept[i] = device_alloc(0, 100000);
  loam_device_free(device_alloc(0, 50000), NULL); /* freed: in the pool, or pending */
  loam_device_free(device_alloc(1, 50000), NULL);
  exit(0);
}

static void a_process_may_end_with_live_memory_in_any_order(void **state) {
  (void)state;
  assert_int_equal(run_in_child(leave_early, (char[]){ "none" }), 0);
  assert_int_equal(run_in_child(leave_early, (char[]){ "driver" }), 0);
  assert_int_equal(run_in_child(leave_early, (char[]){ "cache" }), 0);
  assert_int_equal(run_in_child(leave_early, (char[]){ "chunks" }), 0);
}

static int leave_while_served(void *pool) {
  serve();
  return leave_early(pool);
}

static void and_while_the_service_thread_gives_back(void **state) {
  (void)state;
  assert_int_equal(run_in_child(leave_while_served, (char[]){ "cache" }), 0);
  assert_int_equal(run_in_child(leave_while_served, (char[]){ "chunks" }), 0);
}

static int stop_early(void *unused) {
  (void)unused;
  begin("", NULL);
  kept[3] = device_alloc(0, 100000);
  loam_stop();
  loam_device_free(kept[3], NULL);
  exit(0);
}

static void and_with_loam_stopped_first(void **state) {
  (void)state;
  assert_int_equal(run_in_child(stop_early, NULL), 0);
}

/* ---- Refusals */

static void use_all(void) {
  loam_ipc handle;
  void *at;
  if (emm->memalloc(emm->ctx, 0, 70000, &at) == LOAM_OK) {
    (void)loam_ipc_get(at, &handle);
    device_free(0, at, 70000);
  }
  if (emm->memhostalloc(emm->ctx, 0, 4096, 0, &at) == LOAM_OK)
    emm->memhostfree(emm->ctx, 0, at, 4096);
  if (emm->memalloc_managed(emm->ctx, 0, 4096, &at) == LOAM_OK)
    emm->memfree_managed(emm->ctx, 0, at, 4096);
  (void)loam_device_reset(0);
}

static uint64_t live_blocks(void) {
  struct loam_stats stats;
  ok(loam_stats(&stats));
  return stats.live_blocks;
}

TEST(nothing_is_lost_whichever_system_call_fails) {
  begin("", "return plain");
  use_all();
  uint64_t before = live_blocks();
  for (long nth = 1;; nth++) {
    long calls = lm_sys_calls();
    lm_sys_refuse(nth);
    use_all();
    lm_sys_refuse(0);
    ok(loam_device_reset(0));
    want(live_blocks() == before && standin_used(0) == 0);
    if (lm_sys_calls() - calls < nth) break;
  }
}

TEST(nothing_is_lost_whichever_call_of_the_driver_fails) {
  unsigned nth = 1;
  begin("", "return plain");
  use_all();
  uint64_t before = live_blocks();
  for (bool reached = true; reached; nth++) {
    unsigned long calls = standin_calls(NULL);
    unsigned blocks = standin_blocks();
    standin_fail(NULL, nth, 1, CUDA_ERROR_OUT_OF_MEMORY);
    use_all();
    standin_fail(NULL, 0, 0, CUDA_SUCCESS);
    reached = standin_calls(NULL) - calls >= nth;
    ok(loam_device_reset(0)); /* the wait of the reset before may have failed */
    want(live_blocks() == before);
    want(standin_blocks() <= blocks + 1); /* the driver may have refused to take one block back */
  }
  want(nth > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(serves_all_that_nbep_7_asks),
    cmocka_unit_test(serves_under_the_policy_and_the_scope),
    cmocka_unit_test(gives_nothing_back_that_work_may_use),
    cmocka_unit_test(a_free_in_a_capture_stays_pending),
    cmocka_unit_test(what_is_pending_goes_when_memory_is_wanted),
    cmocka_unit_test(allocates_and_frees_in_the_order_of_a_stream),
    cmocka_unit_test(memory_of_a_stream_is_mapped_and_that_of_nbep_7_is_not),
    cmocka_unit_test(a_reset_ends_all_and_what_was_may_still_be_freed),
    cmocka_unit_test(each_block_goes_back_to_who_made_it_whatever_the_policy_is_then),
    cmocka_unit_test(loam_is_not_its_own_manager),
    cmocka_unit_test(a_policy_reads_what_a_device_has_free),
    cmocka_unit_test(another_process_uses_what_is_shared_with_it),
    cmocka_unit_test(and_what_the_driver_made_whole),
    cmocka_unit_test(and_what_is_mapped_to_a_range_of_addresses),
    cmocka_unit_test(a_handle_names_its_device_in_every_process),
    cmocka_unit_test(so_does_a_handle_of_mapped_memory),
    cmocka_unit_test(and_what_was_allocated_by_other_functions),
    cmocka_unit_test(its_handles_are_the_drivers_own),
    cmocka_unit_test(a_handle_is_dead_when_its_block_is_freed),
    cmocka_unit_test(an_owner_that_ends_takes_its_handles_along),
    cmocka_unit_test(what_the_driver_cannot_share_is_refused_with_what_to_do),
    cmocka_unit_test(what_others_would_ask_for_needs_a_control_socket),
    cmocka_unit_test(memory_of_the_host_is_not_shared),
    cmocka_unit_test(a_device_that_is_absent_opens_no_handle),
    cmocka_unit_test(the_service_thread_gives_back_what_is_idle),
    cmocka_unit_test(a_context_may_end_under_live_blocks),
    cmocka_unit_test(a_context_may_end_under_what_a_pool_has),
    cmocka_unit_test(a_context_takes_no_memory_of_another_with_it),
    cmocka_unit_test(a_reset_ends_the_memory_of_its_context_alone),
    cmocka_unit_test(a_reset_of_a_context_spares_the_primary_one),
    cmocka_unit_test(a_broken_device_fails_in_words_and_the_other_serves),
    cmocka_unit_test(memory_runs_out_and_or_else_goes_on),
    cmocka_unit_test(a_fork_uses_the_host_alone),
    cmocka_unit_test(a_process_may_end_with_live_memory_in_any_order),
    cmocka_unit_test(and_while_the_service_thread_gives_back),
    cmocka_unit_test(and_with_loam_stopped_first),
    cmocka_unit_test(nothing_is_lost_whichever_system_call_fails),
    cmocka_unit_test(nothing_is_lost_whichever_call_of_the_driver_fails),
  };
  setenv("STANDIN_DEVICES", "2", 0);
  setenv("STANDIN_MEMORY", "64M", 0);
  if (!make_own_folder()) return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return !remove_own_folder() || failed;
}
