/* test_loam.c - the public functions as a host sees them: start and stop, arguments, errors, whole
 * policies. */
#include "loam.h"

#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/start.h"
#include "test.h"

#define HOST "local plain = loam.host { name = 'plain' }\n"

static const char one_leaf[] = HOST
    "return loam.policy { name = 'one', pick = function(req) return plain end }\n";
static const char by_size[] = HOST "local big = loam.host { name = 'big', align = 64 }\n"
                                   "return loam.policy { name = 'two', pick = function(req)\n"
                                   "  if req.size >= 1000 then return big end\n"
                                   "  return plain\n"
                                   "end }\n";

static void load(const char *text) {
  if (loam_policy_load_text("test.lua", text)) fail_msg("%s", loam_error());
}

static const char *strategy_of(const void *p) {
  loam_owner_info o;
  assert_int_equal(loam_owner(p, &o), LOAM_OK);
  return o.strategy;
}

/* Makes a file with this text, which is removed when the process ends. */
static const char *file_of(const char *name, const char *text) {
  static char path[128];
  snprintf(path, sizeof path, "/tmp/loam-test-%d-%s", getpid(), name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
  return path;
}

static int in_child(int (*body)(void *), void *argument) { return run_in_child(body, argument); }

/* ---- start and stop ---- */

static int start_twice(void *argument) {
  loam_config config = { .size = sizeof config, .control = -1, .policy = argument };
  struct loam_policy_info info;
  CHECK_IN_CHILD(loam_start(&config) == LOAM_OK);
  CHECK_IN_CHILD(loam_start(&config) == LOAM_ESTATE && *loam_error());
  CHECK_IN_CHILD(loam_policy_info(&info) == LOAM_OK && info.generation == 1 &&
                 !strcmp(info.name, "one"));
  void *p = loam_malloc(NULL, 100);
  loam_stop();
  loam_stop();
  CHECK_IN_CHILD(!strcmp(strategy_of(p), "plain"));
  loam_free(p);
  p = loam_malloc(NULL, 100); /* the live policy stays */
  CHECK_IN_CHILD(!strcmp(strategy_of(p), "plain"));
  CHECK_IN_CHILD(loam_start(&config) == LOAM_OK);
  loam_stop();
  return 0;
}

/* A thread forks while another thread is in the middle of a start, in the callback of an event. The
 * threads meet at the barrier before the fork and after it. */
static pthread_barrier_t fork_amid_start;

static void wait_for_the_fork(void *ctx, const loam_event *event) {
  (void)ctx, (void)event;
  pthread_barrier_wait(&fork_amid_start);
  pthread_barrier_wait(&fork_amid_start);
}

static int start_after_a_fork(void *unused) {
  (void)unused;
  loam_on_event(NULL, NULL);
  CHECK_IN_CHILD(loam_start(&(loam_config){ .size = sizeof(loam_config), .control = -1 }) ==
                 LOAM_OK);
  CHECK_IN_CHILD(lm_start_is_running());
  return 0;
}

/* What the child is to do before it starts, and how it went. */
typedef struct forked {
  int namespaces; /* flags of unshare(2) for the fork */
  int result;
} forked;

enum { REFUSED = 77 }; /* the result where the system allows no such namespaces */

static void *fork_beside_a_start(void *of) {
  forked *f = of;
  pthread_barrier_wait(&fork_amid_start);
  bool is_refused = f->namespaces && unshare(f->namespaces);
  f->result = is_refused ? REFUSED : run_in_child(start_after_a_fork, NULL);
  pthread_barrier_wait(&fork_amid_start);
  return NULL;
}

static int fork_in_the_middle_of_a_start(void *namespaces) {
  forked f = { .namespaces = *(int *)namespaces };
  setenv("LOAM_LEAKS", "misspelt", 1); /* the start tells of it */
  loam_on_event(wait_for_the_fork, NULL);
  pthread_barrier_init(&fork_amid_start, NULL, 2);
  pthread_t beside = start_thread(fork_beside_a_start, &f);
  CHECK_IN_CHILD(loam_start(&(loam_config){ .size = sizeof(loam_config), .control = -1 }) ==
                 LOAM_OK);
  pthread_join(beside, NULL);
  return f.result;
}

static void a_child_starts_that_was_forked_in_the_middle_of_a_start(void **state) {
  (void)state;
  assert_int_equal(in_child(fork_in_the_middle_of_a_start, &(int){ 0 }), 0);
}

/* Both are process 1 of a PID namespace. */
static int fork_with_one_id(void *unused) {
  (void)unused;
  if (unshare(CLONE_NEWUSER | CLONE_NEWPID)) return REFUSED;
  return in_child(fork_in_the_middle_of_a_start, &(int){ CLONE_NEWPID });
}

static void a_child_with_its_parents_process_id_starts_too(void **state) {
  (void)state;
  int result = in_child(fork_with_one_id, NULL);
  if (result == REFUSED) print_message("not tried: there can be no PID namespace here\n");
  if (result == REFUSED) skip();
  assert_int_equal(result, 0);
}

static void starts_once_and_again_after_a_stop(void **state) {
  (void)state;
  const char *path = file_of("one.lua", one_leaf);
  assert_int_equal(in_child(start_twice, (void *)path), 0);
  unlink(path);
}

static void ignore_leak(void *ctx, const char *tag, uint64_t blocks, uint64_t bytes) {
  (void)ctx, (void)tag, (void)blocks, (void)bytes;
}

/* A start that fails lists no blocks for a report of leaks. */
static int start_broken(void *argument) {
  loam_config config = { .size = sizeof config, .control = -1, .policy = argument, .leaks = 1 };
  CHECK_IN_CHILD(loam_start(&config) == LOAM_EPOLICY);
  CHECK_IN_CHILD(strstr(loam_error(), "broken.lua:1"));
  CHECK_IN_CHILD(loam_block_leaks(ignore_leak, NULL) == LOAM_ESTATE);
  config.leaks = 0;
  config.policy = "/nonexistent/policy.lua";
  CHECK_IN_CHILD(loam_start(&config) == LOAM_EIO &&
                 strstr(loam_error(), "/nonexistent/policy.lua"));
  config.policy = argument;
  config.lenient = 1;
  CHECK_IN_CHILD(loam_start(&config) == LOAM_OK);
  void *p = loam_malloc(NULL, 10);
  CHECK_IN_CHILD(p && !strcmp(strategy_of(p), "default"));
  loam_free(p);
  return 0;
}

static void a_broken_policy_stops_the_start_unless_lenient(void **state) {
  (void)state;
  const char *path = file_of("broken.lua", "return lom.policy {}\n");
  assert_int_equal(in_child(start_broken, (void *)path), 0);
  unlink(path);
}

static int start_wrong(void *argument) {
  (void)argument;
  loam_config config = { 0 };
  CHECK_IN_CHILD(loam_start(&config) == LOAM_EINVAL && strstr(loam_error(), "size 0"));
  loam_system half = { .malloc = malloc };
  config = (loam_config){ .size = sizeof config, .system = &half };
  CHECK_IN_CHILD(loam_start(&config) == LOAM_EINVAL && strstr(loam_error(), "calloc"));
  return 0;
}

static int frees_of_host, mallocs_of_host;

static void *malloc_of_host(size_t size) {
  mallocs_of_host++;
  return malloc(size);
}

static void free_of_host(void *p) {
  frees_of_host++;
  free(p);
}

static int change_systems(void *path) {
  loam_system own = { malloc_of_host, calloc,        realloc,
                      free_of_host,   aligned_alloc, malloc_usable_size };
  loam_config config = { .size = sizeof config, .control = -1, .system = &own };
  CHECK_IN_CHILD(loam_start(&config) == LOAM_OK);
  CHECK_IN_CHILD(loam_policy_load_text("test", "local s = loam.system {} return loam.policy "
                                               "{ pick = function() return s end }\n") == LOAM_OK);
  void *p = loam_malloc(NULL, 100);
  CHECK_IN_CHILD(mallocs_of_host == 1);
  loam_stop();
  CHECK_IN_CHILD(loam_start(&(loam_config){ .size = sizeof config, .control = -1 }) == LOAM_OK);
  void *q = loam_malloc(NULL, 100);
  CHECK_IN_CHILD(mallocs_of_host == 1);
  loam_stop();
  config.policy = path;
  CHECK_IN_CHILD(loam_start(&config) == LOAM_EPOLICY); /* a refused start changes nothing */
  void *r = loam_malloc(NULL, 100);
  CHECK_IN_CHILD(mallocs_of_host == 1);
  loam_free(p);
  CHECK_IN_CHILD(frees_of_host == 1);
  loam_free(q);
  loam_free(r);
  CHECK_IN_CHILD(frees_of_host == 1);
  return 0;
}

static void a_block_goes_back_to_the_allocator_of_its_start(void **state) {
  (void)state;
  const char *path = file_of("broken.lua", "return lom.policy {}\n");
  assert_int_equal(in_child(change_systems, (void *)path), 0);
  unlink(path);
}

static void a_wrong_config_is_refused_by_name(void **state) {
  (void)state;
  assert_int_equal(in_child(start_wrong, NULL), 0);
}

static int start_by_use(void *argument) {
  setenv("LOAM_POLICY", argument, 1);
  void *p = loam_malloc(loam_site_get("early"), 100);
  CHECK_IN_CHILD(p && !strcmp(strategy_of(p), "plain"));
  CHECK_IN_CHILD(loam_start(NULL) == LOAM_ESTATE);
  loam_free(p);
  return 0;
}

static void the_first_allocation_starts_from_the_environment(void **state) {
  (void)state;
  const char *path = file_of("env.lua", one_leaf);
  assert_int_equal(in_child(start_by_use, (void *)path), 0);
  unlink(path);
}

static int events;
static void count_event(void *ctx, const loam_event *event) {
  (void)ctx;
  events += event->kind == LOAM_EVENT_POLICY_REFUSED && event->message[0] != 0;
}

static int start_by_use_broken(void *argument) {
  setenv("LOAM_POLICY", argument, 1);
  loam_on_event(count_event, NULL);
  void *p = loam_malloc(NULL, 100);
  CHECK_IN_CHILD(p && !strcmp(strategy_of(p), "default") && events == 1);
  loam_free(p);
  return 0;
}

static void a_broken_policy_of_the_environment_is_an_event(void **state) {
  (void)state;
  const char *path = file_of("envbroken.lua", "return 1\n");
  assert_int_equal(in_child(start_by_use_broken, (void *)path), 0);
  unlink(path);
}

static char misspelt[1000];
static void keep_misspelt(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind != LOAM_EVENT_ENVIRONMENT) return;
  strncat(misspelt, event->message, sizeof misspelt - strlen(misspelt) - 1);
  strncat(misspelt, "\n", sizeof misspelt - strlen(misspelt) - 1);
}

