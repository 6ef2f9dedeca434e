/* test_share_export.c - shared memory that another process opens: share_export.h, share_import.c.
 *
 * The test forks the other process before it uses loam. The other process executes the orders that
 * the test writes to a pipe. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "heap/pool.h"
#include "heap/pools.h"
#include "heap/tcache_slow.h"
#include "loam.h"
#include "test.h"

enum { SIZE = 300000 };

static const char policy[] = "local shared = loam.shared { name = 'shared' }\n"
                             "local plain = loam.host { name = 'plain' }\n"
                             "return loam.policy { name = 'lend', pick = function(req)\n"
                             "  if req.tag == 'shared' then return shared end\n"
                             "  return plain\nend }\n";

static char folder[] = "/tmp/loam-test-XXXXXX";

static void start(void) {
  loam_config config = { .size = sizeof config, .control = 1, .control_dir = folder };
  if (loam_start(&config) || loam_policy_load_text("lend", policy)) _exit(99);
}

static char *shared(size_t size) { return loam_malloc(loam_site_get("shared"), size); }

/* ---- the other process */

typedef struct order {
  enum { OPEN, OPEN_READONLY, STORE, FORK, RELEASE, STORE_IN_CHILD, SHOW, WRAP, END } what;
  int byte;
  loam_share share;
} order;

typedef struct report {
  int ok, byte;
  size_t size;
  loam_share share;
  char words[200];
} report;

static loam_block *borrowed;

/* Returns the size of the mapping that contains the block. */
static size_t mapped(const void *p) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[400];
  unsigned long from, to;
  size_t size = 0;
  while (fgets(line, sizeof line, maps))
    if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= (uintptr_t)p && (uintptr_t)p < to)
      size = to - from;
  fclose(maps);
  return size;
}

static int store(void *p) {
  signal(SIGSEGV, SIG_DFL); /* without a sanitizer's handler, which would print a report */
  *(volatile char *)p = 1;
  return 0;
}

static report look(void) {
  report r = { .ok = borrowed != NULL };
  char *p = loam_block_data(borrowed);
  if (!borrowed) snprintf(r.words, sizeof r.words, "%s", loam_error());
  else r.byte = p[loam_block_size(borrowed) - 1];
  if (borrowed) r.size = mapped(p);
  return r;
}

/* Reports whether an array over a part of the borrowed block is read-only. */
static report wrap(void) {
  struct loam_array_info info;
  loam_type *type;
  loam_array *array;
  loam_block *part = loam_block_slice(borrowed, 8, 8);
  if (loam_type_parse("int64", &type)) return (report){ 0 };
  if (loam_array_wrap(part, 0, type, NULL, &array)) return (report){ 0 };
  report r = { .ok = !loam_array_info(array, &info), .byte = info.readonly };
  loam_array_release(array);
  loam_type_release(type);
  loam_block_release(part);
  return r;
}

static report do_order(const order *o) {
  char *p = loam_block_data(borrowed);
  report r = { .ok = 1 };
  switch (o->what) {
    case OPEN: borrowed = loam_share_open(NULL, &o->share, 0); return look();
    case OPEN_READONLY:
      borrowed = loam_share_open(NULL, &o->share, LOAM_SHARE_READONLY);
      return look();
    case STORE: memset(p, o->byte, loam_block_size(borrowed)); return look();
    case STORE_IN_CHILD: r.byte = run_in_child(store, p); return r;
    case FORK: /* the child keeps the mapping until it is killed */
      r.byte = fork();
      if (r.byte == 0) pause();
      return r;
    case RELEASE: loam_block_release(borrowed), borrowed = NULL; return r;
    case SHOW:
      p = shared(SIZE);
      memset(p, o->byte, SIZE);
      r.ok = loam_share_get(p, &r.share) == LOAM_OK;
      return r;
    case WRAP: return wrap();
    case END: break;
  }
  _exit(0);
}

static int orders[2], reports[2];

static void serve(void) {
  order o;
  close(orders[1]);
  loam_stop(); /* this process will start loam itself */
  start();
  while (read(orders[0], &o, sizeof o) == sizeof o) {
    report r = do_order(&o);
    if (write(reports[1], &r, sizeof r) != sizeof r) break;
  }
  _exit(0);
}

static pid_t other;

static void start_other(void) {
  if (pipe(orders) || pipe(reports)) exit(1);
  other = fork();
  if (other == 0) serve();
  close(orders[0]);
  close(reports[1]);
}

