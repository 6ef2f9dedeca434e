/* test_confined.c - a kernel that refuses to place memory, as in containers: the process goes on,
 * the next strategy of a chain serves, and statistics say so. Runs on machines with one node or
 * several. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "loam.h"
#include "os/numa.h"
#include "test.h"

#define REFUSE(call)                                     \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), \
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

static bool set_filter(struct sock_filter *filter, size_t length) {
  struct sock_fprog program = { .len = (unsigned short)length, .filter = filter };
  return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
         !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Installs a filter like the one that Docker gives to processes without CAP_SYS_NICE. */
static bool confine(void) {
  struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    REFUSE(mbind),
    REFUSE(move_pages),
    REFUSE(get_mempolicy),
    REFUSE(set_mempolicy),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  return set_filter(filter, sizeof filter / sizeof *filter);
}

/* Installs a filter that allows the system calls of a program, but not all those of loam:
 * madvise(2) and mlock(2) are refused. */
static bool confine_advice(void) {
  struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    REFUSE(madvise),
    REFUSE(mlock),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  return set_filter(filter, sizeof filter / sizeof *filter);
}

/* Exit statuses of the child: CANNOT_CONFINE, 0, or the line of the CHECK that failed. */
enum { CANNOT_CONFINE = 250 };
#define CHECK(condition) \
  if (!(condition)) return __LINE__ % 200 + 1

static bool several(void) { return !lm_is_pow2((size_t)lm_numa_nodes()); }

static bool is_served_by(void *p, const char *strategy, size_t size) {
  loam_owner_info owner;
  if (!p || loam_owner(p, &owner) || strcmp(owner.strategy, strategy)) return false;
  memset(p, 1, size);
  return true;
}

static void keep(void *ctx, const loam_got *got) {
  if (!strcmp(got->strategy, "first")) *(loam_got *)ctx = *got;
}

#define CHAIN(options)                                   \
  "local a = loam.host { name = 'first', " options "}\n" \
  "local b = loam.host { name = 'second' }\n"            \
  "return loam.policy { name = 'p', pick = function()\n" \
  "  return a:or_else(b) end }\n"

/* Loads a policy, with a step limit for slow (emulated) machines. */
static bool load(const char *text) {
  loam_config config = { .size = sizeof config, .control = -1, .step_ms = 60000 };
  return !loam_start(&config) && !loam_policy_load_text("confined.lua", text);
}

/* On a machine with several nodes, the strategy that has to place memory fails, and the next
 * strategy of the chain serves. */
static int hands_over(void *text) {
  if (!confine()) return CANNOT_CONFINE;
  CHECK(load(text));
  const char *expected = several() ? "second" : "first";
  for (size_t size = 100; size < 20000000; size *= 7) {
    void *p = loam_malloc(NULL, size);
    CHECK(is_served_by(p, expected, size));
    loam_free(p);
  }
  loam_got got = { .failed = 0 };
  CHECK(!loam_got_each(keep, &got));
  CHECK((got.failed > 0) == several());
  return 0;
}

static void expect(int (*body)(void *), const char *text) {
  int status = run_in_child(body, (void *)(uintptr_t)text);
  if (status == CANNOT_CONFINE) {
    print_message("no seccomp filter can be set here\n");
    skip();
  }
  assert_int_equal(status, 0);
}

static void placed_memory_is_the_next_ones(void **state) {
  (void)state;
  expect(hands_over, CHAIN("numa = 0"));
  expect(hands_over, CHAIN("numa = '+0'"));
  expect(hands_over, CHAIN("numa = { prefer = 0 }"));
  expect(hands_over, CHAIN("numa = 'interleave'"));
  expect(hands_over, CHAIN("numa = { weights = { [0] = 1 } }"));
  expect(hands_over, CHAIN("numa = 0, prefault = true, guard = true"));
}

/* numa = "local" needs no system call: the first thread that touches a page gets it on its node. */
static int serves_local(void *text) {
  if (!confine()) return CANNOT_CONFINE;
  CHECK(load(text));
  void *small = loam_malloc(NULL, 100), *large = loam_malloc(NULL, 8 << 20);
  CHECK(is_served_by(small, "first", 100));
  CHECK(is_served_by(large, "first", 8 << 20));
  loam_got got = { .checked_bytes = 1 };
  CHECK(!loam_got_each(keep, &got));
  CHECK(got.live_bytes >= 8 << 20);
  CHECK(got.checked_bytes == 0); /* the kernel does not tell where the pages are */
  CHECK(got.unknown_bytes >= 8 << 20);
  loam_free(small);
  loam_free(large);
  return 0;
}

