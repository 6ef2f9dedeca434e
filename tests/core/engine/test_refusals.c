/* test_refusals.c - each system call on the way to memory is refused, alone or with all calls after
 * it, each time in a process of its own. No memory is lost, and afterwards all requests are served
 * again.
 *
 * Tests of other modules refuse the calls of those modules. The scenes here are like programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "heap/pool.h"
#include "heap/sweep.h"
#include "loam.h"
#include "test.h"

#define check(e) ((e) ? (void)0 : broken(__LINE__, #e))

static const char *scene_name;
static long refused_at;

static _Noreturn void broken(int line, const char *what) {
  fprintf(stderr, "%s, call %ld (%s) refused: line %d: not true: %s\n", scene_name, refused_at,
          lm_sys_refused(), line, what);
  _exit(1);
}

static const char policy[] =
    "local plain = loam.host { name = 'plain' }\n"
    "local of = {\n"
    "  guard = loam.host { name = 'guarded', guard = true },\n"
    "  thp = loam.host { name = 'huge', huge = 'thp' },\n"
    "  spread = loam.host { name = 'spread', numa = 'interleave' },\n"
    "  touched = loam.host { name = 'touched', prefault = true },\n"
    "  locked = loam.host { name = 'locked', lock = true }:or_else(plain),\n"
    "  limit = loam.host { name = 'limited', limit = 64 * loam.MiB },\n"
    "  shared = loam.shared { name = 'shared' },\n"
    "  file = loam.file { name = 'file', dir = '/var/tmp' }:or_else(plain),\n"
    "}\n"
    "return loam.policy { name = '%s', pick = function(req) return of[req.tag] or %s end }\n";

/* Under this policy no strategy is in use, so that each gives all its memory back. */
static const char nothing[] = "local no = loam.deny {}\n"
                              "return loam.policy { pick = function(req) return no end }\n";

/* Loads the policy. `otherwise` names the strategy of the tags that have no strategy in `of`. */
static loam_status load(const char *name, const char *otherwise) {
  static char text[2048];
  snprintf(text, sizeof text, policy, name, otherwise);
  return loam_policy_load_text(name, text);
}

/* ---- scenes. If `refused`, requests may fail, and must then leave all blocks unchanged */

static char *allocate(const char *tag, size_t size, bool refused) {
  loam_site *site = loam_site_get(tag);
  char *p = loam_malloc(site, size);
  check(p || refused);
  if (p) p[0] = p[size - 1] = 5;
  return p;
}

static void hold_zeroed(const char *p, size_t size) {
  for (size_t i = 0; i < size; i += 64) check(p[i] == 0);
}

static void make_and_free(const char *tag, const size_t *sizes, int n, bool refused) {
  enum { MOST = 60 };
  char *p[MOST], *z[MOST];
  for (int i = 0; i < n; i++) {
    p[i] = allocate(tag, sizes[i], refused);
    z[i] = loam_calloc(loam_site_get(tag), 1, sizes[i]);
    check(z[i] || refused);
    if (z[i]) hold_zeroed(z[i], sizes[i]);
  }
  for (int i = 0; i < n; i++) {
    check(!p[i] || p[i][sizes[i] - 1] == 5);
    loam_free(p[i]);
    loam_free(z[i]);
  }
}

static void small_blocks(bool refused) {
  size_t sizes[60];
  for (int i = 0; i < 60; i++) sizes[i] = (size_t)16 + (size_t)i * 547 % LM_SMALL_MAX;
  make_and_free("small", sizes, 60, refused);
}

static const size_t several[] = { 100, 40000, 70000, 300000, 3 << 20 };

static void large_blocks(bool refused) { make_and_free("large", several, 5, refused); }
static void guarded_blocks(bool refused) { make_and_free("guard", several, 5, refused); }
static void huge_blocks(bool refused) { make_and_free("thp", several, 5, refused); }
static void bound_blocks(bool refused) { make_and_free("spread", several, 5, refused); }
static void touched_blocks(bool refused) { make_and_free("touched", several, 5, refused); }
static void locked_blocks(bool refused) { make_and_free("locked", several, 5, refused); }
static void shared_blocks(bool refused) { make_and_free("shared", several, 5, refused); }
static void blocks_in_files(bool refused) { make_and_free("file", several, 5, refused); }
static void limited_blocks(bool refused) { make_and_free("limit", several, 5, refused); }

static void aligned_blocks(bool refused) {
  for (size_t align = 16; align <= 4 * LM_MIB; align *= 8) {
    void *p = loam_aligned_alloc(NULL, align, 3000);
    check(p || refused);
    check((uintptr_t)p % align == 0);
    loam_free(p);
  }
}

