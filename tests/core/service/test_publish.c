/* test_publish.c - a process obeys the policies that are published on the board of its process
 * tree: publish.h, and the command's publisher. */
#include "test.h"

#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "cli/publisher.h"
#include "control_fixture.h"
#include "heap/pool.h"
#include "heap/quota.h"
#include "heap/strategy.h"
#include "os/hash.h"
#include "os/sys.h"
#include "pages/metadata.h"
#include "plan/policy_image.h"
#include "service/board.h"
#include "service/board_file.h"
#include "service/board_owner.h"
#include "service/board_read.h"
#include "service/publish.h"
#include "service/quota_file.h"

enum { STACK = 16384, REFUSED = 200 };

static char board_path[PATH_MAX];

static void publish(const char *text) {
  uint64_t number;
  bool lacks_keeper;
  save(text);
  if (lm_publisher_reload(board_path, file, &number, &lacks_keeper)) fail_msg("%s", loam_error());
}

/* Makes a board for a policy file, and follows it. */
static void follow_board_for(const char *policy) {
  lm_board *board;
  assert_int_equal(lm_board_file_make(folder, board_path, &board), LOAM_OK);
  strcpy(board->news.policy, policy);
  lm_board_file_unmap(board);
  assert_int_equal(lm_quota_file_make(folder), LOAM_OK);
  setenv("LOAM_BOARD", board_path, 1);
  setenv("LOAM_POLICY", file, 1);
  lm_board_follow();
  assert_int_equal(lm_board_join(NULL), LOAM_OK);
}

/* Follows a board for the test's file. */
static int follow(void **state) {
  if (set_up(state)) return -1;
  loam_free(loam_malloc(NULL, 100)); /* starts loam */
  follow_board_for(file);
  return lm_board_halves() ? 0 : -1;
}

static int leave(void **state) {
  lm_board_end();
  unsetenv("LOAM_BOARD");
  unsetenv("LOAM_POLICY");
  return tear_down(state);
}

static const char *name_now(void) {
  static struct loam_policy_info info;
  lm_policy_info_get(&info);
  return info.name;
}

static void a_board_that_cannot_be_written_is_refused_in_words(void **state) {
  (void)state;
  lm_publisher p;
  save("a policy");
  assert_int_equal(lm_publisher_open(file, &p), LOAM_EIO);
  assert_non_null(strstr(loam_error(), "it is no board of this version of loam"));
  if (geteuid()) return; /* only root may give a file away */
  assert_int_equal(chown(board_path, 4711, (gid_t)-1), 0);
  assert_int_equal(lm_publisher_open(board_path, &p), LOAM_EIO);
  assert_non_null(strstr(loam_error(), "only user 4711 may change it: run the command as that"));
  char seen[PATH_MAX + 32], words[64]; /* as root sees the board of a service with a private /tmp */
  snprintf(seen, sizeof seen, "/proc/%d/root%s", getpid(), board_path);
  snprintf(words, sizeof words, "by nsenter -t %d -m -S 4711", getpid());
  assert_int_equal(lm_publisher_open(seen, &p), LOAM_EIO);
  assert_non_null(strstr(loam_error(), words));
  assert_int_equal(chown(board_path, 0, (gid_t)-1), 0);
}

/* The thread has decided this request before. It takes the slow path only because of the published
 * word. */
static void request(void) { loam_free(loam_malloc(NULL, 100)); }

#define SHARED_LIMIT                                                          \
  "local h = loam.host { name = 'h', limit = 4 * loam.MiB, shared = 'kv' }\n" \
  "return loam.policy { name = 'kv', pick = function(req) return h end }\n"

/* The table of quotas was mapped together with the board, so no descriptor is needed. */
static void an_edit_may_share_a_limit_where_no_file_can_be_opened(void **state) {
  struct rlimit before, none;
  (void)state;
  request();
  publish(SHARED_LIMIT);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  none = (struct rlimit){ 0, before.rlim_max };
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  request();
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_string_equal(name_now(), "kv");
  assert_false(lm_strategy_lacks_quota());
  assert_true(lm_quota_is_holder());
  void *p = loam_malloc(NULL, LM_MIB);
  uint64_t used = 0;
  for (uint32_t quota = 1; quota <= LM_QUOTAS; quota++) used += lm_quota_used(quota);
  assert_true(used >= LM_MIB);
  loam_free(p);
}

