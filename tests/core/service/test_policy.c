/* test_policy.c - loads of policies, the last good policy, and the end of old plans: policy.h. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "carried.h"
#include "cli/vet.h"
#include "engine/live_bytes.h"
#include "heap/strategy.h"
#include "os/error.h"
#include "pages/metadata.h"
#include "plan/policy_image.h"
#include "service/policy.h"

/* A policy that gives all memory the strategy `name`. */
#define ALL_OF(name)                            \
  "local h = loam.host { name = '" name "' }\n" \
  "return loam.policy { name = '" name "', pick = function(req) return h end }\n"

static char folder[64], file[96];

static int make_folder(void **state) {
  (void)state;
  strcpy(folder, "/tmp/loam-test-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  snprintf(file, sizeof file, "%s/policy.lua", folder);
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  unlink(file);
  return rmdir(folder);
}

static void save(const char *text, size_t length) {
  int fd = open(file, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, length), length);
  close(fd);
}

static void save_text(const char *text) { save(text, strlen(text)); }

static loam_status load(const char *text) { return lm_policy_load("test.lua", text, strlen(text)); }

static struct loam_policy_info info(void) {
  struct loam_policy_info out;
  lm_policy_info_get(&out);
  return out;
}

/* Returns the hash of the text that the last attempt refused, or 0 if there is none. */
static uint64_t refused_hash(void) {
  struct loam_policy_info out;
  return lm_policy_info_get(&out);
}

/* Returns the name of the strategy that a request of `size` bytes gets at this site. */
static const char *picked_at(loam_site *site, size_t size) {
  const lm_plan *plan = atomic_load(&site->now[atomic_load(&lm_site_generation) & 1].plan);
  double fixed[LM_INPUTS] = { 0 };
  lm_inputs request = { .size = size, .align = 16, .site = site, .fixed = fixed };
  const lm_leaf *leaf = &plan->leaf[lm_plan_decide(plan, &request)];
  return lm_strategy_at(plan->chain[leaf->first])->desc.name;
}

static const char *picked(const char *tag, size_t size) {
  return picked_at(loam_site_get(tag), size);
}

static void *pick_one(void *tag) { return (void *)(uintptr_t)picked(tag, 1); }

/* Like picked, but the site is made by a thread with the smallest stack that the system allows. */
static const char *on_small_stack(const char *tag) {
  void *name;
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  size_t size = SANITIZED ? 1 << 20 : (size_t)sysconf(_SC_THREAD_STACK_MIN);
  assert_int_equal(pthread_attr_setstacksize(&attributes, size), 0);
  assert_int_equal(pthread_create(&thread, &attributes, pick_one, (void *)(uintptr_t)tag), 0);
  pthread_join(thread, &name);
  pthread_attr_destroy(&attributes);
  return name;
}

/* ---- one load after another */

static void a_load_makes_the_next_generation(void **state) {
  (void)state;
  uint64_t before = info().generation;
  assert_int_equal(load(ALL_OF("first")), LOAM_OK);
  struct loam_policy_info now = info();
  assert_int_equal(now.generation, before + 1);
  assert_string_equal(now.name, "first");
  assert_string_equal(now.path, "");
  assert_int_equal(now.last, LOAM_OK);
  assert_string_equal(now.last_error, "");
  assert_true(now.loaded_at > 0 && now.last_at >= now.loaded_at - 1000000000);
  assert_true(now.hash == lm_policy_file_hash(ALL_OF("first"), strlen(ALL_OF("first"))));
  assert_int_equal(now.plans, 1);
  assert_true(lm_policy_is_valid());
}

static void every_known_site_obeys_the_new_policy(void **state) {
  (void)state;
  assert_int_equal(load(ALL_OF("old")), LOAM_OK);
  assert_string_equal(picked("known.a", 10), "old");
  assert_string_equal(picked("known.b", 10), "old");
  assert_int_equal(load(ALL_OF("new")), LOAM_OK);
  assert_string_equal(picked("known.a", 10), "new");
  assert_string_equal(picked("known.b", 10), "new");
  assert_string_equal(picked("", 10), "new");
}

static void a_tag_seen_later_obeys_the_live_policy(void **state) {
  (void)state;
  assert_int_equal(load("local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
                        "return loam.policy { pick = function(req)\n"
                        "  if req.tag:under('late') and req.size > 100 then return b end\n"
                        "  return a\nend }\n"),
                   LOAM_OK);
  assert_string_equal(picked("late.one", 101), "b");
  assert_string_equal(picked("late.one", 100), "a");
  assert_string_equal(picked("other", 101), "a");
}

