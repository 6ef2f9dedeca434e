/* test_look.c - `loam stats` reads a process from outside. Its answer equals the answer of the
 * process itself, and it refuses wrong tables in words. */
#include "test.h"

#include <stdlib.h>
#include <sys/prctl.h>

#include "cli/look.h"
#include "fake_gpu.h"
#include "loam.h"
#include "os/error.h"
#include "os/hash.h"
#include "pages/metadata.h"
#include "service/control_reply.h"

/* ---- Answers from inside and from outside ---- */

static loam_status no_follow(const char *path) {
  (void)path;
  return LOAM_OK;
}

/* Removes the value of the member `key`, a figure that changes while it is written. */
static void blank(char *text, const char *key) {
  char *at = strstr(text, key);
  if (!at) return;
  at += strlen(key);
  size_t n = strcspn(at, ",");
  memmove(at, at + n, strlen(at + n) + 1);
}

static int compare_texts(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts the rows, because rows with equal sums have no defined order. */
static void sort_rows(char *text) {
  static char copy[1 << 20], *row[4096];
  size_t n = 0;
  char *first = strstr(text, "{\"tag\"");
  char *end = strstr(text, "],\"got\"");
  if (!first || !end) return;
  char after = *end;
  *end = 0;
  assert_true(strlen(first) < sizeof copy);
  strcpy(copy, first);
  for (char *at = copy; at; n++) {
    assert_true(n < LM_COUNT(row));
    row[n] = at;
    at = strstr(at + 1, "{\"tag\"");
    if (at) at[-1] = 0;
  }
  qsort(row, n, sizeof *row, compare_texts);
  for (size_t i = 0; i < n; i++) {
    size_t length = strlen(row[i]);
    memcpy(first, row[i], length);
    first += length;
    if (i + 1 < n) *first++ = ',';
  }
  assert_ptr_equal(first, end);
  *end = after;
}

/* Returns the text of an answer and ends the answer. */
static char *text_of(lm_json *json) {
  assert_false(json->failed);
  char *text = strndup(json->text, json->length);
  lm_json_finish(json);
  return text;
}

/* Returns the answer without the figures that both answers change: they take loam's own memory
 * while they are written. */
static char *normal(lm_json *json) {
  char *text = text_of(json);
  blank(text, "\"metadata_bytes\":");
  blank(text, "\"resident_bytes\":");
  blank(text, "\"resident_own_bytes\":");
  blank(text, "\"resident_file_bytes\":");
  blank(text, "\"resident_stack_bytes\":");
  text[strcspn(text, "\n")] = 0;
  sort_rows(text);
  return text;
}

/* Compares the two answers. The service thread may give memory back between them, so there are
 * several tries. */
static void same_from_outside(void) {
  bool is_same = false;
  for (int tries = 20; !is_same; tries--) {
    lm_json inside = { 0 }, outside = { 0 };
    int fd = -1;
    lm_control_reply("stats", no_follow, &inside, &fd);
    if (lm_look_stats(getpid(), &outside) != LOAM_OK) fail_msg("%s", loam_error());
    char *seen = normal(&outside), *said = normal(&inside);
    is_same = !strcmp(seen, said);
    if (!tries) assert_string_equal(seen, said);
    free(seen);
    free(said);
  }
}

/* ---- A program with memory of all kinds ---- */

static const char *const policy_text =
    "local plain = loam.host { name = 'plain' }\n"
    "local wide = loam.host { name = 'wide', align = 256 }\n"
    "local few = loam.host { name = 'few', limit = 1 * loam.MiB }\n"
    "local guarded = loam.host { name = 'guarded', guard = true }\n"
    "local away = loam.host { name = 'away', numa = 0 }\n"
    "local system = loam.system {}\n"
    "return loam.policy { name = 'all', pick = function(req)\n"
    "  if req.tag:under('sys') then return system end\n"
    "  if req.tag:under('guard') then return guarded end\n"
    "  if req.tag:under('away') then return away end\n"
    "  if req.tag:under('few') then return few:or_else(plain) end\n"
    "  if req.tag:under('live') and req.live > %d * loam.MiB then return wide end\n"
    "  if req.size > 10000 then return wide end\n"
    "  return plain\n"
    "end }\n";

static void load(int number) {
  char text[2048];
  snprintf(text, sizeof text, policy_text, number);
  if (loam_policy_load_text("all", text) != LOAM_OK) fail_msg("%s", loam_error());
}

enum { KEPT = 40000 };
static void *kept[KEPT];
static size_t kept_n;

static void keep(const char *name, size_t size, int n) {
  for (int i = 0; i < n; i++) {
    void *p = loam_malloc(loam_site_get(name), size);
    assert_non_null(p);
    assert_true(kept_n < KEPT);
    kept[kept_n++] = p;
  }
}

static void free_some(size_t step) {
  for (size_t i = 0; i < kept_n; i += step) {
    loam_free(kept[i]);
    kept[i] = NULL;
  }
}

/* Makes objects of more tags than the common table and a palette have places for, in shared
 * spans. */
static void fill_with_tags(const char *prefix, int tags) {
  char name[64];
  for (int round = 0; round < 4; round++)
    for (int i = 0; i < tags; i++) {
      snprintf(name, sizeof name, "%s.t%d", prefix, i);
      keep(name, (size_t)(16 + 16 * (i % 3)), 3);
    }
}

static void fill(const char *prefix) {
  char name[64];
  fill_with_tags(prefix, 150);
  static const char *const kinds[] = { "sys", "guard", "away", "few", "live" };
  static const size_t sizes[] = { 24, 1000, 30000, 64 << 10, 200000, 5 << 20 };
  for (size_t i = 0; i < LM_COUNT(kinds); i++)
    for (size_t j = 0; j < LM_COUNT(sizes); j++) {
      snprintf(name, sizeof name, "%s.%s", kinds[i], prefix);
      keep(name, sizes[j], 3);
    }
  keep("aligned", 100, 10);
  for (size_t align = 64; align <= 1 << 20; align *= 16)
    kept[kept_n++] = loam_aligned_alloc(loam_site_get("aligned"), align, align);
}

static _Atomic int steps;
static void *fill_in_a_thread(void *stays) {
  fill("thread");
  steps = 1;
  while (stays && steps < 2) lm_sys_sleep(1000000);
  return NULL;
}

static void outside_and_inside_are_the_same(void **state) {
  (void)state;
  pthread_t thread;
  fill("before");
  same_from_outside();
  for (int i = 1; i <= 3; i++) {
    load(i);
    fill(i == 1 ? "one" : i == 2 ? "two" : "three");
    free_some((size_t)i + 4);
    same_from_outside();
  }
  assert_int_equal(pthread_create(&thread, NULL, fill_in_a_thread, NULL), 0);
  pthread_join(thread, NULL);
  same_from_outside();
  steps = 0;
  assert_int_equal(pthread_create(&thread, NULL, fill_in_a_thread, kept), 0);
  while (!steps) lm_sys_sleep(1000000);
  same_from_outside();
  steps = 2;
  pthread_join(thread, NULL);
}

/* Makes blocks of the driver, and blocks in the pools of device memory and pinned memory. */
static void device_memory_is_the_same(void **state) {
  (void)state;
  static const char *const pools[] = { "none", "cache", "chunks" };
  int stream;
  char text[256], name[32];
  void *block[64];
  size_t n = 0;
  for (size_t i = 0; i < LM_COUNT(pools); i++) {
    snprintf(text, sizeof text,
             "local d = loam.device { name = '%s', id = 0, pool = '%s' }\n"
             "return loam.policy { name = 'd', pick = function(req) return d end }\n",
             pools[i], pools[i]);
    if (loam_policy_load_text("d", text) != LOAM_OK) fail_msg("%s", loam_error());
    for (size_t size = 1000; size < 4 << 20; size *= 8) {
      snprintf(name, sizeof name, "device.%s", pools[i]);
      block[n] = loam_device_alloc(loam_site_get(name), size, &stream);
      assert_non_null(block[n]);
      n++;
    }
    same_from_outside();
  }
  lm_json out = { 0 };
  assert_int_equal(lm_look_stats(getpid(), &out), LOAM_OK);
  char *seen = text_of(&out);
  for (size_t i = 0; i < LM_COUNT(pools); i++) {
    snprintf(text, sizeof text, "\"strategy\":\"%s\",\"kind\":\"device\"", pools[i]);
    assert_non_null(strstr(seen, text));
  }
  free(seen);
  for (size_t i = 0; i < n; i += 2) loam_device_free(block[i], &stream);
  same_from_outside();
  for (size_t i = 1; i < n; i += 2) loam_device_free(block[i], &stream);
  same_from_outside();
  loam_device_trim(0); /* frees the pending blocks, since no service thread does it here */
}

/* ---- A process that cannot help ---- */

/* Runs `act` in a child, which then stops. Returns the child. The child ends together with this
 * process, so a failed test leaves no stopped process. */
static pid_t stopped_after(void (*act)(void)) {
  int status;
  pid_t child = fork();
  if (!child) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    act();
    raise(SIGSTOP);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, WUNTRACED), child);
  assert_true(WIFSTOPPED(status));
  return child;
}

