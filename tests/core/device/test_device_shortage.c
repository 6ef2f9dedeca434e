/* test_device_shortage.c - where a device or the host has too little memory for a request, the
 * request gets memory that loam itself keeps free, of whatever kind that memory is. */

#include <sys/mman.h>

#include "child_tests.h"
#include "device/device_pool.h"
#include "device/extent.h"
#include "folder.h"
#include "os/available.h"
#include "stream.h"

/* A device has 64 MiB, and as much host memory can be registered: room for one of two. */
enum { MOST = 48 * MIB, SMALL = 16 * 1024, SMALLS = MOST / SMALL };

static const char policy[] =
    "local cache, chunks = loam.device {}, loam.device { pool = 'chunks' }\n"
    "local none, driver = loam.device { pool = 'none' }, loam.device { pool = 'driver' }\n"
    "local sleep, pinned = loam.device { pool = 'sleep' }, loam.pinned {}\n"
    "return loam.policy { pick = function(req)\n"
    "  if req.tag:is 'chunks' then return chunks end\n"
    "  if req.tag:is 'none' then return none end\n"
    "  if req.tag:is 'driver' then return driver end\n"
    "  if req.tag:is 'sleep' then return sleep end\n"
    "  if req.tag:is 'pinned' then return pinned end\n"
    "  return cache end }\n";

/* The pools keep all of their memory, so the shortage does not depend on time. */
static void begin(void) {
  ok(loam_policy_load_text("shortage", policy));
  loam_device_keep(SIZE_MAX);
  want(loam_device_count() == 1);
}

static void *take(const char *tag, size_t size) {
  void *at = loam_device_alloc(loam_site_get(tag), size, NULL);
  want(at != NULL);
  return at;
}

/* ---- Memory of a device */

static void serves_all(const char *from) {
  static const char *const to[] = { "cache", "chunks", "none", "driver", "sleep" };
  begin();
  for (unsigned i = 0; i < sizeof to / sizeof *to; i++) {
    loam_free(take(from, MOST));
    loam_free(take(to[i], MOST));
    (void)loam_device_trim(-1);
  }
  want(standin_used(0) == 0);
}

TEST(memory_that_is_mapped_serves_all) { serves_all("cache"); }
TEST(memory_in_chunks_serves_all) { serves_all("chunks"); }
TEST(memory_of_one_block_serves_all) { serves_all("none"); }
TEST(memory_of_the_drivers_pool_serves_all) { serves_all("driver"); }
TEST(memory_that_can_sleep_serves_all) { serves_all("sleep"); }

/* A request on a captured stream gets no memory, and leaves the capture as it is. Later it is
 * served. */
