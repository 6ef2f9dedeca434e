/* test_engine.c - the first member of the chain that can serve a request serves it. Every block is
 * accounted exactly. A pointer that is not a live block is reported and changes nothing. */
#include <sys/mman.h>

#include "engine_fixture.h"
#include "os/decay.h"

/* ---- serving ---- */

static void serves_any_size_and_alignment(void **state) {
  (void)state;
  CHAIN(host("plain"));
  for (size_t align = 1; align <= 1 << 21; align *= 2)
    for (size_t size = 0; size < 200000; size = size * 3 + 1) {
      char *p = alloc(site, size, align, false);
      assert_non_null(p);
      assert_int_equal((uintptr_t)p % (align < 16 ? 16 : align), 0);
      assert_true(lm_record_usable(p) >= size);
      memset(p, 1, size);
      put(p);
    }
}

static void size_0_is_a_block_of_its_own(void **state) {
  (void)state;
  CHAIN(host("plain"));
  char *a = get(0), *b = get(0);
  assert_true(a && b && a != b);
  put(a);
  put(b);
}

static void refuses_sizes_above_the_address_space(void **state) {
  (void)state;
  assert_null(get(SIZE_MAX));
  assert_non_null(strstr(loam_error(), "18446744073709551615"));
  assert_null(get(LM_SIZE_MAX + 1));
  assert_null(get(LM_SIZE_MAX)); /* an allowed size, but there is no memory for it */
  assert_non_null(strstr(loam_error(), "'plain'"));
  assert_null(alloc(site, 1, SIZE_MAX / 2 + 1, false));
}

static void zeroed_is_zero_though_memory_was_used(void **state) {
  (void)state;
  lm_strategy *zeroed = intern((lm_desc){ .zero = true }, "zeroed");
  for (int round = 0; round < 2; round++) {
    if (round) CHAIN(zeroed);
    else CHAIN(host("plain"));
    for (size_t size = 1; size < 300000; size = size * 2 + 3) {
      for (int again = 0; again < 3; again++) {
        char *p = alloc(site, size, 16, !round);
        size_t whole = round ? lm_record_usable(p) : size;
        for (size_t i = 0; i < whole; i++) assert_int_equal(p[i], 0);
        memset(p, 0xff, lm_record_usable(p));
        put(p);
      }
    }
  }
}

static size_t pages_there(const void *p, size_t size) {
  static unsigned char in[16384];
  size_t n = 0;
  assert_int_equal(mincore((void *)(uintptr_t)p, size, in), 0);
  for (size_t i = 0; i < size / LM_PAGE; i++) n += in[i] & 1;
  return n;
}

/* The block is a large table of which little was used. calloc writes zeros to the resident pages
 * alone and gives the others back, since they may be swapped out. If the system refuses these
 * calls, calloc has to write zeros everywhere. */
static void zeroing_what_was_never_touched_takes_no_memory(void **state) {
  (void)state;
  size_t size = 40 * LM_MIB + 100;
  CHAIN(host("plain"));
  lm_sweep_trim();
  lm_decay_note_served(lm_sys_clock_ns() + AN_HOUR); /* freed memory stays dirty */
  for (int refused = 0; refused < 2; refused++) {
    char *p = alloc(site, size, 16, true);
    assert_non_null(p);
    memset(p + 9 * LM_MIB + 5, 1, 10000);
    memset(p + size - 200, 1, 200);
    p[0] = p[13 * LM_MIB] = 1;
    put(p);
    if (refused) lm_sys_refuse_from(1);
    char *q = alloc(site, size, 16, true);
    lm_sys_refuse_from(0);
    assert_ptr_equal(q, p);
    if (!SANITIZED && !refused) assert_in_range(pages_there(q, 40 * LM_MIB), 1, 600);
    for (size_t i = 0; i < size; i += 1)
      if (q[i]) fail_msg("%zu: %d", i, q[i]);
    put(q);
  }
  lm_decay_note_unserved();
  lm_sweep_trim();
}