static void end_other(void) {
  close(orders[1]);
  close(reports[0]);
  waitpid(other, NULL, 0);
}

static report tell(order o) {
  report r;
  assert_int_equal(write(orders[1], &o, sizeof o), sizeof o);
  assert_int_equal(read(reports[0], &r, sizeof r), sizeof r);
  return r;
}

static loam_share show(const void *p) {
  loam_share share;
  if (loam_share_get(p, &share)) fail_msg("%s", loam_error());
  return share;
}

static report opened(const loam_share *share) {
  report r = tell((order){ .what = OPEN, .share = *share });
  if (!r.ok) fail_msg("%s", r.words);
  return r;
}

static void refused(const loam_share *share, const char *words) {
  report r = tell((order){ .what = OPEN, .share = *share });
  assert_false(r.ok);
  if (!strstr(r.words, words)) fail_msg("expected %s in %s", words, r.words);
}

static void release(void) { tell((order){ .what = RELEASE }); }

/* Returns the bytes of memory that the file of p's strategy takes after a trim. If p is NULL, the
 * strategy is the one of the last call. */
static size_t file_bytes(const void *p) {
  static const lm_strategy *s;
  struct stat st;
  lm_object object;
  if (p) {
    assert_true(lm_pool_find(p, &object));
    s = lm_strategy_at(object.strategy);
  }
  loam_trim();
  assert_int_equal(fstat(lm_pool_of(s)->backing.file.fd, &st), 0);
  return (size_t)st.st_blocks * 512;
}

/* ---- tests */

static void both_see_what_either_stores(void **state) {
  (void)state;
  char *p = shared(SIZE);
  memset(p, 7, SIZE);
  loam_share share = show(p);
  size_t usable = loam_usable_size(p);
  p[usable - 1] = 7;
  assert_int_equal(opened(&share).byte, 7);
  p[usable - 1] = 8;
  assert_int_equal(tell((order){ .what = STORE, .byte = 9 }).byte, 9);
  assert_int_equal(p[0], 9);
  assert_int_equal(p[SIZE - 1], 9);
  release();
  loam_free(p);
}

static void the_other_has_exactly_the_pages_of_the_block(void **state) {
  (void)state;
  static const size_t sizes[] = { 1, 5000, SIZE };
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    char *before = shared(sizes[i]), *p = shared(sizes[i]), *after = shared(sizes[i]);
    loam_share share = show(p);
    assert_int_equal(opened(&share).size, lm_align_up(sizes[i], LM_PAGE));
    release();
    loam_free(before);
    loam_free(p);
    loam_free(after);
  }
}

static void a_store_to_what_is_readonly_is_a_fault(void **state) {
  (void)state;
  char *p = shared(SIZE);
  p[loam_usable_size(p) - 1] = 3;
  report r = tell((order){ .what = OPEN_READONLY, .share = show(p) });
  assert_true(r.ok);
  assert_int_equal(r.byte, 3);
  assert_int_equal(tell((order){ .what = STORE_IN_CHILD }).byte, -SIGSEGV);
  assert_int_equal(tell((order){ .what = WRAP }).byte, 1);
  release();
  assert_true(tell((order){ .what = OPEN, .share = show(p) }).ok);
  r = tell((order){ .what = WRAP });
  assert_true(r.ok);
  assert_int_equal(r.byte, 0);
  release();
  loam_free(p);
}

static void the_handle_of_a_freed_block_is_dead(void **state) {
  (void)state;
  char *p = shared(SIZE);
  loam_share share = show(p);
  loam_free(p);
  refused(&share, "its owner has freed it");
  char *q = shared(SIZE);
  assert_ptr_equal(q, p); /* another block at this address */
  refused(&share, "its owner has freed it");
  loam_share other_share = show(q);
  assert_true(other_share.key != share.key);
  loam_free(q);
}

static void what_is_open_outlives_the_block(void **state) {
  (void)state;
  char *p = shared(SIZE);
  memset(p, 5, loam_usable_size(p));
  loam_share share = show(p);
  opened(&share);
  loam_free(p);
  char *q[8];
  for (int i = 0; i < 8; i++) {
    q[i] = shared(SIZE);
    assert_ptr_not_equal(q[i], p);
    memset(q[i], 6, SIZE);
  }
  assert_true(file_bytes(q[0]) >= SIZE);
  for (int i = 0; i < 8; i++) loam_free(q[i]);
  assert_true(lm_pool_is_valid());
  size_t held = file_bytes(NULL);
  assert_true(held >= SIZE && held < 2 * SIZE);
  assert_int_equal(tell((order){ .what = STORE_IN_CHILD }).byte, 0);
  report r = tell((order){ .what = STORE, .byte = 4 });
  assert_int_equal(r.byte, 4);
  release();
  assert_int_equal(file_bytes(NULL), 0);
}