static void fails_only_in_a_capture(size_t size) {
  CUgraph graph;
  CUstream stream = new_stream();
  want(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
  want(!loam_device_alloc(loam_site_get("none"), size, stream));
  want(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  loam_free(take("none", size));
}

/* Memory that a captured graph may use is no free memory, and loam does not wait for the device
 * then. */
TEST(a_capture_is_not_ended_to_make_room) {
  begin();
  loam_free(take("cache", MOST));
  fails_only_in_a_capture(MOST);
}

/* While a stream is captured, the memory of a block that can sleep is kept. */
TEST(memory_freed_in_a_capture_serves_all_later) {
  static const char *const to[] = { "cache", "chunks", "none", "driver", "sleep" };
  CUgraph graph;
  begin();
  CUstream stream = new_stream();
  for (unsigned i = 0; i < sizeof to / sizeof *to; i++) {
    void *at = loam_device_alloc(loam_site_get("sleep"), MOST, stream);
    want(at != NULL);
    want(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    loam_free(at);
    want(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && standin_used(0) == MOST);
    loam_free(take(to[i], MOST));
    (void)loam_device_trim(-1);
  }
}

/* ---- Frees without a stream, which are collected */

/* Frees memory as NBEP 7 does. It stays in use until a wait for the device. */
static void collect(void *at, size_t size) {
  const loam_manager *emm = loam_manager_get();
  emm->memfree(emm->ctx, 0, at, size);
  want(loam_owns(at));
}

enum { PART = 12 * MIB, REST = 54 * MIB };

/* Frees that are collected end with a wait for the device, which would end the capture. */
TEST(a_capture_is_not_ended_to_end_frees_that_are_collected) {
  begin();
  collect(take("cache", PART), PART);
  fails_only_in_a_capture(REST);
}

TEST(frees_that_are_collected_serve_all) {
  static const char *const to[] = { "cache", "chunks", "none", "driver", "sleep" };
  begin();
  for (unsigned i = 0; i < sizeof to / sizeof *to; i++) {
    collect(take("cache", PART), PART);
    loam_free(take(to[i], REST));
    (void)loam_device_trim(-1);
  }
}

TEST(frees_that_are_collected_serve_managed_memory) {
  begin();
  collect(take("cache", PART), PART);
  void *at = loam_managed_alloc(NULL, REST);
  want(at != NULL);
  loam_free(at);
}

TEST(frees_that_are_collected_serve_what_wakes) {
  begin();
  void *at = take("sleep", REST);
  ok(loam_sleep(NULL, "discard", NULL));
  collect(take("cache", PART), PART);
  ok(loam_wake(NULL, NULL));
  loam_free(at);
}

TEST(pinned_memory_whose_frees_are_collected_serves_all) {
  begin();
  for (int i = 0; i < 2; i++) {
    void *pinned = loam_pinned_alloc(loam_site_get("pinned"), PART, 0);
    collect(pinned, PART);
    void *at = i ? take("sleep", REST) : loam_pinned_alloc(loam_site_get("pinned"), REST, 0);
    want(at != NULL);
    ok(loam_sleep(NULL, NULL, NULL));
    loam_free(at);
    (void)loam_device_trim(-1);
  }
}

/* The limit of a strategy counts memory whose free is collected. */
TEST(frees_that_are_collected_make_room_in_a_limit) {
  ok(loam_policy_load_text("limit",
                           "local few = loam.device { limit = 16 * loam.MiB }\n"
                           "return loam.policy { pick = function(req) return few end }\n"));
  collect(take("few", PART), PART);
  loam_free(take("few", PART));
}

/* ---- Pinned memory */

/* Allocates pinned memory of MOST bytes in blocks of `size`, and frees it. */
static void use_pinned(size_t size) {
  static void *at[SMALLS];
  loam_site *site = loam_site_get("pinned");
  size_t n = MOST / size;
  for (size_t i = 0; i < n; i++) want((at[i] = loam_pinned_alloc(site, size, 0)) != NULL);
  for (size_t i = 0; i < n; i++) loam_free(at[i]);
  want(standin_registered() > 32 * MIB);
}

TEST(pinned_memory_of_small_blocks_serves_a_large_one) {
  begin();
  use_pinned(SMALL);
  use_pinned(MOST);
  use_pinned(SMALL);
}

/* Small blocks are of the primary context, and other contexts have pools of their own. */
TEST(pinned_memory_serves_another_context) {
  CUcontext other;
  begin();
  use_pinned(MOST);
  want(cuCtxCreate_v2(&other, 0, 0) == CUDA_SUCCESS);
  use_pinned(MOST);
  use_pinned(SMALL);
}

static void serves_memory_that_falls_asleep(size_t size) {
  begin();
  void *at = take("sleep", MOST);
  use_pinned(size);
  ok(loam_sleep("sleep", NULL, NULL));
  ok(loam_wake("sleep", NULL));
  loam_free(at);
}

TEST(pinned_memory_serves_what_falls_asleep) { serves_memory_that_falls_asleep(MOST); }
TEST(pinned_memory_of_small_blocks_serves_what_falls_asleep) {
  serves_memory_that_falls_asleep(SMALL);
}

static void serves_memory_that_is_pinned(size_t size) {
  begin();
  void *at = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  want(at != MAP_FAILED);
  use_pinned(size);
  ok(loam_pin(at, MOST, 0));
  ok(loam_unpin(at));
  want(munmap(at, MOST) == 0);
}

TEST(pinned_memory_serves_what_a_host_pins) { serves_memory_that_is_pinned(MOST); }
TEST(pinned_memory_of_small_blocks_serves_what_a_host_pins) { serves_memory_that_is_pinned(SMALL); }

/* ---- A control group that has no more memory: the kernel would kill the process */

/* Puts the process in a control group of 128 MiB, of which 28 MiB are left. */
static void enter_group(void) {
  static char self[64], groups[64];
  want(mkdtemp(folder));
  snprintf(self, sizeof self, "%s/self", folder);
  snprintf(groups, sizeof groups, "%s/groups", folder);
  make_folder("groups");
  make_folder("groups/a");
  write_file("self", "0::/a\n");
  write_file("groups/a/memory.max", "134217728\n");
  write_file("groups/a/memory.current", "104857600\n");
  lm_available_pretend(self, groups, "/proc/meminfo");
}

static void leave_group(void) {
  lm_available_pretend("/proc/self/cgroup", "/sys/fs/cgroup", "/proc/meminfo");
  want(remove_folder(NULL) == 0);
}

TEST(a_large_pinned_block_needs_room_in_the_group) {
  begin();
  loam_site *site = loam_site_get("pinned");
  enter_group();
  want(!loam_pinned_alloc(site, MOST, 0));
  want(says("no memory for 50331648 bytes of pinned memory"));
  leave_group();
  void *at = loam_pinned_alloc(site, MOST, 0);
  want(at != NULL);
  loam_free(at);
}

TEST(memory_that_falls_asleep_needs_room_in_the_group) {
  begin();
  void *at = take("sleep", MOST);
  enter_group();
  want(loam_sleep("sleep", NULL, NULL) == LOAM_ENOMEM && loam_asleep("sleep") == 0);
  want(says("no memory for 50331648 bytes of pinned memory"));
  leave_group();
  ok(loam_sleep("sleep", NULL, NULL));
  loam_free(at);
}

/* ---- System calls that fail */

/* Allocates large and small blocks of each kind, and frees them. Returns whether there was memory
 * for all. */
static bool go_through(void) {
  static const char *const tag[] = { "cache", "chunks", "none", "driver", "sleep", "pinned" };
  bool all = true;
  for (unsigned i = 0; i < sizeof tag / sizeof *tag; i++) {
    loam_site *site = loam_site_get(tag[i]);
    for (size_t size = 1000; size <= 8 * MIB; size = size * 100 + 1) {
      void *p = i < 5 ? loam_device_alloc(site, size, NULL) : loam_pinned_alloc(site, size, 0);
      all = all && p;
      loam_free(p);
    }
    (void)loam_device_trim(-1);
  }
  return all;
}

enum { MORE = 42 };

/* Returns MORE if there are calls after call number *nth. */
static int go_without_a_call(void *nth) {
  begin();
  long before = lm_sys_calls();
  lm_sys_refuse(*(long *)nth);
  (void)go_through();
  lm_sys_refuse(0);
  bool was_last = lm_sys_calls() - before < *(long *)nth;
  (void)loam_device_trim(-1); /* the one that missed a call may have left memory */
  want(standin_used(0) == 0 && standin_registered() == 0);
  want(lm_device_pool_is_valid() && lm_extent_table_is_valid());
  lm_sys_sleep(12000000); /* for 10 ms after a refusal, requests are refused without a try */
  want(go_through());
  want(standin_used(0) == 0 && standin_registered() == 0 && standin_violations() == 0);
  want(lm_device_pool_is_valid() && lm_extent_table_is_valid());
  return was_last ? 0 : MORE;
}

/* Each time in a new process: a pool reserves its addresses, and maps its tables, only once. */
static void nothing_is_lost_whichever_system_call_fails(void **state) {
  (void)state;
  int status = MORE;
  long nth = 1;
  for (; status == MORE && nth < 1000; nth++) status = run_in_child(go_without_a_call, &nth);
  assert_int_equal(status, 0);
  assert_true(nth > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(memory_that_is_mapped_serves_all),
    cmocka_unit_test(memory_in_chunks_serves_all),
    cmocka_unit_test(memory_of_one_block_serves_all),
    cmocka_unit_test(memory_of_the_drivers_pool_serves_all),
    cmocka_unit_test(memory_that_can_sleep_serves_all),
    cmocka_unit_test(a_capture_is_not_ended_to_make_room),
    cmocka_unit_test(memory_freed_in_a_capture_serves_all_later),
    cmocka_unit_test(a_capture_is_not_ended_to_end_frees_that_are_collected),
    cmocka_unit_test(frees_that_are_collected_serve_all),
    cmocka_unit_test(frees_that_are_collected_serve_managed_memory),
    cmocka_unit_test(frees_that_are_collected_serve_what_wakes),
    cmocka_unit_test(pinned_memory_whose_frees_are_collected_serves_all),
    cmocka_unit_test(frees_that_are_collected_make_room_in_a_limit),
    cmocka_unit_test(pinned_memory_of_small_blocks_serves_a_large_one),
    cmocka_unit_test(pinned_memory_serves_another_context),
    cmocka_unit_test(pinned_memory_serves_what_falls_asleep),
    cmocka_unit_test(pinned_memory_of_small_blocks_serves_what_falls_asleep),
    cmocka_unit_test(pinned_memory_serves_what_a_host_pins),
    cmocka_unit_test(pinned_memory_of_small_blocks_serves_what_a_host_pins),
    cmocka_unit_test(a_large_pinned_block_needs_room_in_the_group),
    cmocka_unit_test(memory_that_falls_asleep_needs_room_in_the_group),
    cmocka_unit_test(nothing_is_lost_whichever_system_call_fails),
  };
  setenv("STANDIN_MEMORY", "64M", 0);
  setenv("STANDIN_LOCKABLE", "64M", 0);
  setenv("LOAM_CONTROL", "0", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