/* A new tag needs no Lua, because the plans of the policy are compiled. */
static void a_new_tag_needs_little_stack_and_no_lua(void **state) {
  (void)state;
  assert_int_equal(load("local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
                        "return loam.policy { pick = function(req)\n"
                        "  return req.tag:glob('*.small.?') and b or a\nend }\n"),
                   LOAM_OK);
  assert_string_equal(on_small_stack("on.small.s"), "b");
  assert_string_equal(on_small_stack("on.small.ss"), "a");
}

static void a_line_has_a_plan_of_its_own(void **state) {
  (void)state;
  assert_int_equal(load("local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
                        "return loam.policy { pick = function(req)\n"
                        "  return req.line >= 100 and req.size > 10 and b or a\nend }\n"),
                   LOAM_OK);
  for (int line = 98; line < 110; line++) {
    loam_site *site = loam_site_at(&(loam_where){ .tag = "line", .line = line });
    assert_string_equal(picked_at(site, 11), line >= 100 ? "b" : "a");
    assert_string_equal(picked_at(site, 10), "a");
  }
  assert_int_equal(info().plans, 3); /* for all lines, below 100, and from 100 on */
  assert_int_equal(load(ALL_OF("unlined")), LOAM_OK);
}

static void sites_that_a_policy_cannot_distinguish_share_a_plan(void **state) {
  (void)state;
  assert_int_equal(load(ALL_OF("shared")), LOAM_OK);
  for (int i = 0; i < 50; i++) {
    char tag[32];
    snprintf(tag, sizeof tag, "share.%d", i);
    picked(tag, 1);
  }
  assert_int_equal(info().plans, 1);
}

static void it_keeps_the_last_good_policy(void **state) {
  (void)state;
  assert_int_equal(load(ALL_OF("good")), LOAM_OK);
  struct loam_policy_info before = info();
  assert_int_equal(load("return loam.policy { pick = 3 }\n"), LOAM_EPOLICY);
  struct loam_policy_info after = info();
  assert_int_equal(after.generation, before.generation);
  assert_string_equal(after.name, "good");
  assert_int_equal(after.loaded_at, before.loaded_at);
  assert_int_equal(after.loads, before.loads + 1);
  assert_int_equal(after.refused, before.refused + 1);
  assert_int_equal(after.last, LOAM_EPOLICY);
  assert_string_equal(after.last_error, loam_error());
  assert_non_null(strstr(after.last_error, "test.lua:1"));
  assert_string_equal(picked("known.a", 10), "good");
}

static void a_failing_test_refuses_the_policy(void **state) {
  (void)state;
  assert_int_equal(load(ALL_OF("good")), LOAM_OK);
  assert_int_equal(load("local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
                        "return loam.policy { pick = function(req) return a end,\n"
                        "  tests = { { tag = 'x', size = 1, expect = b } } }\n"),
                   LOAM_EPOLICY);
  assert_string_equal(picked("x", 1), "good");
}

static void a_policy_that_fails_for_one_known_tag_is_refused(void **state) {
  (void)state;
  assert_int_equal(load(ALL_OF("good")), LOAM_OK);
  picked("trap.known", 1);
  assert_int_equal(load("local h = loam.host {}\n"
                        "return loam.policy { pick = function(req)\n"
                        "  if req.tag:is('trap.known') then return nil end\n"
                        "  return h\nend }\n"),
                   LOAM_EPOLICY);
  assert_string_equal(picked("trap.known", 1), "good");
}

/* ---- reading an old plan ---- */

static _Atomic bool is_inside;

/* Acts like an allocation that is delayed while it reads a plan. The plan must stay valid. The
 * thread allocates and overwrites memory of the plan's size; if the plan was freed too early, its
 * contents are then wrong and the thread returns WRONG. */
#define WRONG ((void *)1)
static void *read_the_old_plan(void *argument) {
  enum { LOOKS = 30, EACH = 20 };
  static void *taken[LOOKS * EACH];
  loam_site *site = argument;
  lm_thread *self = lm_thread_get();
  uint64_t generation = atomic_load(&lm_site_generation);
  lm_thread_enter(self);
  const lm_plan *plan = atomic_load(&site->now[generation & 1].plan);
  lm_plan seen = *plan;
  size_t size = lm_metadata_size(plan);
  atomic_store(&is_inside, true);
  for (int naps = 0; atomic_load(&lm_site_generation) == generation && be_patient(&naps);) continue;
  bool is_live = atomic_load(&lm_site_generation) == generation + 1;
  for (int i = 0; i < LOOKS * EACH; i++) {
    if (i % EACH == 0) lm_sys_sleep(10000000);
    if ((taken[i] = lm_metadata_alloc(size))) memset(taken[i], 0xff, size);
  }
  bool is_same = !memcmp(&seen, plan, sizeof seen);
  lm_thread_leave(self);
  for (int i = 0; i < LOOKS * EACH; i++) lm_metadata_free(taken[i]);
  return is_live && is_same ? NULL : WRONG;
}

