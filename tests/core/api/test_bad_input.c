/* test_bad_input.c - values that a host may pass by mistake: every public function refuses them in
 * one line that names the value, or accepts them, and nothing else happens. */
#include "test.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "heap/pool.h"
#include "heap/strategy.h"
#include "loam.h"
#include "os/error.h"
#include "service/control.h"
#include "service/control_reply.h"

static const char *const good =
    "local s = loam.host { name = 'good' }\n"
    "return loam.policy { name = 'good', pick = function(req) return s end }\n";

/* Checks that the last error words are one line and contain `what`. */
static void expect_words(const char *what) {
  const char *words = loam_error();
  if (!strstr(words, what)) fail_msg("expected \"%s\" in: %s", what, words);
  if (strchr(words, '\n')) fail_msg("more than one line: %s", words);
  if (strlen(words) > 300) fail_msg("%zu bytes of words: %s", strlen(words), words);
}

static void fails(loam_status status, loam_status expected, const char *what) {
  if (status != expected)
    fail_msg("%s, not %s", loam_status_text(status), loam_status_text(expected));
  expect_words(what);
}

static char *repeated(char c, size_t n) {
  char *text = malloc(n + 1);
  memset(text, c, n);
  text[n] = 0;
  return text;
}

/* ---- sizes and alignments */

static void sizes_above_the_address_space_are_null(void **state) {
  (void)state;
  loam_site *site = loam_site_get("huge");
  const size_t sizes[] = { (size_t)1 << 47, ((size_t)1 << 47) + 1, (size_t)1 << 48, (size_t)1 << 62,
                           PTRDIFF_MAX,     SIZE_MAX - 4096,       SIZE_MAX - 16,   SIZE_MAX };
  char words[64];
  void *kept = loam_malloc(site, 100);
  memset(kept, 7, 100);
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    snprintf(words, sizeof words, "size %zu", sizes[i]);
    assert_null(loam_malloc(site, sizes[i]));
    expect_words(words);
    assert_null(loam_malloc(NULL, sizes[i]));
    assert_null(loam_calloc(site, 1, sizes[i]));
    expect_words(words);
    assert_null(loam_aligned_alloc(site, 4096, sizes[i]));
    expect_words(words);
    assert_null(loam_realloc(site, kept, sizes[i]));
    expect_words(words);
    assert_null(loam_realloc(NULL, NULL, sizes[i]));
    expect_words(words);
  }
  for (int i = 0; i < 100; i++) assert_int_equal(((char *)kept)[i], 7);
  loam_free(kept);
}

static void products_that_overflow_are_null(void **state) {
  (void)state;
  assert_null(loam_calloc(NULL, SIZE_MAX, 2));
  expect_words("18446744073709551615 times 2 bytes");
  assert_null(loam_calloc(NULL, (size_t)1 << 32, (size_t)1 << 32));
  expect_words("4294967296 times 4294967296 bytes");
  assert_null(loam_calloc(NULL, SIZE_MAX, SIZE_MAX));
}

static void alignments_are_powers_of_two_that_fit(void **state) {
  (void)state;
  const size_t wrong[] = { 0, 3, 24, 4095, SIZE_MAX, (size_t)1 << 63 };
  for (size_t i = 0; i < LM_COUNT(wrong); i++) assert_null(loam_aligned_alloc(NULL, wrong[i], 64));
  assert_null(loam_aligned_alloc(NULL, 24, 64));
  expect_words("alignment 24");
  assert_null(loam_aligned_alloc(NULL, (size_t)1 << 46, 64));
  assert_non_null(strstr(loam_error(), "size 64 with alignment 70368744177664 under tag ''"));
  assert_null(loam_aligned_alloc(NULL, (size_t)1 << 50, 64));
  assert_non_null(strstr(loam_error(), "alignment 1125899906842624: it is above"));
  assert_true(*loam_error());
  void *p = loam_aligned_alloc(NULL, 1, 0);
  assert_non_null(p);
  loam_free(p);
}

/* ---- pointers */

static int bad_frees;
static void count_bad_frees(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind == LOAM_EVENT_BAD_FREE) bad_frees++;
}

