/* pressure.c - memory pressure: looks, alarms, and the figure that policies read. */
#include "os/pressure.h"

#include <string.h>

#include "os/available.h"
#include "os/numa.h"
#include "os/sys.h"

/* Few bytes are left below an eighth of the limit, and at most below 256 MiB. An alarm that lasts
 * ends above twice that. */
enum { FEW_SHARE = 8 };
#define FEW_MOST ((uint64_t)256 << 20)
/* The highest rate at which a program is expected to touch new memory, in bytes in a millisecond (4
 * GiB in a second): several cores of a machine of today, without huge pages. */
#define TOUCHED_IN_MS ((uint64_t)4 << 20)
/* The intervals between alarms while memory stays short. */
#define INTERVAL_LEAST_NS 1000000000
#define INTERVAL_MOST_NS 64000000000
/* A figure on a board that is older than this is not believed. The watcher may be dead. */
#define FRESH_NS (LM_NUMA_FRESH_MS * 1000000ll)

bool lm_pressure_is_wanted(void) {
  enum { UNREAD, WANTED, UNWANTED };
  static _Atomic int kept; /* relaxed: every thread reads the same environment */
  if (atomic_load_explicit(&kept, memory_order_relaxed) == UNREAD) {
    const char *value = lm_sys_getenv("LOAM_PRESSURE");
    int found = value && !strcmp(value, "0") ? UNWANTED : WANTED;
    atomic_store_explicit(&kept, found, memory_order_relaxed);
  }
  return atomic_load_explicit(&kept, memory_order_relaxed) == WANTED;
}

static uint64_t few_of(uint64_t limit) {
  return limit / FEW_SHARE < FEW_MOST ? limit / FEW_SHARE : FEW_MOST;
}

/* Returns whether memory is short. The bounds are wider if it was short at the last look, so that
 * alarms do not begin and end all the time. */
static bool is_short_now(const lm_pressure *p) {
  int wide = p->is_short ? 2 : 1;
  if (!lm_pressure_is_wanted()) return false;
  if (p->stalled * wide >= LM_PRESSURE_STALLED) return true;
  return p->limit != UINT64_MAX && p->left < few_of(p->limit) * (uint64_t)wide;
}

bool lm_pressure_look(lm_pressure *p, const char *self, int64_t now_ns) {
  p->left = lm_available_below_high(self, &p->limit);
  p->stalled = lm_available_stalled(self);
  bool was_short = p->is_short;
  p->is_short = is_short_now(p);
  if (!p->is_short || (was_short && now_ns < p->alarm_ns)) return false;
  p->interval_ns = was_short ? p->interval_ns * 2 : INTERVAL_LEAST_NS;
  if (p->interval_ns > INTERVAL_MOST_NS) p->interval_ns = INTERVAL_MOST_NS;
  p->alarm_ns = now_ns + p->interval_ns;
  p->alarms++;
  return true;
}

int lm_pressure_wait_ms(const lm_pressure *p) {
  if (p->limit == UINT64_MAX) return LM_PRESSURE_CALM_MS;
  uint64_t few = few_of(p->limit);
  uint64_t ms = p->left > few ? (p->left - few) / TOUCHED_IN_MS : 0;
  if (ms > LM_PRESSURE_CALM_MS) return LM_PRESSURE_CALM_MS;
  return ms < LM_PRESSURE_SOON_MS ? LM_PRESSURE_SOON_MS : (int)ms;
}

bool lm_pressure_has_limit(void) {
  uint64_t limit;
  if (!lm_pressure_is_wanted()) return false;
  (void)lm_available_below_high(NULL, &limit);
  return limit != UINT64_MAX;
}

static void set_alarm(const lm_pressure *p, lm_published_gauges *to) {
  lm_assert(lm_pressure_is_valid(p));
  atomic_store_explicit(&to->alarm, p->alarms * 2 + p->is_short, memory_order_relaxed);
}

void lm_pressure_publish(const lm_pressure *p, lm_published_gauges *to) {
  uint32_t stalled = p->stalled > 0 ? (uint32_t)p->stalled : 0;
  lm_assert(stalled <= 100);
  set_alarm(p, to);
  atomic_store_explicit(&to->stalled, stalled + 1, memory_order_relaxed);
  atomic_store_explicit(&to->stalled_at, lm_sys_coarse_ns(), memory_order_relaxed);
}

void lm_pressure_set_alarm(const lm_pressure *p) {
  if (!lm_published_begin_write()) return; /* the watcher of the board looks */
  set_alarm(p, &lm_published.gauges);
  lm_published_end_write();
}

_Thread_local uint16_t lm_pressure_reads = 1; /* the first reading takes the slow path */

/* The figure that this process has read itself, and when (lm_sys_coarse_ns). The thread whose
 * exchange advances the time reads the figure. Until it has done so other threads use the old
 * figure, and 0 before the first reading. Relaxed: each is a hint. */
static _Atomic int64_t own_read_at;
static _Atomic uint32_t own_stalled;

static _Atomic bool is_guest; /* relaxed: set while loam starts */

void lm_pressure_set_guest(bool value) {
  atomic_store_explicit(&is_guest, value, memory_order_relaxed);
}

static unsigned own_now(int64_t now) {
  int64_t then = atomic_load_explicit(&own_read_at, memory_order_relaxed);
  bool is_old = !then || now - then > LM_PRESSURE_REFRESH_MS * 1000000ll;
  if (is_old && atomic_compare_exchange_strong_explicit(
                    &own_read_at, &then, now, memory_order_relaxed, memory_order_relaxed)) {
    int stalled = lm_available_stalled(NULL);
    atomic_store_explicit(&own_stalled, stalled > 0 ? (uint32_t)stalled : 0, memory_order_relaxed);
  }
  return atomic_load_explicit(&own_stalled, memory_order_relaxed);
}

unsigned lm_pressure_now_slow(void) {
  const lm_published_gauges *g = &lm_published.gauges;
  int64_t now = lm_sys_coarse_ns();
  bool reads_files = !atomic_load_explicit(&is_guest, memory_order_relaxed);
  if (reads_files && !lm_published_is_mapped()) return own_now(now);
  uint32_t kept = atomic_load_explicit(&g->stalled, memory_order_relaxed);
  int64_t age = now - atomic_load_explicit(&g->stalled_at, memory_order_relaxed);
  /* A board can be of a process whose clock is another: in a time namespace. */
  bool is_fresh = kept && age < FRESH_NS && age > -1000000000;
  lm_pressure_reads = is_fresh ? LM_PRESSURE_READS : 1;
  return is_fresh ? kept - 1 : 0;
}

#if LOAM_CHECKS >= 1
void lm_pressure_pretend(bool is_short) {
  static lm_pressure p;
  atomic_store_explicit(&own_read_at, 0, memory_order_relaxed);
  p.alarms += is_short;
  p.is_short = is_short;
  lm_pressure_set_alarm(&p);
}
#endif