static void ends(pid_t child) {
  int status;
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
}

static void keep_a_thousand(void) { keep("child.only", 48, 1000); }

static void a_stopped_child_is_counted(void **state) {
  (void)state;
  pid_t child = stopped_after(keep_a_thousand);
  lm_json out = { 0 };
  if (lm_look_stats(child, &out) != LOAM_OK) fail_msg("%s", loam_error());
  char *text = text_of(&out);
  const char *row = strstr(text, "{\"tag\":\"child.only\"");
  assert_non_null(row);
  assert_non_null(strstr(row, "\"live_bytes\":48000,\"live_blocks\":1000,"));
  assert_null(strstr(text, "inexact"));
  free(text);
  ends(child);
  assert_int_equal(lm_look_stats(child, &out), LOAM_EIO);
  assert_non_null(strstr(loam_error(), "no such process"));
}

static void a_reading_ends_after_its_patience(void **state) {
  (void)state;
  lm_json out = { 0 };
  assert_int_equal(lm_look_stats_within(getpid(), 0, &out), LOAM_EIO);
  assert_non_null(strstr(loam_error(), "its tables could not be read within 0 s"));
  lm_json_finish(&out);
}

static void *allocate_and_free(void *arg) {
  (void)arg;
  void *own[512] = { 0 };
  for (unsigned i = 0; steps < 2; i++) {
    void **at = &own[i * 2654435761u % LM_COUNT(own)];
    loam_free(*at);
    *at = loam_malloc(loam_site_get(i & 1 ? "busy.one" : "sys.busy"), i % 64 ? i % 4000 : 300000);
  }
  for (size_t i = 0; i < LM_COUNT(own); i++) loam_free(own[i]);
  return NULL;
}

