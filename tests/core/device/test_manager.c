/* test_manager.c - the manager that allocates device memory: the driver, a table of the host, or a
 * library; and the time when memory is freed. Each test runs in a process of its own, because a
 * process keeps its choice of the manager. */
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/ipc.h"
#include "api/pin.h"
#include "child_tests.h"
#include "device/manager.h"
#include "os/error.h"

#define good(call) want((call) == LM_GPU_OK)

static void *take(lm_manager_kind kind, int device, size_t size) {
  void *at = NULL;
  good(lm_manager_alloc(kind, device, size, 0, &at));
  return at;
}

/* ---- The driver as the manager */

TEST(the_driver_is_the_manager_by_default) {
  void *at[LM_MANAGER_KINDS];
  for (int kind = 0; kind < LM_MANAGER_KINDS; kind++) {
    want(!lm_manager_is_custom((lm_manager_kind)kind));
    at[kind] = take((lm_manager_kind)kind, 1, MIB);
  }
  want(standin_used(1) >= MIB && standin_blocks() == 3);
  memset(at[LM_MANAGER_HOST], 1, MIB);
  for (int kind = 0; kind < LM_MANAGER_KINDS; kind++)
    lm_manager_free((lm_manager_kind)kind, 1, at[kind], MIB);
  want(standin_blocks() == 3); /* the frees are pending */
  want(lm_manager_flush(1) == 3 * MIB && standin_blocks() == 0);
}

TEST(refuses_a_device_that_is_not_there) {
  void *at;
  want(lm_manager_alloc(LM_MANAGER_DEVICE, 2, 64, 0, &at) != LM_GPU_OK);
  want(says("device 2: this machine has devices 0-1"));
}

/* ---- Pending frees */

static void take_and_free(int times, int device, size_t size) {
  for (int i = 0; i < times; i++)
    lm_manager_free(LM_MANAGER_DEVICE, device, take(LM_MANAGER_DEVICE, device, size), size);
}

TEST(defers_ten_frees_and_no_more) {
  unsigned long frees = standin_calls("cuMemFree");
  take_and_free(10, 0, 4096);
  take_and_free(10, 1, 4096);
  want(standin_calls("cuMemFree") == frees);
  take_and_free(1, 0, 4096);
  want(standin_calls("cuMemFree") == frees + 11);
  want(standin_used(0) == 0 && standin_used(1) > 0);
}

TEST(defers_a_fifth_of_the_device_at_most) {
  take_and_free(1, 0, 12 * MIB); /* the device has 64 MiB */
  want(standin_used(0) == 12 * MIB);
  take_and_free(1, 0, 1 * MIB);
  want(standin_used(0) == 0);
}

TEST(the_limits_can_be_set) {
  loam_defer_limit(2, -1);
  take_and_free(2, 0, 4096);
  want(standin_blocks() == 2);
  take_and_free(1, 0, 4096);
  want(standin_blocks() == 0);
  loam_defer_limit(-1, 0);
  take_and_free(1, 0, 4096);
  want(standin_blocks() == 0);
}

TEST(frees_nothing_while_cleanup_is_deferred) {
  void *at;
  loam_defer_enter();
  loam_defer_enter();
  take_and_free(20, 0, 3 * MIB);
  want(standin_used(0) == 60 * MIB);
  want(lm_manager_flush(-1) == 0);
  want(lm_manager_alloc(LM_MANAGER_DEVICE, 0, 32 * MIB, 0, &at) == LM_GPU_NO_MEMORY);
  want(says("CUDA_ERROR_OUT_OF_MEMORY"));
  ok(loam_defer_leave());
  want(standin_used(0) == 60 * MIB);
  ok(loam_defer_leave());
  want(standin_used(0) == 0);
  want(loam_defer_leave() == LOAM_ESTATE && says("cleanup is not deferred"));
}

TEST(frees_pending_memory_when_memory_is_short) {
  take_and_free(4, 0, 3 * MIB);
  void *at = take(LM_MANAGER_DEVICE, 0, 60 * MIB);
  want(standin_used(0) == 60 * MIB);
  lm_manager_free(LM_MANAGER_DEVICE, 0, at, 60 * MIB);
}

TEST(a_reset_frees_pending_memory_deferred_or_not) {
  loam_defer_enter();
  take_and_free(3, 0, MIB);
  lm_manager_reset(0);
  want(standin_used(0) == 0);
  lm_manager_reset(1); /* device 1 was never used */
  lm_manager_reset(77);
  take_and_free(1, 0, MIB);
}

