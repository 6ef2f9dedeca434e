/* soft_limit.c - tells the host that a strategy has passed its soft limit. */
#include "engine/soft_limit.h"

#include <errno.h>

#include "os/error.h"
#include "plan/site.h"

static void tell(const lm_strategy *s) {
  size_t left = lm_strategy_limit_left(s);
  lm_error_event(LOAM_EVENT_SOFT_LIMIT, atomic_load(&lm_site_generation), NULL,
                 "strategy '%s' has passed its soft limit of %zu bytes: %zu of %zu bytes are used",
                 s->desc.name, s->desc.soft, s->desc.limit - left, s->desc.limit);
}

void lm_soft_limit_tell(void) {
  int before = errno;
  lm_assert(!lm_thread_is_active());
  /* Zero first, and only then the count of strategies: a strategy that passes its soft limit, or is
   * made, after this line makes the next slow call look again. Acquire pairs with the release in
   * heap/strategy.c. */
  atomic_exchange_explicit(&lm_strategy_soft_passed, 0, memory_order_acquire);
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++) {
    lm_strategy *s = lm_strategy_at(id);
    uint32_t passed = LM_SOFT_PASSED;
    if (atomic_compare_exchange_strong_explicit(&s->soft_state, &passed, LM_SOFT_TOLD,
                                                memory_order_relaxed, memory_order_relaxed))
      tell(s);
  }
  errno = before;
}