static int start_misspelt(void *unused) {
  (void)unused;
  loam_on_event(keep_misspelt, NULL);
  setenv("LOAM_WATCH", "yes", 1);
  setenv("LOAM_LEAKS", "2", 1);
  setenv("LOAM_KEEP", "yes", 1);
  setenv("LOAM_PRESSURE", "off", 1);
  loam_free(loam_malloc(NULL, 100));
  loam_free(loam_malloc(NULL, 100));
  CHECK_IN_CHILD(!strcmp(misspelt, "LOAM_WATCH=yes: it may be 0|1; taken as 0\n"
                                   "LOAM_KEEP=yes: it may be 0|1; taken as 0\n"
                                   "LOAM_PRESSURE=off: it may be 1|0; taken as 1\n"
                                   "LOAM_LEAKS=2: it may be 0|1; taken as 0\n"));
  return 0;
}

static int start_well_spelt(void *unused) {
  (void)unused;
  loam_on_event(keep_misspelt, NULL);
  setenv("LOAM_WATCH", "0", 1);
  setenv("LOAM_LEAKS", "", 1);
  setenv("LOAM_KEEP", "0", 1);
  setenv("LOAM_PRESSURE", "1", 1);
  loam_free(loam_malloc(NULL, 100));
  CHECK_IN_CHILD(!*misspelt);
  return 0;
}

