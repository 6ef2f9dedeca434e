/* test_device_idle.c - in a process without a service thread, the threads that free device memory
 * and pinned memory give it back to the driver: device_idle.h. Runs on the stand-in for a
 * driver. */
#include "child_tests.h"

#include <stdlib.h>

#include "device/device_pool.h"
#include "device/pinned.h"
#include "heap/pool.h"
#include "stream.h"

#define PEAK ((size_t)64 * MIB)
#define DEVICE                 \
  "local d = loam.device {}\n" \
  "return loam.policy { pick = function() return d end }\n"
#define PINNED                 \
  "local p = loam.pinned {}\n" \
  "return loam.policy { pick = function() return p end }\n"
#define HOST_TOO                                                                            \
  "local d, h = loam.device {}, loam.host {}\n"                                             \
  "return loam.policy { pick = function(r) if r.tag:is('host') then return h end return d " \
  "end }\n"

static char *block[PEAK / 4096];
static size_t blocks;

static CUstream stream; /* NULL: the default stream */

static void rise(size_t size, bool is_device) {
  loam_site *site = loam_site_get("work");
  for (blocks = 0; blocks < PEAK / size; blocks++) {
    char *p = is_device ? loam_device_alloc(site, size, stream) : loam_malloc(site, size);
    want(p);
    block[blocks] = p;
  }
}

static void fall(bool is_device) {
  for (size_t i = 0; i < blocks; i++) {
    if (is_device) loam_device_free(block[i], stream);
    else loam_free(block[i]);
  }
}

static void load(const char *text) {
  setenv("LOAM_CONTROL", "0", 1);
  ok(loam_policy_load_text("idle.lua", text));
}

/* After a peak, only the frees themselves give memory back, because a program may then sleep. At
 * most a quarter of the peak may stay. */
static void a_freed_peak_goes_back(size_t size, bool is_device) {
  rise(size, is_device);
  size_t high = is_device ? standin_used(0) : standin_registered();
  want(high >= PEAK);
  fall(is_device);
  want((is_device ? standin_used(0) : standin_registered()) <= PEAK / 4);
  want(lm_pool_is_valid() && lm_device_pool_is_valid() && lm_pinned_is_valid());
}

TEST(a_freed_peak_of_device_memory_goes_back) {
  load(DEVICE);
  a_freed_peak_goes_back(MIB, true);
}

TEST(a_freed_peak_of_small_device_blocks_goes_back) {
  load(DEVICE);
  a_freed_peak_goes_back(4096, true);
}

TEST(a_freed_peak_of_pinned_objects_goes_back) {
  load(PINNED);
  a_freed_peak_goes_back(4096, false);
}

TEST(a_freed_peak_of_pinned_blocks_goes_back) {
  load(PINNED);
  a_freed_peak_goes_back(MIB, false);
}

/* An allocation by the driver takes long, so memory that is needed again soon stays. */
TEST(a_peak_that_comes_again_and_again_stays) {
  load(DEVICE);
  unsigned long calls = 0;
  for (int i = 0; i < 20; i++) {
    if (i == 3) calls = standin_calls("cuMemCreate") + standin_calls("cuMemAlloc_v2");
    rise(MIB, true);
    fall(true);
  }
  want(standin_calls("cuMemCreate") + standin_calls("cuMemAlloc_v2") == calls);
}

/* Memory that stayed goes back once it is idle, by the work of a thread that only allocates some
 * host memory. */
TEST(memory_that_stayed_goes_back_when_it_is_idle) {
  load(HOST_TOO);
  for (int i = 0; i < 4; i++) {
    rise(MIB, true);
    fall(true);
  }
  want(standin_used(0) > PEAK / 4);
  loam_site *host = loam_site_get("host");
  for (int naps = 0; standin_used(0) > PEAK / 4 && be_patient(&naps);)
    for (int i = 0; i < 200; i++) block[i] = loam_malloc(host, 3000);
  want(standin_used(0) <= PEAK / 4);
}

/* Memory that work may still use stays until the work has ended. */
TEST(memory_that_work_uses_stays) {
  load(DEVICE);
  stream = new_stream();
  standin_hold();
  rise(MIB, true);
  for (size_t i = 0; i < blocks; i++)
    want(standin_write(stream, (CUdeviceptr)(uintptr_t)block[i], 1, MIB) == CUDA_SUCCESS);
  fall(true);
  want(standin_used(0) >= PEAK);
  standin_release();
  for (int naps = 0; standin_used(0) > PEAK / 4 && be_patient(&naps);)
    loam_device_free(loam_device_alloc(NULL, 4096, stream), stream);
  want(standin_used(0) <= PEAK / 4);
}