static void grow(const char *tag, size_t most, bool refused) {
  size_t size = 1000;
  char *p = allocate(tag, size, refused);
  while (p && size < most) {
    size_t more = 2 * size;
    char *q = loam_realloc(NULL, p, more);
    check(q || refused);
    if (q) p = q;
    check(p[0] == 5 && (p[size - 1] == 5 || !q));
    check(loam_usable_size(p) >= (q ? more : size));
    if (!q) break;
    p[more - 1] = 5;
    size = more;
  }
  loam_free(p);
}

static void growing_blocks(bool refused) {
  grow("growing", 10 * LM_MIB, refused);
  grow("thp", 10 * LM_MIB, refused);
  grow("limit", 10 * LM_MIB, refused);
  grow("shared", LM_MIB, refused);
  grow("file", LM_MIB, refused);
}

/* Grows a block that has neighbours. The block has to move, because the neighbours stay. */
static void growing_blocks_among_others(bool refused) {
  char *before = allocate("growing", 2 << 20, refused),
       *after = allocate("growing", 2 << 20, refused);
  char *p = loam_realloc(NULL, before, 5 << 20);
  check(p || refused);
  if (!p) p = before;
  check(!p || p[0] == 5);
  loam_free(p);
  loam_free(after);
}

static void peaks(bool refused) {
  enum { N = 400 };
  static char *p[N];
  for (int i = 0; i < N; i++) p[i] = allocate("peak", i % 4 ? 5000 : 100000, refused);
  for (int i = 0; i < N; i++) loam_free(p[i]);
}

/* Other scenes refuse the calls that make memory of each kind. This scene refuses those that trim
 * it. */
static const size_t two[] = { 100, 300000 };

static void trims(bool refused) {
  peaks(refused);
  loam_trim();
  make_and_free("touched", two, 2, refused);
  make_and_free("shared", two, 2, refused);
  make_and_free("file", two, 2, refused);
  loam_trim();
}

static void ticks_of_decay(bool refused) {
  for (int i = 0; i < 4; i++) {
    peaks(refused);
    lm_sweep_decay();
  }
  for (int i = 0; i < 4; i++) lm_sweep_decay();
}

static void *blocks_of_a_thread(void *refused) {
  small_blocks(*(bool *)refused);
  large_blocks(*(bool *)refused);
  return NULL;
}

static void threads(bool refused) {
  for (int i = 0; i < 2; i++) {
    pthread_t thread;
    check(!pthread_create(&thread, NULL, blocks_of_a_thread, &refused));
    pthread_join(thread, NULL);
  }
}

/* This scene runs in a process that has not used loam before. */
static void first_calls(bool refused) {
  check(!load("refusals", "plain") || refused);
  threads(refused);
  large_blocks(refused);
}

/* Loads two policies that give another strategy to the tags without one of their own. A block from
 * before keeps its contents. */
static void swaps_of_policies(bool refused) {
  static char name[32], strategy[64];
  char *kept = allocate("no tag of a policy", 100000, refused);
  for (int i = 0; i < 2; i++) {
    struct loam_policy_info before, after;
    loam_policy_info(&before);
    snprintf(name, sizeof name, "swapped-%d", i);
    snprintf(strategy, sizeof strategy, "of.%s", i % 2 ? "thp" : "limit");
    loam_status status = load(name, strategy);
    loam_policy_info(&after);
    check(!status || refused);
    check(after.generation == before.generation + !status);
    large_blocks(refused);
    small_blocks(refused);
  }
  check(!kept || kept[0] == 5);
  loam_free(kept);
}

