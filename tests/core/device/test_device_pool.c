/* test_device_pool.c - loam's own pool of a device's memory, on the stand-in: device_pool.h,
 * extent.h. The stand-in sees whether memory is used while work of another stream may still use it.
 * */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "device/device_pool_parts.h"
#include "engine/engine.h"
#include "names.h"
#include "standin.h"
#include "stream.h"

static void must(CUresult result) { assert_int_equal(result, CUDA_SUCCESS); }

static int start(void **state) {
  (void)state;
  loam_defer_limit(0, 0);
  if (loam_policy_load_text("test",
                            "local d = loam.device { name = 'd', id = 0 } return loam.policy "
                            "{ pick = function(req) return d end }\n"))
    fail_msg("%s", loam_error());
  assert_non_null(lm_gpu());
  return 0;
}

/* Nothing was done that a driver may not be asked for, and nothing is left. */
static int end(void **state) {
  (void)state;
  standin_delay(0);
  standin_release();
  standin_fail(NULL, 0, 0, CUDA_SUCCESS);
  if (!lm_device_pool_is_valid()) print_message("the cache is not valid\n");
  bool valid = lm_device_pool_is_valid();
  loam_device_trim(-1);
  size_t mapped, live;
  lm_device_pool_figures(0, &mapped, &live);
  if (mapped || live || standin_used(0)) {
    print_message("%zu bytes are mapped, %zu live, %zu used\n", mapped, live, standin_used(0));
    valid = false;
  }
  if (standin_violations()) print_message("%s\n", standin_violation());
  int violations = (int)standin_violations();
  standin_forgive();
  return violations + !valid;
}

static void *alloc(size_t size, CUstream stream) {
  void *p = loam_device_alloc(NULL, size, stream);
  if (!p) fail_msg("%s", loam_error());
  return p;
}

static size_t mapped(void) {
  size_t mapped, live;
  lm_device_pool_figures(0, &mapped, &live);
  return mapped;
}

static void the_same_stream_has_it_again_at_once(void **state) {
  (void)state;
  CUstream stream = new_stream();
  standin_hold();
  for (size_t size = 1; size <= 64 * LM_MIB; size *= 4) {
    void *p = alloc(size, stream);
    must(standin_write(stream, (uintptr_t)p, 1, size));
    loam_device_free(p, stream);
    unsigned long calls = standin_calls(NULL);
    assert_ptr_equal(alloc(size, stream), p);
    assert_int_equal(standin_calls(NULL), calls);
    loam_device_free(p, stream);
    assert_int_equal(standin_calls(NULL), calls);
  }
  standin_release();
}

static void another_stream_has_it_when_its_work_has_ended(void **state) {
  (void)state;
  CUstream one = new_stream(), other = new_stream();
  void *q = alloc(900 * LM_MIB, other); /* so much that nothing is given back meanwhile */
  standin_hold();
  void *p = alloc(8 * LM_MIB, one);
  must(standin_write(one, (uintptr_t)p, 1, 8 * LM_MIB));
  loam_device_free(p, one);
  void *wanted = alloc(8 * LM_MIB, other); /* asks for an event */
  assert_ptr_not_equal(wanted, p);
  loam_device_free(alloc(512, one), one); /* is where it is recorded */
  loam_device_free(wanted, other);
  void *larger = alloc(9 * LM_MIB, other);
  assert_true((char *)larger + 9 * LM_MIB <= (char *)p || (char *)larger >= (char *)p + 8 * LM_MIB);
  standin_release();
  void *third = alloc(8 * LM_MIB, other), *fourth = alloc(8 * LM_MIB, other);
  assert_true(third == p || fourth == p);
  must(standin_write(other, (uintptr_t)p, 2, 8 * LM_MIB));
  loam_device_free(third, other);
  loam_device_free(fourth, other);
  loam_device_free(larger, other);
  loam_device_free(q, other);
}

/* ---- Another context of the same device */

static void go_to(CUcontext context) { must(cuCtxSetCurrent(context)); }

/* What is current, and another that is made. */
static void make_context(CUcontext *home, CUcontext *made) {
  (void)new_stream();
  must(cuCtxGetCurrent(home));
  must(cuCtxCreate_v2(made, 0, 0));
  must(cuCtxPopCurrent_v2(NULL));
}