static void an_unknown_variable_is_reported_once(void **state) {
  (void)state;
  assert_int_equal(in_child(start_misspelt, NULL), 0);
  assert_int_equal(in_child(start_well_spelt, NULL), 0);
}

static int sites_before_start(void *argument) {
  loam_site *s = loam_site_get("before"), *at = LOAM_SITE("before.place");
  loam_config config = { .size = sizeof config, .control = -1, .policy = argument };
  CHECK_IN_CHILD(loam_start(&config) == LOAM_OK);
  void *p = loam_malloc(s, 100), *q = loam_malloc(at, 100);
  CHECK_IN_CHILD(!strcmp(strategy_of(p), "plain") && !strcmp(strategy_of(q), "plain"));
  loam_free(p);
  loam_free(q);
  return 0;
}

static int makes_a_site(void *number) {
  char tag[40];
  snprintf(tag, sizeof tag, "forked.%d", *(int *)number);
  return !loam_site_get(tag);
}

static _Atomic bool enough;

static void *make_sites(void *unused) {
  char tag[40];
  for (int i = 0; !enough && i < 200000; i++) {
    snprintf(tag, sizeof tag, "beside.%d", i);
    (void)loam_site_get(tag);
  }
  return unused;
}

static int forks_amid_new_sites(void *unused) {
  (void)unused;
  pthread_t beside = start_thread(make_sites, NULL);
  for (int i = 0; i < 40; i++)
    if (run_in_child(makes_a_site, &i)) return 1;
  enough = true;
  return pthread_join(beside, NULL);
}

