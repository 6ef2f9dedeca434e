/* pool_fixture.h - helpers that tests of pools share: objects that one thread takes from a pool and
 * gives back, without the engine. */
#ifndef POOL_FIXTURE_H
#define POOL_FIXTURE_H

#include "heap/pool.h"
#include "os/decay.h"
#include "test.h"

enum { TOKEN = 2 }; /* of each object */

static lm_thread *t; /* the thread of the test */

/* Returns the strategy of a description; equal descriptions have one strategy. */
static inline lm_strategy *intern(lm_desc desc) {
  lm_strategy *s;
  assert_int_equal(lm_strategy_intern(&desc, &s), LOAM_OK);
  return s;
}

/* Takes an object out of the pool of a strategy; NULL: there is no memory. */
static inline void *take(lm_strategy *s, size_t size, size_t align) {
  bool zeroed;
  return lm_pool_alloc(t, s, &(lm_pool_request){ size, align, TOKEN }, &zeroed);
}

/* Gives an object back to its pool, past the thread cache. */
static inline lm_free_result release(void *p) {
  lm_object object;
  return lm_pool_free(t, p, &object);
}

/* The set-up of a test program. */
static inline int begin(void **state) {
  (void)state;
  t = lm_thread_get();
  lm_decay_note_served(lm_sys_clock_ns() + AN_HOUR); /* freed memory stays for the next test */
  return t ? 0 : -1;
}

/* The tear-down of each test. */
static inline int check_laws(void **state) {
  (void)state;
  return lm_pool_is_valid() ? 0 : -1;
}

#endif