static void zeroed_stays_zero_where_it_grows(void **state) {
  (void)state;
  CHAIN(intern((lm_desc){ .zero = true }, "zeroed"));
  for (size_t size = 10; size < 3000000; size *= 3) {
    char *dirty = get(size * 3);
    memset(dirty, 0xff, size * 3);
    char *p = get(size);
    memset(p, 0xff, lm_record_usable(p));
    size_t was = lm_record_usable(p);
    put(dirty);
    p = engine_realloc(NULL, p, size * 3);
    for (size_t i = was; i < lm_record_usable(p); i++) assert_int_equal(p[i], 0);
    put(p);
  }
}

static void a_strategys_alignment_raises_the_callers(void **state) {
  (void)state;
  CHAIN(intern((lm_desc){ .align = 256 }, "wide"));
  for (size_t size = 1; size < 100000; size = size * 3 + 1) {
    char *p = get(size), *q = alloc(site, size, 1024, false);
    assert_int_equal((uintptr_t)p % 256, 0);
    assert_int_equal((uintptr_t)q % 1024, 0);
    put(p);
    put(q);
  }
}

static void calloc_is_decided_when_the_plan_asks_about_zero(void **state) {
  (void)state;
  set_split_plan(LM_IN_ZERO, 1, host("plain"), host("for.zeroed"));
  char *p = get(100), *z = alloc(site, 100, 16, true);
  assert_string_equal(owner(p).strategy, "plain");
  assert_string_equal(owner(z).strategy, "for.zeroed");
  put(p);
  put(z);
}

static void alignment_is_an_input(void **state) {
  (void)state;
  set_split_plan(LM_IN_ALIGN, 64, host("plain"), host("for.aligned"));
  char *p = get(100), *a = alloc(site, 100, 64, false);
  assert_string_equal(owner(p).strategy, "plain");
  assert_string_equal(owner(a).strategy, "for.aligned");
  put(p);
  put(a);
}

/* Objects of the 64 KiB class are aligned to 64 bytes only, so the engine must choose another class
 * for a larger alignment. */
static void aligns_several_blocks_of_nearly_64_KiB(void **state) {
  (void)state;
  char *p[4];
  CHAIN(host("plain"));
  for (size_t align = 64; align <= 8192; align *= 2)
    for (size_t size = 56 * LM_KIB; size <= 72 * LM_KIB; size += 4095) {
      for (int i = 0; i < 4; i++) {
        p[i] = alloc(site, size, align, false);
        assert_int_equal((uintptr_t)p[i] % align, 0);
        memset(p[i], i, size);
      }
      for (int i = 0; i < 4; i++) lm_engine_free(p[i], size, NULL);
    }
}

static void an_aligned_request_is_decided_by_what_was_asked(void **state) {
  (void)state;
  char *q[3];
  for (size_t size = 1; size < 80000; size += 1 + size / 7)
    for (size_t align = 1; align <= 8192; align *= 2) {
      set_split_plan(LM_IN_SIZE, (double)size + 1, host("plain"), host("larger"));
      char *p = alloc(site, size, align, false);
      assert_int_equal((uintptr_t)p % align, 0);
      assert_string_equal(owner(p).strategy, "plain");
      put(p);
      for (int i = 0; i < 3; i++) {
        q[i] = alloc(site, size + 1, align, false);
        assert_int_equal((uintptr_t)q[i] % align, 0);
        assert_string_equal(owner(q[i]).strategy, "larger");
        assert_true(owner(q[i]).size > size);
      }
      for (int i = 0; i < 3; i++) put(q[i]);
    }
  set_split_plan(LM_IN_ALIGN, 64, host("plain"), host("for.aligned"));
  char *p = alloc(site, 100, 64, false);
  assert_string_equal(owner(p).strategy, "for.aligned");
  put(p);
}

static void a_new_generation_decides_the_next_block(void **state) {
  (void)state;
  CHAIN(host("before"));
  char *p = get(100);
  uint64_t generation = lm_site_generation;
  CHAIN(host("after"));
  char *q = get(100);
  assert_string_equal(owner(p).strategy, "before");
  assert_int_equal(owner(p).generation, generation);
  assert_string_equal(owner(q).strategy, "after");
  assert_int_equal(owner(q).generation, generation + 1);
  put(p);
  put(q);
}

