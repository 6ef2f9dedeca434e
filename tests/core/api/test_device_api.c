/* test_device_api.c - device memory under a policy: the device functions of loam.h, and
 * device/provider.h. */
#include "test.h"

#include <errno.h>

#include "engine/engine.h"
#include "fake_gpu.h"
#include "heap/quota.h"
#include "loam.h"

static void load(const char *strategies, const char *pick) {
  char text[2048];
  snprintf(text, sizeof text, "%s return loam.policy { pick = function(req) %s end }\n", strategies,
           pick);
  if (loam_policy_load_text("test", text)) fail_msg("%s", loam_error());
}

static loam_owner_info owner_of(const void *p) {
  loam_owner_info owner;
  if (loam_owner(p, &owner)) fail_msg("%s", loam_error());
  return owner;
}

static uint64_t fallbacks(void) {
  struct loam_stats stats;
  assert_int_equal(loam_stats(&stats), LOAM_OK);
  return stats.fallbacks;
}

static void expect_kind(const void *p, const char *kind) {
  assert_non_null(p);
  assert_string_equal(owner_of(p).kind, kind);
}

#define HOST "local host = loam.host { name = 'host' } "

static void a_block_is_known_by_what_decided_it(void **state) {
  (void)state;
  int stream;
  load("local d = loam.device { name = 'weights', id = 1, pool = 'none' } ", "return d");
  loam_site *site = loam_site_get("device.owner");
  char *p = loam_device_alloc(site, 1000, &stream);
  assert_non_null(p);
  assert_int_equal((uintptr_t)p % 256, 0);
  loam_owner_info owner = owner_of(p + 999);
  assert_string_equal(owner.tag, "device.owner");
  assert_string_equal(owner.strategy, "weights");
  assert_string_equal(owner.kind, "device");
  assert_ptr_equal(owner.base, p);
  assert_true(owner.size >= 1000);
  assert_int_equal(owner.device, 1);
  assert_ptr_equal(owner.stream, &stream);
  assert_int_equal(loam_usable_size(p), owner.size);
  assert_int_equal(loam_owns(p), 1);
  loam_device_free(p, &stream);
  assert_int_equal(loam_owner(p, &owner), LOAM_EBADPTR);
  assert_int_equal(fake.live, 0);
  void *host = loam_malloc(site, 10);
  assert_int_equal(owner_of(host).device, -1);
  loam_free(host);
}

static void what_a_call_asks_for_bounds_what_it_gets(void **state) {
  (void)state;
  load(HOST "local chain = loam.device { name = 'd' }:or_else(host)", "return chain");
  void *p = loam_malloc(NULL, 100), *large = loam_malloc(NULL, 1 << 20);
  void *d = loam_device_alloc(NULL, 100, NULL);
  expect_kind(p, "host");
  expect_kind(large, "host");
  expect_kind(d, "device");
  loam_free(p);
  loam_free(large);
  loam_free(d);
  load(HOST, "return host");
  uint64_t before = fallbacks();
  expect_kind(d = loam_device_alloc(NULL, 100, NULL), "device");
  expect_kind(p = loam_managed_alloc(NULL, 100), "managed");
  expect_kind(large = loam_pinned_alloc(NULL, 100, 0), "pinned");
  assert_int_equal(fallbacks(), before + 3);
  loam_free(d);
  loam_free(p);
  loam_free(large);
  load("local d = loam.device {}", "return d");
  expect_kind(p = loam_malloc(NULL, 100), "host");
  assert_string_equal(owner_of(p).strategy, "default");
  loam_free(p);
  assert_int_equal(fallbacks(), before + 4);
}