static void pointers_that_are_not_blocks_are_found(void **state) {
  (void)state;
  char *block = loam_malloc(NULL, 1000);
  int here;
  void *const wrong[] = { (void *)1,
                          (void *)16,
                          (void *)-1,
                          (void *)(UINTPTR_MAX - 15),
                          &here,
                          block + 1,
                          block + 16,
                          block + 512,
                          (void *)((uintptr_t)1 << 47),
                          (void *)((uintptr_t)0xdead << 48) };
  bad_frees = 0;
  loam_on_event(count_bad_frees, NULL);
  for (size_t i = 0; i < LM_COUNT(wrong); i++) {
    loam_free(wrong[i]);
    assert_int_equal(bad_frees, i + 1);
    assert_int_equal(loam_usable_size(wrong[i]), 0);
    assert_null(loam_realloc(NULL, wrong[i], 10));
    expect_words("not the start of a live block");
    bad_frees = (int)i + 1; /* realloc may send the event too, or not */
  }
  loam_on_event(NULL, NULL);
  loam_owner_info owner;
  fails(loam_owner(&here, &owner), LOAM_EBADPTR, "in no live block");
  fails(loam_owner(NULL, &owner), LOAM_EBADPTR, "in no live block");
  fails(loam_owner(block, NULL), LOAM_EINVAL, "NULL");
  assert_int_equal(loam_owns(&here), 0);
  assert_int_equal(loam_owns(NULL), 0);
  assert_int_equal(loam_usable_size(NULL), 0);
  assert_true(loam_usable_size(block) >= 1000);
  assert_int_equal(loam_live_size(NULL), 0);
  assert_int_equal(loam_live_size(&here), 0);
  assert_int_equal(loam_live_size(block + 16), 0);
  assert_int_equal(loam_live_size(block), loam_usable_size(block));
  loam_free(block);
}

/* Only a block that is there may have so much more room than its size. */
static void a_failed_aligned_request_leaves_the_check_of_sizes_as_it_was(void **state) {
  (void)state;
  atomic_store(&lm_pool_has_oversized, false);
  bad_frees = 0;
  loam_on_event(count_bad_frees, NULL);
  assert_null(loam_aligned_alloc(NULL, (size_t)1 << 50, 64));
  loam_free_sized(loam_malloc(NULL, 1000), 10);
  assert_int_equal(bad_frees, 1);
  loam_free_sized(loam_malloc(NULL, 1000), SIZE_MAX);
  assert_int_equal(bad_frees, 2);
  void *p = loam_aligned_alloc(NULL, 4096, 64);
  assert_non_null(p);
  loam_free_sized(p, 64);
  assert_int_equal(bad_frees, 2);
  loam_on_event(NULL, NULL);
}

/* ---- tags */

static void tags_have_at_most_255_bytes(void **state) {
  (void)state;
  const size_t wrong[] = { 256, 257, 10000, 1 << 20 };
  char *longest = repeated('t', 255);
  assert_non_null(loam_site_get(longest));
  assert_ptr_equal(loam_site_get(longest), loam_site_get(longest));
  assert_ptr_equal(loam_site_get(NULL), loam_site_get(""));
  free(longest);
  for (size_t i = 0; i < LM_COUNT(wrong); i++) {
    char *tag = repeated('t', wrong[i]);
    assert_null(loam_site_get(tag));
    expect_words("...\": it is longer than 255 bytes");
    assert_null(loam_site_at(&(loam_where){ .tag = tag }));
    free(tag);
  }
  assert_null(loam_site_at(NULL));
  assert_string_equal(loam_error(), "where: it is NULL");
}

static void other_strings_of_a_site_may_be_long(void **state) {
  (void)state;
  char *text = repeated('f', 10000);
  loam_where where = { "long.where", text, text, text, INT_MIN };
  loam_site *site = loam_site_at(&where);
  if (!site) expect_words("10000");
  void *p = loam_malloc(site, 10);
  assert_non_null(p);
  loam_free(p);
  free(text);
}