/* ---- A table of the host */

static struct {
  int initialized[2], resets, deferred;
  size_t live;
  loam_status answer, readiness;
  uintptr_t next;
} mine;

static loam_status my_initialize(void *ctx, int device) {
  want(ctx == &mine);
  mine.initialized[device]++;
  return mine.readiness;
}

/* Returns addresses that no code may access. */
static loam_status my_memalloc(void *ctx, int device, size_t size, void **out) {
  want(ctx == &mine && device < 2);
  if (mine.answer != LOAM_OK) return mine.answer;
  mine.live += size;
  *out = (void *)mine.next;
  if (mine.next) mine.next += size;
  return LOAM_OK;
}

static void my_memfree(void *ctx, int device, void *at, size_t size) {
  want(ctx == &mine && device < 2 && at);
  mine.live -= size;
}

static loam_status my_reset(void *ctx, int device) {
  (void)ctx;
  (void)device;
  mine.resets++;
  return LOAM_OK;
}

static void my_enter(void *ctx) { ((void)ctx, mine.deferred++); }
static void my_leave(void *ctx) { ((void)ctx, mine.deferred--); }

static loam_manager table(void) {
  mine.next = 0x100000;
  return (loam_manager){ .size = sizeof(loam_manager),
                         .interface_version = 1,
                         .name = "mine",
                         .ctx = &mine,
                         .initialize = my_initialize,
                         .memalloc = my_memalloc,
                         .memfree = my_memfree,
                         .reset = my_reset,
                         .defer_enter = my_enter,
                         .defer_leave = my_leave };
}

TEST(a_table_serves_what_it_has_and_the_driver_the_rest) {
  static loam_manager m;
  size_t free, total;
  void *at;
  m = table();
  ok(loam_manager_set(&m));
  want(lm_manager_is_custom(LM_MANAGER_DEVICE) && !lm_manager_is_custom(LM_MANAGER_HOST));
  want(lm_manager_is_valid());
  want(take(LM_MANAGER_DEVICE, 1, 4096) == (void *)0x100000 && mine.live == 4096);
  want(standin_used(1) == 0);
  lm_manager_free(LM_MANAGER_HOST, 1, take(LM_MANAGER_HOST, 1, 4096), 4096);
  lm_manager_free(LM_MANAGER_MANAGED, 1, take(LM_MANAGER_MANAGED, 1, 4096), 4096);
  lm_manager_free(LM_MANAGER_DEVICE, 1, (void *)0x100000, 4096);
  want(lm_manager_flush(-1) == 3 * 4096 && mine.live == 0 && standin_blocks() == 0);
  const loam_manager *whole_table = lm_manager(1);
  ok(whole_table->get_memory_info(&mine, 1, &free, &total));
  want(total == 64 * MIB);
  ok(whole_table->memalloc_async(&mine, 1, 512, NULL,
                                 &at)); /* memalloc serves: there is no memalloc_async */
  want(mine.live == 512);
  whole_table->memfree_async(&mine, 1, at, 512, NULL);
  want(mine.live == 0);
}

TEST(each_device_is_initialized_once_and_after_a_reset) {
  static loam_manager m;
  m = table();
  ok(loam_manager_set(&m));
  take(LM_MANAGER_DEVICE, 0, 256);
  take(LM_MANAGER_DEVICE, 0, 256);
  take(LM_MANAGER_HOST, 1, 256);
  want(mine.initialized[0] == 1 && mine.initialized[1] == 1);
  lm_manager_reset(0);
  want(mine.resets == 1);
  take(LM_MANAGER_DEVICE, 0, 256);
  want(mine.initialized[0] == 2 && mine.initialized[1] == 1);
  loam_defer_enter();
  want(mine.deferred == 1);
  ok(loam_defer_leave());
  want(mine.deferred == 0);
}

