/* test_look_owner.c - `loam owner` finds the block at an address from outside. Its answer equals
 * the answer of loam_owner in the process itself, for blocks of all kinds, and it refuses wrong
 * tables. */
#include "test.h"

#include <stdlib.h>
#include <sys/prctl.h>

#include "cli/look.h"
#include "fake_gpu.h"
#include "heap/pool.h"
#include "loam.h"
#include "os/error.h"
#include "pages/metadata.h"

static const char *const policy_text =
    "local plain = loam.host { name = 'plain' }\n"
    "local wide = loam.host { name = 'wide', align = 256 }\n"
    "local guarded = loam.host { name = 'guarded', guard = true }\n"
    "local device = loam.device { name = 'device', id = 0, pool = 'cache' }\n"
    "local driver = loam.device { name = 'driver', id = 0, pool = 'none' }\n"
    "local pinned = loam.pinned { name = 'pinned' }\n"
    "local system = loam.system {}\n"
    "return loam.policy { name = 'all', pick = function(req)\n"
    "  if req.tag:under('sys') then return system end\n"
    "  if req.tag:under('guard') then return guarded end\n"
    "  if req.tag:under('device') then return device end\n"
    "  if req.tag:under('driver') then return driver end\n"
    "  if req.tag:under('pinned') then return pinned end\n"
    "  if req.tag:under('live') and req.live > 1 then return wide end\n"
    "  return plain\n"
    "end }\n";

static void load(void) {
  if (loam_policy_load_text("all", policy_text) != LOAM_OK) fail_msg("%s", loam_error());
}

/* ---- One address, from inside and from outside ---- */

static lm_place find(lm_look *look, const void *p) {
  lm_place place = { .address = (uintptr_t)p };
  loam_status status = lm_look_find_pooled(look, &place);
  if (status == LOAM_OK && place.state == LM_PLACE_OUTSIDE)
    status = lm_look_find_provided(look, &place);
  if (status != LOAM_OK) fail_msg("%s", loam_error());
  return place;
}

static void tag_is(lm_look *look, const lm_place *place, const char *tag) {
  loam_site site;
  char text[LM_TAG_MAX + 1];
  assert_true(lm_look_site_at(look, lm_site_token_index(place->token), &site));
  lm_remote_text(&look->remote, (uintptr_t)site.where.tag, text, sizeof text);
  assert_string_equal(text, tag);
}

/* Compares the answer from outside about an address with the answer of loam_owner. */
static void same_at(lm_look *look, const char *p) {
  loam_owner_info owner;
  lm_place place = find(look, p);
  assert_int_equal(loam_owner(p, &owner), LOAM_OK);
  assert_int_equal(place.state, LM_PLACE_LIVE);
  assert_ptr_equal((void *)place.start, owner.base);
  assert_int_equal(place.size, owner.size);
  assert_true(place.strategy < look->strategies);
  assert_string_equal(look->strategy[place.strategy].desc.name, owner.strategy);
  tag_is(look, &place, owner.tag);
}

static void open_self(lm_look *look) {
  if (lm_look_open(look, getpid()) != LOAM_OK) fail_msg("%s", loam_error());
}

/* Compares the answers for the start, the middle and the last byte of a block. */
static void same_in(const char *p) {
  lm_look look;
  loam_owner_info owner;
  open_self(&look);
  assert_int_equal(loam_owner(p, &owner), LOAM_OK);
  same_at(&look, p);
  if (owner.size) same_at(&look, p + owner.size / 2);
  if (owner.size) same_at(&look, p + owner.size - 1);
  lm_look_close(&look);
}

static lm_place place_of(const void *p) {
  lm_look look;
  open_self(&look);
  lm_place place = find(&look, p);
  lm_look_close(&look);
  return place;
}

/* ---- Blocks ---- */

static void blocks_are_found(void **state) {
  (void)state;
  static const char *const tags[] = { "plain", "sys", "guard", "live", "a.much.longer.tag" };
  static const size_t sizes[] = { 1, 24, 1000, 30000, 64 << 10, 200000, 5 << 20, 33 << 20 };
  void *kept[LM_COUNT(tags) * LM_COUNT(sizes)];
  size_t n = 0;
  load();
  for (size_t i = 0; i < LM_COUNT(tags); i++)
    for (size_t j = 0; j < LM_COUNT(sizes); j++) {
      kept[n] = loam_malloc(loam_site_get(tags[i]), sizes[j]);
      assert_non_null(kept[n++]);
    }
  for (size_t i = 0; i < n; i++) same_in(kept[i]);
  for (size_t i = 0; i < n; i++) loam_free(kept[i]);
}