static const char *const odd_tags[] = {
  "",
  " ",
  ".",
  "..",
  "a..b",
  "\n",
  "a\nb\r\t",
  "\"",
  "\\",
  "a\"b\\c",
  "\x01\x02\x1f\x7f",
  "\x1b[31mred",
  "h\xc3\xa9",
  "\xe2\x82\xac",
  "\xf0\x9f\x90\x8c",
  "\xff\xfe",
  "\xc3",
  "\xc0\x80",
  "\xed\xa0\x80",
  "\xf5\x80\x80\x80",
  "%s%n%d",
  "</script>",
  "{\"a\":1}",
  "*",
  "a?b",
  "'",
};

/* Checks that a text is UTF-8, that its strings have only characters that JSON allows, and that its
 * brackets match. */
static void check_json(const lm_json *json) {
  bool is_quoted = false;
  int depth = 0;
  assert_false(json->failed);
  for (size_t i = 0; i + 1 < json->length; i++) {
    unsigned char c = (unsigned char)json->text[i];
    if (c < ' ' || c == 0x7f) fail_msg("byte %d at %zu", c, i);
    if (is_quoted && c == '\\') {
      assert_non_null(strchr("\"\\/bfnrtu", json->text[++i]));
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (!is_quoted) {
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    }
    if (c < 0x80) continue;
    assert_true(c >= 0xc2 && c < 0xf5);
    for (int more = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3; more; more--)
      assert_int_equal((unsigned char)json->text[++i] & 0xc0, 0x80);
  }
  assert_false(is_quoted);
  assert_int_equal(depth, 0);
}

static void answer(const char *request) {
  lm_json json = { 0 };
  int given = -1;
  lm_control_reply(request, lm_control_watch, &json, &given);
  assert_int_equal(given, -1);
  check_json(&json);
  lm_json_finish(&json);
}

/* The answer to a request that makes no sense says so. */
static void requests_that_make_no_sense_are_refused_in_words(void **state) {
  (void)state;
  static const char *const wrong[][2] = {
    { "sample ", "sample \\\"\\\": it is a number of bytes, at most" },
    { "sample x", "sample \\\"x\\\": it is a number of bytes, at most" },
    { "sample -1", "sample \\\"-1\\\": it is a number of bytes, at most" },
    { "sample 1x", "sample \\\"1x\\\": it is a number of bytes, at most" },
    { "sample 99999999999999999999", "it is a number of bytes, at most" },
    { "sleep host", "sleep: write a place and tag=" },
    { "sleep  tag=x", "sleep: write a place and tag=" },
    { "share 12", "a key and an offset are expected" },
    { "device 12 ab", "a base, a key and an address are expected" },
  };
  for (size_t i = 0; i < LM_COUNT(wrong); i++) {
    lm_json json = { 0 };
    int given = -1;
    lm_control_reply(wrong[i][0], lm_control_watch, &json, &given);
    check_json(&json);
    if (!strstr(json.text, "\"ok\":false") || !strstr(json.text, wrong[i][1]))
      fail_msg("%s: %s", wrong[i][0], json.text);
    assert_int_equal(given, -1);
    lm_json_finish(&json);
  }
}

static void odd_tags_are_distinguished_and_reported_in_json(void **state) {
  (void)state;
  void *kept[LM_COUNT(odd_tags)];
  assert_int_equal(loam_policy_load_text("odd.lua", good), LOAM_OK);
  for (size_t i = 0; i < LM_COUNT(odd_tags); i++) {
    loam_owner_info owner;
    kept[i] = loam_malloc(loam_site_get(odd_tags[i]), 64);
    assert_int_equal(loam_owner(kept[i], &owner), LOAM_OK);
    assert_string_equal(owner.tag, odd_tags[i]);
    assert_string_equal(owner.strategy, "good");
    assert_null(loam_malloc(loam_site_get(odd_tags[i]), SIZE_MAX));
  }
  answer("stats");
  for (size_t i = 0; i < LM_COUNT(odd_tags); i++) {
    char request[300];
    snprintf(request, sizeof request, "reload %s", odd_tags[i]);
    answer(request);
    answer("status");
    answer(odd_tags[i]);
    loam_free(kept[i]);
  }
  char *long_request = repeated('r', 10000);
  answer(long_request);
  free(long_request);
}

/* ---- start and stop */

static int start_wrongly(void *unused) {
  (void)unused;
  loam_system none = { malloc, calloc, realloc, free, NULL, NULL };
  char *path = repeated('p', 10000);
  fails(loam_start(&(loam_config){ 0 }), LOAM_EINVAL,
        "loam_config.size 0: it must be sizeof(loam_config)");
  fails(loam_start(&(loam_config){ .size = 3 }), LOAM_EINVAL, "loam_config.size 3");
  fails(loam_start(&(loam_config){ .size = sizeof(loam_config), .system = &none }), LOAM_EINVAL,
        "aligned_alloc");
  fails(loam_start(&(loam_config){ .size = sizeof(loam_config), .policy = path }), LOAM_EIO,
        "10000 bytes");
  fails(loam_start(&(loam_config){ .size = sizeof(loam_config), .policy = "/" }), LOAM_EIO,
        "/: is a directory");
  fails(loam_start(&(loam_config){ .size = sizeof(loam_config), .policy = "" }), LOAM_EIO, "");
  loam_config lenient = { .size = sizeof lenient,
                          .policy = "/nonexistent",
                          .watch = 1,
                          .control = 1,
                          .lenient = 1,
                          .control_dir = path };
  assert_int_equal(loam_start(&lenient), LOAM_OK);
  fails(loam_start(NULL), LOAM_ESTATE, "started already");
  loam_stop();
  loam_stop();
  assert_int_equal(loam_start(NULL), LOAM_OK);
  void *p = loam_malloc(NULL, 10);
  assert_non_null(p);
  loam_free(p);
  free(path);
  return 0;
}

static void a_start_says_what_is_wrong_and_can_be_tried_again(void **state) {
  (void)state;
  assert_int_equal(run_in_child(start_wrongly, NULL), 0);
}

static int start_with_limits(void *unused) {
  (void)unused;
  loam_config least = {
    .size = sizeof least, .control = -1, .max_leaves = 1, .step_ms = 1, .step_bytes = 1
  };
  assert_int_equal(loam_start(&least), LOAM_OK);
  if (loam_policy_load_text("small.lua", good) == LOAM_OK) return 1;
  if (!*loam_error()) return 2;
  loam_stop();
  loam_config most = { .size = sizeof most,
                       .control = -1,
                       .max_leaves = UINT_MAX,
                       .step_ms = UINT_MAX,
                       .step_bytes = SIZE_MAX };
  assert_int_equal(loam_start(&most), LOAM_OK);
  return loam_policy_load_text("large.lua", good) == LOAM_OK ? 0 : 3;
}

static void limits_may_be_tiny_or_huge(void **state) {
  (void)state;
  assert_int_equal(run_in_child(start_with_limits, NULL), 0);
}

/* ---- policies */

static uint64_t generation(void) {
  struct loam_policy_info info;
  assert_int_equal(loam_policy_info(&info), LOAM_OK);
  return info.generation;
}

static void paths_of_policies_are_refused_in_words(void **state) {
  (void)state;
  uint64_t before = generation();
  char *path = repeated('p', 10000);
  fails(loam_policy_load(NULL), LOAM_EINVAL, "path");
  fails(loam_policy_load(""), LOAM_EIO, "");
  fails(loam_policy_load("/"), LOAM_EIO, "/: is a directory");
  fails(loam_policy_load(path), LOAM_EIO, "10000 bytes");
  fails(loam_policy_load("/dev/zero"), LOAM_EIO, "/dev/zero: is not a regular file");
  fails(loam_policy_load("/nonexistent/a"), LOAM_EIO, "/nonexistent/a: No such file");
  fails(loam_policy_watch(path), LOAM_EIO, "10000 bytes");
  fails(loam_policy_info(NULL), LOAM_EINVAL, "NULL");
  assert_int_equal(generation(), before);
  free(path);
}

static void texts_of_policies_are_refused_in_words(void **state) {
  (void)state;
  uint64_t before = generation();
  char *name = repeated('n', 10000), *text = repeated('x', 2 << 20);
  fails(loam_policy_load_text("x", NULL), LOAM_EINVAL, "text");
  assert_int_equal(loam_policy_load_text(NULL, ""), LOAM_EPOLICY);
  assert_non_null(strstr(loam_error(), "empty"));
  assert_true(loam_policy_load_text("long", text) != LOAM_OK);
  assert_true(*loam_error());
  assert_true(loam_policy_load_text(name, "return 1\n") != LOAM_OK);
  assert_non_null(strstr(loam_error(), "does not return a policy"));
  assert_int_equal(generation(), before);
  assert_int_equal(loam_policy_load_text(name, good), LOAM_OK);
  assert_int_equal(loam_policy_load_text("", good), LOAM_OK);
  text[strlen(good) - 1] = 0; /* a text needs no newline at its end, as a file does */
  memcpy(text, good, strlen(good) - 1);
  assert_int_equal(loam_policy_load_text("short", text), LOAM_OK);
  assert_int_equal(loam_policy_load_text("new\nline", good), LOAM_OK);
  answer("status");
  free(name);
  free(text);
}

/* Each edit of the policy makes one more strategy, until one is refused. Then the policy before
 * that edit stays live. */
static int want_too_many_strategies(void *unused) {
  char text[256];
  int i = 0;
  (void)unused;
  lm_strategy *s;
  for (int n = 0; lm_strategy_count() < LM_STRATEGIES_MAX - 20; n++) {
    lm_desc desc = { .kind = LM_KIND_DENY };
    snprintf(desc.name, sizeof desc.name, "%d", n);
    if (lm_strategy_intern(&desc, &s)) return 4;
  }
  loam_status status = LOAM_OK;
  for (; status == LOAM_OK && i < 100; i++) {
    snprintf(text, sizeof text,
             "local s = loam.host { name = 's', limit = %d }\n"
             "return loam.policy { name = 'n%d', pick = function(req) return s end }\n",
             i + 100000, i);
    status = loam_policy_load_text("edited.lua", text);
  }
  if (status != LOAM_EPOLICY || !strstr(loam_error(), "at most 16384 strategies")) return 1;
  struct loam_policy_info info;
  loam_policy_info(&info);
  snprintf(text, sizeof text, "n%d", i - 2);
  if (strcmp(info.name, text) || i < 10) return 2;
  void *p = loam_malloc(loam_site_get("after"), 100);
  loam_owner_info owner;
  return p && !loam_owner(p, &owner) && !strcmp(owner.strategy, "s") ? 0 : 3;
}

static void a_process_runs_out_of_strategies_in_words(void **state) {
  (void)state;
  assert_int_equal(run_in_child(want_too_many_strategies, NULL), 0);
}

static void ignore_text(void *ctx, const char *text, size_t length) {
  (void)ctx, (void)text, (void)length;
}

static void inspect_fails(const char *path, const char *query, const char *what) {
  fails(loam_policy_inspect(path, query, ignore_text, NULL), LOAM_EINVAL, what);
}

static void questions_that_make_no_sense_are_refused(void **state) {
  char path[] = "/tmp/loam-test-XXXXXX";
  (void)state;
  int fd = mkstemp(path);
  assert_int_equal(write(fd, good, strlen(good)), strlen(good));
  close(fd);
  fails(loam_policy_inspect(NULL, "verb check", ignore_text, NULL), LOAM_EINVAL, "NULL");
  fails(loam_policy_inspect(path, NULL, ignore_text, NULL), LOAM_EINVAL, "NULL");
  fails(loam_policy_inspect(path, "verb check", NULL, NULL), LOAM_EINVAL, "NULL");
  inspect_fails(path, "", "verb");
  inspect_fails(path, "verb", "verb");
  inspect_fails(path, "verb dance", "dance");
  inspect_fails(path, "nonsense", "nonsense");
  inspect_fails(path, "verb explain", "size");
  const char *const sizes[] = { "nan", "inf", "-1", "1e300", "1.5", "", "x", "281474976710656" };
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    char query[80];
    snprintf(query, sizeof query, "verb explain\ntag a\nsize %s", sizes[i]);
    inspect_fails(path, query, sizes[i]);
  }
  inspect_fails(path, "verb explain\nsize 1\nalign 3", "align '3'");
  inspect_fails(path, "verb explain\nsize 1\nnode 64", "node '64'");
  inspect_fails(path, "verb explain\nsize 1\nzero 2", "zero '2'");
  unlink(path);
}