TEST(checks_the_addresses_that_a_table_returns) {
  static loam_manager m;
  void *at;
  m = table();
  ok(loam_manager_set(&m));
  mine.readiness = LOAM_EUNSUPPORTED;
  want(lm_manager_alloc(LM_MANAGER_DEVICE, 0, 256, 0, &at) != LM_GPU_OK);
  want(says("manager \"mine\": initialize of device 0: "));
  mine.readiness = LOAM_OK;
  mine.answer = LOAM_ENOMEM;
  want(lm_manager_alloc(LM_MANAGER_DEVICE, 0, 256, 0, &at) == LM_GPU_NO_MEMORY);
  want(says("manager \"mine\": memalloc of 256 bytes on device 0: no memory"));
  mine.answer = LOAM_OK;
  mine.next += 128;
  want(lm_manager_alloc(LM_MANAGER_DEVICE, 0, 256, 0, &at) == LM_GPU_FAILED);
  want(says("which is not aligned to 256 bytes") && mine.live == 0);
  mine.next = 0;
  want(lm_manager_alloc(LM_MANAGER_DEVICE, 0, 256, 0, &at) == LM_GPU_FAILED);
  want(says("which is not an address"));
}

static loam_status my_handle(void *ctx, int device, void *at, loam_ipc *out) {
  want(ctx == &mine && device == 0 && at);
  memset(out->handle, 7, sizeof out->handle);
  return LOAM_OK;
}

/* Writes bytes where the next calls have their local variables. */
static __attribute__((noinline)) void soil_stack(void) {
  volatile char bytes[16384];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = 0x5a;
}

TEST(a_table_may_fill_in_the_handle_alone) {
  static loam_manager m;
  loam_ipc handle;
  lm_gpu_info info;
  m = table();
  m.get_ipc_handle = my_handle;
  ok(loam_manager_set(&m));
  char *p = loam_device_alloc(NULL, 4096, NULL);
  good(lm_gpu()->info(0, &info));
  soil_stack();
  ok(loam_ipc_get(p, &handle));
  want(handle.handle[0] == 7 && handle.device == 0 && handle.pid == getpid());
  want(!handle.offset && handle.size == 4096);
  want(!memcmp(handle.uuid, info.uuid, sizeof info.uuid));
  loam_device_free(p, NULL);
}

static loam_status my_memory(void *ctx, int device, size_t *free, size_t *total) {
  want(ctx == &mine && mine.initialized[device]);
  if (mine.answer != LOAM_OK) return mine.answer;
  *free = 123;
  *total = 456;
  return LOAM_OK;
}

TEST(a_table_says_how_much_memory_there_is) {
  static loam_manager m;
  size_t free, total;
  m = table();
  m.get_memory_info = my_memory;
  ok(loam_manager_set(&m));
  ok(loam_device_memory(1, &free, &total));
  want(free == 123 && total == 456);
  ok(loam_device_memory(0, NULL, NULL));
  free = total = 0;
  ok(loam_manager_get()->get_memory_info(NULL, 0, &free, &total));
  want(free == 123 && total == 456);
  mine.answer = LOAM_ENOMEM;
  want(loam_device_memory(1, &free, &total) == LOAM_ENOMEM);
  want(says("manager \"mine\": get_memory_info of device 1: no memory"));
  mine.answer = LOAM_EIO;
  want(loam_device_memory(1, &free, &total) == LOAM_EIO);
  mine.answer = 12; /* a manager that does not keep to loam.h */
  want(loam_device_memory(1, &free, &total) == LOAM_EINTERNAL && says("not a status of loam"));
  mine.answer = LOAM_OK;
  want(loam_device_memory(2, &free, &total) == LOAM_EINVAL);
}

TEST(policies_see_what_a_table_says) {
  static loam_manager m;
  loam_owner_info owner;
  m = table();
  m.get_memory_info = my_memory;
  ok(loam_manager_set(&m));
  ok(loam_policy_load_text("short.lua", "local short, ample = loam.host { name = 'short' }, "
                                        "loam.host { name = 'ample' }\n"
                                        "return loam.policy { pick = function(req)\n"
                                        "  return loam.device(0).free < 1000 and short or ample\n"
                                        "end }\n"));
  void *p = loam_malloc(loam_site_get("any"), 100);
  ok(loam_owner(p, &owner));
  want(!strcmp(owner.strategy, "short"));
  loam_free(p);
}

static void keep_text(void *ctx, const char *text, size_t length) {
  snprintf(ctx, 65536, "%.*s", (int)length, text);
}

TEST(the_machine_has_the_memory_that_a_table_says) {
  static loam_manager m;
  static char text[65536];
  m = table();
  m.get_memory_info = my_memory;
  ok(loam_manager_set(&m));
  ok(loam_machine(keep_text, text));
  want(strstr(text, "\"total\":456,") && strstr(text, "\"free\":123}"));
  mine.answer = LOAM_ENOMEM;
  ok(loam_machine(keep_text, text));
  want(strstr(text, "get_memory_info of device 1: no memory") && !strstr(text, "\"free\":123}"));
}