static void the_next_request_obeys_a_publication(void **state) {
  (void)state;
  request();
  uint64_t before = generation();
  publish(ALL_OF("one"));
  assert_int_equal(generation(), before);
  request();
  assert_int_equal(generation(), before + 1);
  assert_string_equal(name_now(), "one");
  for (int i = 0; i < 3 * LM_PUBLISHED_WORDS; i++) {
    publish(i % 2 ? ALL_OF("one") : ALL_OF("two"));
    request();
    assert_int_equal(generation(), before + 2 + (uint64_t)i);
    assert_string_equal(name_now(), i % 2 ? "one" : "two");
  }
  request();
  assert_int_equal(generation(), before + 1 + 3 * LM_PUBLISHED_WORDS);
}

/* The policy divides a size class, so no entry of the decision cache keeps the decision. */
static void a_request_whose_decision_is_not_kept_obeys_a_publication(void **state) {
  (void)state;
  publish("local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
          "return loam.policy { name = 'split', pick = function(req)\n"
          "  if req.size < 201 then return a end return b end }\n");
  for (int i = 0; i < 3; i++) loam_free(loam_malloc(NULL, 220));
  assert_string_equal(name_now(), "split");
  publish(ALL_OF("next"));
  loam_free(loam_malloc(NULL, 220));
  assert_string_equal(name_now(), "next");
}

static void a_realloc_obeys_a_publication(void **state) {
  (void)state;
  void *p = loam_malloc(NULL, 100);
  for (size_t size = 200; size <= 3200; size *= 2) {
    uint64_t before = generation();
    publish(size % 3 ? ALL_OF("one") : ALL_OF("two"));
    assert_non_null(p = loam_realloc(NULL, p, size));
    assert_int_equal(generation(), before + 1);
  }
  loam_free(p);
}

static void replaced_policies_give_their_memory_back(void **state) {
  (void)state;
  struct loam_stats first, last;
  for (int i = 0; i < 200; i++) {
    if (i == 100) assert_int_equal(loam_stats(&first), LOAM_OK);
    publish(i % 2 ? ALL_OF("one") : ALL_OF("two"));
    request();
  }
  assert_int_equal(loam_stats(&last), LOAM_OK);
  assert_in_range(last.metadata_bytes, 1, first.metadata_bytes + 64 * LM_KIB);
}

static atomic_bool is_over;

static void *sleep_until_over(void *arg) {
  loam_free(loam_malloc(NULL, 100)); /* the thread now has decisions of an old policy */
  while (!atomic_load(&is_over)) lm_sys_sleep(1000000);
  return arg;
}

static void *work_until_over(void *arg) {
  while (!atomic_load(&is_over)) {
    void *small = loam_malloc(loam_site_get("work"), 100), *large = loam_malloc(NULL, LM_MIB);
    assert_non_null(memset(small, 1, 100));
    loam_free(large);
    loam_free(small);
    lm_sys_sleep(50000);
  }
  return arg;
}

/* Publishes a policy that has only new strategies. */
static void publish_new(int n) {
  char text[400];
  snprintf(text, sizeof text,
           "local a = loam.host { name = 'a%d' }\nlocal b = loam.host { name = 'b%d' }\n"
           "local c = loam.host { name = 'c%d', align = 64 }\n"
           "return loam.policy { name = 'n%d', pick = function(req)\n"
           "  if req.tag:is('work') then return c end\n"
           "  if req.size < 512 then return a end\n  return b\nend }\n",
           n, n, n, n);
  publish(text);
  char name[16];
  snprintf(name, sizeof name, "n%d", n);
  request();
  for (int naps = 0; strcmp(name_now(), name) && be_patient(&naps);) request();
  assert_string_equal(name_now(), name);
}