/* ---- scopes, handlers, figures */

static void scopes_may_be_left_too_often_and_entered_too_deep(void **state) {
  (void)state;
  loam_site *site = loam_site_get("scope");
  loam_scope_leave();
  loam_scope_leave();
  assert_null(loam_scope_get());
  for (int i = 0; i < 1000; i++) loam_scope_enter(site);
  assert_ptr_equal(loam_scope_get(), site);
  for (int i = 0; i < 1000; i++) loam_scope_leave();
  assert_null(loam_scope_get());
  loam_scope_enter(NULL);
  assert_null(loam_scope_get());
  loam_scope_leave();
}

static void handlers_are_whole_or_refused(void **state) {
  (void)state;
  loam_handler h = *loam_handler_of(NULL);
  fails(loam_handler_register(NULL), LOAM_EINVAL, "NULL");
  memset(h.name, 'x', sizeof h.name);
  fails(loam_handler_register(&h), LOAM_EINVAL, "not terminated");
  strcpy(h.name, "");
  fails(loam_handler_register(&h), LOAM_EINVAL, "empty");
  strcpy(h.name, "half\n");
  h.version = 0;
  fails(loam_handler_register(&h), LOAM_EINVAL, "version 0");
  h.version = 1;
  h.allocator.realloc = NULL;
  fails(loam_handler_register(&h), LOAM_EINVAL, "realloc");
}