TEST(defers_a_fifth_of_what_a_table_says_there_is) {
  static loam_manager m;
  m = table();
  m.get_memory_info = my_memory;
  ok(loam_manager_set(&m));
  take_and_free(1, 0, 64);
  want(mine.live == 64); /* 64 bytes of 456 are still pending */
  mine.next += 192;
  take_and_free(1, 0, 64);
  want(mine.live == 0);
}

TEST(a_manager_can_be_set_after_the_free_memory_was_read) {
  static loam_manager m;
  size_t free, total;
  ok(loam_device_memory(0, &free, &total));
  want(total == 64 * MIB);
  m = table();
  ok(loam_manager_set(&m));
  ok(loam_device_memory(0, &free, &total)); /* the table has no entry for this */
  want(total == 64 * MIB);
}

static loam_status a_part(void *ctx, int device, size_t *free, size_t *total) {
  loam_status status = loam_device_memory(device, free, total);
  *total /= 2;
  return ctx == &mine ? status : LOAM_EINVAL;
}

/* If an entry of the table calls loam_device_memory, the driver answers. */
TEST(a_table_may_give_a_part_of_what_the_driver_has) {
  static loam_manager m;
  size_t free, total;
  m = table();
  m.get_memory_info = a_part;
  ok(loam_manager_set(&m));
  ok(loam_device_memory(0, &free, &total));
  want(total == 32 * MIB);
}

/* If the driver returned this status, the memory of the context would be lost. A table that returns
 * it has failed in one call. */
TEST(a_table_that_says_estate_has_failed_once) {
  loam_manager m = table();
  void *at;
  ok(loam_manager_set(&m));
  mine.answer = LOAM_ESTATE;
  want(lm_manager_alloc(LM_MANAGER_DEVICE, 0, 256, 0, &at) == LM_GPU_FAILED && says("memalloc"));
  mine.answer = LOAM_OK;
  good(lm_manager_alloc(LM_MANAGER_DEVICE, 0, 256, 0, &at));
}

TEST(a_section_that_began_before_the_manager_was_chosen_is_not_its_own) {
  loam_manager m = table();
  ok(loam_manager_set(&m));
  loam_defer_enter();
  (void)take(LM_MANAGER_DEVICE, 0, 256);
  loam_defer_enter();
  want(mine.deferred == 1);
  ok(loam_defer_leave());
  ok(loam_defer_leave());
  want(mine.deferred == 0);
}

TEST(refuses_an_inconsistent_table) {
  loam_manager m = table();
  m.interface_version = 2;
  want(loam_manager_set(&m) == LOAM_EUNSUPPORTED);
  want(says("manager \"mine\" has interface version 2: loam has 1"));
  m = table();
  m.memfree = NULL;
  want(loam_manager_set(&m) == LOAM_EINVAL && says("of memalloc and memfree only one is there"));
  m = table();
  m.size = 8;
  want(loam_manager_set(&m) == LOAM_EINVAL && says("size is 8"));
  want(!lm_manager_is_custom(LM_MANAGER_DEVICE));
}

/* A table that was compiled with an older header lacks the last entries. */
TEST(accepts_a_table_of_an_older_header) {
  static loam_manager m;
  m = table();
  m.size = offsetof(loam_manager, memhostalloc);
  m.memhostalloc = (void *)1;
  ok(loam_manager_set(&m));
  take(LM_MANAGER_DEVICE, 0, 256);
  lm_manager_free(LM_MANAGER_HOST, 0, take(LM_MANAGER_HOST, 0, 256), 256);
  want(mine.live == 256 && mine.resets == 0);
}

TEST(a_manager_stays_once_it_was_used) {
  static loam_manager m;
  m = table();
  ok(loam_manager_set(&m));
  ok(loam_manager_set(NULL));
  take(LM_MANAGER_DEVICE, 0, 256);
  want(loam_manager_set(&m) == LOAM_ESTATE);
  want(says("memory of a device was asked for already: manager \"driver\" stays"));
}

/* ---- A library */

static int events;
static char words[256];

