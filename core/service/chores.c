/* chores.c - the periodic work of the service thread. */
#include "service/chores.h"

#include <stdatomic.h>

#include "device/device_pool.h"
#include "device/pinned.h"
#include "heap/age.h"
#include "heap/sweep.h"
#include "move/rebalance.h"
#include "os/decay.h"
#include "os/error.h"
#include "os/numa.h"
#include "os/pressure.h"
#include "os/sys.h"
#include "service/policy.h"
#include "service/quota_file.h"

enum {
  TICK_MS = 250,      /* between two ticks of decay: idle memory goes back after three ticks */
  TICK_SHORT_MS = 50, /* while memory is short */
};

/* Times of lm_sys_clock_ns at which the next work of each kind may be done. The
 * service thread's. */
static int64_t tick_ns;     /* decay */
static int64_t job_ns = -1; /* a step of moving memory; -1: no memory is being moved */
static int64_t gauge_ns;    /* reading the gauges */
static int64_t round_ns;    /* a round of lm_age_tick */
static int64_t quotas_ns;   /* a look for dead holders of quotas */
static uint32_t refusals;   /* of lm_quota_file_look */
static int64_t look_ns;     /* a look at memory pressure */

/* The latest look at memory pressure. The service thread's. */
static lm_pressure pressure;

/* Sequentially consistent. A thread sets `is_wanted` before it wakes the service thread, which
 * takes it before it looks at the live policy. */
static _Atomic bool is_wanted;   /* live memory is to be moved */
static _Atomic bool has_applied; /* it was moved at least once */

/* ---- moving memory ---- */

/* Begins to move live memory if another thread wants that. A job that runs is ended first: it may
 * have passed over memory that has to be moved now. */
static void begin_applying(void) {
  lm_job_order order = { .applies = true };
  if (!atomic_exchange(&is_wanted, false)) return;
  atomic_store(&has_applied, true);
  if (lm_rebalance_begin(&order, LM_JOB_SERVICE) != LOAM_OK) {
    lm_rebalance_cancel();
    atomic_store(&is_wanted, true);
  } else if (!lm_policy_is_followed()) {
    lm_rebalance_cancel_applied(); /* another policy became live in between */
  }
}

static void report_moved(void) {
  loam_progress moved;
  uint64_t number;
  lm_rebalance_get(&moved, &number);
  lm_error_event(LOAM_EVENT_MOVED, atomic_load(&lm_site_generation), NULL,
                 "live memory: %llu bytes moved, %llu were in place, %llu refused",
                 (unsigned long long)moved.moved, (unsigned long long)moved.right,
                 (unsigned long long)moved.refused);
}

/* Does one step of moving live memory, if one is due. */
static void move_memory(void) {
  if (job_ns >= 0 && lm_sys_clock_ns() < job_ns) return;
  bool was_moving = job_ns >= 0;
  begin_applying();
  int64_t wait = lm_rebalance_step(LM_JOB_SERVICE);
  job_ns = wait < 0 ? -1 : lm_sys_clock_ns() + wait;
  if (was_moving && job_ns < 0) report_moved();
}

void lm_chores_want_applying(void) { atomic_store(&is_wanted, true); }

void lm_chores_end_applying(void) {
  atomic_store(&is_wanted, false);
  if (atomic_load(&has_applied)) lm_rebalance_cancel_applied();
}

bool lm_chores_has_applying(void) { return atomic_load(&is_wanted); }

/* ---- decay, gauges, ages ---- */

/* Tells whether the service thread looks at memory pressure: while there is something to give back,
 * also where free memory is kept (lm_decay_keeps_all), and until an alarm has ended. */
static bool has_looks(void) {
  uint32_t decay = atomic_load_explicit(&lm_decay_state, memory_order_relaxed);
  if (lm_published_is_mapped() || !lm_pressure_is_wanted()) return false;
  return decay != LM_DECAY_ASLEEP || pressure.is_short;
}