static void inside_loam_the_default_serves(void **state) {
  (void)state;
  CHAIN(intern((lm_desc){ .kind = LM_KIND_DENY }, "never"));
  assert_null(get(100));
  lm_thread_get()->inside++;
  char *p = get(100);
  lm_thread_get()->inside--;
  assert_string_equal(owner(p).strategy, "default");
  put(p);
}

static void a_null_site_is_the_scope_or_the_empty_tag(void **state) {
  (void)state;
  CHAIN(host("plain"));
  char *p = alloc(NULL, 10, 16, false);
  assert_string_equal(owner(p).tag, "");
  lm_thread *t = lm_thread_get();
  t->site = site;
  char *q = alloc(NULL, 10, 16, false);
  t->site = NULL;
  assert_string_equal(owner(q).tag, "engine.test");
  put(p);
  put(q);
}

/* ---- chains ---- */

static void deny_is_null_and_counted(void **state) {
  (void)state;
  uint64_t denied = lm_stats_denied, failed = lm_stats_failed;
  CHAIN(intern((lm_desc){ .kind = LM_KIND_DENY }, "never"));
  assert_null(get(10));
  assert_non_null(strstr(loam_error(), "'engine.test'"));
  assert_null(engine_realloc(site, NULL, 10));
  assert_int_equal(lm_stats_denied, denied + 2);
  assert_int_equal(lm_stats_failed, failed);
}

static void falls_back_in_order_and_counts_it(void **state) {
  (void)state;
  lm_strategy *a = limited_strategy("first", 1500), *b = handler_strategy("nobody.registered.this");
  lm_strategy *c = intern((lm_desc){ .kind = LM_KIND_PINNED }, "absent"), *d = host("last");
  uint64_t late = d->served_late, fallbacks = lm_stats_fallbacks;
  CHAIN(a, b, c, d);
  char *p = get(900), *q = get(900);
  assert_string_equal(owner(p).strategy, "first");
  assert_string_equal(owner(q).strategy, "last");
  assert_int_equal(d->served_late, late + 1);
  assert_int_equal(lm_stats_fallbacks, fallbacks + 1);
  assert_int_equal(a->failed, 1);
  assert_int_equal(b->failed, 1);
  assert_int_equal(c->failed, 1);
  put(p);
  put(q);
  assert_int_equal(used(a), 0);
}

static void a_chain_that_cannot_serve_says_why(void **state) {
  (void)state;
  uint64_t failed = lm_stats_failed;
  CHAIN(intern((lm_desc){ .kind = LM_KIND_DEVICE }, "absent"), limited_strategy("small", 100));
  assert_null(get(1000));
  assert_int_equal(lm_stats_failed, failed + 1);
  assert_string_equal(
      loam_error(),
      "size 1000 under tag 'engine.test': strategy 'small', the last of "
      "its chain, cannot serve it: this would pass its limit: 0 of 100 bytes are used");
}

static void a_limit_that_was_lowered_says_what_is_used(void **state) {
  (void)state;
  CHAIN(limited_strategy("lowered", 100000));
  char *p = get(50000);
  CHAIN(limited_strategy("lowered", 1500));
  assert_null(get(900));
  assert_non_null(strstr(loam_error(), "this would pass its limit: 57344 of 1500 bytes are used"));
  put(p);
}

/* The limit has room for the size, but not for the size of its class. Such a refusal is no reason
 * to give free memory back. */
static void a_class_above_what_is_left_is_at_the_limit(void **state) {
  (void)state;
  size_t limit = lm_class_size(lm_class_of(1000)) - 1;
  assert_in_range(limit, 1000, 1100);
  CHAIN(limited_strategy("close", limit));
  char *kept = loam_malloc(NULL, 300000);
  loam_free(kept);
  size_t released = lm_regions_released();
  for (int i = 0; i < 100; i++) assert_null(get(1000));
  assert_non_null(strstr(loam_error(), "this would pass its limit"));
  assert_int_equal(lm_regions_released(), released);
}

static struct {
  int n;
  uint64_t generation;
  char words[512];
} shortfall;