static void a_child_of_the_other_has_it_too(void **state) {
  (void)state;
  char *p = shared(SIZE);
  memset(p, 5, SIZE);
  loam_share share = show(p);
  opened(&share);
  int child = tell((order){ .what = FORK }).byte;
  release();
  file_bytes(p);
  loam_free(p);
  assert_true(file_bytes(NULL) >= SIZE);
  kill(child, SIGKILL);
  for (int naps = 0; file_bytes(NULL) && be_patient(&naps);) continue;
  assert_int_equal(file_bytes(NULL), 0);
}

static void what_is_open_outlives_the_owner(void **state) {
  (void)state;
  report r = tell((order){ .what = SHOW, .byte = 11 });
  assert_true(r.ok);
  loam_block *b = loam_share_open(NULL, &r.share, 0);
  assert_non_null(b);
  kill(other, SIGKILL);
  end_other();
  const char *p = loam_block_data(b);
  for (int i = 0; i < SIZE; i++) assert_int_equal(p[i], 11);
  loam_block_release(b);
  assert_null(loam_share_open(NULL, &r.share, 0));
  assert_non_null(strstr(loam_error(), "cannot be asked"));
  start_other();
}

static void a_block_that_others_may_open_is_not_resized_where_it_is(void **state) {
  (void)state;
  char *p = shared(SIZE);
  memset(p, 2, loam_usable_size(p));
  loam_share share = show(p);
  opened(&share);
  char *q = loam_realloc(NULL, p, 70000);
  assert_ptr_not_equal(q, p);
  assert_int_equal(q[0], 2);
  memset(q, 1, 70000);
  assert_int_equal(tell((order){ .what = STORE, .byte = 2 }).byte, 2);
  assert_int_equal(q[0], 1);
  release();
  loam_free(q);
}

/* Also where the block has room for the new size in its slots of 64 KiB. */
static void nor_is_one_that_has_room(void **state) {
  (void)state;
  static const size_t sizes[][2] = { { 10000, 20000 }, { 46656, 27993 }, { 157464, 188956 } };
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    char *p = shared(sizes[i][0]);
    (void)show(p);
    char *q = loam_realloc(NULL, p, sizes[i][1]);
    assert_ptr_not_equal(q, p);
    loam_free(q);
  }
}

static void only_shared_memory_is_shown(void **state) {
  (void)state;
  loam_share share = { 0 };
  int on_stack;
  char *p = loam_malloc(NULL, 100), *q = shared(100);
  assert_int_equal(loam_share_get(p, &share), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "host memory, of strategy 'plain'"));
  assert_int_equal(loam_share_get(q + 8, &share), LOAM_EINVAL);
  assert_non_null(strstr(loam_error(), "8 bytes into a block"));
  assert_int_equal(loam_share_get(&on_stack, &share), LOAM_EBADPTR);
  assert_int_equal(loam_share_get(NULL, &share), LOAM_EBADPTR);
  assert_int_equal(loam_share_get(q, NULL), LOAM_EINVAL);
  loam_free(q);
  assert_int_equal(loam_share_get(q, &share), LOAM_EBADPTR);
  assert_int_equal(share.pid, 0);
  loam_free(p);
}

static void handles_that_are_none_are_refused_in_words(void **state) {
  (void)state;
  char *p = shared(SIZE);
  loam_share good = show(p), bad = good;
  assert_null(loam_share_open(NULL, NULL, 0));
  assert_null(loam_share_open(NULL, &good, 8));
  assert_non_null(strstr(loam_error(), "flags 8"));
  for (int key = 0; key < 3; key++) {
    bad.key = (uint64_t)key;
    refused(&bad, "its owner has freed it");
  }
  bad = good, bad.offset += LM_SLOT;
  refused(&bad, "its owner has freed it");
  bad = good, bad.offset = UINT64_MAX & ~(LM_PAGE - 1);
  refused(&bad, "its owner has freed it");
  bad = good, bad.size = 1ull << 45;
  refused(&bad, "its file is too short for a block of");
  bad = good, bad.size = 5;
  refused(&bad, "no handle of a shared block");
  bad = good, bad.pid = 1;
  refused(&bad, "1");
  bad = good, bad.pid = -1;
  refused(&bad, "no handle of a shared block");
  assert_true(opened(&good).ok);
  release();
  loam_free(p);
}

