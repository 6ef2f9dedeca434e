/* test_device_pool.c - loam's own pools of device memory, on the stand-in for a driver:
 * device_pool.h and extent.h. The stand-in detects the use of memory that work of another stream
 * may still use. */
#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device_export.h"
#include "device/device_pool_parts.h"
#include "engine/engine.h"
#include "names.h"
#include "os/decay.h"
#include "standin.h"
#include "stream.h"

static void must(CUresult result) { assert_int_equal(result, CUDA_SUCCESS); }

static int start(void **state) {
  (void)state;
  lm_decay_note_served(INT64_MAX / 2); /* no service thread is needed: these tests make the ticks */
  loam_defer_limit(0, 0);
  if (loam_policy_load_text("test",
                            "local d = loam.device { name = 'd', id = 0 } return loam.policy "
                            "{ pick = function(req) return d end }\n"))
    fail_msg("%s", loam_error());
  assert_non_null(lm_gpu());
  return 0;
}

/* Ends a test. Checks that loam made no wrong call of the driver and that no memory is left. */
static int end(void **state) {
  (void)state;
  standin_delay(0);
  standin_release();
  standin_fail(NULL, 0, 0, CUDA_SUCCESS);
  if (!lm_device_pool_is_valid()) print_message("a pool is not valid\n");
  bool valid = lm_device_pool_is_valid();
  loam_device_trim(-1);
  lm_device_figures has;
  lm_device_pool_figures(0, &has);
  if (has.reserved || has.used || standin_used(0)) {
    print_message("%zu bytes are mapped, %zu live, %zu used\n", has.reserved, has.used,
                  standin_used(0));
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
  lm_device_figures has;
  lm_device_pool_figures(0, &has);
  return has.reserved;
}

static void a_freed_block_serves_its_stream_again_immediately(void **state) {
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

static void a_freed_block_serves_another_stream_after_its_work(void **state) {
  (void)state;
  CUstream one = new_stream(), other = new_stream();
  void *q = alloc(900 * LM_MIB, other); /* so much that the pool returns no memory in between */
  standin_hold();
  void *p = alloc(8 * LM_MIB, one);
  must(standin_write(one, (uintptr_t)p, 1, 8 * LM_MIB));
  loam_device_free(p, one);
  void *wanted = alloc(8 * LM_MIB, other); /* requests an event */
  assert_ptr_not_equal(wanted, p);
  loam_device_free(alloc(512, one), one); /* the next call on the stream records it */
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

static unsigned count_queues(void) {
  unsigned n = 0;
  for (const lm_device_pool *pool = lm_device_pool_next(NULL, 0); pool;
       pool = lm_device_pool_next(pool, 0))
    for (const lm_stream_queue *q = pool->queues; q; q = q->next) n++;
  return n;
}

static void a_trim_ends_the_queues_of_streams_that_have_no_memory(void **state) {
  (void)state;
  CUstream kept = new_stream();
  void *p = alloc(4096, kept);
  for (int i = 0; i < 50; i++) {
    CUstream stream = new_stream();
    loam_device_free(alloc(4096, stream), stream);
    must(cuStreamSynchronize(stream));
    must(cuStreamDestroy_v2(stream));
  }
  assert_true(count_queues() > 50);
  loam_device_trim(-1);
  assert_int_equal(count_queues(), 1);
  loam_device_free(p, NULL);
  p = alloc(4096, kept);
  loam_device_free(p, kept);
}

/* ---- Another context of the same device */

static void go_to(CUcontext context) { must(cuCtxSetCurrent(context)); }

/* Sets *home to the current context, and *made to a new context for its device. */
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

static void waits_for_streams_of_all_contexts(void **state) {
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

/* The first stream frees a block, and an event is recorded. The other stream gets the block without
 * a wait for the context. */
static void pass_on(CUstream one, CUstream other) {
  void *p = alloc(8 * LM_MIB, one); /* any context of the device can be current */
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

static void records_events_in_the_context_of_the_stream(void **state) {
  (void)state;
  CUcontext home, away;
  make_context(&home, &away);
  CUstream one = stream_in(away), other = stream_in(home);
  void *much = alloc(900 * LM_MIB, other); /* so much that the pool returns no memory in between */
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
  for (uintptr_t stream = 0; stream <= 2; stream++) { /* all numbers of default streams */
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

static void takes_memory_of_other_streams_as_the_last_resort(void **state) {
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
  q = alloc(60 * LM_MIB, one); /* memory that is free but does not fit is returned first */
  loam_device_free(q, one);
  loam_device_free(small, other);
  standin_limit(0, LM_GIB);
}

static void unmaps_fragments_rather_than_grow(void **state) {
  (void)state;
  CUstream stream = new_stream();
  enum { BLOCKS = 32 };
  void *p[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) p[i] = alloc(8 * LM_MIB, stream);
  size_t before = mapped();
  for (int i = 0; i < BLOCKS; i += 2) loam_device_free(p[i], stream);
  void *large = alloc(BLOCKS / 2 * 8 * LM_MIB, stream);
  size_t may = before + before / 32 + 8 * LM_MIB; /* a 32nd more, and pieces that are not full */
  if (mapped() > may) fail_msg("%zu bytes are mapped, %zu were", mapped(), before);
  must(standin_write(stream, (uintptr_t)large, 1, BLOCKS / 2 * 8 * LM_MIB));
  for (int i = 1; i < BLOCKS; i += 2) {
    must(standin_write(stream, (uintptr_t)p[i], 1, 8 * LM_MIB));
    loam_device_free(p[i], stream);
  }
  loam_device_free(large, stream);
}

/* There is free memory below a hole and above it. Only the memory of the hole is mapped. */
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

/* In a program with several streams, free memory next to a stream's block may be common. */
static void common_memory_joins_memory_of_a_stream(void **state) {
  (void)state;
  CUstream one = new_stream(), other = new_stream();
  void *kept = alloc(LM_MIB, other), *p[2];
  for (int i = 0; i < 2; i++) p[i] = alloc(16 * LM_MIB, one);
  void *last = alloc(LM_MIB, one);
  loam_device_free(p[0], one);
  lm_stream_ref ref = { .stream = one };
  lm_device_pool *c = lm_device_pool_of(0, false);
  lm_lock_take(&c->lock); /* acts like an event that has happened */
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

static void another_thread_may_take_the_memory_beside_a_hole(void **state) {
  (void)state;
  taking = new_stream();
  void *beside = alloc(20 * LM_MIB, taking);
  loam_device_free(beside, taking);
  standin_call_before("cuMemCreate", let_another_take, NULL);
  void *large = alloc(30 * LM_MIB, taking);
  assert_ptr_equal(taken, beside);
  assert_true((char *)large >= (char *)taken + 20 * LM_MIB);
  loam_device_free(large, taking);
  loam_device_free(taken, taking);
}

static void finds_the_owner_of_an_interior_address(void **state) {
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
  assert_true(owner.size >= size &&
              owner.size < size + 4096); /* sizes are not rounded to powers of two */
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
  assert_true(made > 2 && made < 40); /* few regions for 45 MB, which begin with 2 MiB */
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

/* ---- Idle memory is returned. These tests make the ticks */

/* Makes ticks while there is something to do, but at most ten. Returns their number. */
static unsigned tick_until_idle(void) {
  unsigned ticks = 0;
  while (lm_device_pool_decay() && ++ticks < 10) {
  }
  return ticks;
}

static void returns_idle_memory_without_waiting(void **state) {
  (void)state;
  must(cuCtxSynchronize());
  unsigned long waits = standin_calls("cuCtxSynchronize");
  void *p = alloc(64 * LM_MIB, NULL), *small = alloc(1, NULL);
  standin_hold();
  must(standin_write(NULL, (uintptr_t)p, 1, 64 * LM_MIB));
  loam_device_free(p, NULL);
  /* work is not finished, so each tick asks for another one */
  assert_int_equal(tick_until_idle(), 10);
  assert_true(mapped() >= 64 * LM_MIB);
  standin_release();
  assert_true(tick_until_idle() < 10);
  assert_true(mapped() <= 4 * LM_MIB);
  loam_device_free(small, NULL);
  (void)tick_until_idle();
  assert_int_equal(mapped(), 0);
  assert_int_equal(standin_calls("cuCtxSynchronize"), waits);
  unsigned long calls = standin_calls(NULL);
  assert_int_equal(tick_until_idle(), 0);
  assert_int_equal(standin_calls(NULL), calls);
}

static void returns_memory_of_a_stream_after_the_next_call_on_it(void **state) {
  (void)state;
  CUstream stream = new_stream();
  void *p = alloc(64 * LM_MIB, stream), *small = alloc(1, stream);
  loam_device_free(p, stream);
  assert_true(tick_until_idle() < 10); /* no event is recorded on a stream that may be destroyed */
  assert_true(mapped() >= 64 * LM_MIB);
  loam_device_free(small, stream);
  assert_true(tick_until_idle() < 10);
  assert_true(mapped() <= 2 * LM_MIB);
}

static void keeps_memory_that_is_used_between_ticks(void **state) {
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

static void keeps_as_much_as_loam_device_keep_says(void **state) {
  (void)state;
  void *p[8];
  loam_device_keep(32 * LM_MIB);
  for (int i = 0; i < 8; i++) p[i] = alloc(16 * LM_MIB, NULL);
  for (int i = 0; i < 8; i++) loam_device_free(p[i], NULL);
  (void)tick_until_idle();
  assert_int_equal(mapped(), 32 * LM_MIB);
  loam_device_keep(0);
  (void)tick_until_idle();
  assert_int_equal(mapped(), 0);
}

static void returns_idle_pinned_memory_while_streams_work(void **state) {
  (void)state;
  standin_hold();
  loam_free(pinned(8 * LM_MIB));
  (void)tick_until_idle();
  assert_int_equal(standin_calls("cuMemHostUnregister"), standin_calls("cuMemHostRegister"));
  standin_release();
}

static void returns_chunks_as_wholes(void **state) {
  (void)state;
  if (loam_policy_load_text("chunks",
                            "local d = loam.device { pool = 'chunks' } return loam.policy "
                            "{ pick = function(req) return d end }\n"))
    fail_msg("%s", loam_error());
  void *p = alloc(20 * LM_MIB, NULL), *q = alloc(5 * LM_MIB, NULL);
  size_t both = mapped();
  loam_defer_limit(10, 100);
  loam_device_free(p, NULL);
  (void)tick_until_idle();
  assert_true(mapped() <= both - 20 * LM_MIB);
  loam_device_free(q, NULL);
  (void)tick_until_idle();
  assert_int_equal(mapped(), 0);
  assert_int_equal(standin_used(0), 0); /* no free of the memory is pending either */
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
  for (int i = 1; i < STREAMS; i++) w.stream[i] = new_stream(); /* stream 0 is the default stream */
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

static void random_work_on_streams_never_shares_memory(void **state) {
  (void)state;
  work_at_random(0, LM_GIB, 4 * LM_MIB, STEPS);
  work_at_random(50, LM_GIB, 4 * LM_MIB, STEPS);
  work_at_random(1000, LM_GIB, 256 * LM_KIB, STEPS);
}

static void random_work_on_streams_without_mapping(void **state) {
  (void)state;
  loam_device_trim(0);
  lm_device_pool_of(0, false)->uses_vmm = false;
  work_at_random(50, LM_GIB, 4 * LM_MIB, STEPS);
  loam_device_trim(0);
  lm_device_pool_of(0, false)->uses_vmm = true;
}

/* ---- Threads with a stream each free blocks of other threads */

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
    if (p) loam_device_free(p, stream); /* no stream has work */
    if (i % 500 == 499) loam_device_trim(0);
  }
  return NULL;
}

static void threads_share_a_pool(void **state) {
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

static void *use_own_stream(void *unused) {
  (void)unused;
  void *p = loam_device_alloc(NULL, 300 * LM_KIB, CU_STREAM_PER_THREAD);
  loam_device_free(p, CU_STREAM_PER_THREAD);
  return p;
}

/* When a thread has ended, no call names its own default stream any more. A pass examines 256
 * queues at a time. */
static void gives_back_the_memory_of_hundreds_of_ended_threads(void **state) {
  (void)state;
  for (int i = 0; i < 300; i++) {
    pthread_t thread;
    void *p;
    assert_int_equal(pthread_create(&thread, NULL, use_own_stream, NULL), 0);
    pthread_join(thread, &p);
    assert_non_null(p);
  }
  assert_true(mapped() > 80 * LM_MIB);
  loam_device_trim(0);
  assert_int_equal(mapped(), 0);
}

/* ---- Graphs */

/* In global capture mode, each call that may wait breaks the capture. The stand-in detects such
 * calls. */
static void does_not_break_a_capture(void **state) {
  (void)state;
  CUstream one = new_stream(), other = new_stream();
  CUgraph graph;
  void *before = alloc(8 * LM_MIB, one);
  loam_device_free(before, one);
  standin_limit(0, 64 * LM_MIB);
  must(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  void *p = alloc(20 * LM_MIB, one); /* maps memory during the capture */
  must(standin_write(one, (uintptr_t)p, 1, LM_MIB));
  loam_device_free(p, one);
  void *q = alloc(30 * LM_MIB, other); /* needs the memory that `one` has freed */
  p = alloc(LM_MIB, one);
  loam_device_free(p, one); /* records no event, because the stream is captured */
  assert_null(loam_device_alloc(NULL, 60 * LM_MIB, one));
  assert_non_null(strstr(loam_error(), "captured"));
  loam_device_free(q, other);
  assert_int_equal(standin_violations(), 0);
  must(cuStreamEndCapture(one, &graph));
  standin_limit(0, LM_GIB);
  p = alloc(LM_MIB, one);
  loam_device_free(p, one);
}

/* A default stream waits for a captured blocking stream, so loam records no event on it. */
static void does_not_break_a_capture_by_a_default_stream(void **state) {
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

static void a_rebalance_reports_the_blocks_that_it_leaves(void **state) {
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

/* Makes the nth call of a driver function fail, for each n in turn. A request gets a block or an
 * error, and no memory is lost. */
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

/* ---- Other processes */

static void exports_a_block_piece_by_piece(void **state) {
  enum { SIZE = 40 };
  lm_device_export block;
  lm_device_export_piece piece;
  loam_status status;
  int fd;
  (void)state;
  CUstream stream = new_stream();
  char *p = alloc(SIZE * LM_MIB, stream);
  assert_true(lm_device_export_key(p + LM_MIB, &block, &status));
  assert_int_equal(status, LOAM_OK);
  assert_true(block.base == (uintptr_t)p && block.key != 0);
  for (uint64_t at = block.base; at < block.base + block.size; at = piece.at + piece.size) {
    assert_int_equal(lm_device_export_open(block.base, block.key, at, &piece, &fd), LOAM_OK);
    assert_true(lm_device_export_piece_is_valid(&piece));
    assert_true(piece.begin <= block.base && piece.end >= block.base + block.size);
    assert_true(piece.at <= at && at < piece.at + piece.size);
    close(fd);
  }
  assert_int_equal(lm_device_export_open(block.base, block.key, block.base + LM_GIB, &piece, &fd),
                   LOAM_EINVAL);
  assert_int_equal(lm_device_export_open(block.base, block.key + 1, block.base, &piece, &fd),
                   LOAM_EBADPTR);
  loam_device_free(p, stream);
  assert_int_equal(lm_device_export_open(block.base, block.key, block.base, &piece, &fd),
                   LOAM_EBADPTR);
}

/* ---- Failures */

static void loses_nothing_when_a_call_of_the_driver_fails(void **state) {
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

static void a_piece_outside_its_block_is_not_valid(void **state) {
  (void)state;
  static const lm_device_export_piece good = { .begin = 10, .end = 20, .at = 12, .size = 8 };
  assert_true(lm_device_export_piece_is_valid(&good));
  lm_device_export_piece piece = good;
  piece.begin = 13;
  assert_false(lm_device_export_piece_is_valid(&piece));
  piece = good;
  piece.end = 19;
  assert_false(lm_device_export_piece_is_valid(&piece));
  piece.end = 12;
  assert_false(lm_device_export_piece_is_valid(&piece));
  piece = good;
  piece.size = 0;
  assert_false(lm_device_export_piece_is_valid(&piece));
}

int main(void) {
  setenv("STANDIN_DEVICES", "2", 1);
  setenv("STANDIN_MEMORY", "1G", 1);
  /* No service thread, because these tests count calls of the driver. */
  setenv("LOAM_CONTROL", "0", 1);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(a_freed_block_serves_its_stream_again_immediately, start, end),
    cmocka_unit_test_setup_teardown(a_freed_block_serves_another_stream_after_its_work, start, end),
    cmocka_unit_test_setup_teardown(a_trim_ends_the_queues_of_streams_that_have_no_memory, start,
                                    end),
    cmocka_unit_test_setup_teardown(waits_for_streams_of_all_contexts, start, end),
    cmocka_unit_test_setup_teardown(records_events_in_the_context_of_the_stream, start, end),
    cmocka_unit_test_setup_teardown(each_context_has_default_streams_of_its_own, start, end),
    cmocka_unit_test_setup_teardown(takes_memory_of_other_streams_as_the_last_resort, start, end),
    cmocka_unit_test_setup_teardown(unmaps_fragments_rather_than_grow, start, end),
    cmocka_unit_test_setup_teardown(a_hole_between_free_blocks_is_filled, start, end),
    cmocka_unit_test_setup_teardown(common_memory_joins_memory_of_a_stream, start, end),
    cmocka_unit_test_setup_teardown(another_thread_may_take_the_memory_beside_a_hole, start, end),
    cmocka_unit_test_setup_teardown(finds_the_owner_of_an_interior_address, start, end),
    cmocka_unit_test_setup_teardown(pinned_memory_is_pooled_and_grows_in_steps, start, end),
    cmocka_unit_test_setup_teardown(pinned_memory_that_a_stream_reads_waits_for_it, start, end),
    cmocka_unit_test_setup_teardown(returns_idle_memory_without_waiting, start, end),
    cmocka_unit_test_setup_teardown(returns_memory_of_a_stream_after_the_next_call_on_it, start,
                                    end),
    cmocka_unit_test_setup_teardown(keeps_memory_that_is_used_between_ticks, start, end),
    cmocka_unit_test_setup_teardown(keeps_as_much_as_loam_device_keep_says, start, end),
    cmocka_unit_test_setup_teardown(returns_idle_pinned_memory_while_streams_work, start, end),
    cmocka_unit_test_setup_teardown(returns_chunks_as_wholes, start, end),
    cmocka_unit_test_setup_teardown(random_work_on_streams_never_shares_memory, start, end),
    cmocka_unit_test_setup_teardown(random_work_on_streams_without_mapping, start, end),
    cmocka_unit_test_setup_teardown(threads_share_a_pool, start, end),
    cmocka_unit_test_setup_teardown(gives_back_the_memory_of_hundreds_of_ended_threads, start, end),
    cmocka_unit_test_setup_teardown(does_not_break_a_capture, start, end),
    cmocka_unit_test_setup_teardown(does_not_break_a_capture_by_a_default_stream, start, end),
    cmocka_unit_test_setup_teardown(a_rebalance_reports_the_blocks_that_it_leaves, start, end),
    cmocka_unit_test_setup_teardown(exports_a_block_piece_by_piece, start, end),
    cmocka_unit_test_setup_teardown(loses_nothing_when_a_call_of_the_driver_fails, start, end),
    cmocka_unit_test(a_piece_outside_its_block_is_not_valid),
  };
  return cmocka_run_group_tests_name("device_pool", tests, NULL, NULL);
}