static void listen(void *ctx, const loam_event *event) {
  (void)ctx;
  events += event->kind == LOAM_EVENT_MANAGER;
  snprintf(words, sizeof words, "%s", event->message);
}

/* PLUGIN is examples/manager/budget.c, which allows 8 MiB. */
TEST(a_library_brings_a_manager_and_it_stays) {
  loam_manager m = table();
  void *at;
  setenv("LOAM_MANAGER", getenv("LOAM_PLUGIN"), 1);
  loam_on_event(listen, NULL);
  ok(loam_manager_set(&m));
  want(events == 1 && strstr(words, "manager \"mine\" is not taken: LOAM_MANAGER names "));
  take(LM_MANAGER_DEVICE, 0, 6 * MIB);
  want(standin_used(0) == 6 * MIB);
  want(lm_manager_alloc(LM_MANAGER_DEVICE, 0, 3 * MIB, 0, &at) == LM_GPU_NO_MEMORY);
  want(says("manager \"budget\": memalloc of 3145728 bytes on device 0: no memory"));
  ok(loam_manager_set(&m));
  want(events == 2);
  want(!strcmp(lm_manager(0)->name, "budget"));
}

TEST(without_the_manager_of_the_library_nothing_is_allocated) {
  void *at;
  setenv("LOAM_MANAGER", "/nowhere/libmine.so", 1);
  for (int i = 0; i < 2; i++) {
    want(lm_manager_alloc(LM_MANAGER_DEVICE, 0, 256, 0, &at) == LM_GPU_UNSUPPORTED);
    want(says("LOAM_MANAGER: /nowhere/libmine.so"));
  }
  want(lm_manager_is_custom(LM_MANAGER_DEVICE));
}

TEST(a_library_without_the_symbol_says_so) {
  void *at;
  setenv("LOAM_MANAGER", "libm.so.6", 1);
  want(lm_manager_alloc(LM_MANAGER_HOST, 0, 256, 0, &at) == LM_GPU_UNSUPPORTED);
  want(says("LOAM_MANAGER=libm.so.6: it exports no loam_manager_plugin"));
}

TEST(a_library_of_another_version_is_refused) {
  void *at;
  setenv("LOAM_MANAGER", getenv("LOAM_PLUGIN_NEWER_INTERFACE"), 1);
  want(lm_manager_alloc(LM_MANAGER_DEVICE, 0, 256, 0, &at) == LM_GPU_UNSUPPORTED);
  want(says("plugin_newer_interface.so: manager \"tomorrow\" has interface version 2: loam has 1"));
}

/* ---- Pins */

TEST(pins_memory_of_the_host) {
  char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ok(loam_pin(at, 4096, LM_GPU_MAPPED));
  ok(loam_pin(at, 4096, 0));
  want(standin_blocks() == 1);
  want(loam_pin(at, 8192, 0) == LOAM_EINVAL && says("they are pinned as 4096 bytes"));
  want(loam_pin(at, 4096, LM_GPU_PORTABLE) == LOAM_EINVAL && says("without LOAM_PINNED_PORTABLE"));
  want(loam_pin(at + 100, 64, 0) != LOAM_OK && says("(712)"));
  want(loam_pin(at, 4096, LM_GPU_WRITE_COMBINED) == LOAM_EINVAL && says("flags 4"));
  want(loam_pin(NULL, 4096, 0) == LOAM_EINVAL && loam_pin(at, 0, 0) == LOAM_EINVAL);
  ok(loam_unpin(at));
  want(standin_blocks() == 1);
  ok(loam_unpin(at));
  want(standin_blocks() == 0);
  want(loam_unpin(at) == LOAM_EBADPTR && says("not where a pinned range begins"));
  munmap(at, 8192);
}

static struct { int device, pins, unpins, opens, closes; } held;

static loam_status count_pin(void *ctx, int device, void *at, size_t size, unsigned flags) {
  (void)ctx, (void)at, (void)size, (void)flags;
  held.device = device;
  held.pins++;
  return LOAM_OK;
}

static void count_unpin(void *ctx, int device, void *at, size_t size) {
  (void)ctx, (void)device, (void)at, (void)size;
  held.unpins++;
}

static loam_status count_open(void *ctx, int device, const loam_ipc *handle, void **out) {
  (void)ctx, (void)device, (void)handle;
  *out = (void *)(uintptr_t)(0x10000 + 0x1000 * held.opens++);
  return LOAM_OK;
}