/* There are more tags than places in the common table and a palette. */
static void tags_of_a_wide_table_are_found(void **state) {
  (void)state;
  enum { TAGS = 200 };
  void *kept[TAGS];
  char tag[32];
  for (int i = 0; i < TAGS; i++) {
    snprintf(tag, sizeof tag, "wide.t%d", i);
    kept[i] = loam_malloc(loam_site_get(tag), 40);
    assert_non_null(kept[i]);
  }
  for (int i = 0; i < TAGS; i++) same_in(kept[i]);
  for (int i = 0; i < TAGS; i++) loam_free(kept[i]);
}

static void device_blocks_are_found(void **state) {
  (void)state;
  static const char *const tags[] = { "device", "driver" };
  int stream;
  load();
  for (size_t i = 0; i < LM_COUNT(tags); i++) {
    char *first = loam_device_alloc(loam_site_get(tags[i]), 4096, &stream);
    char *second = loam_device_alloc(loam_site_get(tags[i]), 3 << 20, &stream);
    assert_true(first && second);
    same_in(first);
    same_in(second);
    assert_string_equal(place_of(first).memory, i ? "provided" : "device");
    loam_device_free(first, &stream);
    lm_place place = place_of(first);
    assert_int_equal(place.state, i ? LM_PLACE_OUTSIDE : LM_PLACE_REGION);
    assert_null(place.memory);
    loam_device_free(second, &stream);
  }
  char *pinned = loam_malloc(loam_site_get("pinned"), 5000);
  assert_non_null(pinned);
  same_in(pinned);
  loam_free(pinned);
  loam_device_trim(0); /* frees the pending blocks, since no service thread does it here */
}

static void freed_blocks_are_reported(void **state) {
  (void)state;
  lm_look look;
  load();
  char *p = loam_malloc(loam_site_get("freed.small"), 40);
  loam_free(p);
  open_self(&look);
  lm_place place = find(&look, p + 7);
  assert_int_equal(place.state, LM_PLACE_CACHED);
  assert_ptr_equal((void *)place.start, p);
  tag_is(&look, &place, "freed.small");
  lm_look_close(&look);
  char *large = loam_malloc(loam_site_get("freed.large"), 40 << 20);
  loam_free(large);
  place = place_of(large + 100);
  assert_true(place.state == LM_PLACE_REGION || place.state == LM_PLACE_CACHED);
}

static void guarded_blocks_have_guards(void **state) {
  (void)state;
  load();
  char *p = loam_malloc(loam_site_get("guard.one"), 100);
  loam_owner_info owner;
  assert_int_equal(loam_owner(p, &owner), LOAM_OK);
  lm_place place = place_of(p + owner.size);
  assert_int_equal(place.state, LM_PLACE_GUARD);
  assert_ptr_equal((void *)place.start, p);
  assert_string_equal(place.memory, "guarded");
  assert_int_equal(place_of(p - 1).state, LM_PLACE_GUARD);
  loam_free(p);
  place = place_of(p + 3);
  assert_int_equal(place.state, LM_PLACE_QUARANTINE);
  assert_ptr_equal((void *)place.start, p);
  char *empty = loam_malloc(loam_site_get("guard.none"), 0);
  place = place_of(empty);
  assert_int_equal(place.state, LM_PLACE_LIVE);
  assert_int_equal(place.size, 0);
  loam_free(empty);
}

static void memory_without_blocks_is_reported(void **state) {
  (void)state;
  int local;
  void *own = lm_metadata_alloc(100);
  void *p = loam_malloc(NULL, 10);
  assert_int_equal(place_of(own).state, LM_PLACE_METADATA);
  assert_int_equal(place_of(lm_map_span_of(p)).state, LM_PLACE_METADATA);
  assert_int_equal(place_of((void *)lm_map.base).state, LM_PLACE_REGION);
  assert_int_equal(place_of((void *)(lm_map.base + lm_map.top)).state, LM_PLACE_REGION);
  assert_int_equal(place_of((void *)(lm_map.base + lm_map.size)).state, LM_PLACE_OUTSIDE);
  assert_int_equal(place_of(&local).state, LM_PLACE_OUTSIDE);
  assert_int_equal(place_of(NULL).state, LM_PLACE_OUTSIDE);
  assert_int_equal(place_of((void *)UINTPTR_MAX).state, LM_PLACE_OUTSIDE);
  loam_free(p);
  lm_metadata_free(own);
}

/* ---- The answer ---- */

static char *owner_of(pid_t pid, const void *p, const char *expected) {
  lm_json out = { 0 };
  uintptr_t address = (uintptr_t)p;
  if (lm_look_owner(pid, &address, 1, &out) != LOAM_OK) fail_msg("%s", loam_error());
  char *text = strndup(out.text, out.length);
  lm_json_finish(&out);
  if (!strstr(text, expected)) fail_msg("no %s in %s", expected, text);
  return text;
}