/* A child can make sites after a fork at any moment, even if loam was not started and no policy was
 * loaded. */
static void a_child_makes_sites_whatever_another_thread_was_at(void **state) {
  (void)state;
  assert_int_equal(run_in_child(forks_amid_new_sites, NULL), 0);
}

static void sites_may_be_made_before_the_start(void **state) {
  (void)state;
  const char *path = file_of("before.lua", one_leaf);
  assert_int_equal(in_child(sites_before_start, (void *)path), 0);
  unlink(path);
}

static int fork_and_use(void *argument) {
  (void)argument;
  load(by_size);
  void *p = loam_malloc(loam_site_get("forked"), 2000);
  CHECK_IN_CHILD(!strcmp(strategy_of(p), "big"));
  load(one_leaf); /* a child can load a policy too */
  p = loam_realloc(NULL, p, 3000);
  CHECK_IN_CHILD(!strcmp(strategy_of(p), "plain"));
  loam_free(p);
  return 0;
}

static void a_forked_child_can_do_all_of_it(void **state) {
  (void)state;
  load(one_leaf);
  for (int i = 0; i < 5; i++) assert_int_equal(in_child(fork_and_use, NULL), 0);
}

static void the_version_is_that_of_the_header(void **state) {
  (void)state;
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", LOAM_VERSION_MAJOR, LOAM_VERSION_MINOR,
           LOAM_VERSION_PATCH);
  assert_string_equal(loam_version(), text);
}

/* ---- arguments ---- */

static void wrong_arguments_are_reported_and_harm_nothing(void **state) {
  (void)state;
  assert_int_equal(loam_policy_load(NULL), LOAM_EINVAL);
  assert_int_equal(loam_policy_load_text("x", NULL), LOAM_EINVAL);
  assert_int_equal(loam_policy_info(NULL), LOAM_EINVAL);
  assert_int_equal(loam_policy_inspect(NULL, "", NULL, NULL), LOAM_EINVAL);
  assert_int_equal(loam_stats(NULL), LOAM_EINVAL);
  assert_int_equal(loam_stats_each(NULL, NULL), LOAM_EINVAL);
  assert_int_equal(loam_stats_by(8, (loam_row_fn)(void (*)(void))load, NULL), LOAM_EINVAL);
  assert_int_equal(loam_owner("", NULL), LOAM_EINVAL);
  loam_owner_info o;
  assert_int_equal(loam_owner("", &o), LOAM_EBADPTR);
  assert_int_equal(loam_owner(NULL, &o), LOAM_EBADPTR);
  assert_int_equal(loam_machine(NULL, NULL), LOAM_EINVAL);
  assert_int_equal(loam_hosts(NULL, NULL), LOAM_EINVAL);
  assert_int_equal(loam_ask(1, NULL, 1, NULL, NULL), LOAM_EINVAL);
  assert_null(loam_site_at(NULL));
  assert_ptr_equal(loam_site_get(NULL), loam_site_get(""));
}

static void alignments_are_powers_of_two(void **state) {
  (void)state;
  static const size_t wrong[] = { 0, 3, 24, SIZE_MAX };
  for (size_t i = 0; i < 4; i++) assert_null(loam_aligned_alloc(NULL, wrong[i], 100));
  assert_non_null(strstr(loam_error(), "18446744073709551615"));
  for (size_t align = 1; align <= (size_t)1 << 30; align *= 2) {
    char *p = loam_aligned_alloc(NULL, align, 10);
    assert_int_equal((uintptr_t)p % align, 0);
    assert_non_null(p);
    loam_free(p);
  }
}

static void products_that_overflow_are_null(void **state) {
  (void)state;
  assert_null(loam_calloc(NULL, SIZE_MAX, 2));
  assert_null(loam_calloc(NULL, (size_t)1 << 32, (size_t)1 << 32));
  assert_null(loam_calloc(NULL, 1, SIZE_MAX));
  assert_non_null(strstr(loam_error(), "18446744073709551615"));
  void *p = loam_calloc(NULL, 0, SIZE_MAX);
  assert_non_null(p);
  loam_free(p);
}