static void count_close(void *ctx, int device, void *at) {
  (void)ctx, (void)device, (void)at;
  held.closes++;
}

static loam_manager counting_table(void) {
  return (loam_manager){ .size = sizeof(loam_manager),
                         .interface_version = 1,
                         .name = "counting",
                         .mempin = count_pin,
                         .memunpin = count_unpin,
                         .open_ipc_handle = count_open,
                         .close_ipc_handle = count_close };
}

/* loam_pin is the first call of loam here, so loam has not started the driver yet. */
TEST(pins_for_the_device_whose_context_is_current) {
  loam_manager counting = counting_table();
  CUcontext context;
  char at[64];
  ok(loam_manager_set(&counting));
  want(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 1) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  ok(loam_pin(at, sizeof at, 0));
  want(held.device == 1);
  ok(loam_unpin(at));
}

TEST(a_reset_ends_pins_and_opened_handles) {
  loam_manager counting = counting_table();
  loam_ipc handle = { .size = 64, .pid = 1 };
  char at[64];
  void *old, *now;
  ok(loam_manager_set(&counting));
  ok(loam_pin(at, sizeof at, 0));
  ok(loam_pin(at, sizeof at, 0));
  ok(loam_ipc_open(&handle, 0, &old));
  ok(loam_device_reset(1));
  want(held.unpins == 0 && held.closes == 0);
  ok(loam_device_reset(0));
  want(held.unpins == 1 && held.closes == 1 && lm_pin_is_valid() && lm_ipc_is_valid());
  ok(loam_unpin(at));
  ok(loam_pin(at, 32, LM_GPU_MAPPED));
  ok(loam_ipc_open(&handle, 0, &now));
  want(held.pins == 2 && held.opens == 2 && now != old);
  want(lm_pin_is_valid() && lm_ipc_is_valid());
  ok(loam_ipc_close(old));
  ok(loam_unpin(at));
  want(held.unpins == 1 && held.closes == 1);
  ok(loam_ipc_close(now));
  ok(loam_unpin(at));
  want(held.unpins == 2 && held.closes == 2);
  want(loam_unpin(at) == LOAM_EBADPTR && loam_ipc_close(old) == LOAM_EBADPTR);
}

TEST(a_reset_of_a_context_ends_its_pins_alone) {
  const loam_manager *table = loam_manager_get();
  CUcontext one, two;
  static _Alignas(4096) char first[4096], second[4096];
  want(loam_device_count() == 2);
  want(cuCtxCreate_v2(&one, 0, 0) == CUDA_SUCCESS);
  ok(loam_pin(first, sizeof first, 0));
  want(cuCtxCreate_v2(&two, 0, 0) == CUDA_SUCCESS);
  ok(loam_pin(second, sizeof second, 0));
  ok(table->reset(table->ctx, 0));
  want(cuMemHostUnregister(second) != CUDA_SUCCESS); /* the reset has already unregistered it */
  standin_forgive();
  want(cuCtxSetCurrent(one) == CUDA_SUCCESS);
  want(cuMemHostUnregister(first) == CUDA_SUCCESS);
  ok(loam_unpin(second));
}

static bool is_usable(void *p) {
  return cuMemsetD8_v2((CUdeviceptr)(uintptr_t)p, 7, 4096) == CUDA_SUCCESS && *(char *)p == 7;
}

/* The pinned memory of a context ends with that context only. Small objects belong to the primary
 * context. */
static void end_one_of_two_contexts(size_t size) {
  enum { FLAGS = LOAM_PINNED_MAPPED | LOAM_PINNED_PORTABLE };
  const loam_manager *table = loam_manager_get();
  loam_owner_info owner;
  CUcontext one, two;
  void *of_primary = loam_pinned_alloc(NULL, size, FLAGS); /* no context is current */
  want(cuCtxCreate_v2(&one, 0, 0) == CUDA_SUCCESS);
  void *first = loam_pinned_alloc(NULL, size, FLAGS);
  want(cuCtxCreate_v2(&two, 0, 0) == CUDA_SUCCESS);
  void *second = loam_pinned_alloc(NULL, size, FLAGS);
  want(of_primary && first && second && is_usable(first) && is_usable(second));
  ok(table->reset(table->ctx, 0));
  /* An object belongs to the primary context, which a reset of `two` does not touch. */
  bool is_object = size < MIB;
  want(loam_owner(first, &owner) == LOAM_OK);
  want((loam_owner(second, &owner) == LOAM_OK) == is_object);
  if (is_object) loam_free(second);
  second = loam_pinned_alloc(NULL, size, FLAGS);
  loam_free(first);
  want(cuCtxDestroy_v2(one) == CUDA_SUCCESS && cuCtxSetCurrent(two) == CUDA_SUCCESS);
  want(is_usable(second) && is_usable(of_primary));
  void *third = loam_pinned_alloc(NULL, size, FLAGS);
  want(is_usable(third));
  loam_free(second);
  loam_free(third);
  CUcontext primary;
  want(cuCtxDestroy_v2(two) == CUDA_SUCCESS);
  want(cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(primary) == CUDA_SUCCESS && is_usable(of_primary));
  want(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS && cuCtxSetCurrent(NULL) == CUDA_SUCCESS);
  loam_free(of_primary);
}