static void the_answer_names_mappings(void **state) {
  (void)state;
  int local = 0;
  static int global = 1;
  loam_where where = { "place.of.call", "file.c", "caller", "module", 17 };
  char *p = loam_malloc(loam_site_at(&where), 40), *text;
  memset(p, 1, 40);
  free(owner_of(getpid(), &local, "\"state\":\"stack\",\"thread\":"));
  free(owner_of(getpid(), &global, "\"mapping\":{\"name\":\"/"));
  free(owner_of(getpid(), NULL, "\"state\":\"unmapped\"}"));
  text = owner_of(getpid(), p + 3,
                  "\"state\":\"live\",\"memory\":\"small\",\"tag\":\"place.of.call\"");
  assert_non_null(strstr(text, "\"module\":\"module\",\"func\":\"caller\",\"file\":\"file.c\","
                               "\"line\":17,"));
  assert_non_null(strstr(text, "\"offset\":3"));
  free(text);
  loam_free(p);
}

static void a_stopped_child_is_looked_up(void **state) {
  (void)state;
  int status;
  char *p = loam_malloc(loam_site_get("child.block"), 48);
  pid_t child = fork();
  if (!child) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* so the child ends even if the test fails */
    raise(SIGSTOP);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, WUNTRACED), child);
  free(owner_of(child, p, "\"tag\":\"child.block\""));
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  lm_json out = { 0 };
  assert_int_equal(lm_look_owner(child, (uintptr_t[]){ (uintptr_t)p }, 1, &out), LOAM_EIO);
  assert_non_null(strstr(loam_error(), "no such process"));
  loam_free(p);
}

static _Atomic bool is_over;
static void *allocate_and_free(void *arg) {
  void *own[256] = { 0 };
  for (unsigned i = 0; !is_over; i++) {
    void **at = &own[i * 2654435761u % LM_COUNT(own)];
    loam_free(*at);
    *at = loam_malloc(loam_site_get(i & 1 ? "busy" : "sys.busy"), i % 64 ? i % 4000 : 300000);
  }
  for (size_t i = 0; i < LM_COUNT(own); i++) loam_free(own[i]);
  return arg;
}

/* Returns the place of an address in a running process. On a busy machine, the tables may change
 * during each reading, so there are several tries. */
static lm_place place_at_last(const void *address) {
  lm_place place = place_of(address);
  for (int i = 0; i < 1000 && place.state == LM_PLACE_CHANGING; i++) place = place_of(address);
  return place;
}

/* Blocks that are live all the time are always found, whatever another thread does. */
static void blocks_of_a_busy_process_are_found(void **state) {
  (void)state;
  pthread_t thread;
  static const size_t sizes[] = { 40, 3000, 300000, 5 << 20 };
  void *kept[2 * LM_COUNT(sizes)];
  load();
  for (size_t i = 0; i < LM_COUNT(kept); i++) {
    kept[i] = loam_malloc(loam_site_get(i & 1 ? "sys.still" : "still"), sizes[i / 2]);
    assert_non_null(kept[i]);
  }
  is_over = false;
  assert_int_equal(pthread_create(&thread, NULL, allocate_and_free, NULL), 0);
  for (int round = 0; round < 100; round++)
    for (size_t i = 0; i < LM_COUNT(kept); i++) {
      lm_place place = place_at_last((char *)kept[i] + 11);
      assert_int_equal(place.state, LM_PLACE_LIVE);
      assert_ptr_equal((void *)place.start, kept[i]);
    }
  is_over = true;
  pthread_join(thread, NULL);
  for (size_t i = 0; i < LM_COUNT(kept); i++) loam_free(kept[i]);
}

/* ---- Wrong tables ---- */

static const uintptr_t wild[] = {
  0, 8, 4096, (uintptr_t)1 << 46, (uintptr_t)1 << 62, UINTPTR_MAX - 7, (uintptr_t)wild
};

/* Looks up addresses by another root. They may be found or refused; a refusal must have words. */
static loam_status look_up(const lm_outside *root, const uintptr_t *address, size_t n) {
  lm_json out = { 0 };
  lm_look_pretend((uintptr_t)root);
  loam_status status = lm_look_owner(getpid(), address, n, &out);
  lm_look_pretend(0);
  if (status != LOAM_OK) assert_non_null(strstr(loam_error(), "process "));
  lm_json_finish(&out);
  return status;
}