static void pinned_memory_serves_devices_where_it_is_mapped(void **state) {
  (void)state;
  load("local p = loam.pinned { name = 'p' }", "return p");
  void *d = loam_device_alloc(NULL, 100, NULL), *p = loam_malloc(NULL, 100);
  expect_kind(d, "device");
  expect_kind(p, "pinned");
  memset(p, 1, 100);
  loam_free(d);
  loam_free(p);
  load("local p = loam.pinned { name = 'p', mapped = true }", "return p");
  expect_kind(d = loam_device_alloc(NULL, 100, NULL), "pinned");
  loam_free(d);
  load("local p = loam.pinned { name = 'p', write_combined = true }", "return p");
  p = loam_pinned_alloc(NULL, 100, LOAM_PINNED_PORTABLE);
  assert_int_equal(fake.flags, LM_GPU_MAPPED | LM_GPU_PORTABLE | LM_GPU_WRITE_COMBINED);
  loam_free(p);
  assert_null(loam_pinned_alloc(NULL, 100, 8));
  assert_string_equal(loam_error(), "flags 0x8: they must be a sum of LOAM_PINNED_*");
  assert_int_equal(errno, EINVAL);
}

static void managed_memory_prefers_a_place(void **state) {
  (void)state;
  load("local m = loam.managed { id = 1, prefer = 0 }", "return m");
  int before = fake.preferred;
  char *p = loam_calloc(NULL, 10, 10);
  expect_kind(p, "managed");
  for (int i = 0; i < 100; i++) assert_int_equal(p[i], 0);
  assert_int_equal(owner_of(p).device, 1);
  assert_int_equal(fake.preferred, before + 1);
  loam_free(p);
}

static void the_device_is_the_current_one_or_the_first(void **state) {
  (void)state;
  load("local d = loam.device { id = 'current' }", "return d");
  for (int current = -1; current < FAKE_DEVICES; current++) {
    fake.current = current;
    void *p = loam_device_alloc(NULL, 100, NULL);
    assert_int_equal(owner_of(p).device, current < 0 ? 0 : current);
    fake.current = -1;
    loam_device_free(p, NULL);
  }
}

static void sum(void *ctx, const loam_stats_row *row) {
  if (!strcmp(row->tag, "device.figures")) *(loam_stats_row *)ctx = *row;
}

static void figures_and_live_count_it(void **state) {
  (void)state;
  load(HOST "local d = loam.device { name = 'd', pool = 'none' }", "return d");
  loam_site *site = loam_site_get("device.figures");
  void *p = loam_device_alloc(site, 2048, NULL);
  loam_stats_row row = { 0 };
  assert_int_equal(loam_stats_each(sum, &row), LOAM_OK);
  assert_string_equal(row.kind, "device");
  assert_string_equal(row.strategy, "d");
  assert_int_equal(row.live_bytes, 2048);
  assert_int_equal(row.live_blocks, 1);
  loam_free(p);
}

static void live_is_read_by_a_policy(void **state) {
  (void)state;
  load("local a = loam.device { name = 'a' } local b = loam.managed { name = 'b' }",
       "if req.tag:is 'device.live' and req.live >= 2048 then return b end return a");
  loam_site *site = loam_site_get("device.live");
  void *p = loam_device_alloc(site, 2048, NULL), *q = loam_device_alloc(site, 1, NULL);
  assert_string_equal(owner_of(p).strategy, "a");
  assert_string_equal(owner_of(q).strategy, "b");
  loam_free(p);
  loam_free(q);
  p = loam_device_alloc(site, 1, NULL);
  assert_string_equal(owner_of(p).strategy, "a");
  loam_free(p);
}

/* Returns the number of the quota from which this process has drawn. */
static uint32_t quota_in_use(void) {
  uint32_t quota = 1;
  while (quota < LM_QUOTAS && !lm_quota_used(quota)) quota++;
  return quota;
}