static const struct scene {
  const char *name;
  void (*play)(bool refused);
  bool is_first; /* no policy is loaded before it */
  bool is_eager; /* touches or locks its memory: see REFUSAL_NS in pages/regions.c */
} scenes[] = {
#define SCENE(name, is_eager) \
  { #name, name, name == first_calls, is_eager }
  SCENE(first_calls, false),    SCENE(small_blocks, false),
  SCENE(large_blocks, false),   SCENE(guarded_blocks, false),
  SCENE(huge_blocks, false),    SCENE(bound_blocks, false),
  SCENE(touched_blocks, true),  SCENE(locked_blocks, true),
  SCENE(shared_blocks, false),  SCENE(blocks_in_files, true),
  SCENE(limited_blocks, false), SCENE(aligned_blocks, false),
  SCENE(growing_blocks, false), SCENE(growing_blocks_among_others, false),
  SCENE(trims, true),           SCENE(ticks_of_decay, false),
  SCENE(threads, false),        SCENE(swaps_of_policies, false),
};

/* ---- refusing */

/* The results of the child processes, in memory that they share with the test. */
enum { FUNCTIONS = 24 };
struct board {
  char function[FUNCTIONS][32]; /* functions of os/sys.h that were refused */
  long calls;                   /* system calls that the scene made */
};
static struct board *board;

static void note_function(const char *name) {
  int i = 0;
  while (i < FUNCTIONS && board->function[i][0] && strcmp(board->function[i], name)) i++;
  if (i < FUNCTIONS) snprintf(board->function[i], sizeof *board->function, "%s", name);
}

static void check_that_nothing_lives(void) {
  struct loam_stats stats;
  check(lm_pool_is_valid());
  check(!loam_stats(&stats));
  check(stats.live_blocks == 0 && stats.live_bytes == 0 && stats.bad_frees == 0);
}

/* Checks that no strategy has a pool. A pool that stays has lost slots. */
static void check_that_no_strategy_holds_memory(void) {
  check(!loam_policy_load_text("none", nothing));
  for (uint32_t id = 1; id < lm_strategy_count(); id++) check(!lm_strategy_at(id)->pool);
}

/* Runs in a process of its own. Plays the scene with call number `refused_at` refused (0: none), or
 * with all calls from that one on refused. Then plays the scene again, with no call refused. */
static int play(const struct scene *scene, bool all) {
  long loaded = lm_sys_calls();
  if (all) lm_sys_refuse_from(refused_at);
  else lm_sys_refuse(refused_at);
  scene->play(refused_at != 0);
  lm_sys_refuse(0);
  if (!all) board->calls = lm_sys_calls() - loaded;
  if (*lm_sys_refused()) note_function(lm_sys_refused());
  check_that_nothing_lives();
  if (*lm_sys_refused() && scene->is_eager) usleep(11000); /* REFUSAL_NS is 10 ms */
  scene->play(false);
  loam_trim();
  check_that_nothing_lives();
  check_that_no_strategy_holds_memory();
  return 0;
}

static void play_in_child(const struct scene *scene, bool all, long at) {
  int status;
  refused_at = at;
  pid_t pid = fork();
  if (pid == 0) {
    alarm(PATIENCE_S);
    _exit(play(scene, all));
  }
  check(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Under ThreadSanitizer forks are slow, and this test has nothing to show about threads. So every
 * seventh call is refused there, not every call. */
#ifdef __SANITIZE_THREAD__
enum { APART = 7 };
#else
enum { APART = 1 };
#endif

/* Loads the policy once, in a process that allocates nothing. The processes that play the scene are
 * forked from it. */
static int refuse_each_call(void *argument) {
  const struct scene *scene = argument;
  alarm(0);
  scene_name = scene->name;
  check(scene->is_first || !load("refusals", "plain"));
  play_in_child(scene, false, 0);
  long calls = board->calls;
  for (long at = 1; at <= calls + 1; at += APART) {
    play_in_child(scene, false, at);
    if (at <= calls) play_in_child(scene, true, at);
  }
  fprintf(stderr, "%s: %ld calls\n", scene->name, calls);
  return 0;
}

static void nothing_is_lost_whatever_the_system_refuses(void **state) {
  (void)state;
  for (size_t i = 0; i < LM_COUNT(scenes); i++)
    assert_int_equal(run_in_child(refuse_each_call, (void *)&scenes[i]), 0);
}

static void every_call_of_the_path_was_refused(void **state) {
  static const char *const wanted[] = {
    "reserve",      "commit",      "decommit", "purge",         "map_readable", "advise_huge",
    "prefault",     "mlock",       "move",     "bind",          "membarrier",   "file_memfd",
    "file_unnamed", "file_resize", "file_map", "file_allocate", "file_punch"
  };
  (void)state;
  if (APART > 1) {
    print_message("under ThreadSanitizer only some were refused\n");
    skip();
  }
  for (size_t i = 0; i < LM_COUNT(wanted); i++) {
    int k = 0;
    char name[32];
    snprintf(name, sizeof name, "lm_sys_%s", wanted[i]);
    while (k < FUNCTIONS && strcmp(board->function[k], name)) k++;
    if (k == FUNCTIONS) fail_msg("%s was never refused", name);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_lost_whatever_the_system_refuses),
    cmocka_unit_test(every_call_of_the_path_was_refused),
  };
  setenv("LOAM_CONTROL", "0", 1);
  board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return board == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