static void functions_of_arrays_name_an_argument_that_is_null(void **state) {
  (void)state;
  loam_array *out = NULL, *array = NULL;
  loam_type *type;
  loam_block *block = loam_block_new(NULL, 64);
  const char *name = "x";
  static char some[8];
  void *schema = some;
  assert_int_equal(loam_type_parse("2 * int32", &type), LOAM_OK);
  assert_int_equal(loam_array_wrap(block, 0, type, NULL, &array), LOAM_OK);
  fails(loam_array_wrap(NULL, 0, type, NULL, &out), LOAM_EINVAL, "block: it is NULL");
  fails(loam_array_wrap(block, 0, NULL, NULL, &out), LOAM_EINVAL, "type: it is NULL");
  fails(loam_array_wrap(block, 0, type, NULL, NULL), LOAM_EINVAL, "out: it is NULL");
  fails(loam_array_append(NULL, some), LOAM_EINVAL, "array: it is NULL");
  fails(loam_array_append(array, NULL), LOAM_EINVAL, "element: it is NULL");
  fails(loam_array_set_text(NULL, "x", 1), LOAM_EINVAL, "array: it is NULL");
  fails(loam_array_set_text(array, NULL, 1), LOAM_EINVAL, "bytes: it is NULL");
  fails(loam_array_field(NULL, "x", &out), LOAM_EINVAL, "array: it is NULL");
  fails(loam_array_field(array, NULL, &out), LOAM_EINVAL, "name: it is NULL");
  fails(loam_array_field(array, "x", NULL), LOAM_EINVAL, "out: it is NULL");
  fails(loam_array_fields(NULL, 1, &name, &out), LOAM_EINVAL, "array: it is NULL");
  fails(loam_array_fields(array, 1, NULL, &out), LOAM_EINVAL, "names: it is NULL");
  fails(loam_array_fields(array, 1, &name, NULL), LOAM_EINVAL, "out: it is NULL");
  fails(loam_array_to_arrow(NULL, 0, schema, schema), LOAM_EINVAL, "array: it is NULL");
  fails(loam_array_to_arrow(array, 0, NULL, schema), LOAM_EINVAL, "schema: it is NULL");
  fails(loam_array_to_arrow(array, 0, schema, NULL), LOAM_EINVAL, "out: it is NULL");
  fails(loam_array_from_arrow(NULL, schema, 0, &out), LOAM_EINVAL, "schema: it is NULL");
  fails(loam_array_from_arrow(schema, NULL, 0, &out), LOAM_EINVAL, "array: it is NULL");
  fails(loam_array_from_arrow(schema, schema, 0, NULL), LOAM_EINVAL, "out: it is NULL");
  assert_null(out);
  loam_array_release(array);
  loam_type_release(type);
  loam_block_release(block);
}