static void local_memory_needs_no_leave(void **state) {
  (void)state;
  expect(serves_local, CHAIN("numa = 'local'"));
  expect(serves_local, CHAIN("numa = 'local', prefault = true"));
}

static int fails_cleanly(void *text) {
  if (!confine()) return CANNOT_CONFINE;
  CHECK(load(text));
  for (int i = 0; i < 1000; i++) {
    void *p = loam_malloc(NULL, (size_t)i * 100);
    CHECK(!p == several());
    if (!p) CHECK(strstr(loam_error(), "'alone'"));
    if (!p) CHECK(strstr(loam_error(), "placing memory (mbind) is refused here"));
    loam_free(p);
  }
  const char *plain = "local s = loam.host { name = 'plain' }\n"
                      "return loam.policy { name = 'q', pick = function() return s end }\n";
  CHECK(!loam_policy_load_text("plain.lua", plain));
  void *p = loam_malloc(NULL, 100);
  CHECK(p);
  loam_free(p);
  return 0;
}

static void without_a_next_one_it_fails_in_words(void **state) {
  (void)state;
  expect(fails_cleanly, "local s = loam.host { name = 'alone', numa = 0 }\n"
                        "return loam.policy { name = 'p', pick = function() return s end }\n");
}

#define ALL_OF(options)                   \
  "local s = loam.host { " options " }\n" \
  "return loam.policy { name = 'p', pick = function() return s end }\n"

typedef struct placed {
  uint64_t moved, refused, other; /* other: bytes refused for another reason */
} placed;

static void note(void *ctx, const loam_placed *row) {
  placed *p = ctx;
  if (!strcmp(row->what, "moved")) p->moved += row->bytes;
  else if (!strcmp(row->why, "it is not permitted")) p->refused += row->bytes;
  else p->other += row->bytes;
}

static placed rebalanced(const char *text) {
  placed p = { 0 };
  loam_rebalance_options options = { .size = sizeof options, .rate = UINT64_MAX, .tag = "held" };
  if (loam_policy_load_text("confined.lua", text) || loam_rebalance(&options, NULL, note, &p))
    p.other = 1;
  return p;
}

/* A refused move changes nothing. A move that places no memory succeeds. */
static int moves_what_it_may(void *unused) {
  (void)unused;
  enum { OBJECTS = 2000 };
  CHECK(load(ALL_OF("name = 'here', numa = 0")));
  loam_site *site = loam_site_get("held");
  char *large = loam_malloc(site, 6 << 20), *small[OBJECTS];
  CHECK(large);
  memset(large, 1, 6 << 20);
  for (int i = 0; i < OBJECTS; i++) CHECK(small[i] = loam_malloc(site, 512));
  uint64_t all = (6 << 20) + OBJECTS * 512;
  if (!confine()) return CANNOT_CONFINE;
  const char *there[] = { ALL_OF("name = 'there', numa = { prefer = 0 }"),
                          ALL_OF("name = 'round', numa = 'interleave'"),
                          ALL_OF("name = 'cells', numa = { weights = { [0] = 1 } }, lock = true") };
  size_t n = several() ? LM_COUNT(there) : 2; /* the limit of locked memory may be low */
  for (size_t i = 0; i < n; i++) {
    placed p = rebalanced(there[i]);
    CHECK(!p.other);
    CHECK(several() ? p.refused == all : p.moved == all);
  }
  if (!several()) return 0;
  placed p = rebalanced(ALL_OF("name = 'huge', numa = 0, huge = 'thp'"));
  CHECK(p.moved == all);
  CHECK(large[5 << 20] == 1);
  for (int i = 0; i < OBJECTS; i++) loam_free(small[i]);
  loam_free(large);
  return 0;
}

static void what_may_not_move_is_as_it_was(void **state) {
  (void)state;
  expect(moves_what_it_may, NULL);
}

static void keep_text(void *ctx, const char *text, size_t length) {
  char *out = ctx;
  if (length > 65535) length = 65535;
  memcpy(out, text, length);
  out[length] = 0;
}

static int doctor_sees_refused_placement(void *unused) {
  (void)unused;
  static char text[65536];
  if (!confine()) return CANNOT_CONFINE;
  CHECK(!loam_machine(keep_text, text));
  CHECK(strstr(text, "\"mbind\":1"));
  CHECK(strstr(text, "\"move_pages\":1"));
  return 0;
}

static void doctor_reports_refused_placement_beforehand(void **state) {
  (void)state;
  expect(doctor_sees_refused_placement, NULL);
}

static bool is_served_throughout(const char *strategy) {
  for (size_t size = 100; size < 20000000; size *= 7) {
    void *p = loam_malloc(NULL, size);
    if (!is_served_by(p, strategy, size)) return false;
    loam_free(p);
  }
  return true;
}