/* The pool of each strategy has a place among LM_POOL_PLACES, and memory. A thread that sleeps must
 * not keep them. */
static void strategies_of_old_edits_give_their_memory_back(void **state) {
  (void)state;
  enum { EDITS = SANITIZED ? 400 : 1050, WARM = 60 };
  lm_pool_figures first, last;
  pthread_t thread[2] = { start_thread(sleep_until_over, NULL),
                          start_thread(work_until_over, NULL) };
  char *kept[2] = { 0 }, name[16];
  for (int i = 0; i < EDITS; i++) {
    publish_new(i);
    if (i == WARM) lm_pool_figures_get(&first);
    if (i == WARM) kept[0] = memset(loam_malloc(NULL, 100), 7, 100);
    if (i == WARM) kept[1] = memset(loam_malloc(NULL, LM_MIB), 8, LM_MIB);
  }
  lm_pool_figures_get(&last);
  for (int naps = 0; last.regions > first.regions && be_patient(&naps);) {
    lm_policy_tidy();
    lm_pool_figures_get(&last);
  }
  assert_in_range(last.regions, 0, first.regions);
  assert_in_range(last.metadata, 0, first.metadata + EDITS * 8 * LM_KIB);
  loam_owner_info owner;
  for (int i = 0; i < 2; i++) {
    snprintf(name, sizeof name, "%c%d", "ab"[i], WARM);
    assert_int_equal(loam_owner(kept[i], &owner), LOAM_OK);
    assert_string_equal(owner.strategy, name);
    assert_int_equal(kept[i][99], 7 + i);
    loam_free(kept[i]);
  }
  atomic_store(&is_over, true);
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
  assert_true(lm_pool_is_valid());
  assert_true(lm_strategy_is_valid());
}

static void damaged_bytes_are_refused_and_never_followed(void **state) {
  (void)state;
  struct loam_policy_info info;
  unsigned seed = 1;
  publish(ALL_OF("whole"));
  request();
  for (int i = 0; i < 200; i++) {
    uint64_t before = generation();
    publish(ALL_OF("damaged"));
    int fd = open(board_path, O_RDWR);
    assert_true(fd >= 0);
    uint64_t number = lm_published.now.number;
    off_t half = (off_t)(LM_BOARD_HALVES_AT + (number & 1) * LM_BOARD_HALF);
    unsigned char byte;
    off_t at = half + (off_t)((seed = seed * 1103515245 + 12345) >> 8) % 500;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1u << seed % 8;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    request();
    assert_int_equal(generation(), before);
    assert_string_equal(name_now(), "whole");
    lm_policy_info_get(&info);
    assert_int_not_equal(info.last, LOAM_OK);
    assert_false(lm_published_is_new()); /* the process does not try the publication again */
  }
  publish(ALL_OF("mended"));
  request();
  assert_string_equal(name_now(), "mended");
}

static void a_call_that_fails_leaves_the_old_policy_or_the_new_one(void **state) {
  (void)state;
  publish(ALL_OF("first"));
  request();
  bool was_obeyed = false;
  for (long nth = 1; nth < REFUSED && !was_obeyed; nth++) {
    uint64_t before = generation();
    publish(ALL_OF("next"));
    lm_sys_refuse(nth);
    lm_publish_obey_if_new();
    bool was_refused = *lm_sys_refused();
    lm_sys_refuse(0);
    assert_true(lm_policy_is_valid());
    assert_true(generation() == before || generation() == before + 1);
    was_obeyed = generation() == before + 1 && !was_refused;
    void *p = loam_malloc(NULL, 100);
    assert_non_null(p);
    loam_free(p);
  }
  publish(ALL_OF("last"));
  request();
  assert_string_equal(name_now(), "last");
}

static void *request_on_a_small_stack(void *arg) {
  request();
  assert_false(lm_published_is_new());
  return arg;
}