static void an_old_plan_stays_until_no_thread_reads_it(void **state) {
  (void)state;
  void *result;
  assert_int_equal(load(ALL_OF("read")), LOAM_OK);
  atomic_store(&is_inside, false);
  pthread_t reader = start_thread(read_the_old_plan, loam_site_get("known.a"));
  for (int naps = 0; !atomic_load(&is_inside) && be_patient(&naps);) continue;
  assert_int_equal(load(ALL_OF("next")), LOAM_OK);
  pthread_join(reader, &result);
  assert_null(result);
}

/* ---- events ---- */

static char event_words[LM_ERROR_SIZE];
static loam_event_kind event_kind;
static int events;

static void note_event(void *ctx, const loam_event *event) {
  (void)ctx;
  events++;
  event_kind = event->kind;
  snprintf(event_words, sizeof event_words, "%s", event->message);
  loam_site_get("made.in.a.callback"); /* this is allowed, because loam holds no lock */
}

static void a_policy_that_fails_for_any_tag_is_refused(void **state) {
  (void)state;
  assert_int_equal(load(ALL_OF("good")), LOAM_OK);
  assert_int_equal(load("local h = loam.host {}\n"
                        "return loam.policy { pick = function(req)\n"
                        "  if req.tag:glob('never.seen.*') then return nil end\n"
                        "  return h\nend }\n"),
                   LOAM_EPOLICY);
  assert_non_null(strstr(loam_error(), "test.lua:"));
  assert_string_equal(picked("never.seen.tag", 1), "good");
}

/* Every line has a plan of its own, so that plans need memory. */
static const char *const by_line =
    "local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
    "return loam.policy { pick = function(req)\n"
    "  return req.size > req.line and b or a\nend }\n";

/* Makes sites until the process has no memory for the plan of one. Returns 0 if that site has the
 * default plan, all sites before it have plans of their own, and an event reports it. */
static int exhaust(void *unused) {
  (void)unused;
  if (load(by_line) || info().tags_refused) return 1;
  loam_on_event(note_event, NULL);
  for (int line = 1; line < 100000; line++) {
    lm_sys_refuse_from(1);
    loam_site *site = loam_site_at(&(loam_where){ .tag = "of.lines", .line = line });
    lm_sys_refuse_from(0);
    if (!site) { /* no memory for the site itself: make other sites */
      (void)loam_site_at(&(loam_where){ .tag = "other", .line = line });
      continue;
    }
    bool is_refused = info().tags_refused;
    if (strcmp(picked_at(site, 1), is_refused ? "default" : "a")) return 3;
    if (!is_refused) continue;
    if (event_kind != LOAM_EVENT_TAG_REFUSED || !strstr(event_words, "of.lines")) return 4;
    return info().tags_refused == 1 && lm_policy_is_valid() ? 0 : 5;
  }
  return 2;
}

static void only_a_lack_of_memory_gives_a_site_the_default(void **state) {
  (void)state;
  assert_int_equal(run_in_child(exhaust, NULL), 0);
}

static const char many_strategies[] =
    "local of = {}\n"
    "for i = 1, 1100 do of['tag.' .. i] = loam.host { name = 'strategy.' .. i } end\n"
    "local other = loam.host { name = 'other' }\n"
    "return loam.policy { pick = function(req) return of[req.tag] or other end }\n";

static void too_many_strategies_are_one_fault(void **state) {
  (void)state;
  assert_int_equal(load(many_strategies), LOAM_EPOLICY);
  const char *words = strstr(loam_error(), "machine: there are already 1023 strategies");
  assert_non_null(words);
  assert_null(strstr(words + strlen("machine: there"), "there are already"));
  assert_int_equal(load(ALL_OF("after")), LOAM_OK); /* there is room again */
}

static void take_answer(void *ctx, const char *text, size_t length) {
  static const char words[] = "there are already 1023";
  if (memmem(text, length, words, strlen(words))) *(bool *)ctx = true;
}

/* Returns whether `loam_policy_inspect` refuses a text because of its strategies. */
static bool is_refused_for_room(const char *text) {
  bool is_refused = false;
  save_text(text);
  assert_int_equal(loam_policy_inspect("policy.lua", "verb check", take_answer, &is_refused),
                   LOAM_OK);
  return is_refused;
}

static void many_inspected_strategies_leave_room(void **state) {
  (void)state;
  char before[4096];
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(folder), 0);
  assert_true(is_refused_for_room(many_strategies));
  assert_false(is_refused_for_room(ALL_OF("inspected")));
  assert_int_equal(chdir(before), 0);
}