static void a_shared_limit_counts_devices_of_other_processes(void **state) {
  (void)state;
  lm_quota_self self = { .owner = UINT64_C(1) << LM_QUOTA_MS_SHIFT | (uint64_t)getpid() };
  lm_quota_table *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(table, MAP_FAILED);
  lm_quota_attach(table, &self);
  load("local a = loam.device { name = 'a', id = 1, limit = 8192, shared = 'kv' }"
       "          :or_else(loam.managed { name = 'b' }) ",
       "return a");
  loam_site *site = loam_site_get("device.shared");
  char *p = loam_device_alloc(site, 4096, NULL);
  expect_kind(p, "device");
  uint32_t quota = quota_in_use();
  assert_int_equal(lm_quota_used(quota), 4096);
  assert_int_equal(table->row[quota - 1].id.device, 2); /* the ordinal + 1 */
  table->holder[7].owner = UINT64_C(1) << LM_QUOTA_MS_SHIFT | (uint64_t)getppid();
  table->drawn[7][quota - 1] = 4096;
  table->head.taken = 8;
  char *q = loam_device_alloc(site, 4096, NULL);
  expect_kind(q, "managed");
  table->drawn[7][quota - 1] = 0;
  char *r = loam_device_alloc(site, 4096, NULL);
  expect_kind(r, "device");
  loam_device_free(p, NULL);
  loam_device_free(q, NULL);
  loam_device_free(r, NULL);
  assert_int_equal(lm_quota_used(quota), 0);
  lm_quota_detach();
  munmap(table, sizeof *table);
}

static void a_limit_holds_and_a_chain_goes_on(void **state) {
  (void)state;
  load("local a = loam.device { name = 'a', limit = 4096 }:or_else(loam.managed { name = 'b' })",
       "return a");
  uint64_t before = fallbacks();
  void *p = loam_device_alloc(NULL, 4096, NULL), *q = loam_device_alloc(NULL, 1, NULL);
  assert_string_equal(owner_of(p).strategy, "a");
  assert_string_equal(owner_of(q).strategy, "b");
  assert_int_equal(fallbacks(), before + 1);
  loam_free(p);
  loam_free(q);
  p = loam_device_alloc(NULL, 4096, NULL);
  assert_string_equal(owner_of(p).strategy, "a");
  loam_free(p);
}

static void denied_is_denied(void **state) {
  (void)state;
  load("local no = loam.deny {}", "return no");
  assert_null(loam_device_alloc(NULL, 1, NULL));
  assert_null(loam_managed_alloc(NULL, 1));
  assert_null(loam_pinned_alloc(NULL, 1, 0));
  assert_non_null(strstr(loam_error(), "the policy denies it"));
}

/* The event callback itself may call loam and fail. */
static int shortfalls;
static void on_shortfall(void *ctx, const loam_event *event) {
  (void)ctx;
  shortfalls += event->kind == LOAM_EVENT_SHORTFALL;
  assert_null(loam_malloc(NULL, SIZE_MAX / 2));
}

static void want_of_memory_says_what_the_driver_said(void **state) {
  (void)state;
  load("local d = loam.device { name = 'd', pool = 'none' }", "return d");
  loam_device_trim(-1);
  fake.limit = 1000;
  loam_on_event(on_shortfall, NULL);
  assert_null(loam_device_alloc(loam_site_get("device.full"), 5000, NULL));
  loam_on_event(NULL, NULL);
  assert_int_equal(shortfalls, 1);
  assert_string_equal(loam_error(),
                      "size 5000 under tag 'device.full': strategy 'd' cannot serve it: device 0: "
                      "no 5000 bytes of memory left");
  assert_int_equal(errno, ENOMEM);
  fake.limit = 0;
}