static void owns_what_it_made(void **state) {
  (void)state;
  int here;
  void *p = loam_malloc(NULL, 10), *libcs = malloc(10);
  assert_true(loam_owns(p));
  assert_false(loam_owns(&here) || loam_owns(libcs) || loam_owns(NULL));
  load("local s = loam.system {}\n"
       "return loam.policy { pick = function(req) return s end }\n");
  void *q = loam_malloc(NULL, 10);
  assert_string_equal(strategy_of(q), "system");
  assert_true(loam_owns(q));
  loam_free(q);
  assert_false(loam_owns(q));
  loam_free(p);
  free(libcs);
  load(one_leaf);
}

/* ---- scopes ---- */

static void scopes_nest_64_deep_and_hold_beyond(void **state) {
  (void)state;
  char text[32];
  assert_null(loam_scope_get());
  for (int i = 1; i <= 100; i++) {
    snprintf(text, sizeof text, "scope.%d", i);
    loam_scope_enter(loam_site_get(text));
    snprintf(text, sizeof text, "scope.%d", i < 64 ? i : 64);
    assert_ptr_equal(loam_scope_get(), loam_site_get(text));
  }
  for (int i = 100; i >= 1; i--) {
    snprintf(text, sizeof text, "scope.%d", i < 64 ? i : 64);
    assert_ptr_equal(loam_scope_get(), loam_site_get(text));
    loam_scope_leave();
  }
  assert_null(loam_scope_get());
  loam_scope_leave();
  assert_null(loam_scope_get());
}

static void without_a_device_the_cpu_copies_what_a_request_for_a_device_got(void **state) {
  (void)state;
  loam_owner_info owner;
  load("local own = loam.system() return loam.policy { pick = function() return own end }\n");
  char *p = loam_device_alloc(NULL, 100, NULL);
  assert_int_equal(loam_owner(p, &owner), LOAM_OK);
  load(one_leaf);
  if (owner.device >= 0) {
    loam_free(p);
    skip();
  }
  memset(p, 7, 100);
  p = loam_realloc(NULL, p, 5000);
  assert_non_null(p);
  for (int i = 0; i < 100; i++) assert_int_equal(p[i], 7);
  loam_free(p);
}

/* ---- code ---- */

static const char *code_tag;
static int code_misses;

static void *find_code(size_t size, const void *code) {
  code_misses++;
  return loam_code_learn(size, code, code_tag ? loam_site_get(code_tag) : NULL);
}

/* Requests memory twice as the code at an address, which belongs to a site with `tag`. Checks that
 * the second block has the tag `whose`; its bin is not empty. Returns how often loam asked for the
 * site of the code for that block. */
static int ask_by_code(const void *code, const char *tag, const char *whose) {
  code_tag = tag;
  loam_free(loam_code_malloc(100, code, find_code));
  code_misses = 0;
  void *p = loam_code_malloc(100, code, find_code);
  loam_owner_info o;
  assert_int_equal(loam_owner(p, &o), LOAM_OK);
  assert_string_equal(o.tag, whose);
  loam_free(p);
  return code_misses;
}

static void code_is_remembered_until_it_goes(void **state) {
  static const char code[8192] __attribute__((aligned(4)));
  (void)state;
  assert_int_equal(ask_by_code(code + 40, "code.a", "code.a"), 0);
  assert_int_equal(ask_by_code(code + 44, "code.b", "code.b"), 0);
  assert_int_equal(ask_by_code(code + 40, "code.c", "code.a"), 0);
  loam_scope_enter(loam_site_get("code.scope"));
  assert_int_equal(ask_by_code(code + 40, "code.c", "code.scope"), 1);
  loam_scope_leave();
  assert_int_equal(ask_by_code(code + 40, "code.c", "code.a"), 0);
  loam_code_forget();
  assert_int_equal(ask_by_code(code + 40, "code.c", "code.c"), 0);
  load(one_leaf);
  assert_int_equal(ask_by_code(code + 40, "code.d", "code.d"), 0);
}

static void *find_code_zeroed(size_t size, const void *code) {
  code_misses++;
  return loam_code_learn_zeroed(size, code, loam_site_get(code_tag));
}

/* Like ask_by_code, for zeroed memory. Before the second request, the test writes to the first
 * block and frees it. */
static int ask_zeroed_by_code(const void *code, const char *tag, const char *strategy) {
  static const char zeros[100];
  loam_owner_info o;
  code_tag = tag;
  char *p = loam_code_calloc(100, code, find_code_zeroed);
  memset(p, 0xff, 100);
  loam_free(p);
  code_misses = 0;
  p = loam_code_calloc(100, code, find_code_zeroed);
  assert_memory_equal(p, zeros, sizeof zeros);
  assert_int_equal(loam_owner(p, &o), LOAM_OK);
  assert_string_equal(o.tag, tag);
  assert_string_equal(o.strategy, strategy);
  loam_free(p);
  return code_misses;
}