static void events_report_what_went_live_and_what_was_refused(void **state) {
  (void)state;
  loam_on_event(note_event, NULL);
  assert_int_equal(load(ALL_OF("told")), LOAM_OK);
  assert_int_equal(event_kind, LOAM_EVENT_POLICY_LIVE);
  assert_int_equal(load("return 1\n"), LOAM_EPOLICY);
  assert_int_equal(event_kind, LOAM_EVENT_POLICY_REFUSED);
  assert_string_equal(event_words, loam_error());
  loam_on_event(NULL, NULL);
}

/* ---- files */

static void a_file_is_loaded_by_its_absolute_path(void **state) {
  (void)state;
  char before[4096];
  assert_non_null(getcwd(before, sizeof before));
  save_text(ALL_OF("filed"));
  assert_int_equal(chdir(folder), 0);
  assert_int_equal(lm_policy_load_file("policy.lua"), LOAM_OK);
  assert_int_equal(chdir(before), 0);
  assert_string_equal(info().path, file);
}

static void refused_file(const char *path, loam_status expected, const char *words) {
  uint64_t before = info().generation;
  assert_int_equal(lm_policy_load_file(path), expected);
  if (!strstr(loam_error(), words)) fail_msg("expected \"%s\" in: %s", words, loam_error());
  if (!strstr(loam_error(), path)) fail_msg("no path in: %s", loam_error());
  assert_string_equal(info().last_error, loam_error());
  assert_int_equal(info().generation, before);
}

static void what_is_no_file_is_refused_in_words(void **state) {
  (void)state;
  refused_file("/nonexistent/policy.lua", LOAM_EIO, "No such file");
  refused_file("", LOAM_EIO, "the path of the policy is empty");
  refused_file(folder, LOAM_EIO, "is a directory");
  refused_file("/dev/null", LOAM_EIO, "not a regular file");
  unlink(file);
  assert_int_equal(mkfifo(file, 0600), 0);
  refused_file(file, LOAM_EIO, "not a regular file");
  unlink(file);
}

/* Root can read every file, so the child becomes the user 65534. */
static int load_as_another_user(void *argument) {
  (void)argument;
  if (geteuid() == 0 && setuid(65534)) return 1;
  uint64_t before = info().generation;
  if (lm_policy_load_file(file) != LOAM_EIO) return 2;
  if (!strstr(loam_error(), "Permission denied")) return 3;
  return info().generation == before ? 0 : 4;
}

static void an_unreadable_file_is_refused_in_words(void **state) {
  (void)state;
  save_text(ALL_OF("hidden"));
  chmod(file, 0);
  assert_int_equal(run_in_child(load_as_another_user, NULL), 0);
  unlink(file);
}

static void empty_and_cut_off_files_are_refused(void **state) {
  (void)state;
  const char *text = ALL_OF("cut");
  save("", 0);
  refused_file(file, LOAM_EPOLICY, "empty");
  for (size_t n = 1; n < strlen(text); n += 7) {
    save(text, n);
    refused_file(file, LOAM_EPOLICY, "");
  }
  save(text, strlen(text) - 1);
  refused_file(file, LOAM_EPOLICY, "newline");
}

static void a_file_of_more_than_a_megabyte_is_refused(void **state) {
  (void)state;
  char *text = malloc(LM_MIB + 1);
  memset(text, '\n', LM_MIB + 1);
  save(text, LM_MIB + 1);
  refused_file(file, LOAM_EIO, "at most");
  free(text);
}

static void an_unchanged_file_is_left_alone(void **state) {
  (void)state;
  save_text(ALL_OF("steady"));
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_OK);
  struct loam_policy_info before = info();
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_OK);
  assert_int_equal(info().generation, before.generation);
  assert_int_equal(info().loads, before.loads);
  assert_int_equal(lm_policy_load_file(file), LOAM_OK);
  assert_int_equal(info().generation, before.generation + 1);
}

static void *no_malloc(void *ctx, size_t size) {
  (void)ctx;
  (void)size;
  return NULL;
}
static void *no_calloc(void *ctx, size_t count, size_t size) {
  return no_malloc(ctx, count * size);
}
static void *no_realloc(void *ctx, void *p, size_t size) {
  (void)p;
  return no_malloc(ctx, size);
}
static void no_free(void *ctx, void *p, size_t size) {
  (void)ctx;
  (void)p;
  (void)size;
}