static void reallocating_moves_by_the_device(void **state) {
  (void)state;
  int stream;
  load("local a = loam.device { name = 'a', pool = 'none' }", "return a");
  char *p = loam_device_alloc(NULL, 100, &stream);
  memset(p, 7, 100); /* memory of the fake GPU is host memory */
  fake.last = NULL;
  char *q = loam_realloc(NULL, p, 5000);
  expect_kind(q, "device");
  assert_ptr_equal(fake.last, &stream);
  for (int i = 0; i < 100; i++) assert_int_equal(q[i], 7);
  load(HOST, "return host");
  expect_kind(p = loam_realloc(NULL, q, 50), "device");
  loam_free(p);
  expect_kind(p = loam_managed_alloc(NULL, 50), "managed");
  expect_kind(p = loam_realloc(NULL, p, 500), "managed");
  loam_free(p);
  loam_device_trim(-1);
  assert_int_equal(fake.live, 0);
}

static void a_copy_that_fails_leaves_the_block_and_says_why(void **state) {
  (void)state;
  load("local a = loam.device { name = 'a', pool = 'none' }", "return a");
  char *p = loam_device_alloc(loam_site_get("device.copy"), 100, NULL);
  fake.copy_fails = true;
  assert_null(loam_realloc(NULL, p, 5000));
  fake.copy_fails = false;
  assert_string_equal(loam_error(),
                      "size 5000 under tag 'device.copy': strategy 'a' cannot serve it: device 0: "
                      "the copy failed");
  assert_int_equal(owner_of(p).size, 100);
  loam_free(p);
  assert_int_equal(fake.live, 0);
}

/* The policy names no strategy for devices any more, and the default one has no memory. */
static void a_block_that_shrinks_stays_if_there_is_no_memory_for_a_smaller_one(void **state) {
  (void)state;
  load("local a = loam.device { name = 'a', pool = 'none' }", "return a");
  char *p = loam_device_alloc(NULL, 50 << 20, NULL);
  load(HOST, "return host");
  loam_device_trim(-1);
  fake.limit = fake.bytes[0];
  assert_ptr_equal(loam_realloc(NULL, p, 40 << 20), p);
  assert_null(loam_realloc(NULL, p, 60 << 20));
  fake.limit = 0;
  assert_int_equal(owner_of(p).size, 50 << 20);
  loam_free(p);
  loam_device_trim(-1);
  assert_int_equal(fake.live, 0);
}

static void the_drivers_pool_is_ordered_by_stream(void **state) {
  (void)state;
  int one, other;
  load("local d = loam.device { pool = 'driver' }", "return d");
  void *p = loam_device_alloc(NULL, 100, &one);
  assert_ptr_equal(fake.last, &one);
  loam_device_free(p, &other);
  assert_ptr_equal(fake.last, &other);
  p = loam_device_alloc(NULL, 100, &one);
  fake.last = NULL;
  loam_free(p);
  assert_ptr_equal(fake.last, &one);
}

static void what_is_collected_goes_back_by_a_trim(void **state) {
  (void)state;
  load("local d = loam.device { pool = 'none' }", "return d");
  loam_device_trim(-1);
  loam_defer_limit(10, 1);
  loam_free(loam_device_alloc(NULL, 100, NULL));
  assert_int_equal(fake.live, 1);
  assert_int_equal(loam_device_trim(-1), 100);
  assert_int_equal(fake.live, 0);
  loam_defer_limit(0, 0);
}

static unsigned bad_frees;
static void hear(void *ctx, const loam_event *event) {
  (void)ctx;
  bad_frees += event->kind == LOAM_EVENT_BAD_FREE;
}

static void bad_frees_are_reported(void **state) {
  (void)state;
  load("local d = loam.device {}", "return d");
  loam_on_event(hear, NULL);
  char *p = loam_device_alloc(NULL, 1000, NULL);
  loam_device_free(p + 1, NULL);
  assert_int_equal(bad_frees, 1);
  loam_device_free(p, NULL);
  loam_device_free(p, NULL);
  assert_int_equal(bad_frees, 2);
  loam_device_free(NULL, NULL);
  void *host = loam_malloc(NULL, 10);
  loam_device_free(host, NULL);
  assert_int_equal(bad_frees, 2);
  loam_on_event(NULL, NULL);
}

