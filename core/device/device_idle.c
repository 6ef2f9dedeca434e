/* device_idle.c - gives device memory and pinned memory back to the driver in a process without a
 * service thread. */
#include "device/device_idle.h"

#include <errno.h>

#include "device/device_pool.h"
#include "device/pinned.h"
#include "os/decay.h"
#include "os/sys.h"

#define TICK_NS 250000000
/* When the next tick is due. Relaxed: a time alone; the exchange gives each tick to one thread. */
static _Atomic int64_t tick_ns;

static bool begins_tick(void) {
  int64_t now = lm_sys_clock_ns(), due = atomic_load_explicit(&tick_ns, memory_order_relaxed);
  return now >= due &&
         atomic_compare_exchange_strong_explicit(&tick_ns, &due, now + TICK_NS,
                                                 memory_order_relaxed, memory_order_relaxed);
}

/* The state of decay stays as it is while there is more, so that a later tick comes here again
 * (heap/sweep.c). */
static void tick(void) {
  lm_decay_end_devices();
  bool more = lm_device_pool_decay();
  more |= lm_pinned_decay();
  if (more) lm_decay_stir_devices();
}

void lm_device_idle_give_back(lm_thread *t) {
  lm_thread_clear_slow(t, LM_SLOW_DEVICES);
  if (t->inside || t->dying || lm_decay_is_served()) return;
  int before = errno;
  lm_lock_suspended section = lm_thread_foreign_begin(t);
  lm_device_pool_shed();
  lm_pinned_shed();
  if (begins_tick()) {
    tick();
    lm_thread_clear_slow(t, LM_SLOW_DEVICES);
  }
  lm_thread_foreign_end(t, section);
  errno = before;
}