/* The text was not the reason for the failure, so an unchanged file is loaded later. */
static void a_file_whose_handler_was_missing_is_loaded_later(void **state) {
  (void)state;
  static const loam_handler later = { "later",
                                      1,
                                      { NULL, no_malloc, no_calloc, no_realloc, no_free } };
  save_text("local h, usual = loam.handler 'later', loam.host { name = 'usual' }\n"
            "return loam.policy { pick = function(req)\n"
            "  if req.tag == 'never' then return h end\n"
            "  return usual\n"
            "end }\n");
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_EPOLICY);
  assert_int_equal(info().last, LOAM_EPOLICY);
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_EPOLICY);
  assert_int_equal(loam_handler_register(&later), LOAM_OK);
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_OK);
  assert_int_equal(info().last, LOAM_OK);
}

static void the_hash_of_a_refused_text_is_known_until_the_next_attempt(void **state) {
  (void)state;
  const char *bad = "return 1\n";
  uint64_t hash = lm_policy_file_hash(bad, strlen(bad));
  save_text(ALL_OF("live"));
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_OK);
  assert_int_equal(refused_hash(), 0);
  save_text(bad);
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_EPOLICY);
  assert_int_equal(refused_hash(), hash);
  unlink(file);
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_EIO);
  assert_int_equal(refused_hash(), 0);
  assert_int_equal(load(bad), LOAM_EPOLICY);
  assert_int_equal(refused_hash(), hash);
  save_text(ALL_OF("live"));
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_OK);
  assert_int_equal(refused_hash(), 0);
}

static void a_missing_file_is_reported_once_whether_its_path_is_relative_or_not(void **state) {
  (void)state;
  char before[4096];
  unlink(file);
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(folder), 0);
  assert_int_equal(lm_policy_load_file(strrchr(file, '/') + 1), LOAM_EIO);
  assert_int_equal(chdir(before), 0);
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_OK);
}

static void a_refused_file_is_reported_once_and_forgotten_when_mended(void **state) {
  (void)state;
  save_text(ALL_OF("mended"));
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_OK);
  uint64_t generation = info().generation;
  save_text("return 1\n");
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_EPOLICY);
  uint64_t refused = info().refused;
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_OK);
  assert_int_equal(info().refused, refused);
  unlink(file);
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_EIO);
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_OK);
  save_text(ALL_OF("mended"));
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_OK);
  assert_int_equal(info().generation, generation);
  assert_int_equal(info().last, LOAM_OK);
  assert_string_equal(info().last_error, "");
}

/* ---- images */

/* Writes the image of the policy `compiled` to the file, with `text` as its text. Both texts have
 * one length. So a test sees whether the image or the text was used. */
static void save_image(const char *compiled, const char *text, uint32_t format) {
  void *bytes;
  size_t size;
  lm_script_source source = { "p.lua", compiled, strlen(compiled), lm_policy_limits(), true };
  assert_int_equal(lm_script_compile(&source, false, &bytes, &size), LOAM_OK);
  lm_policy_image_frame *frame = bytes;
  assert_int_equal(frame->text.size, strlen(text));
  memcpy((char *)bytes + frame->text.at, text, strlen(text));
  frame->text_hash = lm_policy_file_hash(text, strlen(text));
  frame->format = format;
  frame->checksum = lm_policy_image_checksum(bytes, size);
  save(bytes, size);
  lm_metadata_free(bytes);
}

static void an_image_is_loaded_like_a_text_and_not_compiled(void **state) {
  (void)state;
  save_image(ALL_OF("in.plan"), ALL_OF("in.text"), LM_POLICY_IMAGE_FORMAT);
  loam_on_event(note_event, NULL);
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_OK);
  loam_on_event(NULL, NULL);
  assert_null(strstr(event_words, "again"));
  assert_string_equal(picked("known.a", 10), "in.plan");
  assert_string_equal(info().name, "in.plan");
  assert_true(info().hash == lm_policy_file_hash(ALL_OF("in.text"), strlen(ALL_OF("in.text"))));
  uint64_t generation = info().generation;
  assert_int_equal(lm_policy_load_followed(file, true), LOAM_OK);
  assert_int_equal(info().generation, generation);
}

static void an_image_of_another_format_is_compiled_again(void **state) {
  (void)state;
  char words[80];
  save_image(ALL_OF("in.plan"), ALL_OF("in.text"), LM_POLICY_IMAGE_FORMAT + 1);
  loam_on_event(note_event, NULL);
  assert_int_equal(lm_policy_load_file(file), LOAM_OK);
  loam_on_event(NULL, NULL);
  assert_int_equal(event_kind, LOAM_EVENT_POLICY_LIVE);
  snprintf(words, sizeof words, "it was compiled again: policy image: it has format %d",
           LM_POLICY_IMAGE_FORMAT + 1);
  assert_non_null(strstr(event_words, words));
  assert_string_equal(picked("known.a", 10), "in.text");
}