static void zeroed_memory_is_asked_by_code_too(void **state) {
  static const char code[64] __attribute__((aligned(4)));
  (void)state;
  load(
      "local all = loam.host { name = 'all' } return loam.policy { pick = function(req) return all "
      "end }\n");
  assert_int_equal(ask_zeroed_by_code(code + 4, "code.zeroed", "all"), 0);
  assert_int_equal(ask_by_code(code + 4, "code.other", "code.zeroed"), 0);
  char *large = loam_code_calloc(1 << 20, code + 4, find_code_zeroed);
  assert_int_equal(code_misses, 1);
  assert_int_equal(large[0] | large[(1 << 20) - 1], 0);
  loam_free(large);
}

/* A policy may treat zeroed requests in another way. Then a decision for the other requests of the
 * code must not serve them. */
static void a_policy_may_distinguish_zeroed_requests_of_a_code(void **state) {
  static const char code __attribute__((aligned(4)));
  (void)state;
  load("local some, clean = loam.host { name = 'some' }, loam.host { name = 'clean' } "
       "return loam.policy { pick = function(req) return req.zero and clean or some end }\n");
  assert_int_equal(ask_by_code(&code, "code.tells", "code.tells"), 1);
  assert_int_equal(ask_zeroed_by_code(&code, "code.tells", "clean"), 1);
  load(one_leaf);
}

static void code_without_a_site_or_an_address_is_not_remembered(void **state) {
  static const char code __attribute__((aligned(4)));
  (void)state;
  assert_int_equal(ask_by_code(&code, NULL, ""), 1);
  assert_int_equal(ask_by_code(NULL, "code.a", "code.a"), 1);
  assert_int_equal(ask_by_code((void *)((uintptr_t)&code | (uintptr_t)1 << 48), "code.a", "code.a"),
                   1);
  assert_int_equal(ask_by_code(&code, "code.a", "code.a"), 0);
}

static void *ask_without_code(void *has_area) {
  if (has_area) loam_scope_leave(); /* this call makes the area of the thread */
  loam_free(loam_code_malloc(16, NULL, find_code));
  return NULL;
}

/* The decision cache of a new thread is empty, and so is the one that threads without an area
 * share. An unused entry must not match a request of code at address 0. */