/* Objects that are live all the time are counted in each answer, whatever the other thread does. */
static void a_running_process_is_counted(void **state) {
  (void)state;
  pthread_t thread;
  keep("still", 48, 3000);
  keep("still", 100000, 50);
  steps = 0;
  assert_int_equal(pthread_create(&thread, NULL, allocate_and_free, NULL), 0);
  for (int i = 0; i < (SANITIZED ? 10 : 60); i++) {
    lm_json out = { 0 };
    if (lm_look_stats(getpid(), &out) != LOAM_OK) fail_msg("%s", loam_error());
    char *text = text_of(&out);
    const char *row = strstr(text, "{\"tag\":\"still\"");
    assert_non_null(row);
    if (!strstr(row, "\"live_blocks\":3000,") && !strstr(row, "\"live_blocks\":3050,"))
      fail_msg("%.300s", row);
    free(text);
  }
  steps = 2;
  pthread_join(thread, NULL);
}

/* ---- The places of memory ---- */

/* Returns the first figure with this name after `text`. */
static uint64_t figure(const char *text, const char *name) {
  char key[64];
  snprintf(key, sizeof key, "\"%s\":", name);
  const char *at = strstr(text, key);
  if (!at) fail_msg("no %s in %.300s", name, text);
  return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* Returns the answer from the group of a strategy on. */
static const char *group_of(const char *text, const char *strategy) {
  char key[64];
  snprintf(key, sizeof key, "\"strategy\":\"%s\"", strategy);
  const char *at = strstr(text, key);
  if (!at) fail_msg("no group of %s", strategy);
  return at;
}

static char *answer_of(pid_t child, loam_status (*look)(int pid, lm_json *out)) {
  lm_json out = { 0 };
  if (look(child, &out) != LOAM_OK) fail_msg("%s", loam_error());
  char *text = text_of(&out);
  assert_null(strstr(text, "inexact"));
  return text;
}

/* Checks what the reader tells about the pools of the first device. */
static void first_device_has(bool has_memory, bool has_blocks) {
  size_t least = has_memory ? 1 << 20 : 0, most = has_memory ? 64 << 20 : 0;
  char *seen = answer_of(getpid(), lm_look_stats),
       *at = strstr(seen, "\"devices\":[{\"device\":0,");
  assert_non_null(at);
  assert_in_range(figure(at, "reserved_bytes"), least, most);
  assert_int_equal(figure(at, "used_bytes"), has_blocks ? 1 << 20 : 0);
  assert_in_range(figure(at, "pinned_reserved_bytes"), 2 * least, most);
  assert_int_equal(figure(at, "pinned_used_bytes"), has_blocks ? 2 << 20 : 0);
  free(seen);
}

static void memory_that_pools_of_a_device_keep_is_shown(void **state) {
  (void)state;
  static const char text[] = "local d, h = loam.device {}, loam.pinned {}\n"
                             "return loam.policy { pick = function(req)\n"
                             "  if req.tag == 'kept.pinned' then return h end\n"
                             "  return d\n"
                             "end }\n";
  if (loam_policy_load_text("kept", text) != LOAM_OK) fail_msg("%s", loam_error());
  loam_device_keep(SIZE_MAX);
  void *p = loam_device_alloc(loam_site_get("kept"), 1 << 20, NULL);
  void *pinned = loam_pinned_alloc(loam_site_get("kept.pinned"), 2 << 20, 0);
  assert_true(p && pinned);
  same_from_outside();
  first_device_has(true, true);
  loam_device_free(p, NULL);
  loam_device_free(pinned, NULL);
  same_from_outside();
  first_device_has(true, false);
  assert_true(loam_device_trim(-1) > 0);
  same_from_outside();
  first_device_has(false, false);
  loam_device_keep(0);
}

/* Makes memory of all kinds: live, freed, never touched, and in the quarantine of guarded
 * blocks. */
static void take_memory_of_all_kinds(void) {
  load(11);
  fill("pages");
  free_some(3);
  keep("live.large", 3 << 20, 5);
  for (size_t i = kept_n - 5; i < kept_n; i++) memset(kept[i], 1, 1 << 20);
  loam_free(kept[--kept_n]);
  assert_non_null(loam_calloc(loam_site_get("untouched"), 1, 8 << 20));
}

/* Returns the address space of all groups of this kind. "bytes" is the first figure of a group. */
static uint64_t space_of(const char *text, const char *what) {
  char key[32];
  uint64_t sum = 0;
  snprintf(key, sizeof key, "\"what\":\"%s\"", what);
  for (const char *at = text; (at = strstr(at, key)); at++) sum += figure(at, "bytes");
  return sum;
}

static void pages_agree_with_statistics(void **state) {
  (void)state;
  pid_t child = stopped_after(take_memory_of_all_kinds);
  char *pages = answer_of(child, lm_look_pages), *stats = answer_of(child, lm_look_stats);
  assert_int_equal(figure(pages, "generation"), figure(stats, "generation"));
  assert_int_equal(figure(pages, "live_bytes") + figure(pages, "provided_bytes"),
                   figure(stats, "live_bytes"));
  assert_true(figure(pages, "provided_bytes") > 0);
  if (strstr(pages, "huge_by_mapping")) /* an old kernel, which shows pages of zeros as memory */
    assert_true(figure(pages, "resident_bytes") >= figure(stats, "resident_own_bytes"));
  else assert_int_equal(figure(pages, "resident_bytes"), figure(stats, "resident_own_bytes"));
  uint64_t own = space_of(pages, "metadata");
  assert_int_equal(own + figure(pages, "map_bytes"), figure(stats, "metadata_bytes"));
  assert_int_equal(figure(pages, "bytes") - own, figure(stats, "region_bytes"));
  assert_true(figure(pages, "absent_bytes") >= 8 << 20);
  assert_in_range(figure(strstr(pages, "\"largest\""), "bytes"), 8 << 20, (8 << 20) + LM_SLOT);
  free(pages);
  free(stats);
  ends(child);
}

enum { HALVED = 100000, HALVED_SIZE = 48 };

static void free_every_second(void) {
  static void *block[HALVED];
  if (loam_policy_load_text("h", "local half = loam.host { name = 'half' }\n"
                                 "return loam.policy { pick = function() return half end }\n"))
    abort();
  for (int i = 0; i < HALVED; i++) {
    block[i] = loam_malloc(loam_site_get("half"), HALVED_SIZE);
    memset(block[i], 1, HALVED_SIZE);
  }
  for (int i = 0; i < HALVED; i += 2) loam_free(block[i]);
}

/* The first span also has other blocks, and the last span is not full. */
static void every_second_object_freed_is_half_full(void **state) {
  (void)state;
  pid_t child = stopped_after(free_every_second);
  char *pages = answer_of(child, lm_look_pages);
  const char *group = group_of(pages, "half");
  uint64_t cell = figure(pages, "cell_bytes");
  int full = 0, half = 0;
  assert_int_equal(figure(group, "live_bytes"), HALVED / 2 * HALVED_SIZE);
  for (const char *at = group; (at = strstr(at, "{\"at\":")); at++) {
    if (strncmp(strstr(at, "\"kind\":"), "\"kind\":\"small\"", 14)) continue;
    if (figure(at, "bytes") != figure(at, "resident")) break;
    uint64_t live = figure(at, "live");
    full++;
    half += live + 64 > cell / 2 && live < cell / 2 + 64;
  }
  assert_in_range(full, HALVED * HALVED_SIZE / cell - 1, HALVED * HALVED_SIZE / cell + 1);
  assert_in_range(half, full - 1, full);
  free(pages);
  ends(child);
}

/* When several slots make one cell, no block may be lost, and there must not be too many cells. */
static void take_many_slots(void) {
  for (int i = 0; i < 300; i++)
    if (!loam_malloc(loam_site_get("many"), (size_t)(1 + i % 7) << 20)) abort();
}

static void many_slots_become_few_cells(void **state) {
  (void)state;
  pid_t child = stopped_after(take_many_slots);
  char *pages = answer_of(child, lm_look_pages), *stats = answer_of(child, lm_look_stats);
  int cells = 0;
  uint64_t bytes = 0, absent = 0;
  for (const char *at = pages; (at = strstr(at, "{\"at\":")); at++, cells++) {
    const char *end = strchr(at, '}'), *none = strstr(at, "\"absent\":");
    bytes += figure(at, "bytes");
    if (none && none < end) absent += figure(at, "absent");
  }
  assert_true(figure(pages, "cell_bytes") > LM_SLOT);
  assert_in_range(cells, 1000, 8192 + 64);
  assert_int_equal(bytes, figure(pages, "bytes"));
  assert_int_equal(absent, figure(pages, "absent_bytes"));
  assert_int_equal(figure(pages, "live_bytes") + figure(pages, "provided_bytes"),
                   figure(stats, "live_bytes"));
  free(pages);
  free(stats);
  ends(child);
}

enum { SCATTERED = THREAD_SANITIZED ? 2048 : 8192 };

/* Each block shrinks to its first two slots. The other six go back to the system. */
static void take_scattered_slots(void) {
  for (int i = 0; i < SCATTERED; i++) {
    void *p = loam_malloc(loam_site_get("scattered"), 8 * LM_SLOT);
    if (!p || loam_realloc(loam_site_get("scattered"), p, 2 * LM_SLOT) != p) abort();
  }
  (void)loam_trim();
}

static void many_gaps_become_few_cells(void **state) {
  (void)state;
  pid_t child = stopped_after(take_scattered_slots);
  char *pages = answer_of(child, lm_look_pages);
  int cells = 0;
  assert_true(figure(pages, "returned_bytes") > (uint64_t)SCATTERED * 5 * LM_SLOT);
  for (const char *at = pages; (at = strstr(at, "{\"at\":")); at++) cells++;
  assert_in_range(cells, 1000, 8192 + 64);
  free(pages);
  ends(child);
}

/* ---- Wrong tables ---- */

/* Looks at this process by another root. The tables may be used or refused; a refusal must have
 * words. */
static loam_status look_at(const lm_outside *root) {
  lm_json out = { 0 };
  lm_look_pretend((uintptr_t)root);
  if (lm_look_pages(getpid(), &out) != LOAM_OK) {
    assert_non_null(strstr(loam_error(), "process "));
  }
  lm_json_finish(&out);
  loam_status status = lm_look_stats(getpid(), &out);
  lm_look_pretend(0);
  if (status != LOAM_OK) {
    assert_non_null(strstr(loam_error(), "process "));
  }
  lm_json_finish(&out);
  return status;
}

static const uintptr_t wild[] = { 0,
                                  8,
                                  4096,
                                  (uintptr_t)1 << 46,
                                  (uintptr_t)1 << 62,
                                  UINTPTR_MAX - 7,
                                  (uintptr_t)wild,
                                  (uintptr_t)kept };

static void wild_addresses_of_tables(void **state) {
  (void)state;
  enum { FIRST = offsetof(lm_outside, map) / 8, WORDS = sizeof(lm_outside) / 8 };
  enum { EACH = THREAD_SANITIZED ? 3 : 1 };
  for (size_t word = FIRST; word < WORDS; word++)
    for (size_t i = word % EACH; i < LM_COUNT(wild); i += EACH) {
      lm_outside root = lm_outside_root;
      memcpy((char *)&root + word * 8, &wild[i], 8);
      look_at(&root);
    }
  lm_outside root = lm_outside_root;
  root.map = NULL;
  assert_int_equal(look_at(&root), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "page map"));
  root = lm_outside_root;
  root.strategies = (void *)kept;
  assert_int_equal(look_at(&root), LOAM_EINVAL);
}