static void a_damaged_image_is_refused_in_words(void **state) {
  (void)state;
  char bytes[sizeof(lm_policy_image_head)];
  assert_int_equal(load(ALL_OF("good")), LOAM_OK);
  save_image(ALL_OF("in.plan"), ALL_OF("in.text"), LM_POLICY_IMAGE_FORMAT);
  int fd = open(file, O_RDWR);
  assert_int_equal(pread(fd, bytes, sizeof bytes, 0), sizeof bytes);
  bytes[100]++;
  assert_int_equal(pwrite(fd, bytes, sizeof bytes, 0), sizeof bytes);
  refused_file(file, LOAM_EPOLICY, "checksum");
  assert_int_equal(ftruncate(fd, 5), 0);
  refused_file(file, LOAM_EPOLICY, "");
  assert_int_equal(ftruncate(fd, LM_MIB + 1), 0);
  refused_file(file, LOAM_EIO, "at most");
  close(fd);
  assert_string_equal(picked("known.a", 10), "good");
}

static void an_image_may_be_larger_than_a_text(void **state) {
  (void)state;
  save_image(ALL_OF("in.plan"), ALL_OF("in.plan"), LM_POLICY_IMAGE_FORMAT);
  assert_int_equal(truncate(file, 2 * LM_MIB), 0);
  refused_file(file, LOAM_EPOLICY, "2097152 bytes, but its head says");
}

/* ---- fork */

/* A policy of many classes: its load takes a while. */
static const char *const busy =
    "local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
    "return loam.policy { pick = function(req)\n"
    "  for i = 1, 40 do\n"
    "    if req.tag:under('busy.' .. i) and req.size > i then return b end\n"
    "  end\n"
    "  return a\nend }\n";

static int load_in_child(void *argument) {
  (void)argument;
  void *p = loam_malloc(loam_site_get("child.tag"), 100);
  if (!p) return 1;
  loam_free(p);
  if (load(ALL_OF("child"))) return 2;
  return strcmp(picked("child.tag", 1), "child") ? 3 : 0;
}

static _Atomic bool is_over;

static void *load_until_over(void *unused) {
  (void)unused;
  loam_status status = LOAM_OK;
  while (!atomic_load(&is_over) && status == LOAM_OK) status = load(busy);
  return status == LOAM_OK ? NULL : WRONG;
}

static void a_child_forked_during_a_load_can_allocate_and_load(void **state) {
  (void)state;
  atomic_store(&is_over, false);
  pthread_t loader = start_thread(load_until_over, NULL);
  for (int i = 0; i < (SANITIZED ? 15 : 50); i++)
    assert_int_equal(run_in_child(load_in_child, NULL), 0);
  atomic_store(&is_over, true);
  void *result;
  pthread_join(loader, &result);
  assert_null(result);
}

/* A fork that waits for a swap continues right after it. With many sites a swap takes long. */
enum { MANY_SITES = 20000 };

static void make_many_sites(void) {
  char tag[32];
  for (int i = 0; i < MANY_SITES; i++) {
    snprintf(tag, sizeof tag, "many.t%d", i);
    assert_non_null(loam_site_get(tag));
  }
}

static void *load_one_then_another(void *unused) {
  (void)unused;
  for (int i = 0; !atomic_load(&is_over); i++)
    if (load(i % 2 ? ALL_OF("one") : ALL_OF("another"))) return WRONG;
  return NULL;
}

/* The child has only one thread, so only its own decisions can be out of date. */
static int obeys_what_is_live(void *site) {
  loam_owner_info owner;
  void *p = loam_malloc(site, 100);
  if (loam_owner(p, &owner) != LOAM_OK) return 1;
  loam_free(p);
  return strcmp(owner.strategy, info().name) ? 2 : 0;
}

static void a_child_forked_during_a_load_obeys_what_is_live_in_it(void **state) {
  (void)state;
  void *result, *site = loam_site_get("child.obeys");
  make_many_sites();
  atomic_store(&is_over, false);
  assert_int_equal(load(ALL_OF("one")), LOAM_OK);
  pthread_t loader = start_thread(load_one_then_another, NULL);
  for (int i = 0; i < (SANITIZED ? 50 : 500); i++) {
    loam_free(loam_malloc(site, 100)); /* makes the thread keep a decision */
    assert_int_equal(run_in_child(obeys_what_is_live, site), 0);
  }
  atomic_store(&is_over, true);
  pthread_join(loader, &result);
  assert_null(result);
}

/* A load takes the lock of the live policy before locks of memory. This thread provokes both orders
 * of the locks, because each load has new strategies. */