/* An event callback may call loam: this one makes a call that fails, and an allocation under the
 * policy that is in force. */
static void on_shortfall(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind != LOAM_EVENT_SHORTFALL) return;
  shortfall.n++;
  shortfall.generation = event->generation;
  snprintf(shortfall.words, sizeof shortfall.words, "%s", event->message);
  put(get(900));
  assert_null(loam_realloc(NULL, NULL, SIZE_MAX / 2));
}

static struct {
  int n;
  char words[512];
} unserved;

/* The callback changes the error words of the thread. */
static void on_unserved(void *ctx, const loam_event *event) {
  (void)ctx;
  if (event->kind != LOAM_EVENT_UNSERVED) return;
  unserved.n++;
  snprintf(unserved.words, sizeof unserved.words, "%s", event->message);
  assert_null(loam_realloc(NULL, NULL, SIZE_MAX / 2));
}

static void a_request_that_the_policy_leaves_without_memory_is_reported_once(void **state) {
  (void)state;
  lm_strategy *never = intern((lm_desc){ .kind = LM_KIND_DENY }, "never");
  loam_on_event(on_unserved, NULL);
  CHAIN(limited_strategy("unserved.a", 1500), host("unserved.b"));
  put(get(3000));
  assert_int_equal(unserved.n, 0);
  for (int kind = 0; kind < 2; kind++) {
    CHAIN(kind ? never : limited_strategy("unserved.a", 1500));
    for (int i = 0; i < 3; i++) assert_null(get(3000));
    assert_int_equal(unserved.n, kind + 1);
    assert_non_null(strstr(unserved.words, "size 3000 under tag 'engine.test': "));
    assert_non_null(
        strstr(unserved.words, kind ? "denies it (told once; " : " bytes are used (told"));
    assert_non_null(strstr(loam_error(), "size 3000 under tag 'engine.test': "));
  }
  CHAIN(handler_strategy("nobody.registered.this"));
  assert_null(get(3000));
  assert_int_equal(unserved.n, 2);
  loam_on_event(NULL, NULL);
}

static loam_event_kind kinds[8];
static int kinds_n;

static void on_any(void *ctx, const loam_event *event) {
  (void)ctx;
  if (kinds_n < 8) kinds[kinds_n++] = event->kind;
}

/* The preload library prints the reason only once, so it relies on this order of events. */
static void a_request_without_memory_is_reported_before_the_last_strategy(void **state) {
  (void)state;
  loam_on_event(on_any, NULL);
  CHAIN(limited_strategy("order.a", 1500), limited_strategy("order.b", 1500));
  kinds_n = 0;
  assert_null(get(3000));
  assert_int_equal(kinds_n, 4);
  assert_int_equal(kinds[0], LOAM_EVENT_SHORTFALL);
  assert_int_equal(kinds[1], LOAM_EVENT_UNSERVED);
  assert_int_equal(kinds[2], LOAM_EVENT_SHORTFALL);
  assert_int_equal(kinds[3], LOAM_EVENT_LAST_WORDS);
  assert_null(get(3000));
  assert_int_equal(kinds_n, 4);
  loam_on_event(NULL, NULL);
}

/* malloc cannot use the last member of this chain. */
static void the_reason_names_the_member_that_was_tried_last(void **state) {
  (void)state;
  CHAIN(limited_strategy("tried", 100), intern((lm_desc){ .kind = LM_KIND_DEVICE }, "absent"));
  assert_null(get(1000));
  assert_non_null(strstr(loam_error(),
                         "strategy 'tried' cannot serve it: this would pass its limit: 0 of 100"));
}

static void a_shortfall_is_reported_once_a_generation(void **state) {
  (void)state;
  lm_strategy *a = limited_strategy("short.a", 1500), *b = host("short.b");
  shortfall.n = 0;
  CHAIN(a, b);
  loam_on_event(on_shortfall, NULL);
  char *p = get(900);
  assert_int_equal(shortfall.n, 0);
  for (int i = 0; i < 3; i++) put(get(900));
  assert_int_equal(shortfall.n, 1);
  assert_int_equal(shortfall.generation, lm_site_generation);
  assert_string_equal(
      shortfall.words,
      "size 900 under tag 'engine.test': strategy 'short.a' cannot serve it: this would pass "
      "its limit: 1024 of 1500 bytes are used (told once; loam stats counts)");
  CHAIN(a, b);
  p = engine_realloc(site, p, 3000);
  assert_int_equal(shortfall.n, 2);
  assert_non_null(strstr(shortfall.words, "size 3000"));
  put(p);
  loam_on_event(NULL, NULL);
}