static void another_layout_is_refused(void **state) {
  (void)state;
  lm_outside root = lm_outside_root;
  root.layout++;
  memset(root.version, 'x', sizeof root.version);
  assert_int_equal(look_at(&root), LOAM_ESTATE);
  assert_non_null(strstr(loam_error(), "has loam xxxx"));
}

/* Tests sizes that no page map has, and an empty page map that claims to be large. */
static void wrong_sizes_of_the_page_map(void **state) {
  (void)state;
  static const size_t tops[] = { 1, LM_SLOT + 1, LM_RANGE + LM_SLOT, SIZE_MAX,
                                 SIZE_MAX - LM_SLOT + 1 };
  lm_outside root = lm_outside_root;
  lm_map_state map = lm_map;
  root.map = &map;
  for (size_t i = 0; i < LM_COUNT(tops); i++) {
    map.top = tops[i];
    assert_int_equal(look_at(&root), LOAM_EINVAL);
  }
  map.top = map.size;
  look_at(&root);
  map.base = (uintptr_t)1 << 40;
  assert_int_equal(look_at(&root), LOAM_EINVAL);
}

/* Makes a page map of the test, with SLOTS slots. Returns its entries. */
enum { SLOTS = 512 };
static lm_span *forged_entries(lm_map_state *map, lm_outside *root) {
  size_t bytes = 2 * LM_SLOT + SLOTS * sizeof(lm_span);
  char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(at, MAP_FAILED);
  *map = lm_map;
  map->base = lm_align_up((uintptr_t)at + SLOTS * sizeof(lm_span), LM_SLOT);
  map->top = SLOTS * LM_SLOT;
  *root = lm_outside_root;
  root->map = map;
  return (lm_span *)(map->base - SLOTS * sizeof(lm_span));
}