static char told[512];
static void note_words(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind == LOAM_EVENT_BAD_FREE) snprintf(told, sizeof told, "%s", event->message);
}

/* Blocks of a pool and of a driver, and managed memory. */
static void a_second_free_names_the_block(void **state) {
  (void)state;
  load("local d, n = loam.device { name = 'd' }, loam.device { name = 'n', pool = 'none' }\n"
       "local m = loam.managed { name = 'm' }",
       "return req.tag:is 'd' and d or req.tag:is 'n' and n or m");
  loam_on_event(note_words, NULL);
  for (const char *tag = "dnm"; *tag; tag++) {
    char name[] = { *tag, 0 }, expected[128];
    loam_site *site = loam_site_get(name);
    char *p = *tag == 'm' ? loam_managed_alloc(site, 1024) : loam_device_alloc(site, 1024, NULL);
    loam_free(p);
    *told = 0;
    loam_free(p);
    snprintf(expected, sizeof expected,
             "free of %p, a freed block of 1024 bytes of tag '%s' and strategy '%s'", (void *)p,
             name, name);
    assert_memory_equal(told, expected, strlen(expected));
  }
  loam_on_event(NULL, NULL);
}

static void devices_are_described(void **state) {
  (void)state;
  struct loam_device_info info;
  size_t free, total;
  assert_int_equal(loam_device_count(), FAKE_DEVICES);
  assert_int_equal(loam_device_info(1, &info), LOAM_OK);
  assert_string_equal(info.name, "fake 1");
  assert_int_equal(info.total, LM_GIB);
  assert_int_equal(loam_device_memory(1, &free, &total), LOAM_OK);
  assert_int_equal(total, LM_GIB);
  assert_int_equal(loam_device_memory(1, NULL, NULL), LOAM_OK);
  assert_int_equal(loam_device_info(2, &info), LOAM_EINVAL);
  assert_string_equal(loam_error(), "device 2: this machine has devices 0-1");
}

static void the_figures_of_a_device_include_its_pool(void **state) {
  (void)state;
  struct loam_device_info info;
  load("local d = loam.device { id = 1 }", "return d");
  void *p = loam_device_alloc(NULL, 5000, NULL);
  assert_int_equal(loam_device_info(1, &info), LOAM_OK);
  assert_int_equal(info.used, loam_usable_size(p));
  assert_int_equal(info.reserved, fake.bytes[1]);
  loam_free(p);
  assert_int_equal(loam_device_trim(1), info.reserved);
  assert_int_equal(fake.bytes[1], 0);
}

/* A driver has made these blocks one by one. */
static void the_figures_of_a_device_include_blocks_of_their_own(void **state) {
  (void)state;
  struct loam_device_info info;
  load("local d = loam.device { id = 1, pool = 'none' }", "return d");
  loam_device_trim(-1);
  void *p = loam_device_alloc(NULL, 5000, NULL);
  assert_int_equal(loam_device_info(1, &info), LOAM_OK);
  assert_int_equal(info.used, 5000);
  assert_int_equal(info.reserved, 5000);
  assert_int_equal(loam_device_info(0, &info), LOAM_OK);
  assert_int_equal(info.reserved, 0);
  loam_free(p);
  assert_int_equal(loam_device_info(1, &info), LOAM_OK);
  assert_int_equal(info.reserved, 0);
}

static void what_is_gone_is_only_booked_out(void **state) {
  (void)state;
  load("local d = loam.device { pool = 'none' }", "return d");
  char *p = loam_device_alloc(loam_site_get("device.gone"), 1000, NULL);
  loam_owner_info owner;
  fake.gone = true;
  loam_free(p);
  assert_int_equal(loam_owner(p, &owner), LOAM_EBADPTR);
  assert_null(loam_device_alloc(NULL, 10, NULL));
  fake.gone = false;
  fake_release(0, (uintptr_t)p);
}