static void every_failure_is_accounted_exactly(void **state) {
  (void)state;
  lm_strategy *a = limited_strategy("exact.a", 3000), *b = limited_strategy("exact.b", 3000);
  CHAIN(a, b);
  char *p[100];
  int n = 0;
  uint64_t failed = lm_stats_failed;
  while ((p[n] = get(400))) n++;
  size_t each = lm_record_usable(p[0]);
  assert_int_equal(n, 2 * (3000 / each));
  assert_int_equal(used(a), 3000 / each * each);
  assert_int_equal(used(b), 3000 / each * each);
  assert_int_equal(lm_stats_failed, failed + 1);
  for (int i = 0; i < n; i++) put(p[i]);
  assert_int_equal(used(a), 0);
  assert_int_equal(used(b), 0);
}

/* ---- limits ---- */

static lm_strategy *shared;
static _Atomic int64_t highest;

static void *press(void *arg) {
  uint64_t seed = (uintptr_t)arg + 1;
  void *held[32] = { 0 };
  for (int i = 0; i < 40000 / SCALE; i++) {
    void **p = &held[chance(&seed, 32)];
    size_t size = some_size(&seed);
    if (!*p) *p = get(size);
    else if (chance(&seed, 2)) {
      void *q = engine_realloc(NULL, *p, size);
      if (q) *p = q;
    } else {
      put(*p);
      *p = NULL;
    }
    int64_t now = i % 8 ? 0 : used(shared);
    if (now > highest) highest = now;
  }
  for (int i = 0; i < 32; i++) put(held[i]);
  return NULL;
}

static void a_limit_holds_under_threads_and_ends_at_0(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  shared = limited_strategy("shared", 300000);
  CHAIN(shared);
  for (uintptr_t i = 0; i < THREADS; i++) thread[i] = start_thread(press, (void *)i);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  assert_in_range(highest, 100000, 300000);
  assert_int_equal(used(shared), 0);
  assert_true(shared->failed > 0);
}

/* ---- frees of pointers that are not live blocks ---- */

static void realloc_it(void *p) {
  assert_null(engine_realloc(NULL, p, 10));
  assert_non_null(strstr(loam_error(), "realloc"));
}

static void reports_a_double_free(void **state) {
  (void)state;
  CHAIN(host("plain"));
  static const size_t sizes[] = { 1, 500, 40000, 3 << 20 };
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    char *p = get(sizes[i]);
    put(p);
    expect_bad_free(put, p, "double free of ");
    expect_bad_free(realloc_it, p, "realloc of ");
  }
}

static void reports_an_interior_free_with_its_block(void **state) {
  (void)state;
  CHAIN(host("plain"));
  static const size_t sizes[] = { 50, 40000 };
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    char *p = get(sizes[i]);
    expect_bad_free(put, p + 8, "8 bytes into a block of ");
    expect_bad_free(put, p + 1, "tag 'engine.test' and strategy 'plain'");
    expect_bad_free(realloc_it, p + 16, "realloc of ");
    assert_int_equal(owner(p).size, lm_record_usable(p)); /* the block is still live */
    assert_int_equal(lm_record_usable(p + 8), 0);
    put(p);
  }
}

static void reports_a_free_of_foreign_memory(void **state) {
  (void)state;
  int on_stack[4];
  static int in_data[4];
  void *libcs = malloc(10);
  expect_bad_free(put, on_stack, "which loam did not allocate");
  expect_bad_free(put, in_data, "which loam did not allocate");
  expect_bad_free(put, libcs, "which loam did not allocate");
  expect_bad_free(realloc_it, (void *)16, "which loam did not allocate");
  loam_owner_info o;
  assert_false(lm_owner_find(on_stack, &o));
  free(libcs);
  put(NULL);
}

