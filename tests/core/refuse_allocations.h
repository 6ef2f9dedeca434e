/* refuse_allocations.h - a policy under which one allocation of the process fails, and a count of
 * live blocks that shows whether a block was lost. */
#ifndef REFUSE_ALLOCATIONS_H
#define REFUSE_ALLOCATIONS_H

#include <stdlib.h>

#include "loam.h"
#include "test.h"

/* refuse_in counts down to the allocation that fails; 0: none fails. refuse_calls counts the
 * allocations, refuse_live the live blocks. */
static long refuse_in, refuse_calls, refuse_live;

static inline bool refuse_this(void) {
  refuse_calls++;
  return refuse_in && --refuse_in == 0;
}

static inline void *refuse_malloc(void *ctx, size_t size) {
  (void)ctx;
  if (refuse_this()) return NULL;
  refuse_live++;
  return malloc(size);
}

static inline void *refuse_calloc(void *ctx, size_t count, size_t size) {
  (void)ctx;
  if (refuse_this()) return NULL;
  refuse_live++;
  return calloc(count, size);
}

static inline void *refuse_realloc(void *ctx, void *ptr, size_t size) {
  (void)ctx;
  return refuse_this() ? NULL : realloc(ptr, size);
}

static inline void refuse_free(void *ctx, void *ptr, size_t size) {
  (void)ctx;
  (void)size;
  refuse_live--;
  free(ptr);
}

/* Loads a policy that sends every request to this handler. */
static inline void refuse_begin(void) {
  static const loam_handler handler = {
    "refuse", 1, { NULL, refuse_malloc, refuse_calloc, refuse_realloc, refuse_free }
  };
  assert_int_equal(loam_handler_register(&handler), LOAM_OK);
  if (loam_policy_load_text("refuse", "local refuse = loam.handler 'refuse' "
                                      "return loam.policy { name = 'refuse', "
                                      "pick = function(req) return refuse end }\n"))
    fail_msg("%s", loam_error());
  refuse_live = 0;
}

static inline void refuse_end(void) {
  assert_int_equal(loam_policy_load_text("none", "local all = loam.host {} return loam.policy { "
                                                 "pick = function(req) return all end }\n"),
                   LOAM_OK);
}

/* Calls `attempt` with its first allocation refused, then with its second, until no allocation is
 * left to refuse. Each time `attempt` must return LOAM_OK or LOAM_ENOMEM and leave no live block.
 * Returns the number of its allocations. */
static inline long refuse_each_block(loam_status (*attempt)(void)) {
  refuse_begin();
  for (long nth = 1;; nth++) {
    long before = refuse_calls;
    refuse_in = nth;
    loam_status status = attempt();
    refuse_in = 0;
    assert_true(status == LOAM_OK || status == LOAM_ENOMEM);
    assert_int_equal(refuse_live, 0);
    if (refuse_calls - before >= nth) continue;
    assert_int_equal(status, LOAM_OK);
    refuse_end();
    return nth - 1;
  }
}

#endif