static uint64_t next_random(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return *seed >> 11;
}

/* Tests the entries of this process with some words changed, and entries of random bytes. */
static void damaged_entries(void **state) {
  (void)state;
  lm_map_state map;
  lm_outside root;
  lm_span *entry = forged_entries(&map, &root);
  uint64_t seed = 1, *word = (uint64_t *)(void *)entry;
  size_t words = SLOTS * sizeof(lm_span) / 8;
  size_t own = lm_map.top >> LM_SLOT_SHIFT;
  if (own > SLOTS) own = SLOTS;
  for (int round = 0; round < (THREAD_SANITIZED ? 50 : 300); round++) {
    memset(entry, 0, SLOTS * sizeof *entry);
    memcpy(entry + SLOTS - own, lm_map_span(own - 1), own * sizeof *entry);
    for (int i = 0; i < 1 + round % 8; i++) {
      uint64_t *at = &word[next_random(&seed) % words];
      if (i & 1) *at ^= (uint64_t)1 << next_random(&seed) % 64;
      else *at = wild[next_random(&seed) % LM_COUNT(wild)];
    }
    if (round % 10 == 9)
      for (size_t i = 0; i < words; i++) word[i] = next_random(&seed) << (i & 31);
    look_at(&root);
  }
}

/* Tests a span of small objects with random states. */
static void damaged_states(void **state) {
  (void)state;
  static struct {
    lm_palette palette;
    lm_state_cell cell[LM_SLOT];
  } span __attribute__((aligned(LM_CACHE_LINE)));
  lm_map_state map;
  lm_outside root;
  lm_span *entry = forged_entries(&map, &root) + SLOTS - 1 - LM_MAP_FIRST;
  uint64_t seed = 7;
  for (int round = 0; round < (THREAD_SANITIZED ? 20 : 100); round++) {
    uint8_t *bytes = (uint8_t *)&span;
    for (size_t i = 0; i < sizeof span; i++) bytes[i] = (uint8_t)next_random(&seed);
    span.palette.count = round & 1 ? 4096 : UINT32_MAX;
    span.palette.wide = (void *)wild[round % LM_COUNT(wild)];
    *entry = (lm_span){ .key = lm_map_key(16, 0), .cells = span.cell };
    entry->start = map.base + (LM_MAP_FIRST << LM_SLOT_SHIFT);
    entry->size = 16;
    entry->use = LM_USE_SMALL;
    entry->slots = round % 3 ? 1 : UINT32_MAX;
    look_at(&root);
  }
}