static void *load_new_strategies(void *unused) {
  static const char *const names[] = { "come", "gone" };
  (void)unused;
  for (int i = 0; !atomic_load(&is_over); i++) {
    char text[200];
    snprintf(text, sizeof text,
             "local h = loam.host { name = '%s' }\n"
             "return loam.policy { pick = function(req) return h end }\n",
             names[i % 2]);
    load(text);
    loam_free(loam_malloc(NULL, 100));
  }
  return NULL;
}

static int end_at_once(void *unused) {
  (void)unused;
  return 0;
}

static void a_fork_and_a_load_do_not_wait_for_each_other(void **state) {
  (void)state;
  atomic_store(&is_over, false);
  pthread_t loader = start_thread(load_new_strategies, NULL);
  alarm(2 * PATIENCE_S);
  for (int i = 0; i < (SANITIZED ? 50 : 300); i++)
    assert_int_equal(run_in_child(end_at_once, NULL), 0);
  alarm(0);
  atomic_store(&is_over, true);
  pthread_join(loader, NULL);
}

/* ---- refusals of the system */

static void attempt_load(bool refused) {
  uint64_t before = info().generation;
  loam_status status = load(busy);
  if (!refused) assert_int_equal(status, LOAM_OK);
  assert_int_equal(info().generation, before + (status == LOAM_OK));
  assert_non_null(picked("busy", 10));
}

static void a_load_fails_cleanly_when_the_system_refuses(void **state) {
  (void)state;
  refuse_each(attempt_load);
  assert_int_equal(load(ALL_OF("after")), LOAM_OK);
}

/* ---- a text that was checked before the start ---- */

static int load_vetted(void *text) {
  char hash[24];
  snprintf(hash, sizeof hash, "%016llx",
           (unsigned long long)lm_policy_file_hash(text, strlen(text)));
  setenv("LOAM_VETTED", hash, 1);
  if (load(text) != LOAM_OK) return 1;
  return load(text) == LOAM_EPOLICY ? 0 : 2;
}

static void the_first_load_skips_tests_that_were_run_for_it(void **state) {
  (void)state;
  const char *text = "local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
                     "return loam.policy { pick = function(req) return a end,\n"
                     "  tests = { { tag = 'x', size = 1, expect = b } } }\n";
  assert_int_equal(run_in_child(load_vetted, (void *)text), 0);
}

/* Sets LOAM_VETTED as `loam run` sets it for `text`, but with the plan of `other`. */
static void set_carried(const char *other, const char *text) {
  static char carried[LM_IMAGE_TEXT_SIZE], vetted[LM_VET_SIZE];
  lm_script_limits limits = { .max_leaves = 1000, .step_ms = 1000, .step_bytes = 4 * LM_MIB };
  lm_script_source source = { "p.lua", other, strlen(other), &limits, .is_host = false };
  if (carried_write(&source, carried) != LOAM_OK) return;
  snprintf(vetted, sizeof vetted, "%016llx:%s",
           (unsigned long long)lm_policy_file_hash(text, strlen(text)), carried);
  setenv("LOAM_VETTED", vetted, 1);
}

/* The carried plan belongs to another text, so the test sees that it was used. */
static int load_carried(void *arg) {
  (void)arg;
  const char *text = ALL_OF("of.text");
  set_carried(ALL_OF("carried"), text);
  if (load(text) != LOAM_OK || strcmp(picked("any", 10), "carried")) return 1;
  if (strcmp(info().name, "carried") || info().plans != 1) return 2;
  if (load(text) != LOAM_OK || strcmp(picked("any", 10), "of.text")) return 3;
  return info().generation == 2 ? 0 : 4;
}

static int load_damaged(void *arg) {
  (void)arg;
  const char *text = ALL_OF("of.text");
  set_carried(ALL_OF("carried"), text);
  char *vetted = getenv("LOAM_VETTED");
  if (!vetted) return 1;
  vetted[strlen(vetted) - 1] = 0;
  return load(text) == LOAM_OK && !strcmp(picked("any", 10), "of.text") ? 0 : 2;
}

static void the_first_load_takes_the_plan_that_was_carried(void **state) {
  (void)state;
  assert_int_equal(run_in_child(load_carried, NULL), 0);
  assert_int_equal(run_in_child(load_damaged, NULL), 0);
}

static void a_generation_that_no_load_made_is_not_valid(void **state) {
  (void)state;
  assert_true(lm_policy_is_valid());
  atomic_fetch_add(&lm_site_generation, 1);
  assert_false(lm_policy_is_valid());
  atomic_fetch_sub(&lm_site_generation, 1);
  assert_true(lm_policy_is_valid());
}

enum { EARLY = 2000, LATE = 4000 };

static _Atomic bool is_loaded;

/* Makes sites with new tags until the load is done. *made becomes their number. */
static void *see_new_tags(void *made) {
  char tag[32];
  for (size_t *n = made; *n < LATE && !is_loaded; ++*n) {
    snprintf(tag, sizeof tag, "counted.late.%zu", *n);
    if (!loam_site_get(tag)) break;
  }
  return made;
}