static void a_thread_with_a_small_stack_obeys(void **state) {
  (void)state;
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  assert_int_equal(pthread_attr_setstacksize(&attributes, STACK), 0);
  uint64_t before = generation();
  publish(ALL_OF("small"));
  assert_int_equal(pthread_create(&thread, &attributes, request_on_a_small_stack, NULL), 0);
  pthread_join(thread, NULL);
  assert_int_equal(generation(), before + 1);
  pthread_attr_destroy(&attributes);
}

static void a_forked_child_obeys_too(void **state) {
  (void)state;
  publish(ALL_OF("parent"));
  request();
  pid_t child = fork();
  if (!child) {
    for (int naps = 0; strcmp(name_now(), "child") && be_patient(&naps);) request();
    _exit(strcmp(name_now(), "child") ? 1 : 0);
  }
  publish(ALL_OF("child"));
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_string_equal(name_now(), "parent"); /* this process has made no request since then */
  request();
  assert_string_equal(name_now(), "child");
}

static void a_process_with_another_policy_does_not_follow(void **state) {
  (void)state;
  lm_board_end();
  follow_board_for("/nowhere/other.lua");
  assert_null(lm_board_halves());
  assert_int_equal(lm_published.now.number, 0);
  uint64_t before = generation();
  publish(ALL_OF("others"));
  request();
  assert_int_equal(generation(), before);
}

static int read_error;

/* Keeps the row of this process in `answer`. */
static void keep_row(void *ctx, const char *text, size_t length) {
  (void)ctx;
  if (!memmem(text, length, board_path, strlen(board_path))) return;
  answered = 0;
  gather(NULL, text, length);
}

/* Checks that the row of this process has the hash of `text` in `member`, or has no such member if
 * `text` is NULL. */
static void shows_hash(const char *member, const char *text) {
  char words[64];
  uint64_t hash = text ? lm_policy_file_hash(text, strlen(text)) : 0;
  lm_board_each(&(lm_board_reader){ .write = keep_row, .error = &read_error });
  snprintf(words, sizeof words, "\"%s\":", member);
  if (!text) assert_null(strstr(answer, words));
  snprintf(words, sizeof words, "\"%s\":\"%016llx\"", member, (unsigned long long)hash);
  if (text) expect_words(words);
}

/* Tries to publish a text. It must be refused. */
static void publish_broken(const char *text) {
  uint64_t number;
  bool lacks_keeper;
  save(text);
  assert_int_equal(lm_publisher_reload(board_path, file, &number, &lacks_keeper), LOAM_EPOLICY);
}

static void the_row_shows_what_is_published_and_what_was_refused(void **state) {
  (void)state;
  publish(ALL_OF("one"));
  lm_board_each(&(lm_board_reader){ .write = keep_row, .error = &read_error });
  expect_words("\"published\":0,\"latest\":{\"number\":1,\"hash\":");
  publish_broken("return 1\n");
  shows_hash("refused_hash", "return 1\n");
  request(); /* obeys a publication that is older than the refusal */
  assert_string_equal(name_now(), "one");
  shows_hash("refused_hash", "return 1\n");
  expect_words("\"ok\":false");
  publish(ALL_OF("two"));
  shows_hash("refused_hash", NULL);
  shows_hash("hash", ALL_OF("two")); /* the hash in `latest` */
  request();
  expect_words("\"published\":1,\"latest\":{\"number\":2,");
  expect_words("},\"before\":{\"number\":1,\"hash\":");
  shows_hash("refused_hash", NULL);
}

/* Sets the time at which the current policy was published. */
static void set_published_at(int64_t at) {
  lm_publisher to;
  assert_int_equal(lm_publisher_open(board_path, &to), LOAM_OK);
  to.news->image[atomic_load(&to.news->published.now.number) & 1].published_at = at;
  lm_publisher_close(&to);
}

static void the_row_shows_a_refusal_after_the_clock_was_set_back(void **state) {
  (void)state;
  publish(ALL_OF("of tomorrow"));
  set_published_at(lm_sys_unix_ns() + INT64_C(86400000000000));
  publish_broken("return 1\n");
  shows_hash("refused_hash", "return 1\n");
  publish(ALL_OF("of today"));
  shows_hash("refused_hash", NULL);
}