/* A large block claims to be larger than its slots. No loop over its pages may begin. */
static void a_block_without_end(void **state) {
  (void)state;
  lm_map_state map;
  lm_outside root;
  load(9);
  void *p = loam_malloc(loam_site_get("away"), 100); /* the pages of this strategy are looked up */
  lm_map_object at;
  assert_true(lm_map_find(p, &at));
  lm_span *entry = forged_entries(&map, &root) + SLOTS - 1 - LM_MAP_FIRST;
  *entry = (lm_span){ .start = map.base + (LM_MAP_FIRST << LM_SLOT_SHIFT), .cells = &entry->cell };
  entry->token = at.token;
  entry->strategy = (uint16_t)at.strategy;
  entry->cell = lm_state_of_large(at.token);
  entry->use = LM_USE_LARGE;
  entry->slots = 2;
  entry->size = 2 * LM_SLOT;
  assert_int_equal(look_at(&root), LOAM_OK);
  static const size_t sizes[] = { 2 * LM_SLOT + 1, (size_t)1 << 62, SIZE_MAX };
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    entry->size = sizes[i];
    assert_int_equal(look_at(&root), LOAM_EINVAL);
    assert_non_null(strstr(loam_error(), "outside its slots"));
  }
  entry->size = LM_SLOT;
  entry->strategy = LM_STRATEGIES_MAX - 1;
  lm_json out = { 0 };
  lm_look_pretend((uintptr_t)&root);
  assert_int_equal(lm_look_pages(getpid(), &out), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "a strategy that does not exist"));
  lm_json_finish(&out);
  entry->strategy = (uint16_t)at.strategy;
  entry->slots = UINT32_MAX; /* the block would also end after the range */
  entry->size = (size_t)2 * SLOTS * LM_SLOT;
  assert_int_equal(lm_look_pages(getpid(), &out), LOAM_OK);
  lm_look_pretend(0);
  char *text = text_of(&out);
  assert_int_equal(figure(text, "live_bytes"), 0);
  free(text);
  entry->slots = 2;
  entry->size = LM_SLOT;
  entry->start -= LM_SLOT;
  assert_int_equal(look_at(&root), LOAM_EINVAL);
  loam_free(p);
}