static void a_context_that_went_takes_its_memory_along(void **state) {
  (void)state;
  load("local d = loam.device { id = 0 }", "return d");
  char *p = loam_device_alloc(NULL, 1000, NULL);
  loam_owner_info owner;
  fake.gone = true;
  assert_null(loam_device_alloc(NULL, 100 * LM_MIB, NULL));
  fake.gone = false;
  char *q = loam_device_alloc(NULL, 1000, NULL); /* a new context: no old memory is used */
  assert_non_null(q);
  assert_true(q < p - 2 * LM_MIB || q >= p + 2 * LM_MIB);
  assert_int_equal(loam_owner(p + 10, &owner), LOAM_OK);
  loam_free(p);
  loam_free(q);
  assert_int_equal(loam_owner(p, &owner), LOAM_EBADPTR);
}

static int try_in_child(void *block) {
  if (loam_device_alloc(NULL, 10, NULL)) return 1;
  if (!strstr(loam_error(), "a fork cannot use the GPU")) return 2;
  loam_free(block);
  loam_owner_info owner;
  if (loam_owner(block, &owner) != LOAM_EBADPTR) return 3;
  void *host = loam_malloc(NULL, 10);
  if (!host) return 4;
  loam_free(host);
  return 0;
}

static void a_fork_has_no_devices(void **state) {
  (void)state;
  load("local d = loam.device {}", "return d");
  void *p = loam_device_alloc(NULL, 1000, NULL);
  assert_int_equal(run_in_child(try_in_child, p), 0);
  loam_free(p);
}

static void absent_devices_are_refused_with_what_there_is(void **state) {
  (void)state;
  assert_int_equal(loam_policy_load_text("test",
                                         "local d = loam.device { id = 7 } return "
                                         "loam.policy { pick = function() return d end }\n"),
                   LOAM_EPOLICY);
  assert_non_null(strstr(loam_error(), "device 7: this machine has devices 0-1"));
  load(HOST "local d = loam.device { id = 7 }:or_else(host)",
       "return loam.devices()[2] == 1 and d or host");
}

int main(void) {
  loam_defer_limit(0, 0); /* freed memory goes back immediately */
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_block_is_known_by_what_decided_it),
    cmocka_unit_test(what_a_call_asks_for_bounds_what_it_gets),
    cmocka_unit_test(pinned_memory_serves_devices_where_it_is_mapped),
    cmocka_unit_test(managed_memory_prefers_a_place),
    cmocka_unit_test(the_device_is_the_current_one_or_the_first),
    cmocka_unit_test(figures_and_live_count_it),
    cmocka_unit_test(live_is_read_by_a_policy),
    cmocka_unit_test(a_limit_holds_and_a_chain_goes_on),
    cmocka_unit_test(a_shared_limit_counts_devices_of_other_processes),
    cmocka_unit_test(denied_is_denied),
    cmocka_unit_test(want_of_memory_says_what_the_driver_said),
    cmocka_unit_test(reallocating_moves_by_the_device),
    cmocka_unit_test(a_copy_that_fails_leaves_the_block_and_says_why),
    cmocka_unit_test(a_block_that_shrinks_stays_if_there_is_no_memory_for_a_smaller_one),
    cmocka_unit_test(the_drivers_pool_is_ordered_by_stream),
    cmocka_unit_test(what_is_collected_goes_back_by_a_trim),
    cmocka_unit_test(bad_frees_are_reported),
    cmocka_unit_test(a_second_free_names_the_block),
    cmocka_unit_test(devices_are_described),
    cmocka_unit_test(the_figures_of_a_device_include_its_pool),
    cmocka_unit_test(the_figures_of_a_device_include_blocks_of_their_own),
    cmocka_unit_test(what_is_gone_is_only_booked_out),
    cmocka_unit_test(a_context_that_went_takes_its_memory_along),
    cmocka_unit_test(a_fork_has_no_devices),
    cmocka_unit_test(absent_devices_are_refused_with_what_there_is),
  };
  return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