static int shows_what_its_parent_made(void *p) {
  loam_share share;
  loam_stop();
  start();
  if (loam_share_get(p, &share) != LOAM_ESTATE) return 1;
  if (!strstr(loam_error(), "before the fork")) return 2;
  loam_free(p);
  char *own = shared(SIZE); /* it may have the old address */
  if (loam_share_get(own, &share)) return 3;
  loam_block *b = loam_share_open(NULL, &share, 0);
  if (!b) return 4;
  own[0] = 77;
  return *(char *)loam_block_data(b) == 77 ? 0 : 5;
}

static void a_child_shows_its_own_blocks_and_not_its_parents(void **state) {
  (void)state;
  char *p = shared(SIZE);
  assert_int_equal(run_in_child(shows_what_its_parent_made, p), 0);
  loam_free(p);
}

static int shows_without_a_descriptor(void *unused) {
  (void)unused;
  loam_stop();
  start();
  loam_share share;
  char *p = shared(100);
  for (int fd = 3; fd < 4096; fd++) close(fd);
  char *q = shared(20 << 20);
  usleep(100000);
  if (!p || !q || loam_share_get(p, &share) != LOAM_ESTATE) return 1;
  loam_free(p);
  loam_free(q);
  return 0;
}

static void what_the_host_has_closed_is_said(void **state) {
  (void)state;
  assert_int_equal(run_in_child(shows_without_a_descriptor, NULL), 0);
}

static void without_a_socket_nothing_is_shown(void **state) {
  (void)state;
  loam_share share;
  char *p = shared(100);
  loam_stop();
  assert_int_equal(loam_share_get(p, &share), LOAM_ESTATE);
  assert_non_null(strstr(loam_error(), "no control socket"));
  start();
  assert_int_equal(loam_share_get(p, &share), LOAM_OK);
  loam_free(p);
}

static void show_and_open(bool is_refused) {
  loam_share share;
  char *p = shared(SIZE);
  if (!p) return;
  memset(p, 3, SIZE);
  if (!loam_share_get(p, &share)) {
    loam_block *b = loam_share_open(NULL, &share, 0);
    assert_true(b || is_refused);
    if (b) assert_int_equal(((char *)loam_block_data(b))[SIZE - 1], 3);
    loam_free(p);
    if (b) assert_int_equal(((char *)loam_block_data(b))[SIZE - 1], 3);
    loam_block_release(b);
  } else {
    loam_free(p);
  }
  loam_trim();
}

static void nothing_is_lost_whatever_the_system_refuses(void **state) {
  (void)state;
  assert_true(refuse_each(show_and_open) > 4);
  show_and_open(false);
  assert_int_equal(file_bytes(NULL), 0);
  assert_true(lm_pool_is_valid());
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(both_see_what_either_stores),
    cmocka_unit_test(the_other_has_exactly_the_pages_of_the_block),
    cmocka_unit_test(a_store_to_what_is_readonly_is_a_fault),
    cmocka_unit_test(the_handle_of_a_freed_block_is_dead),
    cmocka_unit_test(what_is_open_outlives_the_block),
    cmocka_unit_test(a_child_of_the_other_has_it_too),
    cmocka_unit_test(what_is_open_outlives_the_owner),
    cmocka_unit_test(a_block_that_others_may_open_is_not_resized_where_it_is),
    cmocka_unit_test(nor_is_one_that_has_room),
    cmocka_unit_test(only_shared_memory_is_shown),
    cmocka_unit_test(handles_that_are_none_are_refused_in_words),
    cmocka_unit_test(a_child_shows_its_own_blocks_and_not_its_parents),
    cmocka_unit_test(what_the_host_has_closed_is_said),
    cmocka_unit_test(without_a_socket_nothing_is_shown),
    cmocka_unit_test(nothing_is_lost_whatever_the_system_refuses),
  };
  if (!mkdtemp(folder)) return 1;
  setenv("LOAM_CONTROL_DIR", folder, 1);
  start_other();
  start();
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  end_other();
  loam_stop();
  char command[64]; /* killed children have left their sockets */
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) || failures;
}