static void lists_that_lead_back(void **state) {
  (void)state;
  lm_outside root = lm_outside_root;
  lm_thread *thread = lm_metadata_alloc(sizeof *thread);
  thread->next = thread;
  root.threads = &thread;
  assert_int_equal(look_at(&root), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "totals"));
  lm_metadata_free(thread);

  root = lm_outside_root;
  static lm_provided_node node = { .block = { .base = (void *)64, .size = 8 } };
  static lm_provided_tree tree = { .root = &node };
  node.block.token = LM_SITE_FIRST;
  node.left = node.right = &node;
  root.provided = &tree;
  assert_int_equal(look_at(&root), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "blocks of handlers"));
  tree.changes = 1; /* like in a process that was stopped during a change: this is no fault */
  assert_int_equal(look_at(&root), LOAM_OK);
  tree.root = NULL;

  root = lm_outside_root;
  static lm_extent extent = { .at = 4096, .size = 4096 };
  static lm_extent_range range = { .base = 4096, .size = 1 << 30, .first = &extent };
  static lm_device_pool pool = { .ranges = &range };
  static lm_device_pool *first = &pool;
  extent.after = &extent;
  root.device_pools = &first;
  assert_int_equal(look_at(&root), LOAM_EINVAL);
  extent.after = NULL;
  range.next = &range;
  assert_int_equal(look_at(&root), LOAM_EINVAL);
  range.next = NULL;
  pool.older = &pool;
  assert_int_equal(look_at(&root), LOAM_EINVAL);
}