TEST(a_context_takes_no_pinned_memory_of_another_with_it) {
  want(loam_device_count() == 2);
  end_one_of_two_contexts(4096);
  end_one_of_two_contexts(MIB);
}

/* The host may make the primary context current by itself, as CUDA's runtime does. */
TEST(pinned_objects_are_of_the_primary_context) {
  CUcontext primary;
  loam_owner_info owner;
  want(loam_device_count() == 2 && cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(primary) == CUDA_SUCCESS);
  void *p = loam_pinned_alloc(NULL, 4096, LOAM_PINNED_MAPPED);
  want(is_usable(p) && loam_owner(p, &owner) == LOAM_OK);
  want(standin_registered() < MIB); /* a pool of device_pool.h begins with more */
  loam_free(p);
}

/* The first pinned objects that a process needs stay when the context that was current then
 * ends. */
TEST(no_context_of_the_host_has_pinned_objects) {
  CUcontext one, two;
  want(loam_device_count() == 2 && cuCtxCreate_v2(&one, 0, 0) == CUDA_SUCCESS);
  void *first = loam_pinned_alloc(NULL, 4096, LOAM_PINNED_MAPPED);
  want(is_usable(first));
  loam_free(first);
  want(cuCtxDestroy_v2(one) == CUDA_SUCCESS && cuCtxCreate_v2(&two, 0, 0) == CUDA_SUCCESS);
  void *second = loam_pinned_alloc(NULL, 4096, LOAM_PINNED_MAPPED);
  want(is_usable(second));
  loam_free(second);
  want(cuCtxDestroy_v2(two) == CUDA_SUCCESS);
}

/* ---- Refusals */

static void use_all(void) {
  char *host = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void *at;
  for (int kind = 0; kind < LM_MANAGER_KINDS; kind++) {
    if (lm_manager_alloc((lm_manager_kind)kind, 0, 4096, 0, &at) == LM_GPU_OK)
      lm_manager_free((lm_manager_kind)kind, 0, at, 4096);
    else want(*loam_error());
  }
  if (host == MAP_FAILED) return;
  if (loam_pin(host, 4096, 0) == LOAM_OK) loam_unpin(host);
  (void)lm_manager_flush(0);
  munmap(host, 4096);
}

TEST(nothing_is_lost_whichever_system_call_fails) {
  use_all();
  for (long nth = 1;; nth++) {
    long before = lm_sys_calls();
    lm_sys_refuse(nth);
    use_all();
    lm_sys_refuse(0);
    want(standin_blocks() == 0);
    if (lm_sys_calls() - before < nth) break;
  }
}

/* If the driver refuses to free memory, the driver keeps it. All other memory is freed. */
TEST(nothing_is_lost_whichever_call_of_the_driver_fails) {
  unsigned nth = 1;
  use_all();
  for (bool reached = true; reached; nth++) {
    unsigned long before = standin_calls(NULL);
    unsigned blocks = standin_blocks();
    standin_fail(NULL, nth, 1, CUDA_ERROR_OUT_OF_MEMORY);
    use_all();
    standin_fail(NULL, 0, 0, CUDA_SUCCESS);
    reached = standin_calls(NULL) - before >= nth;
    want(standin_blocks() <= blocks + 1);
  }
  want(nth > 10);
}

