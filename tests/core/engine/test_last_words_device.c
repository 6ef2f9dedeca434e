/* test_last_words_device.c - last words about the memory of devices. */
#include <stdio.h>
#include <stdlib.h>

#include "child_tests.h"

static const char policy[] =
    "local weights = loam.device { name = 'weights', pool = 'sleep', id = 0 }\n"
    "local other = loam.device { name = 'other', id = 1 }\n"
    "local few = loam.device { name = 'few', id = 0, limit = 8 * loam.MiB }\n"
    "local kv = loam.device { name = 'kv', id = 0 }\n"
    "local odd = loam.device { name = 'odd', id = 0, pool = 'none' }\n"
    "local host = loam.host { name = 'host', limit = 80 * loam.MiB }\n"
    "return loam.policy { pick = function(req)\n"
    "  if req.tag:under 'weights' then return weights end\n"
    "  if req.tag:is 'other' then return other end\n"
    "  if req.tag:is 'few' then return few end\n"
    "  if req.tag:is 'host' then return host end\n"
    "  if req.tag:is 'odd' then return odd end\n"
    "  return kv end }\n";

static int events;
static char words[1024];

static void on_event(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind != LOAM_EVENT_LAST_WORDS) return;
  events++;
  snprintf(words, sizeof words, "%s", event->message);
}

static void *take(const char *tag, size_t size) {
  void *at = loam_device_alloc(loam_site_get(tag), size, NULL);
  want(at != NULL);
  return at;
}

static bool is_refused(const char *tag, size_t size) {
  return !loam_device_alloc(loam_site_get(tag), size, NULL);
}

/* Of 64 MiB, 40 are of weights. The host and another device have memory too. */
static void begin(void) {
  loam_on_event(on_event, NULL);
  ok(loam_policy_load_text("last", policy));
  want(loam_device_count() == 2 && loam_malloc(loam_site_get("host"), 70 * MIB) != NULL);
  (void)take("other", 50 * MIB);
  (void)take("weights.a", 20 * MIB);
  (void)take("weights.b", 20 * MIB);
}

TEST(they_say_who_has_the_device) {
  begin();
  (void)take("kv", 10 * MIB);
  want(is_refused("kv", 30 * MIB) && events == 1);
  want(!strcmp(words, "last words: no memory on device 0 for size 31457280 under tag 'kv'; most is "
                      "live under 'weights.a' (20971520 bytes in 1 block), 'weights.b' (20971520 "
                      "bytes in 1 block), 'kv' (10485760 bytes in 1 block); in the strategies "
                      "'weights' (41943040 bytes in 2 blocks), 'kv' (10485760 bytes in 1 block); "
                      "strategy 'kv' cannot serve it: cuMemCreate of 16777216 bytes on device 0: "
                      "CUDA_ERROR_OUT_OF_MEMORY (2), out of memory"));
  want(is_refused("kv", 30 * MIB) && events == 1);
}

TEST(what_sleeps_takes_no_memory) {
  begin();
  (void)take("kv", 10 * MIB);
  ok(loam_sleep("weights.a", "discard", NULL));
  want(is_refused("kv", 50 * MIB) && events == 1);
  want(strstr(words, "under 'weights.b' (20971520 bytes in 1 block), 'kv' (10485760"));
  want(!strstr(words, "weights.a"));
}

TEST(a_limit_of_the_strategy_is_a_reason) {
  begin();
  want(is_refused("few", 9 * MIB) && events == 1);
  want(strstr(words, "no memory on device 0 for size 9437184") && !strstr(words, "'other'"));
}

TEST(a_request_that_no_device_can_serve_has_none) {
  begin();
  want(is_refused("kv", 65 * MIB) && events == 0);
}

/* A pool asks the driver for pieces of 2 MiB, and 1 MiB is free. */
TEST(small_requests_run_out_too) {
  begin();
  (void)take("odd", 23 * MIB);
  want(is_refused("kv", 1000) && events == 1);
}

/* The driver fails, and the device has memory. */
TEST(another_failure_has_none) {
  begin();
  standin_fail("cuMemCreate", 1, 1000, CUDA_ERROR_UNKNOWN);
  want(is_refused("kv", 1000) && events == 0);
}

static int in_child(void *unused) {
  (void)unused;
  want(is_refused("kv", 1000) && says("a fork cannot use the GPU") && events == 0);
  return 0;
}

TEST(a_child_that_cannot_use_the_device_has_none) {
  begin();
  want(run_in_child(in_child, NULL) == 0);
}

TEST(those_of_the_host_leave_devices_out) {
  begin();
  want(!loam_malloc(loam_site_get("host"), 20 * MIB) && events == 1);
  want(strstr(words, "no memory for size 20971520 under tag 'host'; most is live under 'host' ("));
  want(!strstr(words, "weights") && !strstr(words, "other"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(they_say_who_has_the_device),
    cmocka_unit_test(what_sleeps_takes_no_memory),
    cmocka_unit_test(a_limit_of_the_strategy_is_a_reason),
    cmocka_unit_test(a_request_that_no_device_can_serve_has_none),
    cmocka_unit_test(small_requests_run_out_too),
    cmocka_unit_test(another_failure_has_none),
    cmocka_unit_test(a_child_that_cannot_use_the_device_has_none),
    cmocka_unit_test(those_of_the_host_leave_devices_out),
  };
  setenv("STANDIN_DEVICES", "2", 0);
  setenv("STANDIN_MEMORY", "64M", 0);
  setenv("LOAM_CONTROL", "0", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