/* Tests totals with huge tables, unknown strategies and classes, and plans with huge chains. */
static void huge_counts(void **state) {
  (void)state;
  lm_outside root = lm_outside_root;
  static lm_stats_stripe stripes[LM_STATS_STRIPES];
  stripes[3].table.size = SIZE_MAX / 2;
  root.totals = stripes;
  assert_int_equal(look_at(&root), LOAM_EINVAL);
  static lm_sums row = { .key = UINT64_MAX };
  stripes[3].table = (lm_sums_table){ .row = &row, .size = 1 };
  assert_int_equal(look_at(&root), LOAM_EINVAL);

  root = lm_outside_root;
  static loam_site site;
  static lm_plan plan = { .chains = UINT32_MAX };
  site = lm_site_empty;
  site.now[0].plan = site.now[1].plan = &plan;
  root.site_empty = &site;
  assert_int_equal(look_at(&root), LOAM_EINVAL);
  plan.chains = 1;
  assert_int_equal(look_at(&root), LOAM_EINVAL);
}

/* A text that reaches the end of readable memory is cut off there. */
static void a_tag_without_end(void **state) {
  (void)state;
  lm_outside root = lm_outside_root;
  static loam_site site;
  char *at = mmap(NULL, 2 * LM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(at, MAP_FAILED);
  assert_int_equal(munmap(at + LM_PAGE, LM_PAGE), 0);
  memset(at, '\33', LM_PAGE);
  site = lm_site_empty;
  site.where.tag = at + LM_PAGE - 3;
  root.site_empty = &site;
  void *p = loam_malloc(NULL, 100);
  lm_json out = { 0 };
  lm_look_pretend((uintptr_t)&root);
  assert_int_equal(lm_look_stats(getpid(), &out), LOAM_OK);
  lm_look_pretend(0);
  char *text = text_of(&out);
  assert_non_null(strstr(text, "\"tag\":\"\\u001b\\u001b\\u001b\""));
  free(text);
  loam_free(p);
}

/* The process is a zombie, because its parent has not waited for it. */
static void a_process_that_has_ended_is_reported(void **state) {
  (void)state;
  lm_json json = { 0 };
  siginfo_t info;
  pid_t child = fork();
  if (!child) _exit(0);
  assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
  assert_int_equal(lm_look_stats(child, &json), LOAM_EIO);
  assert_non_null(strstr(loam_error(), ": it has ended"));
  assert_int_equal(waitpid(child, NULL, 0), child);
  assert_int_equal(lm_look_stats(child, &json), LOAM_EIO);
  assert_non_null(strstr(loam_error(), ": there is no such process"));
  lm_json_finish(&json);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_process_that_has_ended_is_reported),
    cmocka_unit_test(outside_and_inside_are_the_same),
    cmocka_unit_test(device_memory_is_the_same),
    cmocka_unit_test(memory_that_pools_of_a_device_keep_is_shown),
    cmocka_unit_test(a_stopped_child_is_counted),
    cmocka_unit_test(a_reading_ends_after_its_patience),
    cmocka_unit_test(a_running_process_is_counted),
    cmocka_unit_test(pages_agree_with_statistics),
    cmocka_unit_test(every_second_object_freed_is_half_full),
    cmocka_unit_test(many_slots_become_few_cells),
    cmocka_unit_test(many_gaps_become_few_cells),
    cmocka_unit_test(wild_addresses_of_tables),
    cmocka_unit_test(another_layout_is_refused),
    cmocka_unit_test(wrong_sizes_of_the_page_map),
    cmocka_unit_test(damaged_entries),
    cmocka_unit_test(damaged_states),
    cmocka_unit_test(a_block_without_end),
    cmocka_unit_test(lists_that_lead_back),
    cmocka_unit_test(huge_counts),
    cmocka_unit_test(a_tag_without_end),
  };
  setenv("LOAM_CONTROL", "0", 1); /* a service thread would read what the tests damage */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