static void end_context(CUcontext made, CUcontext home) {
  go_to(home);
  standin_release();
  must(cuCtxSynchronize());
  assert_int_equal(loam_device_reset(0), LOAM_OK);
  assert_int_equal(standin_calls("cuEventDestroy"), standin_calls("cuEventCreate"));
  must(cuCtxDestroy_v2(made));
}

static CUstream stream_in(CUcontext context) {
  CUstream stream;
  go_to(context);
  must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

static void a_stream_of_another_context_is_waited_for_as_well(void **state) {
  (void)state;
  CUcontext home, away;
  make_context(&home, &away);
  CUstream one = stream_in(away), other = stream_in(home);
  standin_limit(0, 64 * LM_MIB);
  standin_hold();
  go_to(away);
  void *p = alloc(50 * LM_MIB, one);
  must(standin_write(one, (uintptr_t)p, 1, 50 * LM_MIB));
  loam_device_free(p, one);
  go_to(home);
  p = alloc(50 * LM_MIB, other);
  must(standin_write(other, (uintptr_t)p, 1, 50 * LM_MIB));
  loam_device_free(p, other);
  go_to(away);
  p = alloc(50 * LM_MIB, one);
  must(standin_write(one, (uintptr_t)p, 1, 50 * LM_MIB));
  loam_device_free(p, one);
  standin_limit(0, LM_GIB);
  end_context(away, home);
}

/* What one frees, and then has an event of, the other has without a wait for anything else. */
static void pass_on(CUstream one, CUstream other) {
  void *p = alloc(8 * LM_MIB, one); /* a context of the same device will do */
  must(standin_write(one, (uintptr_t)p, 1, 8 * LM_MIB));
  loam_device_free(p, one);
  void *wanted = alloc(8 * LM_MIB, other);
  loam_device_free(alloc(512, one), one);
  unsigned long waits = standin_calls("cuCtxSynchronize");
  void *third = alloc(8 * LM_MIB, other);
  assert_ptr_equal(third, p);
  assert_int_equal(standin_calls("cuCtxSynchronize"), waits);
  must(standin_write(other, (uintptr_t)third, 1, 8 * LM_MIB));
  must(cuStreamSynchronize(other));
  loam_device_free(third, other);
  loam_device_free(wanted, other);
}

static void its_events_are_of_its_context(void **state) {
  (void)state;
  CUcontext home, away;
  make_context(&home, &away);
  CUstream one = stream_in(away), other = stream_in(home);
  void *much = alloc(900 * LM_MIB, other); /* so much that nothing is given back meanwhile */
  pass_on(one, other);
  assert_int_equal(loam_device_trim(0) > 0, true);
  pass_on(other, one);
  loam_device_free(much, other);
  end_context(away, home);
}

static void each_context_has_default_streams_of_its_own(void **state) {
  (void)state;
  CUcontext home, away;
  make_context(&home, &away);
  standin_hold();
  for (uintptr_t stream = 0; stream <= 2; stream++) { /* both that have a number as well */
    go_to(away);
    void *p = alloc(8 * LM_MIB, (CUstream)stream);
    must(standin_write((CUstream)stream, (uintptr_t)p, 1, 8 * LM_MIB));
    loam_device_free(p, (CUstream)stream);
    go_to(home);
    void *q = alloc(8 * LM_MIB, (CUstream)stream);
    assert_ptr_not_equal(q, p);
    must(standin_write((CUstream)stream, (uintptr_t)q, 1, 8 * LM_MIB));
    go_to(away);
    assert_ptr_equal(alloc(8 * LM_MIB, (CUstream)stream), p);
    loam_device_free(p, (CUstream)stream);
    go_to(home);
    loam_device_free(q, (CUstream)stream);
  }
  end_context(away, home);
}

static void what_is_wanting_is_taken_from_other_streams_at_last(void **state) {
  (void)state;
  CUstream one = new_stream(), other = new_stream();
  standin_limit(0, 64 * LM_MIB);
  void *p = alloc(50 * LM_MIB, one);
  must(standin_write(one, (uintptr_t)p, 1, 50 * LM_MIB));
  loam_device_free(p, one);
  void *q = alloc(50 * LM_MIB, other); /* no event was ever recorded on `one` */
  must(standin_write(other, (uintptr_t)q, 1, 50 * LM_MIB));
  assert_null(loam_device_alloc(NULL, 50 * LM_MIB, one));
  assert_non_null(strstr(loam_error(), "strategy 'd' cannot serve it"));
  loam_device_free(q, other);
  void *small = alloc(1, other);
  q = alloc(60 * LM_MIB, one); /* what is free in the wrong places goes back first */
  loam_device_free(q, one);
  loam_device_free(small, other);
  standin_limit(0, LM_GIB);
}

static void fragments_are_mapped_anew_rather_than_kept(void **state) {
  (void)state;
  CUstream stream = new_stream();
  enum { BLOCKS = 32 };
  void *p[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) p[i] = alloc(8 * LM_MIB, stream);
  size_t before = mapped();
  for (int i = 0; i < BLOCKS; i += 2) loam_device_free(p[i], stream);
  void *large = alloc(BLOCKS / 2 * 8 * LM_MIB, stream);
  size_t may = before + before / 32 + 8 * LM_MIB; /* a 32nd, and pieces not yet filled */
  if (mapped() > may) fail_msg("%zu bytes are mapped, %zu were", mapped(), before);
  must(standin_write(stream, (uintptr_t)large, 1, BLOCKS / 2 * 8 * LM_MIB));
  for (int i = 1; i < BLOCKS; i += 2) {
    must(standin_write(stream, (uintptr_t)p[i], 1, 8 * LM_MIB));
    loam_device_free(p[i], stream);
  }
  loam_device_free(large, stream);
}

/* What is free below a hole and above it, and as much mapped between them as is missing. */
static void a_hole_between_free_blocks_is_filled(void **state) {
  (void)state;
  CUstream stream = new_stream();
  enum { SIZE = 16 };
  void *p[5];
  for (int i = 0; i < 5; i++) p[i] = alloc(SIZE * LM_MIB, stream);
  loam_device_free(p[2], stream);
  loam_device_trim(0);
  assert_int_equal(mapped(), 4 * SIZE * LM_MIB);
  loam_device_free(p[1], stream);
  loam_device_free(p[3], stream);
  void *all = alloc(3 * SIZE * LM_MIB, stream);
  assert_ptr_equal(all, p[1]);
  assert_int_equal(mapped(), 5 * SIZE * LM_MIB);
  loam_device_free(all, stream);
  loam_device_free(p[0], stream);
  loam_device_free(p[4], stream);
}

/* As a program of several streams has it: what is free beside a block's place is common. */
static void what_is_common_joins_what_is_a_streams(void **state) {
  (void)state;
  CUstream one = new_stream(), other = new_stream();
  void *kept = alloc(LM_MIB, other), *p[2];
  for (int i = 0; i < 2; i++) p[i] = alloc(16 * LM_MIB, one);
  void *last = alloc(LM_MIB, one);
  loam_device_free(p[0], one);
  lm_stream_ref ref = { .stream = one };
  lm_device_pool *c = lm_device_pool_of(0, false);
  lm_lock_take(&c->lock); /* as if an event had told */
  lm_stream_queue *q = lm_device_pool_queue_locked(c, ref);
  q->done = q->batch++;
  lm_device_pool_reclaim_locked(c, q);
  lm_lock_drop(&c->lock);
  loam_device_free(p[1], one);
  unsigned long before = standin_calls(NULL);
  void *both = alloc(32 * LM_MIB, one);
  assert_ptr_equal(both, p[0]);
  assert_int_equal(standin_calls(NULL), before);
  loam_device_free(both, one);
  loam_device_free(last, one);
  loam_device_free(kept, other);
}

static CUstream taking;
static void *taken;

static void *take_beside(void *unused) {
  (void)unused;
  taken = loam_device_alloc(NULL, 20 * LM_MIB, taking);
  return NULL;
}

static void let_another_take(void *unused) {
  (void)unused;
  pthread_join(start_thread(take_beside, NULL), NULL);
}

static void others_may_take_what_it_grows_beside(void **state) {
  (void)state;
  taking = new_stream();
  void *beside = alloc(20 * LM_MIB, taking);
  loam_device_free(beside, taking);
  standin_before("cuMemCreate", let_another_take, NULL);
  void *large = alloc(30 * LM_MIB, taking);
  assert_ptr_equal(taken, beside);
  assert_true((char *)large >= (char *)taken + 20 * LM_MIB);
  loam_device_free(large, taking);
  loam_device_free(taken, taking);
}

static void owners_are_found_from_within(void **state) {
  (void)state;
  CUstream stream = new_stream();
  static const size_t sizes[] = { 1, 511, 512, 100000, 256 * LM_KIB, 256 * LM_KIB + 1, 5000000 };
  void *p[LM_COUNT(sizes)];
  loam_owner_info owner;
  for (size_t i = 0; i < LM_COUNT(sizes); i++) p[i] = alloc(sizes[i], stream);
  for (size_t i = 0; i < LM_COUNT(sizes); i++) {
    assert_int_equal(loam_owner((char *)p[i] + sizes[i] - 1, &owner), LOAM_OK);
    assert_ptr_equal(owner.base, p[i]);
    assert_true(owner.size >= sizes[i] && owner.size < sizes[i] + 4096);
    assert_ptr_equal(owner.stream, stream);
    assert_string_equal(owner.handler, "loam");
    loam_device_free(p[i], stream);
    assert_int_equal(loam_owner(p[i], &owner), LOAM_EBADPTR);
  }
}

/* ---- Pinned memory */

static void *pinned(size_t size) {
  char *p = loam_pinned_alloc(NULL, size, LOAM_PINNED_PORTABLE);
  if (!p) fail_msg("%s", loam_error());
  loam_owner_info owner;
  assert_int_equal(loam_owner(p + size - 1, &owner), LOAM_OK);
  assert_string_equal(owner.kind, "pinned");
  assert_true(owner.size >= size && owner.size < size + 4096); /* no powers of two */
  memset(p, 1, size);
  return p;
}

static void pinned_memory_is_pooled_and_grows_in_steps(void **state) {
  (void)state;
  enum { BLOCKS = 300 };
  void *p[BLOCKS];
  unsigned long before = standin_calls("cuMemHostRegister");
  for (int i = 0; i < BLOCKS; i++) p[i] = pinned(1000 + (size_t)i * 1000);
  unsigned long made = standin_calls("cuMemHostRegister") - before;
  assert_true(made > 2 && made < 40); /* 45 MB from 2 MiB on */
  for (int i = 0; i < BLOCKS; i++) loam_free(p[i]);
  for (int i = 0; i < BLOCKS; i++) p[i] = pinned(1000 + (size_t)i * 1000);
  assert_int_equal(standin_calls("cuMemHostRegister"), before + made);
  for (int i = 0; i < BLOCKS; i++) loam_free(p[i]);
  assert_true(lm_device_pool_is_valid());
  loam_device_trim(-1);
  assert_int_equal(standin_calls("cuMemHostUnregister"), standin_calls("cuMemHostRegister"));
}

static void pinned_memory_that_a_stream_reads_waits_for_it(void **state) {
  (void)state;
  CUstream stream = new_stream();
  char *p = pinned(LM_MIB);
  standin_hold();
  must(standin_check(stream, (uintptr_t)p, 1, LM_MIB));
  loam_device_free(p, stream);
  char *q = pinned(LM_MIB); /* writes */
  assert_ptr_not_equal(q, p);
  standin_release();
  loam_free(q);
}

/* ---- What is idle goes back by itself: ticks are made by hand here */

/* As many as it takes, and as many as there are while there is something to do. */
static unsigned tick(void) {
  unsigned ticks = 0;
  while (lm_device_pool_decay() && ++ticks < 10) {
  }
  return ticks;
}

static void what_is_idle_goes_back_without_a_wait(void **state) {
  (void)state;
  must(cuCtxSynchronize());
  unsigned long waits = standin_calls("cuCtxSynchronize");
  void *p = alloc(64 * LM_MIB, NULL), *small = alloc(1, NULL);
  standin_hold();
  must(standin_write(NULL, (uintptr_t)p, 1, 64 * LM_MIB));
  loam_device_free(p, NULL);
  assert_int_equal(tick(), 10); /* while its work is under way there is something to look at */
  assert_true(mapped() >= 64 * LM_MIB);
  standin_release();
  assert_true(tick() < 10);
  assert_true(mapped() <= 4 * LM_MIB);
  loam_device_free(small, NULL);
  (void)tick();
  assert_int_equal(mapped(), 0);
  assert_int_equal(standin_calls("cuCtxSynchronize"), waits);
  unsigned long calls = standin_calls(NULL);
  assert_int_equal(tick(), 0);
  assert_int_equal(standin_calls(NULL), calls);
}

static void of_a_stream_of_the_hosts_after_the_next_call_on_it(void **state) {
  (void)state;
  CUstream stream = new_stream();
  void *p = alloc(64 * LM_MIB, stream), *small = alloc(1, stream);
  loam_device_free(p, stream);
  assert_true(tick() < 10); /* an event on a stream that may be gone is none of its business */
  assert_true(mapped() >= 64 * LM_MIB);
  loam_device_free(small, stream);
  assert_true(tick() < 10);
  assert_true(mapped() <= 2 * LM_MIB);
}

static void what_is_used_between_ticks_stays(void **state) {
  (void)state;
  CUstream stream = new_stream();
  unsigned long unmapped = standin_calls("cuMemUnmap");
  for (int i = 0; i < 20; i++) {
    loam_device_free(alloc(64 * LM_MIB, stream), stream);
    (void)lm_device_pool_decay();
  }
  assert_int_equal(standin_calls("cuMemUnmap"), unmapped);
  assert_true(mapped() >= 64 * LM_MIB);
}

static void as_much_stays_as_is_to_be_kept(void **state) {
  (void)state;
  void *p[8];
  loam_device_keep(32 * LM_MIB);
  for (int i = 0; i < 8; i++) p[i] = alloc(16 * LM_MIB, NULL);
  for (int i = 0; i < 8; i++) loam_device_free(p[i], NULL);
  (void)tick();
  assert_int_equal(mapped(), 32 * LM_MIB);
  loam_device_keep(0);
  (void)tick();
  assert_int_equal(mapped(), 0);
}

static void pinned_memory_goes_back_whatever_streams_do(void **state) {
  (void)state;
  standin_hold();
  loam_free(pinned(8 * LM_MIB));
  (void)tick();
  assert_int_equal(standin_calls("cuMemHostUnregister"), standin_calls("cuMemHostRegister"));
  standin_release();
}

static void chunks_go_back_whole(void **state) {
  (void)state;
  if (loam_policy_load_text("chunks",
                            "local d = loam.device { pool = 'chunks' } return loam.policy "
                            "{ pick = function(req) return d end }\n"))
    fail_msg("%s", loam_error());
  void *p = alloc(20 * LM_MIB, NULL), *q = alloc(5 * LM_MIB, NULL);
  size_t both = mapped();
  loam_defer_limit(10, 100);
  loam_device_free(p, NULL);
  (void)tick();
  assert_true(mapped() <= both - 20 * LM_MIB);
  loam_device_free(q, NULL);
  (void)tick();
  assert_int_equal(mapped(), 0);
  assert_int_equal(standin_used(0), 0); /* nor is it pending */
}

/* ---- Random work on several streams, against a model */

enum { STREAMS = 4, SLOTS = 200, STEPS = SANITIZED ? 1000 : 4000 };

typedef struct slot {
  char *at;
  size_t size;
  CUstream stream;
  uint8_t byte;
} slot;

typedef struct work {
  uint64_t random;
  CUstream stream[STREAMS];
  slot slot[SLOTS];
  size_t most;
} work;

static uint64_t draw(work *w) {
  w->random ^= w->random << 13;
  w->random ^= w->random >> 7;
  w->random ^= w->random << 17;
  return w->random;
}

static void fill(work *w, slot *s) {
  s->size = 1 + draw(w) % (w->most >> draw(w) % 16);
  s->stream = w->stream[draw(w) % STREAMS];
  s->byte = (uint8_t)draw(w);
  s->at = alloc(s->size, s->stream);
  for (const slot *o = w->slot; o < w->slot + SLOTS; o++)
    if (o != s && o->at && o->at < s->at + s->size && s->at < o->at + o->size)
      fail_msg("%p of %zu bytes lies in %p of %zu", (void *)s->at, s->size, (void *)o->at, o->size);
  must(standin_write(s->stream, (uintptr_t)s->at, s->byte, s->size));
}

static void wait_for(CUstream stream, CUstream for_stream) {
  CUevent event;
  must(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  must(cuEventRecord(event, for_stream));
  must(cuStreamWaitEvent(stream, event, 0));
  must(cuEventDestroy_v2(event));
}

static void empty(work *w, slot *s) {
  must(standin_check(s->stream, (uintptr_t)s->at, s->byte, s->size));
  CUstream on = s->stream;
  if (draw(w) % 8 == 0) {
    on = w->stream[draw(w) % STREAMS];
    wait_for(on, s->stream);
  }
  if (on == s->stream && draw(w) % 2) loam_free(s->at);
  else loam_device_free(s->at, on);
  s->at = NULL;
}

static void work_at_random(unsigned delay, size_t limit, size_t most, unsigned steps) {
  work w = { .random = 88172645463325252u + delay, .most = most };
  for (int i = 1; i < STREAMS; i++) w.stream[i] = new_stream(); /* and the default one */
  standin_delay(delay);
  standin_limit(0, limit);
  for (unsigned i = 0; i < steps; i++) {
    slot *s = &w.slot[draw(&w) % SLOTS];
    if (s->at) empty(&w, s);
    else fill(&w, s);
    if (i % 512 == 0) assert_true(lm_device_pool_is_valid());
    if (i % 500 == 499) loam_device_trim(0);
  }
  for (int i = 0; i < SLOTS; i++)
    if (w.slot[i].at) empty(&w, &w.slot[i]);
  standin_limit(0, LM_GIB);
}

static void no_stream_meets_anothers_work(void **state) {
  (void)state;
  work_at_random(0, LM_GIB, 4 * LM_MIB, STEPS);
  work_at_random(50, LM_GIB, 4 * LM_MIB, STEPS);
  work_at_random(1000, LM_GIB, 256 * LM_KIB, STEPS);
}

static void the_same_without_mapping(void **state) {
  (void)state;
  loam_device_trim(0);
  lm_device_pool_of(0, false)->uses_vmm = false;
  work_at_random(50, LM_GIB, 4 * LM_MIB, STEPS);
  loam_device_trim(0);
  lm_device_pool_of(0, false)->uses_vmm = true;
}

/* ---- Threads, each with a stream, that free what others allocated */

enum { THREADS = 3, ROUNDS = SANITIZED ? 1000 : 3000, SHARED = 64 };

static _Atomic(void *) shared[SHARED];

static void *share(void *argument) {
  work w = { .random = 99194853094755497u + (uintptr_t)argument };
  CUstream stream = new_stream();
  for (int i = 0; i < ROUNDS; i++) {
    void *p = loam_device_alloc(NULL, 1 + draw(&w) % (LM_MIB >> draw(&w) % 12), stream);
    if (!p) return argument;
    loam_owner_info owner;
    if (loam_owner(p, &owner) || owner.base != p) return argument;
    p = atomic_exchange(&shared[draw(&w) % SHARED], p);
    if (p) loam_device_free(p, stream); /* no work was put anywhere */
    if (i % 500 == 499) loam_device_trim(0);
  }
  return NULL;
}

static void threads_share_a_cache(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  void *wrong;
  for (uintptr_t i = 0; i < THREADS; i++) thread[i] = start_thread(share, (void *)(i + 1));
  for (int i = 0; i < THREADS; i++) {
    pthread_join(thread[i], &wrong);
    assert_null(wrong);
  }
  for (int i = 0; i < SHARED; i++) loam_free(atomic_exchange(&shared[i], NULL));
}

/* ---- Graphs */

/* In global mode, where each call that may wait spoils it; the stand-in sees whether one does. */
static void what_is_captured_is_not_disturbed(void **state) {
  (void)state;
  CUstream one = new_stream(), other = new_stream();
  CUgraph graph;
  void *before = alloc(8 * LM_MIB, one);
  loam_device_free(before, one);
  standin_limit(0, 64 * LM_MIB);
  must(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  void *p = alloc(20 * LM_MIB, one); /* mapped meanwhile */
  must(standin_write(one, (uintptr_t)p, 1, LM_MIB));
  loam_device_free(p, one);
  void *q = alloc(30 * LM_MIB, other); /* which wants what `one` has freed */
  p = alloc(LM_MIB, one);
  loam_device_free(p, one); /* and is not told when that is done */
  assert_null(loam_device_alloc(NULL, 60 * LM_MIB, one));
  assert_non_null(strstr(loam_error(), "captured"));
  loam_device_free(q, other);
  assert_int_equal(standin_violations(), 0);
  must(cuStreamEndCapture(one, &graph));
  standin_limit(0, LM_GIB);
  p = alloc(LM_MIB, one);
  loam_device_free(p, one);
}

/* A default stream waits for a blocking one, so no event is recorded on it by the way. */
static void nor_by_the_way_on_a_default_stream(void **state) {
  (void)state;
  CUstream stream = new_stream(), blocking;
  CUgraph graph;
  must(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  loam_device_free(alloc(20 * LM_MIB, NULL), NULL);
  must(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  void *p = alloc(30 * LM_MIB, stream);
  assert_int_equal(standin_violations(), 0);
  must(cuStreamEndCapture(blocking, &graph));
  loam_device_free(p, stream);
}

/* ---- Where live memory belongs */

static struct { uint64_t right, kept, other; } placed;

static void note_placed(void *ctx, const loam_placed *row) {
  (void)ctx;
  if (!strcmp(row->what, "right")) placed.right += row->bytes;
  else if (strstr(row->why, "stays what it is")) placed.kept += row->bytes;
  else placed.other += row->bytes;
}

static void ask_where(const char *tag) {
  loam_rebalance_options options = { .size = sizeof options, .tag = tag };
  memset(&placed, 0, sizeof placed);
  assert_int_equal(loam_rebalance(&options, NULL, note_placed, NULL), LOAM_OK);
}

static void a_rebalance_tells_of_what_it_leaves(void **state) {
  (void)state;
  loam_site *site = loam_site_get("device.weights");
  void *p[3];
  for (int i = 0; i < 3; i++) p[i] = loam_device_alloc(site, LM_MIB, NULL);
  ask_where("device.weights");
  assert_int_equal(placed.right, 3 * LM_MIB);
  assert_int_equal(placed.kept + placed.other, 0);
  assert_int_equal(loam_policy_load_text("elsewhere", "local m = loam.managed {}\n"
                                                      "return loam.policy { pick = function(req) "
                                                      "return m end }\n"),
                   LOAM_OK);
  ask_where("device.weights");
  assert_int_equal(placed.kept, 3 * LM_MIB);
  assert_int_equal(placed.right + placed.other, 0);
  loam_demote_options demote = { .size = sizeof demote, .tag = "device.weights" };
  demote.to = LOAM_TO_COLD;
  memset(&placed, 0, sizeof placed);
  assert_int_equal(loam_demote(&demote, NULL, note_placed, NULL), LOAM_OK);
  assert_int_equal(placed.kept, 3 * LM_MIB);
  for (int i = 0; i < 3; i++) loam_free(p[i]);
}

/* ---- Faults */

/* The nth call of a function of the driver fails, for each n in turn: a block or a clean refusal,
 * and whatever happens nothing is lost. */
static void refuse_each_call(const char *function) {
  CUstream one = new_stream(), other = new_stream();
  standin_limit(0, 40 * LM_MIB);
  for (unsigned nth = 1; nth <= 8; nth++) {
    loam_device_trim(0);
    standin_fail(function, nth, 1, CUDA_ERROR_OUT_OF_MEMORY);
    void *p[4];
    for (int i = 0; i < 4; i++) {
      p[i] = loam_device_alloc(NULL, (size_t)(i + 4) << 20, i % 2 ? one : other);
      if (!p[i]) assert_int_not_equal(strlen(loam_error()), 0);
    }
    for (int i = 0; i < 4; i++) loam_device_free(p[i], i % 2 ? other : one);
    void *large = loam_device_alloc(NULL, 30 * LM_MIB, other);
    loam_device_free(large, other);
    standin_fail(NULL, 0, 0, CUDA_SUCCESS);
    assert_true(lm_device_pool_is_valid());
    large = alloc(38 * LM_MIB, one);
    loam_device_free(large, one);
  }
  standin_limit(0, LM_GIB);
}

static void any_call_may_fail_for_want_of_memory(void **state) {
  static const char *const functions[] = {
    "cuMemCreate",   "cuMemMap",           "cuMemSetAccess", "cuMemAddressReserve", "cuEventCreate",
    "cuEventRecord", "cuEventSynchronize", "cuEventQuery",   "cuCtxSynchronize",    "cuMemAlloc",
  };
  (void)state;
  for (size_t i = 0; i < LM_COUNT(functions); i++) refuse_each_call(functions[i]);
  lm_device_pool_of(0, false)->uses_vmm = false;
  refuse_each_call("cuMemAlloc");
  loam_device_trim(0);
  lm_device_pool_of(0, false)->uses_vmm = true;
}

int main(void) {
  setenv("STANDIN_DEVICES", "2", 1);
  setenv("STANDIN_MEMORY", "1G", 1);
  setenv("LOAM_CONTROL", "0",
         1); /* no service thread: what a call makes the driver do is counted */
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(the_same_stream_has_it_again_at_once, start, end),
    cmocka_unit_test_setup_teardown(another_stream_has_it_when_its_work_has_ended, start, end),
    cmocka_unit_test_setup_teardown(a_stream_of_another_context_is_waited_for_as_well, start, end),
    cmocka_unit_test_setup_teardown(its_events_are_of_its_context, start, end),
    cmocka_unit_test_setup_teardown(each_context_has_default_streams_of_its_own, start, end),
    cmocka_unit_test_setup_teardown(what_is_wanting_is_taken_from_other_streams_at_last, start,
                                    end),
    cmocka_unit_test_setup_teardown(fragments_are_mapped_anew_rather_than_kept, start, end),
    cmocka_unit_test_setup_teardown(a_hole_between_free_blocks_is_filled, start, end),
    cmocka_unit_test_setup_teardown(what_is_common_joins_what_is_a_streams, start, end),
    cmocka_unit_test_setup_teardown(others_may_take_what_it_grows_beside, start, end),
    cmocka_unit_test_setup_teardown(owners_are_found_from_within, start, end),
    cmocka_unit_test_setup_teardown(pinned_memory_is_pooled_and_grows_in_steps, start, end),
    cmocka_unit_test_setup_teardown(pinned_memory_that_a_stream_reads_waits_for_it, start, end),
    cmocka_unit_test_setup_teardown(what_is_idle_goes_back_without_a_wait, start, end),
    cmocka_unit_test_setup_teardown(of_a_stream_of_the_hosts_after_the_next_call_on_it, start, end),
    cmocka_unit_test_setup_teardown(what_is_used_between_ticks_stays, start, end),
    cmocka_unit_test_setup_teardown(as_much_stays_as_is_to_be_kept, start, end),
    cmocka_unit_test_setup_teardown(pinned_memory_goes_back_whatever_streams_do, start, end),
    cmocka_unit_test_setup_teardown(chunks_go_back_whole, start, end),
    cmocka_unit_test_setup_teardown(no_stream_meets_anothers_work, start, end),
    cmocka_unit_test_setup_teardown(the_same_without_mapping, start, end),
    cmocka_unit_test_setup_teardown(threads_share_a_cache, start, end),
    cmocka_unit_test_setup_teardown(what_is_captured_is_not_disturbed, start, end),
    cmocka_unit_test_setup_teardown(nor_by_the_way_on_a_default_stream, start, end),
    cmocka_unit_test_setup_teardown(a_rebalance_tells_of_what_it_leaves, start, end),
    cmocka_unit_test_setup_teardown(any_call_may_fail_for_want_of_memory, start, end),
  };
  return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