/* The rest of the slots of a large block, and the guard pages around a guarded one, were never
 * freed. The test is the first, so no other block was at these addresses. */
static void a_bad_free_beside_a_live_block_names_the_block(void **state) {
  (void)state;
  CHAIN(host("plain"));
  char *large = get(70000);
  size_t usable = owner(large).size;
  assert_true(usable < 2 * LM_SLOT - 3);
  expect_bad_free(put, large + usable, ", 0 bytes past the end of a block of ");
  expect_bad_free(put, large + 2 * LM_SLOT - 3, "tag 'engine.test' and strategy 'plain'");
  expect_bad_free(realloc_it, large + usable + 1, ", 1 byte past the end of a block of ");
  put(large);
  CHAIN(intern((lm_desc){ .guard = 1 }, "guarded"));
  char *guarded = get(5000);
  expect_bad_free(put, guarded + 6000, ", 1000 bytes past the end of a block of 5000 bytes");
  expect_bad_free(put, guarded - 3000, ", 3000 bytes before a block of 5000 bytes");
  put(guarded);
}

static void free_with_5000(void *p) { lm_engine_free(p, 5000, NULL); }

static void reports_a_sized_free_of_too_much_and_frees(void **state) {
  (void)state;
  CHAIN(host("plain"));
  char *p = get(100);
  expect_bad_free(free_with_5000, p, "with size 5000: the block has 112 bytes");
  expect_bad_free(put, p, "double free");
  uint64_t before = lm_stats_bad_frees;
  lm_engine_free(get(100), 100, NULL);
  assert_int_equal(lm_stats_bad_frees, before);
}

static void free_with_3(void *p) { lm_engine_free(p, 3, NULL); }

static void reports_a_sized_free_of_too_little_where_no_block_has_more_room(void **state) {
  (void)state;
  CHAIN(host("plain"));
  bool was = atomic_exchange(&lm_pool_has_oversized, false);
  expect_bad_free(free_with_3, get(100), "with size 3: the block has 112 bytes");
  uint64_t before = lm_stats_bad_frees;
  atomic_store(&lm_pool_has_oversized, true);
  free_with_3(get(100));
  assert_int_equal(lm_stats_bad_frees, before);
  atomic_store(&lm_pool_has_oversized, was);
}

/* ---- system calls that are refused ---- */

static void try_everything(bool refused) {
  static const size_t sizes[] = { 10, 5000, 40000, 3 << 20 };
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    char *p = alloc(site, sizes[i], 16, i % 2);
    assert_true(p || refused);
    if (!p) continue;
    fill(p, sizes[i]);
    char *q = engine_realloc(NULL, p, sizes[i] * 3);
    assert_true(q || refused);
    expect_contents(q ? q : p, sizes[i], sizes[i]);
    put(q ? q : p);
  }
}

static void survives_each_refusal_of_memory(void **state) {
  (void)state;
  static int round;
  char name[32];
  lm_desc descs[] = {
    { .align = 0 },   { .limit = 64 << 20 },      { .guard = 1 },
    { .zero = true }, { .kind = LM_KIND_SYSTEM }, { .kind = LM_KIND_HANDLER, .handler = "counting" }
  };
  (void)counting_strategy();
  for (size_t i = 0; i < LM_COUNT(descs); i++) {
    snprintf(name, sizeof name, "refused.%d", round++);
    lm_strategy *s = intern(descs[i], name);
    CHAIN(s);
    assert_true(refuse_each(try_everything) > 0 || descs[i].kind != LM_KIND_HOST);
    assert_int_equal(used(s), 0);
  }
}

static char *handler_stack;
static void *note_stack(void *ctx, size_t size) {
  handler_stack = __builtin_frame_address(0);
  return count_malloc(ctx, size);
}

/* A thread may have a stack of only 16 KiB, and a handler may itself call malloc. So a request must
 * use little stack before it calls the handler. */
