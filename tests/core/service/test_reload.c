/* test_reload.c - many loads, one after another and at one time, while threads allocate. */
#include "test.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "heap/pool.h"
#include "os/error.h"
#include "service/policy.h"

enum { EDITS = SANITIZED ? 60 : 400, RELOADS = SANITIZED ? 300 : 2000, ENOUGH = 1000 };

static char file[64];

static int make_file(void **state) {
  (void)state;
  strcpy(file, "/tmp/loam-test-XXXXXX");
  int fd = mkstemp(file);
  return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state) {
  (void)state;
  return unlink(file);
}

static void save_text(const char *text) {
  int fd = open(file, O_TRUNC | O_WRONLY);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  close(fd);
}

static loam_status load(const char *text) { return lm_policy_load("test.lua", text, strlen(text)); }

static uint64_t generation(void) {
  struct loam_policy_info info;
  lm_policy_info_get(&info);
  return info.generation;
}

/* Three policies: one has a single strategy, one has two strategies by size and tag, one is
 * refused. */
static const char *const versions[] = {
  "local h = loam.host { name = 'even' }\n"
  "return loam.policy { name = 'even', pick = function(req) return h end }\n",
  "local s, l = loam.host { name = 's' }, loam.host { name = 'l', align = 64 }\n"
  "return loam.policy { name = 'odd', pick = function(req)\n"
  "  if req.size >= 1024 or req.tag:glob('busy.1*') then return l:or_else(s) end\n"
  "  return s\nend }\n",
  "return 1\n",
};

static uint64_t first; /* the generation before the edits */
static _Atomic char
    version_of[EDITS + 1]; /* index: generations since `first`; 'e' or 'o'; 0: not known yet */
static _Atomic bool is_over;
static _Atomic long failures, checked;

typedef struct kept {
  void *p;
  size_t size;
} kept;

static const char *expected(char version, const char *tag, size_t size) {
  if (version == 'e') return "even";
  return size >= 1024 || !strncmp(tag, "busy.1", 6) ? "l" : "s";
}

/* Checks that the block has the strategy which the policy of its generation picks. */
static void check(const kept *k) {
  loam_owner_info owner;
  if (loam_owner(k->p, &owner) != LOAM_OK || owner.size < k->size) {
    atomic_fetch_add(&failures, 1);
    return;
  }
  char version = owner.generation > first ? atomic_load(&version_of[owner.generation - first]) : 0;
  if (!version) return;
  atomic_fetch_add(&checked, 1);
  if (strcmp(owner.strategy, expected(version, owner.tag, k->size))) atomic_fetch_add(&failures, 1);
}

static void replace(kept *k, loam_site *site, size_t size) {
  if (k->p) check(k);
  loam_free(k->p);
  k->p = loam_malloc(site, size);
  k->size = size;
  if (k->p) memset(k->p, 0x5a, size);
  else atomic_fetch_add(&failures, 1);
}

/* Allocates under old and new tags until the test ends. */
static void *allocate(void *argument) {
  unsigned seed = (unsigned)(uintptr_t)argument;
  loam_site *own = loam_site_get("busy");
  kept blocks[64] = { 0 };
  char tag[32];
  for (unsigned i = 0; !atomic_load(&is_over); i++) {
    seed = seed * 1664525 + 1013904223;
    snprintf(tag, sizeof tag, "busy.%u", seed >> 26);
    replace(&blocks[seed >> 8 & 63], i % 64 ? own : loam_site_get(tag), seed >> 14 & 4095);
  }
  for (int i = 0; i < 64; i++) loam_free(blocks[i].p);
  return NULL;
}

enum { THREADS = 4 };

static void start_allocating(pthread_t *threads) {
  atomic_store(&is_over, false);
  for (uintptr_t i = 0; i < THREADS; i++) threads[i] = start_thread(allocate, (void *)(i + 1));
}

static void stop_allocating(const pthread_t *threads) {
  atomic_store(&is_over, true);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&failures), 0);
}

static void edits_while_four_threads_allocate(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  first = generation();
  start_allocating(threads);
  int live = 0;
  for (int i = 0; i < EDITS; i++) {
    save_text(versions[i % 3]);
    loam_status status = lm_policy_load_file(file);
    if ((status == LOAM_OK) != (i % 3 != 2)) fail_msg("edit %d: %s", i, loam_error());
    live += status == LOAM_OK;
    if (status == LOAM_OK) atomic_store(&version_of[live], i % 3 ? 'o' : 'e');
  }
  for (int naps = 0; atomic_load(&checked) < ENOUGH && be_patient(&naps);) continue;
  stop_allocating(threads);
  assert_int_equal(generation(), first + (unsigned)live);
  assert_true(atomic_load(&checked) >= ENOUGH);
}

static size_t resident_pages(void) {
  char text[128];
  size_t length;
  assert_int_equal(lm_sys_read_file("/proc/self/statm", text, sizeof text, &length), 0);
  return strtoul(strchr(text, ' '), NULL, 10);
}

static void load_many(int n) {
  for (int i = 0; i < n; i++) assert_int_equal(load(versions[i % 2]), LOAM_OK);
}

static void many_reloads_keep_memory_steady(void **state) {
  (void)state;
  lm_pool_figures before, after;
  for (int i = 0; i < 20; i++) {
    char tag[32];
    snprintf(tag, sizeof tag, "steady.%d", i);
    loam_site_get(tag);
  }
  load_many(100);
  lm_pool_figures_get(&before);
  size_t pages = resident_pages();
  load_many(RELOADS);
  lm_pool_figures_get(&after);
  assert_in_range(after.metadata, 0, before.metadata + LM_MIB / 16);
  assert_in_range(after.regions, 0, before.regions + LM_MIB);
  /* AddressSanitizer keeps memory that the dynamic linker has freed. */
  if (!POISONED) assert_in_range(resident_pages(), 0, pages + 4 * LM_MIB / LM_PAGE);
}

static void *load_repeatedly(void *text) {
  for (int i = 0; i < 50; i++)
    if (load(text) != LOAM_OK) atomic_fetch_add(&failures, 1);
  return NULL;
}

static void loads_of_several_threads_are_done_one_after_the_other(void **state) {
  (void)state;
  pthread_t threads[3];
  uint64_t before = generation();
  for (int i = 0; i < 3; i++) threads[i] = start_thread(load_repeatedly, (void *)versions[i % 2]);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&failures), 0);
  assert_int_equal(generation(), before + 150);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(many_reloads_keep_memory_steady),
    cmocka_unit_test(edits_while_four_threads_allocate),
    cmocka_unit_test(loads_of_several_threads_are_done_one_after_the_other),
  };
  setenv("LOAM_CONTROL", "0", 1);
  return cmocka_run_group_tests(tests, make_file, remove_file);
}