static void the_row_shows_which_image_the_process_refused(void **state) {
  (void)state;
  publish(ALL_OF("whole"));
  request();
  publish(ALL_OF("damaged"));
  int fd = open(board_path, O_RDWR);
  off_t half = (off_t)(LM_BOARD_HALVES_AT + (lm_published.now.number & 1) * LM_BOARD_HALF);
  assert_int_equal(pwrite(fd, "x", 1, half), 1);
  close(fd);
  request();
  shows_hash("refused_hash", ALL_OF("damaged"));
  publish(ALL_OF("whole"));
  request();
  shows_hash("refused_hash", NULL);
}

/* Writes the owner word of a place. */
static void set_owner(int place, uint64_t owner) {
  int fd = open(board_path, O_RDWR);
  off_t at = (off_t)(offsetof(lm_board, place) + (size_t)place * sizeof(lm_board_place));
  assert_int_equal(pwrite(fd, &owner, sizeof owner, at), sizeof owner);
  close(fd);
}

/* Returns the sample wish in a place. */
static uint64_t wish_in(int place) {
  lm_board_place copy;
  int fd = open(board_path, O_RDONLY);
  off_t at = (off_t)(offsetof(lm_board, place) + (size_t)place * sizeof copy);
  assert_int_equal(pread(fd, &copy, sizeof copy, at), sizeof copy);
  close(fd);
  return atomic_load(&copy.sample_wish);
}

static void a_wish_is_for_one_of_two_that_had_one_id(void **state) {
  (void)state;
  enum { KILLED = 5, YOUNGER = 6, KILLED_MS = 1000, YOUNGER_MS = 2000, INTERVAL = 4096 };
  uint64_t pid = (uint64_t)getpid();
  set_owner(KILLED, (uint64_t)KILLED_MS << LM_BOARD_MS_SHIFT | pid);
  set_owner(YOUNGER, (uint64_t)YOUNGER_MS << LM_BOARD_MS_SHIFT | pid);
  assert_int_equal(lm_publisher_wish(board_path, getpid(), YOUNGER_MS, INTERVAL), LOAM_OK);
  assert_int_equal(wish_in(YOUNGER), INTERVAL + 1);
  assert_int_equal(wish_in(KILLED), 0);
  assert_int_equal(lm_publisher_wish(board_path, getpid(), 3000, INTERVAL), LOAM_ESTATE);
  set_owner(KILLED, 0);
  set_owner(YOUNGER, 0);
}

static void a_publisher_obeys_its_law(void **state) {
  (void)state;
  lm_publisher to, broken;
  assert_int_equal(lm_publisher_open(board_path, &to), LOAM_OK);
  assert_true(lm_publisher_is_valid(&to));
  lm_sys_refuse(1);
  assert_int_equal(lm_publisher_reopen(&to), LOAM_EIO);
  lm_sys_refuse(0);
  assert_true(lm_publisher_is_valid(&to));
  assert_int_equal(lm_publisher_reopen(&to), LOAM_OK);
  assert_true(lm_publisher_is_valid(&to));
  broken = to;
  broken.fd = -1;
  assert_false(lm_publisher_is_valid(&broken));
  broken = to;
  broken.news = NULL;
  assert_false(lm_publisher_is_valid(&broken));
  lm_publisher_close(&to);
}

static void an_alarm_does_not_wait_for_a_stopped_publisher(void **state) {
  (void)state;
  lm_publisher to;
  assert_int_equal(lm_publisher_open(board_path, &to), LOAM_OK);
  int stopped = open(board_path, O_RDWR);
  assert_int_equal(flock(stopped, LOCK_EX), 0);
  assert_false(lm_publisher_alarm(&to));
  close(stopped);
  assert_true(lm_publisher_alarm(&to));
  lm_publisher_close(&to);
}

/* In another PID namespace the process id of a keeper has no meaning, and may belong to no process.
 * Such a keeper must not count as ended. */