static void a_request_leaves_the_stack_to_a_handler(void **state) {
  (void)state;
  static const loam_handler noting = {
    "noting", 1, { NULL, note_stack, count_calloc, count_realloc, count_free }
  };
  if (SANITIZED) return;
  assert_int_equal(loam_handler_register(&noting), LOAM_OK);
  CHAIN(handler_strategy("noting"));
  put(get(100));
  assert_in_range((char *)__builtin_frame_address(0) - handler_stack, 1, 1500);
}

/* Allocates blocks of `size` bytes until there is no memory, and adds their number to *count.
 * Returns the last block. Each block contains the address of the one before it. */
static void **take_all(size_t size, size_t *count) {
  void **last = NULL;
  for (void **p; (p = alloc(site, size, 16, false)) != NULL; last = p, ++*count) *p = last;
  return last;
}

static void put_all(void **last) {
  for (void **before; last; last = before) {
    before = *last;
    put(last);
  }
}

/* Live blocks keep the spans of the larger objects in use, so no span goes back to the system. */
static void without_memory_a_small_request_gets_a_larger_object(void **state) {
  (void)state;
  enum { OBJECTS = 64, EACH_SIZE = 4000 };
  char *object[OBJECTS];
  size_t count = 0;
  lm_strategy *s = host("larger");
  CHAIN(s);
  for (int i = 0; i < OBJECTS; i++) object[i] = get(EACH_SIZE);
  for (int i = 0; i < OBJECTS; i++)
    if (i % 2) put(object[i]);
  lm_sys_refuse_from(1);
  void **small = take_all(100, &count);
  char *left = alloc(site, EACH_SIZE, 16, false), *aligned = alloc(site, 16, LM_PAGE, false);
  lm_sys_refuse_from(0);
  assert_null(left);
  assert_null(aligned);
  assert_true(count >= OBJECTS / 2);
  assert_true(lm_pool_is_valid());
  put_all(small);
  for (int i = 0; i < OBJECTS; i += 2) put(object[i]);
  assert_int_equal(used(s), 0);
}

/* Each block of a handler needs an entry in the table of provided blocks. Blocks are allocated
 * until loam has no memory for an entry. The handler gets that block back. */
static void without_memory_for_its_entry_a_handlers_block_goes_back(void **state) {
  (void)state;
  (void)counting_strategy();
  lm_desc desc = { .kind = LM_KIND_HANDLER, .limit = LM_GIB };
  strcpy(desc.handler, "counting");
  lm_strategy *s = intern(desc, "unkept");
  CHAIN(s);
  size_t before = handler_live, count = 0;
  lm_sys_refuse_from(1);
  void **last = take_all(64, &count);
  lm_sys_refuse_from(0);
  if (!strstr(loam_error(), "loam has no memory to keep its block")) fail_msg("%s", loam_error());
  assert_true(count > 0 && lm_provided_is_valid());
  size_t each = owner(last).size;
  assert_int_equal(s->used, count * each);
  assert_int_equal(handler_live, before + count * each);
  put_all(last);
  assert_int_equal(s->used, 0);
  assert_int_equal(handler_live, before);
}

/* ---- threads and fork ---- */

static void *free_it(void *p) {
  put(p);
  return NULL;
}

static void any_thread_may_free(void **state) {
  (void)state;
  lm_strategy *s = limited_strategy("crossing", 1 << 20);
  CHAIN(s);
  for (size_t size = 10; size < 200000; size *= 20) {
    char *p = get(size);
    pthread_join(start_thread(free_it, p), NULL);
    assert_int_equal(used(s), 0);
    expect_bad_free(put, p, "free of ");
  }
}

/* A thread that ends keeps its bins closed, although its decisions still name them. So it must take
 * no object from a bin. */
static void *take_while_dying(void *ending) {
  lm_thread *t = lm_thread_get();
  lm_request r = { .site = ending, .size = 100, .align = 16 };
  t->dying = true;
  bool holds;
  lm_decision_key k = lm_decision_key_of(ending, r.size);
  void *p = lm_decision_make(t, &r), *q = lm_decision_serve(t, k, &holds);
  put(p);
  void *again = lm_decision_serve(t, k, &holds);
  return p && !q && !again ? ending : NULL;
}