static void wild_addresses_of_tables(void **state) {
  (void)state;
  enum { FIRST = offsetof(lm_outside, map) / 8, WORDS = sizeof(lm_outside) / 8 };
  void *pooled = loam_malloc(NULL, 100), *provided = loam_malloc(loam_site_get("sys.one"), 100);
  uintptr_t address[] = { (uintptr_t)pooled, (uintptr_t)provided, 0, UINTPTR_MAX };
  for (size_t word = FIRST; word < WORDS; word++)
    for (size_t i = 0; i < LM_COUNT(wild); i++) {
      lm_outside root = lm_outside_root;
      memcpy((char *)&root + word * 8, &wild[i], 8);
      look_up(&root, address, LM_COUNT(address));
    }
  loam_free(pooled);
  loam_free(provided);
}

static uint64_t next_random(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return *seed >> 11;
}

/* Tests page maps of the test: the entries of this process with some words changed, and entries of
 * random bytes. */
static void damaged_entries(void **state) {
  (void)state;
  enum { SLOTS = 256, ADDRESSES = 64 };
  size_t bytes = 2 * LM_SLOT + SLOTS * sizeof(lm_span), words = SLOTS * sizeof(lm_span) / 8;
  char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(at, MAP_FAILED);
  lm_map_state map = lm_map;
  lm_outside root = lm_outside_root;
  map.base = lm_align_up((uintptr_t)at + SLOTS * sizeof(lm_span), LM_SLOT);
  map.top = SLOTS * LM_SLOT;
  root.map = &map;
  lm_span *entry = (lm_span *)(map.base - SLOTS * sizeof(lm_span));
  uint64_t seed = 3, *word = (uint64_t *)(void *)entry;
  size_t own = lm_map.top >> LM_SLOT_SHIFT;
  if (own > SLOTS) own = SLOTS;
  for (int round = 0; round < 100; round++) {
    uintptr_t address[ADDRESSES];
    memset(entry, 0, SLOTS * sizeof *entry);
    memcpy(entry + SLOTS - own, lm_map_span(own - 1), own * sizeof *entry);
    for (int i = 0; i < 1 + round % 8; i++)
      word[next_random(&seed) % words] = wild[next_random(&seed) % LM_COUNT(wild)];
    if (round % 10 == 9)
      for (size_t i = 0; i < words; i++) word[i] = next_random(&seed) << (i & 31);
    for (int i = 0; i < ADDRESSES; i++)
      address[i] = map.base + next_random(&seed) % (SLOTS * LM_SLOT);
    look_up(&root, address, ADDRESSES);
  }
  munmap(at, bytes);
}

/* Tests a tree and a list with cycles. */
static void tables_that_lead_back(void **state) {
  (void)state;
  lm_outside root = lm_outside_root;
  static lm_provided_node node = { .block = { .base = (void *)64, .size = 8 } };
  static lm_provided_tree tree = { .root = &node };
  uintptr_t address = 1000;
  node.left = node.right = &node;
  root.provided = &tree;
  assert_int_equal(look_up(&root, &address, 1), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "blocks of handlers"));

  tree = (lm_provided_tree){ .changes = 1 }; /* like in a process stopped during a change */
  lm_look look;
  lm_place place = { .address = address };
  lm_look_pretend((uintptr_t)&root);
  assert_int_equal(lm_look_open(&look, getpid()), LOAM_OK);
  lm_look_pretend(0);
  assert_int_equal(lm_look_find_provided(&look, &place), LOAM_OK);
  assert_int_equal(place.state, LM_PLACE_CHANGING);
  lm_look_close(&look);

  root = lm_outside_root;
  static lm_extent extent = { .at = 4096, .size = 4096 };
  static lm_extent_range range = { .base = 4096, .size = 1 << 30, .first = &extent };
  static lm_device_pool pool = { .ranges = &range };
  static lm_device_pool *first = &pool;
  extent.after = &extent;
  root.device_pools = &first;
  assert_int_equal(look_up(&root, &address, 1), LOAM_EINVAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(blocks_are_found),
    cmocka_unit_test(tags_of_a_wide_table_are_found),
    cmocka_unit_test(device_blocks_are_found),
    cmocka_unit_test(freed_blocks_are_reported),
    cmocka_unit_test(guarded_blocks_have_guards),
    cmocka_unit_test(memory_without_blocks_is_reported),
    cmocka_unit_test(the_answer_names_mappings),
    cmocka_unit_test(a_stopped_child_is_looked_up),
    cmocka_unit_test(blocks_of_a_busy_process_are_found),
    cmocka_unit_test(wild_addresses_of_tables),
    cmocka_unit_test(damaged_entries),
    cmocka_unit_test(tables_that_lead_back),
  };
  setenv("LOAM_CONTROL", "0", 1); /* a service thread would read what the tests damage */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