static void a_new_thread_remembers_no_code(void **state) {
  pthread_t thread;
  for (int has_area = 0; has_area <= 1; has_area++) {
    code_tag = NULL;
    code_misses = 0;
    assert_int_equal(
        pthread_create(&thread, NULL, ask_without_code, has_area ? (void *)state : NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(code_misses, 1);
  }
}

static bool has_owner(const char *p) {
  loam_owner_info o;
  return loam_owner(p, &o) == LOAM_OK;
}

static void what_is_past_a_block_or_freed_has_no_owner(void **state) {
  static const size_t sizes[] = { 100, 5000, 40000, 1000000 };
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char *p = loam_malloc(NULL, sizes[i]);
    size_t usable = loam_usable_size(p);
    assert_true(has_owner(p) && has_owner(p + sizes[i] / 2) && has_owner(p + usable - 1));
    if (sizes[i] > 32768) assert_false(has_owner(p + usable));
    loam_free(p);
    assert_false(has_owner(p) || has_owner(p + sizes[i] / 2));
  }
}

static void a_place_is_a_site(void **state) {
  (void)state;
  loam_site *last = NULL;
  for (int i = 0; i < 3; i++) {
    loam_site *s = LOAM_SITE("placed");
    assert_true(!last || s == last);
    last = s;
  }
  void *p = loam_malloc(last, 10);
  loam_owner_info o;
  assert_int_equal(loam_owner(p, &o), LOAM_OK);
  assert_string_equal(o.tag, "placed");
  assert_string_equal(o.func, __func__);
  assert_non_null(strstr(o.file, "test_loam.c"));
  assert_true(o.line > 0);
  loam_free(p);
}

/* ---- policies ---- */

static void the_next_allocation_obeys_the_policy(void **state) {
  (void)state;
  loam_site *s = loam_site_get("obeys");
  load(one_leaf);
  void *p = loam_malloc(s, 2000);
  load(by_size);
  void *q = loam_malloc(s, 2000), *r = loam_malloc(s, 999),
       *late = loam_malloc(LOAM_SITE("l"), 1000);
  assert_string_equal(strategy_of(p), "plain");
  assert_string_equal(strategy_of(q), "big");
  assert_string_equal(strategy_of(r), "plain");
  assert_string_equal(strategy_of(late), "big");
  assert_int_equal(loam_policy_load_text("bad.lua", "return 1\n"), LOAM_EPOLICY);
  assert_non_null(strstr(loam_error(), "bad.lua"));
  void *again = loam_malloc(s, 2000);
  assert_string_equal(strategy_of(again), "big");
  loam_free(p), loam_free(q), loam_free(r), loam_free(late), loam_free(again);
}

static _Atomic bool stop;
static _Atomic long lost;

static void *obey(void *arg) {
  loam_site *s = arg;
  while (!stop) {
    void *p = loam_malloc(s, 1000), *q = loam_malloc(s, 2000), *r = loam_calloc(s, 1, 900);
    loam_owner_info a, b;
    if (!p || !q || !r || loam_owner(p, &a) || loam_owner(q, &b)) lost++;
    /* Each policy has one strategy. An allocation must not see parts of two policies. */
    else if (strncmp(a.strategy, "gen", 3) || a.generation > b.generation) lost++;
    q = loam_realloc(NULL, q, 5000);
    loam_free(p), loam_free(q), loam_free(r);
  }
  return NULL;
}

static void reloads_lose_nothing_while_threads_allocate(void **state) {
  (void)state;
  pthread_t thread[4];
  char text[256];
  for (int round = 0; round < 60; round++) {
    snprintf(text, sizeof text,
             "local g = loam.host { name = 'gen%d' }\n"
             "return loam.policy { pick = function(req) %s return g end }\n",
             round % 7, round % 3 == 2 ? "if req.live < 5 then return g end" : "");
    load(text);
    if (round == 0)
      for (int i = 0; i < 4; i++) thread[i] = start_thread(obey, loam_site_get("obeyed"));
  }
  stop = true;
  for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
  assert_int_equal(lost, 0);
  struct loam_stats stats;
  assert_int_equal(loam_stats(&stats), LOAM_OK);
  load(one_leaf);
}

static void keep_text(void *ctx, const char *text, size_t length) {
  char *out = ctx;
  strncat(out, text, length < 60000 - strlen(out) ? length : 60000 - strlen(out));
}

static void reports_the_machine(void **state) {
  (void)state;
  static char text[65536];
  assert_int_equal(loam_machine(keep_text, text), LOAM_OK);
  assert_int_equal(text[0], '{');
  static const char *const keys[] = { "kernel",     "nodes", "hugepages",  "thp",
                                      "overcommit", "range", "membarrier", "rseq",
                                      "luajit",     "cuda",  "page",       "libnuma" };
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    char key[32];
    snprintf(key, sizeof key, "\"%s\":", keys[i]);
    if (!strstr(text, key)) fail_msg("%s is not in %s", key, text);
  }
}

static void inspects_without_going_live(void **state) {
  (void)state;
  static char text[65536];
  struct loam_policy_info before, after;
  const char *path = file_of("inspect.lua", by_size);
  loam_policy_info(&before);
  assert_int_equal(loam_policy_inspect(path, "verb explain\ntag x\nsize 5000\n", keep_text, text),
                   LOAM_OK);
  assert_non_null(strstr(text, "\"big\""));
  loam_policy_info(&after);
  assert_int_equal(before.generation, after.generation);
  assert_int_equal(loam_policy_inspect("/nonexistent", "verb check\n", keep_text, text), LOAM_EIO);
  unlink(path);
}

static void count_bytes(void *ctx, const char *text, size_t length) {
  (void)text;
  *(size_t *)ctx += length;
}

/* 441 leaves, which no test reaches. Their answer is larger than what a step may use. */
static void inspects_a_policy_of_many_leaves(void **state) {
  (void)state;
  static const char many_leaves[] =
      "local a = loam.host { name = 'a' } local b = loam.host { name = 'b' }\n"
      "return loam.policy { pick = function(req) local n = 0\n"
      "  for i = 1, 20 do if req.size > i * 100 then n = n + 1 end end\n"
      "  for i = 1, 20 do if req.line > i * 100 then n = n + 1 end end\n"
      "  if n > 20 then return a end return b end }\n";
  const char *path = file_of("leaves.lua", many_leaves);
  size_t bytes = 0;
  assert_int_equal(loam_policy_inspect(path, "verb test\n", count_bytes, &bytes), LOAM_OK);
  assert_true(bytes > 500000);
  unlink(path);
}