static int use_in_child(void *at) {
  void *got;
  if (lm_manager_alloc(LM_MANAGER_DEVICE, 0, 64, 0, &got) != LM_GPU_FORKED) return 1;
  if (!says("a fork cannot use the GPU")) return 2;
  if (loam_pin(&got, 8, 0) != LOAM_ESTATE) return 3;
  for (int i = 0; i < 20; i++) lm_manager_free(LM_MANAGER_DEVICE, 0, at, 64);
  return lm_manager_flush(-1) ? 4 : 0;
}

TEST(a_forked_child_gets_no_device_memory) {
  void *at = take(LM_MANAGER_DEVICE, 0, 64);
  take_and_free(3, 0, 64);
  want(run_in_child(use_in_child, at) == 0);
  want(standin_blocks() == 4);
}

/* ---- Threads */

static void *use_much(void *arg) {
  int device = (int)(intptr_t)arg & 1;
  for (int i = 0; i < 300; i++) {
    void *at;
    if (i % 50 == 0) loam_defer_enter();
    if (lm_manager_alloc(LM_MANAGER_DEVICE, device, 4096, 0, &at) == LM_GPU_OK)
      lm_manager_free(LM_MANAGER_DEVICE, device, at, 4096);
    if (i % 50 == 25) loam_defer_leave();
  }
  return NULL;
}

TEST(any_thread_may_allocate_and_free) {
  pthread_t threads[4];
  for (intptr_t i = 0; i < 4; i++) threads[i] = start_thread(use_much, (void *)i);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  lm_manager_flush(-1);
  want(standin_blocks() == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_driver_is_the_manager_by_default),
    cmocka_unit_test(refuses_a_device_that_is_not_there),
    cmocka_unit_test(defers_ten_frees_and_no_more),
    cmocka_unit_test(defers_a_fifth_of_the_device_at_most),
    cmocka_unit_test(the_limits_can_be_set),
    cmocka_unit_test(frees_nothing_while_cleanup_is_deferred),
    cmocka_unit_test(frees_pending_memory_when_memory_is_short),
    cmocka_unit_test(a_reset_frees_pending_memory_deferred_or_not),
    cmocka_unit_test(a_table_serves_what_it_has_and_the_driver_the_rest),
    cmocka_unit_test(each_device_is_initialized_once_and_after_a_reset),
    cmocka_unit_test(checks_the_addresses_that_a_table_returns),
    cmocka_unit_test(a_table_may_fill_in_the_handle_alone),
    cmocka_unit_test(a_table_says_how_much_memory_there_is),
    cmocka_unit_test(policies_see_what_a_table_says),
    cmocka_unit_test(the_machine_has_the_memory_that_a_table_says),
    cmocka_unit_test(defers_a_fifth_of_what_a_table_says_there_is),
    cmocka_unit_test(a_manager_can_be_set_after_the_free_memory_was_read),
    cmocka_unit_test(a_table_may_give_a_part_of_what_the_driver_has),
    cmocka_unit_test(a_table_that_says_estate_has_failed_once),
    cmocka_unit_test(a_section_that_began_before_the_manager_was_chosen_is_not_its_own),
    cmocka_unit_test(refuses_an_inconsistent_table),
    cmocka_unit_test(accepts_a_table_of_an_older_header),
    cmocka_unit_test(a_manager_stays_once_it_was_used),
    cmocka_unit_test(a_library_brings_a_manager_and_it_stays),
    cmocka_unit_test(without_the_manager_of_the_library_nothing_is_allocated),
    cmocka_unit_test(a_library_without_the_symbol_says_so),
    cmocka_unit_test(a_library_of_another_version_is_refused),
    cmocka_unit_test(pins_memory_of_the_host),
    cmocka_unit_test(pins_for_the_device_whose_context_is_current),
    cmocka_unit_test(a_reset_ends_pins_and_opened_handles),
    cmocka_unit_test(a_reset_of_a_context_ends_its_pins_alone),
    cmocka_unit_test(a_context_takes_no_pinned_memory_of_another_with_it),
    cmocka_unit_test(pinned_objects_are_of_the_primary_context),
    cmocka_unit_test(no_context_of_the_host_has_pinned_objects),
    cmocka_unit_test(nothing_is_lost_whichever_system_call_fails),
    cmocka_unit_test(nothing_is_lost_whichever_call_of_the_driver_fails),
    cmocka_unit_test(a_forked_child_gets_no_device_memory),
    cmocka_unit_test(any_thread_may_allocate_and_free),
  };
  setenv("STANDIN_DEVICES", "2", 0);
  setenv("STANDIN_MEMORY", "64M", 0);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