static void count_tag(void *ctx, const loam_site *site, uint64_t bytes) {
  (void)site;
  (void)bytes;
  ++*(uint32_t *)ctx;
}

static void tags_that_a_load_and_new_sites_count_at_one_time_are_all_known(void **state) {
  static const char text[] = "local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
                             "return loam.policy { name = '%s', pick = function(req)\n"
                             "  if req.tag:under('%s') and req.live > 1 then return a end\n"
                             "  return b\n"
                             "end }\n";
  char words[512], tag[32];
  uint32_t known = 0;
  size_t late = 0;
  pthread_t thread;
  (void)state;
  for (int i = 0; i < EARLY; i++) {
    snprintf(tag, sizeof tag, "counted.early.%d", i);
    assert_non_null(loam_site_get(tag));
  }
  snprintf(words, sizeof words, text, "late", "counted.late");
  assert_int_equal(lm_policy_load("late", words, strlen(words)), LOAM_OK);
  assert_int_equal(pthread_create(&thread, NULL, see_new_tags, &late), 0);
  snprintf(words, sizeof words, text, "both", "counted");
  assert_int_equal(lm_policy_load("both", words, strlen(words)), LOAM_OK);
  is_loaded = true;
  pthread_join(thread, NULL);
  uint32_t unlisted = lm_live_each(count_tag, &known);
  assert_int_equal(known + unlisted, EARLY + late);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_first_load_takes_the_plan_that_was_carried),  /* runs before any load */
    cmocka_unit_test(the_first_load_skips_tests_that_were_run_for_it), /* runs before any load */
    cmocka_unit_test(a_load_makes_the_next_generation),
    cmocka_unit_test(every_known_site_obeys_the_new_policy),
    cmocka_unit_test(a_tag_seen_later_obeys_the_live_policy),
    cmocka_unit_test(a_new_tag_needs_little_stack_and_no_lua),
    cmocka_unit_test(a_line_has_a_plan_of_its_own),
    cmocka_unit_test(sites_that_a_policy_cannot_distinguish_share_a_plan),
    cmocka_unit_test(it_keeps_the_last_good_policy),
    cmocka_unit_test(a_failing_test_refuses_the_policy),
    cmocka_unit_test(a_policy_that_fails_for_one_known_tag_is_refused),
    cmocka_unit_test(an_old_plan_stays_until_no_thread_reads_it),
    cmocka_unit_test(a_policy_that_fails_for_any_tag_is_refused),
    cmocka_unit_test(only_a_lack_of_memory_gives_a_site_the_default),
    cmocka_unit_test(too_many_strategies_are_one_fault),
    cmocka_unit_test(many_inspected_strategies_leave_room),
    cmocka_unit_test(events_report_what_went_live_and_what_was_refused),
    cmocka_unit_test(a_file_is_loaded_by_its_absolute_path),
    cmocka_unit_test(what_is_no_file_is_refused_in_words),
    cmocka_unit_test(an_unreadable_file_is_refused_in_words),
    cmocka_unit_test(empty_and_cut_off_files_are_refused),
    cmocka_unit_test(a_file_of_more_than_a_megabyte_is_refused),
    cmocka_unit_test(an_unchanged_file_is_left_alone),
    cmocka_unit_test(a_file_whose_handler_was_missing_is_loaded_later),
    cmocka_unit_test(the_hash_of_a_refused_text_is_known_until_the_next_attempt),
    cmocka_unit_test(a_missing_file_is_reported_once_whether_its_path_is_relative_or_not),
    cmocka_unit_test(a_refused_file_is_reported_once_and_forgotten_when_mended),
    cmocka_unit_test(an_image_is_loaded_like_a_text_and_not_compiled),
    cmocka_unit_test(an_image_of_another_format_is_compiled_again),
    cmocka_unit_test(a_damaged_image_is_refused_in_words),
    cmocka_unit_test(an_image_may_be_larger_than_a_text),
    cmocka_unit_test(a_child_forked_during_a_load_can_allocate_and_load),
    cmocka_unit_test(a_fork_and_a_load_do_not_wait_for_each_other),
    cmocka_unit_test(a_load_fails_cleanly_when_the_system_refuses),
    cmocka_unit_test(a_child_forked_during_a_load_obeys_what_is_live_in_it), /* last: many sites */
    cmocka_unit_test(tags_that_a_load_and_new_sites_count_at_one_time_are_all_known),
    cmocka_unit_test(a_generation_that_no_load_made_is_not_valid),
  };
  setenv("LOAM_CONTROL", "0", 1);
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