static void keep_words(void *ctx, const loam_event *event) {
  if (event->kind == LOAM_EVENT_SHORTFALL) snprintf(ctx, 512, "%s", event->message);
}

static int serves_what_needs_no_advice(void *unused) {
  (void)unused;
  char words[512] = "";
  if (!confine_advice()) return CANNOT_CONFINE;
  loam_on_event(keep_words, words);
  CHECK(load(CHAIN("numa = 0")));
  CHECK(is_served_throughout("first"));
  CHECK(!loam_policy_load_text("thp.lua", CHAIN("huge = 'thp'")));
  CHECK(is_served_throughout("first"));
  CHECK(!*words);
  CHECK(!loam_policy_load_text("prefault.lua", CHAIN("prefault = true")));
  CHECK(is_served_throughout("second"));
  CHECK(strstr(words, "taking memory beforehand (madvise) is refused here"));
  *words = 0;
  CHECK(!loam_policy_load_text("lock.lua", CHAIN("lock = true")));
  CHECK(is_served_throughout(SANITIZED ? "first" : "second"));
  CHECK(SANITIZED || *words); /* a sanitizer replaces mlock: it does nothing, and succeeds */
  return 0;
}

static void advice_that_is_refused_is_missed_where_it_is_needed(void **state) {
  (void)state;
  expect(serves_what_needs_no_advice, NULL);
}

/* The strategy demands node 1 (BIND). If the kernel has once refused the pages of a region, the
 * region must not be used as if it had them. */
static int looks_each_time(void *unused) {
  (void)unused;
  enum { MANY = 64 };
  static void *held[MANY];
  size_t size = lm_numa_total(1) / 16;
  int n = 0;
  if (!several()) return 0;
  if (!confine_advice()) return CANNOT_CONFINE;
  CHECK(load(CHAIN("numa = 1")));
  while (n < MANY && is_served_by(held[n] = loam_malloc(NULL, size), "first", size)) n++;
  CHECK(n < MANY);
  for (int i = 0; i < 20; i++) {
    void *p = loam_malloc(NULL, size);
    loam_owner_info owner;
    CHECK(p && !loam_owner(p, &owner) && !strcmp(owner.strategy, "second"));
    loam_free(p);
  }
  for (int i = 0; i <= n; i++) loam_free(held[i]);
  return 0;
}

static void without_advice_a_full_node_hands_over_all_the_same(void **state) {
  (void)state;
  expect(looks_each_time, NULL);
}

static int doctor_sees_refused_advice(void *unused) {
  (void)unused;
  static char text[65536];
  if (!confine_advice()) return CANNOT_CONFINE;
  CHECK(!loam_machine(keep_text, text));
  CHECK(strstr(text, "\"prefault\":1"));
  CHECK(strstr(text, "\"huge\":1"));
  CHECK(strstr(text, "\"give_back\":1"));
  CHECK(SANITIZED || strstr(text, "\"lock\":1"));
  return 0;
}

static void doctor_reports_refused_advice(void **state) {
  (void)state;
  expect(doctor_sees_refused_advice, NULL);
}

/* Installs a filter that ends the process when it opens a file. */
static bool confine_files(void) {
  struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  return set_filter(filter, sizeof filter / sizeof *filter);
}

static int grows_without_files(void *text) {
  CHECK(load(text));
  loam_free(loam_malloc(NULL, 100));
  if (!confine_files()) return CANNOT_CONFINE;
  char *p = loam_malloc(NULL, 1 << 20);
  for (size_t size = 1 << 20; size < 100 << 20; size *= 2) {
    CHECK(is_served_by(p, "first", size));
    char *behind = loam_malloc(NULL, 1 << 20);
    p = loam_realloc(NULL, p, 2 * size);
    CHECK(p && p[size - 1] == 1);
    loam_free(behind);
  }
  loam_free(p);
  return 0;
}

static void malloc_realloc_and_free_open_no_file(void **state) {
  (void)state;
  expect(grows_without_files, CHAIN(""));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(placed_memory_is_the_next_ones),
    cmocka_unit_test(local_memory_needs_no_leave),
    cmocka_unit_test(without_a_next_one_it_fails_in_words),
    cmocka_unit_test(what_may_not_move_is_as_it_was),
    cmocka_unit_test(doctor_reports_refused_placement_beforehand),
    cmocka_unit_test(advice_that_is_refused_is_missed_where_it_is_needed),
    cmocka_unit_test(without_advice_a_full_node_hands_over_all_the_same),
    cmocka_unit_test(doctor_reports_refused_advice),
    cmocka_unit_test(malloc_realloc_and_free_open_no_file),
  };
  return cmocka_run_group_tests_name("confined", tests, NULL, NULL);
}