/* Looks at memory pressure if that is due. With an alarm all free memory goes back. */
static void look(void) {
  int64_t now = lm_sys_clock_ns();
  if (!has_looks() || now < look_ns) return;
  bool is_raised = lm_pressure_look(&pressure, NULL, now);
  lm_pressure_set_alarm(&pressure);
  if (is_raised) (void)lm_sweep_trim();
  look_ns = lm_sys_clock_ns() + lm_pressure_wait_ms(&pressure) * 1000000ll;
}

static void tick(void) {
  if (lm_decay_is_asleep() || lm_sys_clock_ns() < tick_ns) return;
  lm_sweep_decay();
  bool more = lm_device_pool_decay();
  more |= lm_pinned_decay();
  if (more) lm_decay_stir();
  tick_ns = lm_sys_clock_ns() + (pressure.is_short ? TICK_SHORT_MS : TICK_MS) * 1000000ll;
}

static void refresh_gauges(void) {
  if (!lm_numa_free_is_wanted() || lm_sys_clock_ns() < gauge_ns) return;
  lm_numa_free_refresh();
  gauge_ns = lm_sys_clock_ns() + LM_NUMA_REFRESH_MS * 1000000ll;
}

/* Notes the age of large blocks (heap/age.h). */
static void date_blocks(void) {
  if (lm_age_is_idle() || lm_sys_clock_ns() < round_ns) return;
  lm_age_tick();
  round_ns = lm_sys_clock_ns() + LM_AGE_ROUND_MS * 1000000ll;
}

/* A host has no watcher that looks after its shared limits. */
static void look_after_quotas(void) {
  if (!lm_quota_is_holder() || lm_sys_clock_ns() < quotas_ns) return;
  lm_quota_file_look(lm_quota_mapped, &refusals);
  quotas_ns = lm_sys_clock_ns() + LM_QUOTA_LOOK_MS * 1000000ll;
}

/* ---- all ---- */

void lm_chores_run(void) {
  look();
  tick();
  refresh_gauges();
  date_blocks();
  look_after_quotas();
  move_memory();
  lm_assert(job_ns >= -1);
}

int lm_chores_timeout_ms(int timeout_ms) {
  int64_t now = lm_sys_clock_ns();
  lm_assert(timeout_ms >= -1);
  if (job_ns >= 0) timeout_ms = lm_chores_earlier_ms(timeout_ms, (job_ns - now + 999999) / 1000000);
  if (!lm_age_is_idle())
    timeout_ms = lm_chores_earlier_ms(timeout_ms, (round_ns - now) / 1000000 + 1);
  if (lm_numa_free_is_wanted())
    timeout_ms = lm_chores_earlier_ms(timeout_ms, (gauge_ns - now) / 1000000 + 1);
  if (lm_quota_is_holder())
    timeout_ms = lm_chores_earlier_ms(timeout_ms, (quotas_ns - now) / 1000000 + 1);
  if (has_looks()) timeout_ms = lm_chores_earlier_ms(timeout_ms, (look_ns - now) / 1000000 + 1);
  if (lm_chores_has_applying()) timeout_ms = lm_chores_earlier_ms(timeout_ms, 1);
  if (lm_decay_is_asleep()) return timeout_ms;
  return lm_chores_earlier_ms(timeout_ms, (tick_ns - now) / 1000000 + 1);
}

/* Ends an alarm: no thread looks any more. */
static void end_looks(void) {
  pressure.is_short = false;
  if (!lm_published_is_mapped()) lm_pressure_set_alarm(&pressure);
}

void lm_chores_end(void) {
  end_looks();
  if (job_ns >= 0) {
    lm_rebalance_cancel();
    while (lm_rebalance_step(LM_JOB_SERVICE) >= 0) continue;
    job_ns = -1;
  }
  lm_numa_free_pause();
}

void lm_chores_fork_child(void) {
  end_looks();
  job_ns = -1;
  lm_numa_free_pause();
}