static void a_keeper_lives_whose_id_means_nothing_here(void **state) {
  (void)state;
  lm_publisher keeper, other;
  int status;
  assert_int_equal(lm_publisher_open(board_path, &keeper), LOAM_OK);
  assert_int_equal(lm_publisher_open(board_path, &other), LOAM_OK);
  publish(ALL_OF("pressed"));
  uint64_t number = atomic_load(&other.news->published.now.number);
  other.news->image[number & 1].reads |= 1u << LM_IN_PRESSURE;
  assert_true(lm_publisher_lacks_keeper(&other));
  lm_publisher_keep(&keeper);
  assert_false(lm_publisher_lacks_keeper(&other));
  pid_t ended = fork();
  if (!ended) _exit(0);
  assert_int_equal(waitpid(ended, &status, 0), ended);
  atomic_store(&other.news->keeper, lm_board_owner_now(ended));
  assert_false(lm_publisher_lacks_keeper(&other));
  lm_publisher_close(&keeper);
  assert_true(lm_publisher_lacks_keeper(&other));
  lm_publisher_close(&other);
}

/* Changes the version in the latest published image to 9.8.7. */
static void pretend_other_version(void) {
  size_t size = sizeof(lm_board) + 2 * (size_t)LM_BOARD_HALF;
  uint64_t odd = lm_published.now.number & 1;
  int fd = open(board_path, O_RDWR);
  char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  assert_ptr_not_equal(map, MAP_FAILED);
  lm_policy_image_frame *frame = (void *)(map + LM_BOARD_HALVES_AT + odd * LM_BOARD_HALF);
  frame->version = 9 << 16 | 8 << 8 | 7;
  frame->checksum = lm_policy_image_checksum(frame, frame->size);
  ((lm_board *)map)->news.image[odd].hash = lm_hash_words(LM_HASH_NONE, frame, frame->size);
  munmap(map, size);
}

static void an_image_of_another_version_is_refused_in_words(void **state) {
  (void)state;
  publish(ALL_OF("ours"));
  request();
  publish(ALL_OF("theirs"));
  pretend_other_version();
  request();
  assert_string_equal(name_now(), "ours");
  shows_hash("refused_hash", ALL_OF("theirs"));
  expect_words("of loam 9.8.7, but this is format");
  publish(ALL_OF("ours again"));
  request();
  assert_string_equal(name_now(), "ours again");
}

#define FOLLOWS(name) cmocka_unit_test_setup_teardown(name, follow, leave)

int main(void) {
  const struct CMUnitTest tests[] = {
    FOLLOWS(a_board_that_cannot_be_written_is_refused_in_words),
    FOLLOWS(a_wish_is_for_one_of_two_that_had_one_id),
    FOLLOWS(a_keeper_lives_whose_id_means_nothing_here),
    FOLLOWS(a_publisher_obeys_its_law),
    FOLLOWS(an_alarm_does_not_wait_for_a_stopped_publisher),
    FOLLOWS(an_edit_may_share_a_limit_where_no_file_can_be_opened),
    FOLLOWS(the_next_request_obeys_a_publication),
    FOLLOWS(a_request_whose_decision_is_not_kept_obeys_a_publication),
    FOLLOWS(a_realloc_obeys_a_publication),
    FOLLOWS(replaced_policies_give_their_memory_back),
    FOLLOWS(strategies_of_old_edits_give_their_memory_back),
    FOLLOWS(damaged_bytes_are_refused_and_never_followed),
    FOLLOWS(a_call_that_fails_leaves_the_old_policy_or_the_new_one),
    FOLLOWS(a_thread_with_a_small_stack_obeys),
    FOLLOWS(a_forked_child_obeys_too),
    FOLLOWS(the_row_shows_what_is_published_and_what_was_refused),
    FOLLOWS(the_row_shows_a_refusal_after_the_clock_was_set_back),
    FOLLOWS(the_row_shows_which_image_the_process_refused),
    FOLLOWS(an_image_of_another_version_is_refused_in_words),
    FOLLOWS(a_process_with_another_policy_does_not_follow),
  };
  setenv("LOAM_CONTROL", "0", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