static void a_thread_that_ends_serves_nothing_from_its_bins(void **state) {
  (void)state;
  void *ending = tag("ending"), *result = NULL;
  CHAIN(host("plain"));
  pthread_join(start_thread(take_while_dying, ending), &result);
  assert_ptr_equal(result, ending);
}

static int use_in_child(void *argument) {
  char *p = get(100), *q = get(100000);
  if (!p || !q) return 1;
  p = engine_realloc(NULL, p, 70000);
  begin_counting(tag("fork.child"));
  put(p);
  put(q);
  put(argument);
  return lm_stats_bad_frees ? 2 : 0;
}

static void a_forked_child_allocates_at_once(void **state) {
  (void)state;
  pthread_t thread[2];
  CHAIN(host("plain"));
  lm_stats_bad_frees = 0;
  stop = false;
  for (uintptr_t i = 0; i < 2; i++) thread[i] = start_thread(churn, (void *)i);
  for (int i = 0; i < 50 / SCALE; i++) assert_int_equal(run_in_child(use_in_child, get(100)), 0);
  stop = true;
  for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_bad_free_beside_a_live_block_names_the_block),
    cmocka_unit_test(aligns_several_blocks_of_nearly_64_KiB),
    cmocka_unit_test(an_aligned_request_is_decided_by_what_was_asked),
    cmocka_unit_test(serves_any_size_and_alignment),
    cmocka_unit_test(size_0_is_a_block_of_its_own),
    cmocka_unit_test(refuses_sizes_above_the_address_space),
    cmocka_unit_test(zeroed_is_zero_though_memory_was_used),
    cmocka_unit_test(zeroed_stays_zero_where_it_grows),
    cmocka_unit_test(a_strategys_alignment_raises_the_callers),
    cmocka_unit_test(zeroing_what_was_never_touched_takes_no_memory),
    cmocka_unit_test(calloc_is_decided_when_the_plan_asks_about_zero),
    cmocka_unit_test(alignment_is_an_input),
    cmocka_unit_test(a_new_generation_decides_the_next_block),
    cmocka_unit_test(inside_loam_the_default_serves),
    cmocka_unit_test(a_null_site_is_the_scope_or_the_empty_tag),
    cmocka_unit_test(deny_is_null_and_counted),
    cmocka_unit_test(falls_back_in_order_and_counts_it),
    cmocka_unit_test(a_chain_that_cannot_serve_says_why),
    cmocka_unit_test(a_limit_that_was_lowered_says_what_is_used),
    cmocka_unit_test(a_class_above_what_is_left_is_at_the_limit),
    cmocka_unit_test(a_request_without_memory_is_reported_before_the_last_strategy),
    cmocka_unit_test(the_reason_names_the_member_that_was_tried_last),
    cmocka_unit_test(a_shortfall_is_reported_once_a_generation),
    cmocka_unit_test(a_request_that_the_policy_leaves_without_memory_is_reported_once),
    cmocka_unit_test(every_failure_is_accounted_exactly),
    cmocka_unit_test(a_limit_holds_under_threads_and_ends_at_0),
    cmocka_unit_test(reports_a_double_free),
    cmocka_unit_test(reports_an_interior_free_with_its_block),
    cmocka_unit_test(reports_a_free_of_foreign_memory),
    cmocka_unit_test(reports_a_sized_free_of_too_much_and_frees),
    cmocka_unit_test(reports_a_sized_free_of_too_little_where_no_block_has_more_room),
    cmocka_unit_test(survives_each_refusal_of_memory),
    cmocka_unit_test(a_request_leaves_the_stack_to_a_handler),
    cmocka_unit_test(without_memory_a_small_request_gets_a_larger_object),
    cmocka_unit_test(without_memory_for_its_entry_a_handlers_block_goes_back),
    cmocka_unit_test(any_thread_may_free),
    cmocka_unit_test(a_thread_that_ends_serves_nothing_from_its_bins),
    cmocka_unit_test(a_forked_child_allocates_at_once),
  };
  setenv("LOAM_CUDA_DRIVER", "/nowhere", 1); /* without a driver, pinned memory is absent */
  return cmocka_run_group_tests(tests, set_up, NULL);
}