TEST(what_the_host_wants_to_keep_stays) {
  load(DEVICE);
  loam_device_keep(PEAK);
  rise(MIB, true);
  fall(true);
  want(standin_used(0) >= PEAK);
  loam_device_keep(SIZE_MAX);
  rise(MIB, true);
  fall(true);
  want(standin_used(0) >= PEAK);
}

/* ---- The driver's own pools */

#define DRIVER                                                                             \
  "local d, c = loam.device { name = 'd', pool = 'driver' }, loam.device { name = 'c' }\n" \
  "local n = loam.device { name = 'n', pool = 'none' }\n"                                  \
  "return loam.policy { pick = function(r) if r.tag:is('c') then return c end if r.tag:is" \
  "('n') then return n end return d end }\n"

static size_t reserved(void) {
  struct loam_device_info info;
  ok(loam_device_info(0, &info));
  want(info.used <= info.reserved);
  return info.reserved;
}

/* Leaves so much free memory in the driver's pool that nothing else fits on the device. */
static size_t fill_and_free(void) {
  size_t all, free;
  ok(loam_device_memory(0, &free, &all));
  size_t size = all / 8 * 7, before = standin_used(0);
  void *p = loam_device_alloc(NULL, size, NULL);
  want(p && standin_used(0) == before + size && reserved() == before + size);
  loam_device_free(p, NULL);
  want(cuCtxSynchronize() == CUDA_SUCCESS);
  want(standin_used(0) == before + size && reserved() == before + size);
  return size;
}

TEST(a_trim_returns_what_the_pool_of_the_driver_keeps) {
  load(DRIVER);
  void *small = loam_device_alloc(NULL, MIB, NULL);
  size_t size = MIB;
  loam_device_free(loam_device_alloc(NULL, 9 * MIB, NULL), NULL);
  want(loam_device_trim(0) == 9 * MIB && standin_used(0) == size && reserved() == size);
  loam_device_free(small, NULL);
  want(loam_device_trim(-1) == size && !standin_used(0) && !reserved());
  want(!loam_device_trim(-1));
}

TEST(other_requests_get_what_the_pool_of_the_driver_keeps) {
  load(DRIVER);
  (void)new_stream(); /* makes the primary context current */
  const char *tags[] = { "c", "n" };
  for (int i = 0; i < 2; i++) {
    size_t size = fill_and_free();
    void *p = loam_device_alloc(loam_site_get(tags[i]), size / 2, NULL);
    want(p);
    loam_device_free(p, NULL);
    (void)loam_device_trim(-1);
    want(!standin_used(0));
  }
}

TEST(the_pool_of_the_driver_returns_idle_memory_by_itself) {
  load(DRIVER);
  (void)new_stream(); /* makes the primary context current */
  void *p = loam_device_alloc(NULL, MIB, NULL);
  size_t size = fill_and_free();
  want(lm_device_pool_decay() && standin_used(0) >= size); /* it was in use until now */
  for (int i = 0; i < 3; i++) (void)lm_device_pool_decay();
  want(standin_used(0) == MIB && !lm_device_pool_decay());
  loam_device_free(p, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_freed_peak_of_device_memory_goes_back),
    cmocka_unit_test(a_freed_peak_of_small_device_blocks_goes_back),
    cmocka_unit_test(a_freed_peak_of_pinned_objects_goes_back),
    cmocka_unit_test(a_freed_peak_of_pinned_blocks_goes_back),
    cmocka_unit_test(a_peak_that_comes_again_and_again_stays),
    cmocka_unit_test(memory_that_stayed_goes_back_when_it_is_idle),
    cmocka_unit_test(memory_that_work_uses_stays),
    cmocka_unit_test(what_the_host_wants_to_keep_stays),
    cmocka_unit_test(a_trim_returns_what_the_pool_of_the_driver_keeps),
    cmocka_unit_test(other_requests_get_what_the_pool_of_the_driver_keeps),
    cmocka_unit_test(the_pool_of_the_driver_returns_idle_memory_by_itself),
  };
  return cmocka_run_group_tests_name("device_idle", tests, NULL, NULL);
}