static void ignore_row(void *ctx, const loam_stats_row *row) { (void)ctx, (void)row; }
static void ignore_pid(void *ctx, int pid) { (void)ctx, (void)pid; }

static void figures_have_a_place_to_go(void **state) {
  (void)state;
  fails(loam_stats(NULL), LOAM_EINVAL, "NULL");
  fails(loam_stats_each(NULL, NULL), LOAM_EINVAL, "NULL");
  fails(loam_stats_by(1, NULL, NULL), LOAM_EINVAL, "NULL");
  fails(loam_stats_by(8, ignore_row, NULL), LOAM_EINVAL, "keys 0x8");
  fails(loam_stats_by(-1, ignore_row, NULL), LOAM_EINVAL, "keys 0xffffffff");
  assert_int_equal(loam_stats_by(0, ignore_row, NULL), LOAM_OK);
  fails(loam_machine(NULL, NULL), LOAM_EINVAL, "NULL");
  fails(loam_hosts(NULL, NULL), LOAM_EINVAL, "NULL");
  assert_string_equal(loam_status_text((loam_status)99), "not a status of loam");
  assert_string_equal(loam_status_text((loam_status)INT_MIN), "not a status of loam");
}

static void asking_an_unknown_process_fails(void **state) {
  (void)state;
  setenv("LOAM_CONTROL_DIR", "/nonexistent/control", 1);
  fails(loam_ask(INT_MAX, "status", 100, ignore_text, NULL), LOAM_EIO, "process 2147483647");
  fails(loam_ask(0, "status", 0, ignore_text, NULL), LOAM_EIO, "process 0");
  fails(loam_ask(-1, "status", UINT_MAX, ignore_text, NULL), LOAM_EIO, "process -1");
  fails(loam_ask(1, "a\nb", 100, ignore_text, NULL), LOAM_EINVAL, "one line");
  char *request = repeated('r', 10000);
  fails(loam_ask(1, request, 100, ignore_text, NULL), LOAM_EINVAL, "10000 bytes");
  free(request);
  fails(loam_ask(1, NULL, 100, ignore_text, NULL), LOAM_EINVAL, "NULL");
  fails(loam_ask(1, "status", 100, NULL, NULL), LOAM_EINVAL, "NULL");
  assert_int_equal(loam_hosts(ignore_pid, NULL), LOAM_OK);
  char *dir = repeated('d', 10000);
  setenv("LOAM_CONTROL_DIR", dir, 1);
  fails(loam_ask(1, "status", 100, ignore_text, NULL), LOAM_EIO, "10000 bytes");
  fails(loam_hosts(ignore_pid, NULL), LOAM_EIO, "10000 bytes");
  free(dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_start_says_what_is_wrong_and_can_be_tried_again),
    cmocka_unit_test(limits_may_be_tiny_or_huge),
    cmocka_unit_test(sizes_above_the_address_space_are_null),
    cmocka_unit_test(products_that_overflow_are_null),
    cmocka_unit_test(alignments_are_powers_of_two_that_fit),
    cmocka_unit_test(pointers_that_are_not_blocks_are_found),
    cmocka_unit_test(a_failed_aligned_request_leaves_the_check_of_sizes_as_it_was),
    cmocka_unit_test(tags_have_at_most_255_bytes),
    cmocka_unit_test(other_strings_of_a_site_may_be_long),
    cmocka_unit_test(requests_that_make_no_sense_are_refused_in_words),
    cmocka_unit_test(odd_tags_are_distinguished_and_reported_in_json),
    cmocka_unit_test(paths_of_policies_are_refused_in_words),
    cmocka_unit_test(texts_of_policies_are_refused_in_words),
    cmocka_unit_test(a_process_runs_out_of_strategies_in_words),
    cmocka_unit_test(questions_that_make_no_sense_are_refused),
    cmocka_unit_test(scopes_may_be_left_too_often_and_entered_too_deep),
    cmocka_unit_test(handlers_are_whole_or_refused),
    cmocka_unit_test(functions_of_arrays_name_an_argument_that_is_null),
    cmocka_unit_test(figures_have_a_place_to_go),
    cmocka_unit_test(asking_an_unknown_process_fails),
  };
  setenv("LOAM_CONTROL", "0", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