/* ---- refusals ---- */

static void allocate_all(bool refused) {
  static const size_t sizes[] = { 1, 3000, 50000, 2 << 20 };
  loam_site *s = loam_site_get("refused");
  assert_true(s || refused);
  for (int i = 0; i < 4; i++) {
    char *p = loam_malloc(s, sizes[i]), *z = loam_calloc(s, 3, sizes[i]);
    char *a = loam_aligned_alloc(s, 4096, sizes[i]);
    assert_true(refused || (p && z && a));
    if (p) {
      p[0] = 5;
      char *q = loam_realloc(NULL, p, sizes[i] * 4);
      assert_true(q || refused);
      assert_int_equal((q ? q : p)[0], 5);
      loam_free(q ? q : p);
    }
    loam_free(z);
    loam_free(a);
  }
}

/* There are more sites than entries in the decision cache of a thread, so sites replace each
 * other's entries. The policy divides the class of one of the two sizes. */
static void each_of_many_sites_gets_blocks_of_its_own_tag(void **state) {
  (void)state;
  enum { SITES = 6000 };
  load(by_size);
  for (int i = 0; i < 2 * SITES; i++) {
    char tag[32];
    loam_owner_info whose;
    snprintf(tag, sizeof tag, "many.s%d", i % SITES);
    loam_site *site = loam_site_get(tag);
    for (size_t size = 100; size <= 1010; size += 910) {
      void *p = loam_malloc(site, size);
      assert_int_equal(loam_owner(p, &whose), LOAM_OK);
      assert_string_equal(whose.tag, tag);
      assert_string_equal(whose.strategy, size < 1000 ? "plain" : "big");
      loam_free(p);
    }
  }
}

static void survives_each_refusal_of_the_system(void **state) {
  (void)state;
  load(by_size);
  refuse_each(allocate_all);
  struct loam_stats stats;
  assert_int_equal(loam_stats(&stats), LOAM_OK);
  assert_int_equal(stats.bad_frees, 0);
}

int main(void) {
  setenv("LOAM_CONTROL", "0", 1);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_child_makes_sites_whatever_another_thread_was_at),
    cmocka_unit_test(starts_once_and_again_after_a_stop),
    cmocka_unit_test(a_child_starts_that_was_forked_in_the_middle_of_a_start),
    cmocka_unit_test(a_child_with_its_parents_process_id_starts_too),
    cmocka_unit_test(a_broken_policy_stops_the_start_unless_lenient),
    cmocka_unit_test(a_wrong_config_is_refused_by_name),
    cmocka_unit_test(a_block_goes_back_to_the_allocator_of_its_start),
    cmocka_unit_test(the_first_allocation_starts_from_the_environment),
    cmocka_unit_test(a_broken_policy_of_the_environment_is_an_event),
    cmocka_unit_test(an_unknown_variable_is_reported_once),
    cmocka_unit_test(sites_may_be_made_before_the_start),
    cmocka_unit_test(a_forked_child_can_do_all_of_it),
    cmocka_unit_test(the_version_is_that_of_the_header),
    cmocka_unit_test(wrong_arguments_are_reported_and_harm_nothing),
    cmocka_unit_test(alignments_are_powers_of_two),
    cmocka_unit_test(products_that_overflow_are_null),
    cmocka_unit_test(owns_what_it_made),
    cmocka_unit_test(scopes_nest_64_deep_and_hold_beyond),
    cmocka_unit_test(without_a_device_the_cpu_copies_what_a_request_for_a_device_got),
    cmocka_unit_test(code_is_remembered_until_it_goes),
    cmocka_unit_test(zeroed_memory_is_asked_by_code_too),
    cmocka_unit_test(a_policy_may_distinguish_zeroed_requests_of_a_code),
    cmocka_unit_test(code_without_a_site_or_an_address_is_not_remembered),
    cmocka_unit_test(a_new_thread_remembers_no_code),
    cmocka_unit_test(what_is_past_a_block_or_freed_has_no_owner),
    cmocka_unit_test(a_place_is_a_site),
    cmocka_unit_test(the_next_allocation_obeys_the_policy),
    cmocka_unit_test(reloads_lose_nothing_while_threads_allocate),
    cmocka_unit_test(reports_the_machine),
    cmocka_unit_test(inspects_without_going_live),
    cmocka_unit_test(inspects_a_policy_of_many_leaves),
    cmocka_unit_test(each_of_many_sites_gets_blocks_of_its_own_tag),
    cmocka_unit_test(survives_each_refusal_of_the_system),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
